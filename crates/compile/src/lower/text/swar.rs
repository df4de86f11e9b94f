//! What is done with eight bytes of a text at once, as one word, the first byte lowest (SIMD within a register: Lamport, "Multiple Byte
//! Processing with Full-Word Instructions", 1975; Warren, "Hacker's Delight", chapters 6 and 7).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Scalar, UnaryOp};

use crate::context::Case;

/// 1 in each byte.
pub(in crate::lower) const ONES: u64 = 0x0101_0101_0101_0101;
/// The upper bit of each byte.
pub(in crate::lower) const UPPER_BITS: u64 = 0x8080_8080_8080_8080;
/// The other bits of each byte.
const LOWER_BITS: u64 = !UPPER_BITS;

/// `word op constant`.
pub(in crate::lower) fn with(b: &mut Builder, op: BinaryOp, word: V, constant: u64) -> V {
    let constant = b.u64(constant);
    b.binary(op, word, constant)
}

/// Bits (`u64`) of so many bytes (`u32`).
pub(in crate::lower) fn bits_of(b: &mut Builder, bytes: V) -> V {
    let bits = b.shl_int(bytes, 3);
    b.convert(bits, Scalar::U64)
}

/// The first `count` (`u32`, 1 to 8) bytes of a word; zeros behind them.
pub(in crate::lower) fn first_bytes(b: &mut Builder, word: V, count: V) -> V {
    let eight = b.u32(8);
    let others = b.sub(eight, count);
    let shift = bits_of(b, others);
    let shifted = b.binary(BinaryOp::Shl, word, shift);
    b.binary(BinaryOp::Shr, shifted, shift)
}

/// Whether a word has bytes beyond ASCII.
pub(in crate::lower) fn beyond_ascii(b: &mut Builder, word: V) -> V {
    let (found, nothing) = (with(b, BinaryOp::And, word, UPPER_BITS), b.u64(0));
    b.ne(found, nothing)
}

/// Characters of UTF-8 (`u32`) that start in a word.
pub(in crate::lower) fn starts_in(b: &mut Builder, word: V) -> V {
    // Continuation bytes are 10xxxxxx.
    let upper = with(b, BinaryOp::Shr, word, 7);
    let inverted = b.not(word);
    let lower = with(b, BinaryOp::Shr, inverted, 6);
    let both = b.and(upper, lower);
    let continuations = with(b, BinaryOp::And, both, ONES);
    let continuations = b.unary(UnaryOp::Popcount, continuations);
    let eight = b.u32(8);
    b.sub(eight, continuations)
}

/// The byte (`u32`) that the lowest bit of a word is in.
pub(in crate::lower) fn byte_index(b: &mut Builder, word: V) -> V {
    let bit = b.unary(UnaryOp::Ffs, word);
    let (one, three) = (b.u32(1), b.u32(3));
    let bit = b.sub(bit, one);
    b.binary(BinaryOp::Shr, bit, three)
}

/// A word with the upper bit set in each byte that equals `repeated`'s, and perhaps in others above such a byte.
pub(in crate::lower) fn candidates(b: &mut Builder, word: V, repeated: V) -> V {
    let difference = b.binary(BinaryOp::Xor, word, repeated);
    let borrowed = with(b, BinaryOp::Sub, difference, ONES);
    let inverted = b.not(difference);
    let both = b.and(borrowed, inverted);
    with(b, BinaryOp::And, both, UPPER_BITS)
}

/// A word whose letters of ASCII have their case mapped; other bytes stay.
pub(in crate::lower) fn with_case(b: &mut Builder, word: V, case: Case) -> V {
    let first = match case {
        Case::Keep => return word,
        Case::Upper => b'a',
        Case::Lower => b'A',
    };
    // The upper bit of a sum of seven bits each says whether a byte is at least so much; nothing is carried.
    let low = with(b, BinaryOp::And, word, LOWER_BITS);
    let from_first = with(b, BinaryOp::Add, low, ONES * u64::from(0x80 - first));
    let behind_last = with(b, BinaryOp::Add, low, ONES * u64::from(0x80 - first - 26));
    let letters = b.binary(BinaryOp::Xor, from_first, behind_last);
    let ascii = b.not(word);
    let letters = b.and(letters, ascii);
    let letters = with(b, BinaryOp::And, letters, UPPER_BITS);
    // 0x20 is what tells the cases apart.
    let bits = with(b, BinaryOp::Shr, letters, 2);
    b.binary(BinaryOp::Xor, word, bits)
}

/// The bytes of a word from the last to the first.
pub(in crate::lower) fn reversed(b: &mut Builder, word: V) -> V {
    let mut word = word;
    for (bits, mask) in [(8, 0x00ff_00ff_00ff_00ff), (16, 0x0000_ffff_0000_ffff)] {
        let even = with(b, BinaryOp::And, word, mask);
        let even = with(b, BinaryOp::Shl, even, bits);
        let odd = with(b, BinaryOp::Shr, word, bits);
        let odd = with(b, BinaryOp::And, odd, mask);
        word = b.or(even, odd);
    }
    let (low, high) = (with(b, BinaryOp::Shl, word, 32), with(b, BinaryOp::Shr, word, 32));
    b.or(low, high)
}

/// The eight decimal digits of a number (`u64`) below 10⁸, 0 to 9 a byte, the first one lowest: halves of four digits, of two, of one,
/// all of them divided at the same time, by products with reciprocals that are exact for numbers of so few digits.
pub(in crate::lower) fn eight_digits(b: &mut Builder, number: V) -> V {
    // Each step: by what to divide, the reciprocal and how far it is shifted, where quotients are, and where remainders go.
    const STEPS: [(u64, u64, u64, u64, u64); 3] = [
        (10_000, 109_951_163, 40, u64::MAX, 32),
        (100, 10_486, 20, 0x0000_007f_0000_007f, 16),
        (10, 103, 10, 0x000f_000f_000f_000f, 8),
    ];
    let mut parts = number;
    for (divisor, reciprocal, shift, mask, distance) in STEPS {
        let product = with(b, BinaryOp::Mul, parts, reciprocal);
        let quotients = with(b, BinaryOp::Shr, product, shift);
        let quotients = if mask == u64::MAX { quotients } else { with(b, BinaryOp::And, quotients, mask) };
        let whole = with(b, BinaryOp::Mul, quotients, divisor);
        let rest = b.sub(parts, whole);
        let rest = with(b, BinaryOp::Shl, rest, distance);
        parts = b.or(quotients, rest);
    }
    parts
}

/// Digits as characters.
pub(in crate::lower) fn characters_of(b: &mut Builder, digits: V) -> V {
    with(b, BinaryOp::Or, digits, ONES * b'0' as u64)
}

#[cfg(test)]
mod tests {
    /// The same arithmetic as [`super::eight_digits`].
    fn eight_digits(number: u64) -> [u8; 8] {
        let mut parts = number;
        for (divisor, reciprocal, shift, mask, distance) in [
            (10_000, 109_951_163, 40, u64::MAX, 32),
            (100, 10_486, 20, 0x0000_007f_0000_007f, 16),
            (10, 103, 10, 0x000f_000f_000f_000f, 8),
        ] {
            let quotients = (parts.wrapping_mul(reciprocal) >> shift) & mask;
            parts = quotients | (parts - quotients * divisor) << distance;
        }
        parts.to_le_bytes()
    }

    #[test]
    fn reciprocals_are_exact() {
        let numbers = (0..10_000u64).flat_map(|part| [part, part * 10_000, part * 10_000 + 9_999 - part]);
        for number in numbers.chain([99_999_999]) {
            let digits: String = eight_digits(number).iter().map(|digit| char::from(b'0' + digit)).collect();
            assert_eq!(digits, format!("{number:08}"));
        }
    }
}
