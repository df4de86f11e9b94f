//! What is known of columns that expressions compute.

use super::infer_range;
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::layout::{ColumnInfo, Scattered};
use crate::types::{DataType, Range};

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
    let scattered = scattered_values(expr, input);
    ColumnInfo {
        data_type: expr.data_type.clone(),
        nullable: expr.nullable,
        range,
        dictionary: None,
        scattered,
        is_clustered: false,
        origin: None,
    }
}

/// About how many scattered values an expression has: those of a column, those of its remainder by a constant, or of CASE where some
/// rows have such and others constants, which may be frequent values.
fn scattered_values(expr: &Expr, input: &[ColumnInfo]) -> Option<Scattered> {
    match &expr.kind {
        ExprKind::Column(index) => input.get(*index)?.scattered,
        ExprKind::Cast { input: below, .. } => {
            let is_integer = |data_type: &DataType| matches!(data_type, DataType::Int32 | DataType::Int64);
            let widens = is_integer(&below.data_type) && expr.data_type == DataType::Int64;
            scattered_values(below, input).filter(|_| widens)
        }
        ExprKind::Arithmetic(ArithmeticOp::Remainder, dividend, divisor) => {
            of_remainder((dividend, divisor), infer_range(expr, &|index| input.get(index)?.range), input)
        }
        ExprKind::Case { branches, otherwise } => {
            let results = branches.iter().map(|(_, result)| result).chain(otherwise.as_deref());
            let others = results.filter(|result| !matches!(result.kind, ExprKind::Literal(_)));
            let values = others.map(|result| scattered_values(result, input));
            let values =
                values.map(|own| Some(own?.values)).reduce(|all, own| Some(all?.saturating_add(own?)));
            Some(Scattered { values: values.flatten()?, are_even: false, text_bytes: 0 })
        }
        _ => None,
    }
}

/// How many scattered values the remainder of a column by a constant has, at most: those of the column, or all remainders.
fn of_remainder(
    (dividend, divisor): (&Expr, &Expr),
    range: Option<Range>,
    input: &[ColumnInfo],
) -> Option<Scattered> {
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
