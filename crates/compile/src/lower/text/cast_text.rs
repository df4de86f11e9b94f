//! Casts from text to integers, booleans and dates, with the forms that Arrow's parsers accept.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builder, CompareOp, Function, Handle, Scalar, Type, UnaryOp};

use super::parsing::{Sign, digit_at, packed, return_if, value_of_form, with_digit};
use super::{byte, count_up, function};
use crate::context::{Case, Context, Lowered, Status, Text, Unsupported};
use crate::expr::range;
use crate::lower::cast::{Converted, bounded};
use crate::lower::value::{Int, boolean, report, text, unsupported};
use crate::types::{DataType, Range};

/// What a parser returns for text that is no value of the type.
const INVALID: i128 = i128::MIN;
/// What the parser of dates returns for one that no calendar has.
const NO_DAY: i128 = i128::MIN + 1;
const PARAMS: [(&str, Type); 2] = [("text", Type::global(Scalar::U8)), ("length", Type::U32)];

/// Parses a text.
pub(in crate::lower) fn parse(
    cx: &mut Context<'_>,
    value: &Lowered,
    to: &DataType,
) -> Result<Converted, Unsupported> {
    let text = text(value)?;
    match to {
        DataType::Boolean => {
            let (data, length) = trim(cx, &text);
            // Arrow trims any Unicode white space here.
            let space = unicode_space_function(cx);
            let more = cx.builder.call(space, &[data, length]);
            report(cx, more, value.valid, Status::Fallback);
            let parser = boolean_parser(cx);
            let code = cx.builder.call(parser, &[data, length]);
            let (zero, one) = (cx.builder.i32(0), cx.builder.i32(1));
            let bad = cx.builder.lt(code, zero);
            Ok(Converted { value: boolean(cx.builder.eq(code, one), None), bad: Some(bad) })
        }
        _ if to.is_integer() => {
            let (data, length) = trim(cx, &text);
            let parser = integer_parser(cx);
            let number = cx.builder.call(parser, &[data, length]);
            let number = Int { value: number, range: range::UNBOUNDED };
            Ok(bounded(cx, number, to.full_range().unwrap_or(range::UNBOUNDED)))
        }
        DataType::Date32 => {
            let parser = date_parser(cx);
            let days = cx.builder.call(parser, &[text.data, text.length]);
            let other = cx.builder.ne_int(days, NO_DAY);
            let days = Int { value: days, range: range::UNBOUNDED };
            let converted = bounded(cx, days, Range { min: -719_528, max: 2_932_896 });
            let Some(bad) = converted.bad else { return Ok(converted) };
            let perhaps = unusual_date_function(cx);
            let perhaps = cx.builder.call(perhaps, &[text.data, text.length]);
            let unknown = cx.builder.and(other, perhaps);
            let unknown = cx.builder.and(bad, unknown);
            report(cx, unknown, value.valid, Status::Fallback);
            let known = cx.builder.not(unknown);
            Ok(Converted { bad: Some(cx.builder.and(bad, known)), ..converted })
        }
        DataType::Float32 | DataType::Float64 => Ok(super::cast_float::parse(cx, &text, value.valid, to)),
        other => unsupported(format!("cast from Utf8 to {other}")),
    }
}

/// A text without ASCII white space at its ends.
pub(in crate::lower) fn trim(cx: &mut Context<'_>, text: &Text) -> (V, V) {
    let leading = trim_function(cx, "text_leading_space", |_, _, index| index);
    let trailing = trim_function(cx, "text_trailing_space", |b, length, index| {
        let last = b.sub_int(length, 1);
        b.sub(last, index)
    });
    let start = cx.builder.call(leading, &[text.data, text.length]);
    let data = cx.builder.offset(text.data, start);
    let length = cx.builder.sub(text.length, start);
    let end = cx.builder.call(trailing, &[data, length]);
    (data, cx.builder.sub(length, end))
}

/// How many bytes are white space, at the places that `place` gives from the length and 0, 1, ...
fn trim_function(
    cx: &mut Context<'_>,
    name: &str,
    place: impl FnOnce(&mut Builder, V, V) -> V,
) -> Handle<Function> {
    function(cx, name, &PARAMS, Scalar::U32, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        count_up(b, length, |b, index| {
            let place = place(b, length, index);
            let byte = byte(b, data, place, Case::Keep);
            let mut space = b.bool(false);
            for character in *b" \t\n\x0C\r" {
                let same = b.eq_int(byte, character);
                space = b.or(space, same);
            }
            let other = b.not(space);
            b.begin_if(other);
            b.return_value(index);
            b.end();
        });
        b.return_value(length);
    })
}

/// Whether a text may begin or end with white space that only Unicode knows: by the first byte of such a character, and where
/// it would stand for the last one.
fn unicode_space_function(cx: &mut Context<'_>) -> Handle<Function> {
    // U+000B; U+0085 and U+00A0; U+1680, U+2000 to U+205F and U+3000.
    const LEADS: [(u32, &[u8]); 3] = [(1, &[0x0B]), (2, &[0xC2]), (3, &[0xE1, 0xE2, 0xE3])];
    function(cx, "unicode_space", &PARAMS, Scalar::Bool, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        for (bytes, leads) in LEADS {
            let size = b.u32(bytes);
            let fits = b.ge(length, size);
            b.begin_if(fits);
            let (first, last) = (b.u32(0), b.sub(length, size));
            for place in [first, last] {
                let byte = byte(b, data, place, Case::Keep);
                for lead in leads {
                    let same = b.eq_int(byte, *lead);
                    b.begin_if(same);
                    let yes = b.bool(true);
                    b.return_value(yes);
                    b.end();
                }
            }
            b.end();
        }
        let no = b.bool(false);
        b.return_value(no);
    })
}

/// `if condition { return INVALID }`
fn invalid_if(b: &mut Builder, condition: V) {
    return_if(b, condition, Scalar::I128, INVALID);
}

/// An optional sign and at least one digit, nothing else; `i128`, [`INVALID`] where it is none or beyond 2^64.
fn integer_parser(cx: &mut Context<'_>) -> Handle<Function> {
    function(cx, "parse_integer", &PARAMS, Scalar::I128, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let zero = b.u32(0);
        let empty = b.eq(length, zero);
        invalid_if(b, empty);
        let sign = Sign::at(b, data, zero);
        let start = sign.width(b);
        let only_sign = b.eq(length, start);
        invalid_if(b, only_sign);
        let digits = b.sub(length, start);
        let nothing = b.int(Scalar::I128, 0);
        let total = b.var_of("total", nothing);
        count_up(b, digits, |b, index| {
            let place = b.add(start, index);
            let digit = digit_at(b, data, place);
            let no_digit = b.ge_int(digit, 10);
            invalid_if(b, no_digit);
            let sum = with_digit(b, total, Scalar::I128, digit);
            let limit = b.int(Scalar::I128, 1i128 << 64);
            let beyond = b.ge(sum, limit);
            invalid_if(b, beyond);
            b.assign(total, sum);
        });
        let sum = b.read(total);
        let negated = b.unary(UnaryOp::Neg, sum);
        let result = b.select(sign.is_minus, negated, sum);
        b.return_value(result);
    })
}

/// 0 or 1, or -1: prefixes of true, false, yes, no, on, off (each as long as it is unique), 1, 0; in any case.
fn boolean_parser(cx: &mut Context<'_>) -> Handle<Function> {
    const FORMS: [(&str, i32); 20] = [
        ("t", 1),
        ("tr", 1),
        ("tru", 1),
        ("true", 1),
        ("y", 1),
        ("ye", 1),
        ("yes", 1),
        ("on", 1),
        ("1", 1),
        ("f", 0),
        ("fa", 0),
        ("fal", 0),
        ("fals", 0),
        ("false", 0),
        ("n", 0),
        ("no", 0),
        ("of", 0),
        ("off", 0),
        ("0", 0),
        ("", -1),
    ];
    function(cx, "parse_boolean", &PARAMS, Scalar::I32, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let long = b.gt_int(length, 5);
        b.begin_if(long);
        let no = b.i32(-1);
        b.return_value(no);
        b.end();
        let packed = packed(b, data, None, length);
        let other = b.i32(-1);
        let result = value_of_form(b, packed, &FORMS, Builder::i32, other);
        b.return_value(result);
    })
}

/// Whether a text that is no usual date may be one to Arrow, which also takes timestamps, signed years of at least four digits,
/// and, by its bit masks, some trailing characters: the digits that it begins with end in a hyphen.
fn unusual_date_function(cx: &mut Context<'_>) -> Handle<Function> {
    function(cx, "unusual_date", &PARAMS, Scalar::Bool, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (no, shortest, zero) = (b.bool(false), b.u32(8), b.u32(0));
        let short = b.lt(length, shortest);
        b.begin_if(short);
        b.return_value(no);
        b.end();
        let (first, minus, plus) = (byte(b, data, zero, Case::Keep), b.u32(b'-'.into()), b.u32(b'+'.into()));
        let (negative, positive) = (b.eq(first, minus), b.eq(first, plus));
        let signed = b.or(negative, positive);
        let start = b.convert(signed, Scalar::U32);
        let rest = b.sub(length, start);
        count_up(b, rest, |b, index| {
            let place = b.add(start, index);
            let (digit, ten) = (digit_at(b, data, place), b.u32(10));
            let ends = b.ge(digit, ten);
            b.begin_if(ends);
            let (end, hyphen, four) = (byte(b, data, place, Case::Keep), b.u32(b'-'.into()), b.u32(4));
            let (parted, year) = (b.eq(end, hyphen), b.eq(index, four));
            let long = b.compare(CompareOp::Gt, index, four);
            let long = b.and(long, signed);
            let year = b.or(year, long);
            let perhaps = b.and(parted, year);
            b.return_value(perhaps);
            b.end();
        });
        b.return_value(no);
    })
}

/// Variables of the date parser.
struct DateState {
    /// There are hyphens.
    parted: V,
    /// 0 in the year, 1 in the month, 2 in the day.
    field: Var,
    /// Digits of the field so far.
    digits: Var,
    /// Year, month, day so far.
    parts: [Var; 3],
}

impl DateState {
    /// One more digit; a field that is full after four (two) digits is followed by the next one where nothing parts them.
    fn digit(&self, b: &mut Builder, digit: V) {
        let (current, count) = (b.read(self.field), b.read(self.digits));
        let (zero, one, two, four, ten) = (b.u32(0), b.u32(1), b.u32(2), b.u32(4), b.u32(10));
        let in_year = b.eq(current, zero);
        let width = b.select(in_year, four, two);
        let full = b.ge(count, width);
        let must_part = b.and(full, self.parted);
        invalid_if(b, must_part);
        let following = b.add(current, one);
        let current = b.select(full, following, current);
        let count = b.select(full, zero, count);
        let count = b.add(count, one);
        b.assign(self.field, current);
        b.assign(self.digits, count);
        for (number, var) in (0u32..).zip(self.parts) {
            let here = b.eq_int(current, number);
            let before = b.read(var);
            let shifted = b.mul(before, ten);
            let next = b.add(shifted, digit);
            let next = b.select(here, next, before);
            b.assign(var, next);
        }
    }

    /// What is no digit must be a hyphen between two fields.
    fn hyphen(&self, b: &mut Builder, data: V, index: V) {
        let (byte, hyphen) = (byte(b, data, index, Case::Keep), b.u32(b'-'.into()));
        let other = b.ne(byte, hyphen);
        let unparted = b.not(self.parted);
        let (current, count) = (b.read(self.field), b.read(self.digits));
        let (zero, one, two) = (b.u32(0), b.u32(1), b.u32(2));
        let (nothing, last) = (b.eq(count, zero), b.ge(current, two));
        let wrong = [unparted, nothing, last].into_iter().fold(other, |wrong, next| b.or(wrong, next));
        invalid_if(b, wrong);
        let next = b.add(current, one);
        b.assign(self.field, next);
        b.assign(self.digits, zero);
    }
}

/// `YYYY-MM-DD` (month and day of one or two digits) or `YYYYMMDD` as days; [`INVALID`] for what is none, [`NO_DAY`] for
/// a day that there is not.
fn date_parser(cx: &mut Context<'_>) -> Handle<Function> {
    let days = crate::lower::civil::days_function(cx);
    function(cx, "parse_date", &PARAMS, Scalar::I128, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (shortest, longest) = (b.u32(8), b.u32(10));
        let (short, long) = (b.lt(length, shortest), b.compare(CompareOp::Gt, length, longest));
        let wrong = b.or(short, long);
        invalid_if(b, wrong);
        // Up to two hyphens part the digits into three numbers; without any, their lengths do.
        let zero = b.u32(0);
        let [field, year, month, day] = ["field", "year", "month", "day"].map(|name| b.var_of(name, zero));
        let digits = b.var_of("digits", zero);
        let four = b.u32(4);
        let fifth = byte(b, data, four, Case::Keep);
        let hyphen = b.u32(b'-'.into());
        let parted = b.eq(fifth, hyphen);
        let not_eight = b.ne_int(length, 8);
        let plain = b.not(parted);
        let wrong = b.and(plain, not_eight);
        invalid_if(b, wrong);
        let state = DateState { parted, field, digits, parts: [year, month, day] };
        count_up(b, length, |b, index| {
            let digit = digit_at(b, data, index);
            let is_digit = b.lt_int(digit, 10);
            b.begin_if(is_digit);
            state.digit(b, digit);
            b.begin_else();
            state.hyphen(b, data, index);
            b.end();
        });
        let (field, digits, two) = (b.read(field), b.read(digits), b.u32(2));
        let (zero, missing) = (b.u32(0), b.ne(field, two));
        let unfinished = b.eq(digits, zero);
        let wrong = b.or(missing, unfinished);
        invalid_if(b, wrong);
        let parts = [year, month, day].map(|var| {
            let value = b.read(var);
            b.convert(value, Scalar::I32)
        });
        let days = b.call(days, &parts);
        let wrong = b.eq_int(days, i32::MIN);
        return_if(b, wrong, Scalar::I128, NO_DAY);
        let days = b.convert(days, Scalar::I128);
        b.return_value(days);
    })
}
