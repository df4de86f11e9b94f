//! The first rows of an order, whatever order they come in: those of a full sort, and a CPU's worker stores as many as are wanted.

use crate::common::*;

const COLUMNS: [Column; 5] = [
    ("id", DataType::Int64, false),
    ("few", DataType::Int32, true),
    ("double", DataType::Float64, true),
    ("text", DataType::Utf8, true),
    ("address", DataType::Utf8, false),
];

/// The number that a row has, of so many rows.
type Number = fn(usize, usize) -> usize;

/// In which order numbers come.
const ORDERS: [(&str, Number); 5] = [
    ("rising", |row, _| row),
    ("falling", |row, rows| rows - 1 - row),
    ("from both ends", |row, rows| if row % 2 == 0 { row / 2 } else { rows - 1 - row / 2 }),
    ("from the middle", |row, rows| (row + rows / 2) % rows),
    ("any", |row, rows| row.wrapping_mul(7919) % rows),
];

fn table(rows: usize, number: Number) -> Arc<dyn TableSource> {
    let numbers: Vec<usize> = (0..rows).map(|row| number(row, rows)).collect();
    let all = || numbers.iter().copied();
    let double = |number: usize| match number % 11 {
        0 => None,
        1 => Some(f64::NAN),
        2 => Some(-0.0),
        _ => Some(number as f64 / 3.0 - 50.0),
    };
    table_of(
        &COLUMNS,
        vec![
            longs(all().map(|number| number as i64)),
            maybe_ints(all().map(|number| (number % 13 > 0).then_some(number as i32 / 900))),
            Arc::new(Float64Array::from_iter(all().map(double))),
            maybe_texts(all().map(|number| (number % 17 > 0).then(|| format!("{number:05}")))),
            texts(all().map(|number| format!("https://a.site.of.some.length/{number:07}/page"))),
        ],
    )
}

/// By some columns, descending or with NULLs first.
fn first(keys: &[(usize, bool, bool)], fetch: Option<usize>) -> Plan {
    let input = scan_of(0, &COLUMNS);
    let keys = keys
        .iter()
        .map(|(index, descending, nulls_first)| sort_key(column(&input, *index), *descending, *nulls_first));
    let keys = keys.collect();
    sorted(input, keys, fetch)
}

const KEYS: [&[(usize, bool, bool)]; 8] = [
    &[(0, false, false)],
    &[(0, true, false)],
    &[(1, false, true), (0, true, false)],
    &[(1, true, false), (0, false, false)],
    &[(2, true, true), (0, false, false)],
    &[(2, false, false), (4, true, false)],
    &[(3, true, false), (0, false, false)],
    &[(4, true, false)],
];

#[test]
fn first_rows_are_those_of_a_sort() {
    let engine = Engine::new();
    for (name, number) in ORDERS {
        let source = table(if is_whole() { 60_000 } else { 20_000 }, number);
        for keys in KEYS {
            let all = run(&engine, first(keys, None), &source, cpu()).batch;
            for (turn, fetch) in [1, 10, 1000, 4096, 5000].into_iter().enumerate() {
                let expected = rows_of(&all.slice(0, fetch), true);
                let morsels = ["4096", "16384"][turn % 2];
                for threads in [1, 2, 3] {
                    let options = on(DeviceChoice::Cpu, &[("morsel_rows", morsels)]);
                    let options = QueryOptions { threads: Some(threads), host_sort_rows: Some(0), ..options };
                    let actual = run(&engine, first(keys, Some(fetch)), &source, &options);
                    assert_eq!(
                        rows_of(&actual.batch, true),
                        expected,
                        "{name}, {keys:?}, {fetch}, {threads}"
                    );
                }
            }
        }
    }
    let source = table(3000, ORDERS[4].1);
    for keys in KEYS {
        let all = run(&engine, first(keys, None), &source, cpu()).batch;
        for device in devices() {
            let options = QueryOptions { host_sort_rows: Some(0), ..on(device, &[]) };
            let actual = run(&engine, first(keys, Some(20)), &source, options);
            assert_eq!(
                rows_of(&actual.batch, true),
                rows_of(&all.slice(0, 20), true),
                "{device:?}, {keys:?}"
            );
        }
    }
}

#[test]
fn as_many_are_stored_as_are_wanted() {
    let engine = Engine::new();
    for (name, number) in ORDERS {
        let source = table(50_000, number);
        for (keys, fetch) in [(KEYS[0], 10), (KEYS[1], 10), (KEYS[1], 500)] {
            for threads in [1, 2] {
                let options = QueryOptions {
                    threads: Some(threads),
                    host_sort_rows: Some(0),
                    ..on(DeviceChoice::Cpu, &[])
                };
                let output = run(&engine, first(keys, Some(fetch)), &source, &options);
                // Rows that come in the order are not sorted.
                if has(&output, ("sort_place", "input")) {
                    continue;
                }
                let stored = output.metrics.pipelines[0].rows_out.expect("a sort counts its rows");
                let most = 2 * fetch * threads;
                assert!(stored <= most as u64, "{name}, {keys:?}: {stored} of {most}");
            }
        }
    }
}

/// Rows that are equal to the last of those that are wanted are not told apart by their first keys.
#[test]
fn ties_are_kept() {
    let engine = Engine::new();
    for (name, number) in ORDERS {
        let source = table(30_000, number);
        for keys in [&[(1, false, false), (4, true, false)], &[(1, true, true), (2, false, false)]] {
            let all = run(&engine, first(keys, None), &source, cpu()).batch;
            for fetch in [1, 50, 1100] {
                let options = QueryOptions { host_sort_rows: Some(0), ..cpu() };
                let actual = run(&engine, first(keys, Some(fetch)), &source, options).batch;
                let columns = [keys[0].0, keys[1].0];
                let of = |batch: &RecordBatch| rows_of(&batch.project(&columns).expect("columns"), true);
                assert_eq!(of(&actual), of(&all.slice(0, fetch)), "{name}, {keys:?}, {fetch}");
            }
        }
    }
}
