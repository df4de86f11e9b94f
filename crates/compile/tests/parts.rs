//! Rows in parts before they come to their groups, or sorted stride by stride: the kernels of blocks and of a CPU's workers validate, and
//! NVRTC accepts those of a GPU.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{self, BlockRows, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, Target};

use crate::common::{self, accepts, field, gpu};

/// A table of a key of `groups` values, a value, a NULL or small value, and a text.
fn table(groups: i128) -> (Plan, ScanInfo) {
    let fields = vec![
        field("k", DataType::Int64, false),
        field("v", DataType::Int64, false),
        field("q", DataType::Int32, true),
        field("t", DataType::Utf8, true),
    ];
    let fixed = |scalar, has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let text = ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None };
    let layouts = vec![
        fixed(Scalar::U32, false, groups - 1),
        fixed(Scalar::U32, false, 1_000_000),
        fixed(Scalar::U8, true, 49),
        text,
    ];
    let scan = Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    (Plan::Scan(scan), ScanInfo::new(100_000_000, layouts))
}

fn grouped(groups: i128, keys: &[usize]) -> (Plan, ScanInfo) {
    let (scan, info) = table(groups);
    let column = |index: usize| {
        let field = &scan.fields()[index];
        Expr::column(index, field.data_type.clone(), field.nullable)
    };
    let aggregate = |function, argument: Option<usize>, data_type| Aggregate {
        function,
        argument: argument.map(column),
        distinct: false,
        field: field(&format!("{function:?}"), data_type, true),
    };
    let keys: Vec<Expr> = keys.iter().copied().map(column).collect();
    let aggregates = vec![
        aggregate(AggregateFunction::Sum, Some(1), DataType::Int64),
        aggregate(AggregateFunction::Count, None, DataType::Int64),
        aggregate(AggregateFunction::Max, Some(2), DataType::Int32),
    ];
    let names = keys.iter().map(|_| "key".to_string()).collect();
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

fn compile(query: &(Plan, ScanInfo), target: &Target, forced: &Forced) -> Program {
    let duplicates = BTreeSet::new();
    let choices = Choices { forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    pipeline::compile_with(&query.0, std::slice::from_ref(&query.1), target, &choices)
        .expect("the plan compiles")
}

fn parts(program: &Program) -> (&'static str, String) {
    let mut choices = program.genome.of("aggregate0");
    let choice = choices.find(|choice| choice.axis.name == "group_parts").expect("an aggregation with keys");
    (choice.value, choice.reason.clone())
}

#[test]
fn kernels_of_parts_are_accepted() {
    for (parts, memory, table) in [
        ("64", "block", None),
        ("64", "global", None),
        ("4", "block", None),
        ("8192", "block", None),
        ("64", "block", Some("hash")),
        ("64", "keys", Some("hash")),
        ("8192", "keys", Some("hash")),
        ("256", "alone", Some("hash")),
    ] {
        let mut forced = Forced::default();
        let table = table.map(|table| ("group_table", table));
        let forms = [("group_parts", parts), ("part_memory", memory)];
        for (axis, value) in forms.into_iter().chain(table) {
            forced.set(axis, value).expect("an axis and its value");
        }
        for target in [gpu(), Target::simt(4, 8, 200 << 10, 4), Target::cpu(2)] {
            for (groups, keys) in [(10_000, &[0][..]), (10_000_000, &[0]), (10_000_000, &[0, 2]), (2, &[3])] {
                let program = compile(&grouped(groups, keys), &target, &forced);
                assert_eq!(self::parts(&program).0, parts);
                accepts(program, &target);
            }
        }
    }
}

/// A stride goes through three pipelines before the next one comes, and the runs that are left through one more.
#[test]
fn kernels_of_strides_are_accepted() {
    let forced = common::forced(&[("group_order", "strided")]);
    for (target, stride) in
        [(gpu(), 8 << 20), (Target::simt(4, 8, 200 << 10, 4), 8 << 20), (Target::cpu(2), 256 << 10)]
    {
        for (groups, keys) in [(1, &[0][..]), (10_000, &[0]), (1 << 40, &[0, 2])] {
            let program = compile(&grouped(groups, keys), &target, &forced);
            let chained: Vec<_> = program.pipelines.iter().map(|of| (of.group, of.continues)).collect();
            assert_eq!(chained, [(0, false), (0, true), (0, true), (1, false), (2, false)]);
            let blocks: Vec<_> = program.pipelines.iter().map(|pipeline| pipeline.blocks).collect();
            let (any, whole) = (BlockRows::Any, BlockRows::Whole);
            assert_eq!(blocks, [BlockRows::AtMost(stride), whole, any, whole, any]);
            accepts(program, &target);
        }
    }
    let program = compile(&grouped(10_000, &[0]), &Target::cpu(2), Forced::none());
    assert!(program.genome.of("aggregate0").all(|choice| choice.value != "strided"));
}

fn memory(program: &Program) -> &'static str {
    let mut choices = program.genome.of("aggregate0");
    choices.find(|choice| choice.axis.name == "part_memory").map_or("", |choice| choice.value)
}

/// The rule wants groups that no block has room for and that are far from each other, several rows of each, and a GPU. There are as
/// many parts as it takes for a block to have room for the groups of one.
#[test]
fn parts_where_groups_are_many_and_scattered() {
    let (gpu, cpu) = (gpu(), Target::cpu(2));
    let chosen = |target: &Target, domain: i128, scattered: Option<u64>| {
        let scattered = scattered.map(|values| Scattered { values, are_even: true, text_bytes: 0 });
        let (plan, info) = grouped(domain, &[0]);
        let info = info.with_scattered(0, scattered);
        let program = compile(&(plan, info), target, Forced::none());
        (parts(&program).0, memory(&program))
    };
    // Hashed: half of the slots are free.
    for (groups, parts) in [(1 << 14, "64"), (1 << 18, "256"), (1 << 22, "4096")] {
        assert_eq!(chosen(&gpu, 1 << 40, Some(groups)), (parts, "keys"), "{groups}");
    }
    // Direct-addressed, where blocks cannot have the groups in a few slices.
    for (groups, parts) in [(1 << 16, "64"), (1 << 20, "256"), (10_000_000, "2048"), (20_000_000, "4096")] {
        assert_eq!(chosen(&gpu, i128::from(groups), Some(groups)), (parts, "block"), "{groups}");
    }
    // No number of parts would do.
    assert_eq!(chosen(&gpu, 1 << 40, Some(40_000_000)), ("1", ""));
    for (target, scattered) in
        [(&gpu, Some(1 << 11)), (&gpu, Some(1 << 26)), (&gpu, None), (&cpu, None), (&cpu, Some(1 << 14))]
    {
        assert_eq!(chosen(target, 1 << 40, scattered), ("1", ""), "{scattered:?}");
    }
}

/// What brings rows into parts goes through all that filters see. Where a value is frequent, threads would wait for each other at its group.
#[test]
fn no_parts_where_filters_leave_few_rows() {
    let gpu = gpu();
    let chosen = |groups: u64, are_even: bool, below: i128| {
        let (plan, info) = grouped(groups.into(), &[0]);
        let Plan::Aggregate { input, keys, aggregates, names } = plan else { unreachable!() };
        let constant = Expr {
            kind: ExprKind::Literal(Literal::Int(below)),
            data_type: DataType::Int64,
            nullable: false,
        };
        let value = Box::new(Expr::column(1, DataType::Int64, false));
        let kind = ExprKind::Compare(CompareOp::Lt, value, Box::new(constant));
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
        let input = Box::new(Plan::Filter { input, predicate });
        let scattered = Some(Scattered { values: groups, are_even, text_bytes: 0 });
        let info = info.with_scattered(0, scattered);
        parts(&compile(&(Plan::Aggregate { input, keys, aggregates, names }, info), &gpu, Forced::none()))
    };
    // Values are up to a million, so that these are the millionths of the rows that are left.
    let off = ("1", "filters leave few of the rows".to_string());
    assert_eq!(chosen(1 << 20, true, 200_000), off);
    assert_eq!(chosen(1 << 20, true, 500_000).0, "256");
    assert_eq!(chosen(1 << 20, false, 200_000).0, "256");
    assert_eq!(chosen(10_000_000, true, 170_000).0, "2048");
    assert_eq!(chosen(10_000_000, true, 160_000), off);
}

/// A CPU's worker wants its part's groups in its cache, and of each part that it writes to the lines where the next row goes: of four
/// columns in 512 parts, of a text with its hash and of copied bytes in 256. A frequent value's rows find no place in their part, and
/// that worker adds them up by themselves.
#[test]
fn parts_of_workers_fit_their_cache() {
    let chosen = |own: Scattered, key: &[usize]| {
        let (plan, info) = grouped(1 << 30, key);
        let program =
            compile(&(plan, info.with_scattered(key[0], Some(own))), &Target::cpu(2), Forced::none());
        (parts(&program).0, memory(&program))
    };
    let of = |values, are_even| Scattered { values, are_even, text_bytes: 0 };
    for (values, parts) in [(1 << 15, "16"), (1 << 18, "256"), (1 << 21, "512"), (1 << 25, "512")] {
        assert_eq!(chosen(of(values, true), &[0]), (parts, "alone"), "{values}");
    }
    assert_eq!(chosen(of(1 << 15, true), &[0, 2]).0, "512");
    assert_eq!(chosen(of(1 << 18, false), &[0]), ("256", "alone"));
    assert_eq!(chosen(of(1 << 18, true), &[0, 3]), ("1", ""));
    let texts = |values| Scattered { text_bytes: 1, ..of(values, true) };
    assert_eq!(chosen(texts(1 << 25), &[3]), ("256", "alone"));
}

/// In how many parts groups of so many rows are, in how many slices a block has them, and how many bytes their counts have. Beside the count
/// there are other aggregates unless `counts_alone`.
fn placed(groups: i128, rows: u64, counts_alone: bool) -> (&'static str, &'static str, &'static str) {
    let gpu = gpu();
    let (mut plan, info) = grouped(groups, &[0]);
    if let (true, Plan::Aggregate { aggregates, names, .. }) = (counts_alone, &mut plan) {
        aggregates.retain(|aggregate| aggregate.function == AggregateFunction::Count);
        names.truncate(2);
    }
    let scattered = Some(Scattered { values: groups as u64, are_even: true, text_bytes: 0 });
    let info = ScanInfo { rows, ..info }.with_scattered(0, scattered);
    let program = compile(&(plan, info), &gpu, Forced::none());
    let of_axis = |axis| {
        let choice = program.genome.of("aggregate0").find(|choice| choice.axis.name == axis);
        choice.map_or("", |choice| choice.value)
    };
    let found = (parts(&program).0, of_axis("table_slices"), of_axis("count_bytes"));
    accepts(program, &gpu);
    found
}

/// Groups of which a block has room for a slice are added up slice by slice where they have many rows each, and not in parts; counts have
/// 2 bytes, or 1, where that makes fewer slices. NVRTC accepts these kernels.
#[test]
fn slices_where_a_block_has_room_for_one() {
    let (few, many) = (5_000_000, 335_000_000);
    let chosen = |groups, rows| placed(groups, rows, false);
    assert_eq!(chosen(4_000, many), ("1", "1", "4"));
    assert_eq!(chosen(12_000, many), ("1", "1", "2"));
    assert_eq!(chosen(16_000, many), ("1", "1", "1"));
    assert_eq!(chosen(17_000, many), ("1", "2", "2"));
    assert_eq!(chosen(20_000, few).1, "");
    assert_eq!(chosen(40_000, many), ("1", "4", "2"));
    assert_eq!(chosen(80_000, many).1, "");
}

/// The same of groups of which nothing but the rows is counted, of which four times as many fit where counts have 1 byte: to the last
/// number of groups that a block has room for, all at once, in two slices and in four. With few rows a group blocks would have more to clear and to add
/// than they spare.
#[test]
fn counts_of_a_byte_where_that_spares_a_pass() {
    let many = 335_000_000;
    let chosen = |groups, rows| placed(groups, rows, true);
    for (groups, slices, bytes) in [
        (1 << 15, "1", "4"),
        (57_000, "1", "4"),
        (1 << 16, "1", "2"),
        (115_000, "1", "2"),
        (1 << 17, "1", "1"),
        (231_935, "1", "1"),
        (231_936, "2", "1"),
        (1 << 18, "2", "1"),
        (327_678, "2", "1"),
        (327_679, "4", "1"),
        (1 << 19, "4", "1"),
    ] {
        assert_eq!(chosen(groups, many), ("1", slices, bytes), "{groups}");
    }
    for (groups, rows, slices) in [(655_357, many, ""), (1 << 20, many, ""), (1 << 17, 200 << 17, "")] {
        let (parts, found, bytes) = chosen(groups, rows);
        assert_eq!((found, bytes), (slices, ""), "{groups}");
        assert_ne!(parts, "1", "{groups}");
    }
    // A small table, to which few rows come, has no more slots for that its counts are small.
    assert_eq!(chosen(12_000, 1_000_000).2, "");
    assert_eq!(chosen(12_000, 12_000 * 256), ("1", "1", "4"));
}
