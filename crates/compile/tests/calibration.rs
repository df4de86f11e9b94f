//! Rules decide by what was measured of a device, where that is known, and say so; and the kernels that measure are valid.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::calibration::{AtomicRates, Calibration};
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{self, Choices, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan};
use kelpie_compile::primitives::random;
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_kir::{Scalar, Target, validate};

use crate::common::{compiles, gpu};

const NOTHING: Calibration =
    Calibration { core_cache: None, last_cache: None, tlb_reach: None, atomics: None };

fn field(name: &str) -> Field {
    Field { name: name.into(), data_type: DataType::Int64, nullable: false }
}

/// So many rows of a key of so many values, and of a number.
fn table(source: usize, rows: u64, values: i128) -> (Plan, ScanInfo) {
    let layout = |max| ColumnLayout {
        storage: Storage::Fixed { scalar: Scalar::U32, has_base: false },
        has_nulls: false,
        range: Some(Range { min: 0, max }),
    };
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1], fields: vec![field("k"), field("v")] };
    (Plan::Scan(scan), ScanInfo::new(rows, vec![layout(values - 1), layout(1000)]))
}

fn column(index: usize) -> Expr {
    Expr::column(index, DataType::Int64, false)
}

/// Sums of groups of so many rows. `scattered`: so many values of the key are far from each other.
fn groups(rows: u64, values: i128, scattered: Option<u64>) -> (Plan, Vec<ScanInfo>) {
    let (input, info) = table(0, rows, values);
    let scattered = scattered.map(|values| Scattered { values, are_even: true, text_bytes: 0 });
    let info = info.with_scattered(0, scattered);
    let argument = Some(column(1));
    let sum = Aggregate { function: AggregateFunction::Sum, argument, distinct: false, field: field("s") };
    let (keys, aggregates) = (vec![column(0)], vec![sum]);
    let names = vec!["k".to_string()];
    (Plan::Aggregate { input: Box::new(input), keys, aggregates, names }, vec![info])
}

/// Rows that meet so few rows of a key of so many values.
fn joined(rows: u64, values: i128) -> (Plan, Vec<ScanInfo>) {
    let ((build, own), (probe, other)) = (table(0, rows, values), table(1, 1 << 20, values));
    let keys = vec![(column(0), column(0))];
    let (kind, residual) = (JoinKind::Inner, None);
    let join = Join { build, probe, kind, keys, residual, null_equal: false, null_aware: false };
    (Plan::Join(Box::new(join)), vec![own, other])
}

/// What is chosen on an axis, and why.
fn chosen(
    (plan, infos): &(Plan, Vec<ScanInfo>),
    axis: &str,
    target: &Target,
    calibration: Calibration,
) -> (&'static str, String) {
    let duplicates = BTreeSet::new();
    let choices = Choices { calibration, ..Choices::new(MicroModel::Resolution, &duplicates) };
    let program = pipeline::compile_with(plan, infos, target, &choices).expect("it compiles");
    let choice = program.genome.0.into_iter().find(|choice| choice.axis.name == axis).expect("it is chosen");
    (choice.value, choice.reason)
}

/// What is chosen where nothing is measured, and what where this is, which says so.
fn changes(
    query: &(Plan, Vec<ScanInfo>),
    axis: &str,
    target: &Target,
    calibration: Calibration,
) -> (&'static str, &'static str) {
    let (before, reason) = chosen(query, axis, target, NOTHING);
    assert!(!reason.contains("measured"), "{reason}");
    let (after, reason) = chosen(query, axis, target, calibration);
    assert!(reason.ends_with(" (measured)"), "{axis} = {after} ({reason})");
    (before, after)
}

#[test]
fn a_workers_table_is_as_large_as_half_of_its_cores_cache() {
    let (query, cpu) = (groups(200_000, 40_000, None), Target::cpu(4));
    let large = Calibration { core_cache: Some(2 << 20), ..NOTHING };
    assert_eq!(changes(&query, "accumulator_memory", &cpu, large), ("global", "block"));
    let query = groups(30_000, 8_000, None);
    let small = Calibration { core_cache: Some(128 << 10), ..NOTHING };
    assert_eq!(changes(&query, "accumulator_memory", &cpu, small), ("block", "global"));
}

#[test]
fn a_worker_keeps_as_many_copies_as_its_cores_cache_has_room_for() {
    let (query, cpu) = (groups(50_000_000, 4_000_000_000, None), Target::cpu(4));
    let small = Calibration { core_cache: Some(256 << 10), ..NOTHING };
    let (before, after) = changes(&query, "local_preaggregation", &cpu, small);
    let number = |name: &str| name.parse::<u64>().expect("a number of copies");
    assert!(number(after) > 0 && number(after) < number(before), "{before} {after}");
}

#[test]
fn an_index_that_stays_in_a_cache_is_direct_whatever_its_rows() {
    let larger = Calibration { core_cache: Some(2 << 20), ..NOTHING };
    let smaller = Calibration { core_cache: Some(64 << 10), ..NOTHING };
    for (target, larger) in
        [(Target::cpu(4), larger), (gpu(), Calibration { core_cache: Some(256 << 10), ..NOTHING })]
    {
        assert_eq!(changes(&joined(100, 120_000), "join", &target, larger), ("hash", "direct"));
        assert_eq!(changes(&joined(100, 60_000), "join", &target, smaller), ("direct", "hash"));
        // Of many rows nothing that is measured decides.
        let (form, reason) = chosen(&joined(100_000, 120_000), "join", &target, larger);
        assert_eq!((form, reason.as_str()), ("direct", "a dense range of keys"));
    }
}

#[test]
fn a_direct_table_of_groups_is_as_large_as_half_of_the_last_cache() {
    let last = Calibration { last_cache: Some(256 << 20), ..NOTHING };
    for (target, rows) in [(Target::cpu(4), 50_000_000), (gpu(), 3_000_000)] {
        let query = groups(rows, 5_000_000, None);
        assert_eq!(changes(&query, "group_table", &target, last), ("hash", "direct"));
        let query = groups(50_000_000, 500_000, None);
        let (form, reason) = chosen(&query, "group_table", &target, last);
        assert_eq!((form, reason.as_str()), ("direct", "a dense domain of keys"));
        // A small cache takes nothing away: a direct table's slots lie no further apart than those of a hash table.
        let last = Calibration { last_cache: Some(1 << 20), ..NOTHING };
        assert_eq!(chosen(&query, "group_table", &target, last).0, "direct");
    }
}

/// Whatever the cache has room for: a hash table would have more.
#[test]
fn a_gpus_direct_table_of_groups_has_as_many_slots_as_rows() {
    let of =
        |rows, values, target: Target| chosen(&groups(rows, values, None), "group_table", &target, NOTHING);
    let (form, reason) = of(50_000_000, 5_000_000, gpu());
    assert_eq!(form, "direct");
    assert!(reason.contains("as many rows come as there are slots"), "{reason}");
    assert_eq!(of(4_000_000, 5_000_000, gpu()).0, "hash");
    assert_eq!(of(500_000_000, 100_000_000, gpu()).0, "hash");
    assert_eq!(of(50_000_000, 5_000_000, Target::cpu(4)).0, "hash");
}

#[test]
fn parts_pay_for_fewer_rows_where_atomics_beyond_the_last_cache_are_slow() {
    let query = groups(3_500_000, 4_000_000_000, Some(2_000_000));
    let of = |cached, beyond, last_cache| Calibration {
        core_cache: None,
        last_cache: Some(last_cache),
        tlb_reach: None,
        atomics: Some(AtomicRates { cached, beyond }),
    };
    let (before, after) = changes(&query, "group_parts", &gpu(), of(100, 30, 32 << 20));
    assert!(before == "1" && after != "1", "{before} {after}");
    for alike in [of(100, 100, 32 << 20), of(100, 30, 1 << 30)] {
        let (parts, reason) = chosen(&query, "group_parts", &gpu(), alike);
        assert_eq!((parts, reason.as_str()), ("1", "few rows"));
    }
}

#[test]
fn nvrtc_takes_the_kernels_that_measure() {
    let module = validate(random::module().expect("it is well typed")).expect("valid");
    let source = cuda::print(&module).expect("it prints");
    compiles("the measure", &source);
}

/// A CPU's worker writes rows to no more parts than it has pages at hand for.
#[test]
fn translation_bounds_the_parts_that_a_worker_writes_to() {
    let query = groups(400_000_000, 100_000_000, Some(100_000_000));
    let reach = Calibration { tlb_reach: Some(1 << 20), ..NOTHING };
    let (before, after) = changes(&query, "group_parts", &Target::cpu(2), reach);
    assert_eq!((before, after), ("1024", "64"));
    let (_, reason) = chosen(&query, "group_parts", &Target::cpu(2), reach);
    assert_eq!(reason, "as many parts as a worker can write to (measured)");
}
