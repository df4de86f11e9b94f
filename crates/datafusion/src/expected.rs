//! What the statistics of files tell of columns before they are read, so that code for them can be compiled meanwhile.

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, new_null_array};
use datafusion::arrow::compute::{cast, concat};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::stats::{ColumnStatistics, Precision};
use datafusion::common::{ScalarValue, Statistics};
use kelpie_compile::types::Range;
use kelpie_engine::source::Expected;

use crate::derived::Derived;

/// Values between the least and the greatest for which an expression is computed.
const SAMPLES: i128 = 64;

/// What statistics tell of each column of a table.
pub(crate) fn of_statistics(statistics: &Statistics) -> Vec<Option<Expected>> {
    statistics.column_statistics.iter().map(of_column).collect()
}

fn of_column(statistics: &ColumnStatistics) -> Option<Expected> {
    let has_nulls = *statistics.null_count.get_value()? > 0;
    let bound = |value: &Precision<ScalarValue>| value.get_value().and_then(integer);
    let range = bound(&statistics.min_value).zip(bound(&statistics.max_value));
    let range = range.filter(|(min, max)| min <= max).map(|(min, max)| Range { min, max });
    Some(Expected { range, has_nulls })
}

/// A value that is an integer inside.
pub(crate) fn integer(value: &ScalarValue) -> Option<i128> {
    match value {
        ScalarValue::Boolean(value) => value.map(i128::from),
        ScalarValue::Int8(value) => value.map(i128::from),
        ScalarValue::Int16(value) => value.map(i128::from),
        ScalarValue::Int32(value) | ScalarValue::Date32(value) => value.map(i128::from),
        ScalarValue::Int64(value)
        | ScalarValue::TimestampSecond(value, _)
        | ScalarValue::TimestampMillisecond(value, _)
        | ScalarValue::TimestampMicrosecond(value, _)
        | ScalarValue::TimestampNanosecond(value, _) => value.map(i128::from),
        ScalarValue::UInt8(value) => value.map(i128::from),
        ScalarValue::UInt16(value) => value.map(i128::from),
        ScalarValue::UInt32(value) => value.map(i128::from),
        ScalarValue::UInt64(value) => value.map(i128::from),
        ScalarValue::Decimal128(value, _, _) => *value,
        _ => None,
    }
}

/// What a column that is computed from one other will be like, by that one: most functions of numbers that are worth a column
/// are monotonic, so that the least and the greatest of some values give the least and the greatest of all.
pub(crate) fn of_derived(derived: &Derived, table: &Schema, stored: &[Option<Expected>]) -> Option<Expected> {
    let [column] = derived.columns() else { return None };
    let Expected { range, has_nulls } = (*stored.get(*column)?)?;
    let Range { min, max } = range?;
    let width = max.checked_sub(min)?;
    let samples = (0..=SAMPLES).map(|step| i64::try_from(min + width / SAMPLES * step));
    let samples = samples.chain([i64::try_from(max)]).collect::<Result<Vec<i64>, _>>().ok()?;
    let field = table.fields().get(*column)?;
    let mut values: ArrayRef = cast(&Int64Array::from(samples), field.data_type()).ok()?;
    if has_nulls {
        values = concat(&[&values, &new_null_array(field.data_type(), 1)]).ok()?;
    }
    let schema = SchemaRef::new(Schema::new(vec![field.as_ref().clone().with_nullable(true)]));
    let values = derived.evaluate(&RecordBatch::try_new(schema, vec![values]).ok()?).ok()?;
    let integers = (0..values.len()).map(|row| ScalarValue::try_from_array(&values, row));
    let integers = integers.collect::<Result<Vec<_>, _>>().ok()?;
    let integers: Vec<i128> = integers.iter().filter_map(integer).collect();
    let (min, max) = (*integers.iter().min()?, *integers.iter().max()?);
    Some(Expected { range: Some(Range { min, max }), has_nulls: integers.len() < values.len() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::execution::session_state::SessionStateBuilder;
    use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
    use kelpie_engine::Engine;

    use super::*;
    use crate::{KelpieOptions, KelpieRule, for_each_compiled};

    #[tokio::test(flavor = "multi_thread")]
    async fn columns_are_what_statistics_let_expect() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.parquet");
        let mut config = SessionConfig::new().with_option_extension(KelpieOptions::default());
        for (name, value) in [("kelpie.device", "cpu"), ("kelpie.min_rows", "0")] {
            config.options_mut().set(name, value).expect("an option");
        }
        let rule = KelpieRule::new(Arc::new(Engine::new()));
        let state = SessionStateBuilder::new().with_default_features().with_config(config);
        let state = state.with_physical_optimizer_rule(Arc::new(rule)).build();
        let session = SessionContext::new_with_state(state);
        let rows = "select value * 3 - 1000 as n, case when value % 7 > 0 then value end as m, value % 9 > 4 as b,
            cast(value as decimal(9, 2)) as d, date '1999-12-31' as day, cast(value as double) as f, 'x' || value as t
            from generate_series(0, 9999) as numbers(value)";
        let copied = format!("copy ({rows}) to '{}'", path.display());
        session.sql(&copied).await.expect("planned").collect().await.expect("written");
        let path = path.to_str().expect("a path of characters");
        session.register_parquet("t", path, ParquetReadOptions::default()).await.expect("registered");
        let sql =
            "select date_bin(interval '1 hour', to_timestamp_seconds(n)) h, sum(m), sum(d), max(day), sum(f),
            count(b), min(t), sum(n) from t group by 1";
        let plan = session.sql(sql).await.expect("planned").create_physical_plan().await;
        let mut queries = Vec::new();
        let context = session.task_ctx();
        for_each_compiled(&plan.expect("planned"), &mut |exec| queries.push(exec.query(&context)));
        let query = queries.pop().expect("it compiles").expect("it has a query");
        let source = &query.sources[0];
        let schema = source.schema();
        let expected = |name: &str| {
            let found = schema.fields().iter().position(|field| field.name().starts_with(name));
            source.expected(found.expect("the column"))
        };
        let integers = |min, max, has_nulls| Some(Expected { range: Some(Range { min, max }), has_nulls });
        assert_eq!(expected("n"), integers(-1000, 28_997, false));
        assert_eq!(expected("m"), integers(1, 9999, true));
        assert_eq!(expected("b"), integers(0, 1, false));
        assert_eq!(expected("d"), integers(0, 999_900, false));
        assert_eq!(expected("day"), integers(10_956, 10_956, false));
        assert_eq!(expected("f").map(|expected| expected.has_nulls), Some(false));
        assert_eq!(expected("t").and_then(|expected| expected.range), None);
        assert_eq!(expected("date_bin"), integers(-3600, 28_800, false));
    }
}
