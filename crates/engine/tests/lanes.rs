//! Lanes that exchange rows give what lanes that keep theirs give: filters that keep few rows or all, joins in which one key
//! has nearly all matches, NULL keys, texts, and hardly any rows; in warps of several widths, and in few of them, so that
//! each has many turns.

#![expect(clippy::expect_used, reason = "a test fails where its helpers do")]

mod common;
#[path = "common/plans.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod plans;

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::CompareOp;
use kelpie_compile::plan::{AggregateFunction, JoinKind, Plan};
use kelpie_engine::{DeviceChoice, Engine, Forced, QueryOptions, ShapeChoices, TableSource};
use plans::{aggregate, filter, join, project, rows_of, run, scan};

use crate::common::Table;

/// As `plans::table`, but `k`, the key of joins, is skewed: three of four rows have 1, one of eight is NULL, and the others
/// have keys of their own.
fn skewed(rows: usize) -> Arc<dyn TableSource> {
    let schema = Schema::new(vec![
        ArrowField::new("k", ArrowType::Int64, true),
        ArrowField::new("n", ArrowType::Int32, false),
        ArrowField::new("s", ArrowType::Utf8, false),
        ArrowField::new("u", ArrowType::Utf8, true),
        ArrowField::new("f", ArrowType::Float64, false),
    ]);
    let key = |row: usize| match row * 5 % 8 {
        0..6 => Some(1),
        6 => None,
        _ => Some(row as i64),
    };
    let all = 0..rows;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(all.clone().map(key))),
        Arc::new(Int32Array::from_iter_values(all.clone().map(|row| row as i32))),
        Arc::new(StringArray::from_iter_values(all.clone().map(|row| ["x", "", "zß", "long text"][row % 4]))),
        Arc::new(StringArray::from_iter(
            all.clone().map(|row| key(row).map(|key| format!("unique é {key}"))),
        )),
        Arc::new(Float64Array::from_iter_values(all.map(|row| row as f64 / 4.0 - 10.0))),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

/// Rows of which one in `every` is kept, more or less; they lie far apart.
fn few(source: usize, below: i128) -> Plan {
    let input = project(scan(source), &[0, 1, 2, 3, 4], 1);
    filter(filter(input, 5, CompareOp::Lt, below), 1, CompareOp::Ge, 0)
}

fn plans() -> Vec<(String, Plan)> {
    use AggregateFunction::{Count, Max, Min, Sum};
    use JoinKind::*;
    let sums = [(Count, None, false), (Sum, Some(1), false), (Min, Some(0), false), (Max, Some(3), false)];
    let mut plans = Vec::new();
    for below in [-1, 2, 30, 150, 10_000] {
        plans.push((format!("rows below {below}"), few(0, below)));
        plans.push((format!("groups of rows below {below}"), aggregate(few(0, below), &[2], &sums)));
        plans.push((format!("sums of rows below {below}"), aggregate(few(0, below), &[], &sums[..2])));
    }
    let kinds = [Inner, BuildOuter, ProbeOuter, FullOuter, ProbeSemi, ProbeAnti, ProbeMark, BuildSemi];
    for kind in kinds {
        for (keys, residual) in
            [(&[(0, 0)][..], false), (&[(0, 0)], true), (&[(3, 3)], false), (&[(1, 1)], false), (&[], true)]
        {
            let joined = join(kind, few(1, 60), few(0, 120), keys, residual);
            plans.push((format!("{kind:?} on {keys:?}, {residual}"), joined));
        }
    }
    let stars = |kind| {
        join(kind, few(1, 40), join(Inner, few(1, 90), few(0, 200), &[(1, 1)], false), &[(1, 7)], false)
    };
    plans.push(("two joins".into(), stars(Inner)));
    plans.push(("a join, and one that keeps all".into(), stars(ProbeOuter)));
    plans.push(("groups behind joins".into(), aggregate(stars(Inner), &[2], &sums)));
    let twice =
        join(Inner, few(1, 50), join(Inner, few(1, 90), few(0, 90), &[(0, 0)], false), &[(0, 6)], false);
    plans.push(("groups behind expansions".into(), aggregate(twice, &[2, 8], &sums)));
    plans
}

fn forced(variants: &[(&str, &str)]) -> Forced {
    let mut forced = Forced::default();
    for (axis, value) in variants {
        forced.set(axis, value).expect("an axis and its value");
    }
    forced
}

/// What is forced, and in warps of how many lanes.
fn ways() -> Vec<(Vec<(&'static str, &'static str)>, u32)> {
    let mut ways = Vec::new();
    for (number, refill) in ["filters", "all"].into_iter().enumerate() {
        for (index, threshold) in ["8", "16", "24", "28", "32"].into_iter().enumerate() {
            let lanes = [4, 8, 32, 3][(index + number) % 4];
            ways.push((vec![("lane_refill", refill), ("refill_threshold", threshold)], lanes));
        }
    }
    ways
}

#[test]
fn exchanged_rows_are_the_same_rows() {
    let engine = Engine::new();
    let mut refilled = 0;
    for sizes in [[0, 5], [1, 1], [170, 60]] {
        let sources = sizes.map(skewed);
        for (name, plan) in plans() {
            let options =
                QueryOptions { device: DeviceChoice::Cpu, threads: Some(2), ..QueryOptions::default() };
            let expected = rows_of(&run(&engine, &plan, &sources, &options).batch, false);
            for (index, (variants, lanes)) in ways().into_iter().enumerate() {
                // One block has all rows: its warps have many turns.
                let blocks = Some(1 + index as u32 % 2);
                let options = QueryOptions {
                    device: DeviceChoice::Simt,
                    simt_lanes: lanes,
                    shape: ShapeChoices { blocks, ..ShapeChoices::default() },
                    variants: forced(&variants),
                    ..QueryOptions::default()
                };
                let output = run(&engine, &plan, &sources, &options);
                let has = |(axis, value): &(&str, &str)| {
                    output.metrics.choices().any(|choice| choice.axis.name == *axis && choice.value == *value)
                };
                refilled += usize::from(variants.iter().all(has));
                let rows = rows_of(&output.batch, false);
                assert_eq!(rows, expected, "{name}: {variants:?} in warps of {lanes}, {sizes:?}");
            }
        }
    }
    assert!(refilled > 1000, "{refilled}");
}
