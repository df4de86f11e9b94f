//! Small steps that every lowering takes: operands, validity, reports.

use kelpie_kir::builder::V;
use kelpie_kir::{OverflowOp, Scalar};

use crate::context::{Context, Lowered, Repr, Status, Text, Unsupported, register_of};
use crate::expr::Expr;
use crate::expr::range;
use crate::types::Range;

/// An integer in a register (dates, timestamps and unscaled decimals too) that is `i32`, `i64` or `i128` and holds
/// every value of the range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Int {
    pub value: V,
    pub range: Range,
}

/// `Err` with a message.
pub(super) fn unsupported<T>(message: impl Into<String>) -> Result<T, Unsupported> {
    Err(Unsupported(message.into()))
}

/// The scalar of a value that is not text.
pub(super) fn scalar(value: &Lowered) -> Result<V, Unsupported> {
    match &value.repr {
        Repr::Scalar(scalar) => Ok(*scalar),
        Repr::Text(_) => unsupported("text where a scalar is needed"),
    }
}

/// The text of a value.
pub(crate) fn text(value: &Lowered) -> Result<Text, Unsupported> {
    match &value.repr {
        Repr::Text(text) => Ok(text.clone()),
        Repr::Scalar(_) => unsupported("a scalar where text is needed"),
    }
}

/// The integer of a value.
pub(super) fn int(value: &Lowered) -> Result<Int, Unsupported> {
    Ok(Int { value: scalar(value)?, range: value.range.unwrap_or(range::UNBOUNDED) })
}

/// Lowers an expression whose value is a scalar.
pub(super) fn lower_scalar(cx: &mut Context<'_>, expr: &Expr) -> Result<(V, Option<V>), Unsupported> {
    let value = cx.lower(expr)?;
    Ok((scalar(&value)?, value.valid))
}

/// Lowers an expression whose value is an integer inside.
pub(super) fn lower_int(cx: &mut Context<'_>, expr: &Expr) -> Result<(Int, Option<V>), Unsupported> {
    let value = cx.lower(expr)?;
    Ok((int(&value)?, value.valid))
}

/// A value that is an integer inside, converted to the narrowest register of its range.
pub(super) fn integer(cx: &mut Context<'_>, value: V, valid: Option<V>, range: Range) -> Lowered {
    let value = cx.builder.convert(value, register_of(range));
    Lowered { repr: Repr::Scalar(value), valid, range: Some(range) }
}

/// A boolean.
pub(super) fn boolean(value: V, valid: Option<V>) -> Lowered {
    Lowered { repr: Repr::Scalar(value), valid, range: Some(Range { min: 0, max: 1 }) }
}

/// A float.
pub(super) fn float(value: V, valid: Option<V>) -> Lowered {
    Lowered { repr: Repr::Scalar(value), valid, range: None }
}

/// An integer constant that follows from types alone.
pub(super) fn constant(cx: &mut Context<'_>, value: i128) -> Int {
    let range = Range { min: value, max: value };
    Int { value: cx.builder.int(register_of(range), value), range }
}

/// Both are not NULL.
pub(super) fn both(cx: &mut Context<'_>, a: Option<V>, b: Option<V>) -> Option<V> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => Some(cx.builder.and(a, b)),
        (a, b) => a.or(b),
    }
}

/// a OR b, where either may be absent (false).
pub(super) fn either(cx: &mut Context<'_>, a: Option<V>, b: Option<V>) -> Option<V> {
    match (a, b) {
        (Some(a), Some(b)) => Some(cx.builder.or(a, b)),
        (a, b) => a.or(b),
    }
}

/// Reports `status` where the value is not NULL and `bad`.
pub(super) fn report(cx: &mut Context<'_>, bad: V, valid: Option<V>, status: Status) {
    let condition = match valid {
        Some(valid) => cx.builder.and(bad, valid),
        None => bad,
    };
    cx.begin_if(condition);
    cx.builder.report(status as u32);
    cx.end();
}

/// The wider of two registers.
pub(super) fn wider(a: Scalar, b: Scalar) -> Scalar {
    if a.bits() >= b.bits() { a } else { b }
}

/// Arithmetic on integers of any range, exact up to `i128`; also whether it overflowed there, where it can.
pub(super) fn checked(cx: &mut Context<'_>, op: OverflowOp, a: Int, b: Int) -> (Int, Option<V>) {
    let range = match op {
        OverflowOp::Add => range::add(a.range, b.range),
        OverflowOp::Sub => range::subtract(a.range, b.range),
        OverflowOp::Mul => range::multiply(a.range, b.range),
    };
    let register = range.map_or(Scalar::I128, |range| register_of(range.union(a.range).union(b.range)));
    let (left, right) = (cx.builder.convert(a.value, register), cx.builder.convert(b.value, register));
    let value = match op {
        OverflowOp::Add => cx.builder.add(left, right),
        OverflowOp::Sub => cx.builder.sub(left, right),
        OverflowOp::Mul => cx.builder.mul(left, right),
    };
    let overflow = match range {
        Some(_) => None,
        None => Some(cx.builder.overflows(op, left, right)),
    };
    (Int { value, range: range.unwrap_or(range::UNBOUNDED) }, overflow)
}
