//! Keys of a grouping that have few values each and many together: a sample of the same rows of each column tells how many.

use std::sync::LazyLock;

use crate::common::*;
use crate::plans::{aggregate, filter, project};

/// So many that columns are looked at.
const ROWS: i64 = 400_000;

/// A scramble of a number (SplitMix64).
fn mixed(number: i64) -> i64 {
    let mut mixed = (number as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) >> 1) as i64
}

fn sent(row: i64) -> i64 {
    mixed(row).rem_euclid(2_500)
}

const COLUMNS: [Column; 6] = [
    ("sent", DataType::Int64, false),
    ("arrived", DataType::Int64, false),
    ("twice", DataType::Int64, false),
    ("ordered", DataType::Int64, false),
    ("value", DataType::Int64, false),
    ("text", DataType::Utf8, false),
];

/// The table of all tests.
static TABLE: LazyLock<Arc<Table>> = LazyLock::new(table);

/// `sent`, some days later `arrived`, one of 900 texts, what follows from `sent`, `sent` in the order of the rows, and a number.
fn table() -> Arc<Table> {
    let batch = |first: i64| {
        let rows = first..(first + (1 << 13)).min(ROWS);
        let integers = |value: fn(i64) -> i64| -> ArrayRef { longs(rows.clone().map(value)) };
        let columns = vec![
            integers(sent),
            integers(|row| sent(row) + mixed(row + ROWS).rem_euclid(20)),
            integers(|row| 2 * sent(row)),
            integers(|row| row / 160),
            integers(|row| row),
            texts(rows.clone().map(|row| format!("text {}", mixed(row + 2 * ROWS).rem_euclid(900)))),
        ];
        batch_of(&COLUMNS, columns)
    };
    Arc::new(Table((0..ROWS).step_by(1 << 13).map(batch).collect()))
}

fn scan() -> Plan {
    scan_of(0, &COLUMNS)
}

#[test]
fn keys_with_many_combinations_come_in_parts() {
    let engine = Engine::new();
    let functions = [(AggregateFunction::Count, None, false), (AggregateFunction::Sum, Some(4), false)];
    let grouped = |input: Plan, keys: &[usize]| aggregate(input, keys, &functions);
    // By columns 0, 1, …, of which the last is of no use.
    let projected = project(filter(scan(), 4, CompareOp::Gt, 1_000), &[1, 0, 5, 2, 4], 4);
    let cases: [(&str, Plan, bool); 8] = [
        ("dates", grouped(scan(), &[0, 1]), true),
        ("dates, otherwise", grouped(scan(), &[1, 0]), true),
        ("a text among them", grouped(scan(), &[0, 5]), true),
        ("three", grouped(scan(), &[1, 5, 0]), true),
        ("behind a filter and a projection", grouped(projected.clone(), &[0, 1]), true),
        ("one follows from the other", grouped(scan(), &[0, 2]), false),
        ("in order", grouped(scan(), &[3, 1]), false),
        ("one alone", grouped(projected, &[1]), false),
    ];
    for (name, plan, in_parts) in covering("combinations", cases, 4, |(.., in_parts)| vec![*in_parts]) {
        let expected = run(&engine, &plan, &*TABLE, on(DeviceChoice::Cpu, &[("group_parts", "1")]));
        // The second run knows the columns.
        for _ in 0..2 {
            let output = run(&engine, &plan, &*TABLE, on(DeviceChoice::Cpu, &[]));
            assert_eq!(rows_of(&output.batch, false), rows_of(&expected.batch, false), "{name}");
            let choice = output.metrics.choices().find(|choice| choice.axis.name == "group_parts");
            assert_eq!(choice.is_some_and(|choice| choice.value != "1"), in_parts, "{name}: {choice:?}");
        }
    }
}

#[test]
fn estimates_stand_before_reasons() {
    let engine = Engine::new();
    let functions = [(AggregateFunction::Count, None, false)];
    let plan = aggregate(scan(), &[0, 1], &functions);
    for (forced, reason) in [(&[][..], "a worker"), (&[("group_parts", "1")][..], "forced")] {
        let query = query_of(&plan, &*TABLE, on(DeviceChoice::Cpu, forced));
        let output = engine.execute(&query, &CancelToken::default()).expect("it runs");
        let choice = output.metrics.choices().find(|choice| choice.axis.name == "group_parts");
        let estimate = choice.and_then(|choice| choice.estimate.clone()).expect("an estimate");
        assert!(estimate.starts_with("about 400000 rows to "), "{estimate}");
        for (stage, begin) in [(ExplainStage::Variants, ": "), (ExplainStage::Pipelines, " (")] {
            let text = engine.explain(&query, stage).expect("an explanation");
            assert!(text.contains(&format!("{begin}{estimate}: {reason}")), "{text}");
        }
    }
}
