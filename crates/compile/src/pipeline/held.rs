//! The row loop in which a thread of a SIMT device loads the columns of several rows side by side at once, and works on these rows one by
//! one: [`context::held`](crate::context). Of narrow columns a load of one value a thread brings a warp 32 bytes, which the caches serve
//! no faster than 512.

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::body::Body;
use super::row::for_range;
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job};

impl Body<'_> {
    /// A thread's rows in a turn, from `row` on, where those of the block begin with `current`; `first`: the first that is worked on.
    ///
    /// Blocks of which some rows are before the first or beyond the end load them one by one. All threads of a block do the same, so
    /// that warps are together wherever a row comes to the sink.
    pub(super) fn held_rows(
        &self,
        cx: &mut Context<'_>,
        (row, current, first): (V, V, V),
        job: &Job<'_>,
        threads: V,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let size = b.i64(WIDE_ROWS.into());
        let of_block = b.mul(threads, size);
        let end = b.add(current, of_block);
        let (begins, ends) = (b.ge(current, first), b.ge(job.rows, end));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        self.pipeline.source.hold(cx, row);
        for number in 0..WIDE_ROWS {
            cx.begin_repetition(number == 0);
            cx.take_held(number);
            let distance = cx.builder.i64(number.into());
            let this = cx.builder.add(row, distance);
            self.round(cx, this, Flow::Flag { active: None }, emitter)?;
        }
        cx.end_repetition();
        cx.let_go();
        cx.begin_else();
        let end = cx.builder.add(row, size);
        for_range(cx, "row", row, end, |cx, row| {
            let b = &mut *cx.builder;
            let (begun, in_range) = (b.ge(row, first), b.lt(row, job.rows));
            let active = b.and(begun, in_range);
            let one = b.i64(1);
            let last = b.sub(job.rows, one);
            let row = b.binary(BinaryOp::Max, row, first);
            let row = b.binary(BinaryOp::Min, row, last);
            self.round(cx, row, Flow::Flag { active: Some(active) }, emitter)
        })?;
        cx.end();
        Ok(())
    }

    /// A row that is all that a thread brings in a round.
    fn round(
        &self,
        cx: &mut Context<'_>,
        row: V,
        flow: Flow,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        emitter.begin_round(cx);
        self.row(cx, row, flow, emitter)?;
        emitter.end_round(cx)
    }
}
