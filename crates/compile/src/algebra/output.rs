//! Where the results of a block go: to consecutive places, or to pages that it takes from a pool.
//!
//! | output | parameters behind `out`, `capacity: u32`, `totals: u64[2]` (results, and tuples that were skipped; added to) |
//! |---|---|
//! | `Gather` | `areas: u32[sections + 1]` (section s may write `areas[s]..areas[s + 1]`), `counts: u32[sections]` (its results, written) |
//! | `SinglePass` | `states: u64[1 + sections]`, zero before the launch |
//! | `Pages` | `next: u32[pages]` (the page behind a page, written), `taken: u32[1]` (pages; added to), `firsts`, `lasts`, `counts`: `u32[sections]` (written) |
//!
//! `capacity` is how many tuples `out` has room for. Results beyond it, or beyond an area, are counted and not written: whoever launched
//! looks at `totals`, and launches again with more room.
//!
//! With a buffer ([`Tuning::buffer`](super::Tuning)) results are brought together in the block's memory first, across tiles, and written
//! when it is full, neighbours by neighbouring threads; without, each thread writes its result.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, CompareOp, Pointee, Scalar, Scope, Type};

use super::partition::param;
use super::tile::{Block, Tile};
use super::{Output, pages, streamed};
use crate::primitives::for_range;

/// What is done with results that lie together: from which to which, and their first place.
type OfPiece<'a> = &'a dyn Fn(&mut Builder, (V, V), V);

/// The kernel's parameters of an output.
pub(super) struct Target {
    pub out: V,
    /// `u32`.
    pub capacity: V,
    pub totals: V,
    /// Of `Gather`.
    pub areas: Option<V>,
    /// Of `SinglePass`.
    pub states: Option<V>,
    /// Of `Pages`: `next`, `taken`, `firsts` and `lasts`.
    pub pool: Option<[V; 4]>,
    /// Of `Gather` and `Pages`.
    pub counts: Option<V>,
}

impl Target {
    /// Adds them to the kernel.
    pub fn begin(b: &mut Builder, block: &Block<'_>) -> Target {
        let scalar = block.description.output().width.scalar();
        let out = param(b, "out", Type::global(scalar));
        let capacity = param(b, "capacity", Scalar::U32);
        let totals = param(b, "totals", Type::global(Scalar::U64));
        let (mut areas, mut states, mut pool, mut counts) = (None, None, None, None);
        let mut words = |name: &str| param(b, name, Type::global(Scalar::U32));
        match block.description.output {
            Output::Gather => {
                areas = Some(words("areas"));
                counts = Some(words("counts"));
            }
            Output::SinglePass => states = Some(param(b, "states", Type::global(Scalar::U64))),
            Output::Pages => {
                pool = Some(["next", "taken", "firsts", "lasts"].map(&mut words));
                counts = Some(words("counts"));
            }
        }
        Target { out, capacity, totals, areas, states, pool, counts }
    }
}

/// Writes the results of a block.
pub(super) struct Writer<'a, 'd> {
    block: &'a Block<'d>,
    target: &'a Target,
    /// The next place in a page or in `out`, `u32`, and the end of the places that there are.
    pub place: Var,
    pub end: Var,
    /// Of pages: the page, and the section (`u32`).
    page: Var,
    section: V,
    /// Shared: a page that was taken.
    chosen: Option<V>,
    /// Shared: results that are not written yet, and how many.
    staged: Option<V>,
    held: Var,
}

impl<'a, 'd> Writer<'a, 'd> {
    /// Declares its arrays: once a kernel.
    pub fn arrays(b: &mut Builder, block: &Block<'_>) -> (Option<V>, Option<V>) {
        let (description, buffer) = (block.description, block.description.tuning.buffer);
        let scalar = description.output().width.scalar();
        let places = match description.is_streamed() {
            true => description.tile(block.shape) + streamed::LANES,
            false => buffer,
        };
        let staged = (places > 0).then(|| b.shared("staged", Pointee::Scalar(scalar), places));
        let is_paged = description.output == Output::Pages;
        let chosen = is_paged.then(|| b.shared("chosen_page", Pointee::Scalar(Scalar::U32), 1));
        (staged, chosen)
    }

    /// Of a section (`u32`), with no place yet.
    pub fn begin(
        b: &mut Builder,
        (block, target): (&'a Block<'d>, &'a Target),
        (staged, chosen): (Option<V>, Option<V>),
        section: V,
    ) -> Writer<'a, 'd> {
        let (zero, nowhere) = (b.u32(0), b.u32(pages::NOWHERE));
        let (place, end) = (b.var_of("place", zero), b.var_of("end", zero));
        let (page, held) = (b.var_of("page", nowhere), b.var_of("held", zero));
        Writer { block, target, place, end, page, section, chosen, staged, held }
    }

    /// Writes the results of a tile (`u32`).
    pub fn write(&self, b: &mut Builder, tile: &Tile, total: V) {
        let Some(staged) = self.staged else {
            self.flow(b, total, &|b, (from, to), place| {
                self.emit(b, tile, (from, to), (self.target.out, place))
            });
            return;
        };
        if self.block.description.is_streamed() {
            return self.flow(b, total, &|b, piece, place| self.copy(b, staged, piece, place));
        }
        let zero = b.u32(0);
        let done = b.var_of("done", zero);
        b.begin_loop();
        let (so_far, held) = (b.read(done), b.read(self.held));
        let is_done = b.ge(so_far, total);
        b.break_if(is_done);
        let buffer = b.u32(self.block.description.tuning.buffer);
        let (left, room) = (b.sub(total, so_far), b.sub(buffer, held));
        let count = b.binary(BinaryOp::Min, left, room);
        let to = b.add(so_far, count);
        self.emit(b, tile, (so_far, to), (staged, held));
        b.assign(done, to);
        let held = b.add(held, count);
        b.assign(self.held, held);
        let is_full = b.ge(held, buffer);
        b.begin_if(is_full);
        self.flush(b, staged);
        b.end();
        b.end();
    }

    /// Writes what is held back.
    fn flush(&self, b: &mut Builder, staged: V) {
        b.barrier();
        let held = b.read(self.held);
        self.flow(b, held, &|b, piece, place| self.copy(b, staged, piece, place));
        b.barrier();
        let zero = b.u32(0);
        b.assign(self.held, zero);
    }

    /// Writes results `from..to` that were brought together.
    fn copy(&self, b: &mut Builder, staged: V, (from, to): (V, V), place: V) {
        let first = b.add(from, self.block.thread);
        for_range(b, first, to, self.block.threads, |b, index| {
            let pointer = b.offset(staged, index);
            let tuple = b.load(pointer);
            let behind = b.sub(index, from);
            let place = b.add(place, behind);
            let pointer = b.offset(self.target.out, place);
            b.store(pointer, tuple);
        });
    }

    /// Ends the section, of which there were so many results (`u32`).
    pub fn finish(&self, b: &mut Builder, total: V) {
        if let Some(staged) = self.staged.filter(|_| !self.block.description.is_streamed()) {
            let (held, zero) = (b.read(self.held), b.u32(0));
            let any = b.ne(held, zero);
            b.begin_if(any);
            self.flush(b, staged);
            b.end();
        }
        let leads = self.block.leads(b);
        b.begin_if(leads);
        if let Some(counts) = self.target.counts {
            let pointer = b.offset(counts, self.section);
            b.store(pointer, total);
        }
        if let Some([_, _, firsts, lasts]) = self.target.pool {
            let (page, nowhere) = (b.read(self.page), b.u32(pages::NOWHERE));
            let pointer = b.offset(lasts, self.section);
            b.store(pointer, page);
            let has_none = b.eq(page, nowhere);
            b.begin_if(has_none);
            let pointer = b.offset(firsts, self.section);
            b.store(pointer, nowhere);
            b.end();
        }
        b.end();
    }

    /// Places for the next `count` (`u32`) results: of each piece that lies together, from which to which, and its first place.
    fn flow(&self, b: &mut Builder, count: V, piece: OfPiece<'_>) {
        if self.target.pool.is_some() {
            return self.flow_to_pages(b, count, piece);
        }
        let (place, end, zero) = (b.read(self.place), b.read(self.end), b.u32(0));
        let is_inside = b.lt(place, end);
        let room = b.sub(end, place);
        let room = b.select(is_inside, room, zero);
        let to = b.binary(BinaryOp::Min, count, room);
        piece(b, (zero, to), place);
        let next = b.add(place, count);
        b.assign(self.place, next);
    }

    fn flow_to_pages(&self, b: &mut Builder, count: V, piece: OfPiece<'_>) {
        let zero = b.u32(0);
        let done = b.var_of("flown", zero);
        b.begin_loop();
        let so_far = b.read(done);
        let is_done = b.ge(so_far, count);
        b.break_if(is_done);
        let (place, end) = (b.read(self.place), b.read(self.end));
        let is_full = b.ge(place, end);
        b.begin_if(is_full);
        self.take_page(b);
        b.end();
        let (place, end) = (b.read(self.place), b.read(self.end));
        let (left, room) = (b.sub(count, so_far), b.sub(end, place));
        let taken = b.binary(BinaryOp::Min, left, room);
        let to = b.add(so_far, taken);
        // Pages that there are not are counted.
        let exists = b.compare(CompareOp::Le, end, self.target.capacity);
        let written = b.select(exists, to, so_far);
        piece(b, (so_far, written), place);
        b.assign(done, to);
        let next = b.add(place, taken);
        b.assign(self.place, next);
        b.end();
    }

    /// Takes a page, and links it behind the one before.
    fn take_page(&self, b: &mut Builder) {
        let (Some([next, taken, firsts, _]), Some(chosen)) = (self.target.pool, self.chosen) else { return };
        let tuples = b.u32(self.block.description.tuning.page);
        let pages = b.div(self.target.capacity, tuples);
        let leads = self.block.leads(b);
        b.begin_if(leads);
        let (one, nowhere) = (b.u32(1), b.u32(pages::NOWHERE));
        let page = b.atomic(AtomicOp::Add, taken, one, Scope::Device);
        // What there is not stands for all that there are not: so no place is beyond 32 bits.
        let page = b.binary(BinaryOp::Min, page, pages);
        b.store(chosen, page);
        let exists = b.lt(page, pages);
        b.begin_if(exists);
        let pointer = b.offset(next, page);
        b.store(pointer, nowhere);
        let before = b.read(self.page);
        let has_before = b.lt(before, pages);
        b.begin_if(has_before);
        let pointer = b.offset(next, before);
        b.store(pointer, page);
        b.begin_else();
        let pointer = b.offset(firsts, self.section);
        b.store(pointer, page);
        b.end();
        b.end();
        b.end();
        let page = b.uniform_load(chosen);
        b.assign(self.page, page);
        let place = b.mul(page, tuples);
        b.assign(self.place, place);
        let end = b.add(place, tuples);
        b.assign(self.end, end);
    }

    /// Writes results `from..to` of a tile to an array from a place on.
    fn emit(&self, b: &mut Builder, tile: &Tile, (from, to): (V, V), (array, place): (V, V)) {
        let block = self.block;
        let store = |b: &mut Builder, owner_of: V, (number, result): (V, V)| {
            let owner = block.owner(b, owner_of);
            let tuple = block.result(b, tile, &owner, number);
            let behind = b.sub(result, from);
            let place = b.add(place, behind);
            let pointer = b.offset(array, place);
            b.store(pointer, tuple);
        };
        let shares = block.description.is_join() && !block.shape.is_serial();
        if shares {
            // Many results are shared out, however many a tuple has; of few each tuple's thread writes its own.
            let (count, few) = (b.sub(to, from), b.u32(block.description.tile(block.shape)));
            let are_many = b.lt(few, count);
            b.begin_if(are_many);
            let first = b.add(from, block.thread);
            for_range(b, first, to, block.threads, |b, result| {
                let slot = block.slot_of(b, tile, result);
                let start = block.start(b, slot);
                let number = b.sub(result, start);
                store(b, slot, (number, result));
            });
            b.begin_else();
        }
        for_range(b, block.thread, tile.slots, block.threads, |b, slot| {
            let one = b.u32(1);
            let next = b.add(slot, one);
            let (start, end) = (block.start(b, slot), block.start(b, next));
            let first = b.binary(BinaryOp::Max, start, from);
            let last = b.binary(BinaryOp::Min, end, to);
            for_range(b, first, last, one, |b, result| {
                let number = b.sub(result, start);
                store(b, slot, (number, result));
            });
        });
        if shares {
            b.end();
        }
    }
}

/// Adds to one of the totals.
pub(super) fn add_total(b: &mut Builder, target: &Target, (index, added): (u32, V)) {
    let index = b.u32(index);
    let pointer = b.offset(target.totals, index);
    b.atomic_discard(AtomicOp::Add, pointer, added, Scope::Device);
}
