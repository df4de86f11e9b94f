//! Ranks of keys: perfect hashing of the values that there are, by a bitmap of a range of values (Jacobson, “Space-efficient Static Trees
//! and Graphs”, 1989).
//!
//! The rank of a key is how many values before it there are: those of the words before, which are noted word by word, and the bits
//! before its own in its word. It is the key's place among as many as there are keys, so that what leads from a key to its rows takes four
//! bytes a row, and not four a value of the range. Where few values of a large range have rows, the bits and the counts, two bits
//! a value, lie in a cache in which a slot a value has no room.
//!
//! It is made in passes: the rows set their bits; the engine makes the exclusive prefix sum of the bits of words, counted as they are read
//! (`primitives/chained_scan`); the rows put themselves at their ranks. Where a key may have several rows, its rank leads to a chain of them, or to their bucket.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, UnaryOp};

use super::buckets::Buckets;
use super::index::array;
use super::probing::{number_of, set_next};
use super::rows::RowStore;
use super::slots::{bitmap, take};
use crate::context::Context;
use crate::program::{Fill, Growth, States, WordRanks};

/// An index by the ranks of keys.
#[derive(Debug, Clone, Copy)]
pub struct Ranks {
    /// State of the bitmap, in words of 32.
    bits: usize,
    /// State of one `u32` a word: the bits of all words before it.
    ranks: usize,
    pub(super) rows: RowsOfRank,
}

/// What stands at a rank.
#[derive(Debug, Clone, Copy)]
pub enum RowsOfRank {
    /// The number of its row: state of one `u32` a row.
    One(usize),
    /// The number of its first row, each of which has the number of the next one: states of one `u32` a row.
    Chained(usize, usize),
    /// The bucket of its rows, of a class of so many ranks.
    Buckets(Buckets, usize),
}

/// A slot in the bitmap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bit {
    /// The number of its word, `u32`.
    word: V,
    /// The word, and the number of the slot's bit in it, `u32`.
    bits: V,
    within: V,
}

impl Ranks {
    /// Declares the states for a range of so many values. `is_one`: no key has several rows; else they are `chained`, or in buckets.
    pub(crate) fn plan(
        values: u64,
        store: &RowStore,
        (is_one, chained): (bool, bool),
        states: &mut States,
    ) -> Ranks {
        let words = states.class(values.div_ceil(32), Growth::Fixed);
        let (bits, ranks) = (bitmap(values, states), states.state("ranks", 4, words));
        let rows = if is_one || chained {
            let numbers = states.state("ranked_rows", 4, store.class);
            match is_one {
                true => RowsOfRank::One(numbers),
                false => RowsOfRank::Chained(numbers, states.state("next", 4, store.class)),
            }
        } else {
            // There are no more ranks than rows, and one more element ends the last bucket.
            let all = Growth::Sized(store.place_count(), Fill { taken: 1, of: 1 });
            let class = states.class(1, all);
            RowsOfRank::Buckets(Buckets::plan(class, store, true, states), class)
        };
        Ranks { bits, ranks, rows }
    }

    /// The buckets, where there are.
    pub fn buckets(&self) -> Option<Buckets> {
        match self.rows {
            RowsOfRank::Buckets(buckets, _) => Some(buckets),
            RowsOfRank::One(_) | RowsOfRank::Chained(..) => None,
        }
    }

    /// The same where the rows of a key lie at the positions of their bucket, if there are buckets.
    pub(crate) fn with_rows_in_buckets(self) -> Ranks {
        let rows = match self.rows {
            RowsOfRank::Buckets(buckets, class) => RowsOfRank::Buckets(buckets.with_rows(), class),
            other => other,
        };
        Ranks { rows, ..self }
    }

    /// The state of the bitmap.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// What is to be made of the bitmap between the passes.
    pub(crate) fn words(&self) -> WordRanks {
        WordRanks { bits: self.bits, ranks: self.ranks }
    }

    /// States to clear before the first pass, without those of buckets.
    pub fn zeroed(&self) -> Vec<usize> {
        match self.rows {
            RowsOfRank::One(_) | RowsOfRank::Buckets(..) => vec![self.bits],
            RowsOfRank::Chained(numbers, _) => vec![self.bits, numbers],
        }
    }

    /// First pass: takes a slot (`i64`); whether it was free (`bool`).
    pub fn take(&self, cx: &mut Context<'_>, slot: V) -> V {
        take(cx, self.bits, slot)
    }

    /// Second pass: puts the row at `place` (`i64`) at the rank of its slot (`i64`), or counts it into its bucket.
    pub fn number(&self, cx: &mut Context<'_>, slot: V, place: V) {
        let bit = self.bit(cx, slot);
        let rank = self.rank(cx, bit);
        match self.rows {
            RowsOfRank::One(numbers) => {
                let pointer = at(cx, numbers, rank);
                let number = number_of(cx, place);
                cx.builder.store(pointer, number);
            }
            RowsOfRank::Chained(numbers, next) => {
                let pointer = at(cx, numbers, rank);
                let number = number_of(cx, place);
                let old = cx.builder.atomic(AtomicOp::Exchange, pointer, number, Scope::Device);
                set_next(cx, next, place, old);
            }
            RowsOfRank::Buckets(buckets, _) => {
                let rank = cx.builder.convert(rank, Scalar::I64);
                buckets.count(cx, rank, place);
            }
        }
    }

    /// Sets the cursor to the first row of a slot (`i64`); it is 0 before.
    pub fn search(&self, cx: &mut Context<'_>, slot: V, cursor: Var) {
        self.if_taken(cx, slot, |cx, rank| match self.rows {
            RowsOfRank::One(numbers) | RowsOfRank::Chained(numbers, _) => {
                let pointer = at(cx, numbers, rank);
                let number = cx.builder.load(pointer);
                cx.builder.assign(cursor, number);
            }
            RowsOfRank::Buckets(buckets, _) => {
                let rank = cx.builder.convert(rank, Scalar::I64);
                buckets.open(cx, rank, cursor);
            }
        });
    }

    /// Emits `then` with the rank (`u32`) of a slot (`i64`), where it is taken.
    pub(super) fn if_taken(&self, cx: &mut Context<'_>, slot: V, then: impl FnOnce(&mut Context<'_>, V)) {
        let bit = self.bit(cx, slot);
        let taken = bit.is_set(cx);
        cx.begin_if(taken);
        let rank = self.rank(cx, bit);
        then(cx, rank);
        cx.end();
    }

    /// The bit of a slot, of any integer type.
    pub(super) fn bit(&self, cx: &mut Context<'_>, slot: V) -> Bit {
        let words = array(cx, "taken", self.bits);
        let b = &mut *cx.builder;
        // There are no more slots than 32 bits hold.
        let slot = b.convert(slot, Scalar::U32);
        let (five, mask) = (b.u32(5), b.u32(31));
        let word = b.binary(BinaryOp::Shr, slot, five);
        let (bits, within) = (b.element(words, word), b.and(slot, mask));
        Bit { word, bits, within }
    }

    /// The rank (`u32`) of a slot that is taken.
    pub(super) fn rank(&self, cx: &mut Context<'_>, bit: Bit) -> V {
        let ranks = array(cx, "ranks", self.ranks);
        let b = &mut *cx.builder;
        let (before, one) = (b.element(ranks, bit.word), b.u32(1));
        let own = b.binary(BinaryOp::Shl, one, bit.within);
        let below = b.sub(own, one);
        let below = b.and(bit.bits, below);
        let below = b.unary(UnaryOp::Popcount, below);
        b.add(before, below)
    }
}

impl Bit {
    /// Whether it is set (`bool`).
    pub(super) fn is_set(self, cx: &mut Context<'_>) -> V {
        let b = &mut *cx.builder;
        let (zero, one) = (b.u32(0), b.u32(1));
        let shifted = b.binary(BinaryOp::Shr, self.bits, self.within);
        let bit = b.and(shifted, one);
        b.ne(bit, zero)
    }
}

/// The element of a rank (`ptr<global, u32>`).
fn at(cx: &mut Context<'_>, state: usize, rank: V) -> V {
    let numbers = array(cx, "ranked_rows", state);
    cx.builder.offset(numbers, rank)
}
