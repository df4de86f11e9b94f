//! Text: equality and order by bytes, lengths, substrings, case. Loops over bytes are device functions, one a pair of
//! case mappings, made when first needed.

mod byte_table;
pub(super) mod cast_float;
pub(super) mod cast_text;
pub(super) mod digits;
pub(super) mod format;
pub(super) mod hashing;
pub(super) mod heap;
pub(super) mod letters;
pub(super) mod like;
pub(super) mod matching;
pub(super) mod needle;
pub(super) mod pad;
pub(super) mod parsing;
pub(super) mod regex;
pub(super) mod run;
pub(super) mod search;
pub(super) mod slices;
pub(super) mod swar;
pub(super) mod unicode;
pub(super) mod words;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, OverflowOp, Scalar, Type};

use self::swar::{first_bytes, with_case};
use crate::context::{Case, Context, Lowered, Repr, Status, Text, Unsupported};
use crate::expr::Expr;
use crate::lower::value::{Int, both, checked, constant, integer, lower_int, report, text, unsupported};
use crate::types::Range;

const POINTER: Type = Type::global(Scalar::U8);

/// The device function of this name, built when first asked for.
pub(in crate::lower) fn function(
    cx: &mut Context<'_>,
    name: &str,
    params: &[(&str, Type)],
    result: Scalar,
    build: impl FnOnce(&mut Builder),
) -> Handle<Function> {
    let known = cx.builder.module().functions.iter().find(|(_, function)| function.name == name);
    if let Some((handle, _)) = known {
        return handle;
    }
    cx.builder.begin_function(name, params, Some(Type::Scalar(result)));
    build(cx.builder);
    cx.builder.end_function()
}

/// Byte `index` of a text as `u32`, with its case mapping.
pub(in crate::lower) fn byte(b: &mut Builder, data: V, index: V, case: Case) -> V {
    // A plain load: the kernel itself may have written the text.
    let place = b.offset(data, index);
    let stored = b.load(place);
    let byte = b.convert(stored, Scalar::U32);
    let (first, offset) = match case {
        Case::Keep => return byte,
        Case::Upper => (u32::from(b'a'), 32u32.wrapping_neg()),
        Case::Lower => (u32::from(b'A'), 32),
    };
    let letter = b.sub_int(byte, first);
    let is_letter = b.lt_int(letter, 26);
    let mapped = b.add_int(byte, offset);
    b.select(is_letter, mapped, byte)
}

pub(in crate::lower) fn case_name(case: Case) -> &'static str {
    match case {
        Case::Keep => "",
        Case::Upper => "_upper",
        Case::Lower => "_lower",
    }
}

/// `for index in 0..count`: the body may return from the function.
pub(in crate::lower) fn count_up(b: &mut Builder, count: V, body: impl FnOnce(&mut Builder, V)) {
    let zero = b.u32(0);
    let counter = b.var_of("i", zero);
    b.begin_loop();
    let index = b.read(counter);
    let end = b.ge(index, count);
    b.break_if(end);
    body(b, index);
    increment(b, counter);
    b.end();
}

/// `var += 1` for `u32`.
pub(in crate::lower) fn increment(b: &mut Builder, var: Var) {
    let (value, one) = (b.read(var), b.u32(1));
    let next = b.add(value, one);
    b.assign(var, next);
}

/// `if condition { return value }`
pub(in crate::lower) fn return_bool_if(b: &mut Builder, condition: V, value: bool) {
    b.begin_if(condition);
    let value = b.bool(value);
    b.return_value(value);
    b.end();
}

pub(in crate::lower) const TEXT_PAIR: [(&str, Type); 4] =
    [("a", POINTER), ("a_length", Type::U32), ("b", POINTER), ("b_length", Type::U32)];

/// Compares two lowered texts by their bytes.
pub(in crate::lower) fn compare(
    cx: &mut Context<'_>,
    op: CompareOp,
    a: &Lowered,
    b: &Lowered,
) -> Result<V, Unsupported> {
    let (a, b) = (text(a)?, text(b)?);
    let arguments = [a.data, a.length, b.data, b.length];
    match op {
        CompareOp::Eq | CompareOp::Ne => {
            let equal = equal_function(cx, a.case, b.case);
            let equal = cx.builder.call(equal, &arguments);
            Ok(if op == CompareOp::Eq { equal } else { cx.builder.not(equal) })
        }
        _ => {
            let order = order_function(cx, a.case, b.case);
            let order = cx.builder.call(order, &arguments);
            let zero = cx.builder.i32(0);
            Ok(cx.builder.compare(op, order, zero))
        }
    }
}

/// -1, 0 or 1 (`i32`) as `a` is less than, equal to or greater than `b` by bytes.
pub fn order(cx: &mut Context<'_>, a: &Text, b: &Text) -> V {
    let function = order_function(cx, a.case, b.case);
    cx.builder.call(function, &[a.data, a.length, b.data, b.length])
}

/// Whether two texts have the same bytes.
pub fn text_equal(cx: &mut Context<'_>, a: &Text, b: &Text) -> V {
    let equal = equal_function(cx, a.case, b.case);
    cx.builder.call(equal, &[a.data, a.length, b.data, b.length])
}

fn equal_function(cx: &mut Context<'_>, a_case: Case, b_case: Case) -> Handle<Function> {
    if (a_case, b_case) == (Case::Keep, Case::Keep) {
        return words::equal_function(cx);
    }
    let margin = cx.text_margin();
    let name = format!("text_equal{}{}", case_name(a_case), second_name(b_case));
    function(cx, &name, &TEXT_PAIR, Scalar::Bool, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let different = b.ne(a_length, b_length);
        return_bool_if(b, different, false);
        let zero = b.u32(0);
        let place = b.var_of("place", zero);
        let other = |b: &mut Builder, left: V, current: V, count: Option<V>| {
            let left = with_case(b, left, a_case);
            let right = words::mapped_word(b, b_data, current, b_case);
            let right = count.map_or(right, |count| first_bytes(b, right, count));
            let different = b.ne(left, right);
            return_bool_if(b, different, false);
        };
        words::each_word(b, a_data, a_length, place, |b, left, current| other(b, left, current, None));
        if margin {
            let current = b.read(place);
            let count = b.sub(a_length, current);
            words::last_word(b, true, (a_data, a_length), place, |b, left, _| {
                other(b, left, current, Some(count));
            });
        } else {
            words::each_byte(b, (a_data, a_case), a_length, place, |b, left, current| {
                let right = byte(b, b_data, current, b_case);
                let different = b.ne(left, right);
                return_bool_if(b, different, false);
            });
        }
        let equal = b.bool(true);
        b.return_value(equal);
    })
}

/// -1, 0 or 1 as a < b, a = b, a > b.
pub(in crate::lower) fn order_function(cx: &mut Context<'_>, a_case: Case, b_case: Case) -> Handle<Function> {
    if (a_case, b_case) == (Case::Keep, Case::Keep) {
        return words::order_function(cx);
    }
    let name = format!("text_order{}{}", case_name(a_case), second_name(b_case));
    function(cx, &name, &TEXT_PAIR, Scalar::I32, |b| {
        let [a_data, a_length, b_data, b_length] = [0, 1, 2, 3].map(|index| b.param(index));
        let shorter = b.binary(BinaryOp::Min, a_length, b_length);
        count_up(b, shorter, |b, index| {
            let (left, right) = (byte(b, a_data, index, a_case), byte(b, b_data, index, b_case));
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

fn second_name(case: Case) -> String {
    match case {
        Case::Keep => String::new(),
        other => format!("_with{}", case_name(other)),
    }
}

/// -1, 0 or 1 as a < b, a = b, a > b.
pub(in crate::lower) fn sign(b: &mut Builder, left: V, right: V) -> V {
    let (minus_one, zero, one) = (b.i32(-1), b.i32(0), b.i32(1));
    let (less, greater) = (b.lt(left, right), b.compare(CompareOp::Gt, left, right));
    let order = b.select(greater, one, zero);
    b.select(less, minus_one, order)
}

/// Reports a fallback where a text is not ASCII.
pub(in crate::lower) fn require_ascii(cx: &mut Context<'_>, text: &Text, valid: Option<V>) {
    let is_ascii = words::is_ascii_function(cx);
    let ascii = cx.builder.call(is_ascii, &[text.data, text.length]);
    let beyond = cx.builder.not(ascii);
    report(cx, beyond, valid, Status::Fallback);
}

/// Bounds of a length.
const LENGTHS: Range = Range { min: 0, max: i32::MAX as i128 };

/// Lowers OCTET_LENGTH.
pub(in crate::lower) fn octet_length(cx: &mut Context<'_>, input: &Expr) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let text = text(&value)?;
    Ok(integer(cx, text.length, value.valid, LENGTHS))
}

/// Whether a byte (`u32`) continues a UTF-8 character.
pub(in crate::lower) fn continues(b: &mut Builder, byte: V) -> V {
    let (mask, continuation) = (b.u32(0xC0), b.u32(0x80));
    let masked = b.and(byte, mask);
    b.eq(masked, continuation)
}

/// Lowers CHARACTER_LENGTH.
pub(in crate::lower) fn character_length(cx: &mut Context<'_>, input: &Expr) -> Result<Lowered, Unsupported> {
    let value = cx.lower(input)?;
    let text = text(&value)?;
    let characters = words::characters_function(cx);
    let count = cx.builder.call(characters, &[text.data, text.length]);
    Ok(integer(cx, count, value.valid, LENGTHS))
}

/// An integer as a count of characters: negative ones are 0, and no text is longer than `u32`.
fn clamp_to_u32(cx: &mut Context<'_>, a: Int) -> V {
    let register = cx.builder.scalar(a.value);
    let mut value = a.value;
    if a.range.min < 0 {
        let zero = cx.builder.zero(register);
        value = cx.builder.binary(BinaryOp::Max, value, zero);
    }
    if a.range.max > i128::from(u32::MAX) {
        value = cx.builder.min_int(value, u32::MAX);
    }
    cx.builder.convert(value, Scalar::U32)
}

/// Lowers SUBSTR(text, start [, length]): characters start.. of the text that exist, 1-based.
pub(in crate::lower) fn substring(cx: &mut Context<'_>, arguments: &[Expr]) -> Result<Lowered, Unsupported> {
    let (input, start, length) = match arguments {
        [input, start] => (input, start, None),
        [input, start, length] => (input, start, Some(length)),
        _ => return unsupported("substr takes two or three arguments"),
    };
    let value = cx.lower(input)?;
    let text = text(&value)?;
    let (start, start_valid) = lower_int(cx, start)?;
    let mut valid = both(cx, value.valid, start_valid);
    let length = match length {
        Some(length) => {
            let (length, length_valid) = lower_int(cx, length)?;
            valid = both(cx, valid, length_valid);
            Some(length)
        }
        None => None,
    };
    report_substring_errors(cx, start, length, valid);
    let one = constant(cx, 1);
    let (skipped, _) = checked(cx, OverflowOp::Sub, start, one);
    let first = clamp_to_u32(cx, skipped);
    let prefix = words::prefix_function(cx);
    let start_byte = cx.builder.call(prefix, &[text.data, text.length, first]);
    let data = cx.builder.offset(text.data, start_byte);
    let rest = cx.builder.sub(text.length, start_byte);
    let length = match length {
        Some(length) => {
            let (end, _) = checked(cx, OverflowOp::Add, skipped, length);
            let end = clamp_to_u32(cx, end);
            let end = cx.builder.binary(BinaryOp::Max, end, first);
            let count = cx.builder.sub(end, first);
            cx.builder.call(prefix, &[data, rest, count])
        }
        None => rest,
    };
    let text = Text { data, length, case: text.case, code: None };
    Ok(Lowered { repr: Repr::Text(text), valid, range: None })
}

fn report_substring_errors(cx: &mut Context<'_>, start: Int, length: Option<Int>, valid: Option<V>) {
    if let Some(length) = length
        && length.range.min < 0
    {
        let register = cx.builder.scalar(length.value);
        let zero = cx.builder.zero(register);
        let negative = cx.builder.lt(length.value, zero);
        report(cx, negative, valid, Status::NegativeSubstringLength);
    }
    let lowest = i128::from(i64::MIN);
    if start.range.min <= lowest {
        let overflow = cx.builder.eq_int(start.value, lowest);
        report(cx, overflow, valid, Status::Overflow);
    }
}
