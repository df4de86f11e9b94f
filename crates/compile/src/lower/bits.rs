//! Bit operators of integers, and `greatest` and `least`.
//!
//! A shift takes its amount modulo the width of the type, as Rust's `wrapping_shl` and so Arrow's kernels do; `>>` keeps
//! the sign of signed types.

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::arithmetic::exact_scalar;
use super::value::{Int, both, int, integer, scalar, unsupported};
use super::{case, compare, text};
use crate::context::{Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::range;
use crate::expr::{BitOp, CompareOp, Expr};
use crate::lower::alike;
use crate::types::{DataType, Range};

/// Lowers `left op right` of two integers of the result's type.
pub(super) fn lower(
    cx: &mut Context<'_>,
    op: BitOp,
    arguments: &[Expr],
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let [left, right] = arguments else { return unsupported("two operands are expected") };
    let (a_type, b_type) = (&left.data_type, &right.data_type);
    if !data_type.is_integer() || a_type != data_type || b_type != data_type {
        return unsupported(format!("{op:?} of {a_type} and {b_type} as {data_type}"));
    }
    let (a, b) = (cx.lower(left)?, cx.lower(right)?);
    let valid = both(cx, a.valid, b.valid);
    let (a, b) = (int(&a)?, int(&b)?);
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    Ok(match op {
        BitOp::And | BitOp::Or | BitOp::Xor => {
            let range = bitwise_range(op, a.range, b.range, full);
            let register = register_of(range.union(a.range).union(b.range));
            let (a, b) = (cx.builder.convert(a.value, register), cx.builder.convert(b.value, register));
            let op = match op {
                BitOp::And => BinaryOp::And,
                BitOp::Or => BinaryOp::Or,
                _ => BinaryOp::Xor,
            };
            let value = cx.builder.binary(op, a, b);
            integer(cx, value, valid, range)
        }
        BitOp::ShiftLeft => shifted(cx, BinaryOp::Shl, (a, b), valid, (data_type, full)),
        BitOp::ShiftRight => {
            // Towards 0, or -1 where the value is negative.
            let range = Range { min: a.range.min.min(0), max: a.range.max.max(0) };
            shifted(cx, BinaryOp::Shr, (a, b), valid, (data_type, range))
        }
    })
}

/// A shift in the scalar type that has exactly the type's width.
fn shifted(
    cx: &mut Context<'_>,
    op: BinaryOp,
    (a, b): (Int, Int),
    valid: Option<V>,
    (data_type, range): (&DataType, Range),
) -> Lowered {
    let exact = exact_scalar(data_type);
    let (a, b) = (cx.builder.convert(a.value, exact), cx.builder.convert(b.value, exact));
    let value = cx.builder.binary(op, a, b);
    integer(cx, value, valid, range)
}

/// Bounds of a bitwise operation, in registers that extend the sign.
fn bitwise_range(op: BitOp, a: Range, b: Range, full: Range) -> Range {
    let positive = |range: Range| range.min >= 0;
    let ones = |max: i128| (1i128 << (128 - max.leading_zeros()).min(126)) - 1;
    let range = match op {
        BitOp::And if positive(a) && positive(b) => Range { min: 0, max: a.max.min(b.max) },
        BitOp::And if positive(a) => Range { min: 0, max: a.max },
        BitOp::And if positive(b) => Range { min: 0, max: b.max },
        BitOp::Or | BitOp::Xor if positive(a) && positive(b) => Range { min: 0, max: ones(a.max | b.max) },
        _ => full,
    };
    Range { min: range.min.max(full.min), max: range.max.min(full.max) }
}

/// Lowers GREATEST (`greatest`) and LEAST: of the arguments that are not NULL; NULL where all are. Floats are in IEEE
/// total order, in which -0.0 is below 0.0.
pub(super) fn extreme(
    cx: &mut Context<'_>,
    greatest: bool,
    arguments: &[Expr],
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let Some((first, rest)) = arguments.split_first() else {
        return unsupported("GREATEST or LEAST of nothing");
    };
    if !arguments.iter().all(|argument| alike(&argument.data_type, data_type)) {
        return unsupported(format!("GREATEST or LEAST of other types as {data_type}"));
    }
    let mut best = cx.lower(first)?;
    for argument in rest {
        let next = cx.lower(argument)?;
        let op = if greatest { CompareOp::Gt } else { CompareOp::Lt };
        let better = ordered(cx, op, &next, &best, data_type)?;
        // What is NULL is never better, and always worse.
        let better = match next.valid {
            Some(valid) => cx.builder.and(better, valid),
            None => better,
        };
        let better = match best.valid {
            Some(valid) => {
                let null = cx.builder.not(valid);
                cx.builder.or(better, null)
            }
            None => better,
        };
        best = case::choose(cx, better, next, best)?;
    }
    if *data_type == DataType::Boolean {
        best.range = Some(Range { min: 0, max: 1 });
    }
    Ok(best)
}

/// `a op b` in Arrow's order of a type.
fn ordered(
    cx: &mut Context<'_>,
    op: CompareOp,
    a: &Lowered,
    b: &Lowered,
    data_type: &DataType,
) -> Result<V, Unsupported> {
    if let (Repr::Text(_), Repr::Text(_)) = (&a.repr, &b.repr) {
        return text::compare(cx, op, a, b);
    }
    let (a, b) = (scalar(a)?, scalar(b)?);
    Ok(match data_type {
        DataType::Float32 | DataType::Float64 => {
            let (a, b) = (compare::total_order(cx, a)?, compare::total_order(cx, b)?);
            cx.builder.compare(op, a, b)
        }
        DataType::Boolean | DataType::Null => compare::booleans(cx, op, a, b),
        _ => {
            let (a, b) = compare::unify(cx, a, b);
            cx.builder.compare(op, a, b)
        }
    })
}
