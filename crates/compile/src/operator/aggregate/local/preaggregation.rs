//! Near copies of groups: sums of the groups that a block (a CPU: a worker) has met, in its own memory, which are merged into the
//! table of all groups at the end.
//!
//! A table of groups that does not fit near memory as a whole is the device's, where every row costs an atomic, and rows of one
//! group wait for each other: on a GPU a single address takes about a thousand million a second, a lock some thousand times
//! less. So a block keeps copies of some groups near: of those it meets first, which where keys are skewed are the heavy ones, and
//! where there are few groups are all of them (Karnagel et al., section 4: placement in shared memory; section 5: skew). A copy is
//! found by the group's slot, whatever the keys are, by a search of [`STEPS`] places; a row whose group has none goes to the table
//! of all as before. A thread that finds too few copies no longer looks.
//!
//! Rows that a warp or block has added up before ([`ordered`](crate::operator::aggregate::ordered)) come here too.
//!
//! The copies of a hash table's groups can be found by their keys' entry instead, before anyone looks into the table of all: a row
//! whose group has a copy touches nothing that others write, and waits for one look-up less. So does a CPU's worker
//! ([`worker_copies`](super::worker_copies)), and a block may ([`block_copies`](super::block_copies)).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope};

use super::worker_copies::KeyArrays;
use crate::context::Context;
use crate::lower::hashing::GOLDEN;
use crate::operator::aggregate::block_loop::{clear, for_each};
use crate::operator::aggregate::functions::{Cells, read_cell, word_pointer};
use crate::variant::axes::PreaggregationSearch;

/// Places that a copy may be at.
const STEPS: i32 = 4;
/// The same where cells are locked: a longer search costs less than to wait for the lock of a group that has no copy.
const LOCKED_STEPS: i32 = 64;
/// A thread of a SIMT device looks for copies as long as its credit is not below zero. It begins with this, which is also the
/// most. There are many threads, so that each sees few rows.
const THREAD_CREDIT: i32 = 48;
/// The same of a CPU's worker.
pub(crate) const WORKER_CREDIT: i32 = 1 << 12;
/// Credit for a row whose group has a copy; one that has none costs one.
pub(crate) const GAIN: i32 = 16;
/// The same of a CPU's worker. What it loses by a search in vain is about what it gains by a copy: few workers wait for each other.
pub(crate) const WORKER_GAIN: i32 = 1;

/// So many near copies, a power of two, and how a group's is found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Preaggregation {
    pub(super) copies: u32,
    pub(super) search: PreaggregationSearch,
    /// Words of a copy before its cells.
    pub(super) head: u32,
}

impl Preaggregation {
    /// Clears them, before the row loop.
    pub fn begin(self, cx: &mut Context<'_>, cells: &Cells) -> PreaggregationTable {
        let is_by_key = self.search == PreaggregationSearch::Key;
        let keys = (is_by_key && cx.shape.is_serial()).then(|| KeyArrays::begin(cx, self.copies));
        let words = (self.copies * (self.head + cells.words())).max(1);
        let table = cx.builder.shared("near_groups", Pointee::Scalar(Scalar::U64), words);
        clear(cx, table, Scalar::U64, words);
        cx.builder.barrier();
        let most = if cx.shape.is_serial() { WORKER_CREDIT } else { THREAD_CREDIT };
        // A worker's may rise with every row.
        let credit = if keys.is_some() { cx.builder.i64(most.into()) } else { cx.builder.i32(most) };
        let has_locks = cells.have_locks();
        PreaggregationTable {
            copies: self.copies,
            steps: if has_locks && !cx.shape.is_serial() { LOCKED_STEPS } else { STEPS },
            head: self.head,
            table,
            is_by_key,
            keys,
            credit: cx.builder.var_of("credit", credit),
            most,
        }
    }
}

#[derive(Debug)]
pub(crate) struct PreaggregationTable {
    pub(crate) copies: u32,
    /// Places that a copy may be at.
    pub(crate) steps: i32,
    /// Words of a copy before its cells, of which the first is 0 where the place is free: the group's slot + 1, or the words of its keys
    /// where a block finds it by these. None where a worker does.
    pub(crate) head: u32,
    /// `ptr<shared, u64>`.
    table: V,
    /// Copies are found by keys, by whoever finds the groups.
    pub(crate) is_by_key: bool,
    /// Where a worker finds copies by keys: what is known of these.
    pub(crate) keys: Option<KeyArrays>,
    pub(crate) credit: Var,
    /// The most credit.
    most: i32,
}

/// Where the search for bits (`u64`) among so many places, a power of two, begins (`i64`).
pub(crate) fn first_place(cx: &mut Context<'_>, bits: V, places: u32) -> V {
    let b = &mut *cx.builder;
    let hash = b.mul_int(bits, GOLDEN);
    let shift = b.u64(u64::from(u64::BITS - places.ilog2()));
    let first = b.binary(BinaryOp::Shr, hash, shift);
    b.bitcast(first, Scalar::I64)
}

/// Looks for a tag, which is not 0, from the place in `place` (`i64`) on, at so many of all `places`, a power of two: a free one takes the
/// tag. `place` becomes where it was found, if it was (`found`, `bool`). `entry`: the address of a place's tag, 0 where it is free.
pub(crate) fn search(
    cx: &mut Context<'_>,
    (places, most): (u32, i32),
    tag: V,
    (place, found): (Var, Var),
    entry: &dyn Fn(&mut Context<'_>, V) -> V,
) {
    let zero = cx.builder.i32(0);
    let steps = cx.builder.var_of("steps", zero);
    cx.begin_loop();
    let current = cx.builder.read(place);
    let entry = entry(cx, current);
    let seen = claim(cx, (entry, tag), None);
    let b = &mut *cx.builder;
    let same = b.eq(seen, tag);
    b.assign(found, same);
    b.break_if(same);
    let (steps_now, one) = (b.read(steps), b.i32(1));
    let next = b.add(steps_now, one);
    b.assign(steps, next);
    let done = b.ge_int(next, most);
    b.break_if(done);
    let (one, mask) = (b.i64(1), b.i64(i64::from(places) - 1));
    let following = b.add(current, one);
    let following = b.and(following, mask);
    b.assign(place, following);
    cx.end();
}

/// What an entry is, once it was claimed for a tag where it was free. `won`: what the one thread does that has claimed it.
pub(crate) fn claim(cx: &mut Context<'_>, (entry, tag): (V, V), won: Option<&dyn Fn(&mut Context<'_>)>) -> V {
    let is_own = cx.shape.is_serial();
    let b = &mut *cx.builder;
    let current = if is_own { b.load(entry) } else { b.atomic_load(entry, Scope::Block) };
    let seen = b.var_of("seen", current);
    let zero = b.u64(0);
    let free = b.eq(current, zero);
    cx.begin_if(free);
    let b = &mut *cx.builder;
    if is_own {
        b.store(entry, tag);
        b.assign(seen, tag);
    } else {
        let old = b.atomic(AtomicOp::CompareExchange(zero), entry, tag, Scope::Block);
        let has_won = b.eq(old, zero);
        let now = b.select(has_won, tag, old);
        b.assign(seen, now);
        if let Some(won) = won {
            cx.begin_if(has_won);
            won(cx);
            cx.end();
        }
    }
    cx.end();
    cx.builder.read(seen)
}

/// A copy that a group has.
pub(crate) struct TakenCopy {
    /// `i64`.
    copy: V,
    /// Where it begins: `ptr<shared, u64>`.
    pub(crate) place: V,
    /// Its first word (`u64`), or the entry of its keys.
    first: V,
}

/// Adds contributions to the group in a slot of the table of all.
pub(crate) type AddFar<'f> = dyn Fn(&mut Context<'_>, V, &[Vec<V>]) + 'f;

impl PreaggregationTable {
    /// Adds contributions to the copy of the group in `slot` (`i64`), or where there is none and no place for one, by `far`.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>], far: &AddFar<'_>) {
        let zero = cx.builder.i64(0);
        let copy = cx.builder.var_of("copy", zero);
        let no = cx.builder.bool(false);
        let found = cx.builder.var_of("is_near", no);
        let b = &mut *cx.builder;
        let (credit, none) = (b.read(self.credit), b.i32(0));
        let looks = b.ge(credit, none);
        cx.begin_if(looks);
        self.find(cx, cells, slot, (copy, found));
        cx.end();
        let is_near = cx.builder.read(found);
        cx.begin_if(is_near);
        let copy = cx.builder.read(copy);
        self.add_to_copy(cx, cells, copy, values);
        let gain = if cx.shape.is_serial() { WORKER_GAIN } else { GAIN };
        self.settle(cx, gain);
        cx.begin_else();
        far(cx, slot, values);
        self.settle(cx, -1);
        cx.end();
    }

    /// Adds contributions to a copy (`i64`).
    pub fn add_to_copy(&self, cx: &mut Context<'_>, cells: &Cells, copy: V, values: &[Vec<V>]) {
        let entry = self.entry(cx, cells, copy);
        let base = word_pointer(cx, entry, self.head);
        cells.update(cx, base, values, Scope::Block);
    }

    /// Looks for the copy of a group, and makes it where there is a place.
    fn find(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, (copy, found): (Var, Var)) {
        let b = &mut *cx.builder;
        let bits = b.bitcast(slot, Scalar::U64);
        let tag = b.add_int(bits, 1);
        let start = first_place(cx, bits, self.copies);
        cx.builder.assign(copy, start);
        search(cx, (self.copies, self.steps), tag, (copy, found), &|cx, place| self.entry(cx, cells, place));
    }

    /// The thread's credit after a row.
    fn settle(&self, cx: &mut Context<'_>, change: i32) {
        let change = cx.builder.i32(change);
        self.change_credit(cx, change);
    }

    /// The same of a SIMT block's thread, or where copies are not found by keys. `change`: `i32`.
    pub(crate) fn change_credit(&self, cx: &mut Context<'_>, change: V) {
        let b = &mut *cx.builder;
        let credit = b.read(self.credit);
        let (least, most) = (b.i32(-1), b.i32(self.most));
        let credit = b.add(credit, change);
        let credit = b.binary(BinaryOp::Max, credit, least);
        let credit = b.binary(BinaryOp::Min, credit, most);
        b.assign(self.credit, credit);
    }

    /// The first word of a copy (`i64`).
    pub(crate) fn entry(&self, cx: &mut Context<'_>, cells: &Cells, copy: V) -> V {
        let stride = cx.builder.i64(i64::from(self.head + cells.words()));
        let index = cx.builder.mul(copy, stride);
        cx.builder.offset(self.table, index)
    }

    /// Merges the copies into the table of all groups by `far`, after the row loop: one thread a copy.
    pub fn end(&self, cx: &mut Context<'_>, cells: &Cells, far: &AddFar<'_>) {
        self.each(cx, cells, |cx, taken, values| {
            let slot = match &self.keys {
                Some(keys) => keys.slot(cx, taken.copy),
                None => {
                    let one = cx.builder.u64(1);
                    let slot = cx.builder.sub(taken.first, one);
                    cx.builder.bitcast(slot, Scalar::I64)
                }
            };
            far(cx, slot, values);
        });
    }

    /// Takes each copy that there is with what was added up in it, after the row loop: one thread a copy.
    pub(crate) fn each(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        take: impl FnOnce(&mut Context<'_>, &TakenCopy, &[Vec<V>]),
    ) {
        cx.builder.barrier();
        for_each(cx, self.copies, |cx, copy| {
            let entry = self.entry(cx, cells, copy);
            let first = match &self.keys {
                Some(keys) => keys.entry(cx, copy),
                None => cx.builder.load(entry),
            };
            let taken = cx.builder.ne_int(first, 0);
            cx.begin_if(taken);
            let base = word_pointer(cx, entry, self.head);
            let values: Vec<Vec<V>> = cells
                .cells
                .iter()
                .map(|cell| {
                    let pointer = word_pointer(cx, base, cell.word);
                    read_cell(cx, cell.op, pointer)
                })
                .collect();
            take(cx, &TakenCopy { copy, place: entry, first }, &values);
            cx.end();
        });
    }
}
