//! What is known of columns that expressions compute.

use super::date_part::trunc_spacing;
use super::datetime::ticks_of_day;
use super::infer_range;
use crate::expr::{ArithmeticOp, Expr, ExprKind, Function};
use crate::layout::{ColumnInfo, Scattered};
use crate::types::{DataType, Literal, Range, Spacing};

/// Numbers of a CASE up to which it is looked at which ones they are.
const MOST_OF_CASES: i128 = 127;

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
    let range = numbers_of_cases(expr).or(range);
    if let Some((below, line, exact)) = Line::of(expr, input) {
        let spacing = line.spacing(below.spacing);
        // Only where there are distances is code made for these very constants; elsewhere others have the same kernel.
        let range = if spacing.is_some() { Some(exact) } else { range };
        let (data_type, nullable) = (expr.data_type.clone(), expr.nullable);
        let (dictionary, origin, coded) = (None, None, None);
        return ColumnInfo { data_type, nullable, range, spacing, dictionary, origin, coded, ..below };
    }
    let scattered = scattered_values(expr, input);
    let spacing = spacing(expr, input).filter(|_| range.is_some());
    ColumnInfo {
        data_type: expr.data_type.clone(),
        nullable: expr.nullable,
        range,
        dictionary: None,
        scattered,
        has_frequent: false,
        is_clustered: false,
        spacing,
        origin: None,
        coded: None,
    }
}

/// The range of CASE where each result is a small number of the statement: up to a power of two, so that few constants make code of their
/// own, but finer than a literal's class, as it says how many groups there may be.
fn numbers_of_cases(expr: &Expr) -> Option<Range> {
    let ExprKind::Case { branches, otherwise } = &expr.kind else { return None };
    let mut most = None;
    for result in branches.iter().map(|(_, result)| result).chain(otherwise.as_deref()) {
        match result.kind {
            ExprKind::Literal(Literal::Int(value @ 0..=MOST_OF_CASES)) if result.data_type.is_integer() => {
                most = most.max(Some(value));
            }
            ExprKind::Literal(Literal::Null) => {}
            _ => return None,
        }
    }
    let bits = i128::BITS - most?.leading_zeros();
    Some(Range { min: 0, max: (1 << bits) - 1 })
}

/// A whole number times another and plus a third: other numbers become other numbers, and their order stays or is turned round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line {
    factor: i128,
    addend: i128,
}

impl Line {
    /// What is known of the integers that an expression computes its own of by constants, and the range of these, where none of them is
    /// beyond its type: there they would begin anew.
    fn of(expr: &Expr, input: &[ColumnInfo]) -> Option<(ColumnInfo, Line, Range)> {
        let (below, line) = Line::split(expr)?;
        let (below, bounds) = (of_expr(below, input), expr.data_type.full_range()?);
        let Range { min, max } = below.range?;
        let (a, b) = (line.at(min)?, line.at(max)?);
        let range = Range { min: a.min(b), max: a.max(b) };
        (bounds.min <= range.min && range.max <= bounds.max).then_some((below, line, range))
    }

    /// The operand, and what is done to it.
    fn split(expr: &Expr) -> Option<(&Expr, Line)> {
        if !expr.data_type.is_integer() {
            return None;
        }
        let (op, a, b) = match &expr.kind {
            ExprKind::Cast { input, .. } if input.data_type.is_integer() => {
                return Some((input, Line { factor: 1, addend: 0 }));
            }
            ExprKind::Arithmetic(op, a, b) => (op.plain(), a, b),
            _ => return None,
        };
        let constant = |expr: &Expr| match expr.kind {
            ExprKind::Literal(Literal::Int(value)) => Some(value),
            _ => None,
        };
        let line = |factor, addend| Some(Line { factor, addend });
        let (below, line) = match (op, constant(a), constant(b)) {
            (ArithmeticOp::Add, None, Some(value)) => (a, line(1, value)),
            (ArithmeticOp::Add, Some(value), None) => (b, line(1, value)),
            (ArithmeticOp::Subtract, None, Some(value)) => (a, line(1, value.checked_neg()?)),
            (ArithmeticOp::Subtract, Some(value), None) => (b, line(-1, value)),
            (ArithmeticOp::Multiply, None, Some(value)) => (a, line(value, 0)),
            (ArithmeticOp::Multiply, Some(value), None) => (b, line(value, 0)),
            _ => return None,
        };
        line.filter(|line| line.factor != 0 && below.data_type.is_integer()).map(|line| (&**below, line))
    }

    /// What a number becomes.
    fn at(self, value: i128) -> Option<i128> {
        value.checked_mul(self.factor)?.checked_add(self.addend)
    }

    /// The distances of what numbers at these distances become.
    fn spacing(self, below: Option<Spacing>) -> Option<Spacing> {
        let Spacing { first, step } = below.unwrap_or(Spacing { first: 0, step: 1 });
        Spacing::new(self.at(first)?, step.checked_mul(self.factor.checked_abs()?)?)
    }
}

/// The distances of an expression's values: those of a column, also as another number or time, and those of times that are truncated.
fn spacing(expr: &Expr, input: &[ColumnInfo]) -> Option<Spacing> {
    match &expr.kind {
        ExprKind::Column(index) => input.get(*index)?.spacing,
        ExprKind::Cast { input: below, .. } => {
            let factor = cast_factor(&below.data_type, &expr.data_type)?;
            match spacing(below, input) {
                Some(spacing) => spacing.times(factor),
                None => Spacing::new(0, factor),
            }
        }
        ExprKind::Function(Function::DateTrunc(granularity), _) => {
            trunc_spacing(*granularity, &expr.data_type)
        }
        ExprKind::Function(Function::DateBin(bins), _) => Spacing::new(bins.first.into(), bins.width.into()),
        _ => None,
    }
}

/// What a value is multiplied by where it is cast, if by a constant and exactly.
fn cast_factor(from: &DataType, to: &DataType) -> Option<i128> {
    let digits = match (from, to) {
        _ if from.is_integer() && to.is_integer() => 0,
        (DataType::Date32, DataType::Timestamp { .. }) => return ticks_of_day(to).ok(),
        (DataType::Decimal128 { scale: from, .. }, DataType::Decimal128 { scale: to, .. }) => {
            i32::from(*to) - i32::from(*from)
        }
        (_, DataType::Decimal128 { scale, .. }) if from.is_integer() => i32::from(*scale),
        _ => return None,
    };
    10i128.checked_pow(u32::try_from(digits).ok()?)
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
