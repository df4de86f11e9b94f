//! What DataFusion takes for known of groups over rows that have keys of their own. After a join with a grouped subquery a value of its key
//! comes as often as the other side has it; where the rows are then grouped by the key and more, the key alone is taken for what tells the
//! groups apart. Rules that go by it drop keys of a sort and whole joins. Such groups are given rows here of which nothing is known.

use std::sync::Arc;

use datafusion::common::FunctionalDependencies;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};

/// A plan whose groups are told apart by all of their keys. Nodes above them learn it.
pub(super) fn with_true_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !has_misled(&plan)? {
        return Ok(Transformed::no(plan));
    }
    plan.transform_up_with_subqueries(|node| {
        let node = match has_known_keys(&node) {
            true => node.recompute_schema()?,
            false => node,
        };
        of_keys_that_tell_nothing(node)
    })
}

/// Groups over rows of which nothing is known but their columns, where there are keys that could be taken to follow from others.
pub(super) fn of_keys_that_tell_nothing(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Aggregate(aggregate) = plan else { return Ok(Transformed::no(plan)) };
    if !is_misled(&aggregate) {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let schema = aggregate.input.schema();
    let columns = schema.columns().into_iter().map(Expr::Column).collect();
    let unknown = schema.as_ref().clone().with_functional_dependencies(FunctionalDependencies::empty())?;
    let rows = Projection::try_new_with_schema(columns, aggregate.input, Arc::new(unknown))?;
    let rows = Arc::new(LogicalPlan::Projection(rows));
    let grouped = Aggregate::try_new(rows, aggregate.group_expr, aggregate.aggr_expr)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(grouped)))
}

/// Whether keys of groups could be taken to follow from others.
fn is_misled(aggregate: &Aggregate) -> bool {
    aggregate.group_expr.len() > 1 && !aggregate.input.schema().functional_dependencies().is_empty()
}

fn has_misled(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found |= matches!(node, LogicalPlan::Aggregate(aggregate) if is_misled(aggregate));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether a node keeps what it has learnt of keys below.
fn has_known_keys(node: &LogicalPlan) -> bool {
    matches!(
        node,
        LogicalPlan::Projection(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Join(_)
            | LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
    ) && !node.schema().functional_dependencies().is_empty()
}
