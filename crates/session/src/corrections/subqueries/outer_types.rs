//! The types of columns around a subquery. They are known before the types of CASE, UNION and VALUES are brought together, which may give
//! such a column another one: what the subquery compares with it was made for the first.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, Join, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use super::super::expressions::subquery_of_mut;

/// A plan whose subqueries go by the types that the columns around them have got.
pub(super) fn with_outer_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    let known = plan.transform_down_with_subqueries(with_types)?;
    match known.transformed {
        true => TypeCoercion::new().analyze(known.data, &ConfigOptions::default()),
        false => Ok(known.data),
    }
}

fn with_types(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&node.inputs());
    let typed = node.map_expressions(|expr| {
        expr.transform(|mut expr| {
            let mut is_new = false;
            if let Some(subquery) = subquery_of_mut(&mut expr) {
                let plan = of_schema(subquery.subquery.as_ref().clone(), &schema)?;
                is_new = plan.transformed;
                subquery.subquery = Arc::new(plan.data);
                for column in &mut subquery.outer_ref_columns {
                    *column = typed_column(std::mem::take(column), &schema).data;
                }
            }
            Ok(Transformed::new_transformed(expr, is_new))
        })
    })?;
    typed.transform_data(|node| match node {
        // LATERAL.
        LogicalPlan::Join(join) => {
            let right = of_schema(join.right.as_ref().clone(), join.left.schema())?;
            Ok(right.update_data(|right| LogicalPlan::Join(Join { right: Arc::new(right), ..join })))
        }
        node => Ok(Transformed::no(node)),
    })
}

/// A subquery whose references to columns of a schema have the types of these.
fn of_schema(plan: LogicalPlan, schema: &DFSchema) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        node.map_expressions(|expr| expr.transform(|expr| Ok(typed_column(expr, schema))))
    })
}

fn typed_column(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let Expr::OuterReferenceColumn(known, column) = expr else { return Transformed::no(expr) };
    match schema.field_from_column(&column) {
        Ok(field) if field.data_type() != known.data_type() => {
            Transformed::yes(Expr::OuterReferenceColumn(Arc::clone(field), column))
        }
        _ => Transformed::no(Expr::OuterReferenceColumn(known, column)),
    }
}
