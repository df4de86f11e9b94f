//! Lane refill within the loop over matches (DogQC, sections 4.4 and 5.3): each lane walks the range of a row of its own, one number a
//! turn, and goes on with another row when it has come to the end.
//!
//! A row with a long range would keep the other lanes of its warp idle. So where fewer lanes than a threshold have numbers left, those
//! without take rows that have just arrived in the warp. Where there are none of these either, the warp comes back with new ones, and
//! the lanes that are in the middle of a range stay there: their row and the rest of its range are all that waits, in registers, a row
//! a lane. Rows that have arrived never wait for a turn of the row loop, as lanes without a row take them at once. When no more rows
//! arrive, the warp walks on with as few lanes as there are (the paper's pipeline flush): a frequent key's matches are taken by one lane.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::expand::{Ranges, Taken};
use super::refill;
use crate::context::lanes::{all_lanes, ballot, bit_of_rank, count, rank, read_lane};
use crate::context::{Context, Unsupported};

/// Where the lanes of a warp are in their ranges, from one turn of the row loop to the next.
pub(crate) struct Walk {
    /// The number that this lane comes to next, `u32`.
    next: Var,
    /// Numbers that it has left, `u32`; 0 where it has no row, and where the kernel begins.
    left: Var,
    /// What its row stands on.
    registers: Vec<Var>,
    /// Lanes with numbers left at which the warp goes on.
    threshold: u32,
}

impl Walk {
    /// For rows in registers of these types. `threshold`: of 32 lanes.
    pub(crate) fn new(cx: &mut Context<'_>, types: &[Type], threshold: u64) -> Walk {
        let threshold = refill::lanes_of(cx, threshold);
        let [next, left] = ["next", "left"].map(|name| cx.builder.var(name, Scalar::U32));
        let registers = types.iter().map(|ty| cx.builder.var("walking", *ty)).collect();
        Walk { next, left, registers, threshold }
    }

    /// Walks the ranges that have arrived and those that lanes are in, as long as there are enough; where `is_last` (`bool`, the
    /// same in the warp), to their ends. `once`: `taken` is passed through at least once (`bool`, the same in the warp). At uniform
    /// control flow of the warp.
    pub(crate) fn emit(
        &self,
        cx: &mut Context<'_>,
        ranges: &Ranges<'_>,
        (is_last, once): (V, V),
        taken: &mut Taken<'_>,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let (zero, one, threshold) = (b.u32(0), b.u32(1), b.u32(self.threshold));
        let least = b.select(is_last, one, threshold);
        let has_range = b.ne(ranges.count, zero);
        let arrived = Arrived::new(cx, has_range);
        let again = cx.builder.var_of("again", once);
        cx.begin_loop();
        let left = cx.builder.read(self.left);
        let walks = cx.builder.ne(left, zero);
        let mask = ballot(cx, walks);
        let lanes = count(cx, mask);
        let b = &mut *cx.builder;
        let (busy, waiting) = (b.var_of("busy", lanes), b.read(arrived.mask));
        let (is_few, waits) = (b.lt(lanes, threshold), b.ne(waiting, zero));
        let takes = b.and(is_few, waits);
        cx.begin_if(takes);
        let lanes = BusyLanes { mask, has_own: walks, count: busy };
        self.take(cx, ranges, &arrived, &lanes);
        cx.end();
        let b = &mut *cx.builder;
        let (lanes, once) = (b.read(busy), b.read(again));
        let is_enough = b.ge(lanes, least);
        let goes_on = b.or(is_enough, once);
        let done = b.not(goes_on);
        b.break_if(done);
        let no = b.bool(false);
        b.assign(again, no);
        let (number, left) = (b.read(self.next), b.read(self.left));
        let active = b.ne(left, zero);
        let registers: Vec<V> = self.registers.iter().map(|register| b.read(*register)).collect();
        taken(cx, active, number, &registers)?;
        let b = &mut *cx.builder;
        let (next, fewer) = (b.add(number, one), b.sub(left, one));
        let fewer = b.select(active, fewer, zero);
        b.assign(self.next, next);
        b.assign(self.left, fewer);
        cx.end();
        Ok(())
    }

    /// Lanes without numbers begin with rows that have arrived; those with numbers left are `busy`.
    fn take(&self, cx: &mut Context<'_>, ranges: &Ranges<'_>, arrived: &Arrived, busy: &BusyLanes) {
        let state = [self.next, self.left].into_iter().chain(self.registers.iter().copied());
        let new = [ranges.begin, ranges.count].into_iter().chain(ranges.registers.iter().copied());
        arrived.deal(cx, busy, state.zip(new));
    }
}

/// The lanes of a warp that have rows of their own, and take no other.
pub(super) struct BusyLanes {
    /// A bit of each, `u32`.
    pub mask: V,
    /// Whether this one is, `bool`.
    pub has_own: V,
    /// How many they are, also behind a deal; `u32`.
    pub count: Var,
}

/// The rows that have arrived in a warp, as far as no lane has begun with them.
pub(super) struct Arrived {
    /// Whether this lane's is one, `bool`.
    own: Var,
    /// A bit of each lane whose row is one, `u32`.
    mask: Var,
}

impl Arrived {
    /// Those of the lanes where `is_there` (`bool`).
    pub(super) fn new(cx: &mut Context<'_>, is_there: V) -> Arrived {
        let mask = ballot(cx, is_there);
        let b = &mut *cx.builder;
        Arrived { own: b.var_of("arrives", is_there), mask: b.var_of("arrived", mask) }
    }

    /// Whether there are any (`bool`, the same in the warp).
    pub(super) fn waits(&self, cx: &mut Context<'_>) -> V {
        let b = &mut *cx.builder;
        let (waiting, zero) = (b.read(self.mask), b.u32(0));
        b.ne(waiting, zero)
    }

    /// Lanes that are not busy take rows: the first the first, and so on. `registers`: each of an idle lane's, and what a row that has arrived
    /// has for it. Gives whether this lane has taken one (`bool`).
    pub(super) fn deal(
        &self,
        cx: &mut Context<'_>,
        busy: &BusyLanes,
        registers: impl Iterator<Item = (Var, V)>,
    ) -> V {
        let there = all_lanes(cx);
        let b = &mut *cx.builder;
        let others = b.not(busy.mask);
        let idle = b.and(others, there);
        let rows = b.read(self.mask);
        let (free, waiting) = (count(cx, idle), count(cx, rows));
        let (place, turn) = (rank(cx, idle), rank(cx, rows));
        let source = bit_of_rank(cx, rows, place);
        let b = &mut *cx.builder;
        let (is_idle, is_there) = (b.not(busy.has_own), b.lt(place, waiting));
        let takes = b.and(is_idle, is_there);
        for (var, value) in registers {
            let new = read_lane(cx, value, source);
            let b = &mut *cx.builder;
            let own = b.read(var);
            let own = b.select(takes, new, own);
            b.assign(var, own);
        }
        let b = &mut *cx.builder;
        let (own, stays) = (b.read(self.own), b.ge(turn, free));
        let own = b.and(own, stays);
        b.assign(self.own, own);
        let taken = b.binary(BinaryOp::Min, free, waiting);
        let before = b.read(busy.count);
        let now = b.add(before, taken);
        b.assign(busy.count, now);
        let rest = ballot(cx, own);
        cx.builder.assign(self.mask, rest);
        takes
    }
}
