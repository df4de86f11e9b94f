//! The body of a pipeline's kernel: a row loop ([`row_loop`](super::row_loop)), and in it the pipeline's operators one inside the other.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Scalar, Type};

use super::Pipeline;
use super::row_loop::Emitted;
use super::variants::ChunkVariants;
use crate::context::{Argument, Context};
use crate::operator::queue::Queue;
use crate::operator::roles::{Emitter, Job, Sink};
use crate::program::{Counting, RowCount};

/// One kernel of a pipeline.
pub(super) struct Body<'a> {
    pub(super) pipeline: &'a Pipeline,
    /// The end of its source's rows, `i64`.
    pub(super) rows: V,
    /// To which its rows come: the pipeline's own, or one that counts, or samples them.
    pub(super) sink: &'a dyn Sink,
    pub(super) variants: &'a ChunkVariants<'a>,
    /// States that later pipelines read.
    pub(super) needed: &'a BTreeSet<usize>,
    /// State of the morsel counter, on a CPU.
    pub(super) morsels: Option<usize>,
    /// Where long ranges wait for all warps.
    pub(super) queue: Option<Queue>,
}

impl Body<'_> {
    /// Emits the body. `counting`: how the places of rows are found, where they are counted before.
    pub(super) fn generate(&self, cx: &mut Context<'_>, counting: Option<&Counting>) -> Emitted {
        if self.sink.emit_alone(cx, self.rows)? {
            return Ok(());
        }
        let ChunkVariants { row_loop, points, alone, places, .. } = self.variants;
        let thread_rows = match row_loop.shares_out() {
            true => self.pipeline.thread_bound(&cx.shape, points.more_rows().and(row_loop.turn_rows())),
            false => self.pipeline.bound,
        };
        let (needed, arrival, places) = (self.needed, row_loop.arrival(*alone), *places);
        let job = Job { rows: self.rows, counting, needed, arrival, places, thread_rows };
        let mut emitter = self.sink.begin(cx, &job)?;
        row_loop.emit(self, cx, &mut *emitter)?;
        emitter.end(cx)
    }

    /// The columns before a step that it, those behind it and the sink read.
    pub(super) fn read_behind(&self, step: usize) -> BTreeSet<usize> {
        let mut states = self.needed.clone();
        let mut columns = self.pipeline.sink.read(&mut states);
        for step in self.pipeline.steps[step..].iter().rev() {
            columns = step.read(&columns, &mut states);
        }
        columns
    }

    /// Leaves the row loop where the launch has failed.
    pub(super) fn break_if_failed(cx: &mut Context<'_>) {
        let b = &mut *cx.builder;
        let status = b.builtin(Builtin::Status);
        let failed = b.ne_int(status, 0);
        b.break_if(failed);
    }

    /// Leaves the row loop where there are as many rows as are wanted.
    pub(super) fn break_if_enough(cx: &mut Context<'_>, emitter: &dyn Emitter) {
        if let Some(done) = emitter.is_done(cx) {
            cx.builder.break_if(done);
        }
    }
}

/// The end of the rows that are worked on. On a GPU a launch need not wait until the host knows how many rows earlier
/// kernels have stored: it may be told what they stored the last time. So no kernel goes beyond those that there are.
pub(super) fn source_rows(cx: &mut Context<'_>, pipeline: &Pipeline, queue: Option<Queue>) -> V {
    let mut rows = cx.argument("rows", Scalar::I64, Argument::RowCount);
    let source = pipeline.sink.own_rows().unwrap_or_else(|| pipeline.source.rows());
    if let (RowCount::Counted(counter), false) = (source, cx.shape.is_serial()) {
        let counter = cx.argument("stored_rows", Type::global(Scalar::U64), Argument::State(counter));
        let stored = cx.builder.load_read_only(counter);
        let stored = cx.builder.bitcast(stored, Scalar::I64);
        rows = cx.builder.binary(BinaryOp::Min, rows, stored);
    }
    queue.map_or(rows, |queue| queue.rows(cx, rows))
}
