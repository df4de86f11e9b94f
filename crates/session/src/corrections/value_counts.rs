//! Aggregates of how often each value comes (`histogram`, `entropy`): the values of each group are groups themselves, which are counted as
//! any others are, and what is made of few counts is made of these.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, lit,
};
use kelpie_datafusion::{Counted, LogicalRule};

use super::distinct_rows::as_before;
use super::expressions::with_aggregations;

/// Counts values as groups.
pub(crate) const VALUE_COUNTS: LogicalRule = LogicalRule {
    name: "kelpie_value_counts",
    applies: |options| options.enabled,
    rewrite: |plan| with_aggregations(plan, |expr| counted(expr).is_some(), grouped),
};

/// A call of which the counts of values are all that is needed: the value, and what takes these counts.
fn counted(call: &Expr) -> Option<(&Expr, Counted)> {
    match call {
        Expr::Alias(alias) => counted(&alias.expr),
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let is_plain = !params.distinct && params.filter.is_none() && params.order_by.is_empty();
            let of_counts = func.inner().downcast_ref::<Counted>()?.of_counts()?;
            match &params.args[..] {
                [value] if is_plain && !value.is_volatile() => Some((value, of_counts)),
                _ => None,
            }
        }
        _ => None,
    }
}

fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let (calls, keys) = (&aggregate.aggr_expr, &aggregate.group_expr);
    let found: Option<Vec<_>> = calls.iter().map(counted).collect();
    let Some(found) = found else { return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))) };
    let Some((value, _)) = found.first() else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let data_type = value.get_type(aggregate.input.schema())?;
    let is_one = found.iter().all(|(other, _)| other == value);
    let has_sets = matches!(&keys[..], [Expr::GroupingSet(_)]);
    // Groups show one of the two zeros for both.
    if !is_one || has_sets || data_type.is_floating() || data_type.is_nested() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let values = LogicalPlanBuilder::from(Arc::clone(&aggregate.input)).aggregate(
        keys.iter().cloned().chain([(*value).clone().alias("counted value")]),
        [count(lit(1)).alias("rows of a value")],
    )?;
    let mut columns: Vec<Expr> = values.schema().columns().into_iter().map(Expr::Column).collect();
    let arguments = columns.split_off(keys.len());
    let calls = found.into_iter().map(|(_, of_counts)| {
        let function = Arc::new(AggregateUDF::new_from_impl(of_counts));
        Expr::AggregateFunction(AggregateFunction::new_udf(
            function,
            arguments.clone(),
            false,
            None,
            Vec::new(),
            None,
        ))
    });
    let made = values.aggregate(columns, calls.collect::<Vec<_>>())?.build()?;
    match as_before(made, &aggregate)? {
        Some(same) => Ok(Transformed::yes(same)),
        None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
    }
}
