//! What the parsers of numbers, booleans and dates in texts share.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builder, Scalar};

use super::{byte, count_up};
use crate::context::Case;

/// `if condition { return value }`, in a function that returns such integers.
pub(in crate::lower) fn return_if(b: &mut Builder, condition: V, scalar: Scalar, value: i128) {
    b.begin_if(condition);
    let value = b.int(scalar, value);
    b.return_value(value);
    b.end();
}

/// Whether there is a sign at a place, and whether it is a minus.
#[derive(Debug, Clone, Copy)]
pub(in crate::lower) struct Sign {
    pub is_there: V,
    pub is_minus: V,
}

impl Sign {
    /// The sign at a place, which is within the text.
    pub fn at(b: &mut Builder, data: V, place: V) -> Sign {
        let found = byte(b, data, place, Case::Keep);
        let (minus, plus) = (b.u32(b'-'.into()), b.u32(b'+'.into()));
        let (is_minus, is_plus) = (b.eq(found, minus), b.eq(found, plus));
        Sign { is_there: b.or(is_minus, is_plus), is_minus }
    }

    /// The bytes that it takes: 0 or 1.
    pub fn width(self, b: &mut Builder) -> V {
        b.convert(self.is_there, Scalar::U32)
    }
}

/// The digit at a place, 10 or more (`u32`) where there is none.
pub(in crate::lower) fn digit_at(b: &mut Builder, data: V, place: V) -> V {
    let (byte, zero) = (byte(b, data, place, Case::Keep), b.u32(b'0'.into()));
    b.sub(byte, zero)
}

/// `number * 10 + digit`, of the number's type.
pub(in crate::lower) fn with_digit(b: &mut Builder, number: Var, scalar: Scalar, digit: V) -> V {
    let (before, ten) = (b.read(number), b.int(scalar, 10));
    let digit = b.convert(digit, scalar);
    let shifted = b.mul(before, ten);
    b.add(shifted, digit)
}

/// Up to eight bytes of a text in lower case as one number, most significant byte first: those at `first`, `first + 1`, …
pub(in crate::lower) fn packed(b: &mut Builder, data: V, first: Option<V>, count: V) -> V {
    let nothing = b.u64(0);
    let packed = b.var_of("packed", nothing);
    count_up(b, count, |b, index| {
        let place = first.map_or(index, |first| b.add(first, index));
        let byte = byte(b, data, place, Case::Lower);
        let byte = b.convert(byte, Scalar::U64);
        let (before, eight) = (b.read(packed), b.u64(8));
        let shifted = b.binary(BinaryOp::Shl, before, eight);
        let next = b.or(shifted, byte);
        b.assign(packed, next);
    });
    b.read(packed)
}

/// The value of the form that a packed text is, or `other`.
pub(in crate::lower) fn value_of_form<T: Copy>(
    b: &mut Builder,
    packed: V,
    forms: &[(&str, T)],
    value: impl Fn(&mut Builder, T) -> V,
    other: V,
) -> V {
    forms.iter().fold(other, |result, (form, of_form)| {
        let number = form.bytes().fold(0u64, |number, byte| number << 8 | u64::from(byte));
        let (number, of_form) = (b.u64(number), value(b, *of_form));
        let same = b.eq(packed, number);
        b.select(same, of_form, result)
    })
}
