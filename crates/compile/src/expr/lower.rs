//! Lowering of expressions to KIR: one module a topic.

use super::{ExprKind, arithmetic, compare, literal, logic, value};
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::Expr;

/// Lowers `expr` over the context's current row.
///
/// An expression that [`can_fail`](super::can_fail) is to be lowered only where the row is live: it reports errors
/// for what is not NULL. Others may be evaluated for rows that are discarded later.
pub fn lower(cx: &mut Context<'_>, expr: &Expr) -> Result<Lowered, Unsupported> {
    match &expr.kind {
        ExprKind::Column(index) => cx.column(*index),
        ExprKind::Literal(value) => literal::lower(cx, value, &expr.data_type),
        ExprKind::Arithmetic(op, left, right) => arithmetic::lower(cx, *op, left, right, &expr.data_type),
        ExprKind::Negate(input) => arithmetic::negate(cx, input, &expr.data_type),
        ExprKind::Compare(op, left, right) => compare::lower(cx, *op, left, right),
        ExprKind::Distinct(negated, left, right) => compare::distinct(cx, *negated, left, right),
        ExprKind::And(..) => logic::lower(cx, logic::Connective::And, expr),
        ExprKind::Or(..) => logic::lower(cx, logic::Connective::Or, expr),
        ExprKind::Not(input) => logic::not(cx, input),
        ExprKind::IsNull(input) => logic::is_null(cx, input, false),
        ExprKind::IsNotNull(input) => logic::is_null(cx, input, true),
        other => value::unsupported(format!("expression {other:?} is not compiled yet")),
    }
}
