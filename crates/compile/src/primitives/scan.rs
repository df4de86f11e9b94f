//! The exclusive prefix sum of an array, in place: reduce the tiles, scan their sums, scan each tile from its sum on
//! (Blelloch; in a block the warp's scan by shuffles of Sengupta et al., as HorseQC's `cta_prfx`).
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`SUMS`] | `data`, `rows`, `tile_rows`, `sums` | `sums[t]` = sum of tile t |
//! | [`APPLY`] | `data`, `rows`, `tile_rows`, `sums` | `data[i]` = `sums[t]` + the elements of tile t before i |
//! | [`BIT_SUMS`] | `data`, `rows`, `tile_rows`, `sums`, `bits` | `sums[t]` = the bits of `bits` in tile t that are set |
//! | [`BIT_APPLY`] | `data`, `rows`, `tile_rows`, `sums`, `bits` | `data[i]` = `sums[t]` + the bits of tile t that are set before word i |
//!
//! `sums` is scanned in between; where it is one tile itself, [`APPLY`] does that over a single sum of 0. The last two give the ranks of a
//! bitmap's words, which are counted as they are read.

use kelpie_kir::builder::V;
use kelpie_kir::{Builder, Builtin, Expr, Module, Pointee, Scalar, ShuffleMode, Type, TypeError, UnaryOp};

use super::{for_chunks, for_tiles, param};
use crate::shape::LaunchShape;

/// The kernel that adds up tiles.
pub const SUMS: &str = "scan_sums";
/// The kernel that scans tiles.
pub const APPLY: &str = "scan_apply";

/// The kernel that adds up the bits of tiles of a bitmap.
pub const BIT_SUMS: &str = "scan_bit_sums";
/// The kernel that gives the words of a bitmap their ranks.
pub const BIT_APPLY: &str = "scan_bits";

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Summed {
    /// The elements of the array that becomes their prefix sum.
    Elements,
    /// The bits that are set in each word of another array, of `u32`.
    Bits,
}

impl Summed {
    /// What an element adds: `data` is the array that becomes the prefix sum.
    pub(super) fn load(self, b: &mut Builder, (data, bits): (V, Option<V>), element: V) -> V {
        let pointer = b.offset(bits.unwrap_or(data), element);
        let value = b.load(pointer);
        match self {
            Summed::Elements => value,
            Summed::Bits => b.unary(UnaryOp::Popcount, value),
        }
    }

    /// The parameter with the bitmap, where there is one.
    pub(super) fn bits(self, b: &mut Builder) -> Option<V> {
        (self == Summed::Bits).then(|| param(b, "bits", Type::global(Scalar::U32)))
    }
}

/// Both kernels, for elements of an unsigned integer type.
pub fn module(shape: &LaunchShape, scalar: Scalar) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    sums(&mut b, shape, (SUMS, Summed::Elements, scalar));
    apply(&mut b, shape, (APPLY, Summed::Elements, scalar));
    b.finish()
}

/// Both kernels for a bitmap in words of 32.
pub fn bits_module(shape: &LaunchShape) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    sums(&mut b, shape, (BIT_SUMS, Summed::Bits, Scalar::U32));
    apply(&mut b, shape, (BIT_APPLY, Summed::Bits, Scalar::U32));
    b.finish()
}

struct Parameters {
    data: V,
    rows: V,
    tile_rows: V,
    sums: V,
    bits: Option<V>,
    /// Shared: one element a warp.
    totals: V,
}

fn begin(b: &mut Builder, shape: &LaunchShape, (name, summed, scalar): (&str, Summed, Scalar)) -> Parameters {
    b.begin_kernel(name);
    Parameters {
        data: param(b, "data", Type::global(scalar)),
        rows: param(b, "rows", Scalar::I64),
        tile_rows: param(b, "tile_rows", Scalar::I64),
        sums: param(b, "sums", Type::global(scalar)),
        bits: summed.bits(b),
        totals: b.shared("totals", Pointee::Scalar(scalar), shape.warps()),
    }
}

fn sums(b: &mut Builder, shape: &LaunchShape, (name, summed, scalar): (&str, Summed, Scalar)) {
    let p = begin(b, shape, (name, summed, scalar));
    for_tiles(b, p.rows, p.tile_rows, |b, tile, from, to| {
        let zero = b.zero(scalar);
        let sum = b.var_of("sum", zero);
        for_chunks(b, from, to, |b, element, live| {
            b.begin_if(live);
            let value = summed.load(b, (p.data, p.bits), element);
            let old = b.read(sum);
            let new = b.add(old, value);
            b.assign(sum, new);
            b.end();
        });
        let own = b.read(sum);
        let (_, total) = block_scan(b, shape, own, p.totals);
        let thread = b.builtin(Builtin::ThreadId);
        let zero = b.u32(0);
        let first = b.eq(thread, zero);
        b.begin_if(first);
        let pointer = b.offset(p.sums, tile);
        b.store(pointer, total);
        b.end();
    });
    b.end_kernel();
}

fn apply(b: &mut Builder, shape: &LaunchShape, (name, summed, scalar): (&str, Summed, Scalar)) {
    let p = begin(b, shape, (name, summed, scalar));
    for_tiles(b, p.rows, p.tile_rows, |b, tile, from, to| {
        let before = b.element(p.sums, tile);
        let carry = b.var_of("carry", before);
        for_chunks(b, from, to, |b, element, live| {
            let pointer = b.offset(p.data, element);
            let value = b.var("value", scalar);
            let zero = b.zero(scalar);
            b.assign(value, zero);
            b.begin_if(live);
            let stored = summed.load(b, (p.data, p.bits), element);
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
    });
    b.end_kernel();
}

/// The sum of `value` over the lanes of the warp up to this one. At uniform control flow of the warp.
pub(super) fn warp_scan(b: &mut Builder, shape: &LaunchShape, value: V) -> V {
    let scalar = b.scalar(value);
    let (zero, lane) = (b.zero(scalar), b.builtin(Builtin::LaneId));
    let mut inclusive = value;
    let mut distance = 1;
    while distance < shape.lanes {
        let step = b.u32(distance);
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Up, value: inclusive, lane: step });
        let exists = b.ge(lane, step);
        let other = b.select(exists, other, zero);
        inclusive = b.add(inclusive, other);
        distance *= 2;
    }
    inclusive
}

/// The sum of `value` over the threads of the block before this one, and over all. `totals`: one element a warp in shared
/// memory. At uniform control flow; begins and ends with the threads together.
pub(crate) fn block_scan(b: &mut Builder, shape: &LaunchShape, value: V, totals: V) -> (V, V) {
    let scalar = b.scalar(value);
    let (zero, inclusive) = (b.zero(scalar), warp_scan(b, shape, value));
    let exclusive = b.sub(inclusive, value);
    let (lane, last) = (b.builtin(Builtin::LaneId), b.u32(shape.lanes - 1));
    let warps = shape.warps();
    if warps == 1 {
        let total = b.value(Expr::Shuffle { mode: ShuffleMode::Index, value: inclusive, lane: last });
        return (exclusive, total);
    }
    let (thread, lanes) = (b.builtin(Builtin::ThreadId), b.u32(shape.lanes));
    let warp = b.div(thread, lanes);
    let is_last = b.eq(lane, last);
    b.begin_if(is_last);
    let pointer = b.offset(totals, warp);
    b.store(pointer, inclusive);
    b.end();
    b.barrier();
    let (mut before, mut total) = (zero, zero);
    for index in 0..warps {
        let index = b.u32(index);
        let pointer = b.offset(totals, index);
        let sum = b.load(pointer);
        let earlier = b.lt(index, warp);
        let counted = b.select(earlier, sum, zero);
        before = b.add(before, counted);
        total = b.add(total, sum);
    }
    b.barrier();
    (b.add(before, exclusive), total)
}
