//! Rows that go several at once, as wide rows (`context::wide`) up to the sums; and single ones where too few are left.

use std::collections::BTreeSet;

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::grid::{Grid, GridTurn};
use super::morsels::Morsels;
use super::{Candidate, Emitted, RowLoopStrategy, TurnRows};
use crate::context::{Context, WIDE_ROWS};
use crate::lower::supports_wide_rows;
use crate::operator::Flow;
use crate::operator::roles::{Arrival, Emitter, Job};
use crate::pipeline::body::Body;
use crate::pipeline::row::for_range;
use crate::pipeline::variants::Facts;
use crate::variant::axes::WritePlaces;

/// Wide rows.
pub(super) struct Wide;

impl Wide {
    /// The loop where everything has a form for wide rows; or what has not.
    pub(super) fn possible(facts: &Facts<'_>) -> Result<Wide, String> {
        let Facts { pipeline, environment, speculation, .. } = *facts;
        if !facts.points.is_empty() {
            return Err("lanes exchange rows, of which each has one".into());
        }
        if !pipeline.source.is_scan() {
            return Err("the source is no table".into());
        }
        if !speculation.of_all_steps() {
            return Err("a step does more than to filter and project by cheap expressions".into());
        }
        pipeline.sink.takes_wide_rows()?;
        let needed = BTreeSet::new();
        supports_wide_rows((environment.target, environment.shape), |cx| {
            let row = cx.builder.i64(0);
            let job = Job {
                rows: row,
                counting: None,
                needed: &needed,
                arrival: Arrival::Wide,
                places: WritePlaces::Atomic,
                thread_rows: u64::MAX,
            };
            let mut emitter = pipeline.sink.begin(cx, &job)?;
            pipeline.source.bind(cx, row)?;
            let mut flow = Flow::Flag { active: None };
            for step in &pipeline.steps {
                step.consume(cx, flow, true, &mut |_, behind| {
                    flow = behind;
                    Ok(())
                })?;
            }
            emitter.row(cx, row, flow)
        })?;
        Ok(Wide)
    }

    /// A wide row, from row `row` of the source on, through all steps into the sink.
    fn wide_row(body: &Body<'_>, cx: &mut Context<'_>, row: V, emitter: &mut dyn Emitter) -> Emitted {
        cx.begin_wide();
        let done = body.row(cx, row, Flow::Flag { active: None }, emitter);
        cx.end_wide();
        done
    }

    /// The rows of a thread of a SIMT device: one by one where some are before the first that is worked on, or beyond the end.
    fn rows_of_thread(
        body: &Body<'_>,
        cx: &mut Context<'_>,
        (turn, rows): (&GridTurn, V),
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let &GridTurn { row, first, .. } = turn;
        let b = &mut *cx.builder;
        let end = b.add_int(row, WIDE_ROWS);
        let (begins, ends) = (b.ge(row, first), b.ge(rows, end));
        let is_whole = b.and(begins, ends);
        cx.begin_if(is_whole);
        Wide::wide_row(body, cx, row, emitter)?;
        cx.begin_else();
        let from = cx.builder.binary(BinaryOp::Max, row, first);
        let to = cx.builder.binary(BinaryOp::Min, end, rows);
        let flow = body.variants.alone.flow();
        for_range(cx, "row", from, to, |cx, row| body.row(cx, row, flow, emitter))?;
        cx.end();
        Ok(())
    }
}

impl Candidate for Wide {
    fn why(&self) -> Result<&'static str, &'static str> {
        Ok("everything has a form for several rows at once")
    }
}

impl RowLoopStrategy for Wide {
    fn turn_rows(&self) -> TurnRows {
        TurnRows::Wide
    }

    fn shares_out(&self) -> bool {
        false
    }

    fn arrival(&self, _alone: Arrival) -> Arrival {
        Arrival::Wide
    }

    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        if cx.shape.is_serial() {
            let flow = body.variants.alone.flow();
            return Morsels::of(body, cx)?.each(cx, emitter, &mut |cx, rows, emitter| {
                for_wide_range(cx, rows, &mut |cx, row, is_wide| match is_wide {
                    true => Wide::wide_row(body, cx, row, emitter),
                    false => body.row(cx, row, flow, emitter),
                })
            });
        }
        let grid = Grid { body, rows_at_once: WIDE_ROWS.into() };
        grid.emit(cx, emitter, &mut |cx, turn, emitter| {
            emitter.begin_round(cx);
            Wide::rows_of_thread(body, cx, (turn, body.rows), emitter)?;
            emitter.end_round(cx)
        })
    }
}

/// `for row in from..to` over `i64`, [`WIDE_ROWS`] at once where there are so many from a multiple of it on: `body(row, whether
/// it is a wide row)` is emitted twice.
pub(super) fn for_wide_range(
    cx: &mut Context<'_>,
    (from, to): (V, V),
    body: &mut dyn FnMut(&mut Context<'_>, V, bool) -> Emitted,
) -> Emitted {
    let index = cx.builder.var_of("row", from);
    cx.begin_loop();
    let row = cx.builder.read(index);
    let done = cx.builder.ge(row, to);
    cx.builder.break_if(done);
    let b = &mut *cx.builder;
    let (below, zero) = (b.i64(i64::from(WIDE_ROWS) - 1), b.i64(0));
    let odd = b.and(row, below);
    let is_first = b.eq(odd, zero);
    cx.begin_if(is_first);
    cx.begin_loop();
    let row = cx.builder.read(index);
    let next = cx.builder.add_int(row, WIDE_ROWS);
    let beyond = cx.builder.lt(to, next);
    cx.builder.break_if(beyond);
    body(cx, row, true)?;
    cx.builder.assign(index, next);
    cx.end();
    cx.end();
    let row = cx.builder.read(index);
    let is_left = cx.builder.lt(row, to);
    cx.begin_if(is_left);
    body(cx, row, false)?;
    let next = cx.builder.add_int(row, 1);
    cx.builder.assign(index, next);
    cx.end();
    cx.end();
    Ok(())
}
