//! Sketches of the number of groups: where the rule makes them, and that their kernels are accepted.

use std::collections::BTreeSet;

use kelpie_compile::MicroModel;
use kelpie_compile::expr::{Expr, ExprKind, Function};
use kelpie_compile::layout::{ColumnLayout, Scattered, Storage};
use kelpie_compile::pipeline::{self, Choices, Growth, Program, ScanInfo};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan};
use kelpie_compile::types::{DataType, Range};
use kelpie_compile::variant::Forced;
use kelpie_kir::{Scalar, Target};

use crate::common::{self, accepts, field, gpu};

/// A table of a number of few values, two of a large range, of which one may be NULL, and a text.
fn table(rows: u64, scattered: [Option<u64>; 2]) -> (Plan, ScanInfo) {
    let fields = vec![
        field("few", DataType::Int32, false),
        field("k", DataType::Int64, false),
        field("l", DataType::Int64, true),
        field("t", DataType::Utf8, true),
    ];
    let fixed = |scalar, has_nulls, max| ColumnLayout {
        storage: Storage::Fixed { scalar, has_base: false },
        has_nulls,
        range: Some(Range { min: 0, max }),
    };
    let layouts = vec![
        fixed(Scalar::U8, false, 49),
        fixed(Scalar::I64, false, 1 << 40),
        fixed(Scalar::I64, true, 1 << 40),
        ColumnLayout { storage: Storage::Text { offset: Scalar::U32 }, has_nulls: true, range: None },
    ];
    let of = |values: Option<u64>| values.map(|values| Scattered { values, are_even: true, text_bytes: 0 });
    let scan = Scan { source: 0, table: "t".into(), columns: (0..fields.len()).collect(), fields };
    let info =
        ScanInfo::new(rows, layouts).with_scattered(1, of(scattered[0])).with_scattered(2, of(scattered[1]));
    (Plan::Scan(scan), info)
}

/// Rows by keys; where one is asked for, with how many values a column has.
fn grouped((scan, info): (Plan, ScanInfo), keys: Vec<Expr>, distinct: Option<usize>) -> (Plan, ScanInfo) {
    let column = |index: usize| {
        let field = &scan.fields()[index];
        Expr::column(index, field.data_type.clone(), field.nullable)
    };
    let counted = |argument: Option<usize>| Aggregate {
        function: AggregateFunction::Count,
        distinct: argument.is_some(),
        argument: argument.map(column),
        field: field("n", DataType::Int64, false),
    };
    let aggregates = [None].into_iter().chain(distinct.map(Some)).map(counted).collect();
    let names = vec![String::new(); keys.len()];
    (Plan::Aggregate { input: Box::new(scan), keys, aggregates, names }, info)
}

fn few() -> Expr {
    Expr::column(0, DataType::Int32, false)
}

fn k() -> Expr {
    Expr::column(1, DataType::Int64, false)
}

fn l() -> Expr {
    Expr::column(2, DataType::Int64, true)
}

fn text(function: Function, arguments: Vec<Expr>) -> Expr {
    Expr { kind: ExprKind::Function(function, arguments), data_type: DataType::Utf8, nullable: true }
}

/// `upper(t)`.
fn capitals() -> Expr {
    text(Function::Upper, vec![Expr::column(3, DataType::Utf8, true)])
}

/// `-k`.
fn computed() -> Expr {
    Expr { kind: ExprKind::Negate(Box::new(k())), ..k() }
}

fn compile(query: &(Plan, ScanInfo), target: &Target, forced: &Forced, micro_model: MicroModel) -> Program {
    let duplicates = BTreeSet::new();
    let choices = Choices { forced, ..Choices::new(micro_model, &duplicates) };
    pipeline::compile_with(&query.0, std::slice::from_ref(&query.1), target, &choices)
        .expect("the plan compiles")
}

/// How many tables the pipelines of a program sketch.
fn sketched(program: &Program) -> usize {
    let sketches = program.pipelines.iter().filter_map(|pipeline| pipeline.variant.sketching());
    sketches.map(|sketching| sketching.states.tables.len()).sum()
}

const ROWS: u64 = 10_000_000;

#[test]
fn tables_of_unknown_size_are_sketched() {
    let nothing = [None, None];
    let forced = common::forced(&[("group_parts", "1")]);
    for (rows, scattered, keys, distinct, tables) in [
        (ROWS, nothing, vec![computed()], None, 1),
        (ROWS, nothing, vec![capitals()], None, 1),
        (ROWS, nothing, vec![k(), l()], None, 1),
        // Each is known, and not how many pairs there are.
        (ROWS, [Some(1 << 18), Some(1 << 18)], vec![k(), l()], None, 1),
        (ROWS, nothing, vec![computed()], Some(2), 2),
        // Few groups, and the values of a column in them.
        (ROWS, nothing, vec![few()], Some(2), 1),
        // Few rows; a column's values; groups at the places of their keys; one group.
        (1 << 19, nothing, vec![computed()], None, 0),
        (ROWS, [Some(1 << 18), None], vec![k()], None, 0),
        (ROWS, nothing, vec![few()], None, 0),
        (ROWS, nothing, vec![], None, 0),
    ] {
        let query = grouped(table(rows, scattered), keys, distinct);
        for target in [gpu(), Target::cpu(2)] {
            let program = compile(&query, &target, &forced, MicroModel::Resolution);
            let choice = program.genome.of("aggregate0").find(|choice| choice.axis.name == "group_estimate");
            assert_eq!(sketched(&program), tables, "{rows} {scattered:?} {:?}: {choice:?}", query.0);
        }
    }
}

/// The table of rows that come in parts has a known number of groups, and a block without memory has no registers.
#[test]
fn a_sketch_says_what_it_lacks() {
    let query = grouped(table(ROWS, [Some(1 << 18), None]), vec![k()], None);
    let lacks = |query: &(Plan, ScanInfo), target: &Target| {
        let forced = common::forced(&[("aggregate0.group_estimate", "sketch")]);
        let duplicates = BTreeSet::new();
        let choices = Choices { forced: &forced, ..Choices::new(MicroModel::Resolution, &duplicates) };
        let compiled = pipeline::compile_with(&query.0, std::slice::from_ref(&query.1), target, &choices);
        compiled.expect_err("not possible").to_string()
    };
    let error = lacks(&query, &gpu());
    assert!(error.contains("a number of groups that is known"), "{error}");
    let query = grouped(table(ROWS, [None, None]), vec![computed()], None);
    let error = lacks(&query, &Target::simt(4, 8, 8 << 10, 2));
    assert!(error.contains("registers have no room"), "{error}");
}

/// Every kernel validates under every micro model, and NVRTC accepts those of an NVIDIA GPU.
#[test]
fn kernels_of_sketches_are_accepted() {
    let forced = common::forced(&[("group_estimate", "sketch")]);
    let mut sketches = 0;
    for target in [gpu(), Target::simt(4, 8, 64 << 10, 4), Target::cpu(2)] {
        for micro_model in MicroModel::ALL {
            for (keys, distinct) in
                [(vec![computed()], None), (vec![k(), l()], Some(3)), (vec![capitals(), few()], Some(1))]
            {
                let query = grouped(table(ROWS, [None, None]), keys, distinct);
                let program = compile(&query, &target, &forced, micro_model);
                sketches += sketched(&program);
                accepts(program, &target);
            }
        }
    }
    assert!(sketches >= 15, "{sketches}");
}

/// A GPU's threads share a table, of which some slots are left to few groups; a worker's searches want a small one.
#[test]
fn a_table_that_is_kept_has_some_slots_on_a_gpu() {
    let query = grouped(table(ROWS, [None, None]), vec![computed()], None);
    for (target, least) in [(gpu(), 1 << 13), (Target::cpu(2), 64)] {
        let program = compile(&query, &target, Forced::none(), MicroModel::Resolution);
        let tables = program.classes.iter().filter_map(|class| match class.growth {
            Growth::Table(table) => Some(table),
            _ => None,
        });
        for table in tables {
            assert_eq!((table.fitting(0), table.fitting(1)), (least, least));
            // Twice as many slots as groups, and a quarter more.
            assert_eq!(table.fitting(1 << 20), (5 << 20) / 2);
            assert_eq!(table.fitting(u64::MAX), u64::MAX);
        }
    }
}
