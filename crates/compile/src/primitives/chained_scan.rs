//! The exclusive prefix sum of an array of `u32`, in place and in one launch: decoupled look-back (Merrill and Garland, “Single-pass
//! Parallel Prefix Scan with Decoupled Look-back”, 2016), where [`scan`](super::scan) has launches a level.
//!
//! | kernel | parameters |
//! |---|---|
//! | [`SCAN`] | `rows: i64`, `data: u32[]` (replaced), `states: u64[1 + tiles]`, zero before the launch |
//! | [`BIT_SCAN`] | the same, `bits: u32[]`: `data` becomes the prefix sum of how many bits of each word of it are set |
//!
//! A tile has [`tile_rows`] elements, which its threads hold in registers: each is read once and written once. A warp has elements that
//! follow each other, of which its lanes take neighbours at a time, and adds them up by shuffles; the threads of a block are together only
//! for the sums of its warps, and while its first thread learns the sum of all tiles before by [`look_back`](super::look_back), whose states these
//! are, of one column. For SIMT devices: a CPU's worker would wait for the workers before it.

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Builtin, Expr, Module, Pointee, Scalar, ShuffleMode, TypeError};

use super::look_back::Chain;
use super::scan::{Summed, block_scan, warp_scan};
use super::{array, param};
use crate::shape::LaunchShape;

/// Scans.
pub const SCAN: &str = "chained_scan";
/// Gives the words of a bitmap their ranks.
pub const BIT_SCAN: &str = "chained_bit_scan";

/// Elements of a thread.
const ITEMS: u32 = 16;

/// Elements of a tile.
pub fn tile_rows(shape: &LaunchShape) -> u64 {
    u64::from(ITEMS) * u64::from(shape.block_threads)
}

/// The kernel.
pub fn module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    scan(&mut b, shape, (SCAN, Summed::Elements));
    b.finish()
}

/// The kernel for a bitmap in words of 32.
pub fn bits_module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    scan(&mut b, shape, (BIT_SCAN, Summed::Bits));
    b.finish()
}

fn scan(b: &mut Builder, shape: &LaunchShape, (name, summed): (&str, Summed)) {
    b.begin_kernel(name);
    let rows = param(b, "rows", Scalar::I64);
    let (data, states) = (array(b, "data", Scalar::U32), array(b, "states", Scalar::U64));
    let bits = summed.bits(b);
    let totals = b.shared("totals", Pointee::Scalar(Scalar::U32), shape.warps());
    let chain = Chain::begin(b, states, 1);
    // The sum of all tiles before.
    let before = b.shared("before", Pointee::Scalar(Scalar::U32), 1);
    b.begin_loop();
    let tile = chain.take_tile(b);
    let tile_rows = b.i64(tile_rows(shape) as i64);
    let from = b.mul(tile, tile_rows);
    let done = b.ge(from, rows);
    b.break_if(done);
    let (items, total) = sums(b, shape, (rows, from), &|b, element| summed.load(b, (data, bits), element));
    // One lane of each warp has the warp's sum.
    let (lane, first, none) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(0));
    let is_first = b.eq(lane, first);
    let own = b.select(is_first, total, none);
    let (warps, total) = block_scan(b, shape, own, totals);
    b.begin_if(chain.leads);
    chain.announce(b, (tile, None), total);
    let sum = chain.look_back(b, (tile, None), total);
    b.store(before, sum);
    b.end();
    b.barrier();
    let sum = b.uniform_load(before);
    b.barrier();
    // The first lane does not count its own warp.
    let warps = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: warps, lane: first });
    let before = b.add(sum, warps);
    for Item { element, live, before: own } in items {
        b.begin_if(live);
        let (pointer, prefix) = (b.offset(data, element), b.add(before, own));
        b.store(pointer, prefix);
        b.end();
    }
    b.end();
    b.end_kernel();
}

/// An element of a thread.
struct Item {
    /// Its number, `i64`, and whether it is there.
    element: V,
    live: V,
    /// The sum of the warp's elements before it.
    before: V,
}

/// The elements of a thread in the tile that begins with `from`, and the sum of its warp's. `value_of`: what an element adds.
fn sums(
    b: &mut Builder,
    shape: &LaunchShape,
    (rows, from): (V, V),
    value_of: &dyn Fn(&mut Builder, V) -> V,
) -> (Vec<Item>, V) {
    let (thread, lane, lanes) =
        (b.builtin(Builtin::ThreadId), b.builtin(Builtin::LaneId), b.u32(shape.lanes));
    let (warp, of_warp) = (b.div(thread, lanes), b.u32(ITEMS * shape.lanes));
    let first = b.mul(warp, of_warp);
    let first = b.add(first, lane);
    let first = b.convert(first, Scalar::I64);
    let first = b.add(from, first);
    let load = |number: u32| {
        let behind = b.i64(i64::from(number * shape.lanes));
        let element = b.add(first, behind);
        let live = b.lt(element, rows);
        let none = b.u32(0);
        let value = b.var_of("value", none);
        b.begin_if(live);
        let loaded = value_of(b, element);
        b.assign(value, loaded);
        b.end();
        (element, live, value)
    };
    // All are loaded before the first is waited for.
    let loaded: Vec<_> = (0..ITEMS).map(load).collect();
    let (mut carry, last) = (b.u32(0), b.u32(shape.lanes - 1));
    let item = |(element, live, value)| {
        let value = b.read(value);
        let inclusive = warp_scan(b, shape, value);
        let exclusive = b.sub(inclusive, value);
        let before = b.add(carry, exclusive);
        let total = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: inclusive, lane: last });
        carry = b.add(carry, total);
        Item { element, live, before }
    };
    let items = loaded.into_iter().map(item).collect();
    (items, carry)
}
