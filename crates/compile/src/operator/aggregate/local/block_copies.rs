//! Near copies of a block of a SIMT device that are found by the keys of their group, without a look into the table of all groups:
//! a hash table in the block's memory (Karnagel et al., section 5.1: private tables in shared memory).
//!
//! A copy's first words are its keys, each claimed by one compare-and-swap ([`WordKeys`](crate::operator::aggregate::keys), or the one word of packed
//! keys). So a copy is never taken and not yet told whose it is: no thread waits for another, which lanes of a warp could not.
//! A new group has a copy before it has a slot in the table of all: it is looked for there when the block's copies are merged, once a
//! group and not once a row. Behind several words is the keys' hash, by which that search begins.
//!
//! Keys that are compared where the table of all has them gain nothing: a row would look there in any case, and lanes that find their
//! copies after more or fewer steps compare them one after the other.

use kelpie_kir::builder::V;

use super::preaggregation::{GAIN, PreaggregationTable, claim};
use super::worker_copies::Spot;
use crate::context::Context;
use crate::operator::aggregate::functions::{Cells, word_pointer};

impl PreaggregationTable {
    /// The number that stands for a block's copy (`i64`) among slots, or the copy of such a number: below zero, and below what says that a
    /// thread has no row ([`ordered`](crate::operator::aggregate::ordered)).
    pub fn below_slots(&self, cx: &mut Context<'_>, copy: V) -> V {
        if self.keys.is_some() {
            return cx.builder.not(copy);
        }
        let first = cx.builder.i64(-2);
        cx.builder.sub(first, copy)
    }

    /// The copy of the group whose keys have such words, none of which is 0, where looking for it pays: it is made where there is a place,
    /// with the keys' `hash` (`u64`) behind them where they are several. `first`: where the search begins (`i64`).
    pub fn find_in_block(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (words, hash): (&[V], V),
        first: V,
    ) -> Spot {
        let b = &mut *cx.builder;
        let (copy, no, none) = (b.var_of("copy", first), b.bool(false), b.i32(0));
        let spot = Spot { copy, is_near: b.var_of("is_near", no), is_free: b.var_of("is_free", no) };
        let (credit, steps) = (b.read(self.credit), b.var_of("steps", none));
        let looks = b.ge(credit, none);
        cx.begin_if(looks);
        cx.begin_loop();
        let copy = cx.builder.read(spot.copy);
        let place = self.entry(cx, cells, copy);
        // Who has claimed a copy's first word goes on to the last, unless others with the same words so far were there before.
        let store_hash = |cx: &mut Context<'_>| {
            let pointer = word_pointer(cx, place, words.len() as u32);
            cx.builder.store(pointer, hash);
        };
        let last = words.len().saturating_sub(1);
        for (index, word) in words.iter().enumerate() {
            let pointer = word_pointer(cx, place, index as u32);
            let is_told = index == last && last > 0;
            let seen = claim(cx, (pointer, *word), is_told.then_some(&store_hash));
            let same = cx.builder.eq(seen, *word);
            if index == last {
                cx.builder.assign(spot.is_near, same);
            } else {
                cx.begin_if(same);
            }
        }
        (0..last).for_each(|_| cx.end());
        let b = &mut *cx.builder;
        let found = b.read(spot.is_near);
        b.break_if(found);
        let (taken, one, most) = (b.read(steps), b.i32(1), b.i32(self.steps));
        let taken = b.add(taken, one);
        b.assign(steps, taken);
        let done = b.ge(taken, most);
        b.break_if(done);
        let (one, mask) = (b.i64(1), b.i64(i64::from(self.copies) - 1));
        let next = b.add(copy, one);
        let next = b.and(next, mask);
        b.assign(spot.copy, next);
        cx.end();
        self.settle_search(cx, spot);
        cx.end();
        spot
    }

    /// What a copy has of its keys, which begins at `place`, once no more rows come.
    pub fn key_words(&self, cx: &mut Context<'_>, place: V) -> Vec<V> {
        let load = |word| {
            let pointer = word_pointer(cx, place, word);
            cx.builder.load(pointer)
        };
        (0..self.head).map(load).collect()
    }

    /// The thread's credit after such a search.
    fn settle_search(&self, cx: &mut Context<'_>, spot: Spot) {
        let b = &mut *cx.builder;
        let (is_near, gain, loss) = (b.read(spot.is_near), b.i32(GAIN), b.i32(-1));
        let change = b.select(is_near, gain, loss);
        self.change_credit(cx, change);
    }
}
