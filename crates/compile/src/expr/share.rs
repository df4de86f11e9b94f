//! Which share of the rows a condition keeps, guessed from the bounds of columns and the constants that they are compared with.

use std::collections::BTreeMap;

use super::{CompareOp, Expr, ExprKind};
use crate::types::{Literal, Range};

/// The share where nothing is known.
const UNKNOWN: f64 = 1.0 / 3.0;

/// A guess, from 0 to 1; `ranges` gives the bounds of columns. Values are taken to be spread evenly, and conditions to be
/// independent of each other, but for bounds of the same column.
pub(crate) fn share_kept(condition: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> f64 {
    match &condition.kind {
        ExprKind::And(..) => all_kept(condition, ranges),
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

/// The share that all conditions of a conjunction keep. A lower and an upper bound of a column are the window between them: the rows of
/// a month are a few of those before its end and of those after its beginning.
fn all_kept(condition: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> f64 {
    let (mut share, mut windows) = (1.0, BTreeMap::<usize, (f64, f64)>::new());
    let mut conditions = vec![condition];
    while let Some(condition) = conditions.pop() {
        let bound = match &condition.kind {
            ExprKind::And(a, b) => {
                conditions.extend([a.as_ref(), b.as_ref()]);
                continue;
            }
            ExprKind::Compare(op, a, b) => bound(*op, a, b, ranges),
            _ => None,
        };
        let Some((column, least, end)) = bound else {
            share *= share_kept(condition, ranges);
            continue;
        };
        let window = windows.entry(column).or_insert((0.0, 1.0));
        *window = (window.0.max(least), window.1.min(end));
    }
    windows.values().fold(share, |share, (least, end)| share * (end - least).max(0.0))
}

/// The column that a comparison bounds, and the shares of its values between which those lie that it keeps.
fn bound(
    op: CompareOp,
    a: &Expr,
    b: &Expr,
    ranges: &dyn Fn(usize) -> Option<Range>,
) -> Option<(usize, f64, f64)> {
    let (column, op, Some(literal)) = sides(op, a, b)? else { return None };
    let range = ranges(column)?;
    let end = |literal| (column, 0.0, below(range, literal));
    let least = |literal| (column, below(range, literal), 1.0);
    match op {
        CompareOp::Lt => Some(end(literal)),
        CompareOp::Le => Some(end(literal.saturating_add(1))),
        CompareOp::Gt => Some(least(literal.saturating_add(1))),
        CompareOp::Ge => Some(least(literal)),
        CompareOp::Eq | CompareOp::Ne => None,
    }
}

/// The column of a comparison, on its left side, and the integer that it is compared with, if it is one.
fn sides(op: CompareOp, a: &Expr, b: &Expr) -> Option<(usize, CompareOp, Option<i128>)> {
    match (&a.kind, &b.kind) {
        (ExprKind::Column(column), ExprKind::Literal(Literal::Int(literal))) => {
            Some((*column, op, Some(*literal)))
        }
        (ExprKind::Literal(Literal::Int(literal)), ExprKind::Column(column)) => {
            Some((*column, op.mirrored(), Some(*literal)))
        }
        (ExprKind::Column(column), _) => Some((*column, op, None)),
        _ => None,
    }
}

/// How many values of a range there are, in floats, as bounds may be those of a type of 128 bits.
fn values(range: Range) -> f64 {
    range.max as f64 - range.min as f64 + 1.0
}

/// The share of a range's values that are below one.
fn below(range: Range, literal: i128) -> f64 {
    ((literal as f64 - range.min as f64) / values(range)).clamp(0.0, 1.0)
}

/// Of a column and a constant.
fn compared(op: CompareOp, a: &Expr, b: &Expr, ranges: &dyn Fn(usize) -> Option<Range>) -> f64 {
    let Some((column, op, literal)) = sides(op, a, b) else { return UNKNOWN };
    let Some(range) = ranges(column) else { return UNKNOWN };
    let (values, below) = (values(range), |literal| below(range, literal));
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
        let and = |a, b| {
            let kind = ExprKind::And(Box::new(a), Box::new(b));
            Expr { kind, data_type: DataType::Boolean, nullable: false }
        };
        let window = |from, to| and(compare(CompareOp::Ge, from), compare(CompareOp::Lt, to));
        assert!((share_kept(&window(26, 36), &ranges) - 0.1).abs() < 1e-9);
        assert!((share_kept(&and(window(26, 36), compare(CompareOp::Eq, 30)), &ranges) - 0.001).abs() < 1e-9);
        assert!(share_kept(&window(36, 26), &ranges).abs() < 1e-9);
        assert!((share_kept(&compare(CompareOp::Lt, 5), &|_| None) - 1.0 / 3.0).abs() < 1e-9);
    }
}
