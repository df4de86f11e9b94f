//! Types of operands: what is compared, chosen between or handed on must be represented alike. A value in a register does not
//! say what it counts: the same bits are 1.5 at one scale and 15 at another.

use super::value::unsupported;
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, Function};
use crate::types::DataType;

/// Whether values of two types can stand for each other as they are. The precision of decimals and the time zone of timestamps
/// change nothing about a value; NULL without a type is of every type.
pub fn alike(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Null, _) | (_, DataType::Null) => true,
        (DataType::Decimal128 { scale: a, .. }, DataType::Decimal128 { scale: b, .. }) => a == b,
        (DataType::Timestamp { unit: a, .. }, DataType::Timestamp { unit: b, .. }) => a == b,
        (a, b) => a == b,
    }
}

/// Refuses an expression whose operands are not of the types that it is to combine. Its children are left to themselves.
pub(super) fn check(expr: &Expr) -> Result<(), Unsupported> {
    let name = name_of(&expr.kind);
    let of = |wanted: &DataType, operand: &Expr| match alike(wanted, &operand.data_type) {
        true => Ok(()),
        false => unsupported(format!("{name} of {wanted} and {}", operand.data_type)),
    };
    let boolean = |operand: &Expr| of(&DataType::Boolean, operand);
    match &expr.kind {
        ExprKind::Compare(_, left, right) | ExprKind::Distinct(_, left, right) => of(&left.data_type, right),
        ExprKind::And(left, right) | ExprKind::Or(left, right) => boolean(left).and(boolean(right)),
        ExprKind::Not(input) => boolean(input),
        ExprKind::Negate(input) => of(&expr.data_type, input),
        ExprKind::Case { branches, otherwise } => {
            for (condition, result) in branches {
                boolean(condition)?;
                of(&expr.data_type, result)?;
            }
            otherwise.iter().try_for_each(|otherwise| of(&expr.data_type, otherwise))
        }
        ExprKind::InList { input, list, .. } => {
            list.iter().try_for_each(|element| of(&input.data_type, element))
        }
        ExprKind::Function(Function::Coalesce, arguments) => {
            arguments.iter().try_for_each(|argument| of(&expr.data_type, argument))
        }
        ExprKind::Function(Function::NullIf, arguments) => {
            arguments.iter().try_for_each(|argument| of(&expr.data_type, argument))
        }
        _ => Ok(()),
    }
}

fn name_of(kind: &ExprKind) -> &'static str {
    match kind {
        ExprKind::Compare(..) | ExprKind::Distinct(..) => "comparison",
        ExprKind::And(..) | ExprKind::Or(..) | ExprKind::Not(_) => "a condition",
        ExprKind::Negate(_) => "negation",
        ExprKind::Case { .. } => "CASE",
        ExprKind::InList { .. } => "IN list",
        ExprKind::Function(Function::Coalesce, _) => "COALESCE",
        ExprKind::Function(Function::NullIf, _) => "NULLIF",
        _ => "an expression",
    }
}
