//! Joins whose rows come in parts: their kernels validate and NVRTC accepts those of a GPU, and the rule takes parts only where the
//! index is far larger than the last cache.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::calibration::Calibration;
use kelpie_compile::expr::Expr;
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Join, JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, Target};

use crate::common::{self, accepts, gpu};

/// A table of a key below `most`, a text and a number that may be NULL.
fn table(source: usize, most: i128, (rows, scattered): (u64, Option<Scattered>)) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("k", DataType::Int64, false),
        field("t", DataType::Utf8, true),
        field("n", DataType::Int32, true),
    ];
    let fixed = |scalar, has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None };
    let layouts = vec![fixed(Scalar::I64, false, most - 1), text, fixed(Scalar::U8, true, 49)];
    let scan = Scan { source, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), ScanInfo::new(rows, layouts).with_scattered(0, scattered))
}

fn join(kind: JoinKind, keys: &[usize], build: Plan, probe: Plan) -> Plan {
    let column = |plan: &Plan, index: usize| {
        let field = &plan.fields()[index];
        Expr::column(index, field.data_type.clone(), field.nullable)
    };
    // Of an inner join the last table's columns come last.
    let last = probe.fields().len() - 3;
    let keys = keys.iter().map(|key| (column(&build, *key), column(&probe, last + *key))).collect();
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

#[test]
fn kernels_of_joins_in_parts_are_accepted() {
    for (parts, build, keys, most) in [
        ("16", "on", &[0][..], 1 << 20),
        ("64", "off", &[0], 1 << 40),
        ("1024", "on", &[0, 1], 1 << 40),
        ("256", "on", &[1, 2], 1 << 20),
        ("64", "on", &[0], 1 << 20),
    ] {
        let forced = common::forced(&[("join_parts", parts), ("build_parts", build)]);
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
            for kind in JoinKind::ALL {
                let (left, left_info) = table(0, most, (1 << 20, None));
                let (right, right_info) = table(1, most, (100_000_000, None));
                let plan = join(kind, keys, left, right);
                let program =
                    compile((&plan, &[left_info, right_info]), &target, (&forced, Calibration::default()));
                let into = format!("→ into {parts} parts");
                let times = program.pipelines.iter().filter(|pipeline| pipeline.name.contains(&into)).count();
                assert_eq!(times, if build == "on" { 2 } else { 1 }, "{kind:?}");
                accepts(program, &target);
            }
        }
    }
}

/// What was chosen for the joins of a plan, the last table's rows of which may be scattered.
fn chosen(
    builds: &[(i128, u64)],
    (rows, scattered): (u64, Option<Scattered>),
    target: &Target,
    calibration: Calibration,
) -> Vec<(&'static str, String)> {
    let mut scans = Vec::new();
    let tables: Vec<Plan> = builds
        .iter()
        .enumerate()
        .map(|(source, (most, rows))| {
            let (plan, info) = table(source, *most, (*rows, None));
            scans.push(info);
            plan
        })
        .collect();
    let (probe, info) = table(builds.len(), 1 << 40, (rows, scattered));
    scans.push(info);
    let plan = tables.into_iter().rev().fold(probe, |probe, build| join(JoinKind::Inner, &[0], build, probe));
    let as_written = common::forced(&[("build_side", "written")]);
    let program = compile((&plan, &scans), target, (&as_written, calibration));
    let choices = program.genome.0.iter().filter(|choice| choice.axis.name == "join_parts");
    let mut choices: Vec<_> = choices.map(|choice| (choice.site.clone(), choice)).collect();
    choices.sort_by_key(|(site, _)| site.clone());
    choices.into_iter().map(|(_, choice)| (choice.value, choice.reason.clone())).collect()
}

const SCATTERED: Option<Scattered> = Some(Scattered { values: 1 << 30, are_even: true, text_bytes: 0 });
const SPARSE: i128 = 1 << 40;

/// Hashed keys take two to four slots of 4 bytes a row, and 8 bytes of the key.
#[test]
fn parts_where_the_index_is_far_larger_than_a_cache() {
    let (nothing, cpu) = (Calibration::default(), Target::cpu(4));
    let one = |build, probe, target: &Target| chosen(&[build], probe, target, nothing)[0].clone();
    for target in [gpu(), cpu.clone()] {
        let (few, half) = ((SPARSE, 1 << 18), (SPARSE, 1 << 20));
        let (many, rows) = ((SPARSE, 32 << 20), 100_000_000);
        assert_ne!(one(many, (rows, SCATTERED), &target).0, "1");
        // A range that is addressed directly too.
        assert_ne!(one((1 << 28, 60 << 20), (rows, SCATTERED), &target).0, "1");
        let uneven = SCATTERED.map(|own| Scattered { are_even: false, ..own });
        for (build, probe, reason) in [
            (many, (rows, None), "not known to look up keys far from each other in a large table"),
            (many, (rows, uneven), "not known to look up keys far from each other in a large table"),
            (many, (900_000, SCATTERED), "few rows"),
            (many, (20_000_000, SCATTERED), "fewer rows are looked up than the index has"),
            (half, (rows, SCATTERED), "the last cache has room for most of the index"),
            (few, (rows, SCATTERED), "the last cache has room for most of the index"),
        ] {
            assert_eq!(one(build, probe, &target), ("1", reason.into()), "{build:?} {probe:?}");
        }
    }
    // What is measured of the caches decides.
    let small = Calibration { last_cache: Some(4 << 20), ..nothing };
    let large = Calibration { last_cache: Some(8 << 30), ..nothing };
    let (build, probe) = ((SPARSE, 4 << 20), (100_000_000, SCATTERED));
    assert_eq!(
        chosen(&[build], probe, &gpu(), small)[0].1,
        "a part of the index stays in a cache (measured)"
    );
    assert_eq!(chosen(&[build], probe, &gpu(), large)[0].0, "1");
    assert_eq!(chosen(&[build], probe, &gpu(), small)[0].0, "64");
    // A CPU's parts fit the cache of a core.
    assert_eq!(chosen(&[build], probe, &cpu, small)[0].0, "256");
    assert_eq!(one((SPARSE, 64 << 20), (100_000_000, SCATTERED), &cpu).0, "1024");
}

/// Of several joins in a pipeline only the one with the largest build side has its rows in parts.
#[test]
fn the_largest_build_side_decides() {
    let (small, large) = ((SPARSE, 40 << 20), (SPARSE, 48 << 20));
    for target in [gpu(), Target::cpu(4)] {
        for (builds, further, before) in [([large, small], true, false), ([small, large], false, true)] {
            let probe = (100_000_000, SCATTERED);
            let choices = chosen(&builds, probe, &target, Calibration::default());
            let are_in_parts: Vec<bool> = choices.iter().map(|(value, _)| *value != "1").collect();
            assert_eq!(are_in_parts, [further, before], "{choices:?}");
        }
    }
}
