//! What the lanes of a warp do together: votes, ranks and exchanges of registers, all at uniform control flow of the warp.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Expr as Kir, ShuffleMode, Type, UnaryOp};

use super::Context;

/// A bit of each lane in which `condition` (`bool`) is true, `u32`.
pub(crate) fn ballot(cx: &mut Context<'_>, condition: V) -> V {
    cx.builder.value(Kir::Ballot(condition))
}

/// Whether `condition` (`bool`) is true in any lane.
pub(crate) fn any(cx: &mut Context<'_>, condition: V) -> V {
    cx.builder.value(Kir::Any(condition))
}

/// A bit of each lane that there is, `u32`.
pub(crate) fn all_lanes(cx: &mut Context<'_>) -> V {
    let lanes = cx.shape.lanes.min(u32::BITS);
    cx.builder.u32(u32::MAX.checked_shr(u32::BITS - lanes).unwrap_or(0))
}

/// Set bits, `u32`.
pub(crate) fn count(cx: &mut Context<'_>, mask: V) -> V {
    cx.builder.unary(UnaryOp::Popcount, mask)
}

/// How many bits of a mask stand for lanes before this one: the exclusive prefix sum of one bit a lane.
pub(crate) fn rank(cx: &mut Context<'_>, mask: V) -> V {
    let b = &mut *cx.builder;
    let (lane, one) = (b.builtin(Builtin::LaneId), b.u32(1));
    let bit = b.binary(BinaryOp::Shl, one, lane);
    let below = b.sub(bit, one);
    let before = b.and(mask, below);
    count(cx, before)
}

/// The number of the set bit of a mask before which `rank` (`u32`) others are set; any number where there are not so many.
pub(crate) fn bit_of_rank(cx: &mut Context<'_>, mask: V, rank: V) -> V {
    let b = &mut *cx.builder;
    let (mut rest, mut rank, mut position) = (mask, rank, b.u32(0));
    for bits in [16_u32, 8, 4, 2, 1] {
        let (lower, width) = (b.u32((1 << bits) - 1), b.u32(bits));
        let low = b.and(rest, lower);
        let before = b.unary(UnaryOp::Popcount, low);
        let is_above = b.ge(rank, before);
        let (less, shifted) = (b.sub(rank, before), b.binary(BinaryOp::Shr, rest, width));
        let further = b.add(position, width);
        rank = b.select(is_above, less, rank);
        rest = b.select(is_above, shifted, rest);
        position = b.select(is_above, further, position);
    }
    position
}

/// The content of a register in another lane (`u32`): of any type but pointers to shared memory.
pub(crate) fn read_lane(cx: &mut Context<'_>, value: V, lane: V) -> V {
    let b = &mut *cx.builder;
    let ty = b.ty(value);
    let shuffle = |value| Kir::Shuffle { mode: ShuffleMode::Index, value, lane };
    match ty {
        Type::Ptr(..) => {
            let bits = b.bitcast(value, kelpie_kir::Scalar::U64);
            let bits = b.value(shuffle(bits));
            b.bitcast(bits, ty)
        }
        _ => b.value(shuffle(value)),
    }
}

/// The sums of a number (an integer) over the lanes: those before this one, and all.
pub(crate) fn sums(cx: &mut Context<'_>, number: V) -> (V, V) {
    let b = &mut *cx.builder;
    let scalar = b.scalar(number);
    let (lane, zero, mut sum) = (b.builtin(Builtin::LaneId), b.zero(scalar), number);
    let mut step = 1;
    while step < cx.shape.lanes {
        let b = &mut *cx.builder;
        let distance = b.u32(step);
        let other = b.value(Kir::Shuffle { mode: ShuffleMode::Up, value: sum, lane: distance });
        let is_there = b.ge(lane, distance);
        let other = b.select(is_there, other, zero);
        sum = b.add(sum, other);
        step *= 2;
    }
    let b = &mut *cx.builder;
    let (before, last) = (b.sub(sum, number), b.u32(cx.shape.lanes - 1));
    (before, read_lane(cx, sum, last))
}
