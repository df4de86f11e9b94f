//! Direct-addressed groups: the keys' ranges are dense, so the group's slot is computed, not looked up. C2 updates the
//! device's table; C3 what is nearer (`placement`), merged at the end.

use std::fmt;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

use super::group_table::{AtGroup, GroupEmitter, GroupTable, Located, add_alone};
use crate::context::{Argument, Context, DictionaryCode, Lowered, Repr, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::aggregate::block_loop::for_each;
use crate::operator::aggregate::functions::{
    CellOp, Cells, combine_memory, group_pointer, is_used, unless_nothing, word_pointer,
};
use crate::operator::aggregate::keys::{DenseKey, Input, KeyWord, RowKeys, place_of_key, value_of};
use crate::operator::aggregate::local::{CellMemory, Local, LocalRow, TableExtent};
use crate::program::{Growth, States};
use crate::shape::LaunchShape;

#[derive(Debug, Clone)]
pub struct DirectTable {
    keys: Vec<DenseKey>,
    slots: u64,
    class: usize,
    state: usize,
    /// State that counts the groups, where it costs little: a GPU's threads that add to the device's table would have to wait for what
    /// was there before each row.
    count: Option<usize>,
    /// The cell that counts a group's rows.
    present: usize,
    place: CellMemory,
    /// Groups at most, by the rows.
    row_bound: u64,
}

impl fmt::Display for DirectTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "direct, {} slots{}", self.slots, self.place)
    }
}

impl DirectTable {
    /// Declares its states. `present`: the cell that counts a group's rows.
    pub fn plan(
        keys: Vec<DenseKey>,
        present: usize,
        cells: &Cells,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<DirectTable, Unsupported> {
        let slots: u64 = keys.iter().map(|key| key.values + u64::from(key.nullable)).product();
        let class = states.class(slots, Growth::Fixed);
        let state = states.state("groups", 8 * cells.words(), class);
        let place = CellMemory::plan(cells, slots, input, states)?;
        let counts = input.is_serial() || place.is_local();
        let count = counts.then(|| states.counter("group_count"));
        Ok(DirectTable { keys, slots, class, state, count, present, place, row_bound: input.row_bound })
    }

    /// How large it is where a thread sees so many rows at most.
    fn extent(&self, thread_rows: u64) -> TableExtent {
        TableExtent { slots: self.slots, row_bound: self.row_bound, thread_rows }
    }

    /// The slot of the current row, and the flag that its contributions still need: a local table has a slot for dead
    /// rows.
    fn slot_of_row(
        &self,
        cx: &mut Context<'_>,
        keys: &[Expr],
        flow: Flow,
    ) -> Result<(V, Option<V>), Unsupported> {
        let slot = self.slot(cx, keys)?;
        Ok(match flow.active() {
            Some(active) if self.is_local() => {
                // Behind all slices.
                let junk = cx.builder.i64((self.slice_slots() * u64::from(self.passes())) as i64);
                (cx.builder.select(active, slot, junk), None)
            }
            active => (slot, active),
        })
    }

    /// Adds a contribution, which is not zero, to cell `index` of a group in the device's table, to which all of `scope` add. Whoever
    /// adds a group's first row counts the group: among `own`, where threads count for themselves.
    ///
    /// Where rows may be taken back, a group may be empty again, or have fewer rows than none: whoever takes it to no rows takes it out of the
    /// count. So the groups that were counted are those that have rows, at each moment and however additions follow each other.
    fn add(
        &self,
        cx: &mut Context<'_>,
        (index, op): (usize, CellOp),
        pointer: V,
        value: &[V],
        (scope, own): (Scope, Option<Var>),
    ) {
        let (&[rows], Some(count), true) = (value, self.count, index == self.present) else {
            return combine_memory(cx, op, pointer, value, scope);
        };
        let old = cx.builder.atomic(AtomicOp::Add, pointer, rows, scope);
        let zero = cx.builder.u64(0);
        let first = cx.builder.eq(old, zero);
        if let Some(own) = own {
            let (counted, first) = (cx.builder.read(own), cx.builder.convert(first, Scalar::U64));
            let counted = cx.builder.add(counted, first);
            return cx.builder.assign(own, counted);
        }
        let one = cx.builder.u64(1);
        let (changes, more) = match self.place.takes_rows_back() {
            false => (first, one),
            true => {
                let b = &mut *cx.builder;
                let (now, less) = (b.add(old, rows), b.u64(1_u64.wrapping_neg()));
                let last = b.eq(now, zero);
                (b.or(first, last), b.select(first, one, less))
            }
        };
        cx.begin_if(changes);
        self.count_groups(cx, count, more);
        cx.end();
    }

    /// Adds to the number of groups, whose state is `count`.
    fn count_groups(&self, cx: &mut Context<'_>, count: usize, more: V) {
        let count = cx.argument("group_count", Type::global(Scalar::U64), Argument::State(count));
        cx.builder.atomic_discard(AtomicOp::Add, count, more, Scope::Device);
    }

    fn slice_slots(&self) -> u64 {
        match self.passes() {
            1 => self.slots,
            slices => self.slots.div_ceil(slices.into()),
        }
    }

    /// Bits of a slot's number behind those that are its part's.
    fn part_shift(&self, bits: u32) -> u32 {
        let used = u64::BITS - self.slots.saturating_sub(1).leading_zeros();
        used.saturating_sub(bits)
    }

    /// The slot of the current row, `i64`, always within the table.
    fn slot(&self, cx: &mut Context<'_>, keys: &[Expr]) -> Result<V, Unsupported> {
        let mut slot: Option<V> = None;
        for (key, dense) in keys.iter().zip(&self.keys) {
            let (index, valid) = place_of_key(cx, key, dense)?;
            let index = match (valid, dense.nullable) {
                (Some(valid), true) => {
                    let null = cx.builder.i64(dense.values as i64);
                    cx.builder.select(valid, index, null)
                }
                // The planner knows that it is never NULL (COALESCE with a constant): the flag is always set.
                (Some(valid), false) => {
                    let zero = cx.builder.i64(0);
                    cx.builder.select(valid, index, zero)
                }
                (None, _) => index,
            };
            let part = cx.builder.mul_int(index, dense.stride as i64);
            slot = Some(match slot {
                Some(sum) => cx.builder.add(sum, part),
                None => part,
            });
        }
        slot.ok_or_else(|| Unsupported("a group without keys".into()))
    }
}

impl GroupTable for DirectTable {
    fn class(&self) -> usize {
        self.class
    }

    fn zeroed(&self) -> Vec<usize> {
        [self.state].into_iter().chain(self.count).collect()
    }

    fn count(&self) -> Option<usize> {
        self.count
    }

    fn row_bound(&self) -> u64 {
        self.slots.min(self.row_bound)
    }

    fn is_local(&self) -> bool {
        self.place.is_local()
    }

    fn takes_flags(&self) -> bool {
        self.is_local()
    }

    fn part(&self, cx: &mut Context<'_>, keys: &[Expr], bits: u32) -> Result<(V, Option<V>), Unsupported> {
        let slot = self.slot(cx, keys)?;
        let part = cx.builder.shr_int(slot, self.part_shift(bits));
        Ok((cx.builder.convert(part, Scalar::U32), None))
    }

    fn part_start(&self, cx: &mut Context<'_>, part: V, bits: u32) -> V {
        let part = cx.builder.convert(part, Scalar::I64);
        cx.builder.shl_int(part, self.part_shift(bits))
    }

    fn part_slots(&self, bits: u32) -> Option<u64> {
        Some(1 << self.part_shift(bits))
    }

    fn parts_used(&self, bits: u32) -> u64 {
        (self.slots.saturating_sub(1) >> self.part_shift(bits)) + 1
    }

    fn block_bytes(&self) -> u64 {
        self.place.block_bytes()
    }

    fn passes(&self) -> u32 {
        self.place.slices()
    }

    fn fits(&self, cells: &Cells, shape: &LaunchShape, thread_rows: u64) -> Result<(), String> {
        self.place.fits(cells, self.extent(thread_rows), shape)
    }

    /// Clears the local table. Its last slot takes the dead rows.
    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        cells: &'s Cells,
        thread_rows: u64,
    ) -> Box<dyn GroupEmitter + 's> {
        let local = self.place.begin(cx, cells, self.extent(thread_rows));
        let slice = (self.passes() > 1).then(|| {
            let first = cx.builder.i64(0);
            cx.builder.var_of("slice", first)
        });
        // Workers that count each group where all do would wait for each other.
        let counts = self.count.is_some() && cx.shape.is_serial() && !self.is_local();
        let counted = counts.then(|| {
            let none = cx.builder.u64(0);
            cx.builder.var_of("new_groups", none)
        });
        Box::new(DirectEmitter { table: self, cells, local, slice, alone: None, counted })
    }

    fn present(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> Option<V> {
        let base = group_pointer(cx, self.state, cells.words(), slot);
        let pointer = word_pointer(cx, base, cells.cells[self.present].word);
        let rows = cx.builder.load(pointer);
        let zero = cx.builder.u64(0);
        Some(cx.builder.ne(rows, zero))
    }

    fn words(&self, cx: &mut Context<'_>, cells: &Cells, slot: V) -> V {
        group_pointer(cx, self.state, cells.words(), slot)
    }

    /// The keys of a slot: the inverse of [`DirectTable::slot`].
    fn keys(&self, cx: &mut Context<'_>, columns: &[ColumnInfo], slot: V) -> Vec<Lowered> {
        let mut keys = Vec::new();
        for (dense, column) in self.keys.iter().zip(columns) {
            let stride = cx.builder.i64(dense.stride as i64);
            let size = cx.builder.i64((dense.values + u64::from(dense.nullable)) as i64);
            let quotient = cx.builder.div(slot, stride);
            let index = cx.builder.rem(quotient, size);
            let values = cx.builder.i64(dense.values as i64);
            let valid = dense.nullable.then(|| cx.builder.lt(index, values));
            let zero = cx.builder.i64(0);
            // The index of NULL is beyond the dictionary: read entry 0 instead.
            let index = match valid {
                Some(valid) => cx.builder.select(valid, index, zero),
                None => index,
            };
            let repr = match column.dictionary {
                Some((scan, column, entries)) => {
                    let value = cx.builder.convert(index, Scalar::U32);
                    Repr::Text(cx.dictionary_entry(DictionaryCode { value, entries, scan, column }))
                }
                None => Repr::Scalar(value_of(cx, index, dense, column)),
            };
            keys.push(Lowered { repr, valid, range: column.range });
        }
        keys
    }
}

struct DirectEmitter<'s> {
    table: &'s DirectTable,
    cells: &'s Cells,
    /// Where rows are added up before they come to the device's table, if anywhere.
    local: Option<Local>,
    /// The first slot of the slice that the block has now (`i64`), where it has one at a time.
    slice: Option<Var>,
    /// Whether nobody else adds to the groups that rows come to now (`bool`).
    alone: Option<Var>,
    /// Groups of which the thread has added the first row (`u64`), where it counts them for itself.
    counted: Option<Var>,
}

impl DirectEmitter<'_> {
    /// Adds so many rows (`u64`, modulo 2^64) to a cell of the group that has a slot of the block's table; not those that are dead, nor
    /// what carries bring to slots behind the groups.
    fn add_rows(&self, cx: &mut Context<'_>, (own, index): (V, usize), rows: V) {
        let Some(cell) = self.cells.cells.get(index) else { return cx.impossible("a count without a cell") };
        let slots = cx.builder.i64(self.table.slice_slots() as i64);
        let is_within = cx.builder.lt(own, slots);
        let (slot, is_group) = match self.slice {
            Some(first) => {
                let first = cx.builder.read(first);
                let slot = cx.builder.add(first, own);
                // The last slice may have slots behind those that there are.
                let is_there = cx.builder.lt_int(slot, self.table.slots as i64);
                (slot, cx.builder.and(is_within, is_there))
            }
            None => (own, is_within),
        };
        cx.begin_if(is_group);
        let base = self.table.words(cx, self.cells, slot);
        let pointer = word_pointer(cx, base, cell.word);
        self.table.add(cx, (index, cell.op), pointer, &[rows], (Scope::Device, None));
        cx.end();
    }

    /// Adds contributions to the group in a slot of the device's table.
    fn add_far(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>], scope: Scope) {
        let base = self.table.words(cx, self.cells, slot);
        for (index, (cell, value)) in self.cells.cells.iter().zip(values).enumerate() {
            let pointer = word_pointer(cx, base, cell.word);
            unless_nothing(cx, (cell, scope), value, |cx| {
                self.table.add(cx, (index, cell.op), pointer, value, (scope, self.counted));
            });
        }
    }
}

impl GroupEmitter for DirectEmitter<'_> {
    fn locate(
        &self,
        cx: &mut Context<'_>,
        keys: &RowKeys,
        _word: Option<KeyWord>,
        flow: Flow,
        next: &mut AtGroup<'_>,
    ) -> Result<(), Unsupported> {
        let (slot, active) = self.table.slot_of_row(cx, &keys.telling, flow)?;
        next(cx, Located { slot: Some(slot), active, keys: None })
    }

    fn add(&self, cx: &mut Context<'_>, slot: Option<V>, values: &[Vec<V>]) {
        let Some(slot) = slot else { return cx.impossible("a row without a slot") };
        if let Some(local) = &self.local {
            let row = match self.slice {
                None => LocalRow { slot, is_here: None, values },
                Some(first) => {
                    // Slots of slices are fewer than 2^32, as a slice fits a block's memory.
                    let first = cx.builder.read(first);
                    let b = &mut *cx.builder;
                    let (slot, first) = (b.convert(slot, Scalar::U32), b.convert(first, Scalar::U32));
                    let (own, slots) = (b.sub(slot, first), b.u32(self.table.slice_slots() as u32));
                    let inside = b.lt(own, slots);
                    LocalRow { slot: b.convert(own, Scalar::I64), is_here: Some(inside), values }
                }
            };
            return local.add(cx, self.cells, row, &|cx, own, rows| self.add_rows(cx, own, rows));
        }
        add_alone(cx, self.alone, |cx, scope| self.add_far(cx, slot, values, scope));
    }

    fn take_alone(&mut self, alone: Var) {
        self.alone = Some(alone);
    }

    fn current(&self, cx: &mut Context<'_>, slot: Option<V>, index: usize) -> Option<V> {
        let (cell, slot) = (self.cells.cells.get(index)?, slot?);
        if let Some(local) = &self.local {
            // Another slice's group is not there.
            return if self.slice.is_none() { local.current(cx, cell.op, (slot, index)) } else { None };
        }
        let base = self.table.words(cx, self.cells, slot);
        self.cells.current(cx, base, index)
    }

    fn begin_rows(&self, cx: &mut Context<'_>, rows: u32) {
        if let Some(Local::Block(table)) = &self.local {
            table.begin_rows(cx, rows);
        }
    }

    fn end_rows(&self, cx: &mut Context<'_>) {
        if let Some(Local::Block(table)) = &self.local {
            table.end_rows(cx, &|cx, own, rows| self.add_rows(cx, own, rows));
        }
    }

    fn begin_pass(&self, cx: &mut Context<'_>, pass: V) {
        let Some(slice) = self.slice else { return };
        let first = cx.builder.mul_int(pass, self.table.slice_slots() as i64);
        cx.builder.assign(slice, first);
    }

    fn end_pass(&self, cx: &mut Context<'_>) {
        let Some(Local::Block(table)) = &self.local else {
            return cx.impossible("slices of what no block has");
        };
        self.merge(cx);
        cx.builder.barrier();
        table.clear(cx);
        cx.builder.barrier();
    }

    fn end(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        if self.slice.is_none() {
            self.merge(cx);
        }
        if let (Some(counted), Some(count)) = (self.counted, self.table.count) {
            let counted = cx.builder.read(counted);
            let any = cx.builder.ne_int(counted, 0);
            cx.begin_if(any);
            self.table.count_groups(cx, count, counted);
            cx.end();
        }
        Ok(())
    }
}

impl DirectEmitter<'_> {
    /// Merges the local tables into the device's: one thread a cell.
    fn merge(&self, cx: &mut Context<'_>) {
        let Some(local) = &self.local else { return };
        let (cells, slots) = (self.cells, self.table.slice_slots());
        cx.builder.barrier();
        for_each(cx, slots as u32 * cells.cells.len() as u32, |cx, number| {
            let slots = cx.builder.i64(slots as i64);
            let slot = cx.builder.rem(number, slots);
            let number = cx.builder.div(number, slots);
            let to = match self.slice {
                None => slot,
                Some(first) => {
                    let first = cx.builder.read(first);
                    cx.builder.add(first, slot)
                }
            };
            // The last slice may have slots behind those that there are: nothing is in them, and nothing is written.
            let to = self.table.words(cx, cells, to);
            for (index, cell) in cells.cells.iter().enumerate() {
                let mine = cx.builder.eq_int(number, index as i64);
                cx.begin_if(mine);
                let value = local.total(cx, cells, (slot, index)).unwrap_or_default();
                match is_used(cx, &value) {
                    Some(used) => {
                        cx.begin_if(used);
                        let pointer = word_pointer(cx, to, cell.word);
                        self.table.add(cx, (index, cell.op), pointer, &value, (Scope::Device, None));
                        cx.end();
                    }
                    None => cx.impossible("a local cell without a table"),
                }
                cx.end();
            }
        });
    }
}

#[cfg(test)]
mod tests;
