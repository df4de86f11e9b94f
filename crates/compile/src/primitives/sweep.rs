//! A radix sort that reads and writes keys and values once a digit (Onesweep: Adinets and Merrill, “Onesweep: A Faster Least Significant
//! Digit Radix Sort for GPUs”, 2022), beside the three launches a digit of [`radix`](super::radix).
//!
//! [`HISTOGRAMS`] counts all digits of a word at once, as their number does not depend on the order. A sweep then needs no counts of
//! tiles before it moves keys: a block ranks the keys of its tile, several a thread, makes known how many have each digit, and learns
//! by [`look_back`](super::look_back), a column a digit, how many tiles before have. Keys are ranked warp by warp: those of a
//! thread lie a warp's lanes apart, one ballot a bit of the digit finds the lanes with the same one, and the first of these counts them
//! all in the warp's table. Before they are written, keys and then values are brought into the order of their digits in the
//! block's memory, so that neighbouring threads write neighbouring places.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`HISTOGRAMS`] | `words: u64[]`, `shifts: u64` (a byte a digit), `digits: i64` (at most [`MOST_DIGITS`]), `counts: u32[DIGITS * digits]` (added to) |
//! | [`SWEEP`] | `keys`, `order: u32[]`, `has_order: u32` (where it is 0, elements are numbered), `shift: u32`, `firsts: u32[DIGITS]` (the counts of the digit and a number on which they begin, scanned), `states: u64[]` (those of `look_back`), `keys_out`, `order_out` |
//!
//! A tile of a sweep has [`tile_rows`] elements. This is for SIMT devices only: a CPU's worker counts places up as it goes, and
//! would wait for the workers before it.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, Expr, Module, Pointee, Scalar, Scope, ShuffleMode, TypeError,
    UnaryOp,
};

use super::look_back::Chain;
use super::radix::{DIGIT_BITS, DIGITS, digit_of, rank_among, same_digit};
use super::scan::block_scan;
use super::{array, begin, for_elements, for_range, for_table, param, wide};
use crate::shape::LaunchShape;

/// Moves keys to the places of a digit.
pub const SWEEP: &str = "sweep";
/// Counts all digits of a word.
pub const HISTOGRAMS: &str = "sweep_histograms";
/// Digits of a word, at most.
pub const MOST_DIGITS: u32 = u64::BITS / DIGIT_BITS;

/// Elements of a thread, at most: more of them fill its registers.
const MOST_ITEMS: u32 = 16;
/// Bytes of a block's memory, at most, so that several blocks fit a multiprocessor.
const MOST_BYTES: u32 = 48 << 10;
/// Bytes of what is there once a block, beside tables of digits.
const FEW_BYTES: u32 = 64;
/// Tables of digits of a block, beside one a warp.
const TABLES: u32 = 3;

/// Elements of a thread; 0 where a block has no memory for one, or is a CPU's worker.
fn items(shape: &LaunchShape) -> u32 {
    let tables = (shape.warps() + TABLES) * DIGITS * 4 + shape.warps() * 4 + FEW_BYTES;
    let room = shape.shared_bytes.min(MOST_BYTES).saturating_sub(tables);
    match shape.is_serial() {
        true => 0,
        false => (room / (8 * shape.block_threads)).min(MOST_ITEMS),
    }
}

/// Elements of a tile; 0 where blocks of a shape cannot sweep.
pub fn tile_rows(shape: &LaunchShape) -> u64 {
    u64::from(items(shape)) * u64::from(shape.block_threads)
}

/// The kernels. The shape's tiles have elements.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    histograms(&mut b);
    sweep(&mut b, shape);
    b.finish()
}

fn histograms(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, HISTOGRAMS);
    let (words, shifts) = (array(b, "words", Scalar::U64), param(b, "shifts", Scalar::U64));
    let (digits, counts) = (param(b, "digits", Scalar::I64), array(b, "counts", Scalar::U32));
    let cells = MOST_DIGITS * DIGITS;
    let table = b.shared("table", Pointee::Scalar(Scalar::U32), cells);
    for_table(b, cells, |b, cell| {
        let (pointer, zero) = (b.offset(table, cell), b.u32(0));
        b.store(pointer, zero);
    });
    b.barrier();
    for_elements(b, rows, tile_rows, |b, element| {
        let word = b.element(words, element);
        let (first, one) = (b.i64(0), b.i64(1));
        for_range(b, first, digits, one, |b, number| {
            let (bits, byte, of_digit) = (b.i64(8), b.u64(0xff), b.u32(DIGITS));
            let at = b.mul(number, bits);
            let at = b.convert(at, Scalar::U64);
            let shift = b.binary(BinaryOp::Shr, shifts, at);
            let shift = b.and(shift, byte);
            let digit = digit_of(b, word, shift);
            let number = b.convert(number, Scalar::U32);
            let row = b.mul(number, of_digit);
            let cell = b.add(row, digit);
            let (pointer, one) = (b.offset(table, cell), b.u32(1));
            b.atomic_discard(AtomicOp::Add, pointer, one, Scope::Block);
        });
    });
    b.barrier();
    for_table(b, cells, |b, cell| {
        let (pointer, none) = (b.offset(table, cell), b.u32(0));
        let counted = b.load(pointer);
        // Where there are fewer digits, nothing is counted.
        let some = b.ne(counted, none);
        b.begin_if(some);
        let pointer = b.offset(counts, cell);
        b.atomic_discard(AtomicOp::Add, pointer, counted, Scope::Device);
        b.end();
    });
    b.end_kernel();
}

/// What a sweep reads and writes.
struct Sweep<'s> {
    shape: &'s LaunchShape,
    rows: V,
    keys: V,
    order: V,
    has_order: V,
    shift: V,
    firsts: V,
    keys_out: V,
    order_out: V,
    chain: Chain,
    /// Shared, a table of digits a warp: how many keys of the warp have a digit; then how many of the warps before have.
    ranks: V,
    /// Shared, a table of digits: how many keys of the tile have a digit.
    counts: V,
    /// Shared, a table of digits: the position of the first key with a digit, once keys of the tile are in order.
    starts: V,
    /// Shared, a table of digits: what makes a place of such a position (wraps).
    places: V,
    /// Shared: one element a warp.
    totals: V,
    /// Shared: the tile's keys in order, or its values.
    staged: V,
}

/// An element of a thread.
struct Item {
    /// Its number, `i64`, and whether it is there.
    element: V,
    live: V,
    key: V,
    /// How many keys of the warp before it have its digit; then its position in the tile.
    rank: Var,
}

fn sweep(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, SWEEP);
    let (keys, order) = (array(b, "keys", Scalar::U64), array(b, "order", Scalar::U32));
    let has_order = param(b, "has_order", Scalar::U32);
    let shift = param(b, "shift", Scalar::U32);
    let (firsts, states) = (array(b, "firsts", Scalar::U32), array(b, "states", Scalar::U64));
    let (keys_out, order_out) = (array(b, "keys_out", Scalar::U64), array(b, "order_out", Scalar::U32));
    let mut table = |name, count| b.shared(name, Pointee::Scalar(Scalar::U32), count);
    let (ranks, counts) = (table("ranks", DIGITS * shape.warps()), table("counts", DIGITS));
    let (starts, places) = (table("starts", DIGITS), table("places", DIGITS));
    let totals = table("totals", shape.warps());
    let staged = b.shared("staged", Pointee::Scalar(Scalar::U64), items(shape) * shape.block_threads);
    let chain = Chain::begin(b, states, DIGITS);
    let none = b.u32(0);
    let has_order = b.ne(has_order, none);
    let p = Sweep {
        shape,
        rows,
        keys,
        order,
        has_order,
        shift,
        firsts,
        keys_out,
        order_out,
        chain,
        ranks,
        counts,
        starts,
        places,
        totals,
        staged,
    };
    let one = b.i64(1);
    let padded = b.add(rows, tile_rows);
    let padded = b.sub(padded, one);
    let tiles = b.div(padded, tile_rows);
    b.begin_loop();
    let tile = p.chain.take_tile(b);
    let done = b.ge(tile, tiles);
    b.break_if(done);
    let from = b.mul(tile, tile_rows);
    p.tile(b, tile, from);
    b.end();
    b.end_kernel();
}

impl Sweep<'_> {
    /// Moves the elements of a tile. At uniform control flow.
    fn tile(&self, b: &mut Builder, tile: V, from: V) {
        for_table(b, DIGITS * self.shape.warps(), |b, cell| {
            let (pointer, zero) = (b.offset(self.ranks, cell), b.u32(0));
            b.store(pointer, zero);
        });
        b.barrier();
        let items: Vec<Item> = (0..items(self.shape)).map(|number| self.ranked(b, from, number)).collect();
        b.barrier();
        self.announce(b, tile);
        self.find_starts(b);
        b.barrier();
        for item in &items {
            self.stage_key(b, item);
        }
        // The other blocks have had time by now to make their counts known.
        self.find_places(b, tile);
        b.barrier();
        let places = self.write_keys(b, from);
        b.barrier();
        for item in &items {
            self.stage_value(b, item);
        }
        b.barrier();
        for (position, live, place) in places {
            b.begin_if(live);
            let (value, place) = (self.staged_at(b, position), b.read(place));
            let (pointer, value) = (b.offset(self.order_out, place), b.convert(value, Scalar::U32));
            b.store(pointer, value);
            b.end();
        }
    }

    /// The number of the thread's warp, `u32`.
    fn warp(&self, b: &mut Builder) -> V {
        let (thread, lanes) = (b.builtin(Builtin::ThreadId), b.u32(self.shape.lanes));
        b.div(thread, lanes)
    }

    /// The cell of a digit in the table of the thread's warp.
    fn of_warp(&self, b: &mut Builder, digit: V) -> V {
        let (warp, digits) = (self.warp(b), b.u32(DIGITS));
        let row = b.mul(warp, digits);
        let cell = b.add(row, digit);
        b.offset(self.ranks, cell)
    }

    /// Loads an element, and ranks it among those of its warp. Elements of a warp are ranked in their order.
    fn ranked(&self, b: &mut Builder, from: V, number: u32) -> Item {
        let (warp, lane) = (self.warp(b), b.builtin(Builtin::LaneId));
        let of_warp = b.u32(items(self.shape) * self.shape.lanes);
        let first = b.mul(warp, of_warp);
        let before = b.u32(number * self.shape.lanes);
        let index = b.add(first, before);
        let index = b.add(index, lane);
        let index = b.convert(index, Scalar::I64);
        let element = b.add(from, index);
        let live = b.lt(element, self.rows);
        let none = b.zero(Scalar::U64);
        let key = b.var_of("key", none);
        b.begin_if(live);
        let loaded = b.element(self.keys, element);
        b.assign(key, loaded);
        b.end();
        let key = b.read(key);
        let digit = digit_of(b, key, self.shift);
        let peers = same_digit(b, digit, live);
        let (one, zero) = (b.u32(1), b.u32(0));
        let before = rank_among(b, peers);
        let is_first = b.eq(before, zero);
        let leads = b.and(is_first, live);
        let counted = b.var_of("counted", zero);
        b.begin_if(leads);
        let (count, cell) = (b.unary(UnaryOp::Popcount, peers), self.of_warp(b, digit));
        let old = b.atomic(AtomicOp::Add, cell, count, Scope::Block);
        b.assign(counted, old);
        b.end();
        // The first of the lanes with the digit; any lane where this one has no element.
        let leader = b.unary(UnaryOp::Ffs, peers);
        let leader = b.sub(leader, one);
        let counted = b.read(counted);
        let counted = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: counted, lane: leader });
        let rank = b.add(counted, before);
        Item { element, live, key, rank: b.var_of("rank", rank) }
    }

    /// Adds up each digit's counts of the warps, and makes the tile's known.
    fn announce(&self, b: &mut Builder, tile: V) {
        for_table(b, DIGITS, |b, digit| {
            let mut sum = b.u32(0);
            for warp in 0..self.shape.warps() {
                let row = b.i64(i64::from(warp * DIGITS));
                let cell = b.add(row, digit);
                let pointer = b.offset(self.ranks, cell);
                let count = b.load(pointer);
                b.store(pointer, sum);
                sum = b.add(sum, count);
            }
            let pointer = b.offset(self.counts, digit);
            b.store(pointer, sum);
            self.chain.announce(b, (tile, Some(digit)), sum);
        });
    }

    /// The prefix sum of the tile's counts. Each is read by the thread that wrote it.
    fn find_starts(&self, b: &mut Builder) {
        let none = b.u32(0);
        let carry = b.var_of("carry", none);
        let (thread, digits) = (wide(b, Builtin::ThreadId), b.i64(DIGITS.into()));
        for first in (0..DIGITS).step_by(self.shape.block_threads as usize) {
            let first = b.i64(first.into());
            let digit = b.add(first, thread);
            let live = b.lt(digit, digits);
            let count = b.var_of("count", none);
            b.begin_if(live);
            let pointer = b.offset(self.counts, digit);
            let counted = b.load(pointer);
            b.assign(count, counted);
            b.end();
            let count = b.read(count);
            let (exclusive, total) = block_scan(b, self.shape, count, self.totals);
            let before = b.read(carry);
            b.begin_if(live);
            let (pointer, start) = (b.offset(self.starts, digit), b.add(before, exclusive));
            b.store(pointer, start);
            b.end();
            let after = b.add(before, total);
            b.assign(carry, after);
        }
    }

    /// Brings a key to its position.
    fn stage_key(&self, b: &mut Builder, item: &Item) {
        b.begin_if(item.live);
        let digit = digit_of(b, item.key, self.shift);
        let (start, before) = (b.offset(self.starts, digit), self.of_warp(b, digit));
        let (start, before, rank) = (b.load(start), b.load(before), b.read(item.rank));
        let position = b.add(start, before);
        let position = b.add(position, rank);
        b.assign(item.rank, position);
        let pointer = b.offset(self.staged, position);
        b.store(pointer, item.key);
        b.end();
    }

    /// Brings a value to the position of its key.
    fn stage_value(&self, b: &mut Builder, item: &Item) {
        b.begin_if(item.live);
        let number = b.convert(item.element, Scalar::U32);
        let value = b.var_of("value", number);
        b.begin_if(self.has_order);
        let loaded = b.element(self.order, item.element);
        b.assign(value, loaded);
        b.end();
        let (position, value) = (b.read(item.rank), b.read(value));
        let (pointer, value) = (b.offset(self.staged, position), b.convert(value, Scalar::U64));
        b.store(pointer, value);
        b.end();
    }

    /// Learns of each digit how many keys before the tile's have it.
    fn find_places(&self, b: &mut Builder, tile: V) {
        for_table(b, DIGITS, |b, digit| {
            let pointer = b.offset(self.counts, digit);
            let count = b.load(pointer);
            let before = self.chain.look_back(b, (tile, Some(digit)), count);
            let zero = b.i64(0);
            let (begin, first) = (b.element(self.firsts, zero), b.element(self.firsts, digit));
            let first = b.sub(first, begin);
            let place = b.add(first, before);
            let pointer = b.offset(self.starts, digit);
            let start = b.load(pointer);
            let (pointer, shift) = (b.offset(self.places, digit), b.sub(place, start));
            b.store(pointer, shift);
        });
    }

    fn staged_at(&self, b: &mut Builder, position: V) -> V {
        let pointer = b.offset(self.staged, position);
        b.load(pointer)
    }

    /// Writes the keys of the tile; the positions (`i64`) that the thread writes, whether they are there, and their places (`u32`).
    fn write_keys(&self, b: &mut Builder, from: V) -> Vec<(V, V, Var)> {
        let thread = wide(b, Builtin::ThreadId);
        let left = b.sub(self.rows, from);
        let write = |number: u32| {
            let first = b.i64(i64::from(number * self.shape.block_threads));
            let position = b.add(first, thread);
            let live = b.lt(position, left);
            let none = b.u32(0);
            let place = b.var_of("place", none);
            b.begin_if(live);
            let key = self.staged_at(b, position);
            let digit = digit_of(b, key, self.shift);
            let pointer = b.offset(self.places, digit);
            let (shift, position32) = (b.load(pointer), b.convert(position, Scalar::U32));
            let to = b.add(shift, position32);
            b.assign(place, to);
            let pointer = b.offset(self.keys_out, to);
            b.store(pointer, key);
            b.end();
            (position, live, place)
        };
        (0..items(self.shape)).map(write).collect()
    }
}
