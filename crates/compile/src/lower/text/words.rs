//! Text eight bytes at a time: equality, order, search, and counts of characters. Words are read at any address, and
//! only where all of their bytes are the text's; what is left is done byte by byte, or by a last word that overlaps. On a CPU, where
//! a word may be read from any byte of a text on ([`Context::text_margin`]), it is a word too, of which the first bytes count.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type};

use super::swar::{ONES, beyond_ascii, bits_of, byte_index, candidates, first_bytes, starts_in, with_case};
use super::{TEXT_PAIR, byte, continues, count_up, function, increment, return_bool_if, sign};
use crate::context::{Case, Context, TEXT_MARGIN, Text};

const POINTER: Type = Type::global(Scalar::U8);
/// Bytes of a word.
pub(crate) const WORD_BYTES: u32 = 8;
/// Bytes that [`surely_ascii`] looks at together.
const BLOCK: u32 = TEXT_MARGIN;
/// What [`find_function`] gives where there is nothing.
pub(in crate::lower) const NOWHERE: u32 = u32::MAX;

/// The eight bytes of a text from `place` on.
fn word(b: &mut Builder, data: V, place: V) -> V {
    let pointer = b.offset(data, place);
    b.load_bytes(pointer)
}

/// `var += amount` for `u32`.
pub(in crate::lower) fn advance(b: &mut Builder, var: Var, amount: u32) {
    let (value, amount) = (b.read(var), b.u32(amount));
    let next = b.add(value, amount);
    b.assign(var, next);
}

/// `while place + 8 <= length { body }`: the body gets the word at `place`, and may break.
pub(in crate::lower) fn each_word(
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

/// `while place < length { body }`: the body gets the byte at `place` with its case mapping, and may leave the function.
pub(in crate::lower) fn each_byte(
    b: &mut Builder,
    (data, case): (V, Case),
    length: V,
    place: Var,
    body: impl FnOnce(&mut Builder, V, V),
) {
    b.begin_loop();
    let current = b.read(place);
    let end = b.ge(current, length);
    b.break_if(end);
    let byte = byte(b, data, current, case);
    body(b, byte, current);
    increment(b, place);
    b.end();
}

/// What [`each_word`] has left of a text, as a word: `body` gets these bytes with zeros behind them, and how many zeros (`u32`) there
/// are. With a `margin` it is read as it is, else with the bytes before it, where there are enough; otherwise [`each_byte`] follows.
pub(in crate::lower) fn last_word(
    b: &mut Builder,
    margin: bool,
    (data, length): (V, V),
    place: Var,
    body: impl FnOnce(&mut Builder, V, V),
) {
    let (current, eight, zero) = (b.read(place), b.u32(8), b.u32(0));
    let rest = b.sub(length, current);
    let mut reads = b.ne(rest, zero);
    if !margin {
        let is_long = b.ge(length, eight);
        reads = b.and(is_long, reads);
    }
    b.begin_if(reads);
    let missing = b.sub(eight, rest);
    let last = match margin {
        true => {
            let whole = word(b, data, current);
            first_bytes(b, whole, rest)
        }
        false => {
            let start = b.sub(length, eight);
            let whole = word(b, data, start);
            let shift = bits_of(b, missing);
            b.binary(BinaryOp::Shr, whole, shift)
        }
    };
    body(b, last, missing);
    b.assign(place, length);
    b.end();
}

/// Whether the first `length` bytes are known to be ASCII; with a margin. They are looked at in blocks, with what stands behind them: where that
/// is not ASCII, nothing is known.
fn surely_ascii(b: &mut Builder, data: V, length: V) -> V {
    let (zero, nothing) = (b.u32(0), b.u64(0));
    let (place, union) = (b.var_of("place", zero), b.var_of("union", nothing));
    b.begin_loop();
    let current = b.read(place);
    let done = b.ge(current, length);
    b.break_if(done);
    let block = b.offset(data, current);
    let mut bytes = b.read(union);
    for start in (0..BLOCK).step_by(8) {
        let start = b.u32(start);
        let word = word(b, block, start);
        bytes = b.or(bytes, word);
    }
    b.assign(union, bytes);
    advance(b, place, BLOCK);
    b.end();
    let union = b.read(union);
    let beyond = beyond_ascii(b, union);
    b.not(beyond)
}

/// A text of less than eight bytes as a word, zeros behind it, read with a margin. Where it has none, its address may be none.
pub(in crate::lower) fn short_word(b: &mut Builder, data: V, length: V) -> V {
    let (zero, nothing) = (b.u32(0), b.u64(0));
    let result = b.var_of("short", nothing);
    let has_bytes = b.ne(length, zero);
    b.begin_if(has_bytes);
    let word = b.load_bytes(data);
    let word = first_bytes(b, word, length);
    b.assign(result, word);
    b.end();
    b.read(result)
}

/// Whether two texts have the same bytes.
pub(in crate::lower) fn equal_function(cx: &mut Context<'_>) -> Handle<Function> {
    let margin = cx.text_margin();
    function(cx, "text_equal", &TEXT_PAIR, Scalar::Bool, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let different = b.ne(a_length, b_length);
        return_bool_if(b, different, false);
        let (zero, eight) = (b.u32(0), b.u32(8));
        let short = b.lt(a_length, eight);
        b.begin_if(short);
        if margin {
            let [left, right] = [a_data, b_data].map(|data| short_word(b, data, a_length));
            let equal = b.eq(left, right);
            b.return_value(equal);
        } else {
            count_up(b, a_length, |b, index| {
                let (left, right) = (byte(b, a_data, index, Case::Keep), byte(b, b_data, index, Case::Keep));
                let different = b.ne(left, right);
                return_bool_if(b, different, false);
            });
            let equal = b.bool(true);
            b.return_value(equal);
        }
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
pub(in crate::lower) fn order_function(cx: &mut Context<'_>) -> Handle<Function> {
    let margin = cx.text_margin();
    function(cx, "text_order", &TEXT_PAIR, Scalar::I32, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let shorter = b.binary(BinaryOp::Min, a_length, b_length);
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        each_word(b, a_data, shorter, place, |b, left, current| {
            let right = word(b, b_data, current);
            return_if_ordered(b, left, right);
        });
        if margin {
            let rest = b.read(place);
            let left_bytes = b.sub(shorter, rest);
            last_word(b, true, (a_data, shorter), place, |b, left, _| {
                let right = word(b, b_data, rest);
                let right = first_bytes(b, right, left_bytes);
                return_if_ordered(b, left, right);
            });
        } else {
            each_byte(b, (a_data, Case::Keep), shorter, place, |b, left, current| {
                let right = byte(b, b_data, current, Case::Keep);
                let different = b.ne(left, right);
                b.begin_if(different);
                let order = sign(b, left, right);
                b.return_value(order);
                b.end();
            });
        }
        let order = sign(b, a_length, b_length);
        b.return_value(order);
    })
}

/// Returns -1 or 1 where words of two texts differ: by the first byte that does, which is the lowest.
fn return_if_ordered(b: &mut Builder, left: V, right: V) {
    let different = b.ne(left, right);
    b.begin_if(different);
    let difference = b.binary(BinaryOp::Xor, left, right);
    let index = byte_index(b, difference);
    let shift = bits_of(b, index);
    let [left, right] = [left, right].map(|word| {
        let shifted = b.binary(BinaryOp::Shr, word, shift);
        let byte = b.convert(shifted, Scalar::U8);
        b.convert(byte, Scalar::U32)
    });
    let order = sign(b, left, right);
    b.return_value(order);
    b.end();
}

/// The first place, from `start` on, at which the pattern stands, or [`NOWHERE`]. Eight places at a time are sorted out
/// by the pattern's first and last byte.
pub(in crate::lower) fn find_function(cx: &mut Context<'_>) -> Handle<Function> {
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
        // The first candidate of a single byte is that byte.
        let is_byte = b.eq(width, zero);
        return_if(b, is_byte, candidate);
        return_if_equal(b, equal, [data, candidate, pattern, pattern_length]);
        let less = b.sub(found, lowest);
        let others = b.and(found, less);
        b.assign(open, others);
        b.end();
        let next = b.add_int(current, 8);
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
pub(in crate::lower) fn is_ascii_function(cx: &mut Context<'_>) -> Handle<Function> {
    let margin = cx.text_margin();
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, "text_is_ascii", &params, Scalar::Bool, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        if margin {
            let (ascii, yes) = (surely_ascii(b, data, length), b.bool(true));
            return_if(b, ascii, yes);
        }
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        each_word(b, data, length, place, |b, word, _| {
            let beyond = beyond_ascii(b, word);
            return_bool_if(b, beyond, false);
        });
        last_word(b, margin, (data, length), place, |b, word, _| {
            let beyond = beyond_ascii(b, word);
            return_bool_if(b, beyond, false);
        });
        if !margin {
            each_byte(b, (data, Case::Keep), length, place, |b, byte, _| {
                let beyond = b.ge_int(byte, 0x80);
                return_bool_if(b, beyond, false);
            });
        }
        let ascii = b.bool(true);
        b.return_value(ascii);
    })
}

/// Characters of a text.
pub(in crate::lower) fn characters_function(cx: &mut Context<'_>) -> Handle<Function> {
    let margin = cx.text_margin();
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, "text_characters", &params, Scalar::U32, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        if margin {
            // Most text is ASCII, and that is soon seen.
            let ascii = surely_ascii(b, data, length);
            return_if(b, ascii, length);
        }
        let zero = b.u32(0);
        let (characters, place) = (b.var_of("characters", zero), b.var_of("place", zero));
        each_word(b, data, length, place, |b, word, _| {
            let (count, starts) = (b.read(characters), starts_in(b, word));
            let count = b.add(count, starts);
            b.assign(characters, count);
        });
        last_word(b, margin, (data, length), place, |b, word, missing| {
            let (count, starts) = (b.read(characters), starts_in(b, word));
            // Zeros look like characters of their own.
            let starts = b.sub(starts, missing);
            let count = b.add(count, starts);
            b.assign(characters, count);
        });
        if !margin {
            each_byte(b, (data, Case::Keep), length, place, |b, byte, _| {
                let continues = continues(b, byte);
                let (zero, one) = (b.u32(0), b.u32(1));
                let step = b.select(continues, zero, one);
                let count = b.read(characters);
                let count = b.add(count, step);
                b.assign(characters, count);
            });
        }
        let count = b.read(characters);
        b.return_value(count);
    })
}

/// Bytes of the first `count` characters; all of them where there are fewer.
pub(in crate::lower) fn prefix_function(cx: &mut Context<'_>) -> Handle<Function> {
    let margin = cx.text_margin();
    let params = [("text", POINTER), ("length", Type::U32), ("count", Type::U32)];
    function(cx, "text_prefix", &params, Scalar::U32, |b| {
        let [data, length, count] = [0, 1, 2].map(|index| b.param(index));
        if margin {
            let end = b.binary(BinaryOp::Min, length, count);
            let ascii = surely_ascii(b, data, end);
            return_if(b, ascii, end);
        }
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
        each_byte(b, (data, Case::Keep), length, place, |b, byte, current| {
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

/// The eight bytes (`u64`) of a text from a place (`u32`) on: all of them must be the text's.
pub(crate) fn text_word(cx: &mut Context<'_>, text: &Text, place: V) -> V {
    mapped_word(cx.builder, text.data, place, text.case)
}

/// The eight bytes from `place` on, with their case mapping.
pub(in crate::lower) fn mapped_word(b: &mut Builder, data: V, place: V, case: Case) -> V {
    let word = word(b, data, place);
    with_case(b, word, case)
}
