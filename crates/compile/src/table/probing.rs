//! Open addressing with linear probing over rows of a store. A slot is one word: 32 bits of the key's hash (the tag) above
//! a number (32 bits); 0 is an empty slot, as numbers start at 1. A search looks at tags first, so that only a slot whose tag
//! agrees costs a look at the store, where the whole keys are compared.
//!
//! The last slot is never used: what is counted a slot ends where the next slot's begins (`table::buckets`). At most half of
//! the slots are taken, so that a search always comes to an empty one.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::hashing::hash_keys;
use super::rows::RowStore;
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::pipeline::Growth;
use crate::pipeline::states_of::States;

/// Bits of a slot's number.
const NUMBER_BITS: u64 = 32;

/// The slots.
#[derive(Debug, Clone, Copy)]
pub struct OpenTable {
    /// Their class, which takes its size from the rows of the store.
    pub class: usize,
    /// State of one `u64` a slot.
    words: usize,
}

/// Where a search begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// The hash of the keys, `u64`.
    hash: V,
    /// The slot, `i64`.
    slot: Var,
    /// The slot that is never used, `i64`.
    last: V,
}

impl OpenTable {
    /// Declares the slots of an index over a store.
    pub(crate) fn plan(store: &RowStore, states: &mut States) -> OpenTable {
        let class = states.class(1, Growth::Sized(store.row_count()));
        OpenTable { class, words: states.state("slots", 8, class) }
    }

    /// The state to clear before rows are put in.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Puts the row at `place` (`i64`) into the slot of its keys, unless an older row with equal keys has it: then `known`
    /// emits what is to be done. The slot (`i64`).
    pub fn claim(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, wide): (&[Lowered], &[bool]),
        place: V,
        known: impl FnOnce(&mut Context<'_>),
    ) -> Result<Var, Unsupported> {
        let start = self.start(cx, keys, wide);
        let number = number_of(cx, place);
        let word = self.word(cx, start.hash, number);
        cx.begin_loop();
        let slot = cx.builder.read(start.slot);
        let pointer = self.pointer(cx, slot);
        let current = cx.builder.atomic_load(pointer, Scope::Device);
        let seen = cx.builder.var_of("seen", current);
        let zero = cx.builder.u64(0);
        let empty = cx.builder.eq(current, zero);
        cx.begin_if(empty);
        let old = cx.builder.atomic(AtomicOp::CompareExchange(zero), pointer, word, Scope::Device);
        let won = cx.builder.eq(old, zero);
        cx.builder.break_if(won);
        cx.builder.assign(seen, old);
        cx.end();
        let current = cx.builder.read(seen);
        let alike = has_tag(cx, current, start.hash);
        cx.begin_if(alike);
        let other = place_of(cx, current);
        let same = keys_equal(cx, store, keys, other)?;
        cx.begin_if(same);
        known(cx);
        cx.builder.break_loop();
        cx.end();
        cx.end();
        advance(cx, start, slot);
        cx.end();
        Ok(start.slot)
    }

    /// Sets `cursor` to the number in the slot of the keys; leaves it where there is none. `place` gives the place of a row
    /// with the keys of a slot, by the slot's number (`u32`).
    pub fn find(
        &self,
        cx: &mut Context<'_>,
        store: &RowStore,
        (keys, wide): (&[Lowered], &[bool]),
        cursor: Var,
        place: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Result<(), Unsupported> {
        let start = self.start(cx, keys, wide);
        cx.begin_loop();
        let slot = cx.builder.read(start.slot);
        let pointer = self.pointer(cx, slot);
        let word = cx.builder.load(pointer);
        let zero = cx.builder.u64(0);
        let empty = cx.builder.eq(word, zero);
        cx.builder.break_if(empty);
        let alike = has_tag(cx, word, start.hash);
        cx.begin_if(alike);
        let number = cx.builder.convert(word, Scalar::U32);
        let place = place(cx, number);
        let same = keys_equal(cx, store, keys, place)?;
        cx.begin_if(same);
        cx.builder.assign(cursor, number);
        cx.builder.break_loop();
        cx.end();
        cx.end();
        advance(cx, start, slot);
        cx.end();
        Ok(())
    }

    /// Replaces the number of a slot (`i64`) that is taken by another one (`u32`, not 0); nobody else uses the slot.
    pub fn renumber(&self, cx: &mut Context<'_>, slot: V, number: V) {
        let pointer = self.pointer(cx, slot);
        let word = cx.builder.load(pointer);
        let word = self.word(cx, word, number);
        cx.builder.store(pointer, word);
    }

    fn start(&self, cx: &mut Context<'_>, keys: &[Lowered], wide: &[bool]) -> Start {
        let pairs: Vec<_> = keys.iter().zip(wide.iter().copied()).collect();
        let hash = hash_keys(cx, &pairs);
        let capacity = cx.argument("slot_count", Scalar::I64, Argument::StateCapacity(self.words));
        let b = &mut *cx.builder;
        let one = b.i64(1);
        let last = b.sub(capacity, one);
        let bits = b.bitcast(hash, Scalar::I64);
        let slot = b.and(bits, last);
        let slot = b.var_of("slot", slot);
        let current = b.read(slot);
        let first = b.i64(0);
        let unused = b.eq(current, last);
        let current = b.select(unused, first, current);
        b.assign(slot, current);
        Start { hash, slot, last }
    }

    fn pointer(&self, cx: &mut Context<'_>, slot: V) -> V {
        let words = cx.argument("slots", Type::global(Scalar::U64), Argument::State(self.words));
        cx.builder.offset(words, slot)
    }

    /// The word of a hash's tag and a number.
    fn word(&self, cx: &mut Context<'_>, hash: V, number: V) -> V {
        let b = &mut *cx.builder;
        let mask = b.u64(u64::MAX << NUMBER_BITS);
        let tag = b.and(hash, mask);
        let number = b.convert(number, Scalar::U64);
        b.or(tag, number)
    }
}

/// To the next slot.
fn advance(cx: &mut Context<'_>, start: Start, slot: V) {
    let b = &mut *cx.builder;
    let (zero, one) = (b.i64(0), b.i64(1));
    let next = b.add(slot, one);
    let beyond = b.eq(next, start.last);
    let next = b.select(beyond, zero, next);
    b.assign(start.slot, next);
}

/// Whether a word has the tag of a hash.
fn has_tag(cx: &mut Context<'_>, word: V, hash: V) -> V {
    let b = &mut *cx.builder;
    let difference = b.binary(BinaryOp::Xor, word, hash);
    let bits = b.u64(NUMBER_BITS);
    let difference = b.binary(BinaryOp::Shr, difference, bits);
    let zero = b.u64(0);
    b.eq(difference, zero)
}

/// The place (`i64`) that a word's number is of.
fn place_of(cx: &mut Context<'_>, word: V) -> V {
    let b = &mut *cx.builder;
    let mask = b.u64(u64::MAX >> NUMBER_BITS);
    let number = b.and(word, mask);
    let number = b.bitcast(number, Scalar::I64);
    let one = b.i64(1);
    b.sub(number, one)
}

/// The number of a place (`i64`): its position + 1, `u32`.
pub fn number_of(cx: &mut Context<'_>, place: V) -> V {
    let number = cx.builder.convert(place, Scalar::U32);
    let one = cx.builder.u32(1);
    cx.builder.add(number, one)
}

/// Whether the keys are those of the row at `place` (`i64`); NULLs are equal to each other.
fn keys_equal(cx: &mut Context<'_>, store: &RowStore, keys: &[Lowered], place: V) -> Result<V, Unsupported> {
    let mut same = None;
    for (key, column) in keys.iter().zip(store.columns()) {
        let equal = column.equals(cx, key, place)?;
        same = Some(match same {
            Some(same) => cx.builder.and(same, equal),
            None => equal,
        });
    }
    Ok(same.unwrap_or_else(|| cx.builder.bool(true)))
}
