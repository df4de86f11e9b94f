//! Device-wide primitives over dense arrays, as kernels by themselves: prefix sum, radix sort, sort of few rows, merge of sorted runs, ties
//! within an order, selection by rank, reduction and reduction of segments. What sorting, sorted relational algebra and partitioning are
//! made of (HorseQC, section 4 and appendix C; M-BSP relational algebra). Beside them [`random`], by which devices are measured.
//!
//! Every kernel but that of [`block_sort`], which is for one block, and those of `random` works on *tiles* of consecutive elements. A tile is one
//! block's; blocks take tiles `grid_dim` apart ([`chained_scan`]'s and [`sweep`]'s by a counter), so that any grid is right. On a CPU a block is a worker, which goes through its
//! tile in order.

pub mod block_sort;
pub mod chained_scan;
pub mod encode;
pub mod init;
pub mod look_back;
pub mod merge;
pub mod open_runs;
pub mod pages;
pub mod partition;
pub mod radix;
pub mod random;
pub mod reduce;
pub mod runs;
pub mod scan;
pub mod select;
pub mod sweep;
pub mod ties;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Scalar, Type};

/// Adds a parameter to the kernel; its value.
fn param(b: &mut Builder, name: &str, ty: impl Into<Type>) -> V {
    let index = b.add_param(name, ty.into());
    b.param(index)
}

/// Begins a kernel over tiles; its parameters `rows` and `tile_rows`.
fn begin(b: &mut Builder, name: &str) -> (V, V) {
    b.begin_kernel(name);
    (param(b, "rows", Scalar::I64), param(b, "tile_rows", Scalar::I64))
}

/// Adds a parameter for an array.
fn array(b: &mut Builder, name: &str, scalar: Scalar) -> V {
    param(b, name, Type::global(scalar))
}

/// A builtin as `i64`.
fn wide(b: &mut Builder, builtin: Builtin) -> V {
    let value = b.builtin(builtin);
    b.convert(value, Scalar::I64)
}

/// `for index in (from..to).step_by(step)` over integers of one type; uniform where the bounds are.
pub(crate) fn for_range(b: &mut Builder, from: V, to: V, step: V, body: impl FnOnce(&mut Builder, V)) {
    let index = b.var_of("index", from);
    b.begin_loop();
    let current = b.read(index);
    let done = b.ge(current, to);
    b.break_if(done);
    body(b, current);
    let next = b.add(current, step);
    b.assign(index, next);
    b.end();
}

/// This block's tiles of `tile_rows` elements: `body(tile, from, to)`, all `i64`, at uniform control flow.
fn for_tiles(b: &mut Builder, rows: V, tile_rows: V, body: impl FnOnce(&mut Builder, V, V, V)) {
    let (block, blocks) = (wide(b, Builtin::BlockId), wide(b, Builtin::GridDim));
    let one = b.i64(1);
    let padded = b.add(rows, tile_rows);
    let padded = b.sub(padded, one);
    let tiles = b.div(padded, tile_rows);
    for_range(b, block, tiles, blocks, |b, tile| {
        let from = b.mul(tile, tile_rows);
        let to = b.add(from, tile_rows);
        let to = b.binary(BinaryOp::Min, to, rows);
        body(b, tile, from, to);
    });
}

/// A tile's elements, as many at a time as the block has threads: `body(element, live)`, where `live` tells whether there
/// is such an element. At uniform control flow.
fn for_chunks(b: &mut Builder, from: V, to: V, body: impl FnOnce(&mut Builder, V, V)) {
    let (thread, threads) = (wide(b, Builtin::ThreadId), wide(b, Builtin::BlockDim));
    for_range(b, from, to, threads, |b, base| {
        let element = b.add(base, thread);
        let live = b.lt(element, to);
        body(b, element, live);
    });
}

/// Each element of this block's tiles, by one of its threads.
fn for_elements(b: &mut Builder, rows: V, tile_rows: V, body: impl FnOnce(&mut Builder, V)) {
    for_tiles(b, rows, tile_rows, |b, _, from, to| {
        for_chunks(b, from, to, |b, element, live| {
            b.begin_if(live);
            body(b, element);
            b.end();
        });
    });
}

/// Indices `0..count` of a table in shared memory, shared out among the block's threads.
fn for_table(b: &mut Builder, count: u32, body: impl FnOnce(&mut Builder, V)) {
    let (thread, threads) = (wide(b, Builtin::ThreadId), wide(b, Builtin::BlockDim));
    let count = b.i64(count.into());
    for_range(b, thread, count, threads, body);
}
