//! The row loop in which a thread of a SIMT device loads the columns of several rows side by side at once, and works on these rows one by
//! one: [`context::held`](crate::context). Of narrow columns a load of one value a thread brings a warp 32 bytes, which the caches serve
//! no faster than 512.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Scalar};

use super::body::Body;
use super::row::clamp;
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job};

impl Body<'_> {
    /// A thread's rows in a turn, from `row` on, where those of the block begin with `current`; `first`: the first that is worked on.
    ///
    /// Blocks of which some rows are before the first or beyond the end load them one by one, neighbouring threads neighbouring rows, so
    /// that few rows are many lanes'. All threads of a block do the same: warps are together wherever a row comes to the sink.
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
        let stay_single = !self.pipeline.steps.iter().any(|step| step.expands());
        if stay_single {
            emitter.begin_rows(cx, WIDE_ROWS.into());
        }
        for number in 0..WIDE_ROWS {
            cx.begin_repetition(number == 0);
            cx.take_held(number);
            let distance = cx.builder.i64(number.into());
            let this = cx.builder.add(row, distance);
            self.round(cx, this, Flow::Flag { active: None }, emitter)?;
        }
        cx.end_repetition();
        cx.let_go();
        if stay_single {
            emitter.end_rows(cx);
        }
        cx.begin_else();
        let stop = cx.builder.binary(BinaryOp::Min, end, job.rows);
        self.rows_apart(cx, (current, stop), (first, job.rows), threads, emitter)?;
        cx.end();
        Ok(())
    }

    /// The rows of a block one by one, those of its threads side by side: from `start` up to `stop`, and of those none before `first`.
    fn rows_apart(
        &self,
        cx: &mut Context<'_>,
        (start, stop): (V, V),
        (first, rows): (V, V),
        threads: V,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let begin = cx.builder.var_of("begin", start);
        cx.begin_loop();
        let current = cx.builder.read(begin);
        let done = cx.builder.ge(current, stop);
        cx.builder.break_if(done);
        let b = &mut *cx.builder;
        let thread = b.builtin(Builtin::ThreadId);
        let thread = b.convert(thread, Scalar::I64);
        let row = b.add(current, thread);
        let begun = b.ge(row, first);
        let row = b.binary(BinaryOp::Max, row, first);
        let (row, flow) = clamp(cx, row, rows);
        let active = flow.active().map_or(begun, |in_range| cx.builder.and(begun, in_range));
        self.round(cx, row, Flow::Flag { active: Some(active) }, emitter)?;
        let next = cx.builder.add(current, threads);
        cx.builder.assign(begin, next);
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
