//! Push-down parallelism (DogQC, section 3): the rows that a step makes of one row are taken by all lanes of the warp.
//!
//! Each lane has a row and a range of numbers: one new row a number. *By leaders*, as the paper has it: one lane with a
//! range after the other is the leader; its row and range go to all lanes, which take the numbers side by side. Lanes are
//! idle at the end of each range. *Packed*: the ranges of the warp are laid one behind the other, by a prefix sum of their
//! lengths, and dealt to the lanes; each lane finds the row of its number by a search in the sums. Lanes are idle at the end
//! of the last range only.

use kelpie_kir::builder::V;
use kelpie_kir::{Builtin, Expr as Kir, Scalar, ShuffleMode, UnaryOp};

use super::lanes::{ballot, read_lane};
use crate::context::{Context, Unsupported};

/// The rows of a warp: a range and registers in each lane.
pub(crate) struct Ranges<'r> {
    /// The first number, `u32`.
    pub begin: V,
    /// How many numbers there are, `u32`; 0 where there is no row.
    pub count: V,
    /// What the row stands on.
    pub registers: &'r [V],
}

/// What follows for a number of a range in each lane: whether there is one (`bool`), the number, and the row's registers. Stands at
/// uniform control flow of the warp.
pub(crate) type Taken<'t> = dyn FnMut(&mut Context<'_>, V, V, &[V]) -> Result<(), Unsupported> + 't;

/// Deals ranges out one by one. `once`: `taken` is passed through at least once (`bool`, the same in the warp), without numbers
/// where there are none.
pub(crate) fn by_leaders(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    once: V,
    taken: &mut Taken<'_>,
) -> Result<(), Unsupported> {
    let left = cx.builder.var_of("left", ranges.count);
    let again = cx.builder.var_of("again", once);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let (own, zero, one) = (b.read(left), b.u32(0), b.u32(1));
    let has_range = b.ne(own, zero);
    let mask = ballot(cx, has_range);
    let b = &mut *cx.builder;
    let is_empty = b.eq(mask, zero);
    let once = b.read(again);
    let more = b.not(once);
    let done = b.and(is_empty, more);
    b.break_if(done);
    let no = b.bool(false);
    b.assign(again, no);
    let bit = b.unary(UnaryOp::Ffs, mask);
    let leader = b.sub(bit, one);
    let lane = b.builtin(Builtin::LaneId);
    let leads = b.eq(lane, leader);
    let rest = b.select(leads, zero, own);
    b.assign(left, rest);
    // Without a leader the lane that is read has no range either.
    let (count, begin) = (read_lane(cx, own, leader), read_lane(cx, ranges.begin, leader));
    let registers: Vec<V> = ranges.registers.iter().map(|value| read_lane(cx, *value, leader)).collect();
    let count = cx.builder.convert(count, Scalar::U64);
    for_warps(cx, count, once, |cx, active, index| {
        let index = cx.builder.convert(index, Scalar::U32);
        let number = cx.builder.add(begin, index);
        taken(cx, active, number, &registers)
    })?;
    cx.end();
    Ok(())
}

/// Deals the numbers of all ranges out. `once` as of [`by_leaders`].
pub(crate) fn packed(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    once: V,
    taken: &mut Taken<'_>,
) -> Result<(), Unsupported> {
    let lanes = cx.shape.lanes;
    let b = &mut *cx.builder;
    let (lane, count) = (b.builtin(Builtin::LaneId), b.convert(ranges.count, Scalar::U64));
    let (mut sum, zero) = (count, b.u64(0));
    let mut step = 1;
    while step < lanes {
        let distance = b.u32(step);
        let other = b.value(Kir::Shuffle { mode: ShuffleMode::Up, value: sum, lane: distance });
        let is_there = b.ge(lane, distance);
        let other = b.select(is_there, other, zero);
        sum = b.add(sum, other);
        step *= 2;
    }
    let (before, last) = (b.sub(sum, count), b.u32(lanes - 1));
    let total = read_lane(cx, sum, last);
    for_warps(cx, total, once, |cx, active, index| {
        let owner = owner(cx, sum, index);
        let (before, begin) = (read_lane(cx, before, owner), read_lane(cx, ranges.begin, owner));
        let registers: Vec<V> = ranges.registers.iter().map(|value| read_lane(cx, *value, owner)).collect();
        let b = &mut *cx.builder;
        let within = b.sub(index, before);
        let within = b.convert(within, Scalar::U32);
        let number = b.add(begin, within);
        taken(cx, active, number, &registers)
    })
}

/// The lane (`u32`) in whose range a number (`u64`) falls, by the sums of the ranges up to each lane's: as many lanes are before it
/// as have sums that are not above the number. Some lane where it is beyond all.
fn owner(cx: &mut Context<'_>, sum: V, index: V) -> V {
    let lanes = cx.shape.lanes;
    let mut owner = cx.builder.u32(0);
    let mut step = lanes.next_power_of_two() / 2;
    while step > 0 {
        let b = &mut *cx.builder;
        let (width, to_last) = (b.u32(step), b.u32(step - 1));
        let last = b.add(owner, to_last);
        let passed = read_lane(cx, sum, last);
        let b = &mut *cx.builder;
        let (end, is_passed) = (b.u32(lanes), b.ge(index, passed));
        let is_there = b.lt(last, end);
        let goes = b.and(is_there, is_passed);
        let further = b.add(owner, width);
        owner = b.select(goes, further, owner);
        step /= 2;
    }
    owner
}

/// `for` every number below `count` (`u64`, the same in the warp), as many at a time as there are lanes: whether the lane has one,
/// and which (`u64`).
fn for_warps(
    cx: &mut Context<'_>,
    count: V,
    once: V,
    body: impl FnOnce(&mut Context<'_>, V, V) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    let b = &mut *cx.builder;
    let (zero, width) = (b.u64(0), b.u64(cx.shape.lanes.into()));
    let lane = b.builtin(Builtin::LaneId);
    let lane = b.convert(lane, Scalar::U64);
    let base = b.var_of("base", zero);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let current = b.read(base);
    let (is_first, is_beyond) = (b.eq(current, zero), b.ge(current, count));
    let is_kept = b.and(is_first, once);
    let others = b.not(is_kept);
    let done = b.and(is_beyond, others);
    b.break_if(done);
    let index = b.add(current, lane);
    let active = b.lt(index, count);
    body(cx, active, index)?;
    let next = cx.builder.add(current, width);
    cx.builder.assign(base, next);
    cx.end();
    Ok(())
}
