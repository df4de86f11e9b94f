//! CAST and TRY_CAST between scalar types, as Arrow's cast kernels: what does not fit is an error, or NULL in TRY_CAST.
//!
//! Floats to integers and decimals to integers truncate; floats to decimals and decimals to a smaller scale round half
//! away from zero; timestamps to a coarser unit truncate towards zero.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, Scalar, UnaryOp};

use super::arithmetic::exact_scalar;
use super::decimal::scale_up;
use super::text::format;
use super::value::{
    Int, boolean, both, checked, constant, either, float, int, integer, report, scalar, unsupported,
};
use super::{datetime, literal};
use crate::context::{Context, Lowered, Status, Unsupported, register_of};
use crate::expr::Expr;
use crate::expr::range;
use crate::types::{DataType, Range};

/// A converted value, and whether it did not fit.
pub(super) struct Converted {
    pub value: Lowered,
    pub bad: Option<V>,
}

/// Lowers a cast.
pub(super) fn lower(
    cx: &mut Context<'_>,
    input: &Expr,
    safe: bool,
    to: &DataType,
) -> Result<Lowered, Unsupported> {
    let from = &input.data_type;
    if from == &DataType::Null {
        return literal::null(cx, to);
    }
    let value = cx.lower(input)?;
    if from == to {
        return Ok(value);
    }
    let valid = value.valid;
    let Converted { value, bad } = convert(cx, value, from, to)?;
    let Some(bad) = bad else { return Ok(Lowered { valid, ..value }) };
    let valid = if safe {
        let fits = cx.builder.not(bad);
        both(cx, valid, Some(fits))
    } else {
        let status = if *from == DataType::Utf8 { Status::CastParse } else { Status::CastOutOfRange };
        report(cx, bad, valid, status);
        valid
    };
    Ok(Lowered { valid, ..value })
}

fn convert(
    cx: &mut Context<'_>,
    value: Lowered,
    from: &DataType,
    to: &DataType,
) -> Result<Converted, Unsupported> {
    use DataType::*;
    let refuse = || unsupported(format!("cast from {from} to {to}"));
    match (from, to) {
        (_, Utf8) => {
            let text = format::to_text(cx, &value, from)?;
            fits(format::lowered(text))
        }
        (Utf8, _) => super::text::cast_text::parse(cx, &value, to),
        (Boolean, _) if to.is_integer() => {
            let number = scalar(&value)?;
            let number = cx.builder.convert(number, Scalar::I32);
            fits(integer(cx, number, None, Range { min: 0, max: 1 }))
        }
        (Boolean, Float32 | Float64) => {
            let number = scalar(&value)?;
            fits(float(cx.builder.convert(number, float_scalar(to)), None))
        }
        (_, Boolean) if from.is_integer() || from.is_float() => {
            let number = scalar(&value)?;
            let register = cx.builder.scalar(number);
            let zero = cx.builder.zero(register);
            fits(boolean(cx.builder.ne(number, zero), None))
        }
        (Float32 | Float64, Float32 | Float64) => {
            let number = scalar(&value)?;
            fits(float(cx.builder.convert(number, float_scalar(to)), None))
        }
        (Float32 | Float64, Decimal128 { precision, scale }) => {
            float_to_decimal(cx, scalar(&value)?, *precision, *scale)
        }
        (Float32 | Float64, _) if to.is_integer() => float_to_integer(cx, scalar(&value)?, to),
        (Float32 | Float64, Timestamp { timezone: None, .. }) => {
            float_to_integer(cx, scalar(&value)?, &Int64)
        }
        (Decimal128 { precision: p1, scale: s1 }, Decimal128 { precision: p2, scale: s2 }) => {
            Ok(rescale(cx, int(&value)?, (*p1, *s1), (*p2, *s2)))
        }
        (Decimal128 { scale, .. }, Float32 | Float64) => {
            let number = scalar(&value)?;
            let number = cx.builder.convert(number, Scalar::F64);
            let divisor = cx.builder.f64(10f64.powi(i32::from(*scale)));
            let quotient = cx.builder.div(number, divisor);
            fits(float(cx.builder.convert(quotient, float_scalar(to)), None))
        }
        (Decimal128 { scale, .. }, _) if to.is_integer() => {
            Ok(decimal_to_integer(cx, int(&value)?, *scale, to))
        }
        (Date32, Int32 | Int64) | (Int32, Date32) => fits(value),
        (Int64, Date32) => Ok(narrow(cx, int(&value)?, to)),
        (Date32, Timestamp { .. }) | (Timestamp { .. }, Timestamp { .. } | Date32) => {
            datetime::convert(cx, int(&value)?, from, to)
        }
        (Timestamp { timezone: None, .. }, Decimal128 { .. }) => integer_to_decimal(cx, int(&value)?, to),
        (_, Decimal128 { .. }) if from.is_integer() => integer_to_decimal(cx, int(&value)?, to),
        (_, Timestamp { timezone: None, .. }) if from.is_integer() => Ok(narrow(cx, int(&value)?, to)),
        (Timestamp { timezone: None, .. }, _) if to.is_integer() => Ok(narrow(cx, int(&value)?, to)),
        (Duration { .. }, Int64) | (Int64, Duration { .. }) => fits(value),
        (_, Float32 | Float64) if from.is_integer() || matches!(from, Timestamp { timezone: None, .. }) => {
            let number = scalar(&value)?;
            fits(float(cx.builder.convert(number, float_scalar(to)), None))
        }
        (_, _) if from.is_integer() && to.is_integer() => Ok(narrow(cx, int(&value)?, to)),
        _ => refuse(),
    }
}

fn fits(value: Lowered) -> Result<Converted, Unsupported> {
    Ok(Converted { value, bad: None })
}

pub(super) fn float_scalar(data_type: &DataType) -> Scalar {
    if *data_type == DataType::Float32 { Scalar::F32 } else { Scalar::F64 }
}

/// An integer as a type with the same meaning and other bounds.
fn narrow(cx: &mut Context<'_>, a: Int, to: &DataType) -> Converted {
    bounded(cx, a, to.full_range().unwrap_or(range::UNBOUNDED))
}

/// An integer that must be within bounds. One that is not is replaced by a bound, so that the value is within its range also
/// where the check has failed: a value's range decides how large tables are that it indexes.
pub(super) fn bounded(cx: &mut Context<'_>, a: Int, bounds: Range) -> Converted {
    let register = cx.builder.scalar(a.value);
    let range = Range {
        min: a.range.min.clamp(bounds.min, bounds.max),
        max: a.range.max.clamp(bounds.min, bounds.max),
    };
    let mut value = a.value;
    let mut bad = None;
    if a.range.min < bounds.min {
        let min = cx.builder.int(register, bounds.min);
        let below = cx.builder.lt(a.value, min);
        let least = cx.builder.int(register, range.min);
        value = cx.builder.select(below, least, value);
        bad = Some(below);
    }
    if a.range.max > bounds.max {
        let max = cx.builder.int(register, bounds.max);
        let above = cx.builder.compare(CompareOp::Gt, a.value, max);
        let most = cx.builder.int(register, range.max);
        value = cx.builder.select(above, most, value);
        bad = either(cx, bad, Some(above));
    }
    Converted { value: integer(cx, value, None, range), bad }
}

fn integer_to_decimal(cx: &mut Context<'_>, a: Int, to: &DataType) -> Result<Converted, Unsupported> {
    let DataType::Decimal128 { scale, .. } = *to else { return unsupported("not a decimal") };
    let (scaled, overflow) = match u32::try_from(scale) {
        Ok(power) => scale_up(cx, a, power),
        Err(_) => (divide_by_power(cx, a, u32::from(scale.unsigned_abs())), None),
    };
    let converted = narrow(cx, scaled, to);
    Ok(Converted { bad: either(cx, overflow, converted.bad), ..converted })
}

/// a / 10^power, truncated.
fn divide_by_power(cx: &mut Context<'_>, a: Int, power: u32) -> Int {
    let Some(divisor) = 10i128.checked_pow(power) else { return constant(cx, 0) };
    let register = register_of(a.range.union(Range { min: 0, max: divisor }));
    let (dividend, divisor_value) =
        (cx.builder.convert(a.value, register), cx.builder.int(register, divisor));
    let value = cx.builder.div(dividend, divisor_value);
    Int { value, range: Range { min: a.range.min / divisor, max: a.range.max / divisor } }
}

fn decimal_to_integer(cx: &mut Context<'_>, a: Int, scale: i8, to: &DataType) -> Converted {
    let power = u32::from(scale.unsigned_abs());
    let (whole, overflow) = match scale {
        ..0 => scale_up(cx, a, power),
        0 => (a, None),
        _ => (divide_by_power(cx, a, power), None),
    };
    let converted = narrow(cx, whole, to);
    Converted { bad: either(cx, overflow, converted.bad), ..converted }
}

/// Another precision and scale; to a smaller scale half away from zero.
fn rescale(cx: &mut Context<'_>, a: Int, (p1, s1): (u8, i8), (p2, s2): (u8, i8)) -> Converted {
    let (p1, s1, p2, s2) = (i32::from(p1), i32::from(s1), i32::from(p2), i32::from(s2));
    let power = (s2 - s1).unsigned_abs();
    let (value, overflow, proven) = if s1 <= s2 {
        let (value, overflow) = scale_up(cx, a, power);
        (value, overflow, p1 + s2 - s1 <= p2)
    } else {
        (round_off(cx, a, power), None, p1 - (s1 - s2) < p2)
    };
    if proven {
        // Arrow checks nothing where the types alone promise that the value fits.
        return Converted { value: integer(cx, value.value, None, value.range), bad: None };
    }
    let limit = 10i128.checked_pow(p2.unsigned_abs().min(38)).map_or(i128::MAX, |limit| limit - 1);
    let converted = bounded(cx, value, Range { min: -limit, max: limit });
    Converted { bad: either(cx, overflow, converted.bad), ..converted }
}

/// a / 10^power, half away from zero.
pub(super) fn round_off(cx: &mut Context<'_>, a: Int, power: u32) -> Int {
    let Some(divisor) = 10i128.checked_pow(power) else { return constant(cx, 0) };
    if divisor == 1 {
        return a;
    }
    let register = register_of(a.range.union(Range { min: -divisor, max: divisor }));
    let value = cx.builder.convert(a.value, register);
    let b = &mut *cx.builder;
    let (divisor_value, zero) = (b.int(register, divisor), b.zero(register));
    let (quotient, rest) = (b.div(value, divisor_value), b.rem(value, divisor_value));
    let (half, half_negative) = (b.int(register, divisor / 2), b.int(register, -(divisor / 2)));
    let (up, down) = (b.ge(rest, half), b.compare(CompareOp::Le, rest, half_negative));
    let (one, minus_one) = (b.int(register, 1), b.int(register, -1));
    let step = b.select(down, minus_one, zero);
    let step = b.select(up, one, step);
    let value = b.add(quotient, step);
    let range = Range {
        min: (a.range.min / divisor).saturating_sub(1).min(0),
        max: (a.range.max / divisor).saturating_add(1).max(0),
    };
    Int { value, range }
}

/// 2^power as a float, which is exact.
fn power_of_two(cx: &mut Context<'_>, scalar: Scalar, power: i32) -> V {
    match scalar {
        Scalar::F32 => cx.builder.f32(2f32.powi(power)),
        _ => cx.builder.f64(2f64.powi(power)),
    }
}

/// Truncates; NaN and what is beyond the type do not fit.
fn float_to_integer(cx: &mut Context<'_>, a: V, to: &DataType) -> Result<Converted, Unsupported> {
    let full = to.full_range().unwrap_or(range::UNBOUNDED);
    let target = exact_scalar(to);
    let scalar = cx.builder.scalar(a);
    let whole = cx.builder.unary(UnaryOp::Trunc, a);
    let power = target.bits() as i32 - i32::from(target.is_signed());
    let above = power_of_two(cx, scalar, power);
    let lowest = match full.min {
        0 => cx.builder.zero(scalar),
        _ => {
            let magnitude = power_of_two(cx, scalar, power);
            cx.builder.unary(UnaryOp::Neg, magnitude)
        }
    };
    let (high_enough, low_enough) = (cx.builder.ge(whole, lowest), cx.builder.lt(whole, above));
    let good = cx.builder.and(high_enough, low_enough);
    let bad = cx.builder.not(good);
    let value = cx.builder.convert(whole, target);
    Ok(Converted { value: integer(cx, value, None, full), bad: Some(bad) })
}

/// `round(10^scale × a)` with `round` half away from zero, as Rust's.
fn float_to_decimal(cx: &mut Context<'_>, a: V, precision: u8, scale: i8) -> Result<Converted, Unsupported> {
    let a = cx.builder.convert(a, Scalar::F64);
    let factor = cx.builder.f64(10f64.powi(i32::from(scale)));
    let product = cx.builder.mul(factor, a);
    let rounded = round_half_away(cx, product);
    let (limit, lowest) = (cx.builder.f64(2f64.powi(127)), cx.builder.f64(-(2f64.powi(127))));
    let (high_enough, low_enough) = (cx.builder.ge(rounded, lowest), cx.builder.lt(rounded, limit));
    let good = cx.builder.and(high_enough, low_enough);
    let bad = cx.builder.not(good);
    let value = cx.builder.convert(rounded, Scalar::I128);
    let bounds = DataType::Decimal128 { precision, scale }.full_range().unwrap_or(range::UNBOUNDED);
    let converted = bounded(cx, Int { value, range: range::UNBOUNDED }, bounds);
    Ok(Converted { bad: either(cx, Some(bad), converted.bad), ..converted })
}

/// To the nearest whole number, half away from zero; keeps the sign of a zero.
pub(super) fn round_half_away(cx: &mut Context<'_>, a: V) -> V {
    let scalar = cx.builder.scalar(a);
    let constants = |cx: &mut Context<'_>, value: f64| match scalar {
        Scalar::F32 => cx.builder.f32(value as f32),
        _ => cx.builder.f64(value),
    };
    let (half, one) = (constants(cx, 0.5), constants(cx, 1.0));
    let b = &mut *cx.builder;
    let magnitude = b.unary(UnaryOp::Abs, a);
    let whole = b.unary(UnaryOp::Trunc, magnitude);
    // Exact: both are within a factor of two, or the whole part is 0.
    let rest = b.sub(magnitude, whole);
    let up = b.ge(rest, half);
    let next = b.add(whole, one);
    let rounded = b.select(up, next, whole);
    copy_sign(cx, rounded, a)
}

/// A non-negative float with the sign of another.
pub(super) fn copy_sign(cx: &mut Context<'_>, magnitude: V, sign: V) -> V {
    let scalar = cx.builder.scalar(magnitude);
    let (bits, mask) = match scalar {
        Scalar::F32 => (Scalar::I32, i128::from(i32::MIN)),
        _ => (Scalar::I64, i128::from(i64::MIN)),
    };
    let b = &mut *cx.builder;
    let mask = b.int(bits, mask);
    let sign = b.bitcast(sign, bits);
    let sign = b.and(sign, mask);
    let magnitude = b.bitcast(magnitude, bits);
    let result = b.binary(BinaryOp::Or, magnitude, sign);
    b.bitcast(result, scalar)
}

/// `a × factor` for an integer that must stay within bounds.
pub(super) fn scaled_within(cx: &mut Context<'_>, a: Int, factor: i128, bounds: Range) -> Converted {
    let factor = constant(cx, factor);
    let (value, overflow) = checked(cx, OverflowOp::Mul, a, factor);
    let converted = bounded(cx, value, bounds);
    Converted { bad: either(cx, overflow, converted.bad), ..converted }
}
