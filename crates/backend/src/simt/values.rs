//! Arithmetic on slots of up to 64 bits. All of it is total, so it runs on every lane, active or not.

#![expect(clippy::unnecessary_cast, reason = "one of the types that the macros go through is u64 itself")]

use std::cell::Cell;

use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, Scalar, UnaryOp};

/// A slot: one value a lane.
pub(super) type Row = [Cell<u64>];

pub(super) fn map(to: &Row, a: &Row, f: impl Fn(u64) -> u64) {
    for (to, a) in to.iter().zip(a) {
        to.set(f(a.get()));
    }
}

pub(super) fn map2(to: &Row, a: &Row, b: &Row, f: impl Fn(u64, u64) -> u64) {
    for ((to, a), b) in to.iter().zip(a).zip(b) {
        to.set(f(a.get(), b.get()));
    }
}

/// The slot's form of the low bits of a scalar.
pub(super) fn canonical(scalar: Scalar, bits: u64) -> u64 {
    match scalar {
        Scalar::Bool => u64::from(bits & 0xff != 0),
        Scalar::I8 => bits as i8 as u64,
        Scalar::I16 => bits as i16 as u64,
        Scalar::I32 => bits as i32 as u64,
        Scalar::U8 => u64::from(bits as u8),
        Scalar::U16 => u64::from(bits as u16),
        Scalar::U32 | Scalar::F32 => u64::from(bits as u32),
        Scalar::I64 | Scalar::U64 | Scalar::F64 | Scalar::I128 => bits,
    }
}

/// Runs `$body` with `$t` as the Rust type of an integer scalar; `$other` for the rest.
macro_rules! with_integer {
    ($scalar:expr, $t:ident => $body:expr, $other:expr) => {
        match $scalar {
            Scalar::I8 => {
                type $t = i8;
                $body
            }
            Scalar::I16 => {
                type $t = i16;
                $body
            }
            Scalar::I32 => {
                type $t = i32;
                $body
            }
            Scalar::I64 => {
                type $t = i64;
                $body
            }
            Scalar::U8 => {
                type $t = u8;
                $body
            }
            Scalar::U16 => {
                type $t = u16;
                $body
            }
            Scalar::U32 => {
                type $t = u32;
                $body
            }
            Scalar::U64 => {
                type $t = u64;
                $body
            }
            Scalar::Bool | Scalar::I128 | Scalar::F32 | Scalar::F64 => $other,
        }
    };
}

/// Runs `$body` with `$f` as a function from the slot's bits to a float and `$b` back; `$other` for the rest.
macro_rules! with_float {
    ($scalar:expr, $f:ident, $b:ident => $body:expr, $other:expr) => {
        match $scalar {
            Scalar::F32 => {
                let $f = |bits: u64| f32::from_bits(bits as u32);
                let $b = |value: f32| u64::from(value.to_bits());
                $body
            }
            Scalar::F64 => {
                let $f = f64::from_bits;
                let $b = f64::to_bits;
                $body
            }
            _ => $other,
        }
    };
}

pub(super) fn unary(op: UnaryOp, scalar: Scalar, to: &Row, a: &Row) {
    if scalar == Scalar::Bool {
        return map(to, a, |a| a ^ 1);
    }
    with_integer!(scalar, T => match op {
        UnaryOp::Neg => map(to, a, |a| (a as T).wrapping_neg() as u64),
        UnaryOp::Not => map(to, a, |a| !(a as T) as u64),
        UnaryOp::Popcount => map(to, a, |a| u64::from((a as T).count_ones())),
        UnaryOp::Clz => map(to, a, |a| u64::from((a as T).leading_zeros())),
        UnaryOp::Ffs => map(to, a, |a| match a as T {
            0 => 0,
            a => u64::from(a.trailing_zeros() + 1),
        }),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::RoundEven | UnaryOp::Abs | UnaryOp::Sqrt => {}
    }, with_float!(scalar, f, b => match op {
        UnaryOp::Neg => map(to, a, |a| b(-f(a))),
        UnaryOp::Floor => map(to, a, |a| b(f(a).floor())),
        UnaryOp::Ceil => map(to, a, |a| b(f(a).ceil())),
        UnaryOp::Trunc => map(to, a, |a| b(f(a).trunc())),
        UnaryOp::RoundEven => map(to, a, |a| b(f(a).round_ties_even())),
        UnaryOp::Abs => map(to, a, |a| b(f(a).abs())),
        UnaryOp::Sqrt => map(to, a, |a| b(f(a).sqrt())),
        UnaryOp::Not | UnaryOp::Popcount | UnaryOp::Clz | UnaryOp::Ffs => {}
    }, ()));
}

/// The upper half of a product of 32- or 64-bit integers.
fn mul_hi(scalar: Scalar, a: u64, b: u64) -> u64 {
    match scalar {
        Scalar::U64 => ((u128::from(a) * u128::from(b)) >> 64) as u64,
        Scalar::I64 => ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
        Scalar::U32 => (a * b) >> 32,
        _ => ((a as i64).wrapping_mul(b as i64) >> 32) as u64,
    }
}

pub(super) fn binary(op: BinaryOp, scalar: Scalar, to: &Row, a: &Row, b: &Row) {
    match op {
        BinaryOp::And => return map2(to, a, b, |a, b| a & b),
        BinaryOp::Or => return map2(to, a, b, |a, b| a | b),
        BinaryOp::Xor => return map2(to, a, b, |a, b| a ^ b),
        BinaryOp::MulHi => return map2(to, a, b, |a, b| mul_hi(scalar, a, b)),
        _ => {}
    }
    with_integer!(scalar, T => match op {
        BinaryOp::Add => map2(to, a, b, |a, b| (a as T).wrapping_add(b as T) as u64),
        BinaryOp::Sub => map2(to, a, b, |a, b| (a as T).wrapping_sub(b as T) as u64),
        BinaryOp::Mul => map2(to, a, b, |a, b| (a as T).wrapping_mul(b as T) as u64),
        BinaryOp::Div => map2(to, a, b, |a, b| match b as T {
            0 => 0,
            b => (a as T).wrapping_div(b) as u64,
        }),
        BinaryOp::Rem => map2(to, a, b, |a, b| match b as T {
            0 => 0,
            b => (a as T).wrapping_rem(b) as u64,
        }),
        BinaryOp::Shl => map2(to, a, b, |a, b| (a as T).wrapping_shl(b as u32) as u64),
        BinaryOp::Shr => map2(to, a, b, |a, b| (a as T).wrapping_shr(b as u32) as u64),
        BinaryOp::Min => map2(to, a, b, |a, b| (a as T).min(b as T) as u64),
        BinaryOp::Max => map2(to, a, b, |a, b| (a as T).max(b as T) as u64),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::MulHi => {}
    }, with_float!(scalar, f, bits => match op {
        BinaryOp::Add => map2(to, a, b, |a, b| bits(f(a) + f(b))),
        BinaryOp::Sub => map2(to, a, b, |a, b| bits(f(a) - f(b))),
        BinaryOp::Mul => map2(to, a, b, |a, b| bits(f(a) * f(b))),
        BinaryOp::Div => map2(to, a, b, |a, b| bits(f(a) / f(b))),
        BinaryOp::Rem => map2(to, a, b, |a, b| bits(f(a) % f(b))),
        _ => {}
    }, ()));
}

/// Operands and results as of [`compare`], on one type of Rust.
fn compare_as<T: PartialOrd>(op: CompareOp, to: &Row, a: &Row, b: &Row, value: impl Fn(u64) -> T) {
    match op {
        CompareOp::Eq => map2(to, a, b, |a, b| u64::from(value(a) == value(b))),
        CompareOp::Ne => map2(to, a, b, |a, b| u64::from(value(a) != value(b))),
        CompareOp::Lt => map2(to, a, b, |a, b| u64::from(value(a) < value(b))),
        CompareOp::Le => map2(to, a, b, |a, b| u64::from(value(a) <= value(b))),
        CompareOp::Gt => map2(to, a, b, |a, b| u64::from(value(a) > value(b))),
        CompareOp::Ge => map2(to, a, b, |a, b| u64::from(value(a) >= value(b))),
    }
}

pub(super) fn compare(op: CompareOp, scalar: Scalar, to: &Row, a: &Row, b: &Row) {
    match scalar {
        Scalar::F32 => compare_as(op, to, a, b, |bits| f32::from_bits(bits as u32)),
        Scalar::F64 => compare_as(op, to, a, b, f64::from_bits),
        // Slots are extended by their sign.
        scalar if scalar.is_signed() => compare_as(op, to, a, b, |bits| bits as i64),
        _ => compare_as(op, to, a, b, |bits| bits),
    }
}

pub(super) fn overflows(op: OverflowOp, scalar: Scalar, to: &Row, a: &Row, b: &Row) {
    with_integer!(scalar, T => match op {
        OverflowOp::Add => map2(to, a, b, |a, b| u64::from((a as T).overflowing_add(b as T).1)),
        OverflowOp::Sub => map2(to, a, b, |a, b| u64::from((a as T).overflowing_sub(b as T).1)),
        OverflowOp::Mul => map2(to, a, b, |a, b| u64::from((a as T).overflowing_mul(b as T).1)),
    }, ());
}

/// Between scalars of up to 64 bits.
pub(super) fn convert(from: Scalar, scalar: Scalar, to: &Row, a: &Row) {
    match (from, scalar) {
        (Scalar::F32, Scalar::F64) => map(to, a, |a| f64::from(f32::from_bits(a as u32)).to_bits()),
        (Scalar::F64, Scalar::F32) => map(to, a, |a| u64::from((f64::from_bits(a) as f32).to_bits())),
        (_, Scalar::F32 | Scalar::F64) if from.is_float() => map(to, a, |a| a),
        (_, Scalar::F32) if from.is_signed() => map(to, a, |a| u64::from((a as i64 as f32).to_bits())),
        (_, Scalar::F32) => map(to, a, |a| u64::from((a as f32).to_bits())),
        (_, Scalar::F64) if from.is_signed() => map(to, a, |a| (a as i64 as f64).to_bits()),
        (_, Scalar::F64) => map(to, a, |a| (a as f64).to_bits()),
        _ => with_float!(from, f, _b => {
            with_integer!(scalar, T => map(to, a, |a| f(a) as T as u64), ());
        }, map(to, a, |a| canonical(scalar, a))),
    }
}

/// One integer operation of an atomic: the new value.
pub(super) fn atomic_add(scalar: Scalar, old: u64, value: u64) -> u64 {
    match scalar {
        Scalar::F32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(value as u32)).to_bits()),
        Scalar::F64 => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        _ => canonical(scalar, old.wrapping_add(value)),
    }
}

/// Whether slot `a` is less than slot `b` as integers.
pub(super) fn less(scalar: Scalar, a: u64, b: u64) -> bool {
    if scalar.is_signed() { (a as i64) < (b as i64) } else { a < b }
}
