//! Bringing rows into parts: what a kernel needs that writes each row into one of several parts of an array.
//!
//! The array of `capacity` places is laid out as parts of equal size and, behind them, room that any part may use
//! ([`Shares`]): so neither how many rows a part will have nor how they are distributed has to be known before. Rows that are
//! spread by a hash fill their parts evenly; where one part has most of the rows, these flow over, and all that suffers is
//! the order. Overflow has [`PLACES_OF_OVERFLOW`] of [`PLACES_OF`] places, so that a row finds a place whatever the others do,
//! where there are [`PLACES_OF`] / [`PLACES_OF_OVERFLOW`] places for each row.
//!
//! In a block ([`BlockParts`]) each thread counts its rows in a histogram in shared memory, which gives each row its rank among the
//! block's rows of the part; then one thread a part takes places for all of them with one atomic, and neighbouring ranks are
//! neighbouring places.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Pointee, Scalar, Scope};

use super::for_table;

/// Places that the parts have of [`PLACES_OF`].
const PLACES_OF_PARTS: i64 = 5;
/// Places that any part may use.
pub const PLACES_OF_OVERFLOW: u64 = 4;
/// All of them.
pub const PLACES_OF: u64 = PLACES_OF_PARTS as u64 + PLACES_OF_OVERFLOW;
/// Places at most: their numbers have 31 bits.
pub const MOST_PLACES: u64 = (1 << 31) - 1;
/// Words from one part's cursor to the next, so that they lie in different sectors of the cache.
pub const CURSOR_STRIDE: u32 = 8;

/// Parts of equal size. All values are `u32`.
#[derive(Debug, Clone, Copy)]
pub struct Shares {
    /// How many parts there are.
    pub parts: u32,
    /// Places of each part.
    pub part_places: V,
    /// The first place behind the parts.
    pub overflow: V,
    /// Places from there on.
    pub overflow_places: V,
}

impl Shares {
    /// The layout of an array of `capacity` (`i64`) places, all sizes multiples of `chunk`.
    pub fn of(b: &mut Builder, capacity: V, parts: u32, chunk: u32) -> Shares {
        let most = b.i64(MOST_PLACES as i64);
        let capacity = b.binary(BinaryOp::Min, capacity, most);
        let unit = b.i64(i64::from(parts) * PLACES_OF as i64);
        let units = b.div(capacity, unit);
        let share = b.i64(PLACES_OF_PARTS);
        let part_places = b.mul(units, share);
        let whole = b.i64(-i64::from(chunk));
        let part_places = b.and(part_places, whole);
        let count = b.i64(parts.into());
        let overflow = b.mul(part_places, count);
        let rest = b.sub(capacity, overflow);
        let rest = b.and(rest, whole);
        let mut narrow = |value| b.convert(value, Scalar::U32);
        Shares {
            parts,
            part_places: narrow(part_places),
            overflow: narrow(overflow),
            overflow_places: narrow(rest),
        }
    }
}

/// The cursor of part `part` (`u32`): how many places of it are taken, or were asked for. The one behind the last part's is
/// that of the overflow.
pub fn cursor(b: &mut Builder, cursors: V, part: V) -> V {
    let stride = b.u32(CURSOR_STRIDE);
    let index = b.mul(part, stride);
    b.offset(cursors, index)
}

/// A block's histogram of parts, and the places that it took for them.
#[derive(Debug, Clone, Copy)]
pub struct BlockParts {
    parts: u32,
    /// Shared, `u32` a part: rows while they are counted; then the position of its first row among the block's rows in the order of
    /// their parts.
    counts: V,
    /// Shared, `u32` a part: the number, among all rows of the part, of the block's first.
    firsts: V,
    /// Shared, `u32` a part: what makes such a number a place in the overflow.
    shifts: V,
    /// Shared: rows of all rounds, one `u32`; and those before this round.
    total: V,
    before: Var,
}

/// What a thread took.
#[derive(Debug, Clone, Copy)]
pub struct Taken {
    /// Rows, `u32`.
    pub rows: V,
    /// The end of the places, `u32`.
    pub end: V,
    /// Whether the first place that there is not is among those that were asked for, `bool`.
    pub is_first_beyond: V,
}

impl BlockParts {
    /// Declares it, with no rows. Ends without a barrier.
    pub fn begin(b: &mut Builder, parts: u32) -> BlockParts {
        let mut array = |name| b.shared(name, Pointee::Scalar(Scalar::U32), parts);
        let (counts, firsts, shifts) = (array("part_counts"), array("part_firsts"), array("part_shifts"));
        let total = b.shared("part_total", Pointee::Scalar(Scalar::U32), 1);
        for_table(b, 1, |b, index| {
            let (pointer, none) = (b.offset(total, index), b.u32(0));
            b.store(pointer, none);
        });
        let none = b.u32(0);
        let before = b.var_of("rows_before", none);
        let block = BlockParts { parts, counts, firsts, shifts, total, before };
        block.reset(b);
        block
    }

    /// Bytes of a block's memory for so many parts.
    pub fn bytes(parts: u64) -> u64 {
        4 * (3 * parts + 1)
    }

    /// Counts a row of a part (`u32`); its rank, `u32`.
    pub fn rank(&self, b: &mut Builder, part: V) -> V {
        let one = b.u32(1);
        let pointer = b.offset(self.counts, part);
        b.atomic(AtomicOp::Add, pointer, one, Scope::Block)
    }

    /// Takes places for the rows that were counted: a thread calls `each` for each part of which it took some. At uniform control
    /// flow, between two barriers. No row is counted then.
    pub fn take(&self, b: &mut Builder, shares: &Shares, cursors: V, each: impl FnOnce(&mut Builder, Taken)) {
        for_table(b, self.parts, |b, part| {
            let counter = b.offset(self.counts, part);
            let (rows, none) = (b.load(counter), b.u32(0));
            let any = b.ne(rows, none);
            b.begin_if(any);
            let position = b.atomic(AtomicOp::Add, self.total, rows, Scope::Block);
            let before = b.read(self.before);
            let position = b.sub(position, before);
            b.store(counter, position);
            let number = b.convert(part, Scalar::U32);
            let own = cursor(b, cursors, number);
            let first = b.atomic(AtomicOp::Add, own, rows, Scope::Device);
            let taken = self.take_of_share(b, shares, cursors, (number, first, rows));
            each(b, taken);
            b.end();
        });
    }

    /// Notes that so many rows of a part are numbers `first ..` of it (all `u32`).
    fn take_of_share(
        &self,
        b: &mut Builder,
        shares: &Shares,
        cursors: V,
        (part, first, rows): (V, V, V),
    ) -> Taken {
        let pointer = b.offset(self.firsts, part);
        b.store(pointer, first);
        let after = b.add(first, rows);
        let inside = b.binary(BinaryOp::Min, after, shares.part_places);
        let start = b.mul(part, shares.part_places);
        let end = b.add(start, inside);
        let end = b.var_of("end", end);
        let no = b.bool(false);
        let is_first = b.var_of("is_first_beyond", no);
        let flows_over = b.lt(shares.part_places, after);
        b.begin_if(flows_over);
        let from = b.binary(BinaryOp::Max, first, shares.part_places);
        let count = b.sub(after, from);
        let last = b.u32(self.parts);
        let shared = cursor(b, cursors, last);
        let taken = b.atomic(AtomicOp::Add, shared, count, Scope::Device);
        let place = b.add(shares.overflow, taken);
        let shift = b.sub(place, from);
        let pointer = b.offset(self.shifts, part);
        b.store(pointer, shift);
        let after = b.add(taken, count);
        let inside = b.binary(BinaryOp::Min, after, shares.overflow_places);
        let overflow_end = b.add(shares.overflow, inside);
        b.assign(end, overflow_end);
        let beyond = b.lt(shares.overflow_places, after);
        let had_room = b.ge(shares.overflow_places, taken);
        let is_the_first = b.and(beyond, had_room);
        b.assign(is_first, is_the_first);
        b.end();
        let (end, is_first_beyond) = (b.read(end), b.read(is_first));
        Taken { rows, end, is_first_beyond }
    }

    /// The position (`u32`) of a row by its part and rank, once places were taken, among the block's rows in the order of their parts.
    pub fn position(&self, b: &mut Builder, (part, rank): (V, V)) -> V {
        let pointer = b.offset(self.counts, part);
        let first = b.load(pointer);
        b.add(first, rank)
    }

    /// Begins to count anew, once positions are no longer asked for. A barrier must be before, and one must follow.
    pub fn reset(&self, b: &mut Builder) {
        for_table(b, self.parts, |b, part| {
            let (pointer, none) = (b.offset(self.counts, part), b.u32(0));
            b.store(pointer, none);
        });
    }

    /// The block's rows in this round (`u32`), of which positions were asked; the next round begins. To be called once a round
    /// in which they are, by all threads, with a barrier since places were taken.
    pub fn staged(&self, b: &mut Builder) -> V {
        let (total, before) = (b.load(self.total), b.read(self.before));
        let rows = b.sub(total, before);
        b.assign(self.before, total);
        rows
    }

    /// The place (`u32`) of a row by its part and rank, once places were taken, and whether there is such a place.
    pub fn place(&self, b: &mut Builder, shares: &Shares, (part, rank): (V, V)) -> (V, V) {
        let pointer = b.offset(self.firsts, part);
        let first = b.load(pointer);
        let number = b.add(first, rank);
        let start = b.mul(part, shares.part_places);
        let place = b.add(start, number);
        let place = b.var_of("place", place);
        let yes = b.bool(true);
        let exists = b.var_of("exists", yes);
        let flows_over = b.ge(number, shares.part_places);
        b.begin_if(flows_over);
        let pointer = b.offset(self.shifts, part);
        let shift = b.load(pointer);
        let elsewhere = b.add(number, shift);
        b.assign(place, elsewhere);
        let end = b.add(shares.overflow, shares.overflow_places);
        let fits = b.lt(elsewhere, end);
        b.assign(exists, fits);
        b.end();
        (b.read(place), b.read(exists))
    }
}
