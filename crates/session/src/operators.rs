//! Operators of the syntax tree: how close they bind, and their operands.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, UnaryOperator};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};

/// How close an operator binds that stands between operands, before one or behind one: the parser's own numbers, but for `||` and the
/// arrows of JSON, which come right after arithmetic. `None` where it is not known here, or is no operator.
pub(crate) fn level(expr: &Expr) -> Option<u8> {
    let precedence = match expr {
        Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => Precedence::Is,
        Expr::Like { .. } | Expr::ILike { .. } | Expr::SimilarTo { .. } | Expr::RLike { .. } => {
            Precedence::Like
        }
        Expr::InList { .. } | Expr::InSubquery { .. } | Expr::Between { .. } => Precedence::Between,
        Expr::UnaryOp { op: UnaryOperator::Not, .. } => Precedence::UnaryNot,
        Expr::BinaryOp { op, .. } => return level_between(op),
        _ => asked(expr).map(|_| Precedence::Is)?,
    };
    Some(GenericDialect.prec_value(precedence))
}

/// How close an operator between two operands binds.
pub(crate) fn level_between(op: &BinaryOperator) -> Option<u8> {
    use BinaryOperator::*;
    let precedence = match op {
        Or => Precedence::Or,
        And => Precedence::And,
        Xor => Precedence::Xor,
        Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship => Precedence::Eq,
        BitwiseAnd => Precedence::Ampersand,
        BitwiseXor => Precedence::Caret,
        BitwiseOr => Precedence::Pipe,
        Plus | Minus => Precedence::PlusMinus,
        Multiply | Divide | DuckIntegerDivide | MyIntegerDivide | Modulo => Precedence::MulDivModOp,
        StringConcat | Arrow | LongArrow | HashArrow | HashLongArrow => {
            return Some(GenericDialect.prec_value(Precedence::PlusMinus) - 1);
        }
        _ => return None,
    };
    Some(GenericDialect.prec_value(precedence))
}

/// What `IS NULL`, `IS NOT TRUE` and the like ask about.
pub(crate) fn asked(expr: &Expr) -> Option<&Expr> {
    match expr {
        Expr::IsNull(of)
        | Expr::IsNotNull(of)
        | Expr::IsTrue(of)
        | Expr::IsNotTrue(of)
        | Expr::IsFalse(of)
        | Expr::IsNotFalse(of)
        | Expr::IsUnknown(of)
        | Expr::IsNotUnknown(of) => Some(of),
        _ => None,
    }
}

/// The operand on the left of an operator.
pub(crate) fn left_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsNull(of)
        | Expr::IsNotNull(of)
        | Expr::IsTrue(of)
        | Expr::IsNotTrue(of)
        | Expr::IsFalse(of)
        | Expr::IsNotFalse(of)
        | Expr::IsUnknown(of)
        | Expr::IsNotUnknown(of)
        | Expr::IsDistinctFrom(of, _)
        | Expr::IsNotDistinctFrom(of, _)
        | Expr::Like { expr: of, .. }
        | Expr::ILike { expr: of, .. }
        | Expr::SimilarTo { expr: of, .. }
        | Expr::RLike { expr: of, .. }
        | Expr::InList { expr: of, .. }
        | Expr::InSubquery { expr: of, .. }
        | Expr::Between { expr: of, .. }
        | Expr::BinaryOp { left: of, .. } => Some(of),
        _ => None,
    }
}

/// The operand on the right of an operator.
pub(crate) fn right_of(expr: &mut Expr) -> Option<&mut Expr> {
    match expr {
        Expr::IsDistinctFrom(_, of)
        | Expr::IsNotDistinctFrom(_, of)
        | Expr::Like { pattern: of, .. }
        | Expr::ILike { pattern: of, .. }
        | Expr::SimilarTo { pattern: of, .. }
        | Expr::RLike { pattern: of, .. }
        | Expr::Between { high: of, .. }
        | Expr::UnaryOp { op: UnaryOperator::Not, expr: of }
        | Expr::BinaryOp { right: of, .. } => Some(of),
        _ => None,
    }
}
