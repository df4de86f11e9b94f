//! Near copies of a block of a SIMT device that are found by the keys of their group, without a look into the table of all groups:
//! a hash table in the block's memory, of which each copy has a tag that is claimed by one compare-and-swap (Karnagel et al., section
//! 5.1: private tables in shared memory).
//!
//! A tag says at once whose copy it is, so that no thread ever waits for another to write the rest: lanes of a warp that wait for each
//! other may never go on. Keys of one word are their own tag. A new group has a copy before it has a slot in the table of all: it is
//! looked for there when the block's copies are merged, once a group and not once a row. Other keys are compared where the table of all
//! has them: the tag is the group's slot, and some bits of the hash that spare most comparisons with other groups' keys. It is
//! claimed by who has found the slot, whose keys are published by then. So it is, too, where keys are stored with a group that follow
//! from its others: only a row has them.
//!
//! Two threads may give a group two copies where both look before either claims. Both are merged, as is what rows have added to the
//! group in the table of all.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope};

use super::functions::Cells;
use super::near::{GAIN, NearTable, STEPS, search};
use super::near_keys::Spot;
use crate::context::{Context, Unsupported};

/// Bits of a tag that are a slot's number and one: a slot has some bytes, of which no memory has so many.
const SLOT_BITS: u32 = 48;

/// Whether a copy with a tag (`u64`, not 0) is of the row's group (`bool`).
pub(super) type HasTag<'f> = dyn Fn(&mut Context<'_>, V) -> Result<V, Unsupported> + 'f;

/// The tag of the group in a slot (`i64`) whose keys have an entry (`u64`).
pub(super) fn tag_of_slot(cx: &mut Context<'_>, entry: V, slot: V) -> V {
    let b = &mut *cx.builder;
    let (slot, one) = (b.bitcast(slot, Scalar::U64), b.u64(1));
    let slot = b.add(slot, one);
    let above = b.u64(u64::MAX << SLOT_BITS);
    let bits = b.and(entry, above);
    b.or(bits, slot)
}

/// The slot (`i64`) of such a tag.
pub(super) fn slot_of_tag(cx: &mut Context<'_>, tag: V) -> V {
    let b = &mut *cx.builder;
    let (mask, one) = (b.u64((1 << SLOT_BITS) - 1), b.u64(1));
    let slot = b.and(tag, mask);
    let slot = b.sub(slot, one);
    b.bitcast(slot, Scalar::I64)
}

/// Whether such a tag may be that of keys with an entry (`bool`).
pub(super) fn may_have_entry(cx: &mut Context<'_>, tag: V, entry: V) -> V {
    let b = &mut *cx.builder;
    let shift = b.u64(SLOT_BITS.into());
    let (own, wanted) = (b.binary(BinaryOp::Shr, tag, shift), b.binary(BinaryOp::Shr, entry, shift));
    b.eq(own, wanted)
}

impl NearTable {
    /// Where the slot of a group is expected (`i64`), a number for a copy of a block that is found by keys: below zero, and below what
    /// says that a thread has no row (`segments`). Its own inverse.
    pub fn below_slots(&self, cx: &mut Context<'_>, copy: V) -> V {
        if self.keys.is_some() {
            return cx.builder.not(copy);
        }
        let first = cx.builder.i64(-2);
        cx.builder.sub(first, copy)
    }

    /// The copy of the group of keys with an entry (`u64`), where looking for it pays: it is made where there is a place. `first`: the
    /// place where the search begins (`i64`).
    pub fn find_or_claim(&self, cx: &mut Context<'_>, cells: &Cells, (entry, first): (V, V)) -> Spot {
        let (spot, looks) = self.begin_search(cx);
        cx.begin_if(looks);
        cx.builder.assign(spot.copy, first);
        let place = &|cx: &mut Context<'_>, copy| self.entry(cx, cells, copy);
        search(cx, (self.copies, STEPS), entry, (spot.copy, spot.is_near), place);
        cx.end();
        spot
    }

    /// The same without making it, or a free place for one.
    pub fn find_in_block(
        &self,
        cx: &mut Context<'_>,
        (cells, first): (&Cells, V),
        has_tag: &HasTag<'_>,
    ) -> Result<Spot, Unsupported> {
        let (spot, looks) = self.begin_search(cx);
        cx.begin_if(looks);
        cx.builder.assign(spot.copy, first);
        let zero = cx.builder.i32(0);
        let steps = cx.builder.var_of("steps", zero);
        cx.begin_loop();
        let copy = cx.builder.read(spot.copy);
        let place = self.entry(cx, cells, copy);
        let b = &mut *cx.builder;
        let (tag, zero) = (b.atomic_load(place, Scope::Block), b.u64(0));
        // Behind a free place there is none of this group: places are taken in this order, and none is given back.
        let is_free = b.eq(tag, zero);
        b.assign(spot.is_free, is_free);
        b.break_if(is_free);
        let has_tag = has_tag(cx, tag)?;
        let b = &mut *cx.builder;
        b.assign(spot.is_near, has_tag);
        b.break_if(has_tag);
        let (taken, one, most) = (b.read(steps), b.i32(1), b.i32(STEPS));
        let taken = b.add(taken, one);
        b.assign(steps, taken);
        let done = b.ge(taken, most);
        b.break_if(done);
        let (one, mask) = (b.i64(1), b.i64(i64::from(self.copies) - 1));
        let next = b.add(copy, one);
        let next = b.and(next, mask);
        b.assign(spot.copy, next);
        cx.end();
        cx.end();
        Ok(spot)
    }

    /// Nothing found, and whether to look (`bool`).
    fn begin_search(&self, cx: &mut Context<'_>) -> (Spot, V) {
        let b = &mut *cx.builder;
        let (zero, no) = (b.i64(0), b.bool(false));
        let copy = b.var_of("copy", zero);
        let [is_near, is_free]: [Var; 2] = ["is_near", "is_free"].map(|name| b.var_of(name, no));
        let (credit, none) = (b.read(self.credit), b.i32(0));
        (Spot { copy, is_near, is_free }, b.ge(credit, none))
    }

    /// Makes the copy of a group by its tag where the search has found a place for one. Another thread may have been there before: for
    /// the same group, whose copy it is then, or for another, and the row has none.
    pub fn claim(&self, cx: &mut Context<'_>, cells: &Cells, spot: Spot, tag: V) {
        let free = cx.builder.read(spot.is_free);
        cx.begin_if(free);
        let copy = cx.builder.read(spot.copy);
        let place = self.entry(cx, cells, copy);
        let b = &mut *cx.builder;
        let zero = b.u64(0);
        let old = b.atomic(AtomicOp::CompareExchange(zero), place, tag, Scope::Block);
        let (won, is_own) = (b.eq(old, zero), b.eq(old, tag));
        let is_near = b.or(won, is_own);
        b.assign(spot.is_near, is_near);
        cx.end();
    }

    /// The thread's credit after a search.
    pub fn settle_search(&self, cx: &mut Context<'_>, spot: Spot) {
        let b = &mut *cx.builder;
        let (is_near, gain, loss) = (b.read(spot.is_near), b.i32(GAIN), b.i32(-1));
        let change = b.select(is_near, gain, loss);
        self.change_credit(cx, change);
    }
}
