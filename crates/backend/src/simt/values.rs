//! Arithmetic on slots of up to 64 bits. All of it is total, so it runs on every lane, active or not.

#![expect(clippy::unnecessary_cast, reason = "one of the types that the macros go through is u64 itself")]

use std::cell::Cell;

use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, Scalar, UnaryOp};

/// A slot: one value a lane.
pub(super) type Row = [Cell<u64>];

/// An operation on one slot: the result and the operand. It is chosen when a kernel is flattened, not when it runs.
pub(super) type Map = fn(&Row, &Row);
/// An operation on two slots: the result and the operands.
pub(super) type Map2 = fn(&Row, &Row, &Row);

fn map(to: &Row, a: &Row, f: impl Fn(u64) -> u64) {
    for (to, a) in to.iter().zip(a) {
        to.set(f(a.get()));
    }
}

fn map2(to: &Row, a: &Row, b: &Row, f: impl Fn(u64, u64) -> u64) {
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

/// Runs `$body` with `$t` as the Rust type of one of some scalars; `$other` for the rest.
macro_rules! with_type {
    ([$($variant:ident $native:ident),+], $scalar:expr, $t:ident => $body:expr, $other:expr) => {
        match $scalar {
            $(Scalar::$variant => {
                type $t = $native;
                $body
            })+
            _ => $other,
        }
    };
}

/// Of an integer scalar.
macro_rules! with_integer {
    ($scalar:expr, $t:ident => $body:expr, $other:expr) => {
        with_type!([I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64], $scalar, $t => $body, $other)
    };
}

/// Of a float.
macro_rules! with_float {
    ($scalar:expr, $t:ident => $body:expr, $other:expr) => {
        with_type!([F32 f32, F64 f64], $scalar, $t => $body, $other)
    };
}

/// A float in a slot: its bits.
trait Float {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
}

impl Float for f32 {
    fn of(bits: u64) -> f32 {
        f32::from_bits(bits as u32)
    }

    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Float for f64 {
    fn of(bits: u64) -> f64 {
        f64::from_bits(bits)
    }

    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// For what the validator rejects.
const NO_MAP: Map = |_, _| {};
const NO_MAP2: Map2 = |_, _, _| {};

pub(super) fn unary(op: UnaryOp, scalar: Scalar) -> Map {
    if scalar == Scalar::Bool {
        return |to, a| map(to, a, |a| a ^ 1);
    }
    with_integer!(scalar, T => match op {
        UnaryOp::Neg => |to, a| map(to, a, |a| (a as T).wrapping_neg() as u64),
        UnaryOp::Not => |to, a| map(to, a, |a| !(a as T) as u64),
        UnaryOp::Popcount => |to, a| map(to, a, |a| u64::from((a as T).count_ones())),
        UnaryOp::Clz => |to, a| map(to, a, |a| u64::from((a as T).leading_zeros())),
        UnaryOp::Ffs => |to, a| map(to, a, |a| match a as T {
            0 => 0,
            a => u64::from(a.trailing_zeros() + 1),
        }),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::RoundEven | UnaryOp::Abs | UnaryOp::Sqrt => NO_MAP,
    }, with_float!(scalar, T => match op {
        UnaryOp::Neg => |to, a| map(to, a, |a| (-T::of(a)).bits()),
        UnaryOp::Floor => |to, a| map(to, a, |a| T::of(a).floor().bits()),
        UnaryOp::Ceil => |to, a| map(to, a, |a| T::of(a).ceil().bits()),
        UnaryOp::Trunc => |to, a| map(to, a, |a| T::of(a).trunc().bits()),
        UnaryOp::RoundEven => |to, a| map(to, a, |a| T::of(a).round_ties_even().bits()),
        UnaryOp::Abs => |to, a| map(to, a, |a| T::of(a).abs().bits()),
        UnaryOp::Sqrt => |to, a| map(to, a, |a| T::of(a).sqrt().bits()),
        UnaryOp::Not | UnaryOp::Popcount | UnaryOp::Clz | UnaryOp::Ffs => NO_MAP,
    }, NO_MAP))
}

/// The upper half of a product of 32- or 64-bit integers.
fn mul_hi(scalar: Scalar) -> Map2 {
    match scalar {
        Scalar::U64 => |to, a, b| map2(to, a, b, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        Scalar::I64 => {
            |to, a, b| map2(to, a, b, |a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64)
        }
        Scalar::U32 => |to, a, b| map2(to, a, b, |a, b| (a * b) >> 32),
        _ => |to, a, b| map2(to, a, b, |a, b| ((a as i64).wrapping_mul(b as i64) >> 32) as u64),
    }
}

pub(super) fn binary(op: BinaryOp, scalar: Scalar) -> Map2 {
    match op {
        BinaryOp::And => return |to, a, b| map2(to, a, b, |a, b| a & b),
        BinaryOp::Or => return |to, a, b| map2(to, a, b, |a, b| a | b),
        BinaryOp::Xor => return |to, a, b| map2(to, a, b, |a, b| a ^ b),
        BinaryOp::MulHi => return mul_hi(scalar),
        _ => {}
    }
    with_integer!(scalar, T => match op {
        BinaryOp::Add => |to, a, b| map2(to, a, b, |a, b| (a as T).wrapping_add(b as T) as u64),
        BinaryOp::Sub => |to, a, b| map2(to, a, b, |a, b| (a as T).wrapping_sub(b as T) as u64),
        BinaryOp::Mul => |to, a, b| map2(to, a, b, |a, b| (a as T).wrapping_mul(b as T) as u64),
        BinaryOp::Div => |to, a, b| map2(to, a, b, |a, b| match b as T {
            0 => 0,
            b => (a as T).wrapping_div(b) as u64,
        }),
        BinaryOp::Rem => |to, a, b| map2(to, a, b, |a, b| match b as T {
            0 => 0,
            b => (a as T).wrapping_rem(b) as u64,
        }),
        BinaryOp::Shl => |to, a, b| map2(to, a, b, |a, b| (a as T).wrapping_shl(b as u32) as u64),
        BinaryOp::Shr => |to, a, b| map2(to, a, b, |a, b| (a as T).wrapping_shr(b as u32) as u64),
        BinaryOp::Min => |to, a, b| map2(to, a, b, |a, b| (a as T).min(b as T) as u64),
        BinaryOp::Max => |to, a, b| map2(to, a, b, |a, b| (a as T).max(b as T) as u64),
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::MulHi => NO_MAP2,
    }, with_float!(scalar, T => match op {
        BinaryOp::Add => |to, a, b| map2(to, a, b, |a, b| (T::of(a) + T::of(b)).bits()),
        BinaryOp::Sub => |to, a, b| map2(to, a, b, |a, b| (T::of(a) - T::of(b)).bits()),
        BinaryOp::Mul => |to, a, b| map2(to, a, b, |a, b| (T::of(a) * T::of(b)).bits()),
        BinaryOp::Div => |to, a, b| map2(to, a, b, |a, b| (T::of(a) / T::of(b)).bits()),
        BinaryOp::Rem => |to, a, b| map2(to, a, b, |a, b| (T::of(a) % T::of(b)).bits()),
        _ => NO_MAP2,
    }, NO_MAP2))
}

/// A comparison of what `$value` makes of the bits of slots.
macro_rules! comparison {
    ($op:expr, $value:expr) => {
        match $op {
            CompareOp::Eq => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) == $value(b))),
            CompareOp::Ne => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) != $value(b))),
            CompareOp::Lt => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) < $value(b))),
            CompareOp::Le => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) <= $value(b))),
            CompareOp::Gt => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) > $value(b))),
            CompareOp::Ge => |to, a, b| map2(to, a, b, |a, b| u64::from($value(a) >= $value(b))),
        }
    };
}

pub(super) fn compare(op: CompareOp, scalar: Scalar) -> Map2 {
    match scalar {
        Scalar::F32 => comparison!(op, f32::of),
        Scalar::F64 => comparison!(op, f64::of),
        // Slots are extended by their sign.
        scalar if scalar.is_signed() => comparison!(op, u64::cast_signed),
        _ => comparison!(op, u64::from),
    }
}

pub(super) fn overflows(op: OverflowOp, scalar: Scalar) -> Map2 {
    with_integer!(scalar, T => match op {
        OverflowOp::Add => |to, a, b| map2(to, a, b, |a, b| u64::from((a as T).overflowing_add(b as T).1)),
        OverflowOp::Sub => |to, a, b| map2(to, a, b, |a, b| u64::from((a as T).overflowing_sub(b as T).1)),
        OverflowOp::Mul => |to, a, b| map2(to, a, b, |a, b| u64::from((a as T).overflowing_mul(b as T).1)),
    }, NO_MAP2)
}

/// Between scalars of up to 64 bits.
pub(super) fn convert(from: Scalar, scalar: Scalar) -> Map {
    match (from, scalar) {
        (Scalar::F32, Scalar::F64) => |to, a| map(to, a, |a| f64::from(f32::of(a)).bits()),
        (Scalar::F64, Scalar::F32) => |to, a| map(to, a, |a| (f64::of(a) as f32).bits()),
        (_, Scalar::F32 | Scalar::F64) if from.is_float() => |to, a| map(to, a, |a| a),
        (_, Scalar::F32) if from.is_signed() => |to, a| map(to, a, |a| (a as i64 as f32).bits()),
        (_, Scalar::F32) => |to, a| map(to, a, |a| (a as f32).bits()),
        (_, Scalar::F64) if from.is_signed() => |to, a| map(to, a, |a| (a as i64 as f64).bits()),
        (_, Scalar::F64) => |to, a| map(to, a, |a| (a as f64).bits()),
        _ => with_float!(from, F => {
            with_integer!(scalar, T => |to, a| map(to, a, |a| F::of(a) as T as u64), NO_MAP)
        }, truncate(scalar)),
    }
}

/// The slot's form of the low bits of a scalar, as [`canonical`] says.
pub(super) fn truncate(scalar: Scalar) -> Map {
    match scalar {
        Scalar::Bool => |to, a| map(to, a, |a| canonical(Scalar::Bool, a)),
        Scalar::F32 => |to, a| map(to, a, |a| canonical(Scalar::F32, a)),
        scalar => {
            with_integer!(scalar, T => |to, a| map(to, a, |a| a as T as u64), |to, a| map(to, a, |a| a))
        }
    }
}

/// One integer operation of an atomic: the new value.
pub(super) fn atomic_add(scalar: Scalar, old: u64, value: u64) -> u64 {
    match scalar {
        Scalar::F32 => (f32::of(old) + f32::of(value)).bits(),
        Scalar::F64 => (f64::of(old) + f64::of(value)).bits(),
        _ => canonical(scalar, old.wrapping_add(value)),
    }
}

/// Whether slot `a` is less than slot `b` as integers.
pub(super) fn less(scalar: Scalar, a: u64, b: u64) -> bool {
    if scalar.is_signed() { (a as i64) < (b as i64) } else { a < b }
}
