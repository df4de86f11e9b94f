//! What is known of columns that expressions compute.

use super::infer_range;
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;

/// The columns of a projection over `input`.
pub(crate) fn of_projection(exprs: &[Expr], input: &[ColumnInfo]) -> Vec<ColumnInfo> {
    exprs.iter().map(|expr| of_expr(expr, input)).collect()
}

/// What is known of an expression over `input`.
pub(crate) fn of_expr(expr: &Expr, input: &[ColumnInfo]) -> ColumnInfo {
    if let ExprKind::Column(index) = expr.kind
        && let Some(column) = input.get(index)
    {
        return column.clone();
    }
    let range = infer_range(expr, &|index| input.get(index).and_then(|column| column.range));
    ColumnInfo {
        data_type: expr.data_type.clone(),
        nullable: expr.nullable,
        range,
        dictionary: None,
        scattered: None,
    }
}
