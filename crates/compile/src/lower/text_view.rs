//! What a table may have of a text in words of its own: its first bytes, or all of them where they are few.
//!
//! A *view* of a text is two words, as in Umbra (Neumann and Freitag 2020) and in Arrow, but with the length behind the bytes: so these lie
//! where a word begins, and a text of at most twelve can be read from there. Of a longer text the first word is its address, and its first
//! four bytes stand in the second one. Zeros stand behind the bytes of a short text, so that two of them are equal where their words are.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Scalar, Type};

use super::swar::{bits_of, first_bytes, with_case};
use super::text::{byte, case_name, count_up, function, return_bool_if};
use super::words::{WORD_BYTES, mapped_word};
use crate::context::{Case, Context, Text};

const POINTER: Type = Type::global(Scalar::U8);
const WORD: Type = Type::Scalar(Scalar::U64);
/// Bytes of a text that a view has, at most.
pub(crate) const VIEW_BYTES: u32 = 12;
/// Bits of the second word below the length.
const LENGTH_SHIFT: u64 = 32;

/// The bytes of a text from a place on, eight at most, as a word; zeros where it has none. Nothing of a text without bytes is looked at.
pub(crate) fn bytes_from(cx: &mut Context<'_>, text: &Text, place: u32) -> V {
    let (margin, case) = (cx.text_margin(), text.case);
    let name = format!("text_bytes_from_{place}{}", case_name(case));
    let params = [("text", POINTER), ("length", Type::U32)];
    let bytes = function(cx, &name, &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let bytes = window(b, margin, (data, length, case), place);
        b.return_value(bytes);
    });
    cx.builder.call(bytes, &[text.data, text.length])
}

/// Whether a view is a text's as far as it tells (`bool`): a longer text than it has room for may still differ.
pub(crate) fn is_view_of(cx: &mut Context<'_>, text: &Text, (first, second): (V, V)) -> V {
    let (margin, case) = (cx.text_margin(), text.case);
    let name = format!("text_is_view{}", case_name(case));
    let params = [("text", POINTER), ("length", Type::U32), ("first", WORD), ("second", WORD)];
    let is_view = function(cx, &name, &params, Scalar::Bool, |b| {
        let [data, length, first, second] = [0, 1, 2, 3].map(|index| b.param(index));
        let theirs = view_length(b, second);
        let different = b.ne(length, theirs);
        return_bool_if(b, different, false);
        let rest = b.convert(second, Scalar::U32);
        let (eight, behind) = (b.u32(WORD_BYTES), b.u32(VIEW_BYTES + 1));
        let is_short = b.lt(length, eight);
        b.begin_if(is_short);
        let own = window(b, margin, (data, length, case), 0);
        let equal = b.eq(own, first);
        b.return_value(equal);
        b.end();
        let zero = b.u32(0);
        let head = mapped_word(b, data, zero, case);
        let fits = b.lt(length, behind);
        b.begin_if(fits);
        let different = b.ne(head, first);
        return_bool_if(b, different, false);
        let is_word = b.eq(length, eight);
        return_bool_if(b, is_word, true);
        // The last word of the text overlaps the first one.
        let behind = b.sub(length, eight);
        let last = mapped_word(b, data, behind, case);
        let known = b.sub(eight, behind);
        let shift = bits_of(b, known);
        let last = b.binary(BinaryOp::Shr, last, shift);
        let last = b.convert(last, Scalar::U32);
        let equal = b.eq(last, rest);
        b.return_value(equal);
        b.end();
        let head = b.convert(head, Scalar::U32);
        let equal = b.eq(head, rest);
        b.return_value(equal);
    });
    cx.builder.call(is_view, &[text.data, text.length, first, second])
}

/// The words of the view of a text that lies at an address (`u64`), which matters where it `is_long` (`bool`) alone.
pub(crate) fn view_of(cx: &mut Context<'_>, text: &Text, (address, is_long): (V, V)) -> (V, V) {
    let head = bytes_from(cx, text, 0);
    // Of a long text no more is looked at.
    let zero = cx.builder.u32(0);
    let length = cx.builder.select(is_long, zero, text.length);
    let tail = bytes_from(cx, &Text { length, ..text.clone() }, WORD_BYTES);
    let b = &mut *cx.builder;
    let first = b.select(is_long, address, head);
    let (rest, mask) = (b.select(is_long, head, tail), b.u64(u32::MAX.into()));
    let (rest, shift) = (b.and(rest, mask), b.u64(LENGTH_SHIFT));
    let length = b.convert(text.length, Scalar::U64);
    let length = b.binary(BinaryOp::Shl, length, shift);
    (first, b.or(rest, length))
}

/// The length (`u32`) of the text whose view has a second word.
pub(crate) fn view_length(b: &mut Builder, second: V) -> V {
    let shift = b.u64(LENGTH_SHIFT);
    let length = b.binary(BinaryOp::Shr, second, shift);
    b.convert(length, Scalar::U32)
}

/// As [`bytes_from`], in a device function.
fn window(b: &mut Builder, margin: bool, (data, length, case): (V, V, Case), place: u32) -> V {
    let (nothing, place) = (b.u64(0), b.u32(place));
    let bytes = b.var_of("bytes", nothing);
    let has_bytes = b.compare(CompareOp::Gt, length, place);
    b.begin_if(has_bytes);
    let rest = b.sub(length, place);
    let eight = b.u32(WORD_BYTES);
    if margin {
        let count = b.binary(BinaryOp::Min, rest, eight);
        let own = b.offset(data, place);
        let word = b.load_bytes(own);
        let word = first_bytes(b, word, count);
        let word = with_case(b, word, case);
        b.assign(bytes, word);
    } else {
        let is_long = b.ge(length, eight);
        b.begin_if(is_long);
        // The last word of the text has what is left of it, and bytes before that.
        let last = b.sub(length, eight);
        let from = b.binary(BinaryOp::Min, place, last);
        let own = b.offset(data, from);
        let (word, before) = (b.load_bytes(own), b.sub(place, from));
        let shift = bits_of(b, before);
        let word = b.binary(BinaryOp::Shr, word, shift);
        let word = with_case(b, word, case);
        b.assign(bytes, word);
        b.begin_else();
        let own = b.offset(data, place);
        count_up(b, rest, |b, index| {
            let byte = byte(b, own, index, case);
            let (byte, shift) = (b.convert(byte, Scalar::U64), bits_of(b, index));
            let (before, byte) = (b.read(bytes), b.binary(BinaryOp::Shl, byte, shift));
            let all = b.or(before, byte);
            b.assign(bytes, all);
        });
        b.end();
    }
    b.end();
    b.read(bytes)
}
