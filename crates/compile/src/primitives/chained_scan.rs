//! The exclusive prefix sum of an array of `u32`, in place and in one launch: decoupled look-back (Merrill and Garland, “Single-pass
//! Parallel Prefix Scan with Decoupled Look-back”, 2016), beside the launches a level of [`scan`](super::scan).
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`SCAN`] | `data: u32[]` (replaced), `states: u64[1 + tiles]`, zero before the launch |
//!
//! A block's threads learn the sum of all tiles before theirs by [`look_back`](super::look_back), whose states these are, of one column.
//!
//! A tile is read twice, for its sum and to replace its elements: the second time it should be in a cache.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Module, Pointee, Scalar, TypeError};

use super::look_back::Chain;
use super::scan::block_scan;
use super::{array, begin, for_chunks};
use crate::shape::LaunchShape;

/// Scans.
pub const SCAN: &str = "chained_scan";

/// The kernel.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    scan(&mut b, shape);
    b.finish()
}

/// What the threads of a block have.
struct Scan {
    data: V,
    /// Shared: one element a warp.
    totals: V,
}

fn scan(b: &mut Builder, shape: &LaunchShape) {
    let (rows, tile_rows) = begin(b, SCAN);
    let (data, states) = (array(b, "data", Scalar::U32), array(b, "states", Scalar::U64));
    let totals = b.shared("totals", Pointee::Scalar(Scalar::U32), shape.warps());
    let chain = Chain::begin(b, states, 1);
    // The sum of all tiles before.
    let before = b.shared("before", Pointee::Scalar(Scalar::U32), 1);
    let p = Scan { data, totals };
    let one = b.i64(1);
    let padded = b.add(rows, tile_rows);
    let padded = b.sub(padded, one);
    let tiles = b.div(padded, tile_rows);
    b.begin_loop();
    let tile = chain.take_tile(b);
    let done = b.ge(tile, tiles);
    b.break_if(done);
    let from = b.mul(tile, tile_rows);
    let to = b.add(from, tile_rows);
    let to = b.binary(BinaryOp::Min, to, rows);
    let total = sum(b, shape, &p, (from, to));
    b.begin_if(chain.leads);
    chain.announce(b, (tile, None), total);
    let sum = chain.look_back(b, (tile, None), total);
    b.store(before, sum);
    b.end();
    b.barrier();
    let sum = b.uniform_load(before);
    b.barrier();
    apply(b, shape, &p, (from, to), sum);
    b.end();
    b.end_kernel();
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
