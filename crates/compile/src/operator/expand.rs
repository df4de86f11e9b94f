//! Push-down parallelism (DogQC, section 3): the rows that a step makes of one row are taken by all lanes of the warp.
//!
//! Each lane has a row and a range of numbers: one new row a number. *By leaders*, as the paper has it: one lane with a
//! range after the other is the leader; its row and range go to all lanes, which take the numbers side by side. Lanes are
//! idle at the end of each range. *Packed*: the ranges of the warp are laid one behind the other, by a prefix sum of their
//! lengths, and dealt to the lanes; each lane finds the row of its number by a search in the sums. Lanes are idle at the end
//! of the last range only.
//!
//! Where all that counts of a row's new rows is whether there is one, lanes test them for each other, and the row stays in its
//! lane ([`any_by_leaders`], [`any_packed`]).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Expr as Kir, Scalar, ShuffleMode, UnaryOp};

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

/// As [`Taken`], of a test: gives whether it holds (`bool`), which it does not where there is no number.
pub(crate) type Test<'t> = dyn FnMut(&mut Context<'_>, V, V, &[V]) -> Result<V, Unsupported> + 't;

/// Deals ranges out one by one. `once`: `taken` is passed through at least once (`bool`, the same in the warp), without numbers
/// where there are none.
pub(crate) fn by_leaders(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    once: V,
    taken: &mut Taken<'_>,
) -> Result<(), Unsupported> {
    for_leaders(cx, ranges, once, |cx, led, once| {
        for_warps(cx, led.count, once, |cx, active, index| {
            let index = cx.builder.convert(index, Scalar::U32);
            let number = cx.builder.add(led.begin, index);
            taken(cx, active, number, &led.registers)
        })
    })
}

/// Whether a test holds for any number of this lane's range (`bool`); of each range no more is looked at once one is found.
pub(crate) fn any_by_leaders(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    test: &mut Test<'_>,
) -> Result<V, Unsupported> {
    let no = cx.builder.bool(false);
    let found = cx.builder.var_of("found", no);
    for_leaders(cx, ranges, no, |cx, led, once| {
        for_warps(cx, led.count, once, |cx, active, index| {
            let index = cx.builder.convert(index, Scalar::U32);
            let number = cx.builder.add(led.begin, index);
            let holds = test(cx, active, number, &led.registers)?;
            let b = &mut *cx.builder;
            let any = b.value(Kir::Any(holds));
            let (own, before) = (b.and(led.leads, any), b.read(found));
            let now = b.or(before, own);
            b.assign(found, now);
            b.break_if(any);
            Ok(())
        })
    })?;
    Ok(cx.builder.read(found))
}

/// The range of a leader, in all lanes.
struct Led {
    /// Whether it is this lane's, `bool`.
    leads: V,
    /// `u32`.
    begin: V,
    /// `u64`.
    count: V,
    registers: Vec<V>,
}

/// `for` every lane with a range. `once` as of [`by_leaders`]; `body` is given whether it still is to be so.
fn for_leaders(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    once: V,
    body: impl FnOnce(&mut Context<'_>, &Led, V) -> Result<(), Unsupported>,
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
    body(cx, &Led { leads, begin, count, registers }, once)?;
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
    let sums = Sums::of(cx, ranges);
    for_warps(cx, sums.total, once, |cx, active, index| {
        let (number, registers) = sums.deal(cx, ranges, index);
        taken(cx, active, number, &registers)
    })
}

/// As [`any_by_leaders`], the numbers of all ranges dealt out; all are looked at.
pub(crate) fn any_packed(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    test: &mut Test<'_>,
) -> Result<V, Unsupported> {
    let no = cx.builder.bool(false);
    let found = cx.builder.var_of("found", no);
    let sums = Sums::of(cx, ranges);
    for_warps(cx, sums.total, no, |cx, active, index| {
        let (number, registers) = sums.deal(cx, ranges, index);
        let holds = test(cx, active, number, &registers)?;
        let mask = ballot(cx, holds);
        let own = sums.own_lanes(cx, index);
        let b = &mut *cx.builder;
        let (hits, zero, before) = (b.and(mask, own), b.u32(0), b.read(found));
        let any = b.ne(hits, zero);
        let now = b.or(before, any);
        b.assign(found, now);
        Ok(())
    })?;
    Ok(cx.builder.read(found))
}

/// Ranges laid one behind the other.
struct Sums {
    /// Numbers in the ranges of the lanes before this one, `u64`.
    before: V,
    /// The same with this lane's.
    sum: V,
    /// In all ranges.
    total: V,
}

impl Sums {
    fn of(cx: &mut Context<'_>, ranges: &Ranges<'_>) -> Sums {
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
        Sums { before, sum, total: read_lane(cx, sum, last) }
    }

    /// The number (`u32`) at an index (`u64`) of all ranges, and the registers of its row.
    fn deal(&self, cx: &mut Context<'_>, ranges: &Ranges<'_>, index: V) -> (V, Vec<V>) {
        let owner = owner(cx, self.sum, index);
        let (before, begin) = (read_lane(cx, self.before, owner), read_lane(cx, ranges.begin, owner));
        let registers = ranges.registers.iter().map(|value| read_lane(cx, *value, owner)).collect();
        let b = &mut *cx.builder;
        let within = b.sub(index, before);
        let within = b.convert(within, Scalar::U32);
        (b.add(begin, within), registers)
    }

    /// A bit (`u32`) of each lane that is dealt a number of this lane's range, where it is dealt that at `index`.
    fn own_lanes(&self, cx: &mut Context<'_>, index: V) -> V {
        let b = &mut *cx.builder;
        let (lane, width) = (b.builtin(Builtin::LaneId), b.u64(cx.shape.lanes.into()));
        let lane = b.convert(lane, Scalar::U64);
        let base = b.sub(index, lane);
        let end = b.add(base, width);
        let one = b.u64(1);
        // The bits below an index, as far as it is in this turn.
        let mut below = |index| {
            let index = b.binary(BinaryOp::Max, index, base);
            let index = b.binary(BinaryOp::Min, index, end);
            let lanes = b.sub(index, base);
            let bit = b.binary(BinaryOp::Shl, one, lanes);
            b.sub(bit, one)
        };
        let (before, with) = (below(self.before), below(self.sum));
        let own = b.binary(BinaryOp::Xor, before, with);
        b.convert(own, Scalar::U32)
    }
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
