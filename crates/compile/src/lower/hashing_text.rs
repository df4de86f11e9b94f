//! Hashes of texts, eight bytes at a time.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Function, Handle, Scalar, Type};

use super::swar::with_case;
use super::text::{byte, case_name, count_up, function};
use super::words::{advance, mapped_word, short_word};
use crate::context::{Case, Context, Text};

const POINTER: Type = Type::global(Scalar::U8);
/// An odd number of random bits.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// The hash of nothing, before the length is in it.
const HASH_SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// A hash of a text, equal for equal texts whatever their case mappings: a multiplication whose halves are folded a
/// word. The last word overlaps the one before; a text of less than a word is one.
pub(crate) fn hash(cx: &mut Context<'_>, text: &Text) -> V {
    let hash = hash_function(cx, text.case);
    cx.builder.call(hash, &[text.data, text.length])
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
        if margin {
            let packed = short_word(b, data, length);
            let packed = with_case(b, packed, case);
            let hash = fold(b, seed, packed);
            b.return_value(hash);
        } else {
            let hash = hash_of_bytes(b, (data, length), seed, case);
            b.return_value(hash);
        }
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

/// The hash of a text of less than a word, read byte by byte.
fn hash_of_bytes(b: &mut Builder, (data, length): (V, V), seed: V, case: Case) -> V {
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
    let packed = b.read(packed);
    fold(b, seed, packed)
}

/// Both halves of a product, one on the other.
fn fold(b: &mut Builder, hash: V, word: V) -> V {
    let mixed = b.binary(BinaryOp::Xor, hash, word);
    let factor = b.u64(HASH_FACTOR);
    let (low, high) = (b.mul(mixed, factor), b.binary(BinaryOp::MulHi, mixed, factor));
    b.binary(BinaryOp::Xor, low, high)
}
