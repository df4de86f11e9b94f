//! The table of direct-addressed groups that a block has in shared memory (a CPU: a worker), or some copies of it where there are few
//! groups: neighbouring threads add to different ones (Karnagel et al., section 5.1).
//!
//! How many rows there are bounds what a block's cells come to. Shared memory adds 32 bits and takes their maximum with an
//! instruction, which 64 bits need a loop for, and twice as many groups fit it: so a cell that this proves to be no larger has 4 bytes,
//! as has the maximum of values that are no further apart than that; and a sum of 128 bits that fits 64 has one word.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope};

use super::cells::{CellOp, combine_memory, combine_registers, read_cell};
use super::functions::{Cell, Cells};
use super::threads::clear;
use crate::context::Context;
use crate::shape::LaunchShape;
use crate::types::Range;

/// Where a group has a cell: an index into its cells of 4 or into those of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellPlace {
    /// A sum in 4 bytes, extended by the sign where `signed`.
    HalfSum { index: u32, signed: bool },
    /// A maximum in 4 bytes: how far it is above `below`, which is less than any value; 0 is none.
    HalfMaximum { index: u32, below: u64 },
    /// A sum of two words in one, with its sign.
    Word { index: u32 },
    /// All of its words, as the device has it.
    Whole { index: u32 },
}

/// Where the cells of a group are in a block's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockLayout {
    /// One a cell.
    places: Vec<CellPlace>,
    /// Cells of 4 bytes, and of 8 bytes, a group.
    halves: u32,
    words: u32,
}

/// A block's table in one kernel: the copies of a group lie side by side.
#[derive(Debug)]
pub struct BlockTable {
    layout: BlockLayout,
    slots: u32,
    copies: u32,
    halves: Option<V>,
    words: Option<V>,
}

impl BlockLayout {
    /// Lays cells out for tables to which no more than `rows` rows are added.
    pub fn plan(cells: &Cells, rows: u64, shape: &LaunchShape) -> BlockLayout {
        let (mut halves, mut words) = (0, 0);
        let take = |counter: &mut u32, count: u32| {
            *counter += count;
            *counter - count
        };
        let place = |cell: &Cell| {
            // A worker adds to its table without atomics, and its table has the form of the device's.
            match if shape.is_serial() { Width::Whole } else { Width::of(cell, rows) } {
                Width::HalfSum { signed } => CellPlace::HalfSum { index: take(&mut halves, 1), signed },
                Width::HalfMaximum { below } => CellPlace::HalfMaximum { index: take(&mut halves, 1), below },
                Width::Word => CellPlace::Word { index: take(&mut words, 1) },
                Width::Whole => CellPlace::Whole { index: take(&mut words, cell.op.words()) },
            }
        };
        let places = cells.cells.iter().map(place).collect();
        BlockLayout { places, halves, words }
    }

    /// Bytes of `slots` groups in so many copies.
    pub fn bytes(&self, slots: u64, copies: u32) -> u64 {
        let group = u64::from(stride(self.halves, copies)) * 4 + u64::from(stride(self.words, copies)) * 8;
        slots.saturating_mul(copies.into()).saturating_mul(group)
    }
}

/// Cells from one copy of a group to the next: an odd number, so that neighbouring threads use different banks.
fn stride(cells: u32, copies: u32) -> u32 {
    if copies > 1 && cells > 0 { cells | 1 } else { cells }
}

/// How a block keeps a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    HalfSum { signed: bool },
    HalfMaximum { below: u64 },
    Word,
    Whole,
}

impl Width {
    /// That of a cell to which so many rows are added.
    fn of(cell: &Cell, rows: u64) -> Width {
        let total = cell.total(rows);
        let within = |limits: Range| total.is_some_and(|total| total.within(limits));
        match cell.op {
            CellOp::Add | CellOp::AddWide if within(Range::new(0, u32::MAX)) => {
                Width::HalfSum { signed: false }
            }
            CellOp::Add | CellOp::AddWide if within(Range::new(i32::MIN, i32::MAX)) => {
                Width::HalfSum { signed: true }
            }
            CellOp::AddWide if within(Range::new(i64::MIN, i64::MAX)) => Width::Word,
            CellOp::Max => cell.bounds.and_then(Width::of_keys).unwrap_or(Width::Whole),
            _ => Width::Whole,
        }
    }

    /// That of a maximum of keys within bounds, if they are near each other.
    fn of_keys(bounds: Range) -> Option<Width> {
        let below = u64::try_from((bounds.min - 1).max(0)).ok()?;
        (bounds.max - i128::from(below) <= u32::MAX.into()).then_some(Width::HalfMaximum { below })
    }
}

impl BlockTable {
    /// Declares and clears a table of `slots` groups; a barrier must follow.
    pub fn begin(cx: &mut Context<'_>, layout: BlockLayout, (slots, copies): (u64, u32)) -> BlockTable {
        let slots = slots as u32;
        let mut table = |name, scalar, cells: u32| {
            (cells > 0).then(|| {
                cx.builder.shared(name, Pointee::Scalar(scalar), slots * copies * stride(cells, copies))
            })
        };
        let halves = table("local_halves", Scalar::U32, layout.halves);
        let words = table("local_groups", Scalar::U64, layout.words);
        let table = BlockTable { layout, slots, copies, halves, words };
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
    }

    /// The address of a cell of the group in `slot` (`i64`), in a copy where there are several: as `u32`, or its first word as `u64`.
    fn address(&self, cx: &mut Context<'_>, place: CellPlace, (slot, copy): (V, Option<V>)) -> Option<V> {
        let (table, cells, index) = match place {
            CellPlace::HalfSum { index, .. } | CellPlace::HalfMaximum { index, .. } => {
                (self.halves?, self.layout.halves, index)
            }
            CellPlace::Word { index } | CellPlace::Whole { index } => (self.words?, self.layout.words, index),
        };
        let b = &mut *cx.builder;
        let group = match copy {
            Some(copy) => {
                let copies = b.i64(i64::from(self.copies));
                let group = b.mul(slot, copies);
                b.add(group, copy)
            }
            None => slot,
        };
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

    /// The copy that this thread adds to, where there are several.
    fn own_copy(&self, cx: &mut Context<'_>) -> Option<V> {
        (self.copies > 1).then(|| {
            let b = &mut *cx.builder;
            let thread = b.builtin(Builtin::ThreadId);
            let mask = b.u32(self.copies - 1);
            let copy = b.and(thread, mask);
            b.convert(copy, Scalar::I64)
        })
    }

    /// Adds a row's contributions to its group.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>]) {
        let copy = self.own_copy(cx);
        for ((cell, place), value) in cells.cells.iter().zip(&self.layout.places).zip(values) {
            let Some(pointer) = self.address(cx, *place, (slot, copy)) else {
                return cx.impossible("a cell of a block without a table");
            };
            let b = &mut *cx.builder;
            match (place, value.as_slice()) {
                (CellPlace::HalfSum { .. }, &[value]) => {
                    let value = b.convert(value, Scalar::U32);
                    b.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
                }
                (CellPlace::HalfMaximum { below, .. }, &[value]) => {
                    let below = b.u64(*below);
                    let value = b.binary(BinaryOp::Max, value, below);
                    let above = b.sub(value, below);
                    let above = b.convert(above, Scalar::U32);
                    b.atomic_discard(AtomicOp::Max, pointer, above, Scope::Block);
                }
                (CellPlace::Word { .. }, &[value]) => {
                    let value = b.convert(value, Scalar::U64);
                    b.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
                }
                _ => combine_memory(cx, cell.op, pointer, value, Scope::Block),
            }
        }
    }

    /// What a cell that is as the device has it, and of one word, holds in this thread's copy now.
    pub fn current(&self, cx: &mut Context<'_>, slot: V, index: usize) -> Option<V> {
        let place = *self.layout.places.get(index)?;
        let CellPlace::Whole { .. } = place else { return None };
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
        let nothing = cell.op.nothing(cx);
        let total: Vec<_> = nothing.iter().map(|zero| cx.builder.var_of("total", *zero)).collect();
        let first = cx.builder.i64(0);
        let copy = cx.builder.var_of("copy", first);
        cx.begin_loop();
        let current = cx.builder.read(copy);
        let end = cx.builder.i64(i64::from(self.copies));
        let done = cx.builder.ge(current, end);
        cx.builder.break_if(done);
        let value = self.read(cx, cells, (slot, Some(current)), index)?;
        combine_registers(cx, cell.op, &total, &value);
        let one = cx.builder.i64(1);
        let next = cx.builder.add(current, one);
        cx.builder.assign(copy, next);
        cx.end();
        Some(total.iter().map(|part| cx.builder.read(*part)).collect())
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
        let pointer = self.address(cx, place, group)?;
        let b = &mut *cx.builder;
        Some(match place {
            CellPlace::HalfSum { signed, .. } => {
                let half = b.load(pointer);
                let half = if signed { b.bitcast(half, Scalar::I32) } else { half };
                let wide = b.convert(half, if part == Scalar::I128 { part } else { Scalar::I64 });
                vec![if part == Scalar::I128 { wide } else { b.bitcast(wide, Scalar::U64) }]
            }
            CellPlace::HalfMaximum { below, .. } => {
                let half = b.load(pointer);
                let above = b.convert(half, Scalar::U64);
                let (below, none) = (b.u64(below), b.u64(0));
                let value = b.add(above, below);
                let is_none = b.eq(above, none);
                vec![b.select(is_none, none, value)]
            }
            CellPlace::Word { .. } => {
                let word = b.load(pointer);
                let word = b.bitcast(word, Scalar::I64);
                vec![b.convert(word, Scalar::I128)]
            }
            CellPlace::Whole { .. } => read_cell(cx, cell.op, pointer),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::aggregate::functions::Contribution;

    #[test]
    fn cells_are_as_wide_as_a_block_can_make_them() {
        let width = |op, bounds, rows| {
            let contribution = Contribution::Row;
            Width::of(&Cell { op, contribution, distinct: None, word: 0, bounds }, rows)
        };
        let range = |min: i128, max: i128| Some(Range { min, max });
        let most = i128::from(u32::MAX);
        let (unsigned, signed) = (Width::HalfSum { signed: false }, Width::HalfSum { signed: true });
        let maximum = |below| Width::HalfMaximum { below };
        for (op, bounds, rows, expected) in [
            (CellOp::Add, range(1, 1), u64::from(u32::MAX), unsigned),
            (CellOp::Add, range(1, 1), 1 << 32, Width::Whole),
            (CellOp::Add, range(0, most), 1, unsigned),
            (CellOp::Add, range(0, most), 2, Width::Whole),
            (CellOp::Add, range(-1, 1), 1, signed),
            (CellOp::Add, range(-1, 1), 1 << 31, Width::Whole),
            (CellOp::Add, None, 1, Width::Whole),
            (CellOp::AddWide, range(0, 1), 9, unsigned),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 1, Width::Word),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 2, Width::Whole),
            (CellOp::AddWide, range(i128::MIN, i128::MAX), u64::MAX, Width::Whole),
            (CellOp::AddFloat, range(0, 1), 1, Width::Whole),
            (CellOp::Max, range(0, most), u64::MAX, maximum(0)),
            (CellOp::Max, range(0, most + 1), 1, Width::Whole),
            (CellOp::Max, range(1 << 63, (1 << 63) + most - 1), 1, maximum((1 << 63) - 1)),
            (CellOp::Max, range(1 << 63, (1 << 63) + most), 1, Width::Whole),
            (CellOp::Max, None, 1, Width::Whole),
        ] {
            assert_eq!(width(op, bounds, rows), expected, "{op:?} {bounds:?} {rows}");
        }
    }
}
