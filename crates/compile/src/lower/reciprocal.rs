//! Division by a positive constant of the query: a multiplication by its reciprocal and a shift. Both are kernel parameters, as the constant
//! is, so that another constant reuses the kernel. A division by a parameter takes a CPU ten to forty cycles and a GPU, which has no
//! instruction for it, thirty to a hundred instructions; this takes four or five.
//!
//! Source: Granlund and Montgomery, “Division by Invariant Integers using Multiplication” (PLDI 1994), theorem 4.2.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::value::Int;
use crate::context::{Constant, Context};

/// What a quotient is computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reciprocal {
    /// ⌈2^(N + shift) / divisor⌉, below 2^(N + 1).
    factor: u64,
    /// ⌈log2 divisor⌉.
    shift: u32,
}

/// The reciprocal with which ⌊a / divisor⌋ = ⌊a × factor / 2^(N + shift)⌋ for every `a` below 2^N, where N is one less than `bits`
/// (32 or 64); `None` unless the divisor is positive and below 2^N.
///
/// It exceeds the true one by less than 2^shift / divisor / 2^(N + shift) ≤ 2^-N, which adds less to a quotient than its distance from the
/// next integer.
fn reciprocal(divisor: i128, bits: u32) -> Option<Reciprocal> {
    let most = bits - 1;
    let divisor = u128::try_from(divisor).ok().filter(|divisor| (1..1 << most).contains(divisor))?;
    let shift = divisor.next_power_of_two().trailing_zeros();
    let factor = (1u128 << (most + shift)).div_ceil(divisor);
    Some(Reciprocal { factor: u64::try_from(factor).ok()?, shift })
}

/// `a / divisor`, truncated, in the signed register that `a` is in; `None` where that is not 32 or 64 bits wide, where `a` may be its least
/// value, whose magnitude it does not have, or where the divisor is not one for a reciprocal.
pub(super) fn quotient(cx: &mut Context<'_>, a: Int, divisor: i128) -> Option<V> {
    let signed = cx.builder.scalar(a.value);
    let (unsigned, least) = match signed {
        Scalar::I32 => (Scalar::U32, i128::from(i32::MIN)),
        Scalar::I64 => (Scalar::U64, i128::from(i64::MIN)),
        _ => return None,
    };
    let Reciprocal { factor, shift } = reciprocal(divisor, signed.bits()).filter(|_| a.range.min > least)?;
    let factor = cx.constant(Constant::Int(unsigned, factor.into()));
    let shift = cx.constant(Constant::Int(unsigned, shift.into()));
    let b = &mut *cx.builder;
    // All bits where it is negative.
    let sign = (a.range.min < 0).then(|| {
        let last = b.int(signed, i128::from(signed.bits()) - 1);
        b.binary(BinaryOp::Shr, a.value, last)
    });
    let magnitude = with_sign(cx, a.value, sign);
    let b = &mut *cx.builder;
    let (magnitude, one) = (b.bitcast(magnitude, unsigned), b.int(unsigned, 1));
    let twice = b.binary(BinaryOp::Shl, magnitude, one);
    let product = b.binary(BinaryOp::MulHi, twice, factor);
    let quotient = b.binary(BinaryOp::Shr, product, shift);
    let quotient = b.bitcast(quotient, signed);
    Some(with_sign(cx, quotient, sign))
}

/// The value, negated where all bits of `sign` are set and not one.
fn with_sign(cx: &mut Context<'_>, value: V, sign: Option<V>) -> V {
    let Some(sign) = sign else { return value };
    let flipped = cx.builder.binary(BinaryOp::Xor, value, sign);
    cx.builder.sub(flipped, sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Quotients of what is least, greatest and about each multiple of a divisor.
    #[test]
    fn quotients_are_exact() {
        for bits in [32u32, 64] {
            let most = 1u128 << (bits - 1);
            let powers = (0..bits - 1).flat_map(|power| [-1i128, 0, 1].map(|more| (1i128 << power) + more));
            let divisors = powers.chain([3, 7, 10, 641, 7919, 1_000_003, most as i128 - 1]);
            for divisor in divisors.filter(|divisor| (1..most as i128).contains(divisor)) {
                let Reciprocal { factor, shift } = reciprocal(divisor, bits).expect("a reciprocal");
                assert!(u128::from(factor) < 1 << bits, "{divisor}");
                let divisor = divisor as u128;
                let multiples = [1, 2, 3, 1000, most / divisor / 2, (most - 1) / divisor];
                let multiples = multiples.iter().map(|n| n * divisor);
                let near = multiples.flat_map(|n| [n, n.saturating_sub(1), n + 1]);
                for a in near.chain([0, 1, most / 2, most - 1]).filter(|a| *a < most) {
                    let high = (2 * a * u128::from(factor)) >> bits;
                    assert_eq!(high >> shift, a / divisor, "{a} / {divisor}, {bits} bits");
                }
            }
            for divisor in [0, -1, i128::MIN, 1 << (bits - 1), i128::MAX] {
                assert_eq!(reciprocal(divisor, bits), None, "{divisor}");
            }
        }
    }
}
