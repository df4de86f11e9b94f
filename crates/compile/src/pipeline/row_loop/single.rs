//! Rows that go through the steps one by one: of a SIMT device's thread one in a turn, or several that lie as far apart as a block has threads.

use kelpie_kir::builder::V;

use super::grid::Grid;
use super::morsels::Morsels;
use super::{Emitted, RowLoopStrategy, TurnRows};
use crate::context::Context;
use crate::operator::Flow;
use crate::operator::roles::{Arrival, Emitter};
use crate::pipeline::body::Body;
use crate::pipeline::row::{clamp, for_range};
use crate::pipeline::variants::Facts;

/// Rows one by one.
pub(in crate::pipeline) struct Single {
    /// A thread may have several of them in a turn.
    takes_several: bool,
}

impl Single {
    pub(super) fn of(facts: &Facts<'_>) -> Single {
        Single { takes_several: facts.come_alone_with_flags() }
    }

    /// The rows from one up to another, one after the other.
    pub(super) fn rows_of_range(
        body: &Body<'_>,
        cx: &mut Context<'_>,
        ((start, end), flow): ((V, V), Flow),
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        for_range(cx, "row", start, end, |cx, row| body.row(cx, row, flow, emitter))
    }
}

impl RowLoopStrategy for Single {
    fn turn_rows(&self) -> TurnRows {
        if self.takes_several { TurnRows::Several } else { TurnRows::One }
    }

    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        if cx.shape.is_serial() {
            return Morsels::of(body, cx)?.each(cx, emitter, &mut |cx, rows, emitter| {
                Single::rows_of_range(body, cx, (rows, body.variants.alone.flow()), emitter)
            });
        }
        let count = emitter.rows_at_once();
        let grid = Grid { body, rows_at_once: count };
        grid.emit(cx, emitter, &mut |cx, turn, emitter| {
            let rows = RowsApart { first: turn.row, end: body.rows, threads: turn.threads, count };
            emitter.begin_round(cx);
            rows.emit(body, cx, body.variants.alone, emitter)?;
            emitter.end_round(cx)
        })
    }
}

/// The rows of a thread in one turn: `count` from `first` on, `threads` apart, as far as they are before `end` (`i64` each).
pub(super) struct RowsApart {
    pub first: V,
    pub end: V,
    pub threads: V,
    pub count: i64,
}

impl RowsApart {
    /// Brings them to the sink.
    pub(super) fn emit(
        &self,
        body: &Body<'_>,
        cx: &mut Context<'_>,
        arrival: Arrival,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let mut row = self.first;
        if self.count == 1 && arrival == Arrival::Flags {
            let (row, flow) = clamp(cx, row, self.end);
            return body.row(cx, row, flow, emitter);
        }
        if self.count == 1 {
            let in_range = cx.builder.lt(row, self.end);
            cx.begin_if(in_range);
            body.row(cx, row, Flow::Branch, emitter)?;
            cx.end();
            return Ok(());
        }
        for index in 0..self.count {
            if index > 0 {
                row = cx.builder.add(row, self.threads);
            }
            cx.begin_repetition(index == 0);
            let (clamped, flow) = clamp(cx, row, self.end);
            body.row(cx, clamped, flow, emitter)?;
        }
        cx.end_repetition();
        Ok(())
    }
}
