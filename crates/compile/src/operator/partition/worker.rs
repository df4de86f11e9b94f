//! A CPU's worker that brings rows into parts: it has a chunk of places of each.

use std::collections::BTreeSet;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Pointee, Scalar, Scope, Type};

use super::write::IntoParts;
use super::{CHUNK, CHUNK_SHIFT, PartStore};
use crate::context::{Argument, Context, Repr, Status, Text, Unsupported};
use crate::lower::{TextPart, copied_to_part};
use crate::operator::Flow;
use crate::operator::aggregate::{clear, for_each, word_pointer};
use crate::operator::roles::{Emitter, Job};
use crate::primitives::partition::{Shares, cursor};
use crate::table::stored::LINE_BYTES;

/// Bytes that a part's texts take at a time.
const TEXT_CHUNK: u64 = 1 << 10;

/// A worker, which has a chunk of each part.
pub(super) struct WorkerEmitter<'s> {
    plan: &'s IntoParts,
    needed: &'s BTreeSet<usize>,
    cursors: V,
    chunks: Chunks,
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

/// The chunks of a worker.
#[derive(Clone, Copy)]
struct Chunks {
    shares: Shares,
    fills: V,
    /// `ptr<shared, u32>`: the next place of each part; a multiple of [`CHUNK`] where the worker has none.
    next: V,
}

impl Chunks {
    fn begin(store: &PartStore, cx: &mut Context<'_>) -> Chunks {
        let next = cx.builder.shared("next_places", Pointee::Scalar(Scalar::U32), store.parts);
        clear(cx, next, Scalar::U32, store.parts);
        Chunks { shares: store.shares(cx), fills: store.fills(cx), next }
    }

    /// Notes how many rows the last chunk of each part has.
    fn close(self, cx: &mut Context<'_>, parts: u32) {
        for_each(cx, parts, |cx, part| {
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
    }
}

impl<'s> WorkerEmitter<'s> {
    pub(super) fn begin(plan: &'s IntoParts, cx: &mut Context<'_>, job: &Job<'s>) -> WorkerEmitter<'s> {
        let parts = plan.store.parts;
        let chunks = Chunks::begin(&plan.store, cx);
        let sight = cx.builder.shared("sight", Pointee::Scalar(Scalar::U64), 1);
        let texts = plan.store.hashes.map(|_| {
            let texts = cx.builder.shared("text_places", Pointee::Scalar(Scalar::U64), 2 * parts);
            clear(cx, texts, Scalar::U64, 2 * parts);
            texts
        });
        let cursors = plan.store.cursors(cx);
        let b = &mut *cx.builder;
        let (none, zero, no) = (b.u64(0), b.u32(0), b.bool(false));
        WorkerEmitter {
            plan,
            needed: job.needed,
            cursors,
            chunks,
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
        let Chunks { shares, fills, .. } = self.chunks;
        let b = &mut *cx.builder;
        let own = cursor(b, self.cursors, part);
        let chunk = b.u32(CHUNK);
        let first = b.atomic(AtomicOp::Add, own, chunk, Scope::Device);
        let start = b.mul(part, shares.part_places);
        let start = b.add(start, first);
        b.assign(place, start);
        let flows_over = b.ge(first, shares.part_places);
        b.begin_if(flows_over);
        let last = b.u32(shares.parts);
        let shared = cursor(b, self.cursors, last);
        let taken = b.atomic(AtomicOp::Add, shared, chunk, Scope::Device);
        let start = b.add(shares.overflow, taken);
        b.assign(place, start);
        let has_room = b.lt(taken, shares.overflow_places);
        b.assign(fits, has_room);
        b.end();
        let has_room = b.read(fits);
        b.begin_if(has_room);
        let first = b.read(place);
        let number = b.shr_int(first, CHUNK_SHIFT);
        let pointer = b.offset(fills, number);
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

    /// The worker's next place of a part (`u32`), or one of a new chunk: into `place`, and into `fits` whether there is one. Where the next
    /// place is kept.
    fn next_of_chunk(&self, cx: &mut Context<'_>, part: V, to: (Var, Var)) -> V {
        let b = &mut *cx.builder;
        let own = b.offset(self.chunks.next, part);
        let current = b.load(own);
        b.assign(to.0, current);
        let (mask, zero) = (b.u32(CHUNK - 1), b.u32(0));
        let rest = b.and(current, mask);
        let is_at_end = b.eq(rest, zero);
        b.begin_if(is_at_end);
        self.take_chunk(cx, part, to);
        cx.builder.end();
        own
    }

    fn write(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let IntoParts { store, by, .. } = self.plan;
        let (part, hash) = by.part(cx, store.bits())?;
        let b = &mut *cx.builder;
        let (zero, yes) = (b.u32(0), b.bool(true));
        let (place, fits) = (b.var_of("place", zero), b.var_of("fits", yes));
        let own = self.next_of_chunk(cx, part, (place, fits));
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

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let store = &self.plan.store;
        self.chunks.close(cx, store.parts);
        let b = &mut *cx.builder;
        let seen = b.read(self.seen);
        b.store(self.sight, seen);
        let (rows, end) = (b.read(self.rows), b.read(self.end));
        store.count(cx, rows, end);
        // Places that it leaves in chunks; and where there were too few, more than there are: it has not seen all of its rows.
        let capacity = store.capacity(cx);
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
