//! The table of direct-addressed groups that a block has in shared memory (a CPU: a worker), or some copies of it where there are few
//! groups: neighbouring threads add to different ones (Karnagel et al., section 5.1).
//!
//! How many rows there are bounds what a block's cells come to. Shared memory adds 32 bits and takes their maximum with an
//! instruction, which 64 bits need a loop for, and twice as many groups fit it: so a cell that this proves to be no larger has 4 bytes,
//! as has the maximum of values that are no further apart than that; and a sum of 128 bits that fits 64 has one word. Or a larger sum
//! is one of digits: a value is cut into digits so narrow that those of all rows add up within 4 bytes, and no carry is looked for
//! before the copies are added up at the end.
//!
//! A count may have 2 bytes, or 1, so that more groups fit once more ([`block_counts`](super::block_counts)).

use crate::operator::aggregate::block_loop::clear;
use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope};

use super::block_counts::{BlockCounts, CountLayout, Spill, only_where};
use super::cell_forms::{CellForms, Width};
use super::thread_tables::Addends;
use crate::context::Context;
use crate::operator::aggregate::functions::{Cell, CellOp, Cells, combine_memory, read_cell, unless_nothing};
use crate::shape::LaunchShape;

/// Where a group has a cell: an index into its cells of 1 or 2, of 4 or of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CellPlace {
    width: Width,
    index: u32,
}

/// Where the cells of a group are in a block's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLayout {
    /// One a cell.
    places: Vec<CellPlace>,
    /// Cells of fewer than 4 bytes, of 4, and of 8 bytes, a group.
    counts: CountLayout,
    halves: u32,
    words: u32,
}

/// What a row adds to a group of such a table.
#[derive(Clone, Copy)]
pub struct LocalRow<'r> {
    /// `i64`.
    pub slot: V,
    /// Whether the group is one of the table (`bool`; `None`: it is).
    pub is_here: Option<V>,
    pub values: &'r [Vec<V>],
}

/// A block's table in one kernel: the copies of a group lie side by side.
#[derive(Debug)]
pub struct BlockTable {
    layout: BlockLayout,
    slots: u32,
    copies: u32,
    counts: Option<BlockCounts>,
    halves: Option<V>,
    words: Option<V>,
}

impl BlockLayout {
    /// Lays cells out for tables, or copies, to which no more than `rows` rows are added.
    pub fn plan(cells: &Cells, rows: u64, forms: CellForms, shape: &LaunchShape) -> BlockLayout {
        let (mut counts, mut halves, mut words) = (0, 0, 0);
        let take = |counter: &mut u32, count: u32| {
            *counter += count;
            *counter - count
        };
        let place = |cell: &Cell| {
            // A worker adds to its table without atomics, and its table has the form of the device's.
            let width = if shape.is_serial() { Width::Whole } else { Width::of(cell, rows, forms) };
            let index = match width {
                Width::Count => take(&mut counts, 1),
                Width::HalfSum { .. } | Width::HalfMaximum { .. } => take(&mut halves, 1),
                Width::Digits(digits) => take(&mut halves, digits.count),
                Width::Word => take(&mut words, 1),
                Width::Whole => take(&mut words, cell.op.words()),
            };
            CellPlace { width, index }
        };
        let places = cells.cells.iter().map(place).collect();
        let counts = CountLayout { cells: counts, bytes: forms.counts };
        BlockLayout { places, counts, halves, words }
    }

    /// Whether there are counts of fewer than 4 bytes.
    pub fn has_counts(&self) -> bool {
        self.counts.cells > 0
    }

    /// Bytes of `slots` groups in so many copies.
    pub fn bytes(&self, slots: u64, copies: u32) -> u64 {
        let group = u64::from(stride(self.halves, copies)) * 4 + u64::from(stride(self.words, copies)) * 8;
        let groups = slots.saturating_mul(copies.into());
        groups.saturating_mul(group).saturating_add(self.counts.table_bytes(groups))
    }
}

/// Cells from one copy of a group to the next: an odd number, so that neighbouring threads use different banks.
fn stride(cells: u32, copies: u32) -> u32 {
    if copies > 1 && cells > 0 { cells | 1 } else { cells }
}

impl BlockTable {
    /// Declares and clears a table of `slots` groups; a barrier must follow.
    pub fn begin(cx: &mut Context<'_>, layout: BlockLayout, slots: u64, copies: u32) -> BlockTable {
        let slots = slots as u32;
        let mut table = |name, scalar, cells: u32| {
            (cells > 0).then(|| {
                cx.builder.shared(name, Pointee::Scalar(scalar), slots * copies * stride(cells, copies))
            })
        };
        let halves = table("local_halves", Scalar::U32, layout.halves);
        let words = table("local_groups", Scalar::U64, layout.words);
        let counts = layout.counts.declare(cx, slots * copies);
        let table = BlockTable { layout, slots, copies, counts, halves, words };
        table.clear(cx);
        table
    }

    /// Clears it once more. Ends without a barrier.
    pub fn clear(&self, cx: &mut Context<'_>) {
        let tables =
            [(self.halves, Scalar::U32, self.layout.halves), (self.words, Scalar::U64, self.layout.words)];
        for (table, scalar, cells) in tables {
            if let Some(table) = table {
                clear(cx, table, scalar, self.slots * self.copies * stride(cells, self.copies));
            }
        }
        if let Some(counts) = &self.counts {
            counts.clear(cx);
        }
    }

    /// Before so many rows of a thread of which each is added once at most: what their counts have no room for is taken out by
    /// [`BlockTable::end_rows`].
    pub fn begin_rows(&self, cx: &mut Context<'_>, rows: u32) {
        if let Some(counts) = &self.counts {
            counts.begin_rows(cx, rows);
        }
    }

    /// After these rows.
    pub fn end_rows(&self, cx: &mut Context<'_>, spill: &Spill<'_>) {
        if let Some(counts) = &self.counts {
            counts.end_rows(cx, spill);
        }
    }

    /// The address of a cell of the group in `slot` (`i64`), in a copy where there are several: as `u32`, or its first word as `u64`.
    fn address(&self, cx: &mut Context<'_>, place: CellPlace, (slot, copy): (V, Option<V>)) -> Option<V> {
        let (table, cells) = match place.width {
            Width::HalfSum { .. } | Width::HalfMaximum { .. } | Width::Digits(_) => {
                (self.halves?, self.layout.halves)
            }
            Width::Word | Width::Whole => (self.words?, self.layout.words),
            // Part of a word.
            Width::Count => return None,
        };
        let index = place.index;
        let group = self.group(cx, (slot, copy));
        let b = &mut *cx.builder;
        let stride = b.i64(i64::from(stride(cells, self.copies)));
        let first = b.mul(group, stride);
        let first = b.offset(table, first);
        Some(if index == 0 {
            first
        } else {
            let index = b.i32(index as i32);
            b.offset(first, index)
        })
    }

    /// The number of a group's copy (`i64`).
    fn group(&self, cx: &mut Context<'_>, (slot, copy): (V, Option<V>)) -> V {
        let Some(copy) = copy else { return slot };
        let group = cx.builder.mul_int(slot, i64::from(self.copies));
        cx.builder.add(group, copy)
    }

    /// The copy that this thread adds to, where there are several.
    fn own_copy(&self, cx: &mut Context<'_>) -> Option<V> {
        (self.copies > 1).then(|| {
            let b = &mut *cx.builder;
            let thread = b.builtin(Builtin::ThreadId);
            let copy = b.and_int(thread, self.copies - 1);
            b.convert(copy, Scalar::I64)
        })
    }

    /// Adds a row's contributions to its group; `spill` takes what a count has no room for.
    pub fn add(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        LocalRow { slot, is_here, values }: LocalRow<'_>,
        spill: &Spill<'_>,
    ) {
        let copy = self.own_copy(cx);
        let places = self.layout.places.iter().enumerate();
        for ((cell, (index, place)), value) in cells.cells.iter().zip(places).zip(values) {
            unless_nothing(cx, (cell, Scope::Block), value, |cx| {
                match (*place, &self.counts, value.as_slice()) {
                    (CellPlace { width: Width::Count, index: own }, Some(counts), &[rows])
                        if copy.is_none() =>
                    {
                        counts.add(cx, (slot, own), (rows, is_here), (index, spill));
                    }
                    _ => {
                        only_where(cx, is_here, |cx| self.add_cell(cx, cell.op, *place, (slot, copy), value))
                    }
                }
            });
        }
    }

    /// Adds a contribution to a cell of a group's copy, which is none of the counts in fewer than 4 bytes.
    fn add_cell(
        &self,
        cx: &mut Context<'_>,
        op: CellOp,
        place: CellPlace,
        (slot, copy): (V, Option<V>),
        value: &[V],
    ) {
        let Some(pointer) = self.address(cx, place, (slot, copy)) else {
            return cx.impossible("a cell of a block without a table, or a count of copies");
        };
        let b = &mut *cx.builder;
        match (place.width, value) {
            (Width::HalfSum { .. }, &[value]) => {
                let value = b.convert(value, Scalar::U32);
                b.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
            }
            (Width::Digits(digits), &[value]) => {
                let value = b.convert(value, Scalar::U64);
                for digit in 0..digits.count {
                    let part = digits.cut(cx, value, digit);
                    let index = cx.builder.i32(digit as i32);
                    let sum = cx.builder.offset(pointer, index);
                    cx.builder.atomic_discard(AtomicOp::Add, sum, part, Scope::Block);
                }
            }
            (Width::HalfMaximum { below }, &[value]) => {
                let below = b.u64(below);
                let value = b.binary(BinaryOp::Max, value, below);
                let above = b.sub(value, below);
                let above = b.convert(above, Scalar::U32);
                b.atomic_discard(AtomicOp::Max, pointer, above, Scope::Block);
            }
            (Width::Word, &[value]) => {
                let value = b.convert(value, Scalar::U64);
                b.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
            }
            _ => combine_memory(cx, op, pointer, value, Scope::Block),
        }
    }

    /// What a cell that is as the device has it, and of one word, holds in this thread's copy now.
    pub fn current(&self, cx: &mut Context<'_>, slot: V, index: usize) -> Option<V> {
        let place = *self.layout.places.get(index)?;
        if place.width != Width::Whole {
            return None;
        }
        let copy = self.own_copy(cx);
        let pointer = self.address(cx, place, (slot, copy))?;
        Some(cx.builder.atomic_load(pointer, Scope::Block))
    }

    /// What all copies of a cell hold together, once no thread adds to them any more.
    pub fn total(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, index: usize) -> Option<Vec<V>> {
        let cell = cells.cells.get(index)?;
        if self.copies == 1 {
            return self.read(cx, cells, (slot, None), index);
        }
        let copies = Addends { name: "copy", scalar: Scalar::I64, count: self.copies };
        copies.total(cx, cell.op, |cx, copy| self.read(cx, cells, (slot, Some(copy)), index))
    }

    /// The parts of a cell in one copy.
    fn read(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        group: (V, Option<V>),
        index: usize,
    ) -> Option<Vec<V>> {
        let (cell, place) = (cells.cells.get(index)?, *self.layout.places.get(index)?);
        let part = *cell.op.parts().first()?;
        if place.width == Width::Count {
            return Some(vec![self.counts.as_ref()?.read(cx, (group.0, place.index))]);
        }
        let pointer = self.address(cx, place, group)?;
        let b = &mut *cx.builder;
        Some(match place.width {
            // Read above.
            Width::Count => return None,
            Width::HalfSum { signed } => {
                let half = b.load(pointer);
                let half = if signed { b.bitcast(half, Scalar::I32) } else { half };
                let wide = b.convert(half, if part == Scalar::I128 { part } else { Scalar::I64 });
                vec![if part == Scalar::I128 { wide } else { b.bitcast(wide, Scalar::U64) }]
            }
            Width::Digits(digits) => {
                let total = digits.join(cx, pointer);
                let wide = |cx: &mut Context<'_>| cx.builder.convert(total, Scalar::I128);
                vec![if part == Scalar::I128 { wide(cx) } else { cx.builder.bitcast(total, Scalar::U64) }]
            }
            Width::HalfMaximum { below } => {
                let half = b.load(pointer);
                let above = b.convert(half, Scalar::U64);
                let (below, none) = (b.u64(below), b.u64(0));
                let value = b.add(above, below);
                let is_none = b.eq(above, none);
                vec![b.select(is_none, none, value)]
            }
            Width::Word => {
                let word = b.load(pointer);
                let word = b.bitcast(word, Scalar::I64);
                vec![b.convert(word, Scalar::I128)]
            }
            Width::Whole => read_cell(cx, cell.op, pointer),
        })
    }
}
