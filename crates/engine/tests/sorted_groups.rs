//! Rows that a global sort brings to their groups are shared out among threads whatever the runs of equal keys are: one run of all rows, runs
//! whose lengths follow Zipf's law, runs of one row, NULL keys.

use crate::common::*;
use crate::plans::aggregate;
use kelpie_compile::plan::AggregateFunction::{Count, Max, Min, Sum};

const ROWS: i64 = 20_000;

/// `k`: keys; `v`: values and NULLs; `f`: whole numbers, so that sums do not depend on the order; `s`: texts.
fn table(key: impl Fn(i64) -> Option<i64>) -> [Arc<dyn TableSource>; 2] {
    let rows = || 0..ROWS;
    // Keys come in no order.
    let key = |row: i64| key((row * 7_919) % ROWS);
    let columns: Vec<ArrayRef> = vec![
        maybe_longs(rows().map(key)),
        maybe_longs(rows().map(|row| (row % 9 != 4).then_some(row * row % 1_009 - 400))),
        doubles(rows().map(|row| (row % 512) as f64)),
        texts(rows().map(|row| format!("text {}", row % 700))),
    ];
    let table: Arc<dyn TableSource> = table_of(&COLUMNS, columns);
    [Arc::clone(&table), table]
}

const COLUMNS: [Column; 4] = [
    ("k", DataType::Int64, true),
    ("v", DataType::Int64, true),
    ("f", DataType::Float64, false),
    ("s", DataType::Utf8, false),
];

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

/// Key `x` has a share of the rows that falls as 1 / `x`.
fn zipf(number: i64) -> Option<i64> {
    Some((ROWS as f64).powf(number as f64 / ROWS as f64) as i64 * 1_000_003)
}

fn options(device: DeviceChoice, order: &str) -> QueryOptions {
    on(device, &[("group_order", order)])
}

fn keys() -> Vec<(&'static str, [Arc<dyn TableSource>; 2])> {
    vec![
        ("distinct", table(|number| Some(number * 1_000_003))),
        ("one", table(|_| Some(77))),
        ("Zipf", table(zipf)),
        ("no keys", table(|_| None)),
        ("some keys", table(|number| (number % 3 > 0).then_some(number % 50))),
    ]
}

#[test]
fn any_runs_give_the_groups_that_there_are() {
    let engine = Engine::new();
    let all = [(Sum, Some(1), false), (Count, Some(1), false), (Min, Some(1), false), (Sum, Some(2), false)];
    let plans = [
        aggregate(scan(), &[0], &all),
        aggregate(scan(), &[0, 3], &[(Max, Some(2), false), (Count, None, false)]),
    ];
    for (name, sources) in keys() {
        for plan in &plans {
            let rows = |options: QueryOptions| rows_of(&run(&engine, plan, &sources, &options).batch, false);
            let expected = rows(options(DeviceChoice::Cpu, "arrival"));
            for device in [DeviceChoice::Cpu, DeviceChoice::Simt] {
                assert_eq!(rows(options(device, "sorted")), expected, "{device:?}: {name}");
                let table = on(device, &[("group_order", "sorted"), ("sorted_groups", "table")]);
                assert_eq!(rows(table), expected, "{device:?}, in a table: {name}");
            }
        }
    }
}

/// No warp has more to do with one run of all rows than with as many runs as rows.
#[test]
fn sorted_rows_are_shared_out_whatever_their_runs_are() {
    let engine = Engine::new();
    let plan = aggregate(scan(), &[0], &[(Sum, Some(1), false), (Count, None, false), (Max, Some(1), false)]);
    let mut steps = Vec::new();
    for (name, sources) in keys() {
        let output = run(&engine, &plan, &sources, options(DeviceChoice::Simt, "sorted"));
        let of_runs = |name: &str| name.contains("sorted rows") || name.starts_with("nodes");
        let own = output.metrics.pipelines.iter().filter(|pipeline| of_runs(&pipeline.name));
        let own: u64 = own.filter_map(|pipeline| pipeline.most_warp_steps).sum();
        assert!(own > 0, "{name}: no steps are counted");
        steps.push((name, own));
    }
    let even = steps[0].1;
    assert!(steps.iter().all(|(_, steps)| *steps < 2 * even), "{steps:?}");
}
