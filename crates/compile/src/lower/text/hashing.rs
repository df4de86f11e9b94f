//! Hashes of texts, eight bytes at a time.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Function, Handle, Scalar, Type};

use super::swar::with_case;
use super::words::{WORD_BYTES, advance, mapped_word, short_word};
use super::{byte, case_name, count_up, function};
use crate::context::{Case, Context, Text};

const POINTER: Type = Type::global(Scalar::U8);
/// An odd number of random bits.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Of the place of a word: an odd number of random bits (2⁶⁴ divided by the plastic number).
const PLACE_FACTOR: u64 = 0xc13f_a9a9_02a6_328f;
/// The hash of nothing, before the length is in it.
const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// A hash of a text, equal for equal texts whatever their case mappings: a multiplication whose halves are folded a
/// word. The last word overlaps the one before; a text of less than a word is one.
pub(crate) fn hash(cx: &mut Context<'_>, text: &Text) -> V {
    let hash = hash_function(cx, text.case);
    cx.builder.call(hash, &[text.data, text.length])
}

/// Bits of a hash that tell a text of less than a word from all others ([`hash_as_key`]).
const SHORT_BITS: u32 = 61;
/// Set in the hashes of such texts.
pub const SHORT: u64 = 1 << (u64::BITS - SHORT_BITS - 1);

/// A hash that is spread over all hashes, and is a short text's key by itself: texts of less than a word have hashes with [`SHORT`], of which
/// the bits above are others for each of them. Longer ones do not have that bit. The bits below are zeros.
pub(crate) fn hash_as_key(cx: &mut Context<'_>, text: &Text) -> V {
    let (margin, case) = (cx.text_margin(), text.case);
    let words = hash_function(cx, case);
    let params = [("text", POINTER), ("length", Type::U32)];
    let name = format!("text_hash_as_key{}", case_name(case));
    let hash = function(cx, &name, &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let width = b.u32(WORD_BYTES);
        let is_short = b.lt(length, width);
        b.begin_if(is_short);
        let (bytes, length_bits) = (packed(b, margin, (data, length), case), b.convert(length, Scalar::U64));
        let length_bits = b.shl_int(length_bits, 8 * (WORD_BYTES - 1));
        let all = b.or(bytes, length_bits);
        let own = permuted(b, all);
        let own = b.or_int(own, SHORT);
        b.return_value(own);
        b.end();
        let hash = b.call(words, &[data, length]);
        let hash = permuted(b, hash);
        b.return_value(hash);
    });
    cx.builder.call(hash, &[text.data, text.length])
}

/// The lowest [`SHORT_BITS`] of a value in another order of their numbers, as the highest bits: a product with an odd number, and a shift that
/// is added, can be undone.
fn permuted(b: &mut Builder, value: V) -> V {
    let mut value = value;
    for factor in [HASH_FACTOR, PLACE_FACTOR] {
        value = b.mul_int(value, factor);
        value = b.and_int(value, (1u64 << SHORT_BITS) - 1);
        let high = b.shr_int(value, SHORT_BITS.div_ceil(2));
        value = b.binary(BinaryOp::Xor, value, high);
    }
    b.shl_int(value, u64::BITS - SHORT_BITS)
}

fn hash_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let margin = cx.text_margin();
    let params = [("text", POINTER), ("length", Type::U32)];
    function(cx, &format!("text_hash{}", case_name(case)), &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (zero, eight) = (b.u32(0), b.u32(8));
        let wide = b.convert(length, Scalar::U64);
        let seed = b.u64(HASH_SEED);
        let seed = b.binary(BinaryOp::Xor, seed, wide);
        let short = b.lt(length, eight);
        b.begin_if(short);
        let packed = packed(b, margin, (data, length), case);
        let hash = fold(b, seed, packed);
        b.return_value(hash);
        b.end();
        let last = b.sub(length, eight);
        let (place, hash) = (b.var_of("place", zero), b.var_of("hash", seed));
        b.begin_loop();
        let current = b.read(place);
        let current = b.binary(BinaryOp::Min, current, last);
        let word = mapped_word(b, data, current, case);
        let before = b.read(hash);
        let after = fold(b, before, word);
        b.assign(hash, after);
        let done = b.ge(current, last);
        b.begin_if(done);
        b.return_value(after);
        b.end();
        advance(b, place, 8);
        b.end();
        let hash = b.read(hash);
        b.return_value(hash);
    })
}

/// The hash of a text that is made of its words in any order ([`part`], of each word's place), equal for equal texts too: their sum, with
/// the length. Other lanes can take some of the words, and whoever has them all comes to the same hash. As each word is a product of its
/// own that is added, one lane takes longer for it than for [`hash`].
pub(crate) fn hash_in_any_order(cx: &mut Context<'_>, text: &Text) -> V {
    let (margin, case) = (cx.text_margin(), text.case);
    let params = [("text", POINTER), ("length", Type::U32)];
    let name = format!("text_hash_in_any_order{}", case_name(case));
    let hash = function(cx, &name, &params, Scalar::U64, |b| {
        let [data, length] = [0, 1].map(|index| b.param(index));
        let (zero, width, nothing, seed) = (b.u32(0), b.u32(WORD_BYTES), b.u64(0), b.u64(HASH_SEED));
        let is_short = b.lt(length, width);
        b.begin_if(is_short);
        let packed = packed(b, margin, (data, length), case);
        let (part, is_empty) = (fold(b, seed, packed), b.eq(length, zero));
        let sum = b.select(is_empty, nothing, part);
        let hash = whole(b, sum, length);
        b.return_value(hash);
        b.end();
        let last = b.sub(length, width);
        let (place, sum, seed) = (b.var_of("place", zero), b.var_of("sum", nothing), b.var_of("seed", seed));
        b.begin_loop();
        let (current, own_seed) = (b.read(place), b.read(seed));
        let at = b.binary(BinaryOp::Min, current, last);
        let word = mapped_word(b, data, at, case);
        let (own, before) = (fold(b, own_seed, word), b.read(sum));
        let after = b.add(before, own);
        b.assign(sum, after);
        let is_last = b.ge(current, last);
        b.break_if(is_last);
        let step = b.u64(PLACE_FACTOR.wrapping_mul(WORD_BYTES.into()));
        let next_seed = b.add(own_seed, step);
        b.assign(seed, next_seed);
        advance(b, place, WORD_BYTES);
        b.end();
        let sum = b.read(sum);
        let hash = whole(b, sum, length);
        b.return_value(hash);
    });
    cx.builder.call(hash, &[text.data, text.length])
}

/// What the word of a text at a place (`u32`, a multiple of [`WORD_BYTES`] that is less than the length) adds to the sum of which
/// [`hash_of_parts`] makes the hash in any order.
pub(crate) fn part(cx: &mut Context<'_>, text: &Text, place: V) -> V {
    let part = part_function(cx, text.case);
    cx.builder.call(part, &[text.data, text.length, place])
}

/// The hash in any order of a text of so many bytes (`u32`), of the sum of its words' parts.
pub(crate) fn hash_of_parts(cx: &mut Context<'_>, sum: V, length: V) -> V {
    whole(cx.builder, sum, length)
}

/// The last word overlaps the one before, as of [`hash`], and a text of less than a word is one: nothing behind the text is read.
fn part_function(cx: &mut Context<'_>, case: Case) -> Handle<Function> {
    let margin = cx.text_margin();
    let params = [("text", POINTER), ("length", Type::U32), ("place", Type::U32)];
    function(cx, &format!("text_part{}", case_name(case)), &params, Scalar::U64, |b| {
        let [data, length, place] = [0, 1, 2].map(|index| b.param(index));
        let width = b.u32(WORD_BYTES);
        let wide = b.convert(place, Scalar::U64);
        let (step, seed) = (b.u64(PLACE_FACTOR), b.u64(HASH_SEED));
        let distance = b.mul(wide, step);
        let seed = b.add(distance, seed);
        let is_short = b.lt(length, width);
        b.begin_if(is_short);
        let packed = packed(b, margin, (data, length), case);
        let part = fold(b, seed, packed);
        b.return_value(part);
        b.end();
        let last = b.sub(length, width);
        let place = b.binary(BinaryOp::Min, place, last);
        let word = mapped_word(b, data, place, case);
        let part = fold(b, seed, word);
        b.return_value(part);
    })
}

/// Texts whose bytes have equal parts differ in their lengths.
fn whole(b: &mut Builder, sum: V, length: V) -> V {
    let length = b.convert(length, Scalar::U64);
    fold(b, sum, length)
}

/// The bytes of a text of less than a word.
fn packed(b: &mut Builder, margin: bool, (data, length): (V, V), case: Case) -> V {
    if margin {
        let packed = short_word(b, data, length);
        return with_case(b, packed, case);
    }
    let nothing = b.u64(0);
    let packed = b.var_of("packed", nothing);
    count_up(b, length, |b, index| {
        let byte = byte(b, data, index, case);
        let byte = b.convert(byte, Scalar::U64);
        let (before, eight) = (b.read(packed), b.u64(8));
        let shifted = b.binary(BinaryOp::Shl, before, eight);
        let next = b.or(shifted, byte);
        b.assign(packed, next);
    });
    b.read(packed)
}

/// Both halves of a product, one on the other.
fn fold(b: &mut Builder, hash: V, word: V) -> V {
    let mixed = b.binary(BinaryOp::Xor, hash, word);
    let factor = b.u64(HASH_FACTOR);
    let (low, high) = (b.mul(mixed, factor), b.binary(BinaryOp::MulHi, mixed, factor));
    b.binary(BinaryOp::Xor, low, high)
}
