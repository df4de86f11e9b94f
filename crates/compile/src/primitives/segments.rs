//! The reduction of each run of equal keys in a sorted array (HorseQC, Table 4, C1: `reduce_segments`): number the runs by a
//! prefix sum over their ends, then add up. In a warp a run is reduced by shuffles, and its first lane adds to the run's
//! sum; on a CPU the worker adds up until the run ends. So a run that ends in its warp or tile costs one atomic.
//!
//! | kernel | parameters after `rows`, `tile_rows` (`i64`) |
//! |---|---|
//! | [`ENDS`] | `keys: u64[]`, `ends: u32[]` (written: 1 at the last element of a run that is not the last one) |
//! | [`SUMS`] | `keys`, `numbers: u32[]` (the scanned ends), `values`, `run_keys: u64[]` (written), `sums` (added to) |

use kelpie_kir::builder::V;
use kelpie_kir::{
    AtomicOp, Builder, Builtin, Expr, Module, Scalar, Scope, ShuffleMode, Type, TypeError, UnaryOp,
};

use super::reduce::Reduction;
use super::{for_chunks, for_elements, for_tiles, param};
use crate::shape::LaunchShape;

/// Finds the ends of runs.
pub const ENDS: &str = "segment_ends";
/// Reduces runs.
pub const SUMS: &str = "segment_sums";

/// Both kernels, for values of 8 bytes (floats: sums only).
pub fn module(shape: &LaunchShape, scalar: Scalar, reduction: Reduction) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    ends(&mut b);
    sums(&mut b, shape, scalar, reduction);
    b.finish()
}

/// Emits [`ENDS`].
pub(super) fn ends(b: &mut Builder) {
    b.begin_kernel(ENDS);
    let (rows, tile_rows) = (param(b, "rows", Scalar::I64), param(b, "tile_rows", Scalar::I64));
    let keys = param(b, "keys", Type::global(Scalar::U64));
    let ends = param(b, "ends", Type::global(Scalar::U32));
    for_elements(b, rows, tile_rows, |b, element| {
        let (one, none) = (b.i64(1), b.u32(0));
        let is_end = b.var_of("is_end", none);
        let next = b.add(element, one);
        let exists = b.lt(next, rows);
        b.begin_if(exists);
        let (own, after) = (b.element(keys, element), b.element(keys, next));
        let differs = b.ne(own, after);
        let differs = b.convert(differs, Scalar::U32);
        b.assign(is_end, differs);
        b.end();
        let (pointer, is_end) = (b.offset(ends, element), b.read(is_end));
        b.store(pointer, is_end);
    });
    b.end_kernel();
}

/// What the second kernel works on.
struct Sums {
    keys: V,
    numbers: V,
    values: V,
    run_keys: V,
    sums: V,
    scalar: Scalar,
    reduction: Reduction,
}

fn sums(b: &mut Builder, shape: &LaunchShape, scalar: Scalar, reduction: Reduction) {
    b.begin_kernel(SUMS);
    let (rows, tile_rows) = (param(b, "rows", Scalar::I64), param(b, "tile_rows", Scalar::I64));
    let p = Sums {
        keys: param(b, "keys", Type::global(Scalar::U64)),
        numbers: param(b, "numbers", Type::global(Scalar::U32)),
        values: param(b, "values", Type::global(scalar)),
        run_keys: param(b, "run_keys", Type::global(Scalar::U64)),
        sums: param(b, "sums", Type::global(scalar)),
        scalar,
        reduction,
    };
    for_tiles(b, rows, tile_rows, |b, _, from, to| match shape.is_serial() {
        true => worker_sums(b, &p, from, to),
        false => for_chunks(b, from, to, |b, element, live| warp_sums(b, shape, &p, element, live)),
    });
    b.end_kernel();
}

/// Adds to the sum of run `number`, whose key is that of `element`.
fn add(b: &mut Builder, p: &Sums, number: V, element: V, sum: V) {
    let op = match p.reduction {
        Reduction::Sum => AtomicOp::Add,
        Reduction::Least => AtomicOp::Min,
        Reduction::Greatest => AtomicOp::Max,
    };
    let pointer = b.offset(p.sums, number);
    b.atomic_discard(op, pointer, sum, Scope::Device);
    // Who has the run's first element writes its key.
    let (zero, one) = (b.i64(0), b.i64(1));
    let is_first = b.var("is_first", Scalar::Bool);
    let none_before = b.eq(element, zero);
    b.assign(is_first, none_before);
    let some_before = b.not(none_before);
    b.begin_if(some_before);
    let before = b.sub(element, one);
    let before = b.element(p.numbers, before);
    let differs = b.ne(before, number);
    b.assign(is_first, differs);
    b.end();
    let is_first = b.read(is_first);
    b.begin_if(is_first);
    let (pointer, key) = (b.offset(p.run_keys, number), b.element(p.keys, element));
    b.store(pointer, key);
    b.end();
}

fn worker_sums(b: &mut Builder, p: &Sums, from: V, to: V) {
    let first = b.element(p.numbers, from);
    let nothing = p.reduction.identity_value(b, p.scalar);
    let (run, start, sum) = (b.var_of("run", first), b.var_of("start", from), b.var_of("sum", nothing));
    for_chunks(b, from, to, |b, element, _| {
        let (number, known) = (b.element(p.numbers, element), b.read(run));
        let differs = b.ne(number, known);
        b.begin_if(differs);
        let (begun, total) = (b.read(start), b.read(sum));
        add(b, p, known, begun, total);
        b.assign(run, number);
        b.assign(start, element);
        b.assign(sum, nothing);
        b.end();
        let (value, old) = (b.element(p.values, element), b.read(sum));
        let new = b.binary(p.reduction.op(), old, value);
        b.assign(sum, new);
    });
    let (known, begun, total) = (b.read(run), b.read(start), b.read(sum));
    add(b, p, known, begun, total);
}

fn warp_sums(b: &mut Builder, shape: &LaunchShape, p: &Sums, element: V, live: V) {
    let (nothing, nowhere) = (p.reduction.identity_value(b, p.scalar), b.u32(u32::MAX));
    let (number, value) = (b.var_of("number", nowhere), b.var_of("value", nothing));
    b.begin_if(live);
    let (own_number, own) = (b.element(p.numbers, element), b.element(p.values, element));
    b.assign(number, own_number);
    b.assign(value, own);
    b.end();
    let (number, mut sum) = (b.read(number), b.read(value));
    let (is_head, distance) = segment_of_lane(b, shape, number);
    let mut step = 1;
    while step < shape.lanes {
        let lane = b.u32(step);
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Down, value: sum, lane });
        let (both, joins) = (b.binary(p.reduction.op(), sum, other), b.lt(lane, distance));
        sum = b.select(joins, both, sum);
        step *= 2;
    }
    let adds = b.and(is_head, live);
    b.begin_if(adds);
    add(b, p, number, element, sum);
    b.end();
}

/// Runs of equal keys among the lanes of a warp: whether this lane is the first of its run (`bool`), and how many lanes on
/// the next run begins or the warp ends (`u32`). At warp-uniform control flow.
pub(crate) fn segment_of_lane(b: &mut Builder, shape: &LaunchShape, key: V) -> (V, V) {
    let (lane, zero, one) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(1));
    let before = b.value(Expr::Shuffle { mode: ShuffleMode::Up, value: key, lane: one });
    let (is_first, differs) = (b.eq(lane, zero), b.ne(before, key));
    let is_head = b.or(is_first, differs);
    let heads = b.value(Expr::Ballot(is_head));
    let above = b.binary(kelpie_kir::BinaryOp::Shr, heads, lane);
    let above = b.binary(kelpie_kir::BinaryOp::Shr, above, one);
    let next = b.unary(UnaryOp::Ffs, above);
    let (is_last, lanes) = (b.eq(above, zero), b.u32(shape.lanes));
    let end = b.sub(lanes, lane);
    (is_head, b.select(is_last, end, next))
}
