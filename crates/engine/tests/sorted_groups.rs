//! Rows that a global sort brings to their groups are shared out among threads whatever the runs of equal keys are: one run of all rows, runs
//! whose lengths follow Zipf's law, runs of one row, NULL keys.

use std::sync::Arc;

use crate::common::Table;
use crate::plans::{aggregate, rows_of, run};
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::plan::AggregateFunction::{Count, Max, Min, Sum};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::types::{DataType, Field};
use kelpie_engine::{DeviceChoice, Engine, Forced, QueryOptions, TableSource};

const ROWS: i64 = 20_000;

/// `k`: keys; `v`: values and NULLs; `f`: whole numbers, so that sums do not depend on the order; `s`: texts.
fn table(key: impl Fn(i64) -> Option<i64>) -> [Arc<dyn TableSource>; 2] {
    let schema = Arc::new(Schema::new(vec![
        ArrowField::new("k", ArrowType::Int64, true),
        ArrowField::new("v", ArrowType::Int64, true),
        ArrowField::new("f", ArrowType::Float64, false),
        ArrowField::new("s", ArrowType::Utf8, false),
    ]));
    let rows = || 0..ROWS;
    // Keys come in no order.
    let key = |row: i64| key((row * 7_919) % ROWS);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows().map(key))),
        Arc::new(Int64Array::from_iter(rows().map(|row| (row % 9 != 4).then_some(row * row % 1_009 - 400)))),
        Arc::new(Float64Array::from_iter_values(rows().map(|row| (row % 512) as f64))),
        Arc::new(StringArray::from_iter_values(rows().map(|row| format!("text {}", row % 700)))),
    ];
    let table: Arc<dyn TableSource> =
        Arc::new(Table(vec![RecordBatch::try_new(schema, columns).expect("a batch")]));
    [Arc::clone(&table), table]
}

fn scan() -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("k", DataType::Int64, true),
        field("v", DataType::Int64, true),
        field("f", DataType::Float64, false),
        field("s", DataType::Utf8, false),
    ];
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..4).collect(), fields })
}

/// Key `x` has a share of the rows that falls as 1 / `x`.
fn zipf(number: i64) -> Option<i64> {
    Some((ROWS as f64).powf(number as f64 / ROWS as f64) as i64 * 1_000_003)
}

fn options(device: DeviceChoice, order: &str) -> QueryOptions {
    let mut variants = Forced::default();
    variants.set("group_order", order).expect("an axis and its value");
    QueryOptions { device, variants, threads: Some(2), ..QueryOptions::default() }
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
        let output = run(&engine, &plan, &sources, &options(DeviceChoice::Simt, "sorted"));
        let sums = output.metrics.pipelines.iter().find(|pipeline| pipeline.name.starts_with("sorted rows"));
        steps.push((name, sums.and_then(|pipeline| pipeline.most_warp_steps).expect("counted steps")));
    }
    let even = steps[0].1;
    assert!(steps.iter().all(|(_, steps)| *steps < 2 * even), "{steps:?}");
}
