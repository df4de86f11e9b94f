//! The table of direct-addressed groups that a block has in shared memory (a CPU: a worker), or some copies of it where there are few
//! groups: neighbouring threads add to different ones (Karnagel et al., section 5.1).
//!
//! How many rows there are bounds what a block's cells come to. Shared memory adds 32 bits and takes their maximum with an
//! instruction, which 64 bits need a loop for, and twice as many groups fit it: so a cell that this proves to be no larger has 4 bytes,
//! as has the maximum of values that are no further apart than that; and a sum of 128 bits that fits 64 has one word. Or a larger sum
//! is one of digits: a value is cut into digits so narrow that those of all rows add up within 4 bytes, and no carry is looked for
//! before the copies are added up at the end.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope};

use super::cells::{CellOp, combine_memory, combine_registers, read_cell};
use super::functions::{Cell, Cells};
use super::threads::clear;
use crate::context::Context;
use crate::shape::LaunchShape;
use crate::types::Range;
use crate::variant::axes::BlockSums;

/// Where a group has a cell: an index into its cells of 4 or into those of 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellPlace {
    /// A sum in 4 bytes, extended by the sign where `signed`.
    HalfSum { index: u32, signed: bool },
    /// A sum in several of 4 bytes.
    Digits { index: u32, digits: Digits },
    /// A maximum in 4 bytes: how far it is above `below`, which is less than any value; 0 is none.
    HalfMaximum { index: u32, below: u64 },
    /// A sum of two words in one, with its sign.
    Word { index: u32 },
    /// All of its words, as the device has it.
    Whole { index: u32 },
}

/// How a value is cut into digits, from the lowest on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Digits {
    count: u32,
    /// Those of all but the last, which has the rest.
    bits: u32,
    /// The last has the value's sign.
    signed: bool,
}

impl Digits {
    /// More of them take longer than a carry.
    const MOST: u32 = 3;

    /// Those of values within `bounds` of which `rows` are added up, unless they are too many.
    fn of(bounds: Range, rows: u64) -> Option<Digits> {
        if !bounds.within(Range::new(i64::MIN, i64::MAX)) {
            return None;
        }
        // `rows` digits of so many bits are below 2^32.
        let bits = u32::BITS.checked_sub(rows.max(1).checked_next_power_of_two()?.ilog2())?;
        if bits == 0 {
            return None;
        }
        let signed = bounds.min < 0;
        let limits = if signed { Range::new(i32::MIN, i32::MAX) } else { Range::new(0, u32::MAX) };
        let fits = |count: &u32| {
            let shift = bits * (count - 1);
            let last = |bound: i128| (bound >> shift).checked_mul(rows.into());
            let last = last(bounds.min.min(0)).zip(last(bounds.max.max(0)));
            shift < i64::BITS && last.is_some_and(|(min, max)| Range { min, max }.within(limits))
        };
        let count = (2..=Digits::MOST).find(fits)?;
        Some(Digits { count, bits, signed })
    }

    /// The bits of a digit in front of which there are others.
    fn shift(self, digit: u32) -> i64 {
        i64::from(self.bits * digit)
    }

    /// A digit of a value (`u64`, by two's complement), as `u32`.
    fn cut(self, cx: &mut Context<'_>, value: V, digit: u32) -> V {
        let b = &mut *cx.builder;
        let value = if self.signed { b.bitcast(value, Scalar::I64) } else { value };
        let scalar = b.scalar(value);
        let value = match self.shift(digit) {
            0 => value,
            shift => {
                let shift = b.int(scalar, shift);
                b.binary(BinaryOp::Shr, value, shift)
            }
        };
        let value = b.convert(value, Scalar::U32);
        if digit + 1 == self.count || self.bits == u32::BITS {
            return value;
        }
        let mask = b.u32((1 << self.bits) - 1);
        b.and(value, mask)
    }

    /// What sums of digits come to together, as `i64`. `sum`: the pointer to the first of them.
    fn join(self, cx: &mut Context<'_>, sums: V) -> V {
        let b = &mut *cx.builder;
        let mut total = b.i64(0);
        for digit in 0..self.count {
            let index = b.i32(digit as i32);
            let pointer = b.offset(sums, index);
            let sum = b.load(pointer);
            let is_signed = self.signed && digit + 1 == self.count;
            let sum = if is_signed { b.bitcast(sum, Scalar::I32) } else { sum };
            let sum = b.convert(sum, Scalar::I64);
            let shift = b.i64(self.shift(digit));
            let sum = b.binary(BinaryOp::Shl, sum, shift);
            total = b.add(total, sum);
        }
        total
    }
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
    /// Lays cells out for tables, or copies, to which no more than `rows` rows are added.
    pub fn plan(cells: &Cells, rows: u64, sums: BlockSums, shape: &LaunchShape) -> BlockLayout {
        let (mut halves, mut words) = (0, 0);
        let take = |counter: &mut u32, count: u32| {
            *counter += count;
            *counter - count
        };
        let place = |cell: &Cell| {
            // A worker adds to its table without atomics, and its table has the form of the device's.
            match if shape.is_serial() { Width::Whole } else { Width::of(cell, rows, sums) } {
                Width::HalfSum { signed } => CellPlace::HalfSum { index: take(&mut halves, 1), signed },
                Width::Digits(digits) => CellPlace::Digits { index: take(&mut halves, digits.count), digits },
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
    Digits(Digits),
    HalfMaximum { below: u64 },
    Word,
    Whole,
}

impl Width {
    /// That of a cell to which so many rows are added.
    fn of(cell: &Cell, rows: u64, sums: BlockSums) -> Width {
        let digits = || match (cell.op, sums) {
            (CellOp::Add | CellOp::AddWide, BlockSums::Digits) => Digits::of(cell.bounds?, rows),
            _ => None,
        };
        let total = cell.total(rows);
        let within = |limits: Range| total.is_some_and(|total| total.within(limits));
        match cell.op {
            CellOp::Add | CellOp::AddWide if within(Range::new(0, u32::MAX)) => {
                Width::HalfSum { signed: false }
            }
            CellOp::Add | CellOp::AddWide if within(Range::new(i32::MIN, i32::MAX)) => {
                Width::HalfSum { signed: true }
            }
            CellOp::Add | CellOp::AddWide if within(Range::new(i64::MIN, i64::MAX)) => match digits() {
                Some(digits) => Width::Digits(digits),
                None if cell.op == CellOp::AddWide => Width::Word,
                None => Width::Whole,
            },
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
            CellPlace::HalfSum { index, .. }
            | CellPlace::HalfMaximum { index, .. }
            | CellPlace::Digits { index, .. } => (self.halves?, self.layout.halves, index),
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
                (CellPlace::Digits { digits, .. }, &[value]) => {
                    let value = b.convert(value, Scalar::U64);
                    for digit in 0..digits.count {
                        let part = digits.cut(cx, value, digit);
                        let index = cx.builder.i32(digit as i32);
                        let sum = cx.builder.offset(pointer, index);
                        cx.builder.atomic_discard(AtomicOp::Add, sum, part, Scope::Block);
                    }
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
            CellPlace::Digits { digits, .. } => {
                let total = digits.join(cx, pointer);
                let wide = |cx: &mut Context<'_>| cx.builder.convert(total, Scalar::I128);
                vec![if part == Scalar::I128 { wide(cx) } else { cx.builder.bitcast(total, Scalar::U64) }]
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

    /// What digits come to is the sum of the values, also of as many of the least or the greatest as may come.
    #[test]
    fn digits_of_all_rows_fit() {
        let range = |min: i64, max: i64| Range::new(min, max);
        for (bounds, rows, expected) in [
            (range(0, 10_494_950), 2048, Some((2, 21))),
            (range(0, 113_000_000_000), 2048, Some((2, 21))),
            (range(0, 113_000_000_000), 1 << 16, Some((3, 16))),
            (range(-1, 1), 1 << 31, Some((2, 1))),
            (range(-100_000_000_000, 5), 1000, Some((2, 22))),
            (range(i64::MIN, i64::MAX), 1, Some((2, 32))),
            (range(0, i64::MAX), 1, Some((2, 32))),
            (range(i64::MIN, i64::MAX), 100, Some((3, 25))),
            (range(0, i64::MAX), 1 << 20, None),
            (range(0, 1), u64::MAX, None),
        ] {
            let digits = Digits::of(bounds, rows);
            assert_eq!(digits.map(|digits| (digits.count, digits.bits)), expected, "{bounds:?} {rows}");
            let Some(Digits { count, bits, signed }) = digits else { continue };
            for value in [bounds.min, bounds.max] {
                let sum = |digit: u32| {
                    let rest = value >> (bits * digit);
                    let is_last = digit + 1 == count;
                    let part = if is_last { rest } else { rest & ((1 << bits) - 1) };
                    let sum = part * i128::from(rows);
                    assert!(
                        i128::from(u32::MAX) >= sum
                            && sum >= if is_last && signed { i32::MIN.into() } else { 0 }
                    );
                    sum << (bits * digit)
                };
                assert_eq!((0..count).map(sum).sum::<i128>(), value * i128::from(rows));
            }
        }
    }

    #[test]
    fn cells_are_as_wide_as_a_block_can_make_them() {
        let width = |op, bounds, rows| {
            let contribution = Contribution::Row;
            let cell = Cell { op, contribution, distinct: None, word: 0, bounds };
            Width::of(&cell, rows, BlockSums::Words)
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
