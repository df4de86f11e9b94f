//! `trunc`, as DataFusion's function of this name.

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, UnaryOp};

use super::value::{Int, constant, float, integer, lower_int, lower_scalar, unsupported};
use crate::context::{Context, Lowered, Unsupported, register_of};
use crate::expr::{Expr, ExprKind};
use crate::types::{DataType, Literal, Range};

/// Lowers `trunc(value [, digits])` with constant digits: towards zero.
pub(super) fn truncate(
    cx: &mut Context<'_>,
    input: &Expr,
    digits: Option<&Expr>,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let constant_digits = match digits.map(|digits| &digits.kind) {
        None => 0,
        Some(ExprKind::Literal(Literal::Int(digits))) => match i64::try_from(*digits) {
            Ok(digits) => digits,
            Err(_) => return unsupported(format!("trunc to {digits} digits")),
        },
        Some(ExprKind::Literal(Literal::Null)) => return super::literal::null(cx, data_type),
        Some(_) => return unsupported("trunc to a number of digits that is not constant"),
    };
    if &input.data_type != data_type {
        return unsupported(format!("trunc of {} as {data_type}", input.data_type));
    }
    match data_type {
        DataType::Float32 | DataType::Float64 => {
            let (value, valid) = lower_scalar(cx, input)?;
            let truncated = match digits {
                None => to_whole(cx, value),
                // DataFusion has the digits as `i32`.
                Some(_) => to_digits(cx, value, constant_digits as i32),
            };
            Ok(float(truncated, valid))
        }
        DataType::Decimal128 { scale, .. } => {
            let (value, valid) = lower_int(cx, input)?;
            let dropped = i64::from(*scale).saturating_sub(constant_digits);
            let result = match u32::try_from(dropped) {
                Ok(0) | Err(_) if dropped <= 0 => value,
                Ok(dropped) if dropped < 38 => clear_digits(cx, value, dropped),
                _ => constant(cx, 0),
            };
            Ok(integer(cx, result.value, valid, result.range))
        }
        other => unsupported(format!("trunc of {other}")),
    }
}

/// Without a number of digits zeros lose their sign; what becomes a zero keeps it.
fn to_whole(cx: &mut Context<'_>, value: V) -> V {
    let scalar = cx.builder.scalar(value);
    let zero = cx.builder.zero(scalar);
    let is_zero = cx.builder.eq(value, zero);
    let whole = cx.builder.unary(UnaryOp::Trunc, value);
    cx.builder.select(is_zero, zero, whole)
}

fn to_digits(cx: &mut Context<'_>, value: V, digits: i32) -> V {
    let factor = match cx.builder.scalar(value) {
        Scalar::F32 => cx.builder.f32(10f32.powi(digits)),
        _ => cx.builder.f64(10f64.powi(digits)),
    };
    let scaled = cx.builder.mul(value, factor);
    let whole = cx.builder.unary(UnaryOp::Trunc, scaled);
    cx.builder.div(whole, factor)
}

/// The last digits become zeros.
fn clear_digits(cx: &mut Context<'_>, value: Int, digits: u32) -> Int {
    let Some(factor) = 10i128.checked_pow(digits) else { return constant(cx, 0) };
    let register = register_of(value.range.union(Range { min: 0, max: factor }));
    let wide = cx.builder.convert(value.value, register);
    let rest = cx.builder.rem_int(wide, factor);
    let result = cx.builder.sub(wide, rest);
    Int { value: result, range: Range { min: value.range.min.min(0), max: value.range.max.max(0) } }
}
