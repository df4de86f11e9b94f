//! Memory of a thread for text that its kernel makes.
//!
//! Most text is only looked at and thrown away with the row: it is compared, measured, hashed, copied into the result, or the minimum
//! of an aggregate that keeps another one. From the heap, which only grows, each would take its place for good, and many threads
//! would meet at the heap's cursor. So where nothing keeps the address of a text beyond its row, text comes from *scratch memory*:
//! a piece of the heap that is the thread's own and starts anew with every row. Who keeps a text after all copies it
//! (`operator::aggregate::functions`, `operator::aggregate::keys`).
//!
//! A CPU's worker takes text that is kept from pieces of the heap too, one text behind the other, so that it seldom comes to
//! the cursor. There a text is also followed by some bytes that nobody uses yet ([`Context::text_margin`]).

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar};

use super::Context;

/// Bytes that may be read from any byte of a text on, where texts have a margin.
pub(crate) const TEXT_MARGIN: u32 = 32;
/// Bytes of the first piece of scratch memory.
const FIRST_BYTES: u64 = 256;
/// Bytes behind a text that its maker may write on a CPU.
const MARGIN: u64 = 16;
/// Bytes of a CPU worker's first piece for text that is kept, and of the largest one. A text of more than that has a piece of its own.
const PIECE_BYTES: (u64, u64) = (1 << 10, 1 << 16);

/// A thread's scratch memory.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Scratch {
    /// Where it is, once that is asked for.
    vars: Option<ScratchVars>,
    is_open: bool,
    is_used: bool,
    /// Whether all that a row makes is scratch, up to the row's end; with the count (`i64`) of the rows that wait for each other
    /// then, and still need it.
    rows: Option<Option<Var>>,
}

/// A thread's piece of the heap: offsets and bytes, `u64`.
#[derive(Debug, Clone, Copy)]
struct ScratchVars {
    start: Var,
    end: Var,
    /// Where the next text begins.
    place: Var,
    /// Bytes that the row has taken, also of pieces that became too small.
    taken: Var,
}

/// A CPU worker's piece of the heap for text that is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    place: Var,
    end: Var,
    /// Bytes that it has.
    bytes: Var,
}

impl Context<'_> {
    /// Whether the [`TEXT_MARGIN`] bytes from any byte of a text on may be read, and [`MARGIN`] behind the end of a text may be written by who
    /// makes it: a CPU's buffers are followed by bytes that may be read, and each worker makes text in memory of its own, front to
    /// back, where there is always room for so much more.
    pub(crate) fn text_margin(&self) -> bool {
        self.shape.is_serial() && self.target.margin_bytes >= TEXT_MARGIN
    }

    /// Gives each thread scratch memory, empty at first.
    pub(crate) fn declare_scratch(&mut self) {
        self.scratch_vars();
    }

    /// On a CPU: makes all text of the kernel scratch, as nothing keeps the address of a text that was made beyond the row of the source
    /// that it was made for. `waiting`: the count of rows that wait for each other and are not done with theirs yet.
    pub(crate) fn make_rows_scratch(&mut self, waiting: Option<Var>) {
        if !self.shape.is_serial() {
            return;
        }
        let scratch = self.made_text.scratch.get_or_insert_default();
        (scratch.is_open, scratch.rows) = (true, Some(waiting));
    }

    /// What is in the scratch memory is not looked at any more.
    pub(crate) fn clear_scratch(&mut self) {
        if let Some(scratch) = self.made_text.scratch.and_then(|scratch| scratch.vars) {
            let (start, zero) = (self.builder.read(scratch.start), self.builder.u64(0));
            self.builder.assign(scratch.place, start);
            self.builder.assign(scratch.taken, zero);
        }
    }

    /// At the end of a row of the source: clears scratch memory that is its rows'.
    pub(crate) fn end_scratch_row(&mut self) {
        let Some(Scratch { rows: Some(waiting), is_used: true, .. }) = self.made_text.scratch else { return };
        let Some(waiting) = waiting else { return self.clear_scratch() };
        let (count, zero) = (self.builder.read(waiting), self.builder.i64(0));
        let is_done = self.builder.eq(count, zero);
        self.begin_if(is_done);
        self.clear_scratch();
        self.end();
    }

    /// Whether scratch memory is that of rows of the source.
    pub(crate) fn scratch_of_rows(&self) -> bool {
        self.made_text.scratch.is_some_and(|scratch| scratch.rows.is_some())
    }

    /// Whether text that is lowered from here on is in scratch memory, where the kernel has some; whether it was before.
    pub(crate) fn open_scratch(&mut self, is_open: bool) -> bool {
        match &mut self.made_text.scratch {
            Some(scratch) => std::mem::replace(&mut scratch.is_open, is_open),
            None => false,
        }
    }

    /// Whether the kernel has made text in scratch memory.
    pub(crate) fn uses_scratch(&self) -> bool {
        self.made_text.scratch.is_some_and(|scratch| scratch.is_used)
    }

    /// The offset in the heap of `length` (`u64`) new bytes: of scratch memory where that is open, else of a worker's own on a CPU, else
    /// what `allocate` takes from the heap; `no_room` where there is none.
    pub(crate) fn take_text(
        &mut self,
        length: V,
        no_room: V,
        allocate: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> V {
        let is_open = self.made_text.scratch.is_some_and(|scratch| scratch.is_open);
        let open = is_open.then(|| self.scratch_vars());
        if let Some(scratch) = self.made_text.scratch.as_mut().filter(|_| is_open) {
            scratch.is_used = true;
        }
        match open {
            Some(scratch) => self.take_scratch(scratch, length, no_room, allocate),
            None if self.text_margin() => self.take_piece(length, no_room, allocate),
            None => allocate(self, length),
        }
    }

    /// The variables of scratch memory.
    fn scratch_vars(&mut self) -> ScratchVars {
        if let Some(vars) = self.made_text.scratch.and_then(|scratch| scratch.vars) {
            return vars;
        }
        let [start, end, place, taken] = ["scratch", "scratch_end", "scratch_place", "scratch_taken"]
            .map(|name| self.builder.var(name, Scalar::U64));
        let vars = ScratchVars { start, end, place, taken };
        self.made_text.scratch.get_or_insert_default().vars = Some(vars);
        vars
    }

    /// Gives back the last `bytes` (`u64`) of the text that was taken last, on a CPU.
    pub(crate) fn give_text_back(&mut self, bytes: V) {
        let scratch =
            self.made_text.scratch.filter(|scratch| scratch.is_open).and_then(|scratch| scratch.vars);
        let scratch = scratch.map(|scratch| scratch.place);
        let Some(place) = scratch.or(self.made_text.piece.map(|piece| piece.place)) else {
            return self.impossible("text is given back that was not taken");
        };
        let end = self.builder.read(place);
        let end = self.builder.sub(end, bytes);
        self.builder.assign(place, end);
    }

    /// A length with what is to be free behind it.
    fn with_margin(&mut self, length: V) -> V {
        match self.text_margin() {
            true => self.builder.add_int(length, MARGIN),
            false => length,
        }
    }

    fn take_scratch(
        &mut self,
        scratch: ScratchVars,
        length: V,
        no_room: V,
        allocate: impl FnOnce(&mut Context<'_>, V) -> V,
    ) -> V {
        let needed = self.with_margin(length);
        let b = &mut *self.builder;
        let taken = b.read(scratch.taken);
        let taken = b.add(taken, needed);
        b.assign(scratch.taken, taken);
        let room = room_of(self, scratch.place, scratch.end);
        let is_short = self.builder.lt(room, needed);
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
        // The words of a text have no bytes of the next one: what was written by several stores, of which some are still on their way, is
        // read slowly.
        let advance = match self.text_margin() {
            true => {
                let (seven, mask) = (self.builder.u64(7), self.builder.u64(!7));
                let whole = self.builder.add(length, seven);
                self.builder.and(whole, mask)
            }
            false => length,
        };
        self.place_of(scratch.place, scratch.end, (advance, needed), no_room)
    }

    /// As [`Context::take_text`], of the worker's piece for text that is kept. Pieces grow, so that a kernel that makes few texts leaves
    /// little of the heap unused.
    fn take_piece(&mut self, length: V, no_room: V, allocate: impl FnOnce(&mut Context<'_>, V) -> V) -> V {
        let Piece { place, end, bytes } = match self.made_text.piece {
            Some(piece) => piece,
            None => {
                let [place, end, bytes] =
                    ["piece", "piece_end", "piece_bytes"].map(|name| self.builder.var(name, Scalar::U64));
                *self.made_text.piece.insert(Piece { place, end, bytes })
            }
        };
        let needed = self.with_margin(length);
        let room = room_of(self, place, end);
        let is_short = self.builder.lt(room, needed);
        self.begin_if(is_short);
        let b = &mut *self.builder;
        let (two, least, most) = (b.u64(2), b.u64(PIECE_BYTES.0), b.u64(PIECE_BYTES.1));
        let before = b.read(bytes);
        let next = b.mul(before, two);
        let next = b.binary(BinaryOp::Max, next, least);
        let next = b.binary(BinaryOp::Min, next, most);
        b.assign(bytes, next);
        let taken = b.binary(BinaryOp::Max, next, needed);
        let piece = allocate(self, taken);
        let is_there = self.builder.ne(piece, no_room);
        self.begin_if(is_there);
        let behind = self.builder.add(piece, taken);
        self.builder.assign(place, piece);
        self.builder.assign(end, behind);
        self.end();
        self.end();
        self.place_of(place, end, (length, needed), no_room)
    }

    /// Takes `taken` bytes of a piece where `needed` are free, which are no fewer.
    fn place_of(&mut self, place: Var, end: Var, (taken, needed): (V, V), no_room: V) -> V {
        let room = room_of(self, place, end);
        let b = &mut *self.builder;
        let (fits, current) = (b.ge(room, needed), b.read(place));
        let after = b.add(current, taken);
        let next = b.select(fits, after, current);
        b.assign(place, next);
        b.select(fits, current, no_room)
    }
}

/// Bytes that are left of a piece.
fn room_of(cx: &mut Context<'_>, place: Var, end: Var) -> V {
    let b = &mut *cx.builder;
    let (end, place) = (b.read(end), b.read(place));
    debug_assert_eq!(b.scalar(end), Scalar::U64);
    b.sub(end, place)
}
