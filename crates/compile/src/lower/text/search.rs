//! Where a text stands in another one, and text made by replacing, repeating and reversing.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Function, Handle, Scalar, Type};

use super::heap::{copy_function, length_where, make, make_up_to, plain};
use super::like::{contains, ends_function, next_character, starts_function};
use super::swar::{ONES, bits_of, reversed, with};
use super::words::{NOWHERE, advance, characters_function, find_function, is_ascii_function};
use super::{byte, count_up, function};
use crate::context::{Case, Context, Lowered, Repr, Text, Unsupported};
use crate::expr::{Expr, Search};
use crate::lower::value::{boolean, both, integer, lower_int, text, unsupported};
use crate::types::Range;

const POINTER: Type = Type::global(Scalar::U8);
/// Bytes that are taken for a text before it is known how many it has.
const MOST_UNCOUNTED: u64 = 1 << 12;

/// A text without a case mapping, and its validity.
pub(in crate::lower) fn lower_plain(
    cx: &mut Context<'_>,
    expr: &Expr,
) -> Result<(Text, Option<V>), Unsupported> {
    let value = cx.lower(expr)?;
    let input = text(&value)?;
    Ok((plain(cx, input, value.valid), value.valid))
}

/// Lowers STARTS_WITH, ENDS_WITH, CONTAINS and STRPOS.
pub(in crate::lower) fn search(
    cx: &mut Context<'_>,
    what: Search,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let [input, wanted] = arguments else { return unsupported("two arguments are expected") };
    let (input, input_valid) = lower_plain(cx, input)?;
    let (wanted, wanted_valid) = lower_plain(cx, wanted)?;
    let valid = both(cx, input_valid, wanted_valid);
    let arguments = [input.data, input.length, wanted.data, wanted.length];
    let answer = match what {
        Search::StartsWith => starts_function(cx, Case::Keep),
        Search::EndsWith => ends_function(cx, Case::Keep),
        Search::Contains => {
            let answer = contains(cx, &input, &wanted);
            return Ok(boolean(answer, valid));
        }
        Search::Position => {
            let find = find_function(cx);
            let zero = cx.builder.u32(0);
            let place = cx.builder.call(find, &[input.data, input.length, wanted.data, wanted.length, zero]);
            let characters = characters_function(cx);
            let (nowhere, zero, one) = (cx.builder.u32(NOWHERE), cx.builder.u32(0), cx.builder.u32(1));
            let found = cx.builder.ne(place, nowhere);
            let bytes = cx.builder.select(found, place, zero);
            let before = cx.builder.call(characters, &[input.data, bytes]);
            let position = cx.builder.add(before, one);
            let position = cx.builder.select(found, position, zero);
            return Ok(integer(cx, position, valid, Range { min: 0, max: i32::MAX.into() }));
        }
    };
    let answer = cx.builder.call(answer, &arguments);
    Ok(boolean(answer, valid))
}

/// Lowers REPLACE(text, from, to): every occurrence, from the left; none where `from` is empty.
pub(in crate::lower) fn replace(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let [input, from, to] = arguments else { return unsupported("replace takes three arguments") };
    let (input, input_valid) = lower_plain(cx, input)?;
    let (from, from_valid) = lower_plain(cx, from)?;
    let (to, to_valid) = lower_plain(cx, to)?;
    let valid = both(cx, input_valid, from_valid);
    let valid = both(cx, valid, to_valid);
    let length = length_where(cx, &input, valid);
    let replace = replace_function(cx);
    let arguments = [input.data, length, from.data, from.length, to.data, to.length];
    let count_only = cx.builder.bool(true);
    if cx.text_margin() {
        let text = replace_at_once(cx, replace, &arguments, count_only);
        return Ok(Lowered { repr: Repr::Text(text), valid, range: None });
    }
    let needed = cx.builder.call(replace, &[&arguments[..], &[input.data, count_only]].concat());
    let text = make(cx, needed, |cx, target| {
        let write = cx.builder.bool(false);
        cx.builder.call(replace, &[&arguments[..], &[target, write]].concat());
    });
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// REPLACE with a margin: the bytes are counted before they are written only where they may be many.
fn replace_at_once(
    cx: &mut Context<'_>,
    replace: Handle<Function>,
    arguments: &[V; 6],
    count_only: V,
) -> Text {
    let &[data, length, _, _, _, to_length] = arguments;
    let b = &mut *cx.builder;
    // Of each byte no more than the new text and itself.
    let [wide, to] = [length, to_length].map(|length| b.convert(length, Scalar::U64));
    let new = b.mul(wide, to);
    let most = b.add(wide, new);
    let is_large = b.gt_int(most, MOST_UNCOUNTED);
    let bytes = b.var_of("bytes", most);
    cx.begin_if(is_large);
    let counted = cx.builder.call(replace, &[&arguments[..], &[data, count_only]].concat());
    cx.builder.assign(bytes, counted);
    cx.end();
    let most = cx.builder.read(bytes);
    make_up_to(cx, most, |cx, target| {
        let write = cx.builder.bool(false);
        cx.builder.call(replace, &[&arguments[..], &[target, write]].concat())
    })
}

/// Writes a text with its occurrences of `from` replaced, or only counts the bytes that it would have.
fn replace_function(cx: &mut Context<'_>) -> Handle<Function> {
    let (find, copy) = (find_function(cx), copy_function(cx, Case::Keep));
    let params = [
        ("text", POINTER),
        ("length", Type::U32),
        ("from", POINTER),
        ("from_length", Type::U32),
        ("to", POINTER),
        ("to_length", Type::U32),
        ("target", POINTER),
        ("count_only", Type::Scalar(Scalar::Bool)),
    ];
    function(cx, "text_replace", &params, Scalar::U64, |b| {
        let [data, length, from, from_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let [to, to_length, target, count_only] = [4, 5, 6, 7].map(|index| b.param(index));
        let (zero, nothing) = (b.u32(0), b.u64(0));
        let (place, written) = (b.var_of("place", zero), b.var_of("written", nothing));
        let writes = b.not(count_only);
        let empty = b.eq(from_length, zero);
        b.begin_loop();
        let current = b.read(place);
        let found = b.call(find, &[data, length, from, from_length, current]);
        let nowhere = b.u32(NOWHERE);
        let found = b.select(empty, nowhere, found);
        let end = b.binary(BinaryOp::Min, found, length);
        let kept = b.sub(end, current);
        let append = |b: &mut Builder, source: V, bytes: V| {
            let before = b.read(written);
            b.begin_if(writes);
            let target = b.offset(target, before);
            b.call(copy, &[target, source, bytes]);
            b.end();
            let bytes = b.convert(bytes, Scalar::U64);
            let after = b.add(before, bytes);
            b.assign(written, after);
        };
        let source = b.offset(data, current);
        append(b, source, kept);
        let last = b.eq(found, nowhere);
        b.break_if(last);
        append(b, to, to_length);
        let next = b.add(found, from_length);
        b.assign(place, next);
        b.end();
        let written = b.read(written);
        b.return_value(written);
    })
}

/// Lowers REPEAT(text, count).
pub(in crate::lower) fn repeat(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let [input, count] = arguments else { return unsupported("repeat takes two arguments") };
    let (input, input_valid) = lower_plain(cx, input)?;
    let (count, count_valid) = lower_int(cx, count)?;
    let valid = both(cx, input_valid, count_valid);
    let register = cx.builder.scalar(count.value);
    // More than the longest text, and nothing overflows.
    let (none, most) = (cx.builder.zero(register), cx.builder.int(register, i32::MAX));
    let times = cx.builder.binary(BinaryOp::Max, count.value, none);
    let times = cx.builder.binary(BinaryOp::Min, times, most);
    let times = cx.builder.convert(times, Scalar::U64);
    let length = length_where(cx, &input, valid);
    let wide = cx.builder.convert(length, Scalar::U64);
    let total = cx.builder.mul(wide, times);
    let text = make(cx, total, |cx, target| {
        let repeat = repeat_function(cx);
        let total = cx.builder.convert(total, Scalar::U32);
        cx.builder.call(repeat, &[target, input.data, length, total]);
    });
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// Writes `total` bytes: a text again and again.
pub(in crate::lower) fn repeat_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("target", POINTER), ("text", POINTER), ("length", Type::U32), ("total", Type::U32)];
    if cx.text_margin() {
        let copy = copy_function(cx, Case::Keep);
        return function(cx, "text_repeat_words", &params, Scalar::U32, |b| repeat_words(b, copy));
    }
    function(cx, "text_repeat", &params, Scalar::U32, |b| {
        let [target, data, length, total] = [0, 1, 2, 3].map(|index| b.param(index));
        count_up(b, total, |b, index| {
            let place = b.rem(index, length);
            let byte = b.offset(data, place);
            let byte = b.load(byte);
            let target = b.offset(target, index);
            b.store(target, byte);
        });
        b.return_value(total);
    })
}

/// The body of [`repeat_function`] with a margin: a single byte fills words, of several the first are copied and then those that were
/// written, so that there are twice as many after each step.
fn repeat_words(b: &mut Builder, copy: Handle<Function>) {
    let [target, data, length, total] = [0, 1, 2, 3].map(|index| b.param(index));
    let (zero, one) = (b.u32(0), b.u32(1));
    let nothing = b.eq(total, zero);
    b.begin_if(nothing);
    b.return_value(total);
    b.end();
    let is_byte = b.eq(length, one);
    b.begin_if(is_byte);
    let byte = b.load(data);
    let byte = b.convert(byte, Scalar::U64);
    let word = with(b, BinaryOp::Mul, byte, ONES);
    let place = b.var_of("place", zero);
    b.begin_loop();
    let current = b.read(place);
    let done = b.ge(current, total);
    b.break_if(done);
    let to = b.offset(target, current);
    b.store_bytes(to, word);
    advance(b, place, 8);
    b.end();
    b.return_value(total);
    b.end();
    let first = b.binary(BinaryOp::Min, length, total);
    b.call(copy, &[target, data, first]);
    let written = b.var_of("written", first);
    b.begin_loop();
    let current = b.read(written);
    let done = b.ge(current, total);
    b.break_if(done);
    let missing = b.sub(total, current);
    let next = b.binary(BinaryOp::Min, current, missing);
    let to = b.offset(target, current);
    b.call(copy, &[to, target, next]);
    let after = b.add(current, next);
    b.assign(written, after);
    b.end();
    b.return_value(total);
}

/// Lowers REVERSE: the characters from the last to the first.
pub(in crate::lower) fn reverse(cx: &mut Context<'_>, input: &Expr) -> Result<Lowered, Unsupported> {
    let (input, valid) = lower_plain(cx, input)?;
    let length = length_where(cx, &input, valid);
    let wide = cx.builder.convert(length, Scalar::U64);
    let text = make(cx, wide, |cx, target| {
        let params = [("target", POINTER), ("text", POINTER), ("length", Type::U32)];
        let is_ascii = cx.text_margin().then(|| is_ascii_function(cx));
        let reverse = function(cx, "text_reverse", &params, Scalar::U32, |b| {
            let [target, data, length] = [0, 1, 2].map(|index| b.param(index));
            if let Some(is_ascii) = is_ascii {
                reverse_words(b, is_ascii);
            }
            let zero = b.u32(0);
            let (start, end) = (b.var_of("start", zero), b.var_of("end", zero));
            b.begin_loop();
            let place = b.read(start);
            let done = b.ge(place, length);
            b.break_if(done);
            next_character(b, data, length, end);
            let next = b.read(end);
            let width = b.sub(next, place);
            let mirrored = b.sub(length, next);
            count_up(b, width, |b, index| {
                let source = b.add(place, index);
                let byte = byte(b, data, source, Case::Keep);
                let byte = b.convert(byte, Scalar::U8);
                let to = b.add(mirrored, index);
                let to = b.offset(target, to);
                b.store(to, byte);
            });
            b.assign(start, next);
            b.end();
            b.return_value(length);
        });
        cx.builder.call(reverse, &[target, input.data, length]);
    });
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// Returns from REVERSE of a text of ASCII with a margin, whose words are written from the last to the first.
fn reverse_words(b: &mut Builder, is_ascii: Handle<Function>) {
    let [target, data, length] = [0, 1, 2].map(|index| b.param(index));
    let ascii = b.call(is_ascii, &[data, length]);
    b.begin_if(ascii);
    let eight = b.u32(8);
    let left = b.var_of("left", length);
    b.begin_loop();
    let current = b.read(left);
    let short = b.lt(current, eight);
    b.break_if(short);
    let next = b.sub(current, eight);
    reverse_word(b, (data, next), (target, length, current), eight);
    b.assign(left, next);
    b.end();
    let (rest, zero) = (b.read(left), b.u32(0));
    let has_rest = b.ne(rest, zero);
    b.begin_if(has_rest);
    reverse_word(b, (data, zero), (target, length, rest), rest);
    b.end();
    b.return_value(length);
    b.end();
}

/// Writes the `count` bytes (1 to 8) from `start` on, which end at `end`, in the other order to where they come from the end.
fn reverse_word(b: &mut Builder, (data, start): (V, V), (target, length, end): (V, V, V), count: V) {
    let source = b.offset(data, start);
    let word = b.load_bytes(source);
    let word = reversed(b, word);
    let eight = b.u32(8);
    let others = b.sub(eight, count);
    let shift = bits_of(b, others);
    let word = b.binary(BinaryOp::Shr, word, shift);
    let place = b.sub(length, end);
    let to = b.offset(target, place);
    b.store_bytes(to, word);
}
