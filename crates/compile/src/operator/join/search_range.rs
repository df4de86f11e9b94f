//! The part of a join's condition that is a range in an order of the build side's rows: `b.x >= p.low and b.x < p.high` asks for the rows
//! from one place to another, once they are ordered by `x`.

use kelpie_kir::CompareOp;

use crate::expr::{ArithmeticOp, Expr, ExprKind, Function, columns_read, substitute};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, column_of};
use crate::plan::Join;
use crate::types::{DataType, Literal, Range};

/// The rows of the build side in which a row of the probe side finds its matches.
#[derive(Debug, Clone)]
pub(crate) struct SearchRange {
    /// What the build side's rows are ordered by: an expression over its columns.
    pub order: Expr,
    /// What a match is not before.
    pub lower: Vec<Bound>,
    /// What a match is not behind.
    pub upper: Vec<Bound>,
    /// Where a match is not behind something in the order, but may be anywhere before it: another order of which a match is not before
    /// something. Of intervals that overlap others one begins before the other ends, and ends behind where that begins.
    pub second: Option<SecondOrder>,
    /// What of the residual condition is to be checked of the rows in the range all the same.
    pub rest: Option<Expr>,
}

/// An order of rows that lie in another one.
#[derive(Debug, Clone)]
pub(crate) struct SecondOrder {
    /// An expression over the build side's columns.
    pub order: Expr,
    /// Over the probe side's columns; of the order's type. Rows that are equal to it are taken in.
    pub least: Expr,
}

/// The stored columns of a range's orders.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrderedColumns {
    pub order: usize,
    pub second: Option<usize>,
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
        let comparisons: Vec<Comparison> = conditions
            .iter()
            .enumerate()
            .flat_map(|(number, condition)| {
                let comparisons = without_distances(condition, sides);
                comparisons
                    .into_iter()
                    .filter_map(move |condition| Comparison::of((number, &condition), sides))
            })
            .collect();
        let is_bounded = |order: &Expr, is_lower: bool| {
            comparisons.iter().any(|other| other.order == *order && other.is_lower == is_lower)
        };
        let both = |comparison: &&Comparison| {
            is_bounded(&comparison.order, true) && is_bounded(&comparison.order, false)
        };
        let is_upper = |comparison: &&Comparison| !comparison.is_lower;
        let first = comparisons.iter().find(both).or_else(|| comparisons.iter().find(is_upper));
        let order = first.or(comparisons.first())?.order.clone();
        let has_lower = is_bounded(&order, true);
        let second = comparisons.iter().find(|other| {
            let has_numbers = !matches!(other.order.data_type, DataType::Utf8);
            !has_lower && join.keys.is_empty() && other.is_lower && has_numbers
        });
        let second = second.map(|comparison| SecondOrder {
            order: comparison.order.clone(),
            least: comparison.bound.value.clone(),
        });
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
        Some(SearchRange { order, lower, upper, second, rest })
    }

    /// Whether both ends of the range are bounded.
    pub fn has_both_ends(&self) -> bool {
        !self.lower.is_empty() && !self.upper.is_empty()
    }

    /// The bounds of the order.
    pub fn bounds(&self) -> impl Iterator<Item = &Bound> {
        self.lower.iter().chain(&self.upper)
    }

    /// What a search looks at: expressions over the probe side's columns.
    pub fn values_read(&self) -> impl Iterator<Item = &Expr> {
        self.bounds().map(|bound| &bound.value).chain(self.second.as_ref().map(|second| &second.least))
    }

    /// What is known of the order's values and those of its bounds together.
    pub fn info(&self, sides: (&[ColumnInfo], &[ColumnInfo])) -> ColumnInfo {
        info_of(&self.order, self.bounds().map(|bound| &bound.value), sides)
    }
}

impl SecondOrder {
    /// What is known of the order's values and the other side's together. NULLs, which are before no value, stand first.
    pub fn info(&self, sides: (&[ColumnInfo], &[ColumnInfo])) -> ColumnInfo {
        info_of(&self.order, [&self.least].into_iter(), sides)
    }
}

/// What is known of values of both sides that are compared, and are not NULL.
fn info_of<'a>(
    order: &Expr,
    others: impl Iterator<Item = &'a Expr>,
    (build, probe): (&[ColumnInfo], &[ColumnInfo]),
) -> ColumnInfo {
    let own = column_of(order, build).range;
    let range =
        others.map(|value| column_of(value, probe).range).fold(own, |all, range| Some(all?.union(range?)));
    ColumnInfo::new(order.data_type.clone(), false, range)
}

impl Comparison {
    /// A condition over both sides' columns, the build side's first.
    fn of(
        (number, condition): (usize, &Expr),
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

/// A condition, as one or two comparisons of the sides where it compares their distance: `a - b < 5` is `a < b + 5`, and `abs(a - b) < 5`
/// is `a > b - 5` besides. That is so of integers none of which wraps around.
fn without_distances(condition: &Expr, sides: (&[ColumnInfo], &[ColumnInfo])) -> Vec<Expr> {
    let rewritten = match &condition.kind {
        ExprKind::Compare(op, left, right) => match (&left.kind, &right.kind) {
            (_, ExprKind::Literal(Literal::Int(distance))) => distances(*op, left, *distance, sides),
            (ExprKind::Literal(Literal::Int(distance)), _) => {
                distances(op.mirrored(), right, *distance, sides)
            }
            _ => None,
        },
        _ => None,
    };
    rewritten.unwrap_or_else(|| vec![condition.clone()])
}

/// The comparisons that say that a difference, or its absolute value, is so far from 0.
fn distances(
    op: CompareOp,
    difference: &Expr,
    distance: i128,
    (build, probe): (&[ColumnInfo], &[ColumnInfo]),
) -> Option<Vec<Expr>> {
    let (is_absolute, difference) = match &difference.kind {
        ExprKind::Function(Function::Abs, arguments) => (true, arguments.first()?),
        _ => (false, difference),
    };
    let ExprKind::Arithmetic(ArithmeticOp::Subtract | ArithmeticOp::SubtractExact, left, right) =
        &difference.kind
    else {
        return None;
    };
    let data_type = &difference.data_type;
    let is_integer =
        matches!(data_type, DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64);
    let whole = data_type.full_range().filter(|_| is_integer)?;
    let columns: Vec<ColumnInfo> = build.iter().chain(probe).cloned().collect();
    let (own, other) = (column_of(left, &columns).range?, column_of(right, &columns).range?);
    let subtracted = Range { min: own.min.checked_sub(other.max)?, max: own.max.checked_sub(other.min)? };
    let widened = |expr: &Expr| {
        let is_it = expr.data_type == *data_type;
        let kind = ExprKind::Cast { input: Box::new(expr.clone()), safe: false };
        if is_it {
            expr.clone()
        } else {
            Expr { kind, data_type: data_type.clone(), nullable: expr.nullable }
        }
    };
    let compared = |op, distance: i128| {
        let moved = Range { min: other.min.checked_add(distance)?, max: other.max.checked_add(distance)? };
        let is_exact = subtracted.within(whole) && moved.within(whole);
        let sum = Expr {
            kind: ExprKind::Arithmetic(
                ArithmeticOp::Add,
                Box::new(widened(right)),
                Box::new(Expr::literal(Literal::Int(distance), data_type.clone())),
            ),
            data_type: data_type.clone(),
            nullable: right.nullable,
        };
        is_exact.then(|| Expr {
            kind: ExprKind::Compare(op, Box::new(widened(left)), Box::new(sum)),
            data_type: DataType::Boolean,
            nullable: left.nullable || right.nullable,
        })
    };
    match (is_absolute, op) {
        (false, _) => Some(vec![compared(op, distance)?]),
        (true, CompareOp::Lt | CompareOp::Le) => {
            Some(vec![compared(op, distance)?, compared(op.mirrored(), distance.checked_neg()?)?])
        }
        (true, _) => None,
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
