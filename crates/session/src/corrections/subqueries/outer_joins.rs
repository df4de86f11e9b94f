//! Subqueries in the conditions of outer joins. Such a condition is none of the join's rows, as it is where the join is an inner one; but a
//! subquery that refers to one side alone is a column of that side, which keeps all of its rows.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, Join, LogicalPlan, LogicalPlanBuilder};

use super::plain::refers_to_some;
use super::{Around, Place, subquery_of};

/// The join with columns of its sides in place of its condition's subqueries.
pub(super) fn rewritten(join: Join, made: &mut usize) -> Result<Transformed<LogicalPlan>> {
    let Some(condition) = join.filter.clone() else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let mut left = Around::without_scalars(&join.left, made);
    let condition = of_side(&mut left, condition, &join.right)?;
    let (left, left_changed) = (Arc::clone(&left.rows), left.changed);
    let mut right = Around::without_scalars(&join.right, made);
    let condition = of_side(&mut right, condition, &join.left)?;
    let (right, right_changed) = (Arc::clone(&right.rows), right.changed);
    if !left_changed && !right_changed {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let joined =
        LogicalPlan::Join(Join { left, right, filter: Some(condition), ..join }).recompute_schema()?;
    LogicalPlanBuilder::from(joined).project(columns)?.build().map(Transformed::yes)
}

/// A condition with columns in place of the subqueries that refer to one side, and not to the other.
fn of_side(side: &mut Around, condition: Expr, other: &LogicalPlan) -> Result<Expr> {
    let replaced = condition.transform_down(|expr| {
        let Some(subquery) = subquery_of(&expr) else { return Ok(Transformed::no(expr)) };
        let (plan, compared) = (&subquery.subquery, expr.column_refs());
        let is_of_side = compared.iter().all(|column| side.rows.schema().has_column(column))
            && (!compared.is_empty() || refers_to_some(plan, &side.rows)?)
            && !refers_to_some(plan, other)?;
        if !is_of_side {
            return Ok(Transformed::no(expr));
        }
        let value = side.replace(expr, Place::Value)?;
        Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
    })?;
    Ok(replaced.data)
}
