//! Parts of a text that need no new memory: trimming, the first and last characters.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Function, Handle, Scalar, Type, UnaryOp};

use super::heap::plain;
use super::like::next_character;
use super::words::{characters_function, prefix_function};
use super::{byte, continues, count_up, function, return_bool_if};
use crate::context::{Case, Context, Lowered, Repr, Text, Unsupported};
use crate::expr::{Expr, Side};
use crate::lower::literal;
use crate::lower::value::{Int, both, lower_int, text, unsupported};

const POINTER: Type = Type::global(Scalar::U8);
const TRIM_PARAMS: [(&str, Type); 4] =
    [("text", POINTER), ("length", Type::U32), ("set", POINTER), ("set_length", Type::U32)];

/// Lowers BTRIM, LTRIM and RTRIM: without the characters (a space, where none are given) at the ends.
pub(in crate::lower) fn trim(
    cx: &mut Context<'_>,
    side: Side,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let (input, set) = match arguments {
        [input] => (input, None),
        [input, set] => (input, Some(set)),
        _ => return unsupported("trim takes one or two arguments"),
    };
    let value = cx.lower(input)?;
    let set = match set {
        Some(set) => cx.lower(set)?,
        None => literal::text(cx, " "),
    };
    let input = text(&value)?;
    let (input, set_text) = (plain(cx, input, value.valid), text(&set)?);
    let set_text = plain(cx, set_text, set.valid);
    let Text { mut data, mut length, .. } = input;
    if side != Side::Right {
        let leading = leading_function(cx);
        let start = cx.builder.call(leading, &[data, length, set_text.data, set_text.length]);
        data = cx.builder.offset(data, start);
        length = cx.builder.sub(length, start);
    }
    if side != Side::Left {
        let trailing = trailing_function(cx);
        length = cx.builder.call(trailing, &[data, length, set_text.data, set_text.length]);
    }
    let text = Text { data, length, case: Case::Keep, code: None };
    Ok(Lowered { repr: Repr::Text(text), valid: both(cx, value.valid, set.valid), range: None })
}

/// Whether the character at a place of a text, of `width` bytes, is one of a set.
fn contained_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("character", POINTER), ("width", Type::U32), ("set", POINTER), ("set_length", Type::U32)];
    function(cx, "text_is_one_of", &params, Scalar::Bool, |b| {
        let [character, width, set, set_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let (zero, yes) = (b.u32(0), b.bool(true));
        let (same, compared) = (b.var_of("same", yes), b.var_of("compared", zero));
        // A character is compared byte by byte; the next one of the set starts where a byte does not continue it.
        count_up(b, set_length, |b, index| {
            let wanted = byte(b, set, index, Case::Keep);
            let inside = continues(b, wanted);
            let starts = b.not(inside);
            b.begin_if(starts);
            found_if(b, same, compared, width);
            b.assign(same, yes);
            b.assign(compared, zero);
            b.end();
            let position = b.read(compared);
            let beyond = b.ge(position, width);
            let clamped = b.select(beyond, zero, position);
            let byte = byte(b, character, clamped, Case::Keep);
            let different = b.ne(byte, wanted);
            let different = b.or(different, beyond);
            let equal = b.not(different);
            let before = b.read(same);
            let equal = b.and(before, equal);
            b.assign(same, equal);
            super::increment(b, compared);
        });
        found_if(b, same, compared, width);
        let no = b.bool(false);
        b.return_value(no);
    })
}

/// `if same && compared == width { return true }`
fn found_if(b: &mut Builder, same: Var, compared: Var, width: V) {
    let (same, compared) = (b.read(same), b.read(compared));
    let complete = b.eq(compared, width);
    let found = b.and(same, complete);
    return_bool_if(b, found, true);
}

/// Bytes of the characters at the start that are in the set.
fn leading_function(cx: &mut Context<'_>) -> Handle<Function> {
    let contained = contained_function(cx);
    function(cx, "text_trim_start", &TRIM_PARAMS, Scalar::U32, |b| {
        let [data, length, set, set_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let zero = b.u32(0);
        let (start, end) = (b.var_of("start", zero), b.var_of("end", zero));
        b.begin_loop();
        let place = b.read(start);
        let done = b.ge(place, length);
        b.break_if(done);
        next_character(b, data, length, end);
        let next = b.read(end);
        let width = b.sub(next, place);
        let character = b.offset(data, place);
        let found = b.call(contained, &[character, width, set, set_length]);
        let other = b.not(found);
        b.break_if(other);
        b.assign(start, next);
        b.end();
        let start = b.read(start);
        b.return_value(start);
    })
}

/// The length without the characters at the end that are in the set.
fn trailing_function(cx: &mut Context<'_>) -> Handle<Function> {
    let contained = contained_function(cx);
    function(cx, "text_trim_end", &TRIM_PARAMS, Scalar::U32, |b| {
        let [data, length, set, set_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let end = b.var_of("end", length);
        let start = b.var_of("start", length);
        let (zero, one) = (b.u32(0), b.u32(1));
        b.begin_loop();
        let last = b.read(end);
        let done = b.eq(last, zero);
        b.break_if(done);
        // Back to the start of the last character.
        b.begin_loop();
        let place = b.read(start);
        let before = b.sub(place, one);
        b.assign(start, before);
        let byte = byte(b, data, before, Case::Keep);
        let inside = continues(b, byte);
        let starts = b.not(inside);
        let first = b.eq(before, zero);
        let stop = b.or(starts, first);
        b.break_if(stop);
        b.end();
        let place = b.read(start);
        let width = b.sub(last, place);
        let character = b.offset(data, place);
        let found = b.call(contained, &[character, width, set, set_length]);
        let other = b.not(found);
        b.break_if(other);
        b.assign(end, place);
        b.end();
        let end = b.read(end);
        b.return_value(end);
    })
}

/// A count of characters as its size (`u32`, as no text is longer) and whether it is negative.
pub(in crate::lower) fn magnitude(cx: &mut Context<'_>, count: Int) -> (V, V) {
    let register = cx.builder.scalar(count.value);
    let limit = i128::from(i32::MAX);
    let b = &mut *cx.builder;
    let (low, high) = (b.int(register, -limit), b.int(register, limit));
    let clamped = b.binary(BinaryOp::Max, count.value, low);
    let clamped = b.binary(BinaryOp::Min, clamped, high);
    let clamped = b.convert(clamped, Scalar::I32);
    let negative = b.lt_int(clamped, 0);
    let negated = b.unary(UnaryOp::Neg, clamped);
    let size = b.select(negative, negated, clamped);
    (b.convert(size, Scalar::U32), negative)
}

/// Lowers LEFT and RIGHT: the first or last characters; with a negative count, all but those at the other end.
pub(in crate::lower) fn ends(
    cx: &mut Context<'_>,
    side: Side,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let [input, count] = arguments else { return unsupported("left and right take two arguments") };
    let value = cx.lower(input)?;
    let text = text(&value)?;
    let (count, count_valid) = lower_int(cx, count)?;
    let (size, negative) = magnitude(cx, count);
    let valid = both(cx, value.valid, count_valid);
    if side != Side::Right && count.range.min >= 0 {
        // No need to know how many there are.
        let prefix = prefix_function(cx);
        let length = cx.builder.call(prefix, &[text.data, text.length, size]);
        let text = Text { length, code: None, ..text };
        return Ok(Lowered { repr: Repr::Text(text), valid, range: None });
    }
    let characters = characters_function(cx);
    let all = cx.builder.call(characters, &[text.data, text.length]);
    let size = cx.builder.binary(BinaryOp::Min, size, all);
    let rest = cx.builder.sub(all, size);
    let prefix = prefix_function(cx);
    let text = match side {
        Side::Right => {
            let skipped = cx.builder.select(negative, size, rest);
            let start = cx.builder.call(prefix, &[text.data, text.length, skipped]);
            let data = cx.builder.offset(text.data, start);
            Text { data, length: cx.builder.sub(text.length, start), case: text.case, code: None }
        }
        _ => {
            let kept = cx.builder.select(negative, rest, size);
            let length = cx.builder.call(prefix, &[text.data, text.length, kept]);
            Text { length, code: None, ..text }
        }
    };
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}
