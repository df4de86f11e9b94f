//! Rows that wait in the memory of a block (`refill_buffer = shared`) in front of every kind of sink: the buffer is in the kernel, the block
//! leaves the row loop together where a warp might want to, and NVRTC accepts it.

use std::collections::BTreeSet;

use kelpie_backend::cuda;
use kelpie_compile::MicroModel;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, JoinKind, Plan, Scan, SortKey};
use kelpie_compile::types::{DataType, Field, Literal, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, validate};

use crate::common::{compiles, gpu};

/// A table of a short number, a long one and a double.
fn table(source: usize) -> (Plan, ScanInfo) {
    let field = |name: &str, data_type| Field { name: name.into(), data_type, nullable: false };
    let fields =
        vec![field("a", DataType::Int32), field("b", DataType::Int64), field("f", DataType::Float64)];
    let fixed = |scalar, range| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls: false,
        range,
    };
    let layouts = vec![
        fixed(Scalar::U16, Some(Range { min: 0, max: 999 })),
        fixed(Scalar::I64, None),
        fixed(Scalar::F64, None),
    ];
    let scan = Scan { source, table: "t".into(), columns: vec![0, 1, 2], fields };
    (Plan::Scan(scan), ScanInfo::new(10_000_000, layouts))
}

fn column(index: usize) -> Expr {
    let types = [DataType::Int32, DataType::Int64, DataType::Float64];
    Expr::column(index, types[index].clone(), false)
}

/// The rows with small numbers.
fn few(source: usize) -> Plan {
    let limit = Expr::literal(Literal::Int(90), DataType::Int32);
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(column(0)), Box::new(limit));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    Plan::Filter { input: Box::new(table(source).0), predicate }
}

fn sums(keys: &[usize], distinct: bool) -> Plan {
    let aggregate = |function, argument, distinct| Aggregate {
        function,
        argument,
        distinct,
        field: Field { name: "x".into(), data_type: DataType::Int64, nullable: true },
    };
    let mut aggregates = vec![
        aggregate(AggregateFunction::Count, None, false),
        aggregate(AggregateFunction::Sum, Some(column(0)), false),
    ];
    if distinct {
        aggregates.push(aggregate(AggregateFunction::Count, Some(column(1)), true));
    }
    let keys: Vec<Expr> = keys.iter().map(|key| column(*key)).collect();
    let names = vec![String::new(); keys.len() + aggregates.len()];
    Plan::Aggregate { input: Box::new(few(0)), keys, aggregates, names }
}

fn joined() -> Plan {
    Plan::Join(Box::new(Join {
        build: few(1),
        probe: few(0),
        kind: JoinKind::Inner,
        keys: vec![(column(1), column(1))],
        residual: None,
        null_equal: false,
        null_aware: false,
    }))
}

fn sorted() -> Plan {
    let key = SortKey { expr: column(1), descending: false, nulls_first: false };
    Plan::Sort { input: Box::new(few(0)), keys: vec![key], fetch: None }
}

fn compile(plan: &Plan, variants: &[(&str, &str)]) -> Program {
    let mut forced = Forced::default();
    for (axis, value) in variants.iter().chain(&[("lane_refill", "last"), ("refill_buffer", "shared")]) {
        forced.set(axis, value).expect("an axis and its value");
    }
    let duplicates = BTreeSet::new();
    let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
    let scans = [table(0).1, table(1).1];
    let target = gpu();
    pipeline::compile_with(plan, &scans, &target, &choices).expect("the plan compiles")
}

/// The CUDA source of each kernel whose rows wait in blocks.
fn waiting(program: Program, case: &str) -> Vec<String> {
    let kernels = program.pipelines.into_iter().map(|pipeline| pipeline.variant.kernel.module);
    let sources = kernels.map(|module| {
        let module = validate(module).expect("a valid kernel");
        cuda::print(&module).expect("prints")
    });
    let sources: Vec<String> = sources.filter(|source| source.contains("waiting_0_0")).collect();
    assert!(!sources.is_empty(), "{case}: no kernel has the buffer");
    for source in &sources {
        compiles(case, source);
    }
    sources
}

/// A name, a plan, what is forced, and whether blocks vote.
type Case = (&'static str, Plan, &'static [(&'static str, &'static str)], bool);

/// Where a table may be full a block votes whether it leaves the loop, and nowhere else.
#[test]
fn blocks_have_the_buffer_in_front_of_every_sink() {
    let limited = Plan::Limit { input: Box::new(few(0)), skip: 0, fetch: Some(10) };
    let cases: [Case; 12] = [
        ("result", few(0), &[], false),
        ("a limit", limited, &[], true),
        ("sums", sums(&[], false), &[], false),
        (
            "direct, global",
            sums(&[0], false),
            &[("group_table", "direct"), ("accumulator_memory", "global")],
            false,
        ),
        (
            "direct, block",
            sums(&[0], false),
            &[("group_table", "direct"), ("accumulator_memory", "block")],
            false,
        ),
        ("hash", sums(&[1], false), &[("group_table", "hash"), ("local_preaggregation", "0")], true),
        ("hash, near", sums(&[1], false), &[("group_table", "hash"), ("local_preaggregation", "256")], true),
        ("words", sums(&[1, 2], false), &[("group_table", "hash"), ("key_claims", "words")], true),
        ("segments of blocks", sums(&[1], false), &[("segments", "block")], false),
        ("sets", sums(&[0], true), &[("distinct_values", "set")], true),
        ("build side", joined(), &[("join", "hash")], false),
        ("sort", sorted(), &[], false),
    ];
    for (case, plan, variants, votes) in cases {
        for threads in ["32", "128", "256"] {
            let variants: Vec<_> = variants.iter().copied().chain([("block_threads", threads)]).collect();
            for source in waiting(compile(&plan, &variants), case) {
                // It is declared and cleared in any case.
                let is_read = source.matches("no_more_rows").count() > 2;
                assert_eq!(is_read, votes, "{case}, {threads} threads:\n{source}");
            }
        }
    }
}
