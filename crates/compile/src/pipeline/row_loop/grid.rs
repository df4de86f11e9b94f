//! The loop of a SIMT device: the grid strides over the rows.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin, Scalar};

use super::Emitted;
use crate::context::{Argument, Context, Unsupported, WIDE_ROWS};
use crate::operator::roles::Emitter;
use crate::pipeline::block_vote::BlockVote;
use crate::pipeline::body::Body;

/// A loop of the grid over all rows.
pub(super) struct Grid<'g> {
    pub body: &'g Body<'g>,
    /// Rows of a thread in a turn.
    pub rows_at_once: i64,
}

/// A turn of the loop, `i64` each.
pub(super) struct GridTurn {
    /// The thread's first row.
    pub row: V,
    /// The block's first row.
    pub current: V,
    /// The first row that is worked on.
    pub first: V,
    /// Threads of a block.
    pub threads: V,
}

/// What is done with the rows of a turn.
type EachTurn<'t> = dyn FnMut(&mut Context<'_>, &GridTurn, &mut dyn Emitter) -> Emitted + 't;

impl Grid<'_> {
    /// All rows, as often as the sink wants to see them: each time by another team of blocks, where there are as many blocks. Teams go over the
    /// rows side by side, so that what one has read is in the last cache for the others, and a block ends one pass instead of all.
    pub(super) fn emit(
        &self,
        cx: &mut Context<'_>,
        emitter: &mut dyn Emitter,
        each: &mut EachTurn<'_>,
    ) -> Emitted {
        let (team, passes) = (Team::of_grid(cx), self.body.sink.passes());
        if passes == 1 {
            return self.stride(cx, team, emitter, each);
        }
        if !self.body.variants.points.is_empty() {
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
        self.stride(cx, team, emitter, each)?;
        emitter.end_pass(cx);
        let next = cx.builder.add(current, teams);
        cx.builder.assign(pass, next);
        cx.end();
        Ok(())
    }

    /// `for base in (block * threads ..).step_by(blocks * threads)`: the loop is uniform in the block, the row is not.
    fn stride(
        &self,
        cx: &mut Context<'_>,
        Team { block, blocks }: Team,
        emitter: &mut dyn Emitter,
        each: &mut EachTurn<'_>,
    ) -> Emitted {
        let (thread, threads) = (wide(cx, Builtin::ThreadId), wide(cx, Builtin::BlockDim));
        if emitter.rows_at_once() > cx.shape.rows_per_thread.into() {
            return Err(Unsupported::internal("more rows of a thread at once than launches are made for"));
        }
        let is_aligned = self.body.variants.row_loop.turn_rows().are_aligned();
        let b = &mut *cx.builder;
        let count = b.i64(self.rows_at_once);
        let block_rows = b.mul(threads, count);
        let stride = b.mul(block_rows, blocks);
        let offset = b.mul(block, block_rows);
        let first = cx.argument("first_row", Scalar::I64, Argument::FirstRow);
        let b = &mut *cx.builder;
        let base = match is_aligned {
            true => {
                let aligned = b.and_int(first, -i64::from(WIDE_ROWS));
                b.add(offset, aligned)
            }
            false => b.add(offset, first),
        };
        let base = b.var_of("base", base);
        let end = self.end(cx, first, stride);
        let together = self.body.variants.points.in_block.then(|| BlockVote::begin(cx));
        cx.begin_loop();
        let current = cx.builder.read(base);
        let done = cx.builder.ge(current, end);
        cx.builder.break_if(done);
        match together {
            Some(vote) => vote.break_if_enough(cx, emitter),
            None => Body::break_if_enough(cx, emitter),
        }
        let thread = if is_aligned { cx.builder.mul(thread, count) } else { thread };
        let row = cx.builder.add(current, thread);
        each(cx, &GridTurn { row, current, first, threads }, emitter)?;
        let next = cx.builder.add(current, stride);
        cx.builder.assign(base, next);
        cx.end();
        Ok(())
    }

    /// The end of the loop: with turns for what waits where lanes exchange rows.
    fn end(&self, cx: &mut Context<'_>, first: V, stride: V) -> V {
        let (points, rows) = (&self.body.variants.points, self.body.rows);
        if points.is_empty() {
            return rows;
        }
        let b = &mut *cx.builder;
        let turns = b.i64(points.last_turns() as i64);
        let more = b.mul(stride, turns);
        let with_last = b.add(rows, more);
        // Where there are no rows none wait for the last turns, whose lanes read the last row.
        let some = b.lt(first, rows);
        b.select(some, with_last, rows)
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

/// A number of the launch as `i64`.
pub(super) fn wide(cx: &mut Context<'_>, builtin: Builtin) -> V {
    let value = cx.builder.builtin(builtin);
    cx.builder.convert(value, Scalar::I64)
}
