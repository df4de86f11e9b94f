//! Which share of the rows a predicate keeps.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CastExpr, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::statistics::{ColumnEstimate, Estimate, column_of, number};

/// Distinct values of a text column of which nothing is known: those that queries compare are mostly codes.
const TEXTS: f64 = 20.0;
/// `a < b` of two columns.
const COLUMNS_ORDERED: f64 = 0.5;
/// `x < y` of which nothing is known: mostly a condition on an aggregate's result.
const ORDERED: f64 = 0.2;
/// `LIKE 'x%'` and `LIKE '%x%'`.
const PREFIX: f64 = 0.05;
const PATTERN: f64 = 0.1;
/// Anything else.
const UNKNOWN: f64 = 0.3;

type Expr = Arc<dyn PhysicalExpr>;

/// A column, and how many constants it may equal.
type Equals = (usize, f64);

/// The rows of a plan for which a predicate is true. Bounds of one column in several conjuncts are one interval.
pub(crate) fn filtered(mut input: Estimate, predicate: &Expr) -> Estimate {
    let mut share = 1.0;
    let mut intervals: Vec<(usize, f64, f64)> = Vec::new();
    let mut equal: Vec<Equals> = Vec::new();
    for conjunct in split_conjunction(predicate) {
        if let Some((column, low, high)) = bound(conjunct, &input) {
            match intervals.iter_mut().find(|(known, ..)| *known == column) {
                Some((_, l, h)) => (*l, *h) = (l.max(low), h.min(high)),
                None => intervals.push((column, low, high)),
            }
        } else {
            share *= selectivity(conjunct, &input);
            equal.extend(equals(conjunct));
        }
    }
    for (column, low, high) in &intervals {
        share *= within(&input.columns[*column], *low, *high);
    }
    let rows = input.rows;
    let before = input.columns.clone();
    input = input.thinned(share.max(0.5 / rows.max(1.0)));
    for (column, low, high) in intervals {
        let (known, column) = (&before[column], &mut input.columns[column]);
        column.distinct = known.distinct.map(|d| (d * within(known, low, high)).max(1.0));
        column.range = known.range.map(|(min, max)| (min.max(low), max.min(high))).filter(|(l, h)| l <= h);
    }
    for (column, values) in equal {
        if let Some(column) = input.columns.get_mut(column) {
            column.distinct = Some(column.distinct.map_or(values, |d| d.min(values)));
        }
    }
    input
}

/// Which share of the rows a predicate keeps.
pub(crate) fn selectivity(expr: &Expr, input: &Estimate) -> f64 {
    if let Some((column, values)) = equals(expr) {
        let column = input.columns.get(column).cloned().unwrap_or_default();
        let distinct = column.distinct.unwrap_or(TEXTS);
        return (values / distinct.max(1.0)).min(1.0) * (1.0 - column.nulls);
    }
    if let Some((column, low, high)) = bound(expr, input) {
        return within(&input.columns[column], low, high);
    }
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>() {
        return of_binary(binary, input);
    }
    if let Some(not) = expr.downcast_ref::<NotExpr>() {
        return 1.0 - selectivity(not.arg(), input);
    }
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        // Of a function of a column, or negated.
        let distinct = match column_of(list.expr()) {
            Some(column) => input.columns.get(column).and_then(|c| c.distinct).unwrap_or(TEXTS),
            None => TEXTS,
        };
        let share = (list.list().len() as f64 / distinct.max(1.0)).min(1.0);
        return if list.negated() { 1.0 - share } else { share };
    }
    if let Some(like) = expr.downcast_ref::<LikeExpr>() {
        let share =
            match like.pattern().downcast_ref::<Literal>().and_then(|p| p.value().try_as_str().flatten()) {
                Some(pattern) if !pattern.starts_with('%') => PREFIX,
                _ => PATTERN,
            };
        return if like.negated() { 1.0 - share } else { share };
    }
    let is_known =
        |column: &&ColumnEstimate| column.nulls > 0.0 || column.domain.is_some() || column.range.is_some();
    let column = |arg: &Expr| column_of(arg).and_then(|i| input.columns.get(i)).filter(is_known);
    let nulls = |arg: &Expr| column(arg).map(|column| column.nulls);
    if let Some(null) = expr.downcast_ref::<IsNullExpr>() {
        return nulls(null.arg()).unwrap_or(PATTERN);
    }
    if let Some(present) = expr.downcast_ref::<IsNotNullExpr>() {
        return nulls(present.arg()).map_or(1.0, |nulls| 1.0 - nulls);
    }
    match expr.downcast_ref::<Literal>().map(|literal| literal.value()) {
        Some(datafusion::common::ScalarValue::Boolean(Some(true))) => 1.0,
        Some(_) => 0.0,
        None => UNKNOWN,
    }
}

fn of_binary(binary: &BinaryExpr, input: &Estimate) -> f64 {
    let (left, right) = (binary.left(), binary.right());
    let both = || (selectivity(left, input), selectivity(right, input));
    match binary.op() {
        Operator::And => {
            let (a, b) = both();
            a * b
        }
        Operator::Or => {
            let (a, b) = both();
            a + b - a * b
        }
        Operator::Eq | Operator::IsNotDistinctFrom => equality(left, right, input),
        Operator::NotEq | Operator::IsDistinctFrom => 1.0 - equality(left, right, input),
        Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
            match (column_of(left), column_of(right)) {
                (Some(_), Some(_)) => COLUMNS_ORDERED,
                _ => ORDERED,
            }
        }
        _ => UNKNOWN,
    }
}

fn equality(left: &Expr, right: &Expr, input: &Estimate) -> f64 {
    let is_call = left.is::<ScalarFunctionExpr>() || right.is::<ScalarFunctionExpr>();
    let distinct = [left, right].into_iter().filter_map(|side| input.of_expr(side).distinct);
    let known = distinct.fold(if is_call { TEXTS } else { 1.0 }, f64::max);
    1.0 / if known > 1.0 { known } else { TEXTS }
}

/// `column = constant`, `column IN (constants)`, and such of one column joined by OR.
fn equals(expr: &Expr) -> Option<Equals> {
    if let Some(list) = expr.downcast_ref::<InListExpr>() {
        let column = column_of(list.expr()).filter(|_| !list.negated())?;
        return Some((column, list.list().len() as f64));
    }
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    match binary.op() {
        Operator::Eq if constant(binary.right()) => Some((column_of(binary.left())?, 1.0)),
        Operator::Eq if constant(binary.left()) => Some((column_of(binary.right())?, 1.0)),
        Operator::Or => {
            let (a, b) = (equals(binary.left())?, equals(binary.right())?);
            (a.0 == b.0).then_some((a.0, a.1 + b.1))
        }
        _ => None,
    }
}

fn constant(expr: &Expr) -> bool {
    expr.is::<Literal>()
}

/// `column < constant` and the like as an interval, where the column's range is known.
fn bound(expr: &Expr, input: &Estimate) -> Option<(usize, f64, f64)> {
    let binary = expr.downcast_ref::<BinaryExpr>()?;
    let (column, value, operator) = match (literal(binary.right()), literal(binary.left())) {
        (Some(value), _) => (column_of(binary.left())?, value, *binary.op()),
        (None, Some(value)) => (column_of(binary.right())?, value, binary.op().swap()?),
        (None, None) => return None,
    };
    let known = input.columns.get(column).filter(|known| known.range.is_some())?;
    match operator {
        Operator::Lt => Some((column, f64::NEG_INFINITY, value - known.step)),
        Operator::LtEq => Some((column, f64::NEG_INFINITY, value)),
        Operator::Gt => Some((column, value + known.step, f64::INFINITY)),
        Operator::GtEq => Some((column, value, f64::INFINITY)),
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<f64> {
    match expr.downcast_ref::<CastExpr>() {
        Some(cast) => literal(cast.expr()),
        None => number(expr.downcast_ref::<Literal>()?.value()),
    }
}

/// Which share of a column's values lies in an interval, if all of its range are as frequent.
fn within(column: &ColumnEstimate, low: f64, high: f64) -> f64 {
    let Some((min, max)) = column.range else { return ORDERED };
    let (from, to) = (min.max(low), max.min(high));
    if from > to {
        return 0.0;
    }
    let length = max - min + column.step;
    let share = if length > 0.0 { (to - from + column.step) / length } else { 1.0 };
    share.clamp(0.0, 1.0) * (1.0 - column.nulls)
}
