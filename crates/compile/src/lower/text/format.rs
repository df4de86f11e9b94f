//! Casts to text: integers, decimals, booleans and dates as Arrow writes them.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type, UnaryOp};

use super::digits::{self, Digits};
use super::function;
use super::heap::make;
use crate::context::{Case, Context, Lowered, Repr, Status, Text, Unsupported};
use crate::lower::civil::{self, CalendarPart};
use crate::lower::value::{Int, int, report, scalar, unsupported};
use crate::types::DataType;

/// Days of the years 0 to 9999: others are written with a sign.
const FOUR_DIGIT_YEARS: (i32, i32) = (-719_528, 2_932_896);

/// The text of a value.
pub(in crate::lower) fn to_text(
    cx: &mut Context<'_>,
    value: &Lowered,
    from: &DataType,
) -> Result<Text, Unsupported> {
    match from {
        DataType::Boolean => {
            let value = scalar(value)?;
            Ok(boolean(cx, value))
        }
        DataType::Date32 => {
            let days = int(value)?;
            Ok(date(cx, days, value.valid))
        }
        DataType::Decimal128 { scale, .. } if *scale >= 0 => {
            let number = int(value)?;
            Ok(number_text(cx, number, *scale as u32, value.valid))
        }
        _ if from.is_integer() => {
            let number = int(value)?;
            Ok(number_text(cx, number, 0, value.valid))
        }
        _ => unsupported(format!("cast from {from} to Utf8")),
    }
}

fn boolean(cx: &mut Context<'_>, value: V) -> Text {
    let words = cx.bytes(b"truefalse");
    let [zero, four, five] = [0, 4, 5].map(|number| cx.builder.u32(number));
    let start = cx.builder.select(value, zero, four);
    let length = cx.builder.select(value, four, five);
    Text { data: cx.builder.offset(words, start), length, case: Case::Keep, code: None }
}

/// A number with `scale` digits behind the point, and one before it at least.
fn number_text(cx: &mut Context<'_>, number: Int, scale: u32, valid: Option<V>) -> Text {
    // The magnitude of every `i64` is a `u64`, that of every other value (a decimal, or a `UInt64`) an `i128`.
    let fits = number.range.min >= i128::from(i64::MIN) && number.range.max <= i128::from(i64::MAX);
    let (signed, register) = if fits { (Scalar::I64, Scalar::U64) } else { (Scalar::I128, Scalar::I128) };
    let value = cx.builder.convert(number.value, signed);
    let zero = cx.builder.zero(signed);
    let negative = cx.builder.lt(value, zero);
    let negated = cx.builder.unary(UnaryOp::Neg, value);
    let magnitude = cx.builder.select(negative, negated, value);
    let magnitude = cx.builder.convert(magnitude, register);
    if cx.text_margin() && fits && scale <= digits::MOST_FRACTION {
        let most = number.range.min.unsigned_abs().max(number.range.max.unsigned_abs());
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        return number_of_words(cx, (negative, magnitude, most), scale, valid);
    }
    let count = digits_function(cx, register);
    let least = cx.builder.u32(scale + 1);
    let digits = cx.builder.call(count, &[magnitude]);
    let digits = cx.builder.binary(BinaryOp::Max, digits, least);
    let sign = cx.builder.convert(negative, Scalar::U32);
    let point = cx.builder.u32(u32::from(scale > 0));
    let length = cx.builder.add(digits, sign);
    let length = cx.builder.add(length, point);
    let length = where_valid(cx, length, valid);
    let write = write_function(cx, register);
    let fraction = cx.builder.u32(scale);
    make_valid(cx, length, valid, |cx, target| {
        cx.builder.call(write, &[target, magnitude, negative, digits, fraction]);
    })
}

/// [`number_text`] of a magnitude (`u64`) up to `most`, and whether it is `negative`, eight digits at once.
fn number_of_words(
    cx: &mut Context<'_>,
    (negative, magnitude, most): (V, V, u64),
    scale: u32,
    valid: Option<V>,
) -> Text {
    let unit = 10u64.pow(scale);
    let most = most / unit;
    let unit = cx.builder.u64(unit);
    let whole = if scale > 0 { cx.builder.div(magnitude, unit) } else { magnitude };
    let digits = Digits::of(cx.builder, whole, most);
    let sign = cx.builder.convert(negative, Scalar::U32);
    let point = cx.builder.u32(if scale > 0 { scale + 1 } else { 0 });
    let length = cx.builder.add(digits.count, sign);
    let length = cx.builder.add(length, point);
    let length = where_valid(cx, length, valid);
    make_valid(cx, length, valid, |cx, target| {
        let hyphen = cx.builder.int(Scalar::U8, b'-');
        // Overwritten where there is no sign.
        cx.builder.store(target, hyphen);
        let target = cx.builder.offset(target, sign);
        let b = &mut *cx.builder;
        if scale == 0 {
            return digits.write(b, target);
        }
        let above = b.mul(whole, unit);
        let fraction = b.sub(magnitude, above);
        digits.write_with_fraction(b, target, fraction, scale);
    })
}

/// A length as `u64`; 0 where the value is NULL.
fn where_valid(cx: &mut Context<'_>, length: V, valid: Option<V>) -> V {
    let length = cx.builder.convert(length, Scalar::U64);
    match valid {
        Some(valid) => {
            let zero = cx.builder.u64(0);
            cx.builder.select(valid, length, zero)
        }
        None => length,
    }
}

/// As [`make`]; nothing is written where the value is NULL.
fn make_valid(
    cx: &mut Context<'_>,
    length: V,
    valid: Option<V>,
    fill: impl FnOnce(&mut Context<'_>, V),
) -> Text {
    make(cx, length, |cx, target| match valid {
        Some(valid) => {
            cx.begin_if(valid);
            fill(cx, target);
            cx.end();
        }
        None => fill(cx, target),
    })
}

/// Decimal digits of a number; none of 0.
fn digits_function(cx: &mut Context<'_>, register: Scalar) -> Handle<Function> {
    let name = format!("text_digits_{}", register.name());
    function(cx, &name, &[("number", Type::Scalar(register))], Scalar::U32, |b| {
        let zero = b.u32(0);
        let number = b.param(0);
        let (rest, digits) = (b.var_of("rest", number), b.var_of("digits", zero));
        b.begin_loop();
        let (current, nothing, ten) = (b.read(rest), b.zero(register), b.int(register, 10));
        let done = b.eq(current, nothing);
        b.break_if(done);
        let next = b.div(current, ten);
        b.assign(rest, next);
        super::increment(b, digits);
        b.end();
        let digits = b.read(digits);
        b.return_value(digits);
    })
}

/// Writes a sign, `digits` digits, and a point before the last `fraction` ones; gives the number of digits.
fn write_function(cx: &mut Context<'_>, register: Scalar) -> Handle<Function> {
    let params = [
        ("target", Type::global(Scalar::U8)),
        ("number", Type::Scalar(register)),
        ("negative", Type::BOOL),
        ("digits", Type::U32),
        ("fraction", Type::U32),
    ];
    function(cx, &format!("text_of_{}", register.name()), &params, Scalar::U32, |b| {
        let [target, number, negative, digits, fraction] = [0, 1, 2, 3, 4].map(|index| b.param(index));
        let (zero, one) = (b.u32(0), b.u32(1));
        let start = b.convert(negative, Scalar::U32);
        b.begin_if(negative);
        put(b, target, zero, b'-');
        b.end();
        let has_point = b.compare(CompareOp::Gt, fraction, zero);
        let whole = b.sub(digits, fraction);
        let point = b.add(start, whole);
        b.begin_if(has_point);
        put(b, target, point, b'.');
        b.end();
        // From the last digit to the first.
        let (rest, left) = (b.var_of("rest", number), b.var_of("left", digits));
        b.begin_loop();
        let remaining = b.read(left);
        let done = b.eq(remaining, zero);
        b.break_if(done);
        let index = b.sub(remaining, one);
        let (current, ten) = (b.read(rest), b.int(register, 10));
        let (next, digit) = (b.div(current, ten), b.rem(current, ten));
        let digit = b.convert(digit, Scalar::U8);
        let behind = b.ge(index, whole);
        let behind = b.convert(behind, Scalar::U32);
        let place = b.add(start, index);
        let place = b.add(place, behind);
        put_digit(b, target, place, digit);
        b.assign(rest, next);
        b.assign(left, index);
        b.end();
        b.return_value(digits);
    })
}

fn put(b: &mut Builder, target: V, place: V, byte: u8) {
    let (pointer, byte) = (b.offset(target, place), b.int(Scalar::U8, byte));
    b.store(pointer, byte);
}

fn put_digit(b: &mut Builder, target: V, place: V, digit: V) {
    let (pointer, zero) = (b.offset(target, place), b.int(Scalar::U8, b'0'));
    let byte = b.add(digit, zero);
    b.store(pointer, byte);
}

/// `YYYY-MM-DD`; other years are DataFusion's.
fn date(cx: &mut Context<'_>, days: Int, valid: Option<V>) -> Text {
    let days = cx.builder.convert(days.value, Scalar::I32);
    let (min, max) = (cx.builder.i32(FOUR_DIGIT_YEARS.0), cx.builder.i32(FOUR_DIGIT_YEARS.1));
    let (early, late) = (cx.builder.lt(days, min), cx.builder.compare(CompareOp::Gt, days, max));
    let beyond = cx.builder.or(early, late);
    report(cx, beyond, valid, Status::Fallback);
    let days = cx.builder.binary(BinaryOp::Max, days, min);
    let days = cx.builder.binary(BinaryOp::Min, days, max);
    let ten = cx.builder.u32(10);
    let length = where_valid(cx, ten, valid);
    make_valid(cx, length, valid, |cx, target| {
        if cx.text_margin() {
            let parts = [CalendarPart::Year, CalendarPart::Month, CalendarPart::Day];
            let parts = parts.map(|part| civil::date_part(cx, part, days));
            return digits::write_date(cx.builder, target, parts);
        }
        let parts = [(CalendarPart::Year, 0, 4), (CalendarPart::Month, 5, 2), (CalendarPart::Day, 8, 2)];
        for (part, start, width) in parts {
            let mut rest = civil::date_part(cx, part, days);
            for index in (start..start + width).rev() {
                let ten = cx.builder.i32(10);
                let digit = cx.builder.rem(rest, ten);
                let digit = cx.builder.convert(digit, Scalar::U8);
                let place = cx.builder.u32(index);
                put_digit(cx.builder, target, place, digit);
                rest = cx.builder.div(rest, ten);
            }
        }
        for hyphen in [4, 7] {
            let place = cx.builder.u32(hyphen);
            put(cx.builder, target, place, b'-');
        }
    })
}

/// A text as a value.
pub(in crate::lower) fn lowered(text: Text) -> Lowered {
    Lowered { repr: Repr::Text(text), valid: None, range: None }
}
