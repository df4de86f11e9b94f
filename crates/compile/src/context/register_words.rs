//! Registers in words of memory.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::Context;

/// Bits of a word.
pub(crate) const WORD_BITS: u64 = 64;

/// Words that a register takes.
pub(crate) fn word_count(ty: Type) -> u64 {
    if ty == Type::Scalar(Scalar::I128) { 2 } else { 1 }
}

/// The content of a register in words, `u64`, the lowest first.
pub(crate) fn to_words(cx: &mut Context<'_>, value: V) -> Vec<V> {
    let b = &mut *cx.builder;
    match b.ty(value) {
        Type::Ptr(..) | Type::Scalar(Scalar::F64) => vec![b.bitcast(value, Scalar::U64)],
        Type::Scalar(Scalar::F32) => {
            let bits = b.bitcast(value, Scalar::U32);
            vec![b.convert(bits, Scalar::U64)]
        }
        Type::Scalar(Scalar::I128) => {
            let high = b.shr_int(value, WORD_BITS);
            vec![b.convert(value, Scalar::U64), b.convert(high, Scalar::U64)]
        }
        _ => vec![b.convert(value, Scalar::U64)],
    }
}

/// The register of a type that has these words.
pub(crate) fn of_words(cx: &mut Context<'_>, ty: Type, words: &[V]) -> V {
    let b = &mut *cx.builder;
    match (ty, words) {
        (Type::Scalar(Scalar::Bool), [word, ..]) => {
            let zero = b.u64(0);
            b.ne(*word, zero)
        }
        (Type::Scalar(Scalar::F32), [word, ..]) => {
            let bits = b.convert(*word, Scalar::U32);
            b.bitcast(bits, ty)
        }
        (Type::Scalar(Scalar::I128), [low, high]) => {
            let (low, high) = (b.convert(*low, Scalar::I128), b.convert(*high, Scalar::I128));
            let high = b.shl_int(high, WORD_BITS);
            b.binary(BinaryOp::Or, high, low)
        }
        (Type::Ptr(..) | Type::Scalar(Scalar::F64), [word, ..]) => b.bitcast(*word, ty),
        (Type::Scalar(scalar), [word, ..]) => b.convert(*word, scalar),
        _ => {
            cx.impossible("a register that has no words");
            cx.builder.u64(0)
        }
    }
}
