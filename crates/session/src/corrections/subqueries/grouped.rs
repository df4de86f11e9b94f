//! Subqueries that refer to what the query around them is grouped by: `SELECT upper(s), (SELECT … WHERE x.s = upper(t.s)) FROM t
//! GROUP BY upper(s)`. DataFusion plans `upper(t.s)` within the subquery as a call of a column that the groups have not got. Here it is
//! the column of the groups that they are told apart by.

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::{grouping_set_to_exprlist, merge_schema};
use datafusion::logical_expr::{Expr, LogicalPlan};
use kelpie_datafusion::map_expressions;

use super::super::expressions::subquery_of_mut;
use super::is_subquery;

/// What rows are grouped by that is no column of theirs, and the column of the groups that has it.
#[derive(Clone)]
struct Key {
    expr: Expr,
    column: Column,
    field: FieldRef,
}

/// A node whose subqueries refer to the columns of groups where they say what these are made of.
pub(super) fn by_their_columns(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let [input] = node.inputs()[..] else { return Ok(Transformed::no(node)) };
    let mut has_any = false;
    node.apply_expressions(|expr| {
        has_any |= expr.exists(|expr| Ok(is_subquery(expr)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    let keys = if has_any { keys_of(input)? } else { vec![] };
    if keys.is_empty() {
        return Ok(Transformed::no(node));
    }
    map_expressions(node, |expr| expr.exists(|expr| Ok(is_subquery(expr))), |expr| within(expr, &keys))
}

/// The keys of the groups that the rows of a plan are, if they are groups.
fn keys_of(plan: &LogicalPlan) -> Result<Vec<Key>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let exprs = grouping_set_to_exprlist(&aggregate.group_expr)?;
            let keys = exprs.into_iter().zip(aggregate.schema.iter()).map(|(expr, (qualifier, field))| Key {
                expr: expr.clone().unalias(),
                column: Column::new(qualifier.cloned(), field.name()),
                field: field.clone(),
            });
            Ok(keys.filter(|key| !matches!(key.expr, Expr::Column(_))).collect())
        }
        LogicalPlan::Filter(_) | LogicalPlan::Sort(_) | LogicalPlan::Window(_) => match plan.inputs()[..] {
            [input] => keys_of(input),
            _ => Ok(vec![]),
        },
        LogicalPlan::Projection(projection) => {
            let shown = keys_of(&projection.input)?.into_iter().filter_map(|key| {
                let own = Expr::Column(key.column.clone());
                let place = projection.expr.iter().position(|expr| expr.clone().unalias() == own)?;
                let (qualifier, field) = projection.schema.qualified_field(place);
                Some(Key { column: Column::new(qualifier.cloned(), field.name()), ..key })
            });
            Ok(shown.collect())
        }
        _ => Ok(vec![]),
    }
}

/// An expression whose subqueries refer to the columns of keys.
fn within(expr: Expr, keys: &[Key]) -> Result<Transformed<Expr>> {
    expr.transform_up(|mut expr| {
        let Some(subquery) = subquery_of_mut(&mut expr) else { return Ok(Transformed::no(expr)) };
        let plan = subquery.subquery.as_ref().clone().transform_up(|node| {
            // What a query between has by the same name is meant in those within it.
            let own = merge_schema(&node.inputs());
            let others: Vec<Key> = keys.iter().filter(|key| !is_of(&key.expr, &own)).cloned().collect();
            let concerns =
                |expr: &Expr| Ok(expr.contains_outer() || expr.exists(|expr| Ok(is_subquery(expr)))?);
            map_expressions(node, concerns, |expr| {
                let outer = expr.transform_down(|expr| Ok(as_column(expr, keys)))?;
                outer.transform_data(|expr| within(expr, &others))
            })
        })?;
        if !plan.transformed {
            return Ok(Transformed::no(expr));
        }
        subquery.outer_ref_columns = plan.data.all_out_ref_exprs();
        subquery.subquery = plan.data.into();
        Ok(Transformed::yes(expr))
    })
}

fn is_of(key: &Expr, schema: &DFSchema) -> bool {
    key.column_refs().into_iter().any(|column| schema.has_column(column))
}

/// The column of a key in place of an expression of the query around that is what the key says.
fn as_column(expr: Expr, keys: &[Key]) -> Transformed<Expr> {
    if !expr.contains_outer() || !expr.column_refs().is_empty() {
        return Transformed::no(expr);
    }
    let bare = expr.clone().transform(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
        expr => Ok(Transformed::no(expr)),
    });
    let key = bare.ok().and_then(|bare| keys.iter().find(|key| key.expr == bare.data));
    match key {
        Some(key) => Transformed::yes(Expr::OuterReferenceColumn(key.field.clone(), key.column.clone())),
        None => Transformed::no(expr),
    }
}
