//! Text eight bytes at a time: equality, order, search, and counts of characters. Words are read at any address, and
//! only where all of their bytes are the text's; what is left is done byte by byte, or by a last word that overlaps.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type, UnaryOp};

use super::text::{
    TEXT_PAIR, byte, case_name, continues, count_up, function, increment, return_bool_if, sign,
};
use crate::context::{Case, Context, Text};

const POINTER: Type = Type::global(Scalar::U8);
/// 1 in each byte.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The upper bit of each byte.
const UPPER_BITS: u64 = 0x8080_8080_8080_8080;
/// An odd number of random bits.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// The hash of nothing, before the length is in it.
const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;
/// What [`find_function`] gives where there is nothing.
pub(super) const NOWHERE: u32 = u32::MAX;

/// The eight bytes of a text from `place` on.
fn word(b: &mut Builder, data: V, place: V) -> V {
    let pointer = b.offset(data, place);
    b.load_bytes(pointer)
}

/// `var += amount` for `u32`.
fn advance(b: &mut Builder, var: Var, amount: u32) {
    let (value, amount) = (b.read(var), b.u32(amount));
    let next = b.add(value, amount);
    b.assign(var, next);
}

/// `while place + 8 <= length { body }`: the body gets the word at `place`, and may break.
pub(super) fn each_word(
    b: &mut Builder,
    data: V,
    length: V,
    place: Var,
    body: impl FnOnce(&mut Builder, V, V),
) {
    b.begin_loop();
    let current = b.read(place);
    let (rest, eight) = (b.sub(length, current), b.u32(8));
    let short = b.lt(rest, eight);
    b.break_if(short);
    let word = word(b, data, current);
    body(b, word, current);
    advance(b, place, 8);
    b.end();
}

/// `while place < length { body }`: the body gets the byte at `place`, and may leave the function.
fn each_byte(b: &mut Builder, data: V, length: V, place: Var, body: impl FnOnce(&mut Builder, V, V)) {
    b.begin_loop();
    let current = b.read(place);
    let end = b.ge(current, length);
    b.break_if(end);
    let byte = byte(b, data, current, Case::Keep);
    body(b, byte, current);
    increment(b, place);
    b.end();
}

/// What [`each_word`] has left of a text of a word or more, as a word: `body` gets these bytes below zeros, and how many zeros (`u32`) there
/// are. They are read with those before them.
fn last_word(b: &mut Builder, data: V, length: V, place: Var, body: impl FnOnce(&mut Builder, V, V)) {
    let (current, eight, zero) = (b.read(place), b.u32(8), b.u32(0));
    let rest = b.sub(length, current);
    let (is_long, is_left) = (b.ge(length, eight), b.ne(rest, zero));
    let reads = b.and(is_long, is_left);
    b.begin_if(reads);
    let start = b.sub(length, eight);
    let whole = word(b, data, start);
    let missing = b.sub(eight, rest);
    let shift = b.mul(missing, eight);
    let shift = b.convert(shift, Scalar::U64);
    let last = b.binary(BinaryOp::Shr, whole, shift);
    body(b, last, missing);
    b.assign(place, length);
    b.end();
}

/// Whether two texts have the same bytes.
pub(super) fn equal_function(cx: &mut Context<'_>) -> Handle<Function> {
    function(cx, "text_equal", &TEXT_PAIR, Scalar::Bool, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let different = b.ne(a_length, b_length);
        return_bool_if(b, different, false);
        let (zero, eight) = (b.u32(0), b.u32(8));
        let short = b.lt(a_length, eight);
        b.begin_if(short);
        count_up(b, a_length, |b, index| {
            let (left, right) = (byte(b, a_data, index, Case::Keep), byte(b, b_data, index, Case::Keep));
            let different = b.ne(left, right);
            return_bool_if(b, different, false);
        });
        let equal = b.bool(true);
        b.return_value(equal);
        b.end();
        let last = b.sub(a_length, eight);
        let place = b.var_of("place", zero);
        b.begin_loop();
        let current = b.read(place);
        let done = b.ge(current, last);
        b.break_if(done);
        let (left, right) = (word(b, a_data, current), word(b, b_data, current));
        let different = b.ne(left, right);
        return_bool_if(b, different, false);
        advance(b, place, 8);
        b.end();
        let (left, right) = (word(b, a_data, last), word(b, b_data, last));
        let equal = b.eq(left, right);
        b.return_value(equal);
    })
}

/// -1, 0 or 1 as a < b, a = b, a > b, by bytes.
pub(super) fn order_function(cx: &mut Context<'_>) -> Handle<Function> {
    function(cx, "text_order", &TEXT_PAIR, Scalar::I32, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let shorter = b.binary(BinaryOp::Min, a_length, b_length);
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        each_word(b, a_data, shorter, place, |b, left, current| {
            let right = word(b, b_data, current);
            let different = b.ne(left, right);
            b.begin_if(different);
            // The first byte that differs is the lowest.
            let difference = b.binary(BinaryOp::Xor, left, right);
            let shift = byte_index(b, difference);
            let eight = b.u32(8);
            let shift = b.mul(shift, eight);
            let shift = b.convert(shift, Scalar::U64);
            let [left, right] = [left, right].map(|word| {
                let shifted = b.binary(BinaryOp::Shr, word, shift);
                let byte = b.convert(shifted, Scalar::U8);
                b.convert(byte, Scalar::U32)
            });
            let order = sign(b, left, right);
            b.return_value(order);
            b.end();
        });
        each_byte(b, a_data, shorter, place, |b, left, current| {
            let right = byte(b, b_data, current, Case::Keep);
            let different = b.ne(left, right);
            b.begin_if(different);
            let order = sign(b, left, right);
            b.return_value(order);
            b.end();
        });
        let order = sign(b, a_length, b_length);
        b.return_value(order);
    })
}

/// The byte (`u32`) that the lowest bit of a word is in.
fn byte_index(b: &mut Builder, word: V) -> V {
    let bit = b.unary(UnaryOp::Ffs, word);
    let (one, three) = (b.u32(1), b.u32(3));
    let bit = b.sub(bit, one);
    b.binary(BinaryOp::Shr, bit, three)
}

/// A word with the upper bit set in each byte that equals `repeated`'s, and perhaps in others above such a byte.
fn candidates(b: &mut Builder, word: V, repeated: V) -> V {
    let difference = b.binary(BinaryOp::Xor, word, repeated);
    let (ones, upper_bits) = (b.u64(ONES), b.u64(UPPER_BITS));
    let borrowed = b.sub(difference, ones);
    let inverted = b.not(difference);
    let both = b.and(borrowed, inverted);
    b.and(both, upper_bits)
}

/// The first place, from `start` on, at which the pattern stands, or [`NOWHERE`]. Eight places at a time are sorted out
/// by the pattern's first and last byte.
pub(super) fn find_function(cx: &mut Context<'_>) -> Handle<Function> {
    let equal = equal_function(cx);
    let params = [
        ("text", POINTER),
        ("length", Type::U32),
        ("pattern", POINTER),
        ("pattern_length", Type::U32),
        ("start", Type::U32),
    ];
    function(cx, "text_find", &params, Scalar::U32, |b| {
        let [data, length, pattern, pattern_length, start] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        let (zero, one, seven) = (b.u32(0), b.u32(1), b.u32(7));
        let nowhere = b.u32(NOWHERE);
        let rest = b.sub(length, start);
        let beyond = b.compare(CompareOp::Gt, start, length);
        let short = b.lt(rest, pattern_length);
        let impossible = b.or(beyond, short);
        return_if(b, impossible, nowhere);
        let empty = b.eq(pattern_length, zero);
        return_if(b, empty, start);
        let last = b.sub(length, pattern_length);
        let places = b.sub(last, start);
        let few = b.lt(places, seven);
        let place = b.var_of("place", start);
        b.begin_if(few);
        b.begin_loop();
        let current = b.read(place);
        let done = b.compare(CompareOp::Gt, current, last);
        return_if(b, done, nowhere);
        return_if_equal(b, equal, [data, current, pattern, pattern_length]);
        increment(b, place);
        b.end();
        b.end();
        let width = b.sub(pattern_length, one);
        let ones = b.u64(ONES);
        let [first, final_byte] = [zero, width].map(|index| {
            let byte = byte(b, pattern, index, Case::Keep);
            let byte = b.convert(byte, Scalar::U64);
            b.mul(byte, ones)
        });
        let last_block = b.sub(last, seven);
        let (nothing, lowest) = (b.u64(0), b.u64(1));
        let open = b.var_of("open", nothing);
        b.begin_loop();
        let current = b.read(place);
        let done = b.compare(CompareOp::Gt, current, last);
        b.break_if(done);
        // The last block overlaps the one before.
        let current = b.binary(BinaryOp::Min, current, last_block);
        let starts = word(b, data, current);
        let end = b.add(current, width);
        let ends = word(b, data, end);
        let (starts, ends) = (candidates(b, starts, first), candidates(b, ends, final_byte));
        let found = b.and(starts, ends);
        b.assign(open, found);
        b.begin_loop();
        let found = b.read(open);
        let none = b.eq(found, nothing);
        b.break_if(none);
        let index = byte_index(b, found);
        let candidate = b.add(current, index);
        return_if_equal(b, equal, [data, candidate, pattern, pattern_length]);
        let less = b.sub(found, lowest);
        let others = b.and(found, less);
        b.assign(open, others);
        b.end();
        let eight = b.u32(8);
        let next = b.add(current, eight);
        b.assign(place, next);
        b.end();
        b.return_value(nowhere);
    })
}

/// `if condition { return value }`
fn return_if(b: &mut Builder, condition: V, value: V) {
    b.begin_if(condition);
    b.return_value(value);
    b.end();
}

/// Returns `place` where the pattern stands there.
fn return_if_equal(b: &mut Builder, equal: Handle<Function>, [data, place, pattern, pattern_length]: [V; 4]) {
    let here = b.offset(data, place);
    let found = b.call(equal, &[here, pattern_length, pattern, pattern_length]);
    return_if(b, found, place);
}

/// Whether all bytes are ASCII.
pub(super) fn is_ascii_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, "text_is_ascii", &params, Scalar::Bool, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        each_word(b, data, length, place, |b, word, _| {
            let (upper_bits, none) = (b.u64(UPPER_BITS), b.u64(0));
            let beyond = b.and(word, upper_bits);
            let beyond = b.ne(beyond, none);
            return_bool_if(b, beyond, false);
        });
        last_word(b, data, length, place, |b, word, _| {
            let (upper_bits, none) = (b.u64(UPPER_BITS), b.u64(0));
            let beyond = b.and(word, upper_bits);
            let beyond = b.ne(beyond, none);
            return_bool_if(b, beyond, false);
        });
        each_byte(b, data, length, place, |b, byte, _| {
            let limit = b.u32(0x80);
            let beyond = b.ge(byte, limit);
            return_bool_if(b, beyond, false);
        });
        let ascii = b.bool(true);
        b.return_value(ascii);
    })
}

/// Characters that start in a word.
fn starts_in(b: &mut Builder, word: V) -> V {
    let (seven, six, ones) = (b.u64(7), b.u64(6), b.u64(ONES));
    // Continuation bytes are 10xxxxxx.
    let upper = b.binary(BinaryOp::Shr, word, seven);
    let inverted = b.not(word);
    let lower = b.binary(BinaryOp::Shr, inverted, six);
    let both = b.and(upper, lower);
    let continuations = b.and(both, ones);
    let continuations = b.unary(UnaryOp::Popcount, continuations);
    let eight = b.u32(8);
    b.sub(eight, continuations)
}

/// Characters of a text.
pub(super) fn characters_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, "text_characters", &params, Scalar::U32, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let zero = b.u32(0);
        let (characters, place) = (b.var_of("characters", zero), b.var_of("place", zero));
        each_word(b, data, length, place, |b, word, _| {
            let (count, starts) = (b.read(characters), starts_in(b, word));
            let count = b.add(count, starts);
            b.assign(characters, count);
        });
        last_word(b, data, length, place, |b, word, missing| {
            let (count, starts) = (b.read(characters), starts_in(b, word));
            // Zeros look like characters of their own.
            let starts = b.sub(starts, missing);
            let count = b.add(count, starts);
            b.assign(characters, count);
        });
        each_byte(b, data, length, place, |b, byte, _| {
            let continues = continues(b, byte);
            let (zero, one) = (b.u32(0), b.u32(1));
            let step = b.select(continues, zero, one);
            let count = b.read(characters);
            let count = b.add(count, step);
            b.assign(characters, count);
        });
        let count = b.read(characters);
        b.return_value(count);
    })
}

/// Bytes of the first `count` characters; all of them where there are fewer.
pub(super) fn prefix_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("text", POINTER), ("length", Type::U32), ("count", Type::U32)];
    function(cx, "text_prefix", &params, Scalar::U32, |b| {
        let [data, length, count] = [0, 1, 2].map(|index| b.param(index));
        let zero = b.u32(0);
        let (characters, place) = (b.var_of("characters", zero), b.var_of("place", zero));
        // Words whose characters are all wanted.
        each_word(b, data, length, place, |b, word, _| {
            let (seen, starts) = (b.read(characters), starts_in(b, word));
            let wanted = b.sub(count, seen);
            let enough = b.lt(wanted, starts);
            b.break_if(enough);
            let seen = b.add(seen, starts);
            b.assign(characters, seen);
        });
        each_byte(b, data, length, place, |b, byte, current| {
            let continues = continues(b, byte);
            let starts = b.not(continues);
            b.begin_if(starts);
            let seen = b.read(characters);
            let enough = b.ge(seen, count);
            return_if(b, enough, current);
            increment(b, characters);
            b.end();
        });
        b.return_value(length);
    })
}

/// A hash of a text, equal for equal texts whatever their case mappings: a multiplication whose halves are folded a
/// word. The last word overlaps the one before; a text of less than a word is one.
pub(crate) fn hash(cx: &mut Context<'_>, text: &Text) -> V {
    let hash = hash_function(cx, text.case);
    cx.builder.call(hash, &[text.data, text.length])
}

fn hash_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, &format!("text_hash{}", case_name(case)), &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (zero, eight) = (b.u32(0), b.u32(8));
        let wide = b.convert(length, Scalar::U64);
        let seed = b.u64(HASH_SEED);
        let seed = b.binary(BinaryOp::Xor, seed, wide);
        let short = b.lt(length, eight);
        b.begin_if(short);
        let nothing = b.u64(0);
        let packed = b.var_of("packed", nothing);
        count_up(b, length, |b, index| {
            let byte = byte(b, data, index, case);
            let byte = b.convert(byte, Scalar::U64);
            let (before, eight) = (b.read(packed), b.u64(8));
            let shifted = b.binary(BinaryOp::Shl, before, eight);
            let next = b.or(shifted, byte);
            b.assign(packed, next);
        });
        let packed = b.read(packed);
        let hash = fold(b, seed, packed);
        b.return_value(hash);
        b.end();
        let last = b.sub(length, eight);
        let (place, hash) = (b.var_of("place", zero), b.var_of("hash", seed));
        b.begin_loop();
        let current = b.read(place);
        let current = b.binary(BinaryOp::Min, current, last);
        let word = mapped_word(b, data, current, case);
        let before = b.read(hash);
        let after = fold(b, before, word);
        b.assign(hash, after);
        let done = b.ge(current, last);
        b.begin_if(done);
        b.return_value(after);
        b.end();
        advance(b, place, 8);
        b.end();
        let hash = b.read(hash);
        b.return_value(hash);
    })
}

/// Both halves of a product, one on the other.
fn fold(b: &mut Builder, hash: V, word: V) -> V {
    let mixed = b.binary(BinaryOp::Xor, hash, word);
    let factor = b.u64(HASH_FACTOR);
    let (low, high) = (b.mul(mixed, factor), b.binary(BinaryOp::MulHi, mixed, factor));
    b.binary(BinaryOp::Xor, low, high)
}

/// The eight bytes (`u64`) of a text from a place (`u32`) on: all of them must be the text's.
pub(crate) fn text_word(cx: &mut Context<'_>, text: &Text, place: V) -> V {
    mapped_word(cx.builder, text.data, place, text.case)
}

/// The eight bytes from `place` on, with their case mapping.
fn mapped_word(b: &mut Builder, data: V, place: V, case: Case) -> V {
    if case == Case::Keep {
        return word(b, data, place);
    }
    let mut result = b.u64(0);
    for index in 0..8 {
        let (offset, shift) = (b.u32(index), b.u64(8 * u64::from(index)));
        let at = b.add(place, offset);
        let byte = byte(b, data, at, case);
        let byte = b.convert(byte, Scalar::U64);
        let shifted = b.binary(BinaryOp::Shl, byte, shift);
        result = b.or(result, shifted);
    }
    result
}
