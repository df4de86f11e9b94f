//! Which rows of a window are sorted where a filter keeps the first of each partition, groups of sorted rows, and that NVRTC accepts their
//! kernels.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::text::{Table, parse, parse_fields};
use kelpie_compile::types::Range;
use kelpie_kir::{Scalar, Target};

use crate::common::{self, accepts, gpu};

/// A plan over `t` with a key of some values, a value that may be NULL, a float and a text.
fn query(plan: &str, keys: i128, rows: u64) -> (String, i128, u64) {
    (plan.into(), keys, rows)
}

fn compile((plan, keys, rows): &(String, i128, u64), target: &Target, forced: &[(&str, &str)]) -> Program {
    let fields = parse_fields("k: Int64, v: Int32?, f: Float64?, s: Utf8").expect("columns");
    let plan = parse(plan, &[Table { name: "t".into(), fields }]).expect("a plan");
    let fixed = |scalar, has_nulls, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range,
    };
    let info = ScanInfo::new(
        *rows,
        vec![
            fixed(Scalar::U32, false, Some(Range { min: 0, max: keys - 1 })),
            fixed(Scalar::I32, true, Some(Range { min: -1000, max: 1_000_000 })),
            fixed(Scalar::F64, true, None),
            ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: false, range: None },
        ],
    );
    let values = common::forced(forced);
    let duplicates = BTreeSet::new();
    let choices = Choices { forced: &values, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(&plan, std::slice::from_ref(&info), target, &choices).expect("the plan compiles")
}

fn first(rank: &str, most: u64, order: &str) -> String {
    format!(
        "project k, v, s\n  filter r <= UInt64 {most}\n    window order by k, {order}; {rank}() partition 1 order 2 as r\n      scan t"
    )
}

fn chosen(program: &Program, axis: &str) -> (String, String) {
    let choice = program.genome.0.iter().find(|choice| choice.axis.name == axis).expect("the choice is made");
    (choice.value.into(), choice.reason.clone())
}

#[test]
fn rows_are_bounded_where_most_of_them_are_beyond() {
    let cpu = Target::cpu(2);
    let of = |plan: &str, keys, rows| chosen(&compile(&query(plan, keys, rows), &cpu, &[]), "window_rows");
    let best = first("row_number", 2, "v desc nulls last");
    assert_eq!(of(&best, 200_000, 5_000_000).0, "first");
    for (plan, keys, rows, reason) in [
        (best.clone(), 2_500_000, 5_000_000, "the first rows of all partitions are many of all rows"),
        (best, 10, 1_000, "few rows are sorted at once"),
        (
            first("rank", 17, "v"),
            10,
            5_000_000,
            "more rows of a partition are kept than a group keeps values",
        ),
        (first("rank", 2, "s"), 10, 5_000_000, "several extremes of Utf8"),
    ] {
        let (value, why) = of(&plan, keys, rows);
        assert!(value == "all" && why.contains(reason), "{value}: {why}");
    }
    assert_eq!(of(&first("rank", 1, "s"), 10, 5_000_000).0, "first");
}

#[test]
fn kernels_of_bounds_and_of_runs_are_accepted() {
    let targets = [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)];
    for target in targets {
        for (rank, most, order) in [
            ("row_number", 2, "v desc nulls last"),
            ("rank", 3, "f"),
            ("dense_rank", 8, "v asc nulls first"),
            ("dense_rank", 16, "f desc nulls first"),
        ] {
            for (keys, more) in [
                (100, &[][..]),
                (100, &[("group_table", "hash")]),
                (100_000, &[("group_parts", "64")]),
                (3, &[("accumulator_memory", "thread")]),
            ] {
                let forced = [&[("window_rows", "first")], more].concat();
                let program = compile(&query(&first(rank, most, order), keys, 100_000_000), &target, &forced);
                assert_eq!(chosen(&program, "window_rows").0, "first");
                accepts(program, &target);
            }
        }
        let groups = "sort k asc nulls last\n  aggregate by k; count(*) as n, sum(v) as a, min(s) as b, max(f) as c\n    scan t";
        let program = compile(&query(groups, 1_000, 1_000_000), &target, &[("group_order", "sorted")]);
        assert_eq!(chosen(&program, "sorted_groups").0, "runs");
        assert_eq!(chosen(&program, "sort_place").0, "input");
        accepts(program, &target);
    }
}
