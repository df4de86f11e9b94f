//! Minima and maxima of computed text: what is not kept takes no memory, however many rows there are.

use crate::common::*;
use arrow::compute::cast;

const WORDS: [&str; 7] = ["kelp", "Alga", "dulse", "nori", "", "wakame", "laver"];
const FILLING: &str = " of the cold and shallow waters of every coast there is";

/// A row: dense key, wide key, two words.
type Row = (i32, i64, Option<&'static str>, &'static str);

fn rows(count: usize) -> Vec<Row> {
    let mut next = random(3);
    let mut random = || next() as usize;
    let row = |_| {
        let key = random() % 5;
        let word = (random() % 9 > 0).then(|| WORDS[random() % WORDS.len()]);
        (key as i32, (key as i64 - 2) * 3_000_000_000_000_000_000, word, WORDS[random() % WORDS.len()])
    };
    (0..count).map(row).collect()
}

fn table(rows: &[Row]) -> Arc<Table> {
    let arrays: Vec<ArrayRef> = vec![
        ints(rows.iter().map(|row| row.0)),
        longs(rows.iter().map(|row| row.1)),
        maybe_texts(rows.iter().map(|row| row.2)),
        texts(rows.iter().map(|row| row.3)),
    ];
    table_of(&COLUMNS, arrays)
}

const COLUMNS: [Column; 4] = [
    ("key", DataType::Int32, false),
    ("wide", DataType::Int64, false),
    ("w", DataType::Utf8, true),
    ("v", DataType::Utf8, false),
];

fn column(index: usize) -> Expr {
    column_of(&COLUMNS, index)
}

fn text(function: Function, arguments: Vec<Expr>) -> Expr {
    call(function, arguments, DataType::Utf8)
}

/// `w || ' of the …' || v`, and `upper(w || v)`: NULL where `w` is.
fn computed() -> [Expr; 2] {
    let filling = text_literal(FILLING);
    let long = text(Function::ConcatOperator, vec![column(2), filling, column(3)]);
    let both = text(Function::ConcatOperator, vec![column(2), column(3)]);
    [long, text(Function::Upper, vec![both])]
}

fn evaluated(row: &Row) -> Option<[String; 2]> {
    let (word, other) = (row.2?, row.3);
    Some([format!("{word}{FILLING}{other}"), format!("{word}{other}").to_uppercase()])
}

/// Minimum and maximum of both, beneath a projection, so that they are columns of their own.
fn plan(key: Option<usize>) -> Plan {
    let exprs: Vec<Expr> = [column(0), column(1)].into_iter().chain(computed()).collect();
    let input = values_of(scan_of(0, &COLUMNS), exprs);
    let of = |function, index| of(function, Some(crate::common::column(&input, index)), DataType::Utf8);
    let both = |index| [of(AggregateFunction::Min, index), of(AggregateFunction::Max, index)];
    let aggregates = [2, 3].into_iter().flat_map(both).collect();
    groups_of(input, key.map(column).into_iter().collect(), aggregates)
}

/// By key: the least and the greatest of each text.
type Extremes = BTreeMap<i64, Vec<Option<String>>>;

fn expected(rows: &[Row], key: Option<usize>) -> Extremes {
    let mut groups: BTreeMap<i64, Vec<Option<[String; 2]>>> = BTreeMap::new();
    for row in rows {
        let key = match key {
            None => 0,
            Some(0) => row.0.into(),
            Some(_) => row.1,
        };
        groups.entry(key).or_default().push(evaluated(row));
    }
    let extremes = |texts: Vec<Option<[String; 2]>>| {
        let each = |index: usize| texts.iter().flatten().map(move |texts| texts[index].clone());
        [0, 1].into_iter().flat_map(|index| [each(index).min(), each(index).max()]).collect()
    };
    groups.into_iter().map(|(key, texts)| (key, extremes(texts))).collect()
}

fn found(batch: &RecordBatch, grouped: bool) -> Extremes {
    let keys = grouped.then(|| cast(batch.column(0), &ArrowType::Int64).expect("integers"));
    let texts = |row: usize| {
        let text = |column: &ArrayRef| {
            let column = cast(column, &ArrowType::Utf8).expect("text");
            let column = column.as_string::<i32>();
            column.is_valid(row).then(|| column.value(row).to_string())
        };
        batch.columns()[usize::from(grouped)..].iter().map(text).collect()
    };
    let key = |row| keys.as_ref().map_or(0, |keys| keys.as_primitive::<Int64Type>().value(row));
    (0..batch.num_rows()).map(|row| (key(row), texts(row))).collect()
}

fn check(engine: &Engine, rows: &[Row], options: &QueryOptions) {
    let source = table(rows);
    for key in [None, Some(0), Some(1)] {
        let output = run(engine, plan(key), &source, options);
        assert_eq!(found(&output.batch, key.is_some()), expected(rows, key), "{key:?}, {options:?}");
    }
}

#[test]
fn every_model_gives_the_same() {
    let engine = Engine::new();
    let mut devices = vec![(DeviceChoice::Cpu, 32), (DeviceChoice::Simt, 4), (DeviceChoice::Simt, 32)];
    devices.extend(kelpie_engine::testing::has_cuda(&engine).then_some((DeviceChoice::Cuda, 32)));
    for count in [0, 1, 300] {
        let rows = rows(count);
        for micro_model in MicroModel::ALL {
            for resolution in Resolution::ALL {
                for &(device, simt_lanes) in &devices {
                    let options = QueryOptions {
                        device,
                        micro_model,
                        resolution,
                        simt_lanes,
                        ..QueryOptions::default()
                    };
                    if count > 0 {
                        check(&engine, &rows, &options);
                    }
                }
            }
        }
    }
}

/// Ten times as much text is made as there is memory.
#[test]
fn memory_does_not_grow_with_rows() {
    for (device, count, limit) in
        [(DeviceChoice::Cpu, 600_000, 4 << 20), (DeviceChoice::Simt, 20_000, 600 << 10)]
    {
        let rows = rows(count);
        let texts = rows.iter().flat_map(|row| evaluated(row).into_iter().flatten());
        assert!(texts.map(|text| text.len()).sum::<usize>() > 2 * limit);
        let models = [MicroModel::Resolution, MicroModel::Pipelined];
        for micro_model in sample(&format!("{device:?}"), models, 1) {
            let memory_limit = Some(limit as u64);
            let options = QueryOptions { device, micro_model, memory_limit, ..QueryOptions::default() };
            check(&Engine::new(), &rows, &options);
        }
    }
}
