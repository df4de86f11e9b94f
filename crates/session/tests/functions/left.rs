//! What stays DataFusion's: functions of a session's own, and columns of types that are not compiled.

use datafusion::arrow::datatypes::{DataType, Int8Type};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udaf, create_udf};
use datafusion::physical_plan::Accumulator;
use datafusion::scalar::ScalarValue;
use kelpie_session::Stage;

use super::*;

/// Adds all values and a thousand.
#[derive(Debug, Default)]
struct Thousand(i64);

impl Accumulator for Thousand {
    fn update_batch(&mut self, values: &[ArrayRef]) -> datafusion::error::Result<()> {
        self.0 += values[0].len() as i64;
        Ok(())
    }
    fn merge_batch(&mut self, states: &[ArrayRef]) -> datafusion::error::Result<()> {
        let counts = states[0].as_any().downcast_ref::<Int64Array>().unwrap();
        self.0 += counts.iter().flatten().sum::<i64>();
        Ok(())
    }
    fn evaluate(&mut self) -> datafusion::error::Result<ScalarValue> {
        Ok(ScalarValue::Int64(Some(self.0 + 1000)))
    }
    fn state(&mut self) -> datafusion::error::Result<Vec<ScalarValue>> {
        Ok(vec![ScalarValue::Int64(Some(self.0))])
    }
    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sessions_own_functions_are_not_datafusions() {
    let (plain, kelpie) = pair(DEVICES[0]);
    words(&plain, &kelpie);
    for context in [&plain, kelpie.context()] {
        let text = |arguments: &[ColumnarValue]| Ok(arguments[0].clone());
        context.register_udf(create_udf(
            "split_part",
            vec![DataType::Utf8, DataType::Utf8, DataType::Int64],
            DataType::Utf8,
            Volatility::Immutable,
            Arc::new(text),
        ));
        for name in ["upper", "lower", "reverse"] {
            let arguments = vec![DataType::Utf8];
            context.register_udf(create_udf(
                name,
                arguments,
                DataType::Utf8,
                Volatility::Immutable,
                Arc::new(text),
            ));
        }
        for name in ["avg", "sum", "count", "bit_and", "median"] {
            context.register_udaf(create_udaf(
                name,
                vec![DataType::Int64],
                Arc::new(DataType::Int64),
                Volatility::Immutable,
                Arc::new(|_| Ok(Box::new(Thousand::default()))),
                Arc::new(vec![DataType::Int64]),
            ));
        }
    }
    for (call, name) in [
        ("upper(s)", "upper"),
        ("lower(s)", "lower"),
        ("reverse(s)", "reverse"),
        ("split_part(s, '.', 1)", "split_part"),
        ("avg(z)", "avg"),
        ("sum(z)", "sum"),
        ("count(z)", "count"),
        ("bit_and(z)", "bit_and"),
        ("median(z)", "median"),
    ] {
        let sql = format!("SELECT {call} FROM w");
        let query = Generated { sql: sql.clone(), ordered: false };
        match compare(&plain, &kelpie, &query).await {
            Outcome::Equal { compiled: false, reasons } => {
                let wanted = format!("{name} is the session's own");
                assert!(reasons.iter().any(|reason| reason.contains(&wanted)), "{sql}: {reasons:?}");
            }
            other => panic!("{sql}: {other:?}"),
        }
        let plan = kelpie.explain(&sql, Stage::Plan).await.unwrap();
        assert!(plan.contains("the session's own"), "{plan}");
    }
    // Others of DataFusion's are still taken, also by their aliases.
    let result =
        kelpie.sql("SELECT max(z), stddev_samp(z), bit_or(z), char_length(max(s)) FROM w").await.unwrap();
    assert!(result.timing.compiled, "{:?}", result.timing);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_counted_whatever_the_columns_are() {
    let folder = tempfile::TempDir::new().unwrap();
    let lists = ListArray::from_iter_primitive::<Int8Type, _, _>((0..5).map(|i| Some(vec![Some(i)])));
    let batches = [
        ("only.arrow", vec![("list", Arc::new(lists.clone()) as ArrayRef)]),
        (
            "first.arrow",
            vec![("list", Arc::new(lists) as ArrayRef), ("a", Arc::new(Int64Array::from_iter_values(0..5)))],
        ),
        ("time.arrow", vec![("time", Arc::new(Time64NanosecondArray::from_iter_values(0..7)) as ArrayRef)]),
        ("null.arrow", vec![("null", Arc::new(NullArray::new(3)) as ArrayRef)]),
    ];
    let (plain, kelpie) = pair(DEVICES[0]);
    for (file, columns) in batches {
        let fields: Vec<Field> =
            columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
        let path = folder.path().join(file);
        let mut writer = FileWriter::try_new(std::fs::File::create(&path).unwrap(), &batch.schema()).unwrap();
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        let name = file.trim_end_matches(".arrow");
        kelpie.register_path(name, &path).await.unwrap();
        let options = datafusion::execution::options::ArrowReadOptions::default();
        plain.register_arrow(name, path.to_str().unwrap(), options).await.unwrap();
    }
    for name in ["only", "first", "time", "null"] {
        for sql in [
            format!("SELECT count(*) FROM {name}"),
            format!("SELECT 1 FROM {name}"),
            format!("SELECT count(*) FROM {name} a, {name} b"),
        ] {
            same(&plain, &kelpie, &sql).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dictionary_of_dictionaries_runs_on_datafusions_operators() {
    let values = StringArray::from(vec!["a", "b", "c"]);
    let inner =
        DictionaryArray::<Int8Type>::try_new(Int8Array::from(vec![2, 1, 0]), Arc::new(values)).unwrap();
    let keys = Int8Array::from(vec![Some(0), None, Some(2), Some(0)]);
    let outer = DictionaryArray::<Int8Type>::try_new(keys, Arc::new(inner)).unwrap();
    let (plain, kelpie) = pair(DEVICES[0]);
    let columns = vec![
        ("id", Arc::new(Int64Array::from_iter_values(0..4)) as ArrayRef),
        ("d", Arc::new(outer) as ArrayRef),
    ];
    register(&plain, &kelpie, "t", columns);
    let result = kelpie.sql("SELECT d FROM t WHERE id > 0").await.unwrap();
    assert!(!result.timing.compiled);
    assert!(result.timing.reasons.iter().any(|reason| reason.contains("Dictionary")), "{:?}", result.timing);
    assert_eq!(result.rows(), 3);
    same(&plain, &kelpie, "SELECT count(*), max(id) FROM t").await;
}
