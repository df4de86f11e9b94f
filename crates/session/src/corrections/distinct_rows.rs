//! `count(DISTINCT (a, b))`: how many different rows of several values there are. DataFusion makes a structure of each row; here they are groups.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::core::r#struct::StructFunc;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, lit};
use kelpie_datafusion::LogicalRule;

use super::expressions::with_aggregations;

/// Makes groups of rows that are counted once.
pub(crate) const DISTINCT_ROWS: LogicalRule = LogicalRule {
    name: "kelpie_distinct_rows",
    applies: |options| options.enabled,
    rewrite: |plan| with_aggregations(plan, |expr| counted_rows(expr).is_some(), grouped),
};

/// The values of the rows that a call counts, each once.
fn counted_rows(call: &Expr) -> Option<&[Expr]> {
    match call {
        Expr::Alias(alias) => counted_rows(&alias.expr),
        Expr::AggregateFunction(function) => {
            let params = &function.params;
            let is_plain = params.distinct && params.filter.is_none() && params.order_by.is_empty();
            let is_count = function.func.inner().downcast_ref::<Count>().is_some();
            match &params.args[..] {
                [Expr::ScalarFunction(row)] if is_plain && is_count => {
                    let is_row = row.func.inner().downcast_ref::<StructFunc>().is_some();
                    Some(&row.args[..]).filter(|values| is_row && !values.is_empty())
                }
                _ => None,
            }
        }
        _ => None,
    }
}

fn grouped(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let (calls, keys) = (&aggregate.aggr_expr, &aggregate.group_expr);
    let has_sets = matches!(&keys[..], [Expr::GroupingSet(_)]);
    let (Some(values), false) = (calls.first().and_then(counted_rows).filter(|_| calls.len() == 1), has_sets)
    else {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    };
    let values = values.iter().enumerate();
    let values = values.map(|(place, value)| value.clone().alias(format!("value {place} of a row")));
    let rows = LogicalPlanBuilder::from(Arc::clone(&aggregate.input))
        .aggregate(keys.iter().cloned().chain(values), Vec::<Expr>::new())?
        .build()?;
    let columns = rows.schema().columns().into_iter().take(keys.len());
    let columns: Vec<Expr> = columns.map(Expr::Column).collect();
    let counted = LogicalPlanBuilder::from(rows).aggregate(columns.clone(), [count(lit(1))])?.build()?;
    match as_before(counted, &aggregate)? {
        Some(same) => Ok(Transformed::yes(same)),
        None => Ok(Transformed::no(LogicalPlan::Aggregate(aggregate))),
    }
}

/// Groups under the names that those of an aggregation have; `None` where their types are others.
pub(super) fn as_before(groups: LogicalPlan, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
    let keys = aggregate.group_expr.len();
    let columns = groups.schema().columns().into_iter().zip(aggregate.schema.columns()).enumerate();
    let columns = columns.map(|(place, (own, Column { relation, name, .. }))| match place < keys {
        true => Expr::Column(own),
        false => Expr::Column(own).alias_qualified(relation, name),
    });
    let columns: Vec<Expr> = columns.collect();
    let same = LogicalPlanBuilder::from(groups).project(columns)?.build()?;
    Ok(same.schema().has_equivalent_names_and_types(&aggregate.schema).is_ok().then_some(same))
}
