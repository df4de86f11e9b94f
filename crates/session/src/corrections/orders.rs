//! Aggregates over one input in orders that exclude each other: `string_agg(a ORDER BY x), string_agg(b ORDER BY y)`. DataFusion sorts the
//! input once and refuses a second order. Here each order gets an aggregation of its own, and their groups are joined.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, NullEquality};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Aggregate, Expr, JoinType, LogicalPlan, LogicalPlanBuilder};
use kelpie_datafusion::LogicalRule;

use super::expressions::{has_expr, with_aggregations};

/// Gives each order of the aggregates of a plan its own aggregation.
pub(crate) const SPLIT_ORDERS: LogicalRule = LogicalRule {
    name: "kelpie_split_orders",
    applies: |options| options.corrections,
    rewrite: |plan| with_aggregations(plan, |expr| !order_of(expr).is_empty(), split),
};

/// The order that a call wants, where it says one.
fn order_of(call: &Expr) -> &[Sort] {
    match call {
        Expr::Alias(alias) => order_of(&alias.expr),
        Expr::AggregateFunction(function) => &function.params.order_by,
        _ => &[],
    }
}

fn split(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut parts: Vec<Part> = Vec::new();
    for call in &aggregate.aggr_expr {
        let order = order_of(call);
        match parts.iter_mut().find(|part| part.order.starts_with(order) || order.starts_with(part.order)) {
            Some(part) => {
                part.order = if order.len() > part.order.len() { order } else { part.order };
                part.calls.push(call.clone());
            }
            None => parts.push(Part { order, calls: vec![call.clone()] }),
        }
    }
    if parts.len() < 2 || is_volatile(&aggregate)? {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let of_order = |part: &Part| Groups { input: Arc::clone(&aggregate.input), calls: part.calls.clone() };
    let parts = parts.iter().map(of_order).collect();
    joined(&aggregate, parts).map(Transformed::yes)
}

/// Whether an aggregation's rows or groups would be others if they were computed twice.
pub(super) fn is_volatile(aggregate: &Aggregate) -> Result<bool> {
    let own = aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(Expr::is_volatile);
    Ok(own || has_expr(&aggregate.input, Expr::is_volatile)?)
}

/// Some of an aggregation's calls over rows that have all of its groups.
pub(super) struct Groups {
    pub input: Arc<LogicalPlan>,
    pub calls: Vec<Expr>,
}

/// The groups of an aggregation whose calls are shared out among several, joined.
pub(super) fn joined(aggregate: &Aggregate, parts: Vec<Groups>) -> Result<LogicalPlan> {
    let columns = aggregate.schema.columns();
    // The number that tells which keys are left out is one of those of grouping sets.
    let keys = columns.len().saturating_sub(aggregate.aggr_expr.len());
    let keys = columns.get(..keys).unwrap_or_default();
    let names: Vec<Column> = columns.iter().skip(keys.len()).cloned().collect();
    let mut parts = parts.into_iter().map(|Groups { input, calls }| {
        LogicalPlanBuilder::new_from_arc(input).aggregate(aggregate.group_expr.clone(), calls)
    });
    let Some(first) = parts.next() else { return Ok(LogicalPlan::Aggregate(aggregate.clone())) };
    let mut joined = first?;
    for (number, other) in parts.enumerate() {
        let (qualifier, other) = (format!("__kelpie_order_{number}"), other?);
        let shown = other.schema().columns().into_iter().enumerate().map(|(place, column)| {
            match place < keys.len() {
                true => Expr::Column(column).alias_qualified(Some(qualifier.as_str()), format!("k{place}")),
                false => Expr::Column(column),
            }
        });
        let shown: Vec<Expr> = shown.collect();
        let other = other.project(shown)?.build()?;
        let other_keys =
            (0..keys.len()).map(|place| Column::new(Some(qualifier.as_str()), format!("k{place}")));
        joined = match keys.is_empty() {
            true => joined.cross_join(other)?,
            false => joined.join_detailed(
                other,
                JoinType::Inner,
                (keys.to_vec(), other_keys.collect::<Vec<_>>()),
                None,
                NullEquality::NullEqualsNull,
            )?,
        };
    }
    let shown: Vec<Expr> = keys.iter().chain(&names).cloned().map(Expr::Column).collect();
    joined.project(shown)?.build()
}

/// Calls that one order serves.
struct Part<'a> {
    order: &'a [Sort],
    calls: Vec<Expr>,
}
