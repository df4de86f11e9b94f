//! Choices that go by sizes have an estimate beside their reason, of the numbers that their rule was told.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::calibration::{AtomicRates, Calibration};
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_kir::{Scalar, Target};

use crate::common::{self, gpu};

/// Atomics a second: a thousand million in the last cache, of 32 MB, and half of it beyond.
const MEASURED: Calibration = Calibration {
    core_cache: None,
    last_cache: Some(32 << 20),
    tlb_reach: None,
    atomics: Some(AtomicRates { cached: 1_000_000_000, beyond: 500_000_000 }),
};

type Query = (Plan, Vec<ScanInfo>);

fn field(name: &str) -> Field {
    Field { name: name.into(), data_type: DataType::Int64, nullable: false }
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, false)
}

/// So many rows of a key of so many values, scattered ones where that is said, and of a number below 1000.
fn table(source: usize, rows: u64, values: i128, scattered: bool) -> (Plan, ScanInfo) {
    let layout = |max| ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U32, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max }),
    };
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1], fields: vec![field("k"), field("v")] };
    let known = scattered.then_some(Scattered { values: 1_500_000, are_even: true, text_bytes: 0 });
    let info = ScanInfo::new(rows, vec![layout(values - 1), layout(999)]);
    (Plan::Scan(scan), info.with_scattered(0, known))
}

/// An aggregate of the number by the key.
fn groups(
    (input, info): (Plan, ScanInfo),
    key: usize,
    (function, distinct): (AggregateFunction, bool),
) -> Query {
    let argument = Some(column(1 - key));
    let aggregate = Aggregate { function, argument, distinct, field: field("s") };
    let (keys, aggregates, names) = (vec![column(key)], vec![aggregate], vec!["k".to_string()]);
    (Plan::Aggregate { input: Box::new(input), keys, aggregates, names }, vec![info])
}

fn sums(rows: u64, values: i128, scattered: bool) -> Query {
    groups(table(0, rows, values, scattered), 0, (AggregateFunction::Sum, false))
}

/// Rows of which a third is left, by a filter of the number.
fn filtered(input: Plan) -> Plan {
    below(input, 333)
}

/// Rows whose number is below one: so many of a thousand.
fn below(input: Plan, most: i128) -> Plan {
    let literal = Literal::Int(most);
    let bound = Expr { kind: ExprKind::Literal(literal), data_type: DataType::Int64, nullable: false };
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(1)), Box::new(bound));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    Plan::Filter { input: Box::new(input), predicate }
}

fn joined((build, own): (Plan, ScanInfo), (probe, other): (Plan, ScanInfo)) -> Query {
    let keys = vec![(column(0), column(0))];
    let (kind, residual) = (JoinKind::Inner, None);
    let join = Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false };
    (Plan::Join(Box::new(join)), vec![own, other])
}

fn compile((plan, infos): &Query, target: &Target, forced: &[(&str, &str)], twice: bool) -> Program {
    let duplicates: BTreeSet<usize> = if twice { [0].into() } else { BTreeSet::new() };
    let variants = common::forced(forced);
    let choices = Choices {
        forced: &variants,
        calibration: MEASURED,
        ..Choices::new(MicroModel::Resolution, &duplicates)
    };
    pipeline::compile_with(plan, infos, target, &choices).expect("it compiles")
}

/// The estimates of a program's choices on an axis, with the sites where they were made.
fn estimates(program: &Program, axis: &str) -> Vec<String> {
    let choices = program.genome.0.iter().filter(|choice| choice.axis.name == axis);
    let of = |estimate: &String| estimate.clone();
    choices.map(|choice| choice.estimate.as_ref().map_or("none".into(), of)).collect()
}

/// Each axis with the estimate of the program's only choice on it.
fn assert_estimates(program: &Program, expected: &[(&str, &str)]) {
    for (axis, estimate) in expected {
        assert_eq!(estimates(program, axis), [*estimate], "{axis}");
    }
}

#[test]
fn dense_groups_have_the_sizes_of_their_tables() {
    let few = compile(&sums(6_000_000, 100, false), &gpu(), &[], false);
    let expected = [
        ("group_table", "about 6000000 rows to 100 groups, direct table of 100 slots in 1.5 kB"),
        (
            "accumulator_memory",
            "about 6000000 rows to a block's table of 100 slots in 808 bytes, 60000 a slot, 12.00 ms of atomics if \
             added as they come",
        ),
        (
            "count_bytes",
            "a block's table in 508 bytes with counts of 1 byte, 608 bytes with 2, 808 bytes with 4",
        ),
        ("table_slices", "all groups of a block in 808 bytes"),
    ];
    assert_estimates(&few, &expected);
    // What is forced has the estimate that the rule had.
    let forced = compile(&sums(60_000_000, 30_000, false), &gpu(), &[("table_slices", "2")], false);
    assert_estimates(&forced, &[("table_slices", "all groups of a block in 175 kB")]);
    let slices = compile(&sums(60_000_000, 50_000, false), &gpu(), &[], false);
    assert_estimates(&slices, &[("table_slices", "all groups of a block in 292 kB, a slice of 2 in 146 kB")]);
}

#[test]
fn hashed_groups_have_the_number_of_groups_and_what_they_take() {
    let query = sums(6_000_000, 4_000_000_000, true);
    let parts = "about 6000000 rows to 1500000 groups in 45 MB, 12.00 ms of atomics if added as they come";
    let expected = [
        ("group_parts", parts),
        ("group_table", "at most 6000000 rows to 1500000 groups"),
        ("slot_fill", "about 1500000 keys, table of 3750000 slots in 57 MB"),
        ("segments", "at most 6000000 rows to at most 6000000 groups, 256 threads of a block"),
        ("local_preaggregation", "at most 6000000 rows to 1500000 groups, 256 copies in 4 kB"),
    ];
    assert_estimates(&compile(&query, &gpu(), &[], false), &expected);
    let expected = [
        ("group_parts", parts),
        ("slot_fill", "about 1500000 keys, table of 2500000 slots in 38 MB"),
        ("segments", "none"),
        ("local_preaggregation", "at most 6000000 rows to 1500000 groups"),
    ];
    assert_estimates(&compile(&query, &Target::cpu(4), &[], false), &expected);
    // Nothing is known of the number of groups.
    let unknown = sums(6_000_000, 4_000_000_000, false);
    let expected = [
        ("group_parts", "none"),
        ("group_table", "about 6000000 rows to an unknown number of groups"),
        ("slot_fill", "none"),
    ];
    assert_estimates(&compile(&unknown, &gpu(), &[], false), &expected);
}

#[test]
fn values_that_count_once_have_the_number_of_their_pairs() {
    let input = table(0, 60_000_000, 4_000_000_000, true);
    let query = groups(input, 1, (AggregateFunction::Count, true));
    let expected = [("distinct_values", "by pairs, about 60000000 rows to 60000000 groups in 915 MB")];
    for target in [gpu(), Target::cpu(4)] {
        assert_estimates(&compile(&query, &target, &[], false), &expected);
    }
}

#[test]
fn joins_have_their_rows_and_what_is_searched() {
    let (build, info) = table(0, 3_000_000, 4_000_000_000, false);
    let probe = || table(1, 30_000_000, 4_000_000_000, true);
    let filtered = compile(&joined((filtered(build), info), probe()), &gpu(), &[], false);
    let expected = [
        ("join", "at most 3000000 rows, hash table of 8388608 slots in 32 MB"),
        ("join_parts", "about 9990000 rows looked up among 999000 in 15 MB"),
        ("key_filter", "33 % of about 30000000 rows find a match among 999000 in 15 MB"),
    ];
    assert_estimates(&filtered, &expected);
    let refills = [
        "at most 3000000 rows in 11 turns of 270336 threads, filters keep about 33 %, joins that drop rows: 0",
        "at most 30000000 rows in 110 turns of 270336 threads, filters keep about 100 %, joins that drop rows: 1",
    ];
    assert_eq!(estimates(&filtered, "lane_refill"), refills);
    let large = joined(table(0, 30_000_000, 4_000_000_000, true), table(1, 60_000_000, 4_000_000_000, true));
    let expected = [
        ("join_parts", "about 60000000 rows looked up among 30000000 in 484 MB"),
        ("build_parts", "about 30000000 rows, 468750 and 7.5 MB of the index a part"),
    ];
    assert_estimates(&compile(&large, &gpu(), &[], false), &expected);
}

/// Rows of a probe side wait for others where a runtime filter leaves some of a warp's, and not where it leaves most warps none.
#[test]
fn lanes_are_refilled_where_a_runtime_filter_leaves_warps_a_row() {
    let refill = |most| {
        let (build, own) = table(0, 1_000_000, 4_000_000_000, false);
        let query = joined((below(build, most), own), table(1, 60_000_000, 4_000_000_000, false));
        let forced = [("build_side", "written"), ("key_filter", "bloom")];
        let program = compile(&query, &gpu(), &forced, false);
        let mut choices = program.genome.0.iter().filter(|choice| choice.axis.name == "lane_refill");
        let choice = choices.next_back().expect("a probe side");
        (choice.value, choice.reason.clone())
    };
    let few = "a runtime filter leaves few of the rows that are written";
    assert_eq!(refill(50), ("estimated", few.into()));
    assert_eq!(refill(4), ("estimated", few.into()));
    assert_eq!(refill(2), ("off", "a runtime filter leaves hardly any warp a row".into()));
}

#[test]
fn rows_with_several_matches_have_how_many_there_may_be() {
    let query = joined(table(0, 30_000, 100_000, false), table(1, 60_000_000, 100_000, false));
    let program = compile(&query, &gpu(), &[], true);
    let matches = "at most 60000000 rows, each with 30000 matches at most";
    let queue = format!("{matches}, and 270336 threads");
    let expected = [
        ("join", "at most 30000 rows, direct table of 100000 slots in 390 kB"),
        ("expansion", matches),
        ("queue_matches", &queue),
    ];
    assert_estimates(&program, &expected);
}
