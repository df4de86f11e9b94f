//! Accumulator cells: what an aggregate keeps a group. Every cell starts as zero bits, so that a table is initialised
//! by clearing it; minimum and maximum are kept as unsigned keys whose order is the value's.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope, Space, Type};

use crate::context::{Context, Lowered, Repr, Unsupported};

/// How a cell takes a contribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CellOp {
    /// Wrapping `u64` addition.
    Add,
    /// `f64` addition.
    AddFloat,
    /// `u64` maximum.
    Max,
    /// `i128` addition, in two words, the lower one first.
    AddWide,
}

impl CellOp {
    /// Words of 8 bytes.
    pub const fn words(self) -> u32 {
        match self {
            CellOp::AddWide => 2,
            CellOp::Add | CellOp::AddFloat | CellOp::Max => 1,
        }
    }

    /// The register type of a contribution and of a private cell.
    pub const fn scalar(self) -> Scalar {
        match self {
            CellOp::Add | CellOp::Max => Scalar::U64,
            CellOp::AddFloat => Scalar::F64,
            CellOp::AddWide => Scalar::I128,
        }
    }
}

/// Adds a contribution to a cell in memory; `pointer` addresses its first word as `u64`.
pub fn combine_memory(cx: &mut Context<'_>, op: CellOp, pointer: V, value: V, scope: Scope) {
    let b = &mut *cx.builder;
    match op {
        CellOp::Add => b.atomic_discard(AtomicOp::Add, pointer, value, scope),
        CellOp::Max => b.atomic_discard(AtomicOp::Max, pointer, value, scope),
        CellOp::AddFloat => {
            let pointer = float_pointer(cx, pointer);
            cx.builder.atomic_discard(AtomicOp::Add, pointer, value, scope);
        }
        CellOp::AddWide => {
            let (low, high) = split(cx, value);
            let b = &mut *cx.builder;
            let old = b.atomic(AtomicOp::Add, pointer, low, scope);
            // The words are added one after the other: the carry follows from the old lower word, whoever is between.
            let sum = b.add(old, low);
            let carry = b.lt(sum, old);
            let carry = b.convert(carry, Scalar::U64);
            let high = b.add(high, carry);
            let zero = b.u64(0);
            let needed = b.ne(high, zero);
            b.begin_if(needed);
            let one = b.i32(1);
            let pointer = b.offset(pointer, one);
            b.atomic_discard(AtomicOp::Add, pointer, high, scope);
            b.end();
        }
    }
}

/// Adds a contribution to a cell in a variable of type [`CellOp::scalar`].
pub fn combine_register(cx: &mut Context<'_>, op: CellOp, cell: Var, value: V) {
    let b = &mut *cx.builder;
    let old = b.read(cell);
    let new = match op {
        CellOp::Max => b.binary(BinaryOp::Max, old, value),
        CellOp::Add | CellOp::AddFloat | CellOp::AddWide => b.add(old, value),
    };
    b.assign(cell, new);
}

/// Reads a cell of a table that no thread writes any more.
pub fn read_cell(cx: &mut Context<'_>, op: CellOp, pointer: V) -> V {
    match op {
        CellOp::Add | CellOp::Max => cx.builder.load(pointer),
        CellOp::AddFloat => {
            let pointer = float_pointer(cx, pointer);
            cx.builder.load(pointer)
        }
        CellOp::AddWide => {
            let b = &mut *cx.builder;
            let low = b.load(pointer);
            let one = b.i32(1);
            let next = b.offset(pointer, one);
            let high = b.load(next);
            join(cx, low, high)
        }
    }
}

/// Two words as an `i128`.
pub fn join(cx: &mut Context<'_>, low: V, high: V) -> V {
    let b = &mut *cx.builder;
    let low = b.convert(low, Scalar::I128);
    let high = b.convert(high, Scalar::I128);
    let bits = b.int(Scalar::I128, 64);
    let high = b.binary(BinaryOp::Shl, high, bits);
    b.or(high, low)
}

fn float_pointer(cx: &mut Context<'_>, pointer: V) -> V {
    let space = match cx.builder.ty(pointer) {
        Type::Ptr(space, _) => space,
        Type::Scalar(_) => Space::Global,
    };
    cx.builder.bitcast(pointer, Type::Ptr(space, Pointee::Scalar(Scalar::F64)))
}

/// An `i128` as two words, the lower one first.
pub fn split(cx: &mut Context<'_>, value: V) -> (V, V) {
    let b = &mut *cx.builder;
    let low = b.convert(value, Scalar::U64);
    let bits = b.int(Scalar::I128, 64);
    let high = b.binary(BinaryOp::Shr, value, bits);
    (low, b.convert(high, Scalar::U64))
}

/// A value as an unsigned key with the value's order: signed integers with the sign bit flipped, floats in IEEE total
/// order, booleans as 0 and 1.
pub fn order_key(cx: &mut Context<'_>, value: &Lowered) -> Result<V, Unsupported> {
    let Repr::Scalar(value) = value.repr else {
        return Err(Unsupported("minimum and maximum of text".into()));
    };
    let b = &mut *cx.builder;
    match b.scalar(value) {
        Scalar::Bool => Ok(b.convert(value, Scalar::U64)),
        Scalar::I128 => Err(Unsupported("minimum and maximum of integers beyond 64 bits".into())),
        scalar if scalar.is_float() => {
            let wide = b.convert(value, Scalar::F64);
            let bits = b.bitcast(wide, Scalar::I64);
            let shift = b.i64(63);
            let sign = b.binary(BinaryOp::Shr, bits, shift);
            let top = b.i64(i64::MIN);
            let flip = b.or(sign, top);
            let key = b.binary(BinaryOp::Xor, bits, flip);
            Ok(b.bitcast(key, Scalar::U64))
        }
        _ => {
            let wide = b.convert(value, Scalar::I64);
            let top = b.i64(i64::MIN);
            let key = b.binary(BinaryOp::Xor, wide, top);
            Ok(b.bitcast(key, Scalar::U64))
        }
    }
}

/// The value of an [`order_key`] as `scalar`: `bool`, a float, or an integer.
pub fn value_of_order_key(cx: &mut Context<'_>, key: V, scalar: Scalar) -> V {
    let b = &mut *cx.builder;
    match scalar {
        Scalar::Bool => {
            let zero = b.u64(0);
            b.ne(key, zero)
        }
        Scalar::F32 | Scalar::F64 => {
            let key = b.bitcast(key, Scalar::I64);
            let shift = b.i64(63);
            let sign = b.binary(BinaryOp::Shr, key, shift);
            let sign = b.not(sign);
            let top = b.i64(i64::MIN);
            let flip = b.or(sign, top);
            let bits = b.binary(BinaryOp::Xor, key, flip);
            let value = b.bitcast(bits, Scalar::F64);
            b.convert(value, scalar)
        }
        _ => {
            let key = b.bitcast(key, Scalar::I64);
            let top = b.i64(i64::MIN);
            let value = b.binary(BinaryOp::Xor, key, top);
            b.convert(value, scalar)
        }
    }
}
