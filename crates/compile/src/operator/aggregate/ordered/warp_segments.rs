//! Segments among the lanes of a warp, by shuffles.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, Builtin, Expr as Kir, Scalar, ShuffleMode, UnaryOp};

use super::segments::{NOWHERE, Round, bitonic, is_clear, keep_heads, read};
use crate::context::Context;
use crate::operator::aggregate::functions::{CellOp, Cells, combine};
use crate::shape::LaunchShape;

fn shuffle(cx: &mut Context<'_>, mode: ShuffleMode, value: V, lane: V) -> V {
    cx.builder.value(Kir::Shuffle { mode, value, lane })
}

/// Sorts and reduces the warp's rows. How many segments there are, less three times the rows that join one (`i32`).
pub fn in_warp(cx: &mut Context<'_>, cells: &Cells, round: &Round) -> V {
    let own_slot = cx.builder.read(round.slot);
    let source = sorted_lane(cx, own_slot);
    let slot = shuffle(cx, ShuffleMode::Index, own_slot, source);
    let own = read(cx, &round.parts);
    let move_here = |part: &V| shuffle(cx, ShuffleMode::Index, *part, source);
    let moved = own.iter().flatten().map(move_here).collect();
    let is_head = reduce_in_warp(cx, cells, round, slot, moved);
    let b = &mut *cx.builder;
    let nowhere = b.i64(NOWHERE);
    let is_row = b.ne(slot, nowhere);
    let is_group = b.and(is_head, is_row);
    let [rows, groups] = [is_row, is_group].map(|flag| {
        let mask = b.value(Kir::Ballot(flag));
        let count = b.unary(UnaryOp::Popcount, mask);
        b.bitcast(count, Scalar::I32)
    });
    let (four, three) = (b.i32(4), b.i32(3));
    let (groups, rows) = (b.mul(groups, four), b.mul(rows, three));
    b.sub(groups, rows)
}

/// Reduces the segments of equal slots among the warp's lanes; `parts` are the parts of all cells. Leaves the sums to the
/// first lane of each segment: whether that is this one (`bool`).
pub fn reduce_in_warp(cx: &mut Context<'_>, cells: &Cells, round: &Round, slot: V, parts: Vec<V>) -> V {
    let (is_head, distance) = segment_of_lane(cx.builder, &cx.shape, slot);
    let mut parts = parts.into_iter();
    let mut values = Vec::new();
    for cell in &cells.cells {
        let own = parts.by_ref().take(cell.op.parts().len()).collect();
        values.push(reduce_segment(cx, cell.op, own, distance));
    }
    keep_heads(cx, round, is_head, slot, &values);
    is_head
}

/// Sorts the warp's lanes by their slots: which lane comes to this one's place. The slots may be sorted by their lower bits
/// only: that costs segments, not answers.
fn sorted_lane(cx: &mut Context<'_>, slot: V) -> V {
    let lanes = cx.shape.lanes;
    let b = &mut *cx.builder;
    let (lane, bits) = (b.builtin(Builtin::LaneId), b.u32(lanes.trailing_zeros()));
    let low = b.convert(slot, Scalar::U32);
    let shifted = b.binary(BinaryOp::Shl, low, bits);
    let mut key = b.or(shifted, lane);
    bitonic(lanes, |size, distance| {
        let (step, block) = (b.u32(distance), b.u32(size));
        let other = b.value(Kir::Shuffle { mode: ShuffleMode::Xor, value: key, lane: step });
        let (below, rising) = (is_clear(b, lane, step), is_clear(b, lane, block));
        let takes_least = b.eq(below, rising);
        let (least, most) = (b.binary(BinaryOp::Min, key, other), b.binary(BinaryOp::Max, key, other));
        key = b.select(takes_least, least, most);
    });
    let mask = b.u32(lanes - 1);
    b.and(key, mask)
}

/// The combination of a lane's value with those after it in its segment, which ends `distance` lanes on: right for the
/// first lane of a segment.
fn reduce_segment(cx: &mut Context<'_>, op: CellOp, parts: Vec<V>, distance: V) -> Vec<V> {
    let mut parts = parts;
    let mut step = 1;
    while step < cx.shape.lanes {
        let lane = cx.builder.u32(step);
        let other: Vec<V> = parts.iter().map(|part| shuffle(cx, ShuffleMode::Down, *part, lane)).collect();
        let joins = cx.builder.lt(lane, distance);
        let sum = combine(cx, op, &parts, &other);
        let kept = sum.iter().zip(&parts).map(|(sum, own)| cx.builder.select(joins, *sum, *own));
        parts = kept.collect();
        step *= 2;
    }
    parts
}

/// Runs of equal keys among the lanes of a warp: whether this lane is the first of its run (`bool`), and how many lanes on
/// the next run begins or the warp ends (`u32`). At warp-uniform control flow.
fn segment_of_lane(b: &mut Builder, shape: &LaunchShape, key: V) -> (V, V) {
    let (lane, zero, one) = (b.builtin(Builtin::LaneId), b.u32(0), b.u32(1));
    let before = b.value(Kir::Shuffle { mode: ShuffleMode::Up, value: key, lane: one });
    let (is_first, differs) = (b.eq(lane, zero), b.ne(before, key));
    let is_head = b.or(is_first, differs);
    let heads = b.value(Kir::Ballot(is_head));
    let above = b.binary(BinaryOp::Shr, heads, lane);
    let above = b.binary(BinaryOp::Shr, above, one);
    let next = b.unary(UnaryOp::Ffs, above);
    let (is_last, lanes) = (b.eq(above, zero), b.u32(shape.lanes));
    let end = b.sub(lanes, lane);
    (is_head, b.select(is_last, end, next))
}
