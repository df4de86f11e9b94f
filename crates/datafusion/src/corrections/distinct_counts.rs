//! `approx_distinct` counts exactly, whoever runs it.
//!
//! Kelpie counts distinct values exactly, at no more cost than by a sketch. So that an answer does not depend on what was compiled, a
//! statement's `approx_distinct(x)` is `count(DISTINCT x)` from the beginning. With `kelpie.corrections = off` it is DataFusion's own
//! sketch, on DataFusion's operators.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_distinct::ApproxDistinct;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, cast};

/// An aggregation with exact counts, whose type is made that of `approx_distinct` above it.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    if !aggregate.aggr_expr.iter().any(is_approximate) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let (schema, groups) = (Arc::clone(&aggregate.schema), aggregate.schema.fields().len());
    let first = groups.saturating_sub(aggregate.aggr_expr.len());
    let are_approximate: Vec<bool> = aggregate.aggr_expr.iter().map(is_approximate).collect();
    let counts = aggregate.aggr_expr.into_iter().map(|expr| {
        let name = NamePreserver::new_for_projection().save(&expr);
        name.restore(counted(expr))
    });
    let counts = Aggregate::try_new(aggregate.input, aggregate.group_expr, counts.collect())?;
    let columns = schema.iter().enumerate().map(|(place, (qualifier, field))| {
        let column = Expr::from((qualifier, field));
        let is_count = place.checked_sub(first).and_then(|place| are_approximate.get(place)).copied();
        match is_count.unwrap_or(false) {
            true => cast(column, DataType::UInt64).alias_qualified(qualifier.cloned(), field.name()),
            false => column,
        }
    });
    let columns = Projection::try_new(columns.collect(), Arc::new(LogicalPlan::Aggregate(counts)))?;
    Ok(Transformed::new(LogicalPlan::Projection(columns), true, TreeNodeRecursion::Continue))
}

fn is_approximate(expr: &Expr) -> bool {
    match expr {
        Expr::Alias(alias) => is_approximate(&alias.expr),
        Expr::AggregateFunction(call) => call.func.inner().as_ref().is::<ApproxDistinct>(),
        _ => false,
    }
}

fn counted(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(alias) => counted(*alias.expr),
        Expr::AggregateFunction(call) if call.func.inner().as_ref().is::<ApproxDistinct>() => {
            let AggregateFunction { mut params, .. } = call;
            params.distinct = true;
            Expr::AggregateFunction(AggregateFunction { func: count_udaf(), params })
        }
        other => other,
    }
}
