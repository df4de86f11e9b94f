//! A stage that has run before is launched without a look at what its kernels count. It gives the same rows; and where
//! something else comes of it than before, it is noticed, and the rows are still right.

#![expect(clippy::expect_used, reason = "a test fails where its helpers do")]

mod common;
#[path = "common/plans.rs"]
mod plans;

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use common::Table;
use kelpie_compile::expr::{ArithmeticOp, CompareOp, Expr, ExprKind};
use kelpie_compile::plan::AggregateFunction::{Count, Sum};
use kelpie_compile::plan::{JoinKind, Plan, Scan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, Query, QueryError, QueryOptions, TableSource,
};
use plans::{aggregate, filter, join, plans, rows_of, run, table, try_run};

fn cpu() -> QueryOptions {
    QueryOptions { device: DeviceChoice::Cpu, threads: Some(1), ..QueryOptions::default() }
}

/// Devices that defer: the interpreter, and a GPU where there is one.
fn devices() -> Vec<QueryOptions> {
    let mut all = vec![DeviceChoice::Simt];
    if kelpie_engine::testing::has_cuda(&Engine::new()) {
        all.push(DeviceChoice::Cuda);
    }
    all.into_iter().map(|device| QueryOptions { device, ..QueryOptions::default() }).collect()
}

#[test]
fn a_stage_that_ran_before_gives_the_same_rows() {
    let engine = Engine::new();
    let sources = [150, 60].map(table);
    for (name, plan, ordered) in plans() {
        let expected = rows_of(&run(&engine, &plan, &sources, &cpu()).batch, ordered);
        for options in devices() {
            let mut deferred = Vec::new();
            for _ in 0..5 {
                let output = run(&engine, &plan, &sources, &options);
                assert_eq!(rows_of(&output.batch, ordered), expected, "{name}: {options:?}");
                assert!(output.metrics.kernel_ns > 0, "{name}");
                let launched = output.metrics.pipelines.iter().filter(|pipeline| pipeline.run_ns > 0);
                assert!(launched.count() > 0, "{name}");
                deferred.push(output.metrics.deferred);
            }
            assert_eq!(deferred[0], 0, "{name}: nothing is foreseen yet");
            // How many rows a limit's kernel finds beyond those that are wanted differs from run to run.
            let is_foreseen = deferred[2..].iter().all(|launches| *launches > 0 && *launches == deferred[2]);
            assert!(is_foreseen || name.contains("limit"), "{name}: {deferred:?}");
        }
    }
}

/// Keys and numbers in `-2..=17`, and text: both ends are there, whatever the seed, and so columns are stored alike.
fn numbers(rows: i64, seed: i64, zeros: bool) -> Arc<dyn TableSource> {
    let schema = Schema::new(vec![
        ArrowField::new("k", ArrowType::Int64, false),
        ArrowField::new("n", ArrowType::Int64, false),
        ArrowField::new("s", ArrowType::Utf8, false),
    ]);
    let value = |row: i64, by: i64| match row {
        0 => -2,
        1 => 17,
        2 if zeros => 0,
        _ => match (row * row * by + row * seed * 7 + seed) % 20 - 2 {
            0 if !zeros => 1,
            value => value,
        },
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| value(row, 3)))),
        Arc::new(Int64Array::from_iter_values((0..rows).map(|row| value(row, 11)))),
        Arc::new(StringArray::from_iter_values(
            (0..rows).map(|row| format!("text number {:05}", (row * (seed + 3)) % 4001)),
        )),
    ];
    Arc::new(Table(vec![RecordBatch::try_new(Arc::new(schema), columns).expect("a batch")]))
}

fn scan(source: usize) -> Plan {
    let field = |name: &str, data_type| Field { name: name.into(), data_type, nullable: false };
    let fields = vec![field("k", DataType::Int64), field("n", DataType::Int64), field("s", DataType::Utf8)];
    Plan::Scan(Scan { source, table: "t".into(), columns: (0..3).collect(), fields })
}

/// Other data of the same layout under the same program: more rows, fewer, none at all.
#[test]
fn what_is_not_foreseen_is_noticed() {
    let build = || filter(scan(0), 0, CompareOp::Gt, 8);
    let joined = || join(JoinKind::Inner, build(), filter(scan(1), 1, CompareOp::Lt, 9), &[(1, 0)], false);
    let plans = [
        ("rows", build()),
        ("groups", aggregate(build(), &[2], &[(Count, None, false), (Sum, Some(1), false)])),
        ("join", joined()),
        ("groups of a join", aggregate(joined(), &[2, 5], &[(Count, None, false)])),
        (
            "join of text",
            join(JoinKind::FullOuter, build(), filter(scan(1), 0, CompareOp::Eq, 3), &[(2, 2)], false),
        ),
        (
            "groups of groups",
            filter(
                aggregate(aggregate(joined(), &[2], &[(Count, None, false)]), &[1], &[(Count, None, false)]),
                1,
                CompareOp::Gt,
                1,
            ),
        ),
    ];
    for options in devices() {
        let engine = Engine::new();
        for (name, plan) in &plans {
            let mut missed = false;
            for seed in [1, 1, 2, 2, 5, 5, 1, 9, 4, 4] {
                let sources = [numbers(700, seed, true), numbers(500, seed * seed, true)];
                let expected = rows_of(&run(&engine, plan, &sources, &cpu()).batch, false);
                let output = run(&engine, plan, &sources, &options);
                assert_eq!(rows_of(&output.batch, false), expected, "{name}, {seed}: {options:?}");
                missed |= seed != 1 && output.metrics.deferred == 0;
            }
            // Where no kernel works on what others have made, there is nothing to be wrong about.
            assert!(missed || !name.contains("join"), "{name}: all of it was foreseen");
        }
    }
}

#[test]
fn errors_are_those_of_the_query() {
    let number = |index| Box::new(Expr::column(index, DataType::Int64, false));
    let kind = ExprKind::Arithmetic(ArithmeticOp::Divide, number(0), number(1));
    let exprs = vec![Expr { kind, data_type: DataType::Int64, nullable: false }];
    let input = Box::new(aggregate(scan(0), &[1, 0], &[(Count, None, false)]));
    let quotients = Plan::Project { input, exprs, names: vec!["q".into()] };
    let plan = aggregate(quotients, &[0], &[(Count, None, false)]);
    let (fine, failing) = ([numbers(300, 1, false)], [numbers(300, 1, true)]);
    for options in devices() {
        let engine = Engine::new();
        let expected = rows_of(&run(&engine, &plan, &fine, &cpu()).batch, false);
        for _ in 0..2 {
            for _ in 0..2 {
                assert_eq!(rows_of(&run(&engine, &plan, &fine, &options).batch, false), expected);
            }
            let error = try_run(&engine, &plan, &failing, &options).expect_err("a number is zero");
            assert!(matches!(error, EngineError::Query(QueryError::DivideByZero)), "{error:?}");
        }
    }
}

#[test]
fn a_cancelled_query_stops() {
    let plan = aggregate(scan(0), &[0], &[(Count, None, false)]);
    let sources = vec![numbers(300, 1, true)];
    for options in devices() {
        let engine = Engine::new();
        let expected = rows_of(&run(&engine, &plan, &sources, &options).batch, false);
        let cancel = CancelToken::default();
        cancel.cancel();
        let query = Query { plan: plan.clone(), sources: sources.clone(), options: options.clone() };
        let error = engine.execute(&query, &cancel).expect_err("it is cancelled");
        assert!(matches!(error, EngineError::Cancelled), "{error:?}");
        let output = run(&engine, &plan, &sources, &options);
        assert_eq!(rows_of(&output.batch, false), expected);
        assert!(output.metrics.deferred > 0);
    }
}

/// A constant that is compared with text lies on the device as long as its program.
#[test]
fn constants_are_those_of_the_program() {
    let text = |value: &str| {
        let literal = Expr::literal(Literal::Utf8(value.into()), DataType::Utf8);
        let column = Box::new(Expr::column(2, DataType::Utf8, false));
        let kind = ExprKind::Compare(CompareOp::Lt, column, Box::new(literal));
        let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
        aggregate(Plan::Filter { input: Box::new(scan(0)), predicate }, &[], &[(Count, None, false)])
    };
    let sources = [numbers(600, 3, true)];
    for options in devices() {
        let engine = Engine::new();
        for _ in 0..3 {
            for value in ["text number 01000", "text number 03", "", "u"] {
                let plan = text(value);
                let expected = rows_of(&run(&engine, &plan, &sources, &cpu()).batch, false);
                assert_eq!(rows_of(&run(&engine, &plan, &sources, &options).batch, false), expected);
            }
        }
    }
}
