//! The reduction of an array by passes: a block reduces each of its tiles to one element, until a single one is left
//! (HorseQC, Table 4, B1). No atomics: the order of additions does not depend on the schedule.
//!
//! | kernel | parameters | what it does |
//! |---|---|---|
//! | [`TILES`] | `data`, `rows`, `tile_rows`, `sums` | `sums[t]` = reduction of tile t |

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Expr, Module, Pointee, Scalar, ShuffleMode, Type, TypeError};

use super::{for_chunks, for_tiles, param};
use crate::shape::LaunchShape;

/// The kernel that reduces tiles.
pub const TILES: &str = "reduce_tiles";

/// How elements are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Sum: integers wrap.
    Sum,
    /// The least integer.
    Least,
    /// The greatest integer.
    Greatest,
}

impl Reduction {
    pub(super) fn op(self) -> BinaryOp {
        match self {
            Reduction::Sum => BinaryOp::Add,
            Reduction::Least => BinaryOp::Min,
            Reduction::Greatest => BinaryOp::Max,
        }
    }

    /// What changes nothing.
    pub fn identity(self, scalar: Scalar) -> i128 {
        let bits = scalar.bytes() * 8;
        let (least, greatest) = match scalar.is_signed() {
            true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        match self {
            Reduction::Sum => 0,
            Reduction::Least => greatest,
            Reduction::Greatest => least,
        }
    }

    pub(super) fn identity_value(self, b: &mut Builder, scalar: Scalar) -> V {
        if scalar.is_float() { b.zero(scalar) } else { b.int(scalar, self.identity(scalar)) }
    }
}

/// The kernel, for elements of 4 or 8 bytes (floats: sums only).
pub fn module(shape: &LaunchShape, scalar: Scalar, reduction: Reduction) -> Result<Module, TypeError> {
    let mut b = Builder::new();
    let b = &mut b;
    b.begin_kernel(TILES);
    let data = param(b, "data", Type::global(scalar));
    let (rows, tile_rows) = (param(b, "rows", Scalar::I64), param(b, "tile_rows", Scalar::I64));
    let sums = param(b, "sums", Type::global(scalar));
    let totals = b.shared("totals", Pointee::Scalar(scalar), shape.warps());
    for_tiles(b, rows, tile_rows, |b, tile, from, to| {
        let nothing = reduction.identity_value(b, scalar);
        let sum = b.var_of("sum", nothing);
        for_chunks(b, from, to, |b, element, live| {
            b.begin_if(live);
            let pointer = b.offset(data, element);
            let (value, old) = (b.load(pointer), b.read(sum));
            let new = b.binary(reduction.op(), old, value);
            b.assign(sum, new);
            b.end();
        });
        let own = b.read(sum);
        let total = block_reduce(b, shape, reduction, own, totals);
        let (thread, zero) = (b.builtin(Builtin::ThreadId), b.u32(0));
        let is_first = b.eq(thread, zero);
        b.begin_if(is_first);
        let pointer = b.offset(sums, tile);
        b.store(pointer, total);
        b.end();
    });
    b.end_kernel();
    std::mem::take(b).finish()
}

/// The reduction of the values of all threads of the block, in the first. `totals`: one element a warp in shared memory. At
/// uniform control flow; begins and ends with the threads together.
pub(crate) fn block_reduce(
    b: &mut Builder,
    shape: &LaunchShape,
    reduction: Reduction,
    value: V,
    totals: V,
) -> V {
    let (lanes, warps) = (shape.lanes, shape.warps());
    let lane = b.builtin(Builtin::LaneId);
    let mut total = value;
    let mut distance = lanes.next_power_of_two() / 2;
    while distance > 0 {
        let (step, rest) = (b.u32(distance), b.u32(lanes - distance));
        let other = b.value(Expr::Shuffle { mode: ShuffleMode::Down, value: total, lane: step });
        let (both, has_other) = (b.binary(reduction.op(), total, other), b.lt(lane, rest));
        total = b.select(has_other, both, total);
        distance /= 2;
    }
    if warps == 1 {
        return total;
    }
    let (thread, lanes, zero) = (b.builtin(Builtin::ThreadId), b.u32(lanes), b.u32(0));
    let (warp, leads) = (b.div(thread, lanes), b.eq(lane, zero));
    b.begin_if(leads);
    let pointer = b.offset(totals, warp);
    b.store(pointer, total);
    b.end();
    b.barrier();
    let mut all = b.load(totals);
    for index in 1..warps {
        let index = b.u32(index);
        let pointer = b.offset(totals, index);
        let next = b.load(pointer);
        all = b.binary(reduction.op(), all, next);
    }
    b.barrier();
    all
}
