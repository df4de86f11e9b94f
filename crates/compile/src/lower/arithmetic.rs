//! Arithmetic of integers and floats, and negation.
//!
//! Integers wrap at the width of their SQL type, as DataFusion's `add_wrapping` and others, or with the exact operations report what
//! the type does not hold, where the ranges of the operands do not exclude it; `/` reports a division by zero and MIN / -1; `%` reports a
//! division by zero, and MIN % -1 is 0. Floats follow IEEE 754.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, OverflowOp, Scalar, UnaryOp};

use super::cast::bounded;
use super::value::{
    Int, both, checked, either, float, integer, lower_int, lower_scalar, report, unsupported,
};
use super::{datetime, decimal, reciprocal};
use crate::context::{Context, Lowered, Repr, Status, Unsupported, register_of};
use crate::expr::range;
use crate::expr::{ArithmeticOp, Expr, ExprKind, columns_read};
use crate::types::{DataType, Literal, Range};

/// Lowers `left op right`.
pub(super) fn lower(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    match (&left.data_type, &right.data_type) {
        (DataType::Interval, _) | (_, DataType::Interval) => {
            datetime::add_interval(cx, op, left, right, data_type)
        }
        (DataType::Decimal128 { scale: s1, .. }, DataType::Decimal128 { scale: s2, .. }) => {
            decimal::lower(cx, op.plain(), (left, *s1), (right, *s2), data_type)
        }
        (a, b) if a == b && a == data_type && a.is_float() => {
            let ((a, a_valid), (b, b_valid)) = (lower_scalar(cx, left)?, lower_scalar(cx, right)?);
            let valid = both(cx, a_valid, b_valid);
            Ok(float(cx.builder.binary(binary_op(op), a, b), valid))
        }
        (a, b) if a == b && a == data_type && a.is_integer() => integers(cx, op, left, right, data_type),
        (DataType::Date32, DataType::Date32)
            if op == ArithmeticOp::Subtract && *data_type == DataType::Int64 =>
        {
            integers(cx, op, left, right, data_type)
        }
        (a, b) if takes_ticks(op, (a, b), data_type) => {
            // Arrow reports what the type does not hold.
            let op = match op.plain() {
                ArithmeticOp::Add => ArithmeticOp::AddExact,
                _ => ArithmeticOp::SubtractExact,
            };
            integers(cx, op, left, right, &DataType::Int64)
        }
        (a, b) => unsupported(format!("{a} {} {b} as {data_type}", symbol(op))),
    }
}

/// Whether an operation is one of points in time and durations, all of them in ticks of the same length.
fn takes_ticks(op: ArithmeticOp, (a, b): (&DataType, &DataType), result: &DataType) -> bool {
    use DataType::{Duration, Timestamp};
    let (is_sum, is_difference) = (op.plain() == ArithmeticOp::Add, op.plain() == ArithmeticOp::Subtract);
    match (a, b, result) {
        (Timestamp { unit: a, .. }, Timestamp { unit: b, .. }, Duration { unit }) => {
            is_difference && a == unit && b == unit
        }
        (Timestamp { unit: a, .. }, Duration { unit: b }, Timestamp { unit, .. }) => {
            (is_sum || is_difference) && a == unit && b == unit
        }
        (Duration { unit: a }, Timestamp { unit: b, .. }, Timestamp { unit, .. }) => {
            is_sum && a == unit && b == unit
        }
        (Duration { unit: a }, Duration { unit: b }, Duration { unit }) => {
            (is_sum || is_difference) && a == unit && b == unit
        }
        _ => false,
    }
}

/// Lowers `-input`.
pub(super) fn negate(
    cx: &mut Context<'_>,
    input: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    if data_type.is_float() {
        let (value, valid) = lower_scalar(cx, input)?;
        return Ok(float(cx.builder.unary(UnaryOp::Neg, value), valid));
    }
    let (value, valid) = lower_int(cx, input)?;
    let zero = super::value::constant(cx, 0);
    match data_type {
        DataType::Decimal128 { .. } => {
            let (value, overflow) = super::value::checked(cx, kelpie_kir::OverflowOp::Sub, zero, value);
            if let Some(overflow) = overflow {
                report(cx, overflow, valid, Status::Overflow);
            }
            Ok(integer(cx, value.value, valid, value.range))
        }
        _ if data_type.is_integer() => {
            if columns_read(input).is_empty() {
                report_lowest(cx, value, valid, data_type);
            }
            let result = wrapping(cx, BinaryOp::Sub, zero, value, data_type);
            Ok(integer(cx, result.value, valid, result.range))
        }
        other => unsupported(format!("-{other}")),
    }
}

/// DataFusion negates a column with wrapping, but a value that is the same in every row (a constant, a scalar subquery)
/// with an error for the lowest integer: it decides there.
fn report_lowest(cx: &mut Context<'_>, value: Int, valid: Option<V>, data_type: &DataType) {
    let lowest = data_type.full_range().unwrap_or(range::UNBOUNDED).min;
    if value.range.min <= lowest {
        let is_lowest = cx.builder.eq_int(value.value, lowest);
        report(cx, is_lowest, valid, Status::Fallback);
    }
}

/// The operator in SQL.
pub(super) fn symbol(op: ArithmeticOp) -> &'static str {
    match op {
        ArithmeticOp::Add | ArithmeticOp::AddExact => "+",
        ArithmeticOp::Subtract | ArithmeticOp::SubtractExact => "-",
        ArithmeticOp::Multiply | ArithmeticOp::MultiplyExact => "*",
        ArithmeticOp::Divide => "/",
        ArithmeticOp::Remainder => "%",
    }
}

fn binary_op(op: ArithmeticOp) -> BinaryOp {
    match op {
        ArithmeticOp::Add | ArithmeticOp::AddExact => BinaryOp::Add,
        ArithmeticOp::Subtract | ArithmeticOp::SubtractExact => BinaryOp::Sub,
        ArithmeticOp::Multiply | ArithmeticOp::MultiplyExact => BinaryOp::Mul,
        ArithmeticOp::Divide => BinaryOp::Div,
        ArithmeticOp::Remainder => BinaryOp::Rem,
    }
}

fn integers(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let ((a, a_valid), (b, b_valid)) = (lower_int(cx, left)?, lower_int(cx, right)?);
    let valid = both(cx, a_valid, b_valid);
    let result = match op {
        ArithmeticOp::Divide | ArithmeticOp::Remainder => {
            report_division(cx, op, (a, b), valid, data_type);
            let divisor = match right.kind {
                ExprKind::Literal(Literal::Int(value)) if value > 0 => Some(value),
                _ => None,
            };
            divide(cx, op, a, (b, divisor), data_type)
        }
        ArithmeticOp::AddExact => exact(cx, OverflowOp::Add, (a, b), valid, data_type),
        ArithmeticOp::SubtractExact => exact(cx, OverflowOp::Sub, (a, b), valid, data_type),
        ArithmeticOp::MultiplyExact => exact(cx, OverflowOp::Mul, (a, b), valid, data_type),
        ArithmeticOp::Add | ArithmeticOp::Subtract | ArithmeticOp::Multiply => {
            wrapping(cx, binary_op(op), a, b, data_type)
        }
    };
    Ok(integer(cx, result.value, valid, result.range))
}

/// + - * where the type must hold the result: what it does not hold is reported, unless ranges exclude it.
fn exact(
    cx: &mut Context<'_>,
    op: OverflowOp,
    (a, b): (Int, Int),
    valid: Option<V>,
    data_type: &DataType,
) -> Int {
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    let in_words = |a: Int| register_of(a.range).bits() <= 64;
    if *data_type == DataType::Int64 && in_words(a) && in_words(b) {
        let result = match op {
            OverflowOp::Add => range::add(a.range, b.range),
            OverflowOp::Sub => range::subtract(a.range, b.range),
            OverflowOp::Mul => range::multiply(a.range, b.range),
        };
        if !result.is_some_and(|result| result.within(full)) {
            // A word tells by itself.
            let (left, right) =
                (cx.builder.convert(a.value, Scalar::I64), cx.builder.convert(b.value, Scalar::I64));
            let overflows = cx.builder.overflows(op, left, right);
            report(cx, overflows, valid, Status::Overflow);
            let value = match op {
                OverflowOp::Add => cx.builder.add(left, right),
                OverflowOp::Sub => cx.builder.sub(left, right),
                OverflowOp::Mul => cx.builder.mul(left, right),
            };
            return Int { value, range: full };
        }
    }
    let (result, overflow) = checked(cx, op, a, b);
    let converted = bounded(cx, result, full);
    if let Some(bad) = either(cx, overflow, converted.bad) {
        report(cx, bad, valid, Status::Overflow);
    }
    let range = converted.value.range.unwrap_or(full);
    match converted.value.repr {
        Repr::Scalar(value) => Int { value, range },
        Repr::Text(_) => result,
    }
}

/// The scalar type that has exactly the values of an integer type.
pub(super) fn exact_scalar(data_type: &DataType) -> Scalar {
    match data_type {
        DataType::Int8 => Scalar::I8,
        DataType::Int16 => Scalar::I16,
        DataType::Int32 | DataType::Date32 => Scalar::I32,
        DataType::UInt8 => Scalar::U8,
        DataType::UInt16 => Scalar::U16,
        DataType::UInt32 => Scalar::U32,
        DataType::UInt64 => Scalar::U64,
        DataType::Decimal128 { .. } => Scalar::I128,
        _ => Scalar::I64,
    }
}

/// + - *: in the narrowest register where the ranges prove that nothing wraps, else modulo the type's width.
pub(super) fn wrapping(cx: &mut Context<'_>, op: BinaryOp, a: Int, b: Int, data_type: &DataType) -> Int {
    let result = match op {
        BinaryOp::Add => range::add(a.range, b.range),
        BinaryOp::Sub => range::subtract(a.range, b.range),
        _ => range::multiply(a.range, b.range),
    };
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    let exact = result.filter(|result| result.within(full));
    let register = match exact {
        Some(result) => register_of(result.union(a.range).union(b.range)),
        None if exact_scalar(data_type).bits() <= 32 => Scalar::I32,
        None => Scalar::I64,
    };
    let (left, right) = (cx.builder.convert(a.value, register), cx.builder.convert(b.value, register));
    let value = cx.builder.binary(op, left, right);
    match exact {
        Some(range) => Int { value, range },
        None => {
            let wrapped = cx.builder.convert(value, exact_scalar(data_type));
            Int { value: cx.builder.convert(wrapped, register_of(full)), range: full }
        }
    }
}

/// / and %, where a zero divisor gives 0; the caller has reported it. `divisor`: what `b` is, where that is a positive constant.
fn divide(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    a: Int,
    (b, divisor): (Int, Option<i128>),
    data_type: &DataType,
) -> Int {
    // It may say more than the range of what `b` is for the kernel.
    let divisors = divisor.map_or(b.range, range::divisor_class);
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    let result = match op {
        ArithmeticOp::Divide => range::divide(a.range, divisors),
        _ => range::remainder(a.range, divisors),
    };
    let result = result.unwrap_or(full);
    let mut register = register_of(result.union(a.range).union(b.range));
    if register == Scalar::I128 {
        // The type is `UInt64`, or it is `Int64` and the quotient of MIN / -1 (reported) alone is beyond `i64`.
        register = if *data_type == DataType::UInt64 { Scalar::U64 } else { Scalar::I64 };
    }
    let (left, right) = (cx.builder.convert(a.value, register), cx.builder.convert(b.value, register));
    let value = by_constant(cx, op, Int { value: left, ..a }, (right, divisor));
    let value = value.unwrap_or_else(|| cx.builder.binary(binary_op(op), left, right));
    let range = Range { min: result.min.max(full.min), max: result.max.min(full.max) };
    if result.max <= full.max {
        return Int { value, range };
    }
    // MIN / -1, which the caller has reported, is one too many. Where nothing is wider than the type, it is MIN itself.
    Int { value: cx.builder.min_int(value, full.max), range }
}

/// / and % by a positive constant that is in the register of `a`, by its reciprocal; `None` where there is none, or where that is not known.
pub(super) fn by_constant(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    a: Int,
    (b, divisor): (V, Option<i128>),
) -> Option<V> {
    let quotient = reciprocal::quotient(cx, a, divisor?)?;
    Some(match op {
        ArithmeticOp::Divide => quotient,
        _ => {
            let whole = cx.builder.mul(quotient, b);
            cx.builder.sub(a.value, whole)
        }
    })
}

fn report_division(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    (a, b): (Int, Int),
    valid: Option<V>,
    data_type: &DataType,
) {
    report_zero_divisor(cx, b, valid);
    let lowest = data_type.full_range().unwrap_or(range::UNBOUNDED).min;
    let can_overflow = lowest < 0 && a.range.min <= lowest && range::contains(b.range, -1);
    if op == ArithmeticOp::Divide && can_overflow {
        let overflow = is_lowest_by_minus_one(cx, a, b, lowest);
        report(cx, overflow, valid, Status::Overflow);
    }
}

/// Reports `b = 0` where the range allows it.
pub(super) fn report_zero_divisor(cx: &mut Context<'_>, b: Int, valid: Option<V>) {
    if range::contains(b.range, 0) {
        let register = cx.builder.scalar(b.value);
        let zero = cx.builder.zero(register);
        let is_zero = cx.builder.eq(b.value, zero);
        report(cx, is_zero, valid, Status::DivideByZero);
    }
}

/// `a = lowest AND b = -1`
pub(super) fn is_lowest_by_minus_one(cx: &mut Context<'_>, a: Int, b: Int, lowest: i128) -> V {
    let is_lowest = cx.builder.eq_int(a.value, lowest);
    let by_minus_one = cx.builder.eq_int(b.value, -1);
    cx.builder.and(is_lowest, by_minus_one)
}
