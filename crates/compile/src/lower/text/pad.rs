//! Text filled up to a length, and fields between delimiters.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type};

use super::heap::{copy, make};
use super::search::{lower_plain, repeat_function};
use super::slices::magnitude;
use super::words::{NOWHERE, characters_function, equal_function, find_function, prefix_function};
use super::{count_up, function};
use crate::context::{Case, Context, Lowered, Repr, Status, Text, Unsupported};
use crate::expr::Side;
use crate::expr::range;
use crate::expr::{Expr, ExprKind};
use crate::lower::literal;
use crate::lower::value::{Int, both, lower_int, report, unsupported};
use crate::types::Literal;

/// Lowers LPAD and RPAD(text, characters [, fill]): repetitions of the fill (a space) before or after the text up to
/// so many characters; a longer text is cut at its end.
pub(in crate::lower) fn pad(
    cx: &mut Context<'_>,
    side: Side,
    arguments: &[Expr],
) -> Result<Lowered, Unsupported> {
    let (input, count, fill) = match arguments {
        [input, count] => (input, count, None),
        [input, count, fill] => (input, count, Some(fill)),
        _ => return unsupported("padding takes two or three arguments"),
    };
    let (input, mut valid) = lower_plain(cx, input)?;
    let (count, count_valid) = lower_int(cx, count)?;
    valid = both(cx, valid, count_valid);
    let fill = match fill {
        Some(fill) => {
            let (fill, fill_valid) = lower_plain(cx, fill)?;
            valid = both(cx, valid, fill_valid);
            fill
        }
        None => literal::text_of_bytes(cx, b" "),
    };
    let wanted = count_of(cx, count, valid);
    let (characters, prefix) = (characters_function(cx), prefix_function(cx));
    let present = cx.builder.call(characters, &[input.data, input.length]);
    let kept = cx.builder.call(prefix, &[input.data, input.length, wanted]);
    let present = cx.builder.binary(BinaryOp::Min, present, wanted);
    let missing = cx.builder.sub(wanted, present);
    // Of an empty fill there is nothing: x / 0 and x % 0 are 0.
    let fill_characters = cx.builder.call(characters, &[fill.data, fill.length]);
    let (whole, rest) = (cx.builder.div(missing, fill_characters), cx.builder.rem(missing, fill_characters));
    let rest = cx.builder.call(prefix, &[fill.data, fill.length, rest]);
    let [whole, rest, width, kept_bytes] =
        [whole, rest, fill.length, kept].map(|number| cx.builder.convert(number, Scalar::U64));
    let padding = cx.builder.mul(whole, width);
    let padding = cx.builder.add(padding, rest);
    let mut total = cx.builder.add(padding, kept_bytes);
    if let Some(valid) = valid {
        let nothing = cx.builder.u64(0);
        total = cx.builder.select(valid, total, nothing);
    }
    let writes = cx.builder.ne_int(total, 0);
    let text = make(cx, total, |cx, target| {
        cx.begin_if(writes);
        let repeat = repeat_function(cx);
        let bytes = cx.builder.convert(padding, Scalar::U32);
        // Front to back, as what is written may go on behind its end.
        match side {
            Side::Right => {
                let behind = copy(cx, target, &input, kept);
                cx.builder.call(repeat, &[behind, fill.data, fill.length, bytes]);
            }
            _ => {
                cx.builder.call(repeat, &[target, fill.data, fill.length, bytes]);
                let behind = cx.builder.offset(target, bytes);
                copy(cx, behind, &input, kept);
            }
        }
        cx.end();
    });
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

/// A count of characters as `u32`: negative ones are 0, and what exceeds `i32` is DataFusion's error.
fn count_of(cx: &mut Context<'_>, count: Int, valid: Option<V>) -> V {
    let register = cx.builder.scalar(count.value);
    let (zero, most) = (cx.builder.zero(register), cx.builder.int(register, i32::MAX));
    if count.range.max > i128::from(i32::MAX) {
        let beyond = cx.builder.compare(CompareOp::Gt, count.value, most);
        report(cx, beyond, valid, Status::Fallback);
    }
    let count = cx.builder.binary(BinaryOp::Max, count.value, zero);
    let count = cx.builder.binary(BinaryOp::Min, count, most);
    cx.builder.convert(count, Scalar::U32)
}

/// Lowers SPLIT_PART(text, delimiter, position), positions from 1, or from -1 at the end.
pub(in crate::lower) fn split_part(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let [input, delimiter, position] = arguments else {
        return unsupported("split_part takes three arguments");
    };
    let is_constant = matches!(position.kind, ExprKind::Literal(Literal::Int(_)));
    let (input, input_valid) = lower_plain(cx, input)?;
    let (delimiter, delimiter_valid) = lower_plain(cx, delimiter)?;
    let (position, position_valid) = lower_int(cx, position)?;
    let given = both(cx, delimiter_valid, position_valid);
    let valid = both(cx, input_valid, given);
    let (number, from_end) = magnitude(cx, position);
    if range::contains(position.range, 0) {
        let nowhere = cx.builder.eq_int(number, 0);
        // DataFusion does not look at the texts where the position is the same for all.
        report(cx, nowhere, if is_constant { given } else { valid }, Status::Fallback);
    }
    let arguments = [input.data, input.length, delimiter.data, delimiter.length, number];
    let packed = match position.range {
        range if range.min > 0 => {
            let split = split_function(cx);
            cx.builder.call(split, &arguments)
        }
        range if range.max < 0 => {
            let split = split_from_end_function(cx);
            cx.builder.call(split, &arguments)
        }
        _ => {
            let (start, end) = (split_function(cx), split_from_end_function(cx));
            let from_start = cx.builder.not(from_end);
            let nothing = cx.builder.u64(0);
            let packed = cx.builder.var_of("field", nothing);
            for (condition, function) in [(from_start, start), (from_end, end)] {
                cx.begin_if(condition);
                let found = cx.builder.call(function, &arguments);
                cx.builder.assign(packed, found);
                cx.end();
            }
            cx.builder.read(packed)
        }
    };
    let start = cx.builder.shr_int(packed, 32);
    let length = cx.builder.convert(packed, Scalar::U32);
    let text = Text { data: cx.builder.offset(input.data, start), length, case: Case::Keep, code: None };
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

const SPLIT_PARAMS: [(&str, Type); 5] = [
    ("text", Type::global(Scalar::U8)),
    ("length", Type::U32),
    ("delimiter", Type::global(Scalar::U8)),
    ("delimiter_length", Type::U32),
    ("number", Type::U32),
];

/// `start` and `bytes` (both `u32`) in one word.
fn pack(b: &mut Builder, start: V, bytes: V) -> V {
    let [start, bytes] = [start, bytes].map(|number| b.convert(number, Scalar::U64));
    let start = b.shl_int(start, 32);
    b.or(start, bytes)
}

/// As [`split_function`], with fields counted from the end, where delimiters are looked for too.
fn split_from_end_function(cx: &mut Context<'_>) -> Handle<Function> {
    let find = find_last_function(cx);
    function(cx, "text_split_part_from_end", &SPLIT_PARAMS, Scalar::U64, |b| {
        let [data, length, delimiter, width, number] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        let (zero, one, nowhere) = (b.u32(0), b.u32(1), b.u32(NOWHERE));
        let empty = b.eq(width, zero);
        let (place, left) = (b.var_of("place", length), b.var_of("left", number));
        b.begin_loop();
        let end = b.read(place);
        let found = b.call(find, &[data, end, delimiter, width]);
        let found = b.select(empty, nowhere, found);
        let last = b.eq(found, nowhere);
        let remaining = b.read(left);
        let here = b.eq(remaining, one);
        b.begin_if(here);
        let behind = b.add(found, width);
        let start = b.select(last, zero, behind);
        let bytes = b.sub(end, start);
        let packed = pack(b, start, bytes);
        b.return_value(packed);
        b.end();
        b.break_if(last);
        b.assign(place, found);
        let remaining = b.sub(remaining, one);
        b.assign(left, remaining);
        b.end();
        let nothing = b.u64(0);
        b.return_value(nothing);
    })
}

/// The last place at which the pattern stands, or [`NOWHERE`].
fn find_last_function(cx: &mut Context<'_>) -> Handle<Function> {
    let equal = equal_function(cx);
    function(cx, "text_find_last", &SPLIT_PARAMS[..4], Scalar::U32, |b| {
        let [data, length, pattern, width] = [0, 1, 2, 3].map(|index| b.param(index));
        let nowhere = b.u32(NOWHERE);
        let short = b.lt(length, width);
        b.begin_if(short);
        b.return_value(nowhere);
        b.end();
        let (last, one) = (b.sub(length, width), b.u32(1));
        let places = b.add(last, one);
        count_up(b, places, |b, index| {
            let place = b.sub(last, index);
            let here = b.offset(data, place);
            let found = b.call(equal, &[here, width, pattern, width]);
            b.begin_if(found);
            b.return_value(place);
            b.end();
        });
        b.return_value(nowhere);
    })
}

/// Start (upper half) and length of a field; both 0 where there is none.
fn split_function(cx: &mut Context<'_>) -> Handle<Function> {
    let find = find_function(cx);
    function(cx, "text_split_part", &SPLIT_PARAMS, Scalar::U64, |b| {
        let [data, length, delimiter, width, number] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        let (zero, one, nowhere) = (b.u32(0), b.u32(1), b.u32(NOWHERE));
        // An empty delimiter splits nothing.
        let empty = b.eq(width, zero);
        let (place, left) = (b.var_of("place", zero), b.var_of("left", number));
        b.begin_loop();
        let start = b.read(place);
        let found = b.call(find, &[data, length, delimiter, width, start]);
        let found = b.select(empty, nowhere, found);
        let remaining = b.read(left);
        let here = b.eq(remaining, one);
        b.begin_if(here);
        let end = b.binary(BinaryOp::Min, found, length);
        let bytes = b.sub(end, start);
        let packed = pack(b, start, bytes);
        b.return_value(packed);
        b.end();
        let last = b.eq(found, nowhere);
        b.break_if(last);
        let next = b.add(found, width);
        b.assign(place, next);
        let remaining = b.sub(remaining, one);
        b.assign(left, remaining);
        b.end();
        let nothing = b.u64(0);
        b.return_value(nothing);
    })
}
