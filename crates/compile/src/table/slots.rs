//! The slots of direct-addressed indexes.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope};

use super::buckets::Buckets;
use super::index::{Wants, array};
use super::probing::{number_of, report_broken, set_next};
use super::ranks::Ranks;
use super::rows::RowStore;
use crate::context::Context;
use crate::program::Growth;
use crate::program::States;

/// The slots of a direct-addressed index.
#[derive(Debug, Clone, Copy)]
pub enum Slots {
    /// Any number of rows, each with the number of the next one: the first's stands in the slot.
    Chained { heads: usize, next: usize },
    /// Any number of rows, one behind the other.
    Many(Buckets),
    /// One row at most: a bitmap in words of 32, and the row of a slot that is taken. `cleared`: the others have no row either.
    Single { bits: usize, heads: usize, cleared: bool },
    /// One row at most, which lies at its slot: the row's place is the slot. The bitmap is not looked at where `full`: every slot has a
    /// row then.
    Placed { bits: usize, full: bool },
    /// Only whether there is a row.
    Exists { bits: usize },
    /// A bitmap, by which a slot that is taken has a rank: what leads to rows is found by that.
    Ranked(Ranks),
}

impl Slots {
    pub(crate) fn plan(
        count: u64,
        store: &RowStore,
        (Wants { unique, first_only, chained, .. }, cleared): (Wants, bool),
        states: &mut States,
    ) -> Slots {
        let bitmap = |states: &mut States| bitmap(count, states);
        if first_only {
            Slots::Exists { bits: bitmap(states) }
        } else if unique {
            let class = states.class(count, Growth::Fixed);
            Slots::Single { bits: bitmap(states), heads: states.state("heads", 4, class), cleared }
        } else if chained {
            let class = states.class(count, Growth::Fixed);
            let heads = states.state("heads", 4, class);
            Slots::Chained { heads, next: states.state("next", 4, store.class) }
        } else {
            let class = states.class(count + 1, Growth::Fixed);
            Slots::Many(Buckets::plan(class, store, false, states))
        }
    }

    /// Slots at which rows lie. `full`: each of them will have one.
    pub(crate) fn placed(count: u64, full: bool, states: &mut States) -> Slots {
        Slots::Placed { bits: bitmap(count, states), full }
    }

    /// Takes a slot (`i64`) for a row that will lie there: whether it was free. Only of slots that have a bitmap.
    pub fn take(self, cx: &mut Context<'_>, slot: V) -> Option<V> {
        match self {
            Slots::Placed { bits, .. } | Slots::Exists { bits } => Some(take(cx, bits, slot)),
            Slots::Single { .. } | Slots::Chained { .. } | Slots::Many(_) | Slots::Ranked(_) => None,
        }
    }

    /// Puts the row at `place` into a slot, or counts it into the slot's bucket; of slots that have ranks it sets the bit. `broken`: the state that notes that two rows
    /// have one key, where that is to be reported.
    pub fn insert(self, cx: &mut Context<'_>, slot: V, place: V, broken: Option<usize>) {
        match self {
            Slots::Chained { heads, next } => {
                let heads = array(cx, "heads", heads);
                let pointer = cx.builder.offset(heads, slot);
                let number = number_of(cx, place);
                let old = cx.builder.atomic(AtomicOp::Exchange, pointer, number, Scope::Device);
                set_next(cx, next, place, old);
            }
            Slots::Many(buckets) => buckets.count(cx, slot, place),
            Slots::Exists { bits } => {
                take(cx, bits, slot);
            }
            Slots::Placed { .. } => {
                cx.impossible("rows that lie at their slots are put in with their columns")
            }
            Slots::Ranked(ranks) => {
                let was_free = ranks.take(cx, slot);
                if let Some(broken) = broken {
                    let is_second = cx.builder.not(was_free);
                    cx.begin_if(is_second);
                    report_broken(cx, broken);
                    cx.end();
                }
            }
            Slots::Single { bits, heads, .. } => {
                let was_free = take(cx, bits, slot);
                let heads = array(cx, "heads", heads);
                let number = number_of(cx, place);
                cx.begin_if(was_free);
                let pointer = cx.builder.offset(heads, slot);
                cx.builder.store(pointer, number);
                if let Some(broken) = broken {
                    cx.begin_else();
                    report_broken(cx, broken);
                }
                cx.end();
            }
        }
    }

    /// Sets the cursor to the first row of a slot; it is 0 before.
    pub fn search(self, cx: &mut Context<'_>, slot: V, cursor: Var) {
        match self {
            Slots::Chained { heads, .. } | Slots::Single { heads, cleared: true, .. } => {
                let heads = array(cx, "heads", heads);
                let head = cx.builder.element(heads, slot);
                cx.builder.assign(cursor, head);
            }
            Slots::Many(buckets) => buckets.open(cx, slot, cursor),
            Slots::Ranked(ranks) => ranks.search(cx, slot, cursor),
            Slots::Exists { bits } => {
                let taken = is_taken(cx, bits, slot);
                let taken = cx.builder.convert(taken, Scalar::U32);
                cx.builder.assign(cursor, taken);
            }
            Slots::Placed { full: true, .. } => {
                let number = number_of(cx, slot);
                cx.builder.assign(cursor, number);
            }
            Slots::Placed { bits, full: false } => {
                let taken = is_taken(cx, bits, slot);
                let (number, none) = (number_of(cx, slot), cx.builder.u32(0));
                let number = cx.builder.select(taken, number, none);
                cx.builder.assign(cursor, number);
            }
            Slots::Single { bits, heads, cleared: false } => {
                let taken = is_taken(cx, bits, slot);
                cx.begin_if(taken);
                let heads = array(cx, "heads", heads);
                let head = cx.builder.element(heads, slot);
                cx.builder.assign(cursor, head);
                cx.end();
            }
        }
    }
}

/// Declares a bitmap of so many slots.
pub(super) fn bitmap(slots: u64, states: &mut States) -> usize {
    let words = states.class(slots.div_ceil(32), Growth::Fixed);
    states.state("taken", 4, words)
}

/// The word of a slot in a bitmap (`ptr<global, u32>`), and the number of the slot's bit in it (`u32`).
fn word_of(cx: &mut Context<'_>, bits: usize, slot: V) -> (V, V) {
    let words = array(cx, "taken", bits);
    let b = &mut *cx.builder;
    let (five, mask) = (b.i64(5), b.i64(31));
    let word = b.binary(BinaryOp::Shr, slot, five);
    let pointer = b.offset(words, word);
    let within = b.and(slot, mask);
    (pointer, b.convert(within, Scalar::U32))
}

/// The word of a slot in a bitmap (`ptr<global, u32>`), and the slot's bit in it.
fn bit_of(cx: &mut Context<'_>, bits: usize, slot: V) -> (V, V) {
    let (pointer, within) = word_of(cx, bits, slot);
    let one = cx.builder.u32(1);
    (pointer, cx.builder.binary(BinaryOp::Shl, one, within))
}

/// As [`is_taken`], as a number (`i64`): 1 where it is, else 0. That takes fewer instructions than a `bool` that is counted.
pub fn taken_bit(cx: &mut Context<'_>, bits: usize, slot: V) -> V {
    let (pointer, within) = word_of(cx, bits, slot);
    let b = &mut *cx.builder;
    let (word, one) = (b.load(pointer), b.u32(1));
    let shifted = b.binary(BinaryOp::Shr, word, within);
    let bit = b.and(shifted, one);
    b.convert(bit, Scalar::I64)
}

/// Whether a slot is taken, by the bitmap.
pub fn is_taken(cx: &mut Context<'_>, bits: usize, slot: V) -> V {
    let (pointer, bit) = bit_of(cx, bits, slot);
    let word = cx.builder.load(pointer);
    let found = cx.builder.and(word, bit);
    let zero = cx.builder.u32(0);
    cx.builder.ne(found, zero)
}

/// Whether a slot (`u32`) is taken, by a bitmap that nothing writes any more.
pub fn is_taken_for_good(cx: &mut Context<'_>, bits: usize, slot: V) -> V {
    let words = array(cx, "taken", bits);
    let b = &mut *cx.builder;
    let (five, mask, one, zero) = (b.u32(5), b.u32(31), b.u32(1), b.u32(0));
    let word = b.binary(BinaryOp::Shr, slot, five);
    let word = b.element(words, word);
    let within = b.and(slot, mask);
    let shifted = b.binary(BinaryOp::Shr, word, within);
    let bit = b.and(shifted, one);
    b.ne(bit, zero)
}

/// Takes a slot: whether it was free.
pub(super) fn take(cx: &mut Context<'_>, bits: usize, slot: V) -> V {
    let (pointer, bit) = bit_of(cx, bits, slot);
    let old = cx.builder.atomic(AtomicOp::Or, pointer, bit, Scope::Device);
    let before = cx.builder.and(old, bit);
    let zero = cx.builder.u32(0);
    cx.builder.eq(before, zero)
}
