//! Lane refill (DogQC, section 4): rows of lanes that are too few to go on wait until they fill a warp.
//!
//! A warp keeps a buffer with one row a lane. Where the active lanes and the buffer together reach a threshold, idle lanes
//! take rows from the buffer, and the warp goes on; else the active lanes' rows go to the buffer, and the warp comes back
//! with new ones. The buffer is a stack: of its `held` rows the one on top is given out first. It is in registers, a row in
//! a lane; rows go to their places by shuffles, which no block's memory bounds, and a warp needs no fence for.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Builtin, Scalar, Type};

use crate::context::Context;
use crate::context::lanes::{all_lanes, ballot, bit_of_rank, count, rank, read_lane};

/// Lanes of a warp that thresholds are counted in.
const THRESHOLD_LANES: u64 = 32;

/// Bytes of a block's memory that are left to what is declared behind: the sums of dense writes and of sinks without groups.
const LEFT_BYTES: u32 = 16 << 10;

/// Whether a block has room for so many bytes more.
pub(super) fn has_room(cx: &mut Context<'_>, bytes: u32) -> bool {
    cx.builder.shared_bytes().saturating_add(bytes).saturating_add(LEFT_BYTES) <= cx.shape.shared_bytes
}

/// A threshold of 32 lanes in lanes of a warp, of which it is one at least.
pub(super) fn lanes_of(cx: &Context<'_>, threshold: u64) -> u32 {
    let lanes = u64::from(cx.shape.lanes);
    (threshold * lanes).div_ceil(THRESHOLD_LANES).clamp(1, lanes) as u32
}

/// A warp's buffer.
pub(crate) struct Refill {
    /// A register of each row that is kept, in this lane.
    rows: Vec<Var>,
    /// Rows in the buffer: those of lanes 0, 1, 2, …; `u32`, the same in the warp.
    held: Var,
    /// Lanes with rows at which the warp goes on.
    threshold: u32,
}

impl Refill {
    /// A buffer, empty where the kernel begins, for rows in registers of these types. `threshold`: of 32 lanes.
    pub(crate) fn new(cx: &mut Context<'_>, types: &[Type], threshold: u64) -> Refill {
        let threshold = lanes_of(cx, threshold);
        let rows = types.iter().map(|ty| cx.builder.var("waiting", *ty)).collect();
        Refill { rows, held: cx.builder.var("held", Scalar::U32), threshold }
    }

    /// Lets rows wait or go on: those in `registers` of the lanes where `active` (`bool`). Gives the lanes that go on, and
    /// their registers. All go on where `is_last` (`bool`, the same in the warp), as far as there are lanes for them. At uniform
    /// control flow of the warp.
    pub(crate) fn emit(&self, cx: &mut Context<'_>, active: V, registers: &[V], is_last: V) -> (V, Vec<V>) {
        let mask = ballot(cx, active);
        let arrived = count(cx, mask);
        let b = &mut *cx.builder;
        let no = b.bool(false);
        let live = b.var_of("goes_on", no);
        let rows: Vec<Var> = registers.iter().map(|register| b.var_of("row", *register)).collect();
        let held = b.read(self.held);
        let any = b.ne_int(arrived, 0);
        let busy = b.or(any, is_last);
        // A warp to which nothing comes costs a vote.
        cx.begin_if(busy);
        let b = &mut *cx.builder;
        let (all, threshold) = (b.add(arrived, held), b.u32(self.threshold));
        let enough = b.ge(all, threshold);
        let goes_on = b.or(enough, is_last);
        cx.begin_if(goes_on);
        let b = &mut *cx.builder;
        b.assign(live, active);
        let few = b.lt(arrived, threshold);
        let refills = b.or(few, is_last);
        cx.begin_if(refills);
        self.refill(cx, (mask, active), held, (live, &rows));
        cx.end();
        cx.begin_else();
        self.flush(cx, (mask, arrived), held, registers);
        cx.builder.assign(self.held, all);
        cx.end();
        cx.end();
        let b = &mut *cx.builder;
        (b.read(live), rows.into_iter().map(|row| b.read(row)).collect())
    }

    /// Idle lanes take the rows on top of the buffer.
    fn refill(&self, cx: &mut Context<'_>, (mask, active): (V, V), held: V, (live, rows): (Var, &[Var])) {
        let there = all_lanes(cx);
        let b = &mut *cx.builder;
        let busy = b.not(mask);
        let idle = b.and(busy, there);
        let (place, free) = (rank(cx, idle), count(cx, idle));
        let b = &mut *cx.builder;
        let (is_idle, is_there) = (b.not(active), b.lt(place, held));
        let takes = b.and(is_idle, is_there);
        let top = b.sub_int(held, 1);
        let source = b.sub(top, place);
        for (waiting, row) in self.rows.iter().zip(rows) {
            let kept = cx.builder.read(*waiting);
            let kept = read_lane(cx, kept, source);
            let own = cx.builder.read(*row);
            let own = cx.builder.select(takes, kept, own);
            cx.builder.assign(*row, own);
        }
        let b = &mut *cx.builder;
        let taken = b.binary(BinaryOp::Min, held, free);
        let left = b.sub(held, taken);
        b.assign(self.held, left);
        let now = b.or(active, takes);
        b.assign(live, now);
    }

    /// The active lanes' rows go on top of the buffer.
    fn flush(&self, cx: &mut Context<'_>, (mask, arrived): (V, V), held: V, registers: &[V]) {
        let b = &mut *cx.builder;
        let lane = b.builtin(Builtin::LaneId);
        let place = b.sub(lane, held);
        let (is_above, is_new) = (b.ge(lane, held), b.lt(place, arrived));
        let takes = b.and(is_above, is_new);
        let source = bit_of_rank(cx, mask, place);
        for (waiting, register) in self.rows.iter().zip(registers) {
            let new = read_lane(cx, *register, source);
            let kept = cx.builder.read(*waiting);
            let kept = cx.builder.select(takes, new, kept);
            cx.builder.assign(*waiting, kept);
        }
    }
}
