//! Casts that Arrow has none for. A decimal is true where it is not zero; and TRY_CAST gives NULL for what cannot be, whatever the types,
//! where DataFusion refuses the statement.

use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, LogicalPlan, Operator, TryCast, binary_expr};

/// A node with casts that there are.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let concerns = |expr: &Expr| expr.exists(|expr| Ok(matches!(expr, Expr::Cast(_) | Expr::TryCast(_))));
    super::map_expressions(plan, concerns, |expr| {
        expr.transform_up(|expr| {
            Ok(match mended(&expr, &schema)? {
                Some(mended) => Transformed::yes(mended),
                None => Transformed::no(expr),
            })
        })
    })
}

fn mended(expr: &Expr, schema: &DFSchema) -> Result<Option<Expr>> {
    let (inner, to, is_tried) = match expr {
        Expr::Cast(Cast { expr, field }) => (expr, field.data_type(), false),
        Expr::TryCast(TryCast { expr, field }) => (expr, field.data_type(), true),
        _ => return Ok(None),
    };
    // What has no type here is within a lambda.
    let Ok(from) = inner.get_type(schema) else { return Ok(None) };
    if *to == DataType::Boolean && from.is_decimal() {
        let zero = Expr::Literal(ScalarValue::new_zero(&from)?, None);
        return Ok(Some(binary_expr(inner.as_ref().clone(), Operator::NotEq, zero)));
    }
    // Structs are cast by the names of their columns, by DataFusion.
    let are_structs = from.is_nested() && to.is_nested();
    let is_none = is_tried && !are_structs && !can_cast_types(&from, to);
    Ok(if is_none { Some(Expr::Literal(ScalarValue::try_new_null(to)?, None)) } else { None })
}
