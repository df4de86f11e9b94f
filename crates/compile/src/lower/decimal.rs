//! Arithmetic of decimals, as Arrow's `decimal_op`: operands are brought to the scale of the result, `/` truncates,
//! and only what overflows `i128` is an error; the precision of the result is not checked.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, OverflowOp, Scalar};

use super::arithmetic::{by_constant, is_lowest_by_minus_one, report_zero_divisor, symbol};
use super::value::{Int, both, checked, constant, either, integer, lower_int, report, unsupported};
use crate::context::{Context, Lowered, Status, Unsupported, register_of};
use crate::expr::range;
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::types::{DataType, Literal};

/// Lowers `left op right`, each with its scale.
pub(super) fn lower(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    (left, left_scale): (&Expr, i8),
    (right, right_scale): (&Expr, i8),
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let DataType::Decimal128 { scale, .. } = *data_type else {
        return unsupported(format!("decimal {} decimal as {data_type}", symbol(op)));
    };
    let (s1, s2, scale) = (i32::from(left_scale), i32::from(right_scale), i32::from(scale));
    let common = s1.max(s2);
    // Powers of ten that the operands are multiplied with, and the scale that Arrow gives the result.
    let (left_power, right_power, expected) = match op {
        ArithmeticOp::Multiply => (0, 0, s1 + s2),
        ArithmeticOp::Divide => {
            let result = (s1 + 4).min(38);
            let power = result - s1 + s2;
            (power.max(0), (-power).max(0), result)
        }
        _ => (common - s1, common - s2, common),
    };
    if expected != scale || left_power > 38 || right_power > 38 {
        let (a, b) = (&left.data_type, &right.data_type);
        return unsupported(format!("{a} {} {b} as {data_type}", symbol(op)));
    }
    let (a, a_valid, a_overflow) = operand(cx, left, left_power as u32)?;
    let (b, b_valid, b_overflow) = operand(cx, right, right_power as u32)?;
    let valid = both(cx, a_valid, b_valid);
    let overflow = either(cx, a_overflow, b_overflow);
    let (result, last_overflow) = match op {
        ArithmeticOp::Add | ArithmeticOp::AddExact => checked(cx, OverflowOp::Add, a, b),
        ArithmeticOp::Subtract | ArithmeticOp::SubtractExact => checked(cx, OverflowOp::Sub, a, b),
        ArithmeticOp::Multiply | ArithmeticOp::MultiplyExact => checked(cx, OverflowOp::Mul, a, b),
        ArithmeticOp::Divide | ArithmeticOp::Remainder => {
            report_zero_divisor(cx, b, valid);
            divide(cx, op, a, (b, constant_of(right, right_power as u32)))
        }
    };
    if let Some(overflow) = either(cx, overflow, last_overflow) {
        report(cx, overflow, valid, Status::Overflow);
    }
    Ok(integer(cx, result.value, valid, result.range))
}

/// An operand times a power of ten, whether it is valid, and whether that overflows. A constant is multiplied here: its class is
/// then that of the product, where the product of its class would be wider by another digit, and sums of it by a word.
fn operand(
    cx: &mut Context<'_>,
    expr: &Expr,
    power: u32,
) -> Result<(Int, Option<V>, Option<V>), Unsupported> {
    if let Some(product) = constant_of(expr, power) {
        let scaled = Expr { kind: ExprKind::Literal(Literal::Int(product)), ..expr.clone() };
        let (value, valid) = lower_int(cx, &scaled)?;
        return Ok((value, valid, None));
    }
    let (value, valid) = lower_int(cx, expr)?;
    let (value, overflow) = scale_up(cx, value, power);
    Ok((value, valid, overflow))
}

/// A constant times a power of ten, where that does not overflow.
fn constant_of(expr: &Expr, power: u32) -> Option<i128> {
    let ExprKind::Literal(Literal::Int(value)) = expr.kind else { return None };
    10i128.checked_pow(power).and_then(|factor| value.checked_mul(factor))
}

/// `a × 10^power`, and whether that overflows where it can.
pub(super) fn scale_up(cx: &mut Context<'_>, a: Int, power: u32) -> (Int, Option<V>) {
    match 10i128.checked_pow(power) {
        Some(factor) if factor != 1 => {
            let factor = constant(cx, factor);
            checked(cx, OverflowOp::Mul, a, factor)
        }
        _ => (a, None),
    }
}

/// `divisor`: what `b` is, where that is a constant.
fn divide(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    a: Int,
    (b, divisor): (Int, Option<i128>),
) -> (Int, Option<V>) {
    let (binary, range) = match op {
        ArithmeticOp::Divide => (BinaryOp::Div, range::divide(a.range, b.range)),
        _ => (BinaryOp::Rem, range::remainder(a.range, b.range)),
    };
    let can_overflow = a.range.min == i128::MIN && range::contains(b.range, -1);
    let overflow = can_overflow.then(|| is_lowest_by_minus_one(cx, a, b, i128::MIN));
    let range = range.unwrap_or(range::UNBOUNDED);
    let register = match range == range::UNBOUNDED {
        true => Scalar::I128,
        false => register_of(range.union(a.range).union(b.range)),
    };
    let (left, right) = (cx.builder.convert(a.value, register), cx.builder.convert(b.value, register));
    let value = by_constant(cx, op, Int { value: left, ..a }, (right, divisor));
    let value = value.unwrap_or_else(|| cx.builder.binary(binary, left, right));
    (Int { value, range }, overflow)
}
