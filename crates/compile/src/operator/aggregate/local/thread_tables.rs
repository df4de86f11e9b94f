//! Tables that belong to one thread each: small groups that no other thread touches, so that updates need no atomics. They are in a
//! block's memory, or in the device's (Karnagel et al., section 5.1), where more groups have room. The tables of a block lie side by
//! side, cell by cell, so that neighbouring threads access neighbouring banks, or the same lines. How many rows a thread can see bounds its
//! sums: where that proves it, a cell of a block's memory takes 4 bytes, and an `i128` sum is an `i64` until it is merged.

use kelpie_kir::builder::V;
use kelpie_kir::{Builtin, Pointee, Scalar, Type};

use crate::context::{Argument, Context};
use crate::operator::aggregate::block_loop::clear;
use crate::operator::aggregate::functions::{CellOp, Cells, combine, combine_registers, join, split};
use crate::shape::LaunchShape;
use crate::types::Range;

/// Where a thread keeps a part of a cell: an index into its cells of 4 or of 8 bytes.
#[derive(Debug, Clone, Copy)]
enum CellPlace {
    /// 4 bytes, extended by the sign where `signed`.
    Half { index: u32, signed: bool },
    /// 8 bytes.
    Word { index: u32 },
    /// Twice 8 bytes, the lower word first.
    Pair { index: u32 },
}

/// The tables of a block's threads.
#[derive(Debug, Clone)]
pub struct ThreadTables {
    /// Those of each cell's parts.
    places: Vec<Vec<CellPlace>>,
    /// Cells of 4 bytes, and of 8 bytes, a group.
    halves: u32,
    words: u32,
    slots: u64,
    threads: u32,
    /// The state that has them; `None`: each block's are in its memory.
    state: Option<usize>,
}

#[derive(Debug)]
pub struct ThreadCells {
    tables: ThreadTables,
    halves: Option<V>,
    words: Option<V>,
}

impl ThreadTables {
    /// Lays the cells out. `thread_rows` is an upper bound of the rows that one thread sees; `state` has the tables, if the device's memory
    /// does, in words only.
    pub fn plan(
        slots: u64,
        cells: &Cells,
        thread_rows: u64,
        shape: &LaunchShape,
        state: Option<usize>,
    ) -> ThreadTables {
        let (mut halves, mut words) = (0, 0);
        let take = |counter: &mut u32, count: u32| {
            *counter += count;
            *counter - count
        };
        let mut places = Vec::new();
        for cell in &cells.cells {
            let total = cell.total(thread_rows);
            let within = |limits: Range| state.is_none() && total.is_some_and(|total| total.within(limits));
            let place = |part: &Scalar| {
                if within(Range::new(0, u32::MAX)) {
                    CellPlace::Half { index: take(&mut halves, 1), signed: false }
                } else if within(Range::new(i32::MIN, i32::MAX)) {
                    CellPlace::Half { index: take(&mut halves, 1), signed: true }
                } else if *part != Scalar::I128 || within(Range::new(i64::MIN, i64::MAX)) {
                    CellPlace::Word { index: take(&mut words, 1) }
                } else {
                    CellPlace::Pair { index: take(&mut words, 2) }
                }
            };
            places.push(cell.op.parts().iter().map(place).collect());
        }
        let threads = shape.block_threads;
        ThreadTables { places, halves, words, slots, threads, state }
    }

    /// Bytes of the tables of a block.
    pub fn bytes(&self) -> u64 {
        let group = u64::from(self.halves) * 4 + u64::from(self.words) * 8;
        self.slots.saturating_mul(group).saturating_mul(u64::from(self.threads))
    }

    /// Declares and clears the tables; a barrier must follow.
    pub fn begin(self, cx: &mut Context<'_>) -> ThreadCells {
        if let Some(state) = self.state {
            let tables = cx.argument("thread_tables", Type::global(Scalar::U64), Argument::State(state));
            let count = self.slots as u32 * self.words * self.threads;
            let block = cx.builder.builtin(Builtin::BlockId);
            let block = cx.builder.convert(block, Scalar::I64);
            let first = cx.builder.mul_int(block, i64::from(count));
            let table = cx.builder.offset(tables, first);
            clear(cx, table, Scalar::U64, count);
            return ThreadCells { tables: self, halves: None, words: Some(table) };
        }
        let mut table = |name, scalar, cells: u32| {
            let count = self.slots as u32 * cells * self.threads;
            (cells > 0).then(|| {
                let table = cx.builder.shared(name, Pointee::Scalar(scalar), count);
                clear(cx, table, scalar, count);
                table
            })
        };
        let halves = table("thread_halves", Scalar::U32, self.halves);
        let words = table("thread_words", Scalar::U64, self.words);
        ThreadCells { tables: self, halves, words }
    }
}

impl ThreadCells {
    /// The address of a cell: cell `index` of the group in `slot`, in the table of `thread`.
    fn address(&self, cx: &mut Context<'_>, place: CellPlace, second: u32, slot: V, thread: V) -> Option<V> {
        let (table, cells, index) = match place {
            CellPlace::Half { index, .. } => (self.halves?, self.tables.halves, index),
            CellPlace::Word { index } | CellPlace::Pair { index } => {
                (self.words?, self.tables.words, index + second)
            }
        };
        let threads = self.tables.threads;
        let b = &mut *cx.builder;
        let slot = b.convert(slot, Scalar::U32);
        let group = b.mul_int(slot, cells * threads);
        let cell = b.add_int(group, index * threads);
        let cell = b.add(cell, thread);
        Some(b.offset(table, cell))
    }

    /// Adds a contribution to this thread's cell.
    pub fn update(&self, cx: &mut Context<'_>, slot: V, op: CellOp, index: usize, value: &[V]) {
        let thread = cx.builder.builtin(Builtin::ThreadId);
        if let (CellOp::Add | CellOp::AddWide, &[CellPlace::Half { .. } | CellPlace::Word { .. }]) =
            (op, self.tables.places[index].as_slice())
        {
            return self.add_narrow(cx, slot, self.tables.places[index][0], value, thread);
        }
        let Some(old) = self.contribution(cx, slot, op, index, thread) else {
            return cx.impossible("a thread's cell without a table");
        };
        let new = combine(cx, op, &old, value);
        for (place, part) in self.tables.places[index].iter().zip(new) {
            let words = match place {
                CellPlace::Pair { .. } => {
                    let (low, high) = split(cx, part);
                    vec![low, high]
                }
                _ => vec![cx.builder.bitcast(part, Scalar::U64)],
            };
            for (second, content) in words.into_iter().enumerate() {
                let Some(pointer) = self.address(cx, *place, second as u32, slot, thread) else {
                    return cx.impossible("a part of a thread's cell without a table");
                };
                cx.builder.store(pointer, content);
            }
        }
    }

    /// What this thread's cell holds.
    pub fn own(&self, cx: &mut Context<'_>, slot: V, op: CellOp, index: usize) -> Option<Vec<V>> {
        let thread = cx.builder.builtin(Builtin::ThreadId);
        self.contribution(cx, slot, op, index, thread)
    }

    /// Adds modulo the place's width: the total is known to fit.
    fn add_narrow(&self, cx: &mut Context<'_>, slot: V, place: CellPlace, value: &[V], thread: V) {
        let (Some(pointer), &[value]) = (self.address(cx, place, 0, slot, thread), value) else {
            return cx.impossible("a thread's cell without a table, or of several parts");
        };
        let b = &mut *cx.builder;
        let old = b.load(pointer);
        let width = b.scalar(old);
        let value = b.convert(value, width);
        let new = b.add(old, value);
        b.store(pointer, new);
    }

    /// The combination of every thread's cell.
    pub fn total(&self, cx: &mut Context<'_>, slot: V, op: CellOp, index: usize) -> Option<Vec<V>> {
        let threads = Addends { name: "thread", scalar: Scalar::U32, count: self.tables.threads };
        threads.total(cx, op, |cx, thread| self.contribution(cx, slot, op, index, thread))
    }

    /// What a thread's cell contributes to the group.
    fn contribution(
        &self,
        cx: &mut Context<'_>,
        slot: V,
        op: CellOp,
        index: usize,
        thread: V,
    ) -> Option<Vec<V>> {
        let mut parts = Vec::new();
        for (place, part) in self.tables.places[index].iter().zip(op.parts()) {
            let pointer = self.address(cx, *place, 0, slot, thread)?;
            let stored = cx.builder.load(pointer);
            parts.push(match (place, part) {
                (CellPlace::Pair { .. }, _) => {
                    let second = self.address(cx, *place, 1, slot, thread)?;
                    let high = cx.builder.load(second);
                    join(cx, stored, high)
                }
                (CellPlace::Half { signed: true, .. }, _) => {
                    let signed = cx.builder.bitcast(stored, Scalar::I32);
                    cx.builder.convert(signed, *part)
                }
                (CellPlace::Half { .. }, _) => cx.builder.convert(stored, *part),
                (CellPlace::Word { .. }, Scalar::I128) => {
                    let signed = cx.builder.bitcast(stored, Scalar::I64);
                    cx.builder.convert(signed, Scalar::I128)
                }
                (CellPlace::Word { .. }, part) => cx.builder.bitcast(stored, *part),
            });
        }
        Some(parts)
    }
}

/// Tables of a block that have something for the same cell each; the variable that counts them has a name and a type.
pub(super) struct Addends {
    pub name: &'static str,
    pub scalar: Scalar,
    pub count: u32,
}

impl Addends {
    /// The combination of what they have for a cell, which `part` gives by their number.
    pub fn total(
        self,
        cx: &mut Context<'_>,
        op: CellOp,
        part: impl FnOnce(&mut Context<'_>, V) -> Option<Vec<V>>,
    ) -> Option<Vec<V>> {
        let nothing = op.nothing(cx);
        let total: Vec<_> = nothing.iter().map(|zero| cx.builder.var_of("total", *zero)).collect();
        let first = cx.builder.zero(self.scalar);
        let number = cx.builder.var_of(self.name, first);
        cx.begin_loop();
        let current = cx.builder.read(number);
        let end = cx.builder.int(self.scalar, self.count);
        let done = cx.builder.ge(current, end);
        cx.builder.break_if(done);
        let value = part(cx, current)?;
        combine_registers(cx, op, &total, &value);
        let next = cx.builder.add_int(current, 1);
        cx.builder.assign(number, next);
        cx.end();
        Some(total.iter().map(|part| cx.builder.read(*part)).collect())
    }
}
