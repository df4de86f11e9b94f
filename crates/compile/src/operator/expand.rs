//! Push-down parallelism (DogQC, section 3): the rows that a step makes of one row are taken by all lanes of the warp.
//!
//! Each lane has a row and a range of numbers: one new row a number. *By leaders*, as the paper has it: one lane with a
//! range after the other is the leader; its row and range go to all lanes, which take the numbers side by side. Lanes are
//! idle at the end of each range. *Packed*: of each range first as many numbers are taken by a leader's warp as fill it, time
//! and again. What is left of the ranges, less than a warp's numbers each, is laid one behind the other, by a prefix sum, and
//! dealt to the lanes; each lane finds the row of its number by a search in the sums. Lanes are idle at the very end only.
//!
//! Where all that counts of a row's new rows is whether there is one, lanes test them for each other, and the row stays in its
//! lane ([`any_by_leaders`], [`any_packed`]). So it does where each number gives a summand ([`sum_by_leaders`]).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Expr as Kir, Scalar, UnaryOp};

use crate::context::lanes::{ballot, read_lane, sums};
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

/// As [`Taken`], of a summand: gives it (`u64`), which is 0 where there is no number.
pub(crate) type Summand<'t> = dyn FnMut(&mut Context<'_>, V, V, &[V]) -> Result<V, Unsupported> + 't;

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

/// The sum (`u64`) of the summands of this lane's range, which is dealt out as [`by_leaders`] does it.
pub(crate) fn sum_by_leaders(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    summand: &mut Summand<'_>,
) -> Result<V, Unsupported> {
    let (no, nothing) = (cx.builder.bool(false), cx.builder.u64(0));
    let total = cx.builder.var_of("total", nothing);
    for_leaders(cx, ranges, no, |cx, led, once| {
        let taken = cx.builder.var_of("taken", nothing);
        for_warps(cx, led.count, once, |cx, active, index| {
            let index = cx.builder.convert(index, Scalar::U32);
            let number = cx.builder.add(led.begin, index);
            let own = summand(cx, active, number, &led.registers)?;
            let before = cx.builder.read(taken);
            let after = cx.builder.add(before, own);
            cx.builder.assign(taken, after);
            Ok(())
        })?;
        let taken = cx.builder.read(taken);
        let (_, all) = sums(cx, taken);
        let before = cx.builder.read(total);
        let now = cx.builder.select(led.leads, all, before);
        cx.builder.assign(total, now);
        Ok(())
    })?;
    Ok(cx.builder.read(total))
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
    for_dealt(cx, ranges, once, |cx, dealt| taken(cx, dealt.active, dealt.number, &dealt.registers))
}

/// As [`any_by_leaders`], the numbers of all ranges dealt out; all are looked at.
pub(crate) fn any_packed(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    test: &mut Test<'_>,
) -> Result<V, Unsupported> {
    let no = cx.builder.bool(false);
    let found = cx.builder.var_of("found", no);
    for_dealt(cx, ranges, no, |cx, dealt| {
        let holds = test(cx, dealt.active, dealt.number, &dealt.registers)?;
        let mask = ballot(cx, holds);
        let b = &mut *cx.builder;
        let (hits, zero, before) = (b.and(mask, dealt.own), b.u32(0), b.read(found));
        let any = b.ne(hits, zero);
        let now = b.or(before, any);
        b.assign(found, now);
        Ok(())
    })?;
    Ok(cx.builder.read(found))
}

/// What a lane is dealt in a turn.
struct Dealt {
    /// Whether it is anything, `bool`.
    active: V,
    /// The number, `u32`.
    number: V,
    registers: Vec<V>,
    /// A bit (`u32`) of each lane that is dealt a number of this lane's range.
    own: V,
}

/// `for` every number of every range, as many at a time as there are lanes. `once` as of [`by_leaders`].
fn for_dealt(
    cx: &mut Context<'_>,
    ranges: &Ranges<'_>,
    once: V,
    body: impl FnOnce(&mut Context<'_>, &Dealt) -> Result<(), Unsupported>,
) -> Result<(), Unsupported> {
    let lanes = cx.shape.lanes;
    let b = &mut *cx.builder;
    let width = b.u32(lanes);
    let rest = b.rem(ranges.count, width);
    let whole = b.sub(ranges.count, rest);
    let rest_begin = b.add(ranges.begin, whole);
    let sums = Sums::of(cx, rest, rest_begin);
    let b = &mut *cx.builder;
    let (zero, left, at) = (b.u32(0), b.var_of("left", whole), b.var_of("at", ranges.begin));
    let (base, again) = (b.var_of("base", zero), b.var_of("again", once));
    let [source, number, own] = ["source", "number", "own"].map(|name| b.var(name, Scalar::U32));
    let active = b.var("deals", Scalar::Bool);
    cx.begin_loop();
    let b = &mut *cx.builder;
    let (current, rest_of_range) = (b.read(base), b.read(left));
    let has_whole = b.ne(rest_of_range, zero);
    let mask = ballot(cx, has_whole);
    let b = &mut *cx.builder;
    let (is_whole, has_rest, again_now) = (b.ne(mask, zero), b.lt(current, sums.total), b.read(again));
    let goes_on = b.or(is_whole, has_rest);
    let goes_on = b.or(goes_on, again_now);
    let done = b.not(goes_on);
    b.break_if(done);
    let (no, lane) = (b.bool(false), b.builtin(Builtin::LaneId));
    b.assign(again, no);
    cx.begin_if(is_whole);
    let b = &mut *cx.builder;
    let (one, bit) = (b.u32(1), b.unary(UnaryOp::Ffs, mask));
    let leader = b.sub(bit, one);
    let (leads, first) = (b.eq(lane, leader), b.read(at));
    let begin = read_lane(cx, first, leader);
    let b = &mut *cx.builder;
    let (own_number, yes, all) = (b.add(begin, lane), b.bool(true), b.u32(u32::MAX));
    let taken = b.select(leads, width, zero);
    let (less, further) = (b.sub(rest_of_range, taken), b.add(first, taken));
    let own_lanes = b.select(leads, all, zero);
    for (var, value) in
        [(left, less), (at, further), (source, leader), (number, own_number), (active, yes), (own, own_lanes)]
    {
        b.assign(var, value);
    }
    cx.begin_else();
    let index = cx.builder.add(current, lane);
    let owner = owner(cx, sums.sum, index);
    let start = read_lane(cx, sums.start, owner);
    let own_lanes = sums.own_lanes(cx, current);
    let b = &mut *cx.builder;
    let (own_number, is_there, next) = (b.add(start, index), b.lt(index, sums.total), b.add(current, width));
    for (var, value) in
        [(base, next), (source, owner), (number, own_number), (active, is_there), (own, own_lanes)]
    {
        b.assign(var, value);
    }
    cx.end();
    let source = cx.builder.read(source);
    let registers = ranges.registers.iter().map(|value| read_lane(cx, *value, source)).collect();
    let b = &mut *cx.builder;
    let dealt = Dealt { active: b.read(active), number: b.read(number), registers, own: b.read(own) };
    body(cx, &dealt)?;
    cx.end();
    Ok(())
}

/// Ranges of less than a warp's numbers, laid one behind the other: what follows is `u32`.
struct Sums {
    /// Numbers in the ranges of the lanes before this one.
    before: V,
    /// The same with this lane's.
    sum: V,
    /// In all ranges.
    total: V,
    /// What is to be added to an index in all ranges for the number, where it is of this lane's range.
    start: V,
}

impl Sums {
    fn of(cx: &mut Context<'_>, count: V, begin: V) -> Sums {
        let (before, total) = sums(cx, count);
        let b = &mut *cx.builder;
        Sums { before, sum: b.add(before, count), start: b.sub(begin, before), total }
    }

    /// A bit (`u32`) of each lane that is dealt a number of this lane's range in the turn from the index `base` on.
    fn own_lanes(&self, cx: &mut Context<'_>, base: V) -> V {
        let b = &mut *cx.builder;
        let (width, one) = (b.u32(cx.shape.lanes), b.u64(1));
        let end = b.add(base, width);
        // The bits below an index, as far as it is in this turn.
        let mut below = |index| {
            let index = b.binary(BinaryOp::Max, index, base);
            let index = b.binary(BinaryOp::Min, index, end);
            let lanes = b.sub(index, base);
            let lanes = b.convert(lanes, Scalar::U64);
            let bit = b.binary(BinaryOp::Shl, one, lanes);
            b.sub(bit, one)
        };
        let (before, with) = (below(self.before), below(self.sum));
        let own = b.binary(BinaryOp::Xor, before, with);
        b.convert(own, Scalar::U32)
    }
}

/// The lane (`u32`) in whose range an index (`u32`) falls, by the sums of the ranges up to each lane's: as many lanes are before
/// it as have sums that are not above the index. Some lane where it is beyond all.
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
        let mut goes = b.ge(index, passed);
        if !lanes.is_power_of_two() {
            let is_there = b.lt_int(last, lanes);
            goes = b.and(is_there, goes);
        }
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
