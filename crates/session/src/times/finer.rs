//! A time that is written out finer than what it is compared with: `s < timestamp '2024-01-01 00:00:01.5'`, where `s` has seconds. It would
//! be cut to these, and `s` is then not less where it is. Here it is the next unit or the one before, as the comparison asks, which never
//! finds it equal.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::{BinaryExpr, InList};
use datafusion::logical_expr::{Between, Expr, ExprSchemable, Operator, binary_expr, lit};

use super::operands::written_finer;

/// Which unit a time becomes.
#[derive(Clone, Copy)]
enum Next {
    Before,
    After,
}

/// Changes such a comparison; whether it was one.
pub(super) fn round(expr: &mut Expr, schema: &DFSchema) -> bool {
    let changed = match expr {
        Expr::BinaryExpr(binary) => compared(binary, schema),
        Expr::Between(Between { expr, negated: _, low, high }) => {
            let Some(unit) = Unit::of(expr, schema) else { return false };
            let from = unit.rounded(low, Next::After, schema);
            let to = unit.rounded(high, Next::Before, schema);
            let changed = from.is_some() || to.is_some();
            from.into_iter().for_each(|from| **low = from);
            to.into_iter().for_each(|to| **high = to);
            return changed;
        }
        Expr::InList(InList { expr, list, negated }) => {
            let Some(unit) = Unit::of(expr, schema) else { return false };
            let before = list.len();
            list.retain(|time| unit.rounded(time, Next::Before, schema).is_none());
            if !list.is_empty() {
                return list.len() < before;
            }
            (before > 0).then(|| never_equal(expr, *negated))
        }
        _ => None,
    };
    let is_changed = changed.is_some();
    changed.into_iter().for_each(|changed| *expr = changed);
    is_changed
}

/// A comparison as one with a time of the same unit.
fn compared(binary: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    let BinaryExpr { left, op, right } = binary;
    let (time, unit, op, written) = match (Unit::of(left, schema), Unit::of(right, schema)) {
        (Some(unit), None) => (left, unit, *op, right),
        (None, Some(unit)) => (right, unit, op.swap()?, left),
        _ => return None,
    };
    let next = if matches!(op, Lt | GtEq) { Next::After } else { Next::Before };
    let rounded = unit.rounded(written, next, schema)?;
    match op {
        Lt | LtEq | Gt | GtEq => Some(binary_expr(time.as_ref().clone(), op, rounded)),
        Eq | NotEq => Some(never_equal(time, op == NotEq)),
        IsDistinctFrom | IsNotDistinctFrom => Some(lit(op == IsDistinctFrom)),
        _ => None,
    }
}

/// FALSE, or TRUE where it is negated; NULL of NULL.
fn never_equal(time: &Expr, negated: bool) -> Expr {
    let op = if negated { Operator::Eq } else { Operator::NotEq };
    binary_expr(time.clone(), op, time.clone())
}

/// The unit of a time of a row, and its zone.
struct Unit(TimeUnit, Option<Arc<str>>);

impl Unit {
    fn of(expr: &Expr, schema: &DFSchema) -> Option<Unit> {
        match expr.get_type(schema) {
            Ok(DataType::Timestamp(unit, zone)) if !expr.column_refs().is_empty() => Some(Unit(unit, zone)),
            _ => None,
        }
    }

    /// A time that is written out, where it is none of this unit, as one.
    fn rounded(&self, written: &Expr, next: Next, schema: &DFSchema) -> Option<Expr> {
        let Unit(unit, zone) = self;
        let value = written_finer(written, *unit, zone.clone(), schema)?;
        let DataType::Timestamp(finer, zone) = value.data_type() else { return None };
        let ScalarValue::Int64(Some(fine)) = value.cast_to(&DataType::Int64).ok()? else { return None };
        // What is written out has microseconds, as in DuckDB: further digits are cut.
        let (finer, fine) = match (finer, unit) {
            (_, TimeUnit::Nanosecond) => return None,
            (TimeUnit::Nanosecond, _) => (TimeUnit::Microsecond, fine.div_euclid(1_000)),
            other => (other.0, fine),
        };
        let within = ticks(finer) / ticks(*unit);
        if fine % within == 0 {
            return None;
        }
        let before = fine.div_euclid(within);
        let rounded = match next {
            Next::Before => before,
            Next::After => before + 1,
        };
        let value = ScalarValue::Int64(Some(rounded)).cast_to(&DataType::Timestamp(*unit, zone)).ok()?;
        Some(Expr::Literal(value, None))
    }
}

/// How many of a unit are a second.
fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}
