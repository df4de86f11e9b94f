//! Casts from text to floats, with the forms that Arrow's parser accepts. Numbers that one multiplication or division
//! rounds correctly (up to 2^53, with a power of ten up to 22) are computed here; the others are DataFusion's.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type};

use super::cast_text::trim;
use super::parsing::{Sign, digit_at, packed, return_if, value_of_form, with_digit};
use super::{byte, count_up, function};
use crate::context::{Case, Context, Status, Text};
use crate::lower::cast::{Converted, float_scalar};
use crate::lower::value::{float, report};
use crate::types::DataType;

/// What is no number: a NaN that no text gives.
const INVALID: u64 = 0x7FF8_DEAD_0000_0001;
/// What is perhaps a number, but not computed here.
const UNKNOWN: u64 = 0x7FF8_DEAD_0000_0002;
/// The powers of ten that are floats.
const EXACT_POWER: i32 = 22;

/// Parses a text that is not NULL.
pub(in crate::lower) fn parse(
    cx: &mut Context<'_>,
    text: &Text,
    valid: Option<V>,
    to: &DataType,
) -> Converted {
    let (data, length) = trim(cx, text);
    let parser = parser(cx);
    let bits = cx.builder.call(parser, &[data, length]);
    let (invalid, unknown) = (cx.builder.u64(INVALID), cx.builder.u64(UNKNOWN));
    let invalid = cx.builder.eq(bits, invalid);
    let mut unknown = cx.builder.eq(bits, unknown);
    if *to == DataType::Float32 {
        // Rounded twice it may be wrong where the first result lies in the middle of two floats.
        let (below, middle) = (cx.builder.u64((1 << 29) - 1), cx.builder.u64(1 << 28));
        let rest = cx.builder.and(bits, below);
        let between = cx.builder.eq(rest, middle);
        unknown = cx.builder.or(unknown, between);
    }
    report(cx, unknown, valid, Status::Fallback);
    let value = cx.builder.bitcast(bits, Scalar::F64);
    let value = cx.builder.convert(value, float_scalar(to));
    Converted { value: float(value, None), bad: Some(invalid) }
}

/// `if condition { return bits }`
fn return_bits_if(b: &mut Builder, condition: V, bits: u64) {
    return_if(b, condition, Scalar::U64, bits.into());
}

/// The bits of the `f64`, [`INVALID`] or [`UNKNOWN`].
fn parser(cx: &mut Context<'_>) -> Handle<Function> {
    let word = word_function(cx);
    let params = [("text", Type::global(Scalar::U8)), ("length", Type::U32)];
    function(cx, "parse_float", &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (zero, nothing) = (b.u32(0), b.u64(0));
        let empty = b.eq(length, zero);
        return_bits_if(b, empty, INVALID);
        let sign = Sign::at(b, data, zero);
        let start = sign.width(b);
        let number = Number {
            place: b.var_of("place", start),
            mantissa: b.var_of("mantissa", nothing),
            digits: b.var_of("digits", zero),
            power: {
                let zero = b.i32(0);
                b.var_of("power", zero)
            },
        };
        number.digits(b, data, length, false);
        number.after_point(b, data, length);
        let digits = b.read(number.digits);
        let none = b.eq(digits, zero);
        b.begin_if(none);
        let special = b.call(word, &[data, length, start]);
        let highest = sign_bit(b, sign);
        // What is no word has its bits already.
        let (infinity, with_sign) = (b.u64(f64::INFINITY.to_bits()), b.or(special, highest));
        let infinite = b.eq(special, infinity);
        let special = b.select(infinite, with_sign, special);
        let (nan, unknown) = (b.u64(f64::NAN.to_bits()), b.u64(UNKNOWN));
        let nan = b.eq(special, nan);
        let signed_nan = b.and(nan, sign.is_there);
        let special = b.select(signed_nan, unknown, special);
        b.return_value(special);
        b.end();
        number.exponent(b, data, length);
        let place = b.read(number.place);
        let more = b.ne(place, length);
        return_bits_if(b, more, INVALID);
        let mantissa = b.read(number.mantissa);
        let exact = b.u64(1 << 53);
        let large = b.compare(CompareOp::Gt, mantissa, exact);
        let is_zero = b.eq(mantissa, nothing);
        let power = b.read(number.power);
        let (lowest, highest) = (b.i32(-EXACT_POWER), b.i32(EXACT_POWER));
        let (low, high) = (b.lt(power, lowest), b.compare(CompareOp::Gt, power, highest));
        let far = b.or(low, high);
        let not_zero = b.not(is_zero);
        let far = b.and(far, not_zero);
        let inexact = b.or(large, far);
        return_bits_if(b, inexact, UNKNOWN);
        let value = scaled(b, mantissa, power);
        let bits = b.bitcast(value, Scalar::U64);
        let highest = sign_bit(b, sign);
        let bits = b.or(bits, highest);
        b.return_value(bits);
    })
}

/// The highest bit of a float, where it has a minus.
fn sign_bit(b: &mut Builder, sign: Sign) -> V {
    let (bit, shift) = (b.convert(sign.is_minus, Scalar::U64), b.u64(63));
    b.binary(BinaryOp::Shl, bit, shift)
}

/// `mantissa × 10^power`, where the power is an exact float.
fn scaled(b: &mut Builder, mantissa: V, power: V) -> V {
    let (value, one) = (b.convert(mantissa, Scalar::F64), b.f64(1.0));
    let zero = b.i32(0);
    let negative = b.lt(power, zero);
    let negated = b.sub(zero, power);
    let steps = b.select(negative, negated, power);
    let steps = b.min_int(steps, EXACT_POWER);
    let steps = b.convert(steps, Scalar::U32);
    let factor = b.var_of("factor", one);
    count_up(b, steps, |b, _| {
        let (before, ten) = (b.read(factor), b.f64(10.0));
        let after = b.mul(before, ten);
        b.assign(factor, after);
    });
    let factor = b.read(factor);
    let (product, quotient) = (b.mul(value, factor), b.div(value, factor));
    b.select(negative, quotient, product)
}

/// Variables of the parser.
struct Number {
    place: Var,
    mantissa: Var,
    /// Digits seen, also zeros in front.
    digits: Var,
    /// Of ten.
    power: Var,
}

impl Number {
    /// Digits from the current place on; behind the point each lowers the power. A mantissa beyond what is exact gives
    /// up.
    fn digits(&self, b: &mut Builder, data: V, length: V, fraction: bool) {
        b.begin_loop();
        let place = b.read(self.place);
        let end = b.ge(place, length);
        b.break_if(end);
        let (digit, ten) = (digit_at(b, data, place), b.u32(10));
        let other = b.ge(digit, ten);
        b.break_if(other);
        let (before, limit) = (b.read(self.mantissa), b.u64(1 << 54));
        let full = b.ge(before, limit);
        return_bits_if(b, full, UNKNOWN);
        let after = with_digit(b, self.mantissa, Scalar::U64, digit);
        b.assign(self.mantissa, after);
        if fraction {
            let (power, one) = (b.read(self.power), b.i32(1));
            let lower = b.sub(power, one);
            b.assign(self.power, lower);
        }
        super::increment(b, self.digits);
        super::increment(b, self.place);
        b.end();
    }

    /// A point and the digits behind it, where there is one.
    fn after_point(&self, b: &mut Builder, data: V, length: V) {
        let place = b.read(self.place);
        let more = b.lt(place, length);
        b.begin_if(more);
        let (found, point) = (byte(b, data, place, Case::Keep), b.u32(b'.'.into()));
        let is_point = b.eq(found, point);
        b.begin_if(is_point);
        super::increment(b, self.place);
        self.digits(b, data, length, true);
        b.end();
        b.end();
    }

    /// `e`, a sign and digits, where they stand.
    fn exponent(&self, b: &mut Builder, data: V, length: V) {
        let place = b.read(self.place);
        let more = b.lt(place, length);
        b.begin_if(more);
        let (found, letter) = (byte(b, data, place, Case::Lower), b.u32(b'e'.into()));
        let is_letter = b.eq(found, letter);
        b.begin_if(is_letter);
        super::increment(b, self.place);
        let place = b.read(self.place);
        let none = b.ge(place, length);
        return_bits_if(b, none, INVALID);
        let sign = Sign::at(b, data, place);
        let sign_width = sign.width(b);
        let start = b.add(place, sign_width);
        b.assign(self.place, start);
        let none = b.ge(start, length);
        return_bits_if(b, none, INVALID);
        let zero = b.i32(0);
        let exponent = b.var_of("exponent", zero);
        b.begin_loop();
        let place = b.read(self.place);
        let end = b.ge(place, length);
        b.break_if(end);
        let (digit, ten) = (digit_at(b, data, place), b.u32(10));
        let other = b.ge(digit, ten);
        return_bits_if(b, other, INVALID);
        let (before, limit) = (b.read(exponent), b.i32(100_000));
        let full = b.ge(before, limit);
        return_bits_if(b, full, UNKNOWN);
        let after = with_digit(b, exponent, Scalar::I32, digit);
        b.assign(exponent, after);
        super::increment(b, self.place);
        b.end();
        let exponent = b.read(exponent);
        let negated = b.sub(zero, exponent);
        let exponent = b.select(sign.is_minus, negated, exponent);
        let power = b.read(self.power);
        let power = b.add(power, exponent);
        b.assign(self.power, power);
        b.end();
        b.end();
    }
}

/// The bits of `inf`, `infinity` and `nan` (in any case) behind a sign, or [`INVALID`].
fn word_function(cx: &mut Context<'_>) -> Handle<Function> {
    let params = [("text", Type::global(Scalar::U8)), ("length", Type::U32), ("start", Type::U32)];
    function(cx, "parse_float_word", &params, Scalar::U64, |b| {
        let [data, length, start] = [0, 1, 2].map(|index| b.param(index));
        let width = b.sub(length, start);
        let long = b.gt_int(width, 8);
        return_bits_if(b, long, INVALID);
        let packed = packed(b, data, Some(start), width);
        let forms = [("inf", f64::INFINITY), ("infinity", f64::INFINITY), ("nan", f64::NAN)];
        let other = b.u64(INVALID);
        let result = value_of_form(b, packed, &forms, |b, value| b.u64(value.to_bits()), other);
        b.return_value(result);
    })
}
