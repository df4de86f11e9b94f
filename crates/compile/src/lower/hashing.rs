//! Hashes of values: equal for equal keys, whatever register they stand in.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use crate::context::register_type;
use crate::context::{Context, Lowered, Repr};
use crate::layout::ColumnInfo;
use crate::lower::hash_text;

/// What takes the place of NULL's bits.
const NULL_BITS: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of MurmurHash3: every bit of the input reaches every bit of the output.
pub fn mix(cx: &mut Context<'_>, value: V) -> V {
    let b = &mut *cx.builder;
    let mut value = value;
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        let shift = b.u64(33);
        let high = b.binary(BinaryOp::Shr, value, shift);
        value = b.binary(BinaryOp::Xor, value, high);
        let factor = b.u64(factor);
        value = b.mul(value, factor);
    }
    let shift = b.u64(33);
    let high = b.binary(BinaryOp::Shr, value, shift);
    b.binary(BinaryOp::Xor, value, high)
}

/// Whether a column's integers may go beyond 64 bits: both sides of a join must hash alike.
pub fn is_wide(info: &ColumnInfo) -> bool {
    register_type(&info.data_type, info.range) == Scalar::I128
}

/// The hash of several keys, mixed.
pub fn hash_keys(cx: &mut Context<'_>, keys: &[(&Lowered, bool)]) -> V {
    let mut hash: Option<V> = None;
    for (key, wide) in keys {
        let bits = key_bits(cx, key, *wide);
        hash = Some(match hash {
            None => bits,
            Some(hash) => {
                let mixed = mix(cx, hash);
                cx.builder.add(mixed, bits)
            }
        });
    }
    match hash {
        Some(hash) => mix(cx, hash),
        None => cx.builder.u64(0),
    }
}

/// 64 bits that are equal for equal keys. `wide`: the key's integers may go beyond 64 bits on some side.
fn key_bits(cx: &mut Context<'_>, key: &Lowered, wide: bool) -> V {
    let bits = match &key.repr {
        Repr::Text(text) => hash_text(cx, text),
        Repr::Scalar(value) => scalar_bits(cx, *value, wide),
    };
    match key.valid {
        Some(valid) => {
            let null = cx.builder.u64(NULL_BITS);
            cx.builder.select(valid, bits, null)
        }
        None => bits,
    }
}

fn scalar_bits(cx: &mut Context<'_>, value: V, wide: bool) -> V {
    let value = normalized(cx, value);
    let b = &mut *cx.builder;
    match b.scalar(value) {
        Scalar::F32 => {
            let bits = b.bitcast(value, Scalar::U32);
            b.convert(bits, Scalar::U64)
        }
        Scalar::F64 => b.bitcast(value, Scalar::U64),
        scalar if wide || scalar == Scalar::I128 => {
            let value = b.convert(value, Scalar::I128);
            let low = b.convert(value, Scalar::U64);
            let shift = b.int(Scalar::I128, 64);
            let high = b.binary(BinaryOp::Shr, value, shift);
            let high = b.convert(high, Scalar::U64);
            let high = mix(cx, high);
            cx.builder.binary(BinaryOp::Xor, low, high)
        }
        _ => b.convert(value, Scalar::U64),
    }
}

/// The value with -0.0 as 0.0: the two are one key, as in DataFusion.
pub fn normalized(cx: &mut Context<'_>, value: V) -> V {
    let scalar = cx.builder.scalar(value);
    if !scalar.is_float() {
        return value;
    }
    let zero = cx.builder.zero(scalar);
    let is_zero = cx.builder.eq(value, zero);
    cx.builder.select(is_zero, zero, value)
}
