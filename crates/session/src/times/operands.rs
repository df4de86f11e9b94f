//! Values that must be of one type.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator, binary_expr};

use super::floats;

/// What an operand is.
enum Operand {
    /// A time that is written out, which can be of any unit: its text, and its zone.
    Written(String, Option<Arc<str>>),
    /// A date.
    Date,
    /// The moment of the statement, or a time by its distance from that.
    Now(Option<Arc<str>>),
    /// A time of a unit.
    Stamp(TimeUnit, Option<Arc<str>>),
    Other,
}

/// Gives operands a unit that holds all of them, where nanoseconds do not, and makes decimals beside floats ones; whether anything has
/// changed.
///
/// Where they are compared, texts are times, and a time of nanoseconds may be cut to microseconds beside one that nanoseconds do not
/// hold: they are never equal, and their order stays. Each operand is an expression over a schema of its own.
pub(super) fn bring_together<'a>(
    operands: &mut [&mut Expr],
    schema: impl Fn(usize) -> &'a DFSchema,
    compared: bool,
) -> Result<bool> {
    // Decimals that are compared with floats are no matter of types alone: see the corrections of decimals.
    if !compared && floats::bring_together(operands, &schema) {
        return Ok(true);
    }
    // Most operands are numbers.
    if !operands.iter().enumerate().any(|(place, operand)| may_be_time(operand, schema(place))) {
        return Ok(false);
    }
    let kinds = operands.iter().enumerate();
    let kinds: Vec<Operand> = kinds.map(|(place, operand)| kind(operand, schema(place), compared)).collect();
    let units = kinds.iter().filter_map(|kind| match kind {
        Operand::Stamp(unit, _) => Some(*unit),
        _ => None,
    });
    let zone = kinds.iter().find_map(|kind| match kind {
        Operand::Stamp(_, zone) => zone.clone(),
        _ => None,
    });
    let finest = units.max();
    let written_beyond = kinds.iter().any(|kind| match kind {
        Operand::Written(text, zone) => is_beyond(text, zone.as_ref()),
        _ => false,
    });
    let is_beyond_date =
        |(operand, kind): (&&mut Expr, &Operand)| matches!(kind, Operand::Date) && is_date_beyond(operand);
    let date_beyond = operands.iter().zip(&kinds).any(is_beyond_date);
    let unit = match finest {
        Some(TimeUnit::Nanosecond) if compared && (written_beyond || date_beyond) => TimeUnit::Microsecond,
        // A literal with an offset, or of the zone of what it stands beside.
        Some(TimeUnit::Nanosecond) if zone.is_some() => TimeUnit::Nanosecond,
        Some(TimeUnit::Nanosecond) => return Ok(false),
        Some(unit) => unit,
        // Literals and the moment of the statement, of which one is beyond nanoseconds.
        None if written_beyond && kinds.len() > 1 => TimeUnit::Microsecond,
        // Dates beside a literal, which both come to be: a date may be of any year.
        None if kinds.iter().any(|kind| matches!(kind, Operand::Date))
            && kinds.iter().any(|kind| matches!(kind, Operand::Written(..) | Operand::Now(_))) =>
        {
            TimeUnit::Microsecond
        }
        None => return Ok(false),
    };
    let mut changed = false;
    for (operand, kind) in operands.iter_mut().zip(kinds) {
        match kind {
            Operand::Written(text, own) => {
                if let Some(value) = written(&text, unit, own.or_else(|| zone.clone())) {
                    **operand = Expr::Literal(value, None);
                    changed = true;
                }
            }
            Operand::Date if unit != TimeUnit::Nanosecond => {
                cast(operand, DataType::Timestamp(unit, None));
                changed = true;
            }
            Operand::Now(own) if unit != TimeUnit::Nanosecond => {
                cast(operand, DataType::Timestamp(TimeUnit::Microsecond, own));
                changed = true;
            }
            Operand::Stamp(TimeUnit::Nanosecond, own) if unit != TimeUnit::Nanosecond => {
                cast(operand, DataType::Timestamp(unit, own));
                changed = true;
            }
            Operand::Stamp(..) | Operand::Date | Operand::Now(_) | Operand::Other => {}
        }
    }
    Ok(changed)
}

/// A comparison of a time of nanoseconds with a coarser one, where both are of a row: first as many of the coarser ones, and then what
/// is left. Nanoseconds need not hold the coarser one.
pub(super) fn exact_comparison(binary: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    let BinaryExpr { left, op, right } = binary;
    let of_row = |expr: &Expr| match expr.get_type(schema) {
        Ok(DataType::Timestamp(unit, zone)) if !expr.column_refs().is_empty() => Some((unit, zone)),
        _ => None,
    };
    let (left_type, right_type) = (of_row(left)?, of_row(right)?);
    let (fine, zone, coarse, unit, op) = match (left_type, right_type) {
        ((TimeUnit::Nanosecond, zone), (unit, _)) if unit != TimeUnit::Nanosecond => {
            (left, zone, right, unit, *op)
        }
        ((unit, _), (TimeUnit::Nanosecond, zone)) if unit != TimeUnit::Nanosecond => {
            (right, zone, left, unit, op.swap()?)
        }
        _ => return None,
    };
    let cut = cast_to(fine.as_ref().clone(), DataType::Timestamp(unit, zone.clone()));
    let whole = cast_to(cut.clone(), DataType::Timestamp(TimeUnit::Nanosecond, zone));
    let (fine, coarse) = (fine.as_ref().clone(), coarse.as_ref().clone());
    let alike = binary_expr(cut.clone(), Eq, coarse.clone());
    Some(match op {
        Eq => alike.and(binary_expr(fine, Eq, whole)),
        NotEq => binary_expr(cut, NotEq, coarse).or(binary_expr(fine, NotEq, whole)),
        Lt | LtEq => binary_expr(cut, Lt, coarse).or(alike.and(binary_expr(fine, op, whole))),
        Gt | GtEq => binary_expr(cut, Gt, coarse).or(alike.and(binary_expr(fine, op, whole))),
        _ => return None,
    })
}

/// An expression in a cast.
pub(super) fn cast_to(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast(Cast::new(Box::new(expr), data_type))
}

/// Wraps an expression in a cast.
pub(super) fn cast(expr: &mut Expr, data_type: DataType) {
    *expr = cast_to(std::mem::take(expr), data_type);
}

/// Whether an expression is a date.
pub(super) fn is_date(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Date32 | DataType::Date64))
}

/// Whether an expression is a time of nanoseconds, without a zone.
pub(super) fn is_of_nanoseconds(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Timestamp(TimeUnit::Nanosecond, None)))
}

fn may_be_time(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Timestamp(..)))
}

fn kind(expr: &Expr, schema: &DFSchema, compared: bool) -> Operand {
    if let Expr::Cast(cast) = expr
        && let DataType::Timestamp(TimeUnit::Nanosecond, zone) = cast.field.data_type()
        && let Some(text) = text(&cast.expr)
    {
        return Operand::Written(text.into(), zone.clone());
    }
    if let Some(text) = text(expr) {
        let is_time = compared || parsed(text, TimeUnit::Microsecond, None).is_some();
        return if is_time { Operand::Written(text.into(), None) } else { Operand::Other };
    }
    if let Expr::Literal(value, _) = expr
        && let ScalarValue::TimestampMicrosecond(Some(_), zone) = value
        && let Ok(ScalarValue::Utf8(Some(text))) = value.cast_to(&DataType::Utf8)
    {
        return Operand::Written(text, zone.clone());
    }
    match expr.get_type(schema) {
        // The moment of a statement is no more exact than microseconds.
        Ok(DataType::Timestamp(TimeUnit::Nanosecond, zone)) if is_now(expr) => Operand::Now(zone),
        Ok(DataType::Timestamp(unit, zone)) => Operand::Stamp(unit, zone),
        Ok(DataType::Date32 | DataType::Date64) => Operand::Date,
        _ => Operand::Other,
    }
}

/// Whether an expression is a text that is not written out.
pub(super) fn is_text_of_row(expr: &Expr, schema: &DFSchema) -> bool {
    expr.get_type(schema).is_ok_and(|data_type| data_type.is_string()) && text(expr).is_none()
}

fn is_now(expr: &Expr) -> bool {
    let calls_now = |expr: &Expr| Ok(matches!(expr, Expr::ScalarFunction(call) if call.func.name() == "now"));
    expr.column_refs().is_empty() && expr.exists(calls_now).unwrap_or(false)
}

pub(super) fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(
            ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text),
            _,
        ) => text.as_deref(),
        _ => None,
    }
}

fn parsed(text: &str, unit: TimeUnit, zone: Option<&Arc<str>>) -> Option<ScalarValue> {
    let data_type = DataType::Timestamp(unit, zone.cloned());
    let value = ScalarValue::Utf8(Some(text.into())).cast_to(&data_type).ok()?;
    (!value.is_null()).then_some(value)
}

/// A time that is written out, in a unit or the coarsest finer one that holds it as it is written.
fn written(text: &str, unit: TimeUnit, zone: Option<Arc<str>>) -> Option<ScalarValue> {
    let finer = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let exact = |unit: TimeUnit| {
        let value = parsed(text, unit, zone.as_ref())?;
        let finest = DataType::Timestamp(TimeUnit::Nanosecond, zone.clone());
        let whole = match parsed(text, TimeUnit::Nanosecond, zone.as_ref()) {
            Some(whole) => value.cast_to(&finest).ok()? == whole,
            // Nanoseconds do not hold it: what comes after microseconds is cut off.
            None => {
                unit == TimeUnit::Microsecond || {
                    let micros = DataType::Timestamp(TimeUnit::Microsecond, zone.clone());
                    value.cast_to(&micros).ok()? == parsed(text, TimeUnit::Microsecond, zone.as_ref())?
                }
            }
        };
        whole.then_some(value)
    };
    finer.into_iter().filter(|finer| *finer >= unit).find_map(exact)
}

/// A time that is written out, where it is none of a unit: in the coarsest finer one that holds it.
pub(super) fn written_finer(
    expr: &Expr,
    unit: TimeUnit,
    zone: Option<Arc<str>>,
    schema: &DFSchema,
) -> Option<ScalarValue> {
    let Operand::Written(text, own) = kind(expr, schema, true) else { return None };
    let is_finer = |value: &ScalarValue| matches!(value.data_type(), DataType::Timestamp(of, _) if of > unit);
    written(&text, unit, own.or(zone)).filter(is_finer)
}

/// Whether a text is a time that nanoseconds do not hold.
pub(crate) fn is_beyond(text: &str, zone: Option<&Arc<str>>) -> bool {
    parsed(text, TimeUnit::Nanosecond, zone).is_none() && parsed(text, TimeUnit::Microsecond, zone).is_some()
}

/// Whether a date is written out that nanoseconds do not hold.
fn is_date_beyond(expr: &Expr) -> bool {
    let Expr::Cast(cast) = expr else { return false };
    text(&cast.expr).is_some_and(|text| is_beyond(text, None))
}

/// The value of a cast of a literal to nanoseconds, where these do not hold it: in microseconds.
pub(super) fn beyond_nanoseconds(cast: &Cast) -> Option<ScalarValue> {
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) = cast.field.data_type() else { return None };
    let text = text(&cast.expr)?;
    match is_beyond(text, zone.as_ref()) {
        true => parsed(text, TimeUnit::Microsecond, zone.as_ref()),
        false => None,
    }
}
