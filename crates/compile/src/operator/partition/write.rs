//! Rows into parts: a sink.
//!
//! A CPU's worker takes places of each part in chunks, so that workers do not meet at each row. A block of a GPU counts its rows
//! and takes places for all of them ([`BlockParts`]).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope, Type};

use super::held::{HeldRow, HeldValue, Stage};
use super::{CHUNK, CHUNK_SHIFT, MANY_BYTES, MANY_COLUMNS, MANY_ROWS, MOST_PARTS, PartStore, RowParts};
use crate::context::{Argument, Context, Repr, Status, Text, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::lower::{TextPart, copied_to_part};
use crate::operator::Flow;
use crate::operator::aggregate::threads::{clear, for_each};
use crate::operator::aggregate::word_pointer;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::primitives::partition::{BlockParts, Layout, PLACES_OF, PLACES_OF_OVERFLOW, cursor};
use crate::program::{HostAction, Task, When};
use crate::table::stored::{LINE_BYTES, StoredColumn};

/// Bytes that a part's texts take at a time.
const TEXT_CHUNK: u64 = 1 << 10;

/// Brings rows into the parts in which an aggregation or a join then reads them.
#[derive(Debug)]
pub(crate) struct IntoParts {
    pub store: Arc<PartStore>,
    /// What gives a row its part.
    pub by: Arc<dyn RowParts>,
}

impl fmt::Display for IntoParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "into {} parts", self.store.parts)
    }
}

impl Sink for IntoParts {
    fn waits_in_blocks(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        let store = &*self.store;
        let mut zeroed = vec![store.cursors, store.wanted, store.end, store.rows];
        zeroed.extend(store.has_chunks.then_some(store.fills));
        let around = HostAction::each(When::OnGrow, vec![store.class], Task::Grow);
        Needs { zeroed, produced: Some(store.rows), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let keys = self.by.keys().iter().flat_map(columns_read);
        self.store.used(states).map(|(index, _)| index).chain(keys).collect()
    }

    /// Of many parts a block has few rows at a time, and it writes as many pieces of each column as there are parts: so it takes as many
    /// rows as it can.
    fn thread_rows(&self) -> Option<u64> {
        let PartStore { bits, columns, .. } = &*self.store;
        (1 << bits >= MOST_PARTS || columns.len() >= MANY_COLUMNS).then_some(MANY_ROWS)
    }

    fn block_bytes(&self) -> u64 {
        if self.store.has_many() { MANY_BYTES } else { 0 }
    }

    /// Rows are held in registers: texts that are no codes may have to be written first.
    fn takes_flags(&self, is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        let column = |(index, column): (usize, &StoredColumn)| {
            let info = column.info();
            Expr::column(index, info.data_type.clone(), info.nullable)
        };
        let mut columns = self.store.columns.iter();
        columns.all(|column| column.text_states().is_none())
            && self.store.columns.iter().enumerate().map(column).all(|expr| is_speculative(&expr))
            && self.by.keys().iter().all(is_speculative)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(match cx.shape.is_serial() {
            true => Box::new(WorkerEmitter::begin(self, cx, job)),
            false => Box::new(BlockEmitter::begin(self, cx, job)),
        })
    }
}

impl PartStore {
    /// The columns some of whose states later pipelines read.
    fn used<'s>(
        &'s self,
        states: &BTreeSet<usize>,
    ) -> impl Iterator<Item = (usize, &'s StoredColumn)> + use<'s> {
        let used: Vec<bool> = self.columns.iter().map(|column| column.is_used(states)).collect();
        self.columns.iter().enumerate().zip(used).filter(|(_, used)| *used).map(|(column, _)| column)
    }

    /// Adds what a thread has brought to what all have: `rows` (`u64`), and the end (`u32`) of the places that it took.
    fn count(&self, cx: &mut Context<'_>, rows: V, end: V) {
        let [all, wanted, last] = [self.rows, self.wanted, self.end].map(|state| Self::counter(cx, state));
        let b = &mut *cx.builder;
        b.atomic_discard(AtomicOp::Add, all, rows, Scope::Device);
        let (places, of, one) = (b.u64(PLACES_OF), b.u64(PLACES_OF_OVERFLOW), b.u64(1));
        let places = b.mul(rows, places);
        let places = b.div(places, of);
        let places = b.add(places, one);
        b.atomic_discard(AtomicOp::Add, wanted, places, Scope::Device);
        let end = b.convert(end, Scalar::U64);
        b.atomic_discard(AtomicOp::Max, last, end, Scope::Device);
    }
}

// ---- a CPU's worker

/// A worker, which has a chunk of each part.
struct WorkerEmitter<'s> {
    plan: &'s IntoParts,
    needed: &'s BTreeSet<usize>,
    layout: Layout,
    cursors: V,
    fills: V,
    /// `ptr<shared, u32>`: the next place of each part; a multiple of [`CHUNK`] where the worker has none.
    next: V,
    /// Rows, `u64`.
    rows: Var,
    /// The end of its places, `u32`.
    end: Var,
    /// Whether there was no chunk.
    lacks: Var,
    /// What was looked at in chunks, `u64`; it goes to `sight`, so that no compiler leaves out the look.
    seen: Var,
    sight: V,
    /// Where texts are copied: `ptr<shared, u64>`, of each part the place of the next one and the end of the memory for them.
    texts: Option<V>,
}

impl<'s> WorkerEmitter<'s> {
    fn begin(plan: &'s IntoParts, cx: &mut Context<'_>, job: &Job<'s>) -> WorkerEmitter<'s> {
        let parts = plan.store.parts;
        let next = cx.builder.shared("next_places", Pointee::Scalar(Scalar::U32), parts);
        clear(cx, next, Scalar::U32, parts);
        let sight = cx.builder.shared("sight", Pointee::Scalar(Scalar::U64), 1);
        let texts = plan.store.hashes.map(|_| {
            let texts = cx.builder.shared("text_places", Pointee::Scalar(Scalar::U64), 2 * parts);
            clear(cx, texts, Scalar::U64, 2 * parts);
            texts
        });
        let (layout, cursors, fills) = (plan.store.layout(cx), plan.store.cursors(cx), plan.store.fills(cx));
        let b = &mut *cx.builder;
        let (none, zero, no) = (b.u64(0), b.u32(0), b.bool(false));
        WorkerEmitter {
            plan,
            needed: job.needed,
            layout,
            cursors,
            fills,
            next,
            rows: b.var_of("part_rows", none),
            end: b.var_of("part_end", zero),
            lacks: b.var_of("lacks_places", no),
            seen: b.var_of("seen", none),
            sight,
            texts,
        }
    }

    /// Takes a chunk for a part: its first place into `place`, and into `fits` whether there was one. All of the chunk is looked at:
    /// rows of a part come one now and then, and a processor waits for the memory of each that is not in its cache, as stores are done in
    /// order; for loads it waits together.
    fn take_chunk(&self, cx: &mut Context<'_>, part: V, (place, fits): (Var, Var)) {
        let b = &mut *cx.builder;
        let own = cursor(b, self.cursors, part);
        let chunk = b.u32(CHUNK);
        let first = b.atomic(AtomicOp::Add, own, chunk, Scope::Device);
        let start = b.mul(part, self.layout.part_places);
        let start = b.add(start, first);
        b.assign(place, start);
        let flows_over = b.ge(first, self.layout.part_places);
        b.begin_if(flows_over);
        let last = b.u32(self.layout.parts);
        let shared = cursor(b, self.cursors, last);
        let taken = b.atomic(AtomicOp::Add, shared, chunk, Scope::Device);
        let start = b.add(self.layout.overflow, taken);
        b.assign(place, start);
        let has_room = b.lt(taken, self.layout.overflow_places);
        b.assign(fits, has_room);
        b.end();
        let has_room = b.read(fits);
        b.begin_if(has_room);
        let first = b.read(place);
        let shift = b.u32(CHUNK_SHIFT);
        let number = b.binary(BinaryOp::Shr, first, shift);
        let pointer = b.offset(self.fills, number);
        let full = b.int(Scalar::U8, i128::from(CHUNK));
        b.store(pointer, full);
        let (after, end) = (b.add(first, chunk), b.read(self.end));
        let end = b.binary(BinaryOp::Max, end, after);
        b.assign(self.end, end);
        let first = b.convert(first, Scalar::I64);
        for (_, column) in self.plan.store.used(self.needed) {
            for value in column.look_at_lines(cx, first, CHUNK) {
                self.see(cx, value);
            }
        }
        if let Some(state) = self.plan.store.hashes {
            let hashes = cx.argument("part_hashes", Type::global(Scalar::U64), Argument::State(state));
            let pointer = cx.builder.offset(hashes, first);
            self.see_lines(cx, pointer, 8 * u64::from(CHUNK));
        }
        let b = &mut *cx.builder;
        b.begin_else();
        let yes = b.bool(true);
        b.assign(self.lacks, yes);
        b.report(Status::Grow as u32);
        b.end();
    }

    /// Notes what was looked at (`u64`).
    fn see(&self, cx: &mut Context<'_>, value: V) {
        let seen = cx.builder.read(self.seen);
        let seen = cx.builder.binary(BinaryOp::Xor, seen, value);
        cx.builder.assign(self.seen, seen);
    }

    /// Looks at each cache line of so many bytes from a pointer to `u64` on.
    fn see_lines(&self, cx: &mut Context<'_>, pointer: V, bytes: u64) {
        for word in (0..bytes / 8).step_by((LINE_BYTES / 8) as usize) {
            let pointer = word_pointer(cx, pointer, word as u32);
            let value = cx.builder.load(pointer);
            self.see(cx, value);
        }
    }

    /// A copy of a key's text beside those of other rows of the part (`u32`).
    fn copied(&self, cx: &mut Context<'_>, (text, valid): (&Text, Option<V>), (part, texts): (V, V)) -> Text {
        let b = &mut *cx.builder;
        let (part, one) = (b.convert(part, Scalar::I64), b.i64(1));
        let place = b.binary(BinaryOp::Shl, part, one);
        let place = b.offset(texts, place);
        let end = word_pointer(cx, place, 1);
        let own = TextPart { place, end, chunk: TEXT_CHUNK };
        copied_to_part(cx, (text, valid), &own, &mut |cx, first| {
            let first = cx.builder.bitcast(first, Type::global(Scalar::U64));
            self.see_lines(cx, first, TEXT_CHUNK);
        })
    }

    fn write(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let IntoParts { store, by } = self.plan;
        let (part, hash) = by.part(cx, store.bits())?;
        let b = &mut *cx.builder;
        let own = b.offset(self.next, part);
        let current = b.load(own);
        let place = b.var_of("place", current);
        let yes = b.bool(true);
        let fits = b.var_of("fits", yes);
        let (mask, zero) = (b.u32(CHUNK - 1), b.u32(0));
        let rest = b.and(current, mask);
        let is_at_end = b.eq(rest, zero);
        b.begin_if(is_at_end);
        self.take_chunk(cx, part, (place, fits));
        cx.builder.end();
        let fits = cx.builder.read(fits);
        cx.begin_if(fits);
        let place = cx.builder.read(place);
        let wide = cx.builder.convert(place, Scalar::I64);
        for (index, column) in store.used(self.needed) {
            let mut value = cx.column(index)?;
            if let (Some(texts), Repr::Text(text)) = (&self.texts, &value.repr)
                && column.text_states().is_some()
            {
                value.repr = Repr::Text(self.copied(cx, (text, value.valid), (part, *texts)));
            }
            column.store_own(cx, &value, wide)?;
        }
        if let (Some(state), Some(hash)) = (store.hashes, hash) {
            let hashes = cx.argument("part_hashes", Type::global(Scalar::U64), Argument::State(state));
            let pointer = cx.builder.offset(hashes, wide);
            cx.builder.store(pointer, hash);
        }
        let b = &mut *cx.builder;
        let one = b.u32(1);
        let after = b.add(place, one);
        b.store(own, after);
        let (rows, one) = (b.read(self.rows), b.u64(1));
        let rows = b.add(rows, one);
        b.assign(self.rows, rows);
        cx.end();
        Ok(())
    }
}

impl Emitter for WorkerEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        match flow.active() {
            None => self.write(cx),
            Some(active) => {
                cx.begin_if(active);
                self.write(cx)?;
                cx.end();
                Ok(())
            }
        }
    }

    /// Notes how many rows the last chunk of each part has.
    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let store = &self.plan.store;
        for_each(cx, store.parts, |cx, part| {
            let b = &mut *cx.builder;
            let pointer = b.offset(self.next, part);
            let next = b.load(pointer);
            let (mask, shift, zero) = (b.u32(CHUNK - 1), b.u32(CHUNK_SHIFT), b.u32(0));
            let rest = b.and(next, mask);
            let is_open = b.ne(rest, zero);
            b.begin_if(is_open);
            let number = b.binary(BinaryOp::Shr, next, shift);
            let pointer = b.offset(self.fills, number);
            let rest = b.convert(rest, Scalar::U8);
            b.store(pointer, rest);
            b.end();
        });
        let b = &mut *cx.builder;
        let seen = b.read(self.seen);
        b.store(self.sight, seen);
        let (rows, end) = (b.read(self.rows), b.read(self.end));
        store.count(cx, rows, end);
        // Places that it leaves in chunks; and where there were too few, more than there are: it has not seen all of its rows.
        let capacity = cx.argument("part_capacity", Scalar::I64, Argument::StateCapacity(store.fills));
        let wanted = PartStore::counter(cx, store.wanted);
        let b = &mut *cx.builder;
        let slack = b.u64(super::places(u64::from(store.parts) * u64::from(CHUNK)));
        b.atomic_discard(AtomicOp::Add, wanted, slack, Scope::Device);
        let lacks = b.read(self.lacks);
        b.begin_if(lacks);
        let capacity = b.bitcast(capacity, Scalar::U64);
        b.atomic_discard(AtomicOp::Add, wanted, capacity, Scope::Device);
        b.end();
        Ok(())
    }
}

// ---- a block

/// A block, whose rows take places together.
struct BlockEmitter<'s> {
    plan: &'s IntoParts,
    needed: &'s BTreeSet<usize>,
    layout: Layout,
    cursors: V,
    block: BlockParts,
    /// Of each row that a thread has at once: its part + 1, or 0 where there is none, and its rank; both `u32`.
    places: Vec<(Var, Var)>,
    held: Vec<HeldRow>,
    /// Rows for which the thread took places, `u64`, and the end of these, `u32`.
    rows: Var,
    end: Var,
}

impl<'s> BlockEmitter<'s> {
    fn begin(plan: &'s IntoParts, cx: &mut Context<'_>, job: &Job<'s>) -> BlockEmitter<'s> {
        let (layout, cursors) = (plan.store.layout(cx), plan.store.cursors(cx));
        let block = BlockParts::begin(cx.builder, plan.store.parts);
        cx.builder.barrier();
        let rows_at_once = if job.flags { cx.shape.rows_per_thread } else { 1 };
        let b = &mut *cx.builder;
        let places = (0..rows_at_once).map(|_| (b.var("part", Scalar::U32), b.var("rank", Scalar::U32)));
        let places = places.collect();
        let (none, zero) = (b.u64(0), b.u32(0));
        BlockEmitter {
            plan,
            needed: job.needed,
            layout,
            cursors,
            block,
            places,
            held: Vec::new(),
            rows: b.var_of("part_rows", none),
            end: b.var_of("part_end", zero),
        }
    }

    /// Writes the rows once places were taken: by way of the block's memory, or where that is too small, each thread its own.
    fn write(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let store = &self.plan.store;
        let rows = cx.shape.block_threads * self.places.len() as u32;
        let stage = self.held.first().and_then(|row| Stage::declare(cx, row, (rows, store)));
        self.each(cx, |cx, part, rank, row| {
            let rank = cx.builder.read(rank);
            let (place, exists) = self.block.place(cx.builder, &self.layout, (part, rank));
            if let Some(stage) = &stage {
                let position = self.block.position(cx.builder, (part, rank));
                return stage.put(cx, position, row, (place, exists));
            }
            cx.begin_if(exists);
            let place = cx.builder.convert(place, Scalar::I64);
            for (index, value) in row {
                let value = value.value(cx);
                store.column(*index)?.store(cx, &value, place)?;
            }
            cx.end();
            Ok(())
        })?;
        cx.builder.barrier();
        if let Some(stage) = stage {
            stage.write(cx, &self.block, store)?;
        }
        self.block.reset(cx.builder);
        cx.builder.barrier();
        Ok(())
    }

    /// Emits `body` for each row of the thread that there is, with its part (`u32`), rank and values.
    fn each(
        &self,
        cx: &mut Context<'_>,
        mut body: impl FnMut(&mut Context<'_>, V, Var, &HeldRow) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        for ((part, rank), values) in self.places.iter().zip(&self.held) {
            let b = &mut *cx.builder;
            let (part, zero, one) = (b.read(*part), b.u32(0), b.u32(1));
            let exists = b.ne(part, zero);
            cx.begin_if(exists);
            let part = cx.builder.sub(part, one);
            body(cx, part, *rank, values)?;
            cx.end();
        }
        Ok(())
    }
}

impl Emitter for BlockEmitter<'_> {
    fn rows_at_once(&self) -> i64 {
        self.places.len() as i64
    }

    fn begin_round(&mut self, cx: &mut Context<'_>) {
        for (part, _) in &self.places {
            let none = cx.builder.u32(0);
            cx.builder.assign(*part, none);
        }
    }

    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        let IntoParts { store, by } = self.plan;
        let Some((own, _)) = self.places.get(self.held.len()).copied() else {
            return Err(Unsupported::internal("more rows of a thread at once than were foreseen"));
        };
        let (part, _) = by.part(cx, store.bits())?;
        let b = &mut *cx.builder;
        let (one, zero) = (b.u32(1), b.u32(0));
        let number = b.add(part, one);
        let number = match flow.active() {
            Some(active) => b.select(active, number, zero),
            None => number,
        };
        b.assign(own, number);
        let mut values = Vec::new();
        for (index, column) in store.used(self.needed) {
            let value = cx.column(index)?;
            values.push((index, HeldValue::keep(cx, &value, column.info().dictionary.is_some())?));
        }
        self.held.push(values);
        Ok(())
    }

    fn end_round(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.each(cx, |cx, part, rank, _| {
            let own = self.block.rank(cx.builder, part);
            cx.builder.assign(rank, own);
            Ok(())
        })?;
        cx.builder.barrier();
        self.block.take(cx.builder, &self.layout, self.cursors, |b, taken| {
            let (rows, more) = (b.read(self.rows), b.convert(taken.rows, Scalar::U64));
            let rows = b.add(rows, more);
            b.assign(self.rows, rows);
            let end = b.read(self.end);
            let end = b.binary(BinaryOp::Max, end, taken.end);
            b.assign(self.end, end);
            b.begin_if(taken.is_first_beyond);
            b.report(Status::Grow as u32);
            b.end();
        });
        cx.builder.barrier();
        self.write(cx)?;
        self.held.clear();
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let (rows, end, none) = (b.read(self.rows), b.read(self.end), b.u64(0));
        let some = b.ne(rows, none);
        cx.begin_if(some);
        self.plan.store.count(cx, rows, end);
        cx.end();
        Ok(())
    }
}
