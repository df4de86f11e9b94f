//! The row loop of a pipeline's kernel, and in it the pipeline's operators one inside the other.
//!
//! On a SIMT device the grid strides over the rows, one row a thread. On a CPU each worker takes morsels from an atomic
//! counter; where the sink writes the result under `resolution`, or filters see several rows at once, the morsel is worked on
//! in batches in two passes, the first of which makes a selection vector ([`selection`](super::selection)).

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Builtin, Pointee, Scalar, Scope, Type};

use super::Pipeline;
use super::block_vote::BlockVote;
use super::lanes::Turn;
use super::row::{Pass, clamp, for_range};
use super::variants::ChunkVariants;
use super::wide::for_wide_range;
use crate::context::{Argument, Context, Unsupported, WIDE_ROWS};
use crate::operator::Flow;
use crate::operator::queue::Queue;
use crate::operator::roles::{Emitter, Job, Sink};
use crate::program::{Counting, RowCount};
use crate::variant::axes::{RowLoop, WritePlaces};

/// One kernel of a pipeline.
pub(super) struct Body<'a> {
    pub(super) pipeline: &'a Pipeline,
    pub(super) variants: &'a ChunkVariants<'a>,
    /// States that later pipelines read.
    pub(super) needed: &'a BTreeSet<usize>,
    /// State of the morsel counter, on a CPU.
    pub(super) morsels: Option<usize>,
    /// Where long ranges wait for all warps.
    pub(super) queue: Option<Queue>,
}

impl Body<'_> {
    /// Emits the kernel's body, which brings the pipeline's rows to `sink`: the pipeline's own, or one that counts.
    pub(super) fn generate(
        &self,
        cx: &mut Context<'_>,
        sink: &dyn Sink,
        counting: Option<&Counting>,
    ) -> Result<(), Unsupported> {
        let mut rows = self.source_rows(cx);
        if let Some(queue) = self.queue {
            rows = queue.rows(cx, rows);
        }
        if sink.emit_alone(cx, rows)? {
            return Ok(());
        }
        let &ChunkVariants { flags, places, keeps_all, .. } = self.variants;
        let wide = self.variants.row_loop == RowLoop::Wide;
        // Wide rows begin where memory is aligned: what a thread sees of them is no share of the table's rows.
        let held = self.variants.holds_rows;
        let more = self.variants.points.more_rows().plus(self.variants.rows_before());
        // A block takes pieces of parts as they come, of any size.
        let parts = self.pipeline.source.parts();
        let thread_rows = match wide || parts.is_some() {
            true => self.pipeline.bound,
            false => self.pipeline.thread_bound(&cx.shape, more),
        };
        let needed = self.needed;
        let job = Job { rows, counting, needed, flags, wide, held, keeps_all, places, thread_rows };
        let mut emitter = sink.begin(cx, &job)?;
        if let Some(parts) = parts {
            self.pieces(cx, &job, parts, &mut *emitter)?;
        } else if !cx.shape.is_serial() {
            self.passes(cx, &job, sink.passes(), &mut *emitter)?;
        } else if sink.passes() > 1 {
            return Err(Unsupported::internal("a worker takes each row once"));
        } else {
            self.morsels(cx, &job, sink, &mut *emitter)?;
        }
        emitter.end(cx)
    }

    /// The end of the rows that are worked on. On a GPU a launch need not wait until the host knows how many rows earlier
    /// kernels have stored: it may be told what they stored the last time. So no kernel goes beyond those that there are.
    fn source_rows(&self, cx: &mut Context<'_>) -> V {
        let rows = cx.argument("rows", Scalar::I64, Argument::RowCount);
        let source = self.pipeline.sink.own_rows().unwrap_or_else(|| self.pipeline.source.rows());
        let RowCount::Counted(counter) = source else { return rows };
        if cx.shape.is_serial() {
            return rows;
        }
        let counter = cx.argument("stored_rows", Type::global(Scalar::U64), Argument::State(counter));
        let stored = cx.builder.load_read_only(counter);
        let stored = cx.builder.bitcast(stored, Scalar::I64);
        cx.builder.binary(BinaryOp::Min, rows, stored)
    }

    /// All rows, as often as the sink wants to see them: each time by another team of blocks, where there are as many blocks. Teams go over the
    /// rows side by side, so that what one has read is in the last cache for the others, and a block ends one pass instead of all.
    fn passes(
        &self,
        cx: &mut Context<'_>,
        job: &Job<'_>,
        passes: u32,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let team = Team::of_grid(cx);
        if passes == 1 {
            return self.grid_stride(cx, (team, job), emitter);
        }
        if !self.variants.points.is_empty() {
            return Err(Unsupported::internal("lanes exchange rows that come several times"));
        }
        let (teams, first, team) = team.split(cx, passes);
        let pass = cx.builder.var_of("pass", first);
        cx.begin_loop();
        let current = cx.builder.read(pass);
        let end = cx.builder.i64(passes.into());
        let done = cx.builder.ge(current, end);
        cx.builder.break_if(done);
        emitter.begin_pass(cx, current);
        self.grid_stride(cx, (team, job), emitter)?;
        emitter.end_pass(cx);
        let next = cx.builder.add(current, teams);
        cx.builder.assign(pass, next);
        cx.end();
        Ok(())
    }

    /// `for base in (block * threads ..).step_by(blocks * threads)`: the loop is uniform in the block, the row is not.
    fn grid_stride(
        &self,
        cx: &mut Context<'_>,
        (Team { block, blocks }, job): (Team, &Job<'_>),
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let (thread, threads) = (wide(cx, Builtin::ThreadId), wide(cx, Builtin::BlockDim));
        if emitter.rows_at_once() > cx.shape.rows_per_thread.into() {
            return Err(Unsupported::internal("more rows of a thread at once than launches are made for"));
        }
        let b = &mut *cx.builder;
        let rows_at_once = match &self.variants.staged {
            Some(_) => cx.shape.rows_per_thread.into(),
            None if job.wide || job.held => i64::from(WIDE_ROWS),
            None => emitter.rows_at_once(),
        };
        let count = b.i64(rows_at_once);
        let block_rows = b.mul(threads, count);
        let stride = b.mul(block_rows, blocks);
        let offset = b.mul(block, block_rows);
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let is_aligned = job.wide
            || job.held
            || self.variants.staged.as_ref().is_some_and(|staged| staged.rows().is_some());
        let base = match is_aligned {
            true => {
                let mask = b.i64(-i64::from(WIDE_ROWS));
                let aligned = b.and(first, mask);
                b.add(offset, aligned)
            }
            false => b.add(offset, first),
        };
        let base = b.var_of("base", base);
        let points = &self.variants.points;
        let end = match points.is_empty() {
            true => job.rows,
            false => {
                let turns = b.i64(points.last_turns() as i64);
                let more = b.mul(stride, turns);
                let with_last = b.add(job.rows, more);
                // Where there are no rows none wait for the last turns, whose lanes read the last row.
                let some = b.lt(first, job.rows);
                b.select(some, with_last, job.rows)
            }
        };
        let together = points.in_block.then(|| BlockVote::begin(cx));
        cx.begin_loop();
        let current = cx.builder.read(base);
        let done = cx.builder.ge(current, end);
        cx.builder.break_if(done);
        match together {
            Some(vote) => vote.break_if_enough(cx, emitter),
            None => Self::break_if_enough(cx, emitter),
        }
        let thread = if is_aligned { cx.builder.mul(thread, count) } else { thread };
        let row = cx.builder.add(current, thread);
        match &self.variants.staged {
            Some(staged) => {
                let is_last = (!points.is_empty()).then(|| cx.builder.ge(current, job.rows));
                self.tried_rows(cx, (staged, row, is_last), job, (threads, rows_at_once), emitter)?;
            }
            None => self.turn(cx, (row, current, first), job, threads, emitter)?,
        }
        let next = cx.builder.add(current, stride);
        cx.builder.assign(base, next);
        cx.end();
        Ok(())
    }

    /// A thread's rows in a turn of the row loop, from `row` on, where those of the grid begin with `current`; `first`: the first that
    /// is worked on.
    fn turn(
        &self,
        cx: &mut Context<'_>,
        (row, current, first): (V, V, V),
        job: &Job<'_>,
        threads: V,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let points = &self.variants.points;
        if job.held {
            return self.held_rows(cx, (row, current, first), job, threads, emitter);
        }
        emitter.begin_round(cx);
        match emitter.rows_at_once() {
            _ if job.wide => self.rows_of_thread(cx, row, (first, job), emitter)?,
            1 if !points.is_empty() => {
                let (in_range, is_last) = (cx.builder.lt(row, job.rows), cx.builder.ge(current, job.rows));
                self.row_by_points(cx, Turn { row, in_range, is_last }, emitter)?;
            }
            _ if !points.is_empty() => {
                return Err(Unsupported::internal(
                    "lanes exchange rows, of which a thread has several at once",
                ));
            }
            count => self.rows_of_turn(cx, row, job, (threads, count), emitter)?,
        }
        emitter.end_round(cx)
    }

    /// A row counted from the first that is worked on, counted from the first that there is.
    fn from_first(cx: &mut Context<'_>, row: V) -> V {
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        cx.builder.add(row, first)
    }

    /// Leaves the row loop where the launch has failed.
    pub(super) fn break_if_failed(cx: &mut Context<'_>) {
        let b = &mut *cx.builder;
        let status = b.builtin(Builtin::Status);
        let zero = b.u32(0);
        let failed = b.ne(status, zero);
        b.break_if(failed);
    }

    /// Leaves the row loop where there are as many rows as are wanted.
    pub(super) fn break_if_enough(cx: &mut Context<'_>, emitter: &dyn Emitter) {
        if let Some(done) = emitter.is_done(cx) {
            cx.builder.break_if(done);
        }
    }

    /// Several rows of a thread, `threads` apart.
    pub(super) fn several_rows(
        &self,
        cx: &mut Context<'_>,
        row: V,
        (rows, threads, count): (V, V, i64),
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let mut row = row;
        for index in 0..count {
            if index > 0 {
                row = cx.builder.add(row, threads);
            }
            cx.begin_repetition(index == 0);
            let (clamped, flow) = clamp(cx, row, rows);
            self.row(cx, clamped, flow, emitter)?;
        }
        cx.end_repetition();
        Ok(())
    }

    /// One row of a thread, which may be beyond the end.
    pub(super) fn guarded_row(
        &self,
        cx: &mut Context<'_>,
        row: V,
        job: &Job<'_>,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        if job.flags {
            let (row, flow) = clamp(cx, row, job.rows);
            return self.row(cx, row, flow, emitter);
        }
        let in_range = cx.builder.lt(row, job.rows);
        cx.begin_if(in_range);
        self.row(cx, row, Flow::Branch, emitter)?;
        cx.end();
        Ok(())
    }

    /// A worker takes morsels until there are none or the launch has failed.
    fn morsels(
        &self,
        cx: &mut Context<'_>,
        job: &Job<'_>,
        sink: &dyn Sink,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let counter = self.morsels.ok_or_else(|| Unsupported::internal("morsels without a counter"))?;
        let counter = cx.argument("morsels", Type::global(Scalar::U64), Argument::State(counter));
        let &ChunkVariants { selection, morsel, row_loop, .. } = self.variants;
        let staged = sink.staged().filter(|_| job.places == WritePlaces::Selection);
        let selection = (staged.is_some() || row_loop == RowLoop::Selected).then(|| {
            // A wide row is written as a whole behind those that are selected.
            let rows = selection.0 as u32 + u32::from(WIDE_ROWS);
            cx.builder.shared("selection", Pointee::Scalar(Scalar::U32), rows)
        });
        let memory = self.batch_memory(cx, selection);
        cx.begin_loop();
        Self::break_if_failed(cx);
        Self::break_if_enough(cx, emitter);
        let b = &mut *cx.builder;
        let size = b.u64(morsel.0);
        let start = b.atomic(AtomicOp::Add, counter, size, Scope::Device);
        let start = b.bitcast(start, Scalar::I64);
        let start = Self::from_first(cx, start);
        let b = &mut *cx.builder;
        let done = b.ge(start, job.rows);
        b.break_if(done);
        let size = b.i64(morsel.0 as i64);
        let end = b.add(start, size);
        let end = b.binary(BinaryOp::Min, end, job.rows);
        let flow = if job.flags { Flow::Flag { active: None } } else { Flow::Branch };
        match (selection, staged) {
            (Some(selection), Some(array)) => {
                self.batches(cx, (start, end), selection, &mut |cx, batch| self.write(cx, batch, array))?;
            }
            (Some(selection), None) => {
                self.batches(cx, (start, end), selection, &mut |cx, batch| match &memory {
                    Some(memory) => self.selected_batch(cx, batch, memory, emitter),
                    None => batch.each(cx, |cx, _, row| self.row_in(cx, row, (flow, Pass::Rest), emitter)),
                })?
            }
            (None, _) if memory.is_some() => {
                if let Some(memory) = &memory {
                    self.range_in_batches(cx, (start, end), memory, emitter)?;
                }
            }
            (None, _) if job.wide => {
                for_wide_range(cx, (start, end), &mut |cx, row, is_wide| match is_wide {
                    true => self.wide_row(cx, row, emitter),
                    false => self.row(cx, row, flow, emitter),
                })?
            }
            (None, _) => for_range(cx, "row", start, end, |cx, row| self.row(cx, row, flow, emitter))?,
        }
        cx.end();
        Ok(())
    }
}

/// The blocks that go over the rows together.
#[derive(Clone, Copy)]
struct Team {
    /// The number of this block among them, `i64`.
    block: V,
    /// How many they are, `i64`.
    blocks: V,
}

impl Team {
    /// All of the grid.
    fn of_grid(cx: &mut Context<'_>) -> Team {
        Team { block: wide(cx, Builtin::BlockId), blocks: wide(cx, Builtin::GridDim) }
    }

    /// How many teams there are, up to so many and no more than blocks; the number of this block's, which takes every block whose number has
    /// the same remainder; and that team.
    fn split(self, cx: &mut Context<'_>, most: u32) -> (V, V, Team) {
        let b = &mut *cx.builder;
        let (most, one) = (b.i64(most.into()), b.i64(1));
        let teams = b.binary(BinaryOp::Min, most, self.blocks);
        let (number, block) = (b.rem(self.block, teams), b.div(self.block, teams));
        let behind = b.sub(self.blocks, number);
        let last = b.sub(behind, one);
        let full = b.div(last, teams);
        let blocks = b.add(full, one);
        (teams, number, Team { block, blocks })
    }
}

fn wide(cx: &mut Context<'_>, builtin: Builtin) -> V {
    let value = cx.builder.builtin(builtin);
    cx.builder.convert(value, Scalar::I64)
}
