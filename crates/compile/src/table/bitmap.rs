//! Bitmaps of slots, in words of 32 bits: a 32nd of what row numbers take, so that they stay in a nearer cache.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope};

use super::array;
use crate::context::Context;
use crate::program::{Growth, States};

/// A bitmap, by its state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bitmap(pub usize);

impl Bitmap {
    /// Declares the state for so many slots.
    pub fn plan(slots: u64, states: &mut States) -> Bitmap {
        let words = states.class(slots.div_ceil(32), Growth::Fixed);
        Bitmap(states.state("taken", 4, words))
    }

    /// The word of a slot (`i64`) as a `ptr<global, u32>`, and the number of the slot's bit in it (`u32`).
    fn word_of(self, cx: &mut Context<'_>, slot: V) -> (V, V) {
        let words = array(cx, "taken", self.0);
        let b = &mut *cx.builder;
        let (five, mask) = (b.i64(5), b.i64(31));
        let word = b.binary(BinaryOp::Shr, slot, five);
        let pointer = b.offset(words, word);
        let within = b.and(slot, mask);
        (pointer, b.convert(within, Scalar::U32))
    }

    /// The word of a slot (`i64`) as a `ptr<global, u32>`, and the slot's bit in it.
    fn bit_of(self, cx: &mut Context<'_>, slot: V) -> (V, V) {
        let (pointer, within) = self.word_of(cx, slot);
        let one = cx.builder.u32(1);
        (pointer, cx.builder.binary(BinaryOp::Shl, one, within))
    }

    /// As [`Bitmap::is_taken`], as a number (`i64`): 1 where it is, else 0. That takes fewer instructions than a `bool` that is counted.
    pub fn taken_bit(self, cx: &mut Context<'_>, slot: V) -> V {
        let (pointer, within) = self.word_of(cx, slot);
        let b = &mut *cx.builder;
        let (word, one) = (b.load(pointer), b.u32(1));
        let shifted = b.binary(BinaryOp::Shr, word, within);
        let bit = b.and(shifted, one);
        b.convert(bit, Scalar::I64)
    }

    /// Whether a slot (`i64`) is taken (`bool`).
    pub fn is_taken(self, cx: &mut Context<'_>, slot: V) -> V {
        let (pointer, bit) = self.bit_of(cx, slot);
        let word = cx.builder.load(pointer);
        let found = cx.builder.and(word, bit);
        cx.builder.ne_int(found, 0)
    }

    /// Whether a slot (`u32`) is taken, by a bitmap that nothing writes any more.
    pub fn is_taken_for_good(self, cx: &mut Context<'_>, slot: V) -> V {
        let words = array(cx, "taken", self.0);
        let b = &mut *cx.builder;
        let (five, mask, one, zero) = (b.u32(5), b.u32(31), b.u32(1), b.u32(0));
        let word = b.binary(BinaryOp::Shr, slot, five);
        let word = b.element(words, word);
        let within = b.and(slot, mask);
        let shifted = b.binary(BinaryOp::Shr, word, within);
        let bit = b.and(shifted, one);
        b.ne(bit, zero)
    }

    /// Takes a slot (`i64`): whether it was free (`bool`).
    pub fn take(self, cx: &mut Context<'_>, slot: V) -> V {
        let (pointer, bit) = self.bit_of(cx, slot);
        let old = cx.builder.atomic(AtomicOp::Or, pointer, bit, Scope::Device);
        let before = cx.builder.and(old, bit);
        cx.builder.eq_int(before, 0)
    }
}
