//! The table of direct-addressed groups that a block has in shared memory (a CPU: a worker), or some copies of it where there are few
//! groups: neighbouring threads add to different ones (Karnagel et al., section 5.1).
//!
//! How many rows a block sees bounds what its cells come to. Shared memory adds 32 bits with an instruction, so a cell that this
//! proves to be no larger is the lower half of its word; and a sum of 128 bits that fits 64 is kept in its lower word.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Builtin, Pointee, Scalar, Scope, Type};

use super::cells::{CellOp, combine_memory, combine_registers, read_cell};
use super::functions::{Cell, Cells};
use super::threads::clear;
use super::word_pointer;
use crate::context::Context;
use crate::types::Range;

/// A block's table in one kernel: the copies of a group lie side by side.
#[derive(Debug)]
pub struct BlockTable {
    table: V,
    copies: u32,
    /// One a cell.
    widths: Vec<Width>,
}

/// How a block keeps a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Width {
    /// As the device does.
    Whole,
    /// A sum in the lower half of its word, never negative.
    Half,
    /// A sum of two words in the lower one, with its sign.
    Word,
}

impl Width {
    /// That of a cell of a block that sees so many rows.
    fn of(cell: &Cell, rows: u64) -> Width {
        let total = cell.bounds.and_then(|bounds| {
            let rows = i128::from(rows);
            Some((bounds.min.min(0).checked_mul(rows)?, bounds.max.max(0).checked_mul(rows)?))
        });
        let within = |limits: Range| total.is_some_and(|(min, max)| Range { min, max }.within(limits));
        match cell.op {
            CellOp::Add if within(Range::new(0, u32::MAX)) => Width::Half,
            CellOp::AddWide if within(Range::new(i64::MIN, i64::MAX)) => Width::Word,
            _ => Width::Whole,
        }
    }
}

/// Words from one copy of a group to the next: an odd number, so that neighbouring threads use different banks.
pub fn stride(cells: &Cells, copies: u32) -> u32 {
    if copies > 1 { cells.words() | 1 } else { cells.words() }
}

impl BlockTable {
    /// Declares and clears a table of `slots` groups; a barrier must follow. `rows`: what a block sees at most.
    pub fn begin(cx: &mut Context<'_>, cells: &Cells, (slots, copies): (u64, u32), rows: u64) -> BlockTable {
        let words = slots as u32 * copies * stride(cells, copies);
        let table = cx.builder.shared("local_groups", Pointee::Scalar(Scalar::U64), words);
        clear(cx, table, Scalar::U64, words);
        let is_serial = cx.shape.is_serial();
        let width = |cell| if is_serial { Width::Whole } else { Width::of(cell, rows) };
        BlockTable { table, copies, widths: cells.cells.iter().map(width).collect() }
    }

    /// The first word of a group in a copy (`i64`), where there are several.
    fn group(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, copy: Option<V>) -> V {
        let b = &mut *cx.builder;
        let index = match copy {
            Some(copy) => {
                let copies = b.i64(i64::from(self.copies));
                let index = b.mul(slot, copies);
                b.add(index, copy)
            }
            None => slot,
        };
        let stride = b.i64(i64::from(stride(cells, self.copies)));
        let index = b.mul(index, stride);
        b.offset(self.table, index)
    }

    /// A group of this thread's copy.
    fn own(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> V {
        let copy = (self.copies > 1).then(|| {
            let b = &mut *cx.builder;
            let thread = b.builtin(Builtin::ThreadId);
            let mask = b.u32(self.copies - 1);
            let copy = b.and(thread, mask);
            b.convert(copy, Scalar::I64)
        });
        self.group(cx, cells, slot, copy)
    }

    /// Adds a row's contributions to its group.
    pub fn add(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, values: &[Vec<V>]) {
        let base = self.own(cx, cells, slot);
        for ((cell, width), value) in cells.cells.iter().zip(&self.widths).zip(values) {
            let pointer = word_pointer(cx, base, cell.word);
            match (width, value.as_slice()) {
                (Width::Half, &[value]) => {
                    let half = Type::Ptr(kelpie_kir::Space::Shared, Pointee::Scalar(Scalar::U32));
                    let b = &mut *cx.builder;
                    let (pointer, value) = (b.bitcast(pointer, half), b.convert(value, Scalar::U32));
                    b.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
                }
                (Width::Word, &[value]) => {
                    let value = cx.builder.convert(value, Scalar::U64);
                    cx.builder.atomic_discard(AtomicOp::Add, pointer, value, Scope::Block);
                }
                _ => combine_memory(cx, cell.op, pointer, value, Scope::Block),
            }
        }
    }

    /// What a cell of one word in this thread's copy holds now.
    pub fn current(&self, cx: &mut Context<'_>, cells: &Cells, slot: V, index: usize) -> Option<V> {
        let cell = cells.cells.get(index)?;
        let base = self.own(cx, cells, slot);
        let pointer = word_pointer(cx, base, cell.word);
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

    /// Clears a table of `slots` groups once more. Ends without a barrier.
    pub fn clear(&self, cx: &mut Context<'_>, cells: &Cells, slots: u32) {
        clear(cx, self.table, Scalar::U64, slots * self.copies * stride(cells, self.copies));
    }

    /// The parts of a cell in one copy.
    fn read(
        &self,
        cx: &mut Context<'_>,
        cells: &Cells,
        (slot, copy): (V, Option<V>),
        index: usize,
    ) -> Option<Vec<V>> {
        let (cell, width) = (cells.cells.get(index)?, self.widths.get(index)?);
        let base = self.group(cx, cells, slot, copy);
        let pointer = word_pointer(cx, base, cell.word);
        Some(match width {
            Width::Word => {
                let word = cx.builder.load(pointer);
                let word = cx.builder.bitcast(word, Scalar::I64);
                vec![cx.builder.convert(word, Scalar::I128)]
            }
            // The upper half of a word of which the lower one is used is 0.
            Width::Whole | Width::Half => read_cell(cx, cell.op, pointer),
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
        let range = |min, max| Some(Range { min, max });
        let most = i128::from(u32::MAX);
        for (op, bounds, rows, expected) in [
            (CellOp::Add, range(1, 1), u64::from(u32::MAX), Width::Half),
            (CellOp::Add, range(1, 1), 1 << 32, Width::Whole),
            (CellOp::Add, range(0, most), 1, Width::Half),
            (CellOp::Add, range(0, most), 2, Width::Whole),
            (CellOp::Add, range(-1, 1), 1, Width::Whole),
            (CellOp::Add, None, 1, Width::Whole),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 1, Width::Word),
            (CellOp::AddWide, range(i64::MIN.into(), 0), 2, Width::Whole),
            (CellOp::AddWide, range(i128::MIN, i128::MAX), u64::MAX, Width::Whole),
            (CellOp::AddFloat, range(0, 1), 1, Width::Whole),
        ] {
            assert_eq!(width(op, bounds, rows), expected, "{op:?} {bounds:?} {rows}");
        }
    }
}
