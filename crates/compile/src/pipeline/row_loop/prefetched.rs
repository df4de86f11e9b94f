//! The row loop in which a thread of a SIMT device loads the columns of several rows side by side at once, and works on these rows one by
//! one: `context::prefetched_rows`. Of narrow columns a load of one value a thread brings a warp 32 bytes, which the
//! caches serve no faster than 512.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builtin};

use super::grid::{Grid, GridTurn, wide};
use super::{Emitted, RowLoopStrategy, TurnRows, blocked_shape};
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::operator::Flow;
use crate::operator::roles::{Arrival, Emitter};
use crate::pipeline::body::Body;
use crate::pipeline::launches::MoreRows;
use crate::pipeline::row::clamp;
use crate::pipeline::variants::Facts;
use crate::variant::axes::RowArrangement;

/// Bytes of a row of which several are loaded at once, by rule: those of eight take 32 registers, half of what a thread has where a
/// multiprocessor is half full.
const MOST_PREFETCHED_BYTES: u32 = 16;

/// Rows that are loaded several at once.
pub(super) struct Prefetched;

impl Prefetched {
    /// Whether rows that come one by one, with a flag, are loaded several at once.
    pub(super) fn choose(facts: &Facts<'_>) -> Result<bool, Unsupported> {
        if !facts.come_alone_with_flags() || !facts.is_simt() || !facts.pipeline.sink.takes_prefetched() {
            return Ok(false);
        }
        let why = match facts.pipeline.source.prefetched_bytes() > MOST_PREFETCHED_BYTES {
            true => Err("columns of several rows would take too many registers"),
            false => Ok("one load brings a column's values of several rows"),
        };
        let why_not = Prefetched::why_not(facts).err();
        let values = [RowArrangement::Striped, RowArrangement::Blocked];
        facts.takes(values, why_not.as_deref(), facts.in_resolution(why), None)
    }

    fn why_not(facts: &Facts<'_>) -> Result<(), String> {
        let shape = blocked_shape(facts)?;
        if facts.pipeline.source.prefetched_bytes() == 0 {
            return Err("no column can be loaded for several rows at once".into());
        }
        let more = MoreRows::default().and(TurnRows::Prefetched);
        facts.pipeline.fits(facts.environment.target, &shape, more)
    }

    /// A thread's rows in a turn.
    ///
    /// Blocks of which some rows are before the first or beyond the end load them one by one, neighbouring threads neighbouring rows, so
    /// that few rows are many lanes'. All threads of a block do the same: warps are together wherever a row comes to the sink.
    fn rows_of_turn(
        body: &Body<'_>,
        cx: &mut Context<'_>,
        (turn, rows): (&GridTurn, V),
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let &GridTurn { row, current, first, threads } = turn;
        let b = &mut *cx.builder;
        let of_block = b.mul_int(threads, WIDE_ROWS);
        let end = b.add(current, of_block);
        let (begins, ends) = (b.ge(current, first), b.ge(rows, end));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        body.pipeline.source.prefetch(cx, row);
        let stay_single = !body.pipeline.steps.iter().any(|step| step.expands());
        if stay_single {
            emitter.begin_rows(cx, WIDE_ROWS.into());
        }
        for number in 0..WIDE_ROWS {
            cx.begin_repetition(number == 0);
            cx.begin_prefetched(number);
            let this = cx.builder.add_int(row, number);
            round(body, cx, (this, Flow::Flag { active: None }), emitter)?;
        }
        cx.end_repetition();
        cx.end_prefetched();
        if stay_single {
            emitter.end_rows(cx);
        }
        cx.begin_else();
        let stop = cx.builder.binary(BinaryOp::Min, end, rows);
        for_each_apart(cx, (turn, stop), |cx, row| {
            let begun = cx.builder.ge(row, first);
            let row = cx.builder.binary(BinaryOp::Max, row, first);
            let (row, flow) = clamp(cx, row, rows);
            let active = flow.active().map_or(begun, |in_range| cx.builder.and(begun, in_range));
            round(body, cx, (row, Flow::Flag { active: Some(active) }), emitter)
        })?;
        cx.end();
        Ok(())
    }
}

/// The rows of a block up to `stop` one by one, those of its threads side by side.
fn for_each_apart(
    cx: &mut Context<'_>,
    (turn, stop): (&GridTurn, V),
    each: impl FnOnce(&mut Context<'_>, V) -> Emitted,
) -> Emitted {
    let begin = cx.builder.var_of("begin", turn.current);
    cx.begin_loop();
    let current = cx.builder.read(begin);
    let done = cx.builder.ge(current, stop);
    cx.builder.break_if(done);
    let thread = wide(cx, Builtin::ThreadId);
    let row = cx.builder.add(current, thread);
    each(cx, row)?;
    let next = cx.builder.add(current, turn.threads);
    cx.builder.assign(begin, next);
    cx.end();
    Ok(())
}

/// A row that is all that a thread brings in a round.
fn round(
    body: &Body<'_>,
    cx: &mut Context<'_>,
    (row, flow): (V, Flow),
    emitter: &mut dyn Emitter,
) -> Emitted {
    emitter.begin_round(cx);
    body.row(cx, row, flow, emitter)?;
    emitter.end_round(cx)
}

impl RowLoopStrategy for Prefetched {
    fn turn_rows(&self) -> TurnRows {
        TurnRows::Prefetched
    }

    fn arrival(&self, _alone: Arrival) -> Arrival {
        Arrival::Prefetched
    }

    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        let grid = Grid { body, rows_at_once: WIDE_ROWS.into() };
        grid.emit(cx, emitter, &mut |cx, turn, emitter| {
            Prefetched::rows_of_turn(body, cx, (turn, body.rows), emitter)
        })
    }
}
