//! The exclusive prefix sum of an array of `u32`, in place and in one launch: decoupled look-back (Merrill and Garland, “Single-pass
//! Parallel Prefix Scan with Decoupled Look-back”, 2016), beside the launches a level of [`scan`](super::scan).
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`SCAN`] | `data: u32[]` (replaced), `states: u64[1 + tiles]`, zero before the launch |
//!
//! `states[0]` counts the tiles that blocks have taken. The state of a tile comes behind: nothing, the tile's sum, or the sum of it and of all before,
//! which is told by the bits above the number. A block makes its tile's sum known, then goes back from tile to tile, adding up their sums,
//! until one knows all before it. State and sum are one word that is written and read at once, so that no fence is needed.
//!
//! **Forward progress.** A block waits for tiles with lower numbers only, and takes its number when it runs: whoever has a lower
//! one runs too, and makes its sum known without waiting. So the wait ends whatever number of blocks is resident, on a GPU,
//! among a CPU's workers, and on the interpreter, whose resident blocks take turns.
//!
//! A tile is read twice, for its sum and to replace its elements: the second time it should be in a cache.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, BinaryOp, Builder, Builtin, Module, Pointee, Scalar, Scope, TypeError};

use super::scan::block_scan;
use super::{array, begin, for_chunks};
use crate::shape::LaunchShape;

/// Scans.
pub const SCAN: &str = "chained_scan";

/// The bit of a state that has the sum of its tile.
const OWN: u64 = 1 << 32;
/// The bit of a state that has the sum of its tile and all before.
const ALL: u64 = 1 << 33;

/// The kernel.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    scan(&mut b, shape);
    b.finish()
}

/// What the threads of a block have.
struct Scan {
    data: V,
    states: V,
    /// Shared: one element a warp.
    totals: V,
    /// Shared: the block's tile, `i64`.
    chosen: V,
    /// Whether this is the block's first thread.
    leads: V,
}

fn scan(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, SCAN);
    let (data, states) = (array(b, "data", Scalar::U32), array(b, "states", Scalar::U64));
    let totals = b.shared("totals", Pointee::Scalar(Scalar::U32), shape.warps());
    let chosen = b.shared("chosen", Pointee::Scalar(Scalar::I64), 1);
    // The sum of all tiles before.
    let before = b.shared("before", Pointee::Scalar(Scalar::U32), 1);
    let (thread, first) = (b.builtin(Builtin::ThreadId), b.u32(0));
    let leads = b.eq(thread, first);
    let p = Scan { data, states, totals, chosen, leads };
    let one = b.i64(1);
    let padded = b.add(rows, tile_rows);
    let padded = b.sub(padded, one);
    let tiles = b.div(padded, tile_rows);
    b.begin_loop();
    let tile = take_tile(b, &p);
    let done = b.ge(tile, tiles);
    b.break_if(done);
    let from = b.mul(tile, tile_rows);
    let to = b.add(from, tile_rows);
    let to = b.binary(BinaryOp::Min, to, rows);
    let total = sum(b, shape, &p, (from, to));
    b.begin_if(leads);
    let sum = look_back(b, &p, tile, total);
    b.store(before, sum);
    b.end();
    b.barrier();
    let sum = b.uniform_load(before);
    b.barrier();
    apply(b, shape, &p, (from, to), sum);
    b.end();
    b.end_kernel();
}

/// The number of the block's next tile, `i64`: the same in all of its threads.
fn take_tile(b: &mut Builder, p: &Scan) -> V {
    b.begin_if(p.leads);
    let one = b.u64(1);
    let number = b.atomic(AtomicOp::Add, p.states, one, Scope::Device);
    let number = b.bitcast(number, Scalar::I64);
    b.store(p.chosen, number);
    b.end();
    b.barrier();
    let tile = b.uniform_load(p.chosen);
    b.barrier();
    tile
}

/// The sum of a tile, in all threads.
fn sum(b: &mut Builder, shape: &LaunchShape, p: &Scan, (from, to): (V, V)) -> V {
    let zero = b.u32(0);
    let sum = b.var_of("sum", zero);
    for_chunks(b, from, to, |b, element, live| {
        b.begin_if(live);
        let pointer = b.offset(p.data, element);
        let (value, old) = (b.load(pointer), b.read(sum));
        let new = b.add(old, value);
        b.assign(sum, new);
        b.end();
    });
    let own = b.read(sum);
    let (_, total) = block_scan(b, shape, own, p.totals);
    total
}

/// Replaces the elements of a tile; `before`: the sum of all before it.
fn apply(b: &mut Builder, shape: &LaunchShape, p: &Scan, (from, to): (V, V), before: V) {
    let carry = b.var_of("carry", before);
    for_chunks(b, from, to, |b, element, live| {
        let pointer = b.offset(p.data, element);
        let zero = b.u32(0);
        let value = b.var_of("value", zero);
        b.begin_if(live);
        let stored = b.load(pointer);
        b.assign(value, stored);
        b.end();
        let own = b.read(value);
        let (exclusive, total) = block_scan(b, shape, own, p.totals);
        let before = b.read(carry);
        b.begin_if(live);
        let prefix = b.add(before, exclusive);
        b.store(pointer, prefix);
        b.end();
        let after = b.add(before, total);
        b.assign(carry, after);
    });
}

/// Makes a state with a sum (`u32`) known. By an exchange, as others read it at the same time.
fn publish(b: &mut Builder, state: V, bit: u64, sum: V) {
    let (bit, sum) = (b.u64(bit), b.convert(sum, Scalar::U64));
    let word = b.or(bit, sum);
    b.atomic_discard(AtomicOp::Exchange, state, word, Scope::Device);
}

/// The sum of all tiles before `tile`, whose own sum is `total`, by one thread.
fn look_back(b: &mut Builder, p: &Scan, tile: V, total: V) -> V {
    let (zero, one, nothing) = (b.i64(0), b.i64(1), b.u32(0));
    let sum = b.var_of("sum", nothing);
    // The state of the tile before.
    let at = b.var_of("at", tile);
    let index = b.add(tile, one);
    let own = b.offset(p.states, index);
    let has_before = b.ne(tile, zero);
    b.begin_if(has_before);
    publish(b, own, OWN, total);
    b.begin_loop();
    let index = b.read(at);
    let state = b.offset(p.states, index);
    let word = b.atomic_load(state, Scope::Device);
    let none = b.u64(0);
    let is_known = b.ne(word, none);
    b.begin_if(is_known);
    add_state(b, (sum, at), word);
    b.end();
    let left = b.read(at);
    let done = b.eq(left, zero);
    b.break_if(done);
    b.end();
    b.end();
    let before = b.read(sum);
    let all = b.add(before, total);
    publish(b, own, ALL, all);
    before
}

/// Adds what a state has to the sum, and goes on to the tile before, or to none.
fn add_state(b: &mut Builder, (sum, at): (Var, Var), word: V) {
    let (old, added) = (b.read(sum), b.convert(word, Scalar::U32));
    let new = b.add(old, added);
    b.assign(sum, new);
    let (bit, none) = (b.u64(ALL), b.u64(0));
    let bit = b.and(word, bit);
    let is_all = b.ne(bit, none);
    let (zero, one, index) = (b.i64(0), b.i64(1), b.read(at));
    let before = b.sub(index, one);
    let next = b.select(is_all, zero, before);
    b.assign(at, next);
}
