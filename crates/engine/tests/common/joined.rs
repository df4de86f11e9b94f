//! Joins of two sides that are carried out with axes forced, and what is looked at of their results.

use std::sync::Arc;

use arrow::util::display::array_value_to_string;
use kelpie_compile::expr::{CompareOp, Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, AggregateFunction, Join, Plan};
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_engine::{
    CancelToken, DeviceChoice, Engine, EngineError, Forced, Query, QueryOptions, QueryOutput, TableSource,
};

use crate::sides::{Row, column};

/// An axis and its value.
pub type Choice = (&'static str, &'static str);

/// Keys at the ends of what 64 and 32 bits hold.
pub const ENDS: [i64; 9] =
    [i64::MIN, i64::MAX, 0, -1, i64::MIN + 5, i64::MAX - 5, 1 << 32, -(1 << 32), 1 << 31];

/// Options of a device with warps of so many lanes and two threads, and what is forced.
pub fn options((device, simt_lanes): (DeviceChoice, u32), forced: &[&[Choice]]) -> QueryOptions {
    let mut variants = Forced::default();
    for (axis, value) in forced.iter().copied().flatten() {
        variants.set(axis, value).expect("an axis and its value");
    }
    QueryOptions { device, simt_lanes, threads: Some(2), variants, ..QueryOptions::default() }
}

pub fn query(plan: Plan, sources: &[Arc<dyn TableSource>], options: &QueryOptions) -> Query {
    Query { plan, sources: sources.to_vec(), options: options.clone() }
}

pub fn execute(
    engine: &Engine,
    plan: Plan,
    sources: &[Arc<dyn TableSource>],
    options: &QueryOptions,
) -> Result<QueryOutput, EngineError> {
    engine.execute(&query(plan, sources, options), &CancelToken::default())
}

/// The same of a query that is no error.
pub fn output(
    engine: &Engine,
    plan: Plan,
    sources: &[Arc<dyn TableSource>],
    options: &QueryOptions,
) -> QueryOutput {
    match execute(engine, plan, sources, options) {
        Ok(output) => output,
        Err(error) => panic!("{:?}: {error}", options.variants),
    }
}

/// Whether an axis had a value anywhere.
pub fn has((axis, value): Choice, output: &QueryOutput) -> bool {
    output.metrics.choices().any(|choice| choice.axis.name == axis && choice.value == value)
}

/// How many rows there are, and the sum of an expression, where there is one.
pub fn counted(input: Plan, summed: Option<Expr>) -> Plan {
    let aggregate = |function, argument| Aggregate {
        function,
        argument,
        distinct: false,
        field: Field { name: format!("{function:?}"), data_type: DataType::Int64, nullable: true },
    };
    let sum = summed.map(|argument| aggregate(AggregateFunction::Sum, Some(argument)));
    let aggregates = [aggregate(AggregateFunction::Count, None)].into_iter().chain(sum).collect();
    Plan::Aggregate { input: Box::new(input), keys: Vec::new(), aggregates, names: Vec::new() }
}

/// The cells of a result's only row.
pub fn cells(output: &QueryOutput) -> Vec<String> {
    let cell = |column| array_value_to_string(column, 0).expect("a number");
    output.batch.columns().iter().map(|column| cell(column)).collect()
}

/// Rows of these keys, with numbers from 0 to 9 in turn.
pub fn numbered(keys: impl IntoIterator<Item = i64>) -> Vec<Row> {
    (0..).zip(keys).map(|(row, key)| (Some(key), None, row % 10)).collect()
}

/// The same rows between some without a key.
pub fn with_nulls(rows: Vec<Row>) -> Vec<Row> {
    let nulls = (0..5).map(|row| (None, None, row));
    nulls.clone().chain(rows).chain(nulls).collect()
}

/// Numbers below which the rows of either side are kept: all rows, most, and none.
pub const LIMITS: [(i32, i32); 5] = [(100, 100), (7, 100), (100, 6), (100, -1), (-1, 100)];

/// The rows of a table whose number compares so with another one.
pub fn kept(input: Plan, op: CompareOp, limit: i32) -> Plan {
    let limit = Expr::literal(Literal::Int(limit.into()), DataType::Int32);
    let kind = ExprKind::Compare(op, Box::new(column(2)), Box::new(limit));
    let predicate = Expr { kind, data_type: DataType::Boolean, nullable: false };
    Plan::Filter { input: Box::new(input), predicate }
}

/// A join of the rows of either side whose numbers are below others, and these rows.
pub fn narrowed(
    joined: Plan,
    (build, probe): (&[Row], &[Row]),
    limits: (i32, i32),
) -> (Plan, Vec<Row>, Vec<Row>) {
    let below = |rows: &[Row], limit| rows.iter().filter(|row| row.2 < limit).cloned().collect();
    let rows = (below(build, limits.0), below(probe, limits.1));
    let Plan::Join(join) = joined else { panic!("no join") };
    let Join { build, probe, .. } = *join;
    let (build, probe) = (kept(build, CompareOp::Lt, limits.0), kept(probe, CompareOp::Lt, limits.1));
    (Plan::Join(Box::new(Join { build, probe, ..*join })), rows.0, rows.1)
}
