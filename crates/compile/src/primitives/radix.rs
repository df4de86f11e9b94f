//! A stable sort of `u64` keys with `u32` values, least significant digit first: for each digit count it a tile, scan
//! the counts (digit by digit, tile by tile), and scatter each tile to its places in order (Satish, Harris and Garland
//! 2009). In a block, the rank of an element among the equal digits of its warp comes from one ballot a bit of the digit
//! (multi-split, Ashkiani et al. 2016); on a CPU the worker counts places up.
//!
//! Keys of several words are sorted word by word, the least significant first: [`GATHER`] brings a word's values into the
//! order so far. [`VARYING`] tells which bits of a word differ at all, so that digits that do not are left out, and whether elements
//! rise, fall or stay the same from one to the next: those that come in order, or in the opposite one, need no digit.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`IOTA`] | `order: u32[]` = 0, 1, … |
//! | [`REVERSE`] | `order: u32[]` = …, 1, 0 |
//! | [`VARYING`] | `keys: u64[]`, `above: u64[]`, `has_above: u32` (where it is not 0, only neighbours whose `above` is the same are compared), `facts: u64[2]` (or-ed into: the bits that differ, and [`RISES`], [`FALLS`], [`STAYS`]) |
//! | [`GATHER`] | `words: u64[]`, `order: u32[]`, `keys: u64[]` (written) |
//! | [`COUNT`] | `keys`, `shift: u32`, `counts: u32[DIGITS * tiles]` (written), `tiles: i64` |
//! | [`SCATTER`] | `keys`, `order`, `shift`, `offsets` (the scanned counts), `tiles`, `keys_out`, `order_out` |

use kelpie_kir::builder::V;
use kelpie_kir::{
    AtomicOp, BinaryOp, Builder, Builtin, Expr, Module, Pointee, Scalar, Scope, TypeError, UnaryOp,
};

use super::{array, begin, for_chunks, for_elements, for_table, for_tiles, param};
use crate::shape::LaunchShape;

/// Bits of a digit.
pub const DIGIT_BITS: u32 = 8;
/// Values of a digit.
pub const DIGITS: u32 = 1 << DIGIT_BITS;
/// Numbers elements.
pub const IOTA: &str = "radix_iota";
/// Numbers elements from the last one on.
pub const REVERSE: &str = "radix_reverse";
/// Some element is less than the next one, greater, or the same: bits of what [`VARYING`] tells.
pub const RISES: u64 = 1;
/// See [`RISES`].
pub const FALLS: u64 = 2;
/// See [`RISES`].
pub const STAYS: u64 = 4;
/// Finds the bits that differ, and how elements follow each other.
pub const VARYING: &str = "radix_varying";
/// Brings keys into an order.
pub const GATHER: &str = "radix_gather";
/// Counts a digit a tile.
pub const COUNT: &str = "radix_count";
/// Moves keys and values to the places of their digits.
pub const SCATTER: &str = "radix_scatter";

/// All kernels.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    iota(&mut b);
    reverse(&mut b);
    varying(&mut b);
    gather(&mut b);
    count(&mut b, shape);
    scatter(&mut b, shape);
    b.finish()
}

fn iota(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, IOTA);
    let order = array(b, "order", Scalar::U32);
    for_elements(b, rows, tile_rows, |b, element| {
        let pointer = b.offset(order, element);
        let number = b.convert(element, Scalar::U32);
        b.store(pointer, number);
    });
    b.end_kernel();
}

fn reverse(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, REVERSE);
    let order = array(b, "order", Scalar::U32);
    let one = b.i64(1);
    let last = b.sub(rows, one);
    for_elements(b, rows, tile_rows, |b, element| {
        let pointer = b.offset(order, element);
        let number = b.sub(last, element);
        let number = b.convert(number, Scalar::U32);
        b.store(pointer, number);
    });
    b.end_kernel();
}

fn varying(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, VARYING);
    let (keys, above) = (array(b, "keys", Scalar::U64), array(b, "above", Scalar::U64));
    let has_above = param(b, "has_above", Scalar::U32);
    let facts = array(b, "facts", Scalar::U64);
    let zero = b.i64(0);
    let some = b.lt(zero, rows);
    b.begin_if(some);
    let first = b.element(keys, zero);
    let none = b.u64(0);
    let (found, steps) = (b.var_of("found", none), b.var_of("steps", none));
    for_elements(b, rows, tile_rows, |b, element| {
        let key = b.element(keys, element);
        let differs = b.binary(BinaryOp::Xor, key, first);
        let old = b.read(found);
        let new = b.binary(BinaryOp::Or, old, differs);
        b.assign(found, new);
        let one = b.i64(1);
        let next = b.add(element, one);
        let is_followed = b.lt(next, rows);
        b.begin_if(is_followed);
        let yes = b.bool(true);
        let compares = b.var_of("compares", yes);
        let zero = b.u32(0);
        let looks = b.ne(has_above, zero);
        b.begin_if(looks);
        let (own, other) = (b.element(above, element), b.element(above, next));
        let same = b.eq(own, other);
        b.assign(compares, same);
        b.end();
        let compares = b.read(compares);
        b.begin_if(compares);
        let other = b.element(keys, next);
        let (rises, falls) = (b.lt(key, other), b.lt(other, key));
        let [rising, falling, staying] = [RISES, FALLS, STAYS].map(|step| b.u64(step));
        let step = b.select(falls, falling, staying);
        let step = b.select(rises, rising, step);
        let old = b.read(steps);
        let new = b.binary(BinaryOp::Or, old, step);
        b.assign(steps, new);
        b.end();
        b.end();
    });
    for (place, own) in [found, steps].into_iter().enumerate() {
        let place = b.i64(place as i64);
        let (own, fact) = (b.read(own), b.offset(facts, place));
        // Most threads find nothing that is not known.
        let known = b.atomic_load(fact, Scope::Device);
        let both = b.binary(BinaryOp::Or, known, own);
        let adds = b.ne(both, known);
        b.begin_if(adds);
        b.atomic_discard(AtomicOp::Or, fact, own, Scope::Device);
        b.end();
    }
    b.end();
    b.end_kernel();
}

fn gather(b: &mut Builder) {
    let (rows, tile_rows) = begin(b, GATHER);
    let (words, order) = (array(b, "words", Scalar::U64), array(b, "order", Scalar::U32));
    let keys = array(b, "keys", Scalar::U64);
    for_elements(b, rows, tile_rows, |b, element| {
        let place = b.element(order, element);
        let key = b.element(words, place);
        let pointer = b.offset(keys, element);
        b.store(pointer, key);
    });
    b.end_kernel();
}

/// The digit of a key at `shift`, `u32`.
pub(super) fn digit_of(b: &mut Builder, key: V, shift: V) -> V {
    let scalar = b.scalar(key);
    let shift = b.convert(shift, scalar);
    let shifted = b.binary(BinaryOp::Shr, key, shift);
    let mask = b.int(scalar, i128::from(DIGITS) - 1);
    let digit = b.and(shifted, mask);
    b.convert(digit, Scalar::U32)
}

/// A block's table of digits, all of them counted zero times. Ends without a barrier.
pub(super) fn clear_digits(b: &mut Builder, table: V) {
    for_table(b, DIGITS, |b, digit| {
        let (pointer, zero) = (b.offset(table, digit), b.u32(0));
        b.store(pointer, zero);
    });
}

/// Counts the digit of a key at `shift` in a block's table.
pub(super) fn count_digit(b: &mut Builder, shape: &LaunchShape, table: V, (key, shift): (V, V)) {
    let digit = digit_of(b, key, shift);
    let (pointer, one) = (b.offset(table, digit), b.u32(1));
    if shape.is_serial() {
        let old = b.load(pointer);
        let new = b.add(old, one);
        b.store(pointer, new);
    } else {
        b.atomic_discard(AtomicOp::Add, pointer, one, Scope::Block);
    }
}

/// The place of a digit of a tile in the counts: `digit * tiles + tile`.
fn cell(b: &mut Builder, digit: V, tiles: V, tile: V) -> V {
    let digit = b.convert(digit, Scalar::I64);
    let row = b.mul(digit, tiles);
    b.add(row, tile)
}

/// The kernel that counts a digit.
fn count(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, COUNT);
    let (keys, shift) = (array(b, "keys", Scalar::U64), param(b, "shift", Scalar::U32));
    let (counts, tiles) = (array(b, "counts", Scalar::U32), param(b, "tiles", Scalar::I64));
    let table = b.shared("table", Pointee::Scalar(Scalar::U32), DIGITS);
    for_tiles(b, rows, tile_rows, |b, tile, from, to| {
        clear_digits(b, table);
        b.barrier();
        for_chunks(b, from, to, |b, element, live| {
            b.begin_if(live);
            let key = b.element(keys, element);
            count_digit(b, shape, table, (key, shift));
            b.end();
        });
        b.barrier();
        for_table(b, DIGITS, |b, digit| {
            let pointer = b.offset(table, digit);
            let counted = b.load(pointer);
            let cell = cell(b, digit, tiles, tile);
            let pointer = b.offset(counts, cell);
            b.store(pointer, counted);
        });
        b.barrier();
    });
    b.end_kernel();
}

/// What a scatter reads and writes.
struct Scatter {
    keys: V,
    order: V,
    shift: V,
    keys_out: V,
    order_out: V,
    /// Shared: the next place of each digit in this tile.
    next: V,
}

/// The kernel that moves keys to the places of a digit.
fn scatter(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, SCATTER);
    let (keys, order) = (array(b, "keys", Scalar::U64), array(b, "order", Scalar::U32));
    let shift = param(b, "shift", Scalar::U32);
    let (offsets, tiles) = (array(b, "offsets", Scalar::U32), param(b, "tiles", Scalar::I64));
    let (keys_out, order_out) = (array(b, "keys_out", Scalar::U64), array(b, "order_out", Scalar::U32));
    let next = b.shared("next", Pointee::Scalar(Scalar::U32), DIGITS);
    let p = Scatter { keys, order, shift, keys_out, order_out, next };
    let ranks =
        (!shape.is_serial()).then(|| b.shared("ranks", Pointee::Scalar(Scalar::U32), DIGITS * shape.warps()));
    for_tiles(b, rows, tile_rows, |b, tile, from, to| {
        for_table(b, DIGITS, |b, digit| {
            let cell = cell(b, digit, tiles, tile);
            let first = b.element(offsets, cell);
            let pointer = b.offset(next, digit);
            b.store(pointer, first);
        });
        b.barrier();
        for_chunks(b, from, to, |b, element, live| match ranks {
            None => serial_scatter(b, &p, element),
            Some(ranks) => block_scatter(b, shape, &p, ranks, element, live),
        });
        b.barrier();
    });
    b.end_kernel();
}

/// A worker's next element.
fn serial_scatter(b: &mut Builder, p: &Scatter, element: V) {
    let key = b.element(p.keys, element);
    let digit = digit_of(b, key, p.shift);
    let pointer = b.offset(p.next, digit);
    let (place, one) = (b.load(pointer), b.u32(1));
    let after = b.add(place, one);
    b.store(pointer, after);
    move_to(b, p, element, key, place);
}

fn move_to(b: &mut Builder, p: &Scatter, element: V, key: V, place: V) {
    let pointer = b.offset(p.keys_out, place);
    b.store(pointer, key);
    let value = b.element(p.order, element);
    let pointer = b.offset(p.order_out, place);
    b.store(pointer, value);
}

/// As many elements as the block has threads. `ranks`: a table of digits a warp, in which each warp counts its elements,
/// and which then holds the place of the first of them.
fn block_scatter(b: &mut Builder, shape: &LaunchShape, p: &Scatter, ranks: V, element: V, live: V) {
    let warps = shape.warps();
    for_table(b, DIGITS * warps, |b, cell| {
        let (pointer, zero) = (b.offset(ranks, cell), b.u32(0));
        b.store(pointer, zero);
    });
    b.barrier();
    let key = b.var("key", Scalar::U64);
    b.begin_if(live);
    let loaded = b.element(p.keys, element);
    b.assign(key, loaded);
    b.end();
    let key = b.read(key);
    let digit = digit_of(b, key, p.shift);
    let peers = same_digit(b, digit, live);
    let rank = rank_among(b, peers);
    let (thread, lanes, digits) = (b.builtin(Builtin::ThreadId), b.u32(shape.lanes), b.u32(DIGITS));
    let warp = b.div(thread, lanes);
    let row = b.mul(warp, digits);
    let cell = b.add(row, digit);
    let own_count = b.offset(ranks, cell);
    let zero = b.u32(0);
    let is_first = b.eq(rank, zero);
    let leads = b.and(is_first, live);
    b.begin_if(leads);
    let count = b.unary(UnaryOp::Popcount, peers);
    b.store(own_count, count);
    b.end();
    b.barrier();
    for_table(b, DIGITS, |b, digit| {
        let next = b.offset(p.next, digit);
        let mut place = b.load(next);
        for warp in 0..warps {
            let row = b.i64(i64::from(warp * DIGITS));
            let cell = b.add(row, digit);
            let pointer = b.offset(ranks, cell);
            let count = b.load(pointer);
            b.store(pointer, place);
            place = b.add(place, count);
        }
        b.store(next, place);
    });
    b.barrier();
    b.begin_if(live);
    let first = b.load(own_count);
    let place = b.add(first, rank);
    move_to(b, p, element, key, place);
    b.end();
    b.barrier();
}

/// How many of some lanes of the warp (a bit a lane) are before this one.
pub(crate) fn rank_among(b: &mut Builder, lanes: V) -> V {
    let (one, lane) = (b.u32(1), b.builtin(Builtin::LaneId));
    let own = b.binary(BinaryOp::Shl, one, lane);
    let below = b.sub(own, one);
    let before = b.and(lanes, below);
    b.unary(UnaryOp::Popcount, before)
}

/// The live lanes of the warp whose digit is this lane's, a bit a lane.
pub(super) fn same_digit(b: &mut Builder, digit: V, live: V) -> V {
    let mut peers = b.value(Expr::Ballot(live));
    for bit in 0..DIGIT_BITS {
        let (bit, one, zero) = (b.u32(bit), b.u32(1), b.u32(0));
        let shifted = b.binary(BinaryOp::Shr, digit, bit);
        let masked = b.and(shifted, one);
        let set = b.ne(masked, zero);
        let with = b.value(Expr::Ballot(set));
        let without = b.not(with);
        let same = b.select(set, with, without);
        peers = b.and(peers, same);
    }
    peers
}
