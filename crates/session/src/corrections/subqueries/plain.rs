//! Which subqueries DataFusion turns into joins itself, and rightly.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, JoinType, LogicalPlan, Operator};

/// Whether a plan or one under it refers to a row around it.
pub(super) fn is_correlated(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= node.contains_outer_reference();
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Whether all that a plan refers to around it are columns of these rows: what stands further out is no column for DataFusion's join.
pub(super) fn refers_to(plan: &LogicalPlan, rows: &LogicalPlan) -> Result<bool> {
    Ok(!refers_where(plan, |column| !rows.schema().has_column(column))?)
}

/// Whether a plan refers to columns of these rows.
pub(super) fn refers_to_some(plan: &LogicalPlan, rows: &LogicalPlan) -> Result<bool> {
    refers_where(plan, |column| rows.schema().has_column(column))
}

/// Whether a plan refers to such a column around it.
fn refers_where(plan: &LogicalPlan, is_meant: impl Fn(&Column) -> bool) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|expr| {
                Ok(matches!(expr, Expr::OuterReferenceColumn(_, column) if is_meant(column)))
            })?;
            Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })?;
    Ok(found)
}

/// Whether the columns that such conditions name can be told from each other by their names alone, and from those that the plan has:
/// DataFusion gives all of them one qualifier.
pub(super) fn has_own_names(plan: &LogicalPlan) -> Result<bool> {
    let mut known = plan.schema().columns();
    let mut own = true;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            for column in
                conditions.filter(|condition| condition.contains_outer()).flat_map(Expr::column_refs)
            {
                own &=
                    known.iter().all(|other| other.name != column.name || other.relation == column.relation);
                known.push(column.clone());
            }
        }
        Ok(if own { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(own)
}

/// Whether all that refers to a row around a plan are conditions that can as well be conditions of a join with it: only what keeps
/// rows as they are is above them.
pub(super) fn is_pulled_up(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Filter(filter) => is_pulled_up(&filter.input),
        LogicalPlan::Projection(projection) if !plan.contains_outer_reference() => {
            is_pulled_up(&projection.input)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner && !plan.contains_outer_reference() => {
            Ok(is_pulled_up(&join.left)? && is_pulled_up(&join.right)?)
        }
        plan => Ok(!is_correlated(plan)?),
    }
}

/// Whether a plan is one aggregate over rows that equal columns of a row around it, without HAVING: DataFusion groups by those columns.
pub(super) fn is_grouped_by_equal_columns(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(projection) if !plan.contains_outer_reference() => {
            is_grouped_by_equal_columns(&projection.input)
        }
        LogicalPlan::Aggregate(aggregate)
            if aggregate.group_expr.is_empty() && !plan.contains_outer_reference() =>
        {
            Ok(is_pulled_up(&aggregate.input)? && only_equal_columns(&aggregate.input)?)
        }
        _ => Ok(false),
    }
}

fn only_equal_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut all_equal = true;
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            let conditions = split_conjunction(&filter.predicate).into_iter();
            all_equal &= conditions.filter(|condition| condition.contains_outer()).all(equals_a_column);
        }
        Ok(if all_equal { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(all_equal)
}

fn equals_a_column(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return false };
    let bare = |expr: &Expr| match expr {
        Expr::Cast(cast) => cast.expr.as_ref().clone(),
        expr => expr.clone(),
    };
    matches!(
        (bare(left), bare(right)),
        (Expr::Column(_), Expr::OuterReferenceColumn(..)) | (Expr::OuterReferenceColumn(..), Expr::Column(_))
    )
}

/// Whether a plan has at most one row, as far as can be told.
pub(super) fn has_one_row(plan: &LogicalPlan) -> bool {
    if plan.max_rows() == Some(1) {
        return true;
    }
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Filter(filter) => has_one_row(&filter.input),
        LogicalPlan::Sort(sort) => has_one_row(&sort.input),
        LogicalPlan::Limit(limit) => has_one_row(&limit.input),
        LogicalPlan::Join(join) if matches!(join.join_type, JoinType::Inner | JoinType::Left) => {
            has_one_row(&join.left) && has_one_row(&join.right)
        }
        _ => false,
    }
}
