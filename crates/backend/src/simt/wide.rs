//! Arithmetic on `i128`, which takes two slots: the low half and the high half.

use kelpie_kir::{BinaryOp, CompareOp, OverflowOp, Scalar, UnaryOp};

use super::values::{Row, canonical};

/// An `i128` in every lane.
pub(super) type WideRow<'a> = [&'a Row; 2];

pub(super) fn get(row: WideRow<'_>, lane: usize) -> i128 {
    (u128::from(row[1][lane].get()) << 64 | u128::from(row[0][lane].get())) as i128
}

pub(super) fn set(row: WideRow<'_>, lane: usize, value: i128) {
    row[0][lane].set(value as u64);
    row[1][lane].set((value >> 64) as u64);
}

pub(super) fn unary(op: UnaryOp, to: WideRow<'_>, a: WideRow<'_>) {
    for lane in 0..to[0].len() {
        let value = get(a, lane);
        set(to, lane, if op == UnaryOp::Neg { value.wrapping_neg() } else { !value });
    }
}

fn combine(op: BinaryOp, a: i128, b: i128) -> i128 {
    match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::Mul => a.wrapping_mul(b),
        BinaryOp::Div if b == 0 => 0,
        BinaryOp::Div => a.wrapping_div(b),
        BinaryOp::Rem if b == 0 => 0,
        BinaryOp::Rem => a.wrapping_rem(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a.wrapping_shl(b as u32),
        BinaryOp::Shr => a.wrapping_shr(b as u32),
        BinaryOp::Min => a.min(b),
        BinaryOp::Max => a.max(b),
        // The validator rejects it on `i128`.
        BinaryOp::MulHi => 0,
    }
}

pub(super) fn binary(op: BinaryOp, to: WideRow<'_>, a: WideRow<'_>, b: WideRow<'_>) {
    for lane in 0..to[0].len() {
        set(to, lane, combine(op, get(a, lane), get(b, lane)));
    }
}

pub(super) fn compare(op: CompareOp, to: &Row, a: WideRow<'_>, b: WideRow<'_>) {
    for (lane, to) in to.iter().enumerate() {
        let order = get(a, lane).cmp(&get(b, lane));
        to.set(u64::from(match op {
            CompareOp::Eq => order.is_eq(),
            CompareOp::Ne => order.is_ne(),
            CompareOp::Lt => order.is_lt(),
            CompareOp::Le => order.is_le(),
            CompareOp::Gt => order.is_gt(),
            CompareOp::Ge => order.is_ge(),
        }));
    }
}

pub(super) fn overflows(op: OverflowOp, to: &Row, a: WideRow<'_>, b: WideRow<'_>) {
    for (lane, to) in to.iter().enumerate() {
        let (a, b) = (get(a, lane), get(b, lane));
        to.set(u64::from(match op {
            OverflowOp::Add => a.overflowing_add(b).1,
            OverflowOp::Sub => a.overflowing_sub(b).1,
            OverflowOp::Mul => a.overflowing_mul(b).1,
        }));
    }
}

/// From `i128` to another scalar, or itself.
pub(super) fn narrow(scalar: Scalar, to: WideRow<'_>, a: WideRow<'_>) {
    for lane in 0..a[0].len() {
        let value = get(a, lane);
        match scalar {
            Scalar::I128 => set(to, lane, value),
            Scalar::F32 => to[0][lane].set(u64::from((value as f32).to_bits())),
            Scalar::F64 => to[0][lane].set((value as f64).to_bits()),
            scalar => to[0][lane].set(canonical(scalar, value as u64)),
        }
    }
}

/// From another scalar to `i128`.
pub(super) fn widen(from: Scalar, to: WideRow<'_>, a: &Row) {
    for (lane, a) in a.iter().enumerate() {
        let bits = a.get();
        let value = match from {
            Scalar::F32 => f32::from_bits(bits as u32) as i128,
            Scalar::F64 => f64::from_bits(bits) as i128,
            from if from.is_signed() => i128::from(bits as i64),
            _ => i128::from(bits),
        };
        set(to, lane, value);
    }
}
