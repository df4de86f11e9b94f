//! Sort, top-k and limit: every type, direction and place of NULL, on the CPU and on the interpreter, ordered by the
//! host and by the device's kernels.

use crate::common::*;
use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices, take_record_batch};
use arrow::datatypes::Float32Type;
use kelpie_compile::types::TimeUnit;

fn mixed(row: usize) -> u64 {
    let value = (row as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value ^ (value >> 31)
}

/// One of `special`, or something of the row.
fn pick<T: Clone>(row: usize, special: &[T], other: impl Fn(u64) -> T) -> Option<T> {
    let random = mixed(row);
    match random % 8 {
        0 => None,
        1..4 => Some(special[(random >> 8) as usize % special.len()].clone()),
        _ => Some(other(random >> 8)),
    }
}

fn texts(row: usize) -> Option<String> {
    let long = "the same beginning of a long text, ".repeat(3);
    let special: Vec<String> = [
        "", "a", "a\0", "a\0\0", "b", "é", "ß", "z", "ÿ", "\u{10ffff}", "fifteen bytes: ",
        "fifteen bytes: x", "fifteen bytes: \0", "fifteen bytes: xy", "fourteen bytes", "eight by",
        "eight by\0", "eight by e", "the same beginning of a", "the same beginning",
    ]
    .map(String::from)
    .into_iter()
    .chain([long.clone(), format!("{long}!"), "x".repeat(3000)])
    .collect();
    pick(row, &special, |random| match random % 3 {
        0 => format!("the same beginning {}", random % 97),
        1 => format!("{random:x}"),
        _ => format!("{}", random % 11),
    })
}

/// A column of every type, each nullable but the first, which is the row's number.
fn table(rows: usize) -> (Arc<Table>, Plan) {
    macro_rules! integers {
        ($array:ty, $ty:ty) => {{
            let special = [<$ty>::MIN, <$ty>::MAX, 0, 1, <$ty>::MAX - 1, <$ty>::MIN + 1];
            Arc::new(<$array>::from_iter((0..rows).map(|row| pick(row, &special, |r| r as $ty)))) as ArrayRef
        }};
    }
    let f64s = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, f64::MIN, f64::MAX];
    let f32s = [0.0, -0.0, f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e-45, f32::MIN, f32::MAX];
    let wide = 10i128.pow(38) - 1;
    let decimal = |special: &'static [i128], width: u32, precision, scale| {
        let value =
            move |row| pick(row, special, |r| (i128::from(r) << width) * if r % 2 == 0 { 1 } else { -1 });
        decimals((0..rows).map(value), precision, scale)
    };
    let wides: &'static [i128] = Box::leak(Box::new([wide, -wide, 0, -1, i64::MAX as i128, 1 << 64]));
    let timestamps = [i64::MIN, i64::MAX, 0, -1];
    let timestamps = (0..rows).map(|row| pick(row, &timestamps, |r| r as i64 % 1000 - 500));
    let unit = DataType::Timestamp { unit: TimeUnit::Microsecond, timezone: None };
    let columns: Vec<(&'static str, DataType, ArrayRef)> = vec![
        ("id", DataType::Int64, longs(0..rows as i64)),
        (
            "bool",
            DataType::Boolean,
            Arc::new(BooleanArray::from_iter((0..rows).map(|row| pick(row, &[true], |r| r % 2 == 0)))),
        ),
        ("i8", DataType::Int8, integers!(Int8Array, i8)),
        ("i16", DataType::Int16, integers!(Int16Array, i16)),
        ("i32", DataType::Int32, integers!(Int32Array, i32)),
        ("i64", DataType::Int64, integers!(Int64Array, i64)),
        ("u8", DataType::UInt8, integers!(UInt8Array, u8)),
        ("u16", DataType::UInt16, integers!(UInt16Array, u16)),
        ("u32", DataType::UInt32, integers!(UInt32Array, u32)),
        ("u64", DataType::UInt64, integers!(UInt64Array, u64)),
        (
            "f32",
            DataType::Float32,
            Arc::new(Float32Array::from_iter(
                (0..rows).map(|row| pick(row, &f32s, |r| (r as i32) as f32 / 3.0)),
            )),
        ),
        (
            "f64",
            DataType::Float64,
            Arc::new(Float64Array::from_iter(
                (0..rows).map(|row| pick(row, &f64s, |r| (r as i64) as f64 / 3.0)),
            )),
        ),
        ("money", DataType::Decimal128 { precision: 15, scale: 2 }, decimal(&[0, -1, 1], 0, 38, 2)),
        ("wide", DataType::Decimal128 { precision: 38, scale: 0 }, decimal(wides, 60, 38, 0)),
        (
            "date",
            DataType::Date32,
            Arc::new(Date32Array::from_iter(
                (0..rows).map(|row| pick(row, &[i32::MIN, i32::MAX, -1], |r| r as i32 % 20_000)),
            )),
        ),
        ("time", unit, Arc::new(TimestampMicrosecondArray::from_iter(timestamps))),
        ("text", DataType::Utf8, maybe_texts((0..rows).map(texts))),
        ("few", DataType::Utf8, maybe_texts((0..rows).map(|row| pick(row, &["", "x", "yz"], |_| "yy")))),
        ("one", DataType::Int64, maybe_longs((0..rows).map(|row| pick(row, &[i64::MAX], |_| i64::MAX)))),
        ("constant", DataType::Int32, ints((0..rows).map(|_| 7))),
    ];
    let whole = |(name, data_type, array): (&'static str, DataType, ArrayRef)| {
        let data_type = match data_type {
            DataType::Decimal128 { scale, .. } => DataType::Decimal128 { precision: 38, scale },
            other => other,
        };
        (name, data_type, !["id", "constant"].contains(&name), array)
    };
    scanned(columns.into_iter().map(whole).collect())
}

fn find(plan: &Plan, name: &str) -> usize {
    plan.fields().iter().position(|field| field.name == name).unwrap()
}

/// Some columns of a plan.
fn project(plan: &Plan, columns: &[usize]) -> Plan {
    let exprs: Vec<Expr> = columns.iter().map(|index| column(plan, *index)).collect();
    let names = columns.iter().map(|index| plan.fields()[*index].name.clone()).collect();
    Plan::Project { input: Box::new(plan.clone()), exprs, names }
}

fn sort(input: &Plan, keys: &[(usize, bool, bool)], fetch: Option<usize>) -> Plan {
    let key = |&(index, descending, nulls_first): &(usize, bool, bool)| {
        sort_key(column(input, index), descending, nulls_first)
    };
    sorted(input.clone(), keys.iter().map(key).collect(), fetch)
}

fn less(expr: Expr, value: i128) -> Expr {
    compare_with(CompareOp::Lt, expr, value)
}

fn options(device: DeviceChoice, host_sort_rows: Option<u64>) -> QueryOptions {
    QueryOptions { device, host_sort_rows, threads: Some(3), ..QueryOptions::default() }
}

fn rows_of(batch: &RecordBatch, columns: &[usize]) -> Vec<String> {
    // Which NaN it is and which zero is shown too.
    let shown = |array: &ArrayRef, row: usize| match array.data_type() {
        _ if array.is_null(row) => "-".into(),
        ArrowType::Float64 => format!("{:x}", array.as_primitive::<Float64Type>().value(row).to_bits()),
        ArrowType::Float32 => format!("{:x}", array.as_primitive::<Float32Type>().value(row).to_bits()),
        _ => cell(array, row),
    };
    let row =
        |row| columns.iter().map(|index| shown(batch.column(*index), row)).collect::<Vec<_>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// The batch in the order of the keys, by Arrow.
fn expected(batch: &RecordBatch, keys: &[(usize, bool, bool)]) -> RecordBatch {
    let column = |&(index, descending, nulls_first): &(usize, bool, bool)| SortColumn {
        values: batch.column(index).clone(),
        options: Some(SortOptions { descending, nulls_first }),
    };
    let columns: Vec<SortColumn> = keys.iter().map(column).collect();
    take_record_batch(batch, &lexsort_to_indices(&columns, None).unwrap()).unwrap()
}

/// The keys come in Arrow's order, and each row is a row of the input, at most once.
fn check(
    found: &RecordBatch,
    batch: &RecordBatch,
    keys: &[(usize, bool, bool)],
    fetch: Option<usize>,
    place: &str,
) {
    let columns: Vec<usize> = keys.iter().map(|key| key.0).collect();
    let mut wanted = rows_of(&expected(batch, keys), &columns);
    wanted.truncate(fetch.unwrap_or(usize::MAX));
    let found_keys = rows_of(found, &columns);
    let differs = found_keys.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
    assert!(found_keys == wanted, "{place}: row {differs:?} of {} and {}", found_keys.len(), wanted.len());
    let all: Vec<usize> = (0..batch.num_columns()).collect();
    let input = rows_of(batch, &all);
    let ids = found.column(0).as_primitive::<Int64Type>();
    let mut seen = vec![false; batch.num_rows()];
    for (row, text) in rows_of(found, &all).iter().enumerate() {
        let id = ids.value(row) as usize;
        assert_eq!(text, &input[id], "{place}");
        assert!(!std::mem::replace(&mut seen[id], true), "{place}: row {id} twice");
    }
}

/// Sorts by each column alone in every direction, with the row's number and the column in the result.
fn every_type(device: DeviceChoice, rows: usize, host_sort_rows: Option<u64>, fetches: &[Option<usize>]) {
    let engine = Engine::new();
    let (source, scan) = table(rows);
    let options = options(device, host_sort_rows);
    let cases = (1..scan.fields().len()).flat_map(|index| (0..4).map(move |direction| (index, direction)));
    let cases =
        cases.flat_map(|(index, direction)| fetches.iter().map(move |fetch| (index, direction, *fetch)));
    let name = format!("{rows} rows on {device:?}");
    // Each type from the least to the greatest and back.
    let cases = covering(&name, cases, 45, |(index, direction, fetch)| {
        [format!("{index} {}", direction & 1), format!("{direction} {fetch:?}")].into()
    });
    for (index, direction, fetch) in cases {
        let input = project(&scan, &[0, index]);
        let batch = source.0[0].project(&[0, index]).unwrap();
        let keys = [(1, direction & 1 == 1, direction & 2 == 2)];
        let place = format!("{device:?} {} {keys:?} {fetch:?}", scan.fields()[index].name);
        let output = run(&engine, sort(&input, &keys, fetch), &source, &options);
        check(&output.batch, &batch, &keys, fetch, &place);
    }
}

#[test]
fn every_type_and_direction_on_the_cpu() {
    every_type(DeviceChoice::Cpu, 3000, Some(0), &[None, Some(1), Some(100)]);
}

#[test]
fn every_type_and_direction_ordered_by_the_host() {
    every_type(DeviceChoice::Cpu, 500, None, &[None, Some(20)]);
    // More than might be sorted on the host at once, fewer than the device is asked for.
    every_type(DeviceChoice::Cpu, 5000, None, &[None, Some(33)]);
}

#[test]
fn every_type_and_direction_on_the_interpreter() {
    every_type(DeviceChoice::Simt, 150, Some(0), &[None, Some(9)]);
}

#[test]
fn several_keys() {
    let engine = Engine::new();
    for (device, rows) in [(DeviceChoice::Cpu, 2000), (DeviceChoice::Simt, 120)] {
        let (source, scan) = table(rows);
        let lists = [
            &["few", "i8"][..],
            &["bool", "few", "u8", "text"],
            &["text", "id"],
            &["few", "text", "f64"],
            &["bool", "wide", "text"],
            &["f32", "i16", "date"],
            &["constant", "bool"],
            &["constant"],
            &["time", "u64", "i64", "money", "id"],
        ];
        for (number, names) in lists.into_iter().enumerate() {
            let ways =
                [None, Some(0)].into_iter().flat_map(|host| [None, Some(17)].map(|fetch| (host, fetch)));
            {
                for (host_sort_rows, fetch) in sample(&format!("{names:?} on {device:?}"), ways, 2) {
                    let flip = |index: usize| (number + index).is_multiple_of(2);
                    let keys =
                        names.iter().enumerate().map(|(i, name)| (find(&scan, name), flip(i), flip(i / 2)));
                    let keys: Vec<_> = keys.collect();
                    let output =
                        run(&engine, sort(&scan, &keys, fetch), &source, options(device, host_sort_rows));
                    check(
                        &output.batch,
                        &source.0[0],
                        &keys,
                        fetch,
                        &format!("{device:?} {names:?} {fetch:?}"),
                    );
                }
            }
        }
    }
}

#[test]
fn keys_that_are_expressions() {
    let engine = Engine::new();
    let (source, scan) = table(800);
    let (id, text) = (column(&scan, 0), column(&scan, find(&scan, "text")));
    let literal = int(13);
    let remainder = arithmetic(ArithmeticOp::Remainder, id.clone(), literal);
    let kind = ExprKind::Function(Function::OctetLength, vec![text]);
    let length = Expr { kind, data_type: DataType::Int32, nullable: true };
    let keys = [(remainder, true), (length, false), (id, false)]
        .map(|(expr, descending)| sort_key(expr, descending, true));
    let input = project(&scan, &[0, find(&scan, "text")]);
    let mut keys = keys.to_vec();
    if let ExprKind::Function(_, arguments) = &mut keys[1].expr.kind {
        arguments[0] = column(&input, 1);
    }
    let plan = sorted(input, keys, None);
    let mut wanted: Vec<usize> = (0..800).collect();
    wanted.sort_by_key(|row| (std::cmp::Reverse(row % 13), texts(*row).map(|text| text.len()), *row));
    for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
        let batch = run(&engine, &plan, &source, options(device, Some(0))).batch;
        assert_eq!(batch.num_columns(), 2);
        let ids: Vec<usize> = rows_of(&batch, &[0]).iter().map(|id| id.parse().unwrap()).collect();
        assert_eq!(ids, wanted);
    }
}

#[test]
fn skips_and_fetches_of_a_sort() {
    let engine = Engine::new();
    let (source, scan) = table(300);
    for host_sort_rows in [None, Some(0)] {
        let options = options(DeviceChoice::Cpu, host_sort_rows);
        for (skip, fetch) in [
            (0, Some(0)),
            (5, Some(0)),
            (0, Some(7)),
            (7, Some(7)),
            (299, Some(7)),
            (300, Some(7)),
            (1000, None),
            (298, None),
        ] {
            for plan in [
                sort(&scan, &[(0, true, true)], None),
                sort(&scan, &[(0, true, true)], fetch.map(|f| f + skip)),
            ] {
                let batch = run(&engine, limit(plan, skip, fetch), &source, &options).batch;
                let wanted: Vec<String> =
                    (0..300).rev().skip(skip).take(fetch.unwrap_or(1000)).map(|id| id.to_string()).collect();
                assert_eq!(rows_of(&batch, &[0]), wanted);
            }
        }
    }
}

/// Texts that words of sort keys hardly tell apart. Kinds from 6 on are those before, in a column of so many texts that it has
/// no dictionary.
fn alike(kind: usize, row: usize) -> Option<String> {
    let random = mixed(row) >> 8;
    let long = "http://www.example.com/a/long/beginning/that/all/have/";
    match kind {
        // What begins otherwise comes late.
        12 if row % 1000 > 200 && random.is_multiple_of(16) => {
            let others =
                ["", "a", "http://www.example.com/a/lo", "http://x", "zz", "http://www.example.com/a/long/z"];
            (!random.is_multiple_of(9)).then(|| others[(random >> 8) as usize % others.len()].to_string())
        }
        12 => Some(format!("{long}{random:x}")),
        6.. if row % 8 < 5 => Some(format!("{long}{random:x}")),
        6.. => alike(kind - 6, row),
        0 => None,
        1 => Some("all the same, and longer than fifteen bytes".into()),
        2 => Some(format!("{long}{}", random % 1000)),
        3 => Some("prefix of it ".repeat((random % 6) as usize)),
        4 => Some(format!("fifteen bytes: {}é", "\0".repeat((random % 4) as usize))),
        _ => {
            let text = format!("{}{}", ["", long, "zz"][random as usize % 3], random % 50);
            (!random.is_multiple_of(5)).then_some(text)
        }
    }
}

/// A row's number, a text of a kind, and a number with few values.
fn alike_table(kind: usize, rows: usize) -> (Arc<Table>, Plan) {
    scanned(vec![
        ("id", DataType::Int64, false, longs(0..rows as i64)),
        ("text", DataType::Utf8, true, maybe_texts((0..rows).map(|row| alike(kind, row)))),
        (
            "few",
            DataType::Int64,
            true,
            maybe_longs((0..rows).map(|row| (row % 7 > 0).then_some(row as i64 % 3))),
        ),
    ])
}

/// Some ranks of an order whose words hardly tell rows apart: only these are given, whoever puts them in order.
#[test]
fn ranks_of_texts_that_are_alike() {
    for (device, rows, host_sort_rows) in [
        (DeviceChoice::Cpu, 5000, Some(0)),
        (DeviceChoice::Cpu, 5000, None),
        (DeviceChoice::Simt, 150, Some(0)),
    ] {
        let engine = Engine::new();
        let options = options(device, host_sort_rows);
        for kind in 0..13 {
            let (source, scan) = alike_table(kind, rows);
            for (number, keys) in [&[1][..], &[1, 2], &[2, 1], &[2, 1, 0]].into_iter().enumerate() {
                let flip = |index: usize| (number + index + kind).is_multiple_of(2);
                let keys: Vec<_> = keys.iter().map(|key| (*key, flip(*key), flip(key / 2 + 1))).collect();
                let windows = [
                    (0, 1),
                    (0, 10),
                    (7, 10),
                    (rows / 2, 5),
                    (rows - 3, 10),
                    (rows, 5),
                    (0, rows + 5),
                    (3, 0),
                ];
                let name = format!("{device:?} {rows} {kind} {number}");
                // What begins otherwise is bounded apart from the rest: the first rows of it are an edge case.
                let edges = if kind == 12 { &windows[..2] } else { &[] };
                for (skip, fetch) in sample(&name, windows, 1).into_iter().chain(edges.iter().copied()) {
                    let place = format!("{device:?} kind {kind} {keys:?} {skip} {fetch}");
                    let plan = limit(sort(&scan, &keys, Some(skip + fetch)), skip, Some(fetch));
                    let found = run(&engine, &plan, &source, &options).batch;
                    let wanted = expected(&source.0[0], &keys);
                    let skip = skip.min(rows);
                    let wanted = wanted.slice(skip, fetch.min(rows - skip));
                    let columns: Vec<usize> = keys.iter().map(|key| key.0).collect();
                    assert_eq!(rows_of(&found, &columns), rows_of(&wanted, &columns), "{place}");
                    let input = rows_of(&source.0[0], &[0, 1, 2]);
                    let ids = found.column(0).as_primitive::<Int64Type>();
                    let mut seen = std::collections::HashSet::new();
                    for (row, text) in rows_of(&found, &[0, 1, 2]).into_iter().enumerate() {
                        assert_eq!(text, input[ids.value(row) as usize], "{place}");
                        assert!(seen.insert(ids.value(row)), "{place}");
                    }
                }
            }
        }
    }
}

/// All rows, put in order by the device: groups of texts that their words do not tell apart are within longer keys.
#[test]
fn orders_of_texts_that_are_alike() {
    for (device, rows) in [(DeviceChoice::Cpu, 5000), (DeviceChoice::Simt, 120)] {
        let engine = Engine::new();
        for kind in 6..12 {
            let (source, scan) = alike_table(kind, rows);
            // The text twice, so that what one leaves undecided is decided before the other.
            let input = project(&scan, &[0, 1, 2, 1]);
            let batch = source.0[0].project(&[0, 1, 2, 1]).unwrap();
            for (number, keys) in [&[1][..], &[1, 2], &[2, 1, 0], &[1, 2, 3, 0]].into_iter().enumerate() {
                let flip = |index: usize| (number + index + kind).is_multiple_of(2);
                let keys: Vec<_> = keys.iter().map(|key| (*key, flip(*key), flip(key / 2 + 1))).collect();
                let found = run(&engine, sort(&input, &keys, None), &source, options(device, Some(0))).batch;
                check(&found, &batch, &keys, None, &format!("{device:?} kind {kind} {keys:?}"));
            }
        }
    }
}

#[test]
fn no_rows() {
    let engine = Engine::new();
    let (source, scan) = table(900);
    let none = keep(scan.clone(), less(column(&scan, 0), -1));
    for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
        for fetch in [None, Some(3)] {
            let batch =
                run(&engine, sort(&none, &[(16, true, true)], fetch), &source, options(device, Some(0)))
                    .batch;
            assert_eq!((batch.num_rows(), batch.num_columns()), (0, 20));
        }
        assert_eq!(
            run(&engine, limit(none.clone(), 2, Some(3)), &source, options(device, None)).batch.num_rows(),
            0
        );
    }
    let (empty, scan) = table(0);
    assert_eq!(
        run(&engine, sort(&scan, &[(3, true, true)], Some(3)), &empty, options(DeviceChoice::Cpu, Some(0)))
            .batch
            .num_rows(),
        0
    );
}

#[test]
fn limits_stop_early() {
    let engine = Engine::new();
    let (source, scan) = table(1500);
    let even = keep(scan.clone(), less(column(&scan, 0), 1000));
    for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
        for micro_model in [MicroModel::Pipelined, MicroModel::Resolution] {
            let options = QueryOptions { micro_model, ..options(device, None) };
            for (skip, fetch, wanted) in
                [(0, 10, 10), (3, 10, 10), (0, 1000, 1000), (990, 20, 10), (1000, 5, 0), (0, 0, 0)]
            {
                let batch = run(&engine, limit(even.clone(), skip, Some(fetch)), &source, &options).batch;
                let mut ids: Vec<i64> = rows_of(&batch, &[0]).iter().map(|id| id.parse().unwrap()).collect();
                ids.sort_unstable();
                ids.dedup();
                assert_eq!(ids.len(), wanted, "{device:?} {micro_model:?} {skip} {fetch}");
                assert!(ids.iter().all(|id| *id < 1000));
            }
        }
    }
}

#[test]
fn a_limit_does_not_read_all_rows() {
    let engine = Engine::new();
    let rows = 1 << 20;
    let (source, scan) = scanned(vec![("id", DataType::Int64, false, longs(0..rows))]);
    let all = keep(scan.clone(), less(column(&scan, 0), i128::from(rows)));
    let output = run(&engine, limit(all, 0, Some(5)), &source, options(DeviceChoice::Cpu, None));
    assert_eq!(output.batch.num_rows(), 5);
    assert!(
        output.metrics.pipelines[0].rows_out.unwrap() < rows as u64 / 2,
        "{:?}",
        output.metrics.pipelines[0]
    );
}

#[test]
fn a_sort_inside_a_query() {
    let engine = Engine::new();
    let (source, scan) = table(700);
    let few = sort(&project(&scan, &[0]), &[(0, true, true)], Some(20));
    let union = Plan::Union { inputs: vec![few.clone(), few.clone()], fields: few.fields() };
    let outer = sort(&union, &[(0, false, true)], Some(5));
    for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
        let batch = run(&engine, &outer, &source, options(device, Some(0))).batch;
        assert_eq!(rows_of(&batch, &[0]), ["680", "680", "681", "681", "682"]);
    }
}
