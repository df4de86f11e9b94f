//! Which share of the rows a condition keeps, guessed from the bounds of columns and the constants that they are compared with.

use super::{CompareOp, Expr, ExprKind};
use crate::types::{Literal, Range};

/// The share where nothing is known.
const UNKNOWN: f64 = 1.0 / 3.0;

/// A guess, from 0 to 1; `ranges` gives the bounds of columns. Values are taken to be spread evenly, and conditions to be
/// independent of each other.
pub(crate) fn share_kept(condition: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> f64 {
    match &condition.kind {
        ExprKind::And(a, b) => share_kept(a, ranges) * share_kept(b, ranges),
        ExprKind::Or(a, b) => 1.0 - (1.0 - share_kept(a, ranges)) * (1.0 - share_kept(b, ranges)),
        ExprKind::Not(a) => 1.0 - share_kept(a, ranges),
        ExprKind::IsNull(_) => 0.1,
        ExprKind::IsNotNull(_) => 0.9,
        ExprKind::Compare(op, a, b) => compared(*op, a, b, ranges),
        ExprKind::InList { input, list, negated } => {
            let one = compared(CompareOp::Eq, input, input, ranges);
            let kept = (one * list.len() as f64).min(1.0);
            if *negated { 1.0 - kept } else { kept }
        }
        _ => UNKNOWN,
    }
}

/// Of a column and a constant.
fn compared(op: CompareOp, a: &Expr, b: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> f64 {
    let (column, op, literal) = match (&a.kind, &b.kind) {
        (ExprKind::Column(column), ExprKind::Literal(Literal::Int(literal))) => (*column, op, Some(*literal)),
        (ExprKind::Literal(Literal::Int(literal)), ExprKind::Column(column)) => {
            (*column, op.mirrored(), Some(*literal))
        }
        (ExprKind::Column(column), _) => (*column, op, None),
        _ => return UNKNOWN,
    };
    let Some(range) = ranges(column) else { return UNKNOWN };
    // In floats, as bounds may be those of a type of 128 bits.
    let values = range.max as f64 - range.min as f64 + 1.0;
    let below = |literal: i128| ((literal as f64 - range.min as f64) / values).clamp(0.0, 1.0);
    match (op, literal) {
        (CompareOp::Eq, _) => 1.0 / values,
        (CompareOp::Ne, _) => 1.0 - 1.0 / values,
        (CompareOp::Lt, Some(literal)) => below(literal),
        (CompareOp::Le, Some(literal)) => below(literal.saturating_add(1)),
        (CompareOp::Gt, Some(literal)) => 1.0 - below(literal.saturating_add(1)),
        (CompareOp::Ge, Some(literal)) => 1.0 - below(literal),
        (_, None) => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::share_kept;
    use crate::expr::{CompareOp, Expr, ExprKind};
    use crate::types::{DataType, Literal, Range};

    fn compare(op: CompareOp, literal: i128) -> Expr {
        let column = Expr::column(0, DataType::Int64, false);
        let literal = Expr::literal(Literal::Int(literal), DataType::Int64);
        let kind = ExprKind::Compare(op, Box::new(column), Box::new(literal));
        Expr { kind, data_type: DataType::Boolean, nullable: false }
    }

    #[test]
    fn shares_follow_from_bounds_and_constants() {
        let ranges = |_| Some(Range { min: 1, max: 100 });
        for (op, literal, share) in [
            (CompareOp::Lt, 26, 0.25),
            (CompareOp::Le, 25, 0.25),
            (CompareOp::Gt, 25, 0.75),
            (CompareOp::Ge, 26, 0.75),
            (CompareOp::Eq, 7, 0.01),
            (CompareOp::Lt, -5, 0.0),
            (CompareOp::Lt, i128::MAX, 1.0),
            (CompareOp::Ge, i128::MIN, 1.0),
        ] {
            let guess = share_kept(&compare(op, literal), &ranges);
            assert!((guess - share).abs() < 1e-9, "{op:?} {literal}: {guess}");
        }
        let both = ExprKind::And(Box::new(compare(CompareOp::Ge, 26)), Box::new(compare(CompareOp::Lt, 26)));
        let both = Expr { kind: both, data_type: DataType::Boolean, nullable: false };
        assert!((share_kept(&both, &ranges) - 0.1875).abs() < 1e-9);
        assert!((share_kept(&compare(CompareOp::Lt, 5), &|_| None) - 1.0 / 3.0).abs() < 1e-9);
    }
}
