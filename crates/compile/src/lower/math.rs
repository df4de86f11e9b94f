//! abs, round, floor and ceil, as DataFusion's functions of these names.

use kelpie_kir::builder::V;
use kelpie_kir::{OverflowOp, UnaryOp};

use super::cast::{bounded, round_half_away, round_off};
use super::datetime::floor_div;
use super::decimal::scale_up;
use super::value::{
    Int, checked, constant, either, float, integer, lower_int, lower_scalar, report, unsupported,
};
use crate::context::{Context, Lowered, Status, Unsupported};
use crate::expr::range;
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Literal, Range};

/// Lowers `abs`: the lowest integer of a type is an error.
pub(super) fn absolute(
    cx: &mut Context<'_>,
    input: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    if data_type.is_float() && input.data_type == *data_type {
        let (value, valid) = lower_scalar(cx, input)?;
        return Ok(float(cx.builder.unary(UnaryOp::Abs, value), valid));
    }
    if input.data_type != *data_type || !(data_type.is_integer() || is_decimal(data_type)) {
        return unsupported(format!("abs of {} as {data_type}", input.data_type));
    }
    let (value, valid) = lower_int(cx, input)?;
    if value.range.min >= 0 {
        return Ok(integer(cx, value.value, valid, value.range));
    }
    let zero = constant(cx, 0);
    let (negated, _) = checked(cx, OverflowOp::Sub, zero, value);
    let register = cx.builder.scalar(negated.value);
    let value_in_register = cx.builder.convert(value.value, register);
    let zero = cx.builder.zero(register);
    let negative = cx.builder.lt(value_in_register, zero);
    let result = cx.builder.select(negative, negated.value, value_in_register);
    let range = range::absolute(value.range).unwrap_or(range::UNBOUNDED);
    if is_decimal(data_type) {
        return Ok(integer(cx, result, valid, range));
    }
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    within_type(cx, Int { value: result, range }, full, None, valid)
}

/// Lowers the function that makes every NaN the one: only a NaN is not equal to itself.
pub(super) fn one_nan(cx: &mut Context<'_>, input: &Expr) -> Result<Lowered, Unsupported> {
    let (value, valid) = lower_scalar(cx, input)?;
    let nan = match input.data_type {
        DataType::Float32 => cx.builder.f32(f32::NAN),
        DataType::Float64 => cx.builder.f64(f64::NAN),
        _ => return unsupported(format!("one_nan of {}", input.data_type)),
    };
    let is_number = cx.builder.eq(value, value);
    Ok(float(cx.builder.select(is_number, value, nan), valid))
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128 { .. })
}

/// An error where the value is out of bounds, or `bad` already.
fn within_type(
    cx: &mut Context<'_>,
    value: Int,
    bounds: Range,
    bad: Option<V>,
    valid: Option<V>,
) -> Result<Lowered, Unsupported> {
    let converted = bounded(cx, value, bounds);
    if let Some(bad) = either(cx, bad, converted.bad) {
        report(cx, bad, valid, Status::Overflow);
    }
    Ok(Lowered { valid, ..converted.value })
}

/// Lowers `round(value [, digits])` with constant digits; half away from zero.
pub(super) fn round(
    cx: &mut Context<'_>,
    input: &Expr,
    digits: Option<&Expr>,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let digits = match digits.map(|digits| &digits.kind) {
        None => 0,
        Some(ExprKind::Literal(Literal::Int(digits))) => match i32::try_from(*digits) {
            Ok(digits) => digits,
            Err(_) => return unsupported(format!("round to {digits} digits")),
        },
        Some(ExprKind::Literal(Literal::Null)) => return super::literal::null(cx, data_type),
        Some(_) => return unsupported("round to a number of digits that is not constant"),
    };
    match (&input.data_type, data_type) {
        (DataType::Float32 | DataType::Float64, _) if input.data_type == *data_type => {
            let (value, valid) = lower_scalar(cx, input)?;
            if digits == 0 {
                return Ok(float(round_half_away(cx, value), valid));
            }
            let factor = match data_type {
                DataType::Float32 => cx.builder.f32(10f64.powi(digits) as f32),
                _ => cx.builder.f64(10f64.powi(digits)),
            };
            let scaled = cx.builder.mul(value, factor);
            let rounded = round_half_away(cx, scaled);
            Ok(float(cx.builder.div(rounded, factor), valid))
        }
        (DataType::Decimal128 { precision, scale }, DataType::Decimal128 { precision: p2, scale: s2 }) => {
            round_decimal(cx, input, (*precision, *scale), (*p2, *s2), digits)
        }
        (from, to) if from == to && from.is_integer() => round_integer(cx, input, digits, to),
        (from, to) => unsupported(format!("round of {from} as {to}")),
    }
}

fn round_integer(
    cx: &mut Context<'_>,
    input: &Expr,
    digits: i32,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let (value, valid) = lower_int(cx, input)?;
    if digits >= 0 {
        return Ok(integer(cx, value.value, valid, value.range));
    }
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    let power = digits.unsigned_abs();
    if 10i128.checked_pow(power).is_none_or(|factor| factor > full.max) {
        let zero = constant(cx, 0);
        return Ok(integer(cx, zero.value, valid, zero.range));
    }
    let rounded = round_off(cx, value, power);
    let (scaled, overflow) = scale_up(cx, rounded, power);
    within_type(cx, scaled, full, overflow, valid)
}

fn round_decimal(
    cx: &mut Context<'_>,
    input: &Expr,
    (precision, scale): (u8, i8),
    (out_precision, out_scale): (u8, i8),
    digits: i32,
) -> Result<Lowered, Unsupported> {
    let (value, valid) = lower_int(cx, input)?;
    let whole_digits = i32::from(precision) - i32::from(scale);
    if digits < 0 && (whole_digits <= 0 || i64::from(digits.unsigned_abs()) > i64::from(whole_digits)) {
        let zero = constant(cx, 0);
        return Ok(integer(cx, zero.value, valid, zero.range));
    }
    let dropped = i32::from(scale) - digits;
    if dropped <= 0 {
        return Ok(integer(cx, value.value, valid, value.range));
    }
    let restored = i32::from(out_scale) - digits;
    if dropped > 38 || !(0..=38).contains(&restored) {
        return unsupported(format!("round of Decimal128({precision}, {scale}) to {digits} digits"));
    }
    let rounded = round_off(cx, value, dropped.unsigned_abs());
    let (scaled, overflow) = scale_up(cx, rounded, restored.unsigned_abs());
    // DataFusion checks the precision in this case alone.
    let bounds = match out_precision == 38 && scale == 0 && digits < 0 {
        true => DataType::Decimal128 { precision: 38, scale: 0 }.full_range(),
        false => None,
    };
    within_type(cx, scaled, bounds.unwrap_or(range::UNBOUNDED), overflow, valid)
}

/// Lowers `floor` and `ceil`.
pub(super) fn floor_or_ceil(
    cx: &mut Context<'_>,
    input: &Expr,
    up: bool,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    match &input.data_type {
        from if from != data_type => unsupported(format!("floor or ceil of {from} as {data_type}")),
        DataType::Float32 | DataType::Float64 => {
            let (value, valid) = lower_scalar(cx, input)?;
            let op = if up { UnaryOp::Ceil } else { UnaryOp::Floor };
            Ok(float(cx.builder.unary(op, value), valid))
        }
        DataType::Decimal128 { scale, .. } => {
            let (value, valid) = lower_int(cx, input)?;
            match u32::try_from(*scale).ok().and_then(|scale| 10i128.checked_pow(scale)) {
                Some(factor) if factor > 1 => {
                    let result = to_multiple(cx, value, factor, up);
                    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
                    within_type(cx, result, full, None, valid)
                }
                _ => Ok(integer(cx, value.value, valid, value.range)),
            }
        }
        other => unsupported(format!("floor or ceil of {other}")),
    }
}

/// The multiple of `factor` at or below (above) a value.
fn to_multiple(cx: &mut Context<'_>, value: Int, factor: i128, up: bool) -> Int {
    let (_, rest) = floor_div(cx, value, factor);
    let (below, _) = checked(cx, OverflowOp::Sub, value, rest);
    if !up {
        return below;
    }
    let step = constant(cx, factor);
    let (above, _) = checked(cx, OverflowOp::Add, below, step);
    let register = cx.builder.scalar(above.value);
    let value_in_register = cx.builder.convert(value.value, register);
    let rest_register = cx.builder.scalar(rest.value);
    let zero = cx.builder.zero(rest_register);
    let whole = cx.builder.eq(rest.value, zero);
    let result = cx.builder.select(whole, value_in_register, above.value);
    Int { value: result, range: above.range.union(value.range) }
}
