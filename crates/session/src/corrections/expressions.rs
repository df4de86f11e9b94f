//! What expressions a plan has, the subqueries of these, and plans whose aggregations with some are written in another way.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Subquery};

/// Whether a plan, subqueries included, has an expression of a kind.
pub(super) fn has_expr(plan: &LogicalPlan, is_meant: impl Fn(&Expr) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| Ok(is_meant(expr)))?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// A plan with its aggregations rewritten, subqueries included, if it has a call of a kind.
pub(super) fn with_aggregations(
    plan: LogicalPlan,
    is_meant: impl Fn(&Expr) -> bool,
    rewrite: impl Fn(Aggregate) -> Result<Transformed<LogicalPlan>>,
) -> Result<LogicalPlan> {
    if !has_expr(&plan, is_meant)? {
        return Ok(plan);
    }
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Aggregate(aggregate) => rewrite(aggregate),
        node => Ok(Transformed::no(node)),
    })?;
    Ok(rewritten.data)
}

/// The subquery of an expression.
pub(super) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

pub(super) fn subquery_of_mut(expr: &mut Expr) -> Option<&mut Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}
