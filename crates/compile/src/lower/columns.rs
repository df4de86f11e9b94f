//! What is known of columns that expressions compute.

use super::infer_range;
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::types::Range;

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
    let scattered = of_remainder(expr, input, range);
    ColumnInfo {
        data_type: expr.data_type.clone(),
        nullable: expr.nullable,
        range,
        dictionary: None,
        scattered,
    }
}

/// How many scattered values the remainder of a column by a constant has, at most: those of the column, or all remainders.
fn of_remainder(expr: &Expr, input: &[ColumnInfo], range: Option<Range>) -> Option<u64> {
    let ExprKind::Arithmetic(ArithmeticOp::Remainder, dividend, divisor) = &expr.kind else { return None };
    let dividend = match &dividend.kind {
        ExprKind::Cast { input, .. } => input,
        _ => dividend,
    };
    let (ExprKind::Column(index), ExprKind::Literal(_)) = (&dividend.kind, &divisor.kind) else {
        return None;
    };
    let Range { min, max } = range?;
    let remainders = u64::try_from(max.checked_sub(min)?.checked_add(1)?).ok()?;
    Some(input.get(*index)?.scattered?.min(remainders))
}
