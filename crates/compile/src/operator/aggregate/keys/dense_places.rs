//! Keys of a dense domain: the place of a row's key among the values that it may have, and the value of a place.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::domain::DenseKey;
use crate::context::{Constant, Context, Repr, Unsupported, register_type};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::lower;
use crate::table::packed::{minus, plus};
use crate::types::inverse;

/// The number of the current row's key among the values that it may have, as `i64` and always one of theirs, and its validity.
pub(crate) fn place_of_key(
    cx: &mut Context<'_>,
    key: &Expr,
    dense: &DenseKey,
) -> Result<(V, Option<V>), Unsupported> {
    if let (Some(coded), ExprKind::Column(column)) = (dense.coded, &key.kind)
        && let Some((code, valid)) = cx.value_code(*column, coded)
    {
        return Ok((cx.builder.convert(code, Scalar::I64), valid));
    }
    let value = lower(cx, key)?;
    let index = match (&value.repr, dense.coded) {
        (Repr::Text(text), _) => {
            let code = text.code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
            cx.builder.convert(code.value, Scalar::I64)
        }
        // That takes a step for each bit of the number of values, but those steps are in a cache.
        (Repr::Scalar(scalar), Some(coded)) => {
            let scalar = cx.builder.convert(*scalar, Scalar::I64);
            let code = cx.search_values(scalar, coded);
            cx.builder.convert(code, Scalar::I64)
        }
        (Repr::Scalar(scalar), None) => {
            let index = index_of(cx, *scalar, dense);
            let is_within = cx.is_stored(key) && dense.step == 1;
            let index = match is_within || cx.builder.scalar(*scalar) == Scalar::Bool {
                true => index,
                false => clamp(cx, index, dense.values),
            };
            cx.builder.convert(index, Scalar::I64)
        }
    };
    Ok((index, value.valid))
}

/// The number of a key's value among those that it may have: any number where it is none of them. It is an `i64`, or, as a GPU takes two
/// instructions for each of 64 bits, a `u32` where their distances from the least fit that; then they are right modulo 2^32.
fn index_of(cx: &mut Context<'_>, value: V, key: &DenseKey) -> V {
    if key.is_narrow() {
        let value = cx.builder.convert(value, Scalar::U32);
        let distance = minus(cx, value, (key.min as u32).into());
        return if key.step == 1 { distance } else { quotient(cx, distance, key) };
    }
    let scalar = cx.builder.scalar(value);
    let wide = if scalar == Scalar::I128 { Scalar::I128 } else { Scalar::I64 };
    let value = cx.builder.convert(value, wide);
    let distance = minus(cx, value, key.min);
    let distance = cx.builder.convert(distance, Scalar::I64);
    if key.step == 1 {
        return distance;
    }
    let distance = cx.builder.bitcast(distance, Scalar::U64);
    let index = quotient(cx, distance, key);
    cx.builder.bitcast(index, Scalar::I64)
}

/// A multiple of a key's step (`u32` or `u64`) divided by it, without a division: modulo 2^n an odd number has an [`inverse`].
fn quotient(cx: &mut Context<'_>, distance: V, key: &DenseKey) -> V {
    let shift = key.step.trailing_zeros();
    let inverse = inverse(key.step >> shift);
    let b = &mut *cx.builder;
    let (shift, inverse) = match b.scalar(distance) {
        Scalar::U32 => (b.u32(shift), b.u32(inverse as u32)),
        _ => (b.u64(shift.into()), b.u64(inverse)),
    };
    let shifted = b.binary(BinaryOp::Shr, distance, shift);
    b.mul(shifted, inverse)
}

/// An index (`u32` or `i64`) below `count`: the last one where it is another. No value that a key may take on its way into an error
/// leaves the table.
fn clamp(cx: &mut Context<'_>, index: V, count: u64) -> V {
    let b = &mut *cx.builder;
    let last = count.saturating_sub(1);
    if b.scalar(index) == Scalar::U32 {
        let last = b.u32(u32::try_from(last).unwrap_or(u32::MAX));
        return b.binary(BinaryOp::Min, index, last);
    }
    let (index, last) = (b.bitcast(index, Scalar::U64), b.u64(last));
    let index = b.binary(BinaryOp::Min, index, last);
    b.bitcast(index, Scalar::I64)
}

/// The key value of an index.
pub(crate) fn value_of(cx: &mut Context<'_>, index: V, key: &DenseKey, column: &ColumnInfo) -> V {
    let register = register_type(&column.data_type, column.range);
    if let Some(coded) = key.coded {
        let value = cx.coded_value(index, coded);
        return cx.builder.convert(value, register);
    }
    if register == Scalar::Bool {
        return cx.builder.ne_int(index, 0);
    }
    let wide = if register == Scalar::I128 { Scalar::I128 } else { Scalar::I64 };
    let index = cx.builder.convert(index, wide);
    let distance = match key.step {
        1 => index,
        step => {
            let step = cx.constant(Constant::Int(wide, step.into()));
            cx.builder.mul(index, step)
        }
    };
    let value = plus(cx, distance, key.min);
    cx.builder.convert(value, register)
}
