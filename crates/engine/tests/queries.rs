//! Plans through the whole engine on the CPU and on the interpreter, under both micro models.

use std::sync::Arc;

use crate::common::Table;
use arrow::array::*;
use arrow::datatypes::{DataType as ArrowType, Field as ArrowField, Schema};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Plan, Scan, SortKey};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{CancelToken, DeviceChoice, Engine, MicroModel, Query, QueryOptions, QueryOutput};

/// `a`: 0..rows modulo 100; `b`: i64 extremes and NULLs; `s`: text; `u`: unique text, some NULL; `f`: doubles.
fn table(rows: usize, partitions: usize) -> Arc<Table> {
    let schema = Arc::new(Schema::new(vec![
        ArrowField::new("a", ArrowType::Int32, false),
        ArrowField::new("b", ArrowType::Int64, true),
        ArrowField::new("s", ArrowType::Utf8, false),
        ArrowField::new("u", ArrowType::Utf8, true),
        ArrowField::new("f", ArrowType::Float64, false),
    ]));
    let part = |from: usize, to: usize| {
        let rows = from..to;
        let b = |row: usize| match row % 5 {
            0 => None,
            1 => Some(i64::MAX - row as i64),
            2 => Some(i64::MIN + row as i64),
            _ => Some(row as i64 - 50),
        };
        let u = |row: usize| (row % 11 != 3).then(|| format!("unique é {row}"));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from_iter_values(rows.clone().map(|row| (row % 100) as i32))),
            Arc::new(Int64Array::from_iter(rows.clone().map(b))),
            Arc::new(StringArray::from_iter_values(rows.clone().map(|row| ["x", "", "zß"][row % 3]))),
            Arc::new(StringArray::from_iter(rows.clone().map(u))),
            Arc::new(Float64Array::from_iter_values(rows.map(|row| row as f64 / 4.0))),
        ];
        RecordBatch::try_new(schema.clone(), columns).expect("a batch")
    };
    let cut = |index: usize| rows * index / partitions;
    let batches = (0..partitions).map(|index| part(cut(index), cut(index + 1))).collect();
    Arc::new(Table(batches))
}

fn scan() -> Plan {
    let field = |name: &str, data_type, nullable| Field { name: name.into(), data_type, nullable };
    let fields = vec![
        field("a", DataType::Int32, false),
        field("b", DataType::Int64, true),
        field("s", DataType::Utf8, false),
        field("u", DataType::Utf8, true),
        field("f", DataType::Float64, false),
    ];
    Plan::Scan(Scan { source: 0, table: "t".into(), columns: (0..5).collect(), fields })
}

fn column(plan: &Plan, index: usize) -> Expr {
    let field = &plan.fields()[index];
    Expr::column(index, field.data_type.clone(), field.nullable)
}

fn less(expr: Expr, value: i128) -> Expr {
    let nullable = expr.nullable;
    let literal = Expr::literal(Literal::Int(value), expr.data_type.clone());
    let kind = ExprKind::Compare(CompareOp::Lt, Box::new(expr), Box::new(literal));
    Expr { kind, data_type: DataType::Boolean, nullable }
}

fn filter(input: Plan, predicate: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), predicate }
}

fn aggregate(input: Plan, keys: &[usize], aggregates: &[(AggregateFunction, Option<usize>)]) -> Plan {
    let keys: Vec<Expr> = keys.iter().map(|key| column(&input, *key)).collect();
    let names = keys.iter().enumerate().map(|(index, _)| format!("k{index}")).collect();
    let aggregates = aggregates.iter().map(|(function, argument)| {
        let argument = argument.map(|index| column(&input, index));
        let data_type = match (function, &argument) {
            (AggregateFunction::Count, _) => DataType::Int64,
            (AggregateFunction::Sum, Some(expr)) if expr.data_type.is_integer() => DataType::Int64,
            (AggregateFunction::Avg, _) => DataType::Float64,
            (_, Some(expr)) => expr.data_type.clone(),
            _ => DataType::Int64,
        };
        let field = Field { name: format!("{function:?}"), data_type, nullable: true };
        Aggregate { function: *function, argument, distinct: false, field }
    });
    let aggregates = aggregates.collect();
    Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
}

fn sort(input: Plan, keys: &[usize], fetch: Option<usize>) -> Plan {
    let key = |index: &usize| SortKey { expr: column(&input, *index), descending: false, nulls_first: true };
    let keys = keys.iter().map(key).collect();
    Plan::Sort { input: Box::new(input), keys, fetch }
}

fn configurations() -> Vec<QueryOptions> {
    let mut all = Vec::new();
    for micro_model in [MicroModel::Pipelined, MicroModel::Resolution] {
        let with =
            |device, simt_lanes| QueryOptions { device, micro_model, simt_lanes, ..QueryOptions::default() };
        all.push(with(DeviceChoice::Cpu, 32));
        all.push(with(DeviceChoice::Simt, 4));
        all.push(with(DeviceChoice::Simt, 32));
    }
    all
}

fn run(engine: &Engine, plan: &Plan, source: &Arc<Table>, options: &QueryOptions) -> QueryOutput {
    let query = Query { plan: plan.clone(), sources: vec![source.clone() as _], options: options.clone() };
    match engine.execute(&query, &CancelToken::default()) {
        Ok(output) => output,
        Err(error) => panic!("{options:?}: {error}"),
    }
}

/// The rows of a batch, cells separated by `|`, NULL as `-`.
fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let cell = |column: usize, row: usize| {
        let array = batch.column(column);
        if array.is_null(row) { "-".into() } else { array_value_to_string(array, row).expect("prints") }
    };
    let row =
        |row| (0..batch.num_columns()).map(|column| cell(column, row)).collect::<Vec<String>>().join("|");
    (0..batch.num_rows()).map(row).collect()
}

/// Every configuration gives these rows.
fn expect(plan: &Plan, rows: usize, expected: &[&str]) {
    let engine = Engine::new();
    let source = table(rows, 3);
    for options in configurations() {
        let output = run(&engine, plan, &source, &options);
        assert_eq!(rows_of(&output.batch), expected, "{options:?}");
    }
}

use AggregateFunction::{Avg, Count, Max, Min, Sum};

#[test]
fn aggregates_without_keys() {
    let all =
        [(Count, None), (Count, Some(1)), (Sum, Some(0)), (Min, Some(1)), (Max, Some(1)), (Avg, Some(4))];
    let plan = aggregate(filter(scan(), less(column(&scan(), 0), 50)), &[], &all);
    expect(&plan, 1000, &["500|400|12250|-9223372036854775806|9223372036854775806|118.625"]);
}

#[test]
fn no_rows_give_one_row_of_nulls_and_zeros() {
    let plan = aggregate(scan(), &[], &[(Count, None), (Sum, Some(0)), (Min, Some(4)), (Avg, Some(4))]);
    expect(&plan, 0, &["0|-|-|-"]);
}

#[test]
fn groups_by_text() {
    let plan = sort(aggregate(scan(), &[2], &[(Count, None), (Sum, Some(0)), (Max, Some(4))]), &[0], None);
    expect(&plan, 100, &["|33|1617|24.25", "x|34|1683|24.75", "zß|33|1650|24.5"]);
}

#[test]
fn more_groups_than_expected() {
    // Unique text with NULLs (stored keys) and the full range of i64 with NULLs, more groups than the first table has.
    let groups = aggregate(scan(), &[3, 1], &[(Count, None)]);
    let plan = aggregate(groups, &[], &[(Count, None), (Sum, Some(2))]);
    let engine = Engine::new();
    let options = QueryOptions { device: DeviceChoice::Cpu, ..QueryOptions::default() };
    let source = table(150_000, 4);
    let batch = run(&engine, &plan, &source, &options).batch;
    assert_eq!(batch.column(1).as_primitive::<arrow::datatypes::Int64Type>().value(0), 150_000);
    let distinct: std::collections::HashSet<(Option<usize>, Option<usize>)> =
        (0..150_000).map(|row| ((row % 11 != 3).then_some(row), (row % 5 != 0).then_some(row))).collect();
    let groups = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>().value(0);
    assert_eq!(groups as usize, distinct.len());
}

#[test]
fn rows_with_text_and_nulls() {
    let plan = sort(filter(scan(), less(column(&scan(), 1), -40)), &[4], Some(4));
    let expected = [
        "2|-9223372036854775806|zß|unique é 2|0.5",
        "3|-47|x|-|0.75",
        "4|-46||unique é 4|1.0",
        "7|-9223372036854775801||unique é 7|1.75",
    ];
    expect(&plan, 40, &expected);
}

#[test]
fn a_limit_inside_is_carried_out_first() {
    let plan = aggregate(sort(scan(), &[4], Some(10)), &[], &[(Count, None), (Sum, Some(0))]);
    expect(&plan, 500, &["10|45"]);
}

#[test]
fn a_second_run_compiles_nothing() {
    let engine = Engine::new();
    let source = table(1000, 1);
    let options = QueryOptions { device: DeviceChoice::Cpu, ..QueryOptions::default() };
    let plan = aggregate(scan(), &[0], &[(Count, None)]);
    let first = run(&engine, &plan, &source, &options);
    let second = run(&engine, &plan, &source, &options);
    assert!(first.metrics.pipelines.iter().any(|pipeline| pipeline.compile_ns > 0));
    assert!(second.metrics.pipelines.iter().all(|pipeline| pipeline.compile_ns == 0));
    assert_eq!(first.batch.num_rows(), 100);
    assert_eq!(
        first.metrics.pipelines.iter().map(|pipeline| pipeline.rows_out).collect::<Vec<_>>(),
        [Some(100), Some(100)]
    );
}
