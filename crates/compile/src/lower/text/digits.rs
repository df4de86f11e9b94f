//! Numbers and dates as text on a CPU, eight digits a word: what is written may go on behind the text
//! ([`Context::text_margin`](crate::context::Context)), and is then overwritten by what follows.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Scalar};

use super::swar::{bits_of, byte_index, characters_of, eight_digits, with};

/// Digits of a word.
const WORD: u32 = 8;
/// What is beyond the digits of a word.
const LIMIT: u64 = 100_000_000;
/// Most digits behind a point that are written as a word.
pub(in crate::lower) const MOST_FRACTION: u32 = 8;

/// The digits of a number.
#[derive(Clone, Copy)]
pub(in crate::lower) struct Digits {
    /// The first ones (`u64`), as characters; the first of all is the lowest byte.
    head: V,
    /// How many these are, and how many there are in all (`u32`).
    head_count: V,
    pub(in crate::lower) count: V,
    /// What the digits behind them are, as a number (`u64`), and how many words of them there are at most.
    rest: V,
    words: u32,
}

impl Digits {
    /// The digits of a number (`u64`) up to `most`, without zeros before them; of 0 there is one. With branches where it may have more than
    /// eight.
    pub(in crate::lower) fn of(b: &mut Builder, number: V, most: u64) -> Digits {
        let nothing = b.u64(0);
        let words = [LIMIT, LIMIT * LIMIT].iter().filter(|limit| most >= **limit).count() as u32;
        if words == 0 {
            let (head, count) = short_number(b, number);
            return Digits { head, head_count: count, count, rest: nothing, words };
        }
        let zero = b.u32(0);
        let (first, rest) = (b.var_of("first", number), b.var_of("rest", nothing));
        let behind = b.var_of("behind", zero);
        for word in 1..=words {
            let unit = b.u64(LIMIT.pow(word));
            let is_longer = b.ge(number, unit);
            b.begin_if(is_longer);
            let above = b.div(number, unit);
            let whole = b.mul(above, unit);
            let below = b.sub(number, whole);
            let digits = b.u32(WORD * word);
            for (var, value) in [(first, above), (rest, below), (behind, digits)] {
                b.assign(var, value);
            }
        }
        for _ in 0..words {
            b.end();
        }
        let (first, rest, behind) = (b.read(first), b.read(rest), b.read(behind));
        let (head, head_count) = short_number(b, first);
        Digits { head, head_count, count: b.add(head_count, behind), rest, words }
    }

    /// Writes them.
    pub(in crate::lower) fn write(self, b: &mut Builder, target: V) {
        if self.words == 0 {
            return b.store_bytes(target, self.head);
        }
        let (zero, one_word) = (b.u32(0), b.u32(WORD));
        let behind = b.sub(self.count, self.head_count);
        let is_short = b.eq(behind, zero);
        b.begin_if(is_short);
        b.store_bytes(target, self.head);
        b.begin_else();
        let mut last = self.rest;
        if self.words > 1 {
            let (high, low) = parts(b, self.rest);
            last = low;
            let is_longest = b.compare(CompareOp::Gt, behind, one_word);
            b.begin_if(is_longest);
            let middle = eight_characters(b, high);
            write_both(b, target, (self.head, self.head_count), middle);
            let start = b.sub(self.count, one_word);
            let place = b.offset(target, start);
            let end = eight_characters(b, low);
            b.store_bytes(place, end);
            b.begin_else();
        }
        let end = eight_characters(b, last);
        write_both(b, target, (self.head, self.head_count), end);
        if self.words > 1 {
            b.end();
        }
        b.end();
    }

    /// Writes them, and a point and `digits` (1 to [`MOST_FRACTION`]) digits of a number (`u64`) that has no more.
    pub(in crate::lower) fn write_with_fraction(self, b: &mut Builder, target: V, number: V, digits: u32) {
        let all = eight_characters(b, number);
        let fraction = match WORD - digits {
            0 => all,
            skipped => with(b, BinaryOp::Shr, all, u64::from(8 * skipped)),
        };
        if digits < WORD {
            let fraction = with(b, BinaryOp::Shl, fraction, 8);
            let fraction = with(b, BinaryOp::Or, fraction, u64::from(b'.'));
            if self.words == 0 {
                return write_both(b, target, (self.head, self.count), fraction);
            }
            self.write(b, target);
            let place = b.offset(target, self.count);
            return b.store_bytes(place, fraction);
        }
        self.write(b, target);
        let place = b.offset(target, self.count);
        let (point, one) = (b.int(Scalar::U8, b'.'), b.u32(1));
        b.store(place, point);
        let behind = b.offset(place, one);
        b.store_bytes(behind, fraction);
    }
}

/// Writes `count` (`u32`, 1 to 8) characters, behind which the word has zeros, and a word behind them: as two words one behind the other, so
/// that whoever reads words does not wait for several stores.
fn write_both(b: &mut Builder, target: V, (first, count): (V, V), second: V) {
    // Twice half of it, as a shift by all bits is one by none.
    let half = b.shl_int(count, 2);
    let half = b.convert(half, Scalar::U64);
    let moved = b.binary(BinaryOp::Shl, second, half);
    let moved = b.binary(BinaryOp::Shl, moved, half);
    let word = b.or(first, moved);
    b.store_bytes(target, word);
    let eight = b.u32(WORD);
    let behind = b.offset(target, eight);
    let missing = b.sub(eight, count);
    let shift = bits_of(b, missing);
    let rest = b.binary(BinaryOp::Shr, second, shift);
    b.store_bytes(behind, rest);
}

/// The eight digits of a number (`u64`) below 10⁸ as characters.
fn eight_characters(b: &mut Builder, number: V) -> V {
    let digits = eight_digits(b, number);
    characters_of(b, digits)
}

/// Digits of a number (`u64`) below 10⁸ without zeros before them but for the last, and how many there are (`u32`).
fn short_number(b: &mut Builder, number: V) -> (V, V) {
    let digits = eight_digits(b, number);
    // The last digit is written whatever it is.
    let written = with(b, BinaryOp::Or, digits, 1 << 56);
    let skipped = byte_index(b, written);
    let characters = characters_of(b, digits);
    let shift = bits_of(b, skipped);
    let word = b.u32(WORD);
    (b.binary(BinaryOp::Shr, characters, shift), b.sub(word, skipped))
}

/// `number / 10⁸` and the rest.
fn parts(b: &mut Builder, number: V) -> (V, V) {
    let limit = b.u64(LIMIT);
    let high = b.div(number, limit);
    let whole = b.mul(high, limit);
    (high, b.sub(number, whole))
}

/// Writes `YYYY-MM-DD`; the parts are `i32`.
pub(in crate::lower) fn write_date(b: &mut Builder, target: V, [year, month, day]: [V; 3]) {
    let hundred = b.i32(100);
    let number = [month, day].into_iter().fold(year, |before, next| {
        let shifted = b.mul(before, hundred);
        b.add(shifted, next)
    });
    let number = b.convert(number, Scalar::U64);
    let digits = eight_characters(b, number);
    // The year's four digits stay where they are, the month's two go behind a hyphen.
    let year = with(b, BinaryOp::And, digits, 0xffff_ffff);
    let month = with(b, BinaryOp::Shr, digits, 32);
    let month = with(b, BinaryOp::And, month, 0xffff);
    let month = with(b, BinaryOp::Shl, month, 40);
    let word = b.or(year, month);
    let hyphens = u64::from(b'-') << 32 | u64::from(b'-') << 56;
    let word = with(b, BinaryOp::Or, word, hyphens);
    b.store_bytes(target, word);
    let (eight, day) = (b.u32(8), with(b, BinaryOp::Shr, digits, 48));
    let behind = b.offset(target, eight);
    b.store_bytes(behind, day);
}
