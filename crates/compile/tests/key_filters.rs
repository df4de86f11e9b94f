//! Bloom filters of hash tables: their kernels validate and NVRTC accepts those of a GPU, and the rule takes them only where a build side
//! is thought to leave out many rows and its hash table is larger than a cache.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::calibration::Calibration;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, Target};

use crate::common::{self, accepts, column, gpu};

/// A table of a sparse key that may be NULL, a text, a number below 100, a double and a decimal of more than 64 bits.
fn table(source: usize, rows: u64) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("k", DataType::Int64, true),
        field("t", DataType::Utf8, true),
        field("n", DataType::Int32, false),
        field("f", DataType::Float64, false),
        field("w", DataType::Decimal128 { precision: 38, scale: 0 }, true),
    ];
    let fixed = |scalar, has_nulls, max: Option<i128>| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range: max.map(|max| Range { min: 0, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None };
    let layouts = vec![
        fixed(Scalar::I64, true, Some(1 << 50)),
        text,
        fixed(Scalar::U8, false, Some(99)),
        fixed(Scalar::F64, false, None),
        fixed(Scalar::I128, true, None),
    ];
    let scan = Scan { source, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), ScanInfo::new(rows, layouts))
}

/// The rows whose number is below one.
fn below(input: Plan, number: i128) -> Plan {
    let limit = Expr::literal(Literal::Int(number), DataType::Int32);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(&input, 2)), Box::new(limit));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    Plan::Filter { input: Box::new(input), predicate }
}

fn join(kind: JoinKind, keys: &[usize], build: Plan, probe: Plan) -> Plan {
    let keys = keys.iter().map(|key| (column(&build, *key), column(&probe, *key))).collect();
    let (residual, null_equal, null_aware) = (None, false, false);
    Plan::Join(Box::new(Join { build, probe, kind, keys, residual, null_equal, null_aware }))
}

fn compile(
    query: (&Plan, &[ScanInfo]),
    target: &Target,
    (forced, calibration): (&Forced, Calibration),
) -> Program {
    let duplicates = BTreeSet::from([0]);
    let choices = Choices { forced, calibration, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(query.0, query.1, target, &choices).expect("the plan compiles")
}

/// Whether rows of the probe side that match nothing may be left out.
fn drops(kind: JoinKind) -> bool {
    use JoinKind::*;
    !matches!(kind, ProbeOuter | FullOuter | ProbeAnti | ProbeMark)
}

#[test]
fn kernels_with_bloom_filters_are_accepted() {
    for (keys, others) in [
        (&[0][..], &[("runtime_filters", "on")][..]),
        (&[0], &[("runtime_filters", "off"), ("hash_function", "fnv1a")]),
        (
            &[3],
            &[("runtime_filters", "on"), ("row_arrangement", "striped"), ("hash_function", "multiply_shift")],
        ),
        (&[0, 2], &[("join_parts", "64")]),
        (&[4], &[]),
    ] {
        let mut forced = Forced::default();
        for (axis, value) in [("key_filter", "bloom")].iter().chain(others) {
            forced.set(axis, value).expect("an axis and its value");
        }
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
            for kind in JoinKind::ALL {
                let ((left, left_info), (right, right_info)) = (table(0, 1 << 20), table(1, 100_000_000));
                let plan = join(kind, keys, below(left, 10), right);
                let calibration = Calibration::default();
                let program = compile((&plan, &[left_info, right_info]), &target, (&forced, calibration));
                let asks = program.pipelines.iter().any(|pipeline| pipeline.name.contains("bloom filter"));
                assert_eq!(asks, drops(kind), "{kind:?} {keys:?}");
                accepts(program, &target);
            }
        }
    }
}

/// What was chosen for a join of some of the rows of a build side, by one key.
fn chosen(
    (build, number): (u64, i128),
    probe: u64,
    (target, calibration): (&Target, Calibration),
) -> (&'static str, String) {
    let ((left, left_info), (right, right_info)) = (table(0, build), table(1, probe));
    let left = if number < 100 { below(left, number) } else { left };
    let plan = join(JoinKind::Inner, &[0], left, right);
    let program = compile((&plan, &[left_info, right_info]), target, (Forced::none(), calibration));
    let choice = program.genome.0.iter().find(|choice| choice.axis.name == "key_filter");
    choice.map(|choice| (choice.value, choice.reason.clone())).expect("a choice")
}

/// Hashed keys take two to four slots of 4 bytes a row, and 8 bytes of the key.
#[test]
fn a_filter_where_the_table_is_larger_than_a_cache() {
    let nothing = Calibration::default();
    for target in [gpu(), Target::cpu(4)] {
        let (many, rows) = (64 << 20, 100_000_000);
        let taken = ("bloom", "rows that match nothing do not look beyond a cache".into());
        assert_eq!(chosen((many, 50), rows, (&target, nothing)), taken);
        for (build, number, probe, reason) in [
            (many, 100, rows, "the build side has all rows of its table"),
            (many, 60, rows, "most rows are thought to find a match"),
            (many, 50, 60 << 20, "fewer rows would be left out than the filter would be filled with"),
        ] {
            let off = chosen((build, number), probe, (&target, nothing));
            assert_eq!(off, ("off", reason.into()), "{build} {number} {probe}");
        }
        let expected = match target.lanes {
            1 => ("bloom", "rows that match nothing are left out without a branch"),
            _ => ("off", "a cache has room for the hash table"),
        };
        let (value, reason) = chosen((10_000, 50), rows, (&target, nothing));
        assert_eq!((value, reason.as_str()), expected);
    }
    // What is measured of the caches decides: a CPU's core's, a GPU's last one.
    let rows = ((1 << 20, 50), 100_000_000);
    for (target, cache, value) in
        [(Target::cpu(4), 2 << 20, "bloom"), (gpu(), 4 << 20, "bloom"), (gpu(), 256 << 20, "off")]
    {
        let core_cache = (target.lanes == 1).then_some(cache);
        let last_cache = (target.lanes > 1).then_some(cache);
        let calibration = Calibration { core_cache, last_cache, ..nothing };
        let (chosen, reason) = chosen(rows.0, rows.1, (&target, calibration));
        assert_eq!(chosen, value, "{reason}");
        assert!(reason.ends_with("(measured)"), "{reason}");
    }
}

/// A pruning that is off leaves nothing that would be filled in vain.
#[test]
fn without_pruning_there_is_no_filter() {
    let forced = common::forced(&[("key_filter", "bloom"), ("pruning", "off")]);
    let ((left, left_info), (right, right_info)) = (table(0, 1 << 20), table(1, 1 << 20));
    let plan = join(JoinKind::Inner, &[0], below(left, 10), right);
    let infos = [left_info, right_info];
    let program = compile((&plan, &infos), &Target::cpu(2), (&forced, Calibration::default()));
    assert!(program.states.iter().all(|state| state.name != "bloom"));
    assert!(
        program
            .pipelines
            .iter()
            .all(|pipeline| !pipeline.name.contains("filter →") || !pipeline.name.contains("bloom"))
    );
}
