//! The part of a join's condition that is a range in an order of the build side's rows: `b.x >= p.low and b.x < p.high` asks for the rows
//! from one place to another, once they are ordered by `x`.

use kelpie_kir::CompareOp;

use crate::expr::{Expr, ExprKind, columns_read, substitute};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, column_of};
use crate::plan::Join;
use crate::types::{DataType, Range};

/// The rows of the build side in which a row of the probe side finds its matches.
#[derive(Debug, Clone)]
pub(crate) struct SearchRange {
    /// What the build side's rows are ordered by: an expression over its columns.
    pub order: Expr,
    /// What a match is not before.
    pub lower: Vec<Bound>,
    /// What a match is not behind.
    pub upper: Vec<Bound>,
    /// What of the residual condition is to be checked of the rows in the range all the same.
    pub rest: Option<Expr>,
}

/// A bound of a range.
#[derive(Debug, Clone)]
pub(crate) struct Bound {
    /// Over the probe side's columns; of the order's type.
    pub value: Expr,
    /// Whether rows that are equal to it are in the range.
    pub is_included: bool,
}

/// A condition that bounds an order.
struct Comparison {
    /// Its number among the conditions that the residual condition is the AND of.
    number: usize,
    order: Expr,
    is_lower: bool,
    bound: Bound,
}

impl SearchRange {
    /// That of a join whose sides have these columns. Of several orders that the condition bounds it is the first that is bounded on both
    /// sides, or else the first one.
    pub fn of(join: &Join, sides: (&[ColumnInfo], &[ColumnInfo])) -> Option<SearchRange> {
        let conditions = conditions_of(join.residual.as_ref()?);
        let comparisons: Vec<Comparison> =
            conditions.iter().enumerate().filter_map(|numbered| Comparison::of(numbered, sides)).collect();
        let is_bounded = |order: &Expr, is_lower: bool| {
            comparisons.iter().any(|other| other.order == *order && other.is_lower == is_lower)
        };
        let both = |comparison: &&Comparison| {
            is_bounded(&comparison.order, true) && is_bounded(&comparison.order, false)
        };
        let order = comparisons.iter().find(both).or(comparisons.first())?.order.clone();
        let is_exact = order.data_type != DataType::Utf8;
        let (mut lower, mut upper, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for Comparison { number, is_lower, bound, .. } in
            comparisons.into_iter().filter(|comparison| comparison.order == order)
        {
            taken.push(number);
            // Texts are ordered by their first bytes: the range has rows besides that are equal to its bounds in these.
            let bound = Bound { is_included: bound.is_included || !is_exact, ..bound };
            if is_lower { lower.push(bound) } else { upper.push(bound) }
        }
        let left =
            conditions.into_iter().enumerate().filter(|(number, _)| !is_exact || !taken.contains(number));
        let rest = left.map(|(_, condition)| condition.clone()).reduce(and);
        Some(SearchRange { order, lower, upper, rest })
    }

    /// Whether both ends of the range are bounded.
    pub fn has_both_ends(&self) -> bool {
        !self.lower.is_empty() && !self.upper.is_empty()
    }

    /// All bounds.
    pub fn bounds(&self) -> impl Iterator<Item = &Bound> {
        self.lower.iter().chain(&self.upper)
    }

    /// The values that the order and its bounds may have, where these are integers inside.
    pub fn values(&self, (build, probe): (&[ColumnInfo], &[ColumnInfo])) -> Option<Range> {
        let of_bounds = self.bounds().map(|bound| column_of(&bound.value, probe).range);
        let own = column_of(&self.order, build).range;
        of_bounds.fold(own, |all, range| Some(all?.union(range?)))
    }
}

impl Comparison {
    /// A condition over both sides' columns, the build side's first.
    fn of(
        (number, condition): (usize, &&Expr),
        (build, probe): (&[ColumnInfo], &[ColumnInfo]),
    ) -> Option<Comparison> {
        let ExprKind::Compare(op, left, right) = &condition.kind else { return None };
        let width = build.len();
        let is_of = |expr: &Expr, is_build: bool| {
            let columns = columns_read(expr);
            !columns.is_empty() && columns.iter().all(|column| (*column < width) == is_build)
        };
        let (op, order, value) = match () {
            () if is_of(left, true) && is_of(right, false) => (*op, left, right),
            () if is_of(right, true) && is_of(left, false) => (op.mirrored(), right, left),
            () => return None,
        };
        let (is_lower, is_included) = match op {
            CompareOp::Gt => (true, false),
            CompareOp::Ge => (true, true),
            CompareOp::Lt => (false, false),
            CompareOp::Le => (false, true),
            CompareOp::Eq | CompareOp::Ne => return None,
        };
        let value = moved(value, width);
        // An order is computed for every row, where the condition is for pairs alone.
        let range = |columns: &[ColumnInfo], column: usize| columns.get(column)?.range;
        let may_fail = can_fail(order, &|column| range(build, column))
            || can_fail(&value, &|column| range(probe, column));
        let is_ordered = !matches!(order.data_type, DataType::Interval | DataType::Null);
        (is_ordered && order.data_type == value.data_type && !may_fail).then(|| Comparison {
            number,
            order: (**order).clone(),
            is_lower,
            bound: Bound { value, is_included },
        })
    }
}

/// The conditions that a condition is the AND of.
fn conditions_of(condition: &Expr) -> Vec<&Expr> {
    match &condition.kind {
        ExprKind::And(left, right) => [conditions_of(left), conditions_of(right)].concat(),
        _ => vec![condition],
    }
}

/// Both of two conditions.
pub(super) fn and(left: Expr, right: Expr) -> Expr {
    let nullable = left.nullable || right.nullable;
    Expr { kind: ExprKind::And(Box::new(left), Box::new(right)), data_type: DataType::Boolean, nullable }
}

/// An expression over the columns of pairs as one over the probe side's, which come behind `width` others.
fn moved(expr: &Expr, width: usize) -> Expr {
    substitute(expr, &|part| match part.kind {
        ExprKind::Column(column) => {
            Some(Expr { kind: ExprKind::Column(column.checked_sub(width)?), ..part.clone() })
        }
        _ => None,
    })
}
