//! The row loop of a pipeline's kernel, and in it the pipeline's operators one inside the other.
//!
//! On a SIMT device the grid strides over the rows, one row a thread. On a CPU each worker takes morsels from an atomic
//! counter; where the sink writes the result under `resolution`, the morsel is worked on in batches in two passes, the
//! first of which makes a selection vector ([`selection`](super::selection)).

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope, Type};

use super::actions::Counting;
use super::kernel::Environment;
use super::program::States;
use super::row::{Pass, clamp, for_range};
use super::selection::BATCH_ROWS;
use super::{Sink, Source, Step};
use crate::MicroModel;
use crate::context::{Argument, Context, Unsupported};
use crate::operator::Flow;
use crate::operator::aggregate::{AggregateOperator, ROWS_PER_THREAD};
use crate::operator::places::Counted;
use crate::table::bounds::Bounds;
use crate::table::rows::Chunk;

/// Rows that a CPU worker takes at a time.
const MORSEL_ROWS: i64 = 1 << 16;

pub(super) struct Body<'a, 'b> {
    pub(super) source: &'a Source,
    pub(super) steps: &'a [Step],
    pub(super) environment: &'a Environment<'b>,
    states: &'a mut States,
    /// Where a sink that is a store writes on a CPU.
    pub(super) chunk: Option<Chunk>,
    /// Of the keys that a sink indexes.
    pub(super) bounds: Option<Bounds>,
    /// The places of rows under A1.
    pub(super) counted: Option<Counted>,
    /// The kernel does not start at the first row.
    pruned: bool,
}

impl<'a, 'b> Body<'a, 'b> {
    pub(super) fn new(
        source: &'a Source,
        steps: &'a [Step],
        environment: &'a Environment<'b>,
        states: &'a mut States,
        pruned: bool,
    ) -> Body<'a, 'b> {
        Body { source, steps, environment, states, chunk: None, bounds: None, counted: None, pruned }
    }
}

impl Body<'_, '_> {
    /// Emits the kernel's body; the state of the morsel counter, if there is one.
    pub(super) fn generate(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Sink,
        counting: Option<&Counting>,
    ) -> Result<Option<usize>, Unsupported> {
        let rows = cx.argument("rows", Scalar::I64, Argument::RowCount);
        if let Sink::Reduce(operator) = sink {
            operator.reduce(cx, rows);
            return Ok(None);
        }
        self.begin(cx, rows, sink, counting);
        let morsels = if cx.target.lanes > 1 || cx.target.block_threads > 1 {
            self.grid_stride(cx, rows, sink)?;
            None
        } else {
            let counter = self.states.counter("morsels");
            self.morsels(cx, rows, counter, sink)?;
            Some(counter)
        };
        match sink {
            Sink::Aggregate(operator) => operator.end(cx),
            Sink::Build(join) => join.store().end(cx, self.chunk),
            Sink::Rows(rows) => rows.store().end(cx, self.chunk),
            Sink::Index(join) => join.index().end(cx, self.bounds),
            _ => {}
        }
        if let Some(counted) = &self.counted {
            counted.end(cx);
        }
        Ok(morsels)
    }

    /// What precedes the row loop.
    fn begin(&mut self, cx: &mut Context<'_>, rows: V, sink: &mut Sink, counting: Option<&Counting>) {
        self.counted = match (&*sink, counting) {
            (Sink::Count { counts, rows }, _) => Some(Counted::begin_count(cx, *counts, *rows)),
            (_, Some(counting)) => Some(Counted::begin_write(cx, counting.counts, counting.total)),
            _ => None,
        };
        match sink {
            Sink::Aggregate(operator) => operator.begin(cx),
            Sink::Build(join) => self.chunk = join.store().begin(cx),
            Sink::Rows(rows) => self.chunk = rows.store().begin(cx),
            Sink::Index(join) => self.bounds = join.index().begin(cx),
            Sink::Sort(sort) => {
                let is_counted = counting.is_some();
                let all = matches!(self.source, Source::Scan { .. })
                    && !self.pruned
                    && !is_counted
                    && self.steps.iter().all(|step| matches!(step, Step::Project(_)));
                sort.begin(cx, all.then_some(rows), is_counted);
            }
            _ => {}
        }
    }

    /// `for base in (block * threads ..).step_by(grid * threads)`: the loop is uniform in the block, the row is not.
    fn grid_stride(&mut self, cx: &mut Context<'_>, rows: V, sink: &mut Sink) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let mut wide = |builtin| {
            let value = b.builtin(builtin);
            b.convert(value, Scalar::I64)
        };
        let (thread, block) = (wide(Builtin::ThreadId), wide(Builtin::BlockId));
        let (threads, blocks) = (wide(Builtin::BlockDim), wide(Builtin::GridDim));
        let prepares = matches!(sink, Sink::Aggregate(_)) && self.uses_flags(sink);
        let rows_per_thread = if prepares { ROWS_PER_THREAD } else { 1 };
        let b = &mut *cx.builder;
        let count = b.i64(rows_per_thread);
        let block_rows = b.mul(threads, count);
        let stride = b.mul(block_rows, blocks);
        let first = b.mul(block, block_rows);
        let first = Self::from_first(cx, first);
        let base = cx.builder.var_of("base", first);
        cx.begin_loop();
        let current = cx.builder.read(base);
        let done = cx.builder.ge(current, rows);
        cx.builder.break_if(done);
        Self::break_if_enough(cx, sink);
        let row = cx.builder.add(current, thread);
        match sink {
            Sink::Aggregate(operator) if prepares => self.prepare_rows(cx, row, rows, threads, operator)?,
            Sink::Aggregate(operator) => {
                operator.open_row(cx);
                self.guarded_row(cx, row, rows, sink)?;
                if let Sink::Aggregate(operator) = sink {
                    operator.close_row(cx);
                }
            }
            sink => self.guarded_row(cx, row, rows, sink)?,
        }
        let next = cx.builder.add(current, stride);
        cx.builder.assign(base, next);
        cx.end();
        Ok(())
    }

    /// A row counted from the first that is worked on, counted from the first that there is.
    fn from_first(cx: &mut Context<'_>, row: V) -> V {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        cx.builder.add(row, first)
    }

    /// Leaves the row loop where the result has as many rows as are wanted.
    fn break_if_enough(cx: &mut Context<'_>, sink: &Sink) {
        if let Sink::Output(output) = sink
            && let Some(done) = output.is_done(cx)
        {
            cx.builder.break_if(done);
        }
    }

    /// Several rows of a thread, `threads` apart: all are prepared, then all are applied.
    fn prepare_rows(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        rows: V,
        threads: V,
        operator: &AggregateOperator,
    ) -> Result<(), Unsupported> {
        let mut row = row;
        let mut prepared = Vec::new();
        cx.clear_scratch();
        for index in 0..ROWS_PER_THREAD {
            if index > 0 {
                row = cx.builder.add(row, threads);
            }
            cx.begin_repetition(index == 0);
            let (clamped, flow) = clamp(cx, row, rows);
            let flow = self.enter(cx, clamped, flow)?;
            let flow = self.steps(cx, flow, Pass::Whole)?;
            prepared.push(operator.prepare(cx, flow)?);
            cx.end_row();
        }
        cx.end_repetition();
        prepared.iter().try_for_each(|row| operator.apply(cx, row))
    }

    /// One row of a thread, which may be beyond the end.
    fn guarded_row(
        &mut self,
        cx: &mut Context<'_>,
        row: V,
        rows: V,
        sink: &mut Sink,
    ) -> Result<(), Unsupported> {
        if self.uses_flags(sink) {
            let (row, flow) = clamp(cx, row, rows);
            return self.row(cx, row, flow, sink);
        }
        let in_range = cx.builder.lt(row, rows);
        cx.begin_if(in_range);
        self.row(cx, row, Flow::Branch { depth: 0 }, sink)?;
        cx.end();
        Ok(())
    }

    /// A worker takes morsels until there are none or the launch has failed.
    fn morsels(
        &mut self,
        cx: &mut Context<'_>,
        rows: V,
        counter: usize,
        sink: &mut Sink,
    ) -> Result<(), Unsupported> {
        let counter = cx.argument("morsels", Type::global(Scalar::U64), Argument::State(counter));
        let staged = matches!(sink, Sink::Output(output) if !output.is_ordered())
            && self.counted.is_none()
            && self.environment.micro_model == MicroModel::Resolution
            && !self.has_joins();
        let selection =
            staged.then(|| cx.builder.shared("selection", Pointee::Scalar(Scalar::U32), BATCH_ROWS));
        cx.begin_loop();
        let b = &mut *cx.builder;
        let status = b.builtin(Builtin::Status);
        let zero = b.u32(0);
        let failed = b.ne(status, zero);
        b.break_if(failed);
        Self::break_if_enough(cx, sink);
        let b = &mut *cx.builder;
        let size = b.u64(MORSEL_ROWS as u64);
        let start = b.atomic(AtomicOp::Add, counter, size, Scope::Device);
        let start = b.bitcast(start, Scalar::I64);
        let start = Self::from_first(cx, start);
        let b = &mut *cx.builder;
        let done = b.ge(start, rows);
        b.break_if(done);
        let size = b.i64(MORSEL_ROWS);
        let end = b.add(start, size);
        let end = b.binary(BinaryOp::Min, end, rows);
        match (selection, sink) {
            (Some(selection), Sink::Output(output)) => self.batches(cx, start, end, selection, output)?,
            (_, sink) => {
                let flow = match self.uses_flags(sink) {
                    true => Flow::Flag { active: None },
                    false => Flow::Branch { depth: 0 },
                };
                for_range(cx, "row", start, end, |cx, row| self.row(cx, row, flow, sink))?;
            }
        }
        cx.end();
        Ok(())
    }
}
