//! Contiguous buckets: the rows of a slot stand one behind the other, so that a search finds its slot once and then walks.
//!
//! They are made in two passes over the rows, with a prefix sum between them. The first counts the rows of each slot, and
//! notes of each row its slot and which of the slot's rows it is; the prefix sum turns the counts into where the buckets
//! begin; the second puts each row at its position. No position is asked for twice, so the second pass has no atomics.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::rows::RowStore;
use crate::context::{Argument, Context};
use crate::program::States;

/// The bit of an entry that says that the bucket ends with it; the others are the row's place.
const LAST: u32 = 1 << 31;

#[derive(Debug, Clone, Copy)]
pub struct Buckets {
    /// State of one `u32` a slot and one more: the rows of the slot, then where its bucket begins.
    offsets: usize,
    /// State of one `u32` a row: how many rows of its slot came before.
    ranks: usize,
    /// State of one `u32` a row: its slot, where that does not follow from its key at once.
    slots: Option<usize>,
    /// State of one `u32` a row: the entries.
    entries: usize,
    /// The rows themselves lie at the positions: a position is a place.
    has_rows: bool,
}

impl Buckets {
    /// Declares the states. `class` has one element a slot and one more. `notes_slots`: the second pass is to be told the
    /// slots of the rows.
    pub(crate) fn plan(class: usize, store: &RowStore, notes_slots: bool, states: &mut States) -> Buckets {
        Buckets {
            offsets: states.state("bucket_offsets", 4, class),
            ranks: states.state("bucket_ranks", 4, store.class),
            slots: notes_slots.then(|| states.state("row_slots", 4, store.class)),
            entries: states.state("bucket_rows", 4, store.class),
            has_rows: false,
        }
    }

    /// The same where rows lie at the positions of their buckets.
    pub(crate) fn with_rows(self) -> Buckets {
        Buckets { has_rows: true, ..self }
    }

    /// The state to clear before the first pass, and to sum up before the second.
    pub fn offsets(&self) -> usize {
        self.offsets
    }

    /// First pass: counts the row at `place` (`i64`) into a slot (`i64`).
    pub fn count(&self, cx: &mut Context<'_>, slot: V, place: V) {
        let pointer = address(cx, self.offsets, slot);
        let one = cx.builder.u32(1);
        let rank = cx.builder.atomic(AtomicOp::Add, pointer, one, Scope::Device);
        let pointer = address(cx, self.ranks, place);
        cx.builder.store(pointer, rank);
        if let Some(slots) = self.slots {
            let pointer = address(cx, slots, place);
            let slot = cx.builder.convert(slot, Scalar::U32);
            cx.builder.store(pointer, slot);
        }
    }

    /// Second pass: the slot that the first has noted of the row at `place`.
    pub fn noted_slot(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        let pointer = address(cx, self.slots?, place);
        let slot = cx.builder.load(pointer);
        Some(cx.builder.convert(slot, Scalar::I64))
    }

    /// Second pass: puts the row at `place` (`i64`) into the bucket of its slot (`i64`). The bucket's first position
    /// (`u32`), whether the row stands there (`bool`), and where it stands (`i64`).
    pub fn put(&self, cx: &mut Context<'_>, slot: V, place: V) -> (V, V, V) {
        let pointer = address(cx, self.ranks, place);
        let rank = cx.builder.load(pointer);
        let (begin, end) = self.bounds(cx, slot);
        let b = &mut *cx.builder;
        let (zero, one, last) = (b.u32(0), b.u32(1), b.u32(LAST));
        let position = b.add(begin, rank);
        let next = b.add(position, one);
        let is_last = b.eq(next, end);
        let number = b.convert(place, Scalar::U32);
        let ended = b.or(number, last);
        let entry = b.select(is_last, ended, number);
        let is_first = b.eq(rank, zero);
        let position = b.convert(position, Scalar::I64);
        let pointer = address(cx, self.entries, position);
        cx.builder.store(pointer, entry);
        (begin, is_first, position)
    }

    /// Sets `cursor` to the first position + 1 of a slot's (`i64`) bucket; leaves it where that is empty.
    pub fn open(&self, cx: &mut Context<'_>, slot: V, cursor: Var) {
        let (begin, end) = self.bounds(cx, slot);
        let taken = cx.builder.ne(begin, end);
        cx.begin_if(taken);
        let first = cx.builder.add_int(begin, 1);
        cx.builder.assign(cursor, first);
        cx.end();
    }

    /// The place (`i64`) of the row at a position + 1 (`u32`).
    pub fn place_at(&self, cx: &mut Context<'_>, cursor: V) -> V {
        if self.has_rows {
            let position = cx.builder.sub_int(cursor, 1);
            return cx.builder.convert(position, Scalar::I64);
        }
        let entry = self.entry(cx, cursor);
        let mask = cx.builder.u32(!LAST);
        let place = cx.builder.and(entry, mask);
        cx.builder.convert(place, Scalar::I64)
    }

    /// The place (`i64`) of the row at a position + 1 (`u32`), and what follows in its bucket: a position + 1, or 0.
    pub fn step(&self, cx: &mut Context<'_>, cursor: V) -> (V, V) {
        let entry = self.entry(cx, cursor);
        let b = &mut *cx.builder;
        let (zero, one, last) = (b.u32(0), b.u32(1), b.u32(LAST));
        let is_last = b.ge(entry, last);
        let next = b.add(cursor, one);
        let next = b.select(is_last, zero, next);
        if self.has_rows {
            let position = b.sub(cursor, one);
            return (b.convert(position, Scalar::I64), next);
        }
        let mask = b.u32(!LAST);
        let place = b.and(entry, mask);
        (b.convert(place, Scalar::I64), next)
    }

    fn entry(&self, cx: &mut Context<'_>, cursor: V) -> V {
        let one = cx.builder.u32(1);
        let position = cx.builder.binary(BinaryOp::Sub, cursor, one);
        let position = cx.builder.convert(position, Scalar::I64);
        let pointer = address(cx, self.entries, position);
        cx.builder.load(pointer)
    }

    /// The place (`i64`) of the row at a position (`u32`).
    pub fn place_of_position(&self, cx: &mut Context<'_>, position: V) -> V {
        let cursor = cx.builder.add_int(position, 1);
        self.place_at(cx, cursor)
    }

    /// Where a slot's bucket begins and ends, `u32`.
    pub fn bounds(&self, cx: &mut Context<'_>, slot: V) -> (V, V) {
        let pointer = address(cx, self.offsets, slot);
        let begin = cx.builder.load(pointer);
        let one = cx.builder.i64(1);
        let pointer = cx.builder.offset(pointer, one);
        (begin, cx.builder.load(pointer))
    }
}

fn address(cx: &mut Context<'_>, state: usize, index: V) -> V {
    let array = cx.argument("bucket", Type::global(Scalar::U32), Argument::State(state));
    cx.builder.offset(array, index)
}
