//! Scratch memory of a thread: where text is made that is only looked at, and thrown away with the row.
//!
//! The minimum of a computed text makes a text a row and keeps a few. From the heap, which only grows, each would take
//! its place for good. So while the arguments of such aggregates are lowered, text comes from a piece of the heap that is the
//! thread's own and starts anew with every row; what an aggregate keeps is copied (`operator::aggregate::extremes`).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use super::Context;

/// Bytes of the first piece.
const FIRST_BYTES: u64 = 256;

/// A thread's piece of the heap: offsets and bytes, `u64`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scratch {
    start: Var,
    end: Var,
    /// Where the next text begins.
    place: Var,
    /// Bytes that the row has taken, also of pieces that became too small.
    taken: Var,
    is_open: bool,
    is_used: bool,
}

impl Context<'_> {
    /// Gives each thread scratch memory, empty at first. Before the loop over rows.
    pub(crate) fn declare_scratch(&mut self) {
        let [start, end, place, taken] =
            ["scratch", "scratch_end", "scratch_place", "scratch_taken"].map(|name| {
                let zero = self.builder.u64(0);
                self.builder.var_of(name, zero)
            });
        self.scratch = Some(Scratch { start, end, place, taken, is_open: false, is_used: false });
    }

    /// What is in the scratch memory is not looked at any more.
    pub(crate) fn clear_scratch(&mut self) {
        if let Some(scratch) = self.scratch {
            let (start, zero) = (self.builder.read(scratch.start), self.builder.u64(0));
            self.builder.assign(scratch.place, start);
            self.builder.assign(scratch.taken, zero);
        }
    }

    /// Whether text that is lowered from here on is in scratch memory, where the kernel has some.
    pub(crate) fn open_scratch(&mut self, is_open: bool) {
        if let Some(scratch) = &mut self.scratch {
            scratch.is_open = is_open;
        }
    }

    /// Whether the kernel has made text in scratch memory.
    pub(crate) fn uses_scratch(&self) -> bool {
        self.scratch.is_some_and(|scratch| scratch.is_used)
    }

    /// The offset in the heap of `length` (`u64`) bytes of scratch memory, if it is open; `no_room` where there is none.
    /// `allocate` takes bytes from the heap.
    pub(crate) fn take_scratch(
        &mut self,
        length: V,
        no_room: V,
        allocate: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> Option<V> {
        let open = self.scratch.as_mut().filter(|scratch| scratch.is_open)?;
        open.is_used = true;
        let scratch = *open;
        let b = &mut *self.builder;
        let taken = b.read(scratch.taken);
        let taken = b.add(taken, length);
        b.assign(scratch.taken, taken);
        let room = room_of(self, scratch);
        let is_short = self.builder.lt(room, length);
        self.begin_if(is_short);
        // Twice what the row has taken so far: rows of one size soon fit a piece.
        let b = &mut *self.builder;
        let (two, first) = (b.u64(2), b.u64(FIRST_BYTES));
        let bytes = b.mul(taken, two);
        let bytes = b.binary(BinaryOp::Max, bytes, first);
        let piece = allocate(self, bytes);
        let is_there = self.builder.ne(piece, no_room);
        self.begin_if(is_there);
        let end = self.builder.add(piece, bytes);
        self.builder.assign(scratch.start, piece);
        self.builder.assign(scratch.place, piece);
        self.builder.assign(scratch.end, end);
        self.end();
        self.end();
        let room = room_of(self, scratch);
        let b = &mut *self.builder;
        let (fits, place) = (b.ge(room, length), b.read(scratch.place));
        let after = b.add(place, length);
        let next = b.select(fits, after, place);
        b.assign(scratch.place, next);
        Some(b.select(fits, place, no_room))
    }
}

/// Bytes that are left of the piece.
fn room_of(cx: &mut Context<'_>, scratch: Scratch) -> V {
    let b = &mut *cx.builder;
    let (end, place) = (b.read(scratch.end), b.read(scratch.place));
    debug_assert_eq!(b.scalar(end), Scalar::U64);
    b.sub(end, place)
}
