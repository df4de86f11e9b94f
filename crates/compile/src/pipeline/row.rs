//! A row on its way: bound to its source, through the steps, into the sink.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Type};

use super::body::Body;
use super::row_loop::Emitted;
use super::row_loop::Rest;
use crate::context::Context;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Next, Step};

/// Turns of a loop that are emitted one after the other.
const TURNS_AT_ONCE: i64 = 4;

/// Which steps a pass over a row carries out.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pass {
    /// All.
    Whole,
    /// None: the row is bound, and steps follow elsewhere.
    None,
    /// Those up to the last filter.
    Filters,
    /// The projections; the row has passed the filters.
    Projections,
    /// What the row loop has left of them.
    Rest,
}

impl Body<'_> {
    /// One row of the source through all steps into the sink.
    pub(super) fn row(&self, cx: &mut Context<'_>, row: V, flow: Flow, emitter: &mut dyn Emitter) -> Emitted {
        self.row_in(cx, row, (flow, Pass::Whole), emitter)
    }

    /// As [`Body::row`], through the steps of a pass.
    pub(super) fn row_in(
        &self,
        cx: &mut Context<'_>,
        row: V,
        way: (Flow, Pass),
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        emitter.begin_row(cx);
        self.enter(cx, row, way, &mut |cx, flow| {
            mark(cx, self.pipeline.steps.len(), flow);
            emitter.row(cx, row, flow)
        })?;
        cx.end_row();
        emitter.end_row(cx, row);
        cx.end_scratch_row();
        Ok(())
    }

    /// The row, where there is one at this place of the source, through the steps of a pass.
    pub(super) fn enter(
        &self,
        cx: &mut Context<'_>,
        row: V,
        (flow, pass): (Flow, Pass),
        next: &mut Next<'_>,
    ) -> Emitted {
        let source = &self.pipeline.source;
        let live = source.live(cx, row);
        let flow = match (live, flow) {
            (Some(live), Flow::Branch) => {
                cx.begin_if(live);
                source.bind(cx, row)?;
                self.steps(cx, (flow, pass), next)?;
                cx.end();
                return Ok(());
            }
            (Some(live), Flow::Flag { active: Some(active) }) => {
                Flow::Flag { active: Some(cx.builder.and(active, live)) }
            }
            (Some(live), Flow::Flag { active: None }) => Flow::Flag { active: Some(live) },
            (None, flow) => flow,
        };
        source.bind(cx, row)?;
        self.steps(cx, (flow, pass), next)
    }

    /// The steps of a pass, one inside the other.
    pub(super) fn steps(&self, cx: &mut Context<'_>, way: (Flow, Pass), next: &mut Next<'_>) -> Emitted {
        self.steps_between(cx, (0, self.pipeline.steps.len()), way, next)
    }

    /// Those from number `index` on and before number `end`.
    pub(super) fn steps_between(
        &self,
        cx: &mut Context<'_>,
        (index, end): (usize, usize),
        (flow, pass): (Flow, Pass),
        next: &mut Next<'_>,
    ) -> Emitted {
        let steps = &self.pipeline.steps;
        let Some(step) = steps.get(index).filter(|_| index < end) else { return next(cx, flow) };
        let rest = match pass {
            Pass::Whole => Rest::Step,
            Pass::Filters if steps[index..].iter().any(|step| step.condition().is_some()) => Rest::Step,
            Pass::Projections if step.condition().is_none() => Rest::Step,
            Pass::None | Pass::Filters | Pass::Projections => Rest::Nothing,
            Pass::Rest => self.variants.row_loop.rest(index),
        };
        let step = match rest {
            Rest::Step => &**step,
            Rest::Filter(filter) => filter as &dyn Step,
            Rest::Nothing => return self.steps_between(cx, (index + 1, end), (flow, pass), next),
        };
        mark(cx, index, flow);
        step.consume(cx, flow, self.variants.speculation.of_step(index), &mut |cx, flow| {
            self.steps_between(cx, (index + 1, end), (flow, pass), next)
        })
    }
}

/// Lets the device count the lanes that come with rows to the step of this number, or behind the last one to the sink.
pub(super) fn mark(cx: &mut Context<'_>, step: usize, flow: Flow) {
    if !cx.target.counts_marks {
        return;
    }
    match flow.active() {
        // Several rows of a lane, some of which may be there.
        Some(active) if cx.builder.ty(active) != Type::BOOL => {}
        Some(active) => {
            cx.begin_if(active);
            cx.builder.mark(step as u32);
            cx.end();
        }
        None => cx.builder.mark(step as u32),
    }
}

/// A lane beyond the end reads the last row, and takes no part.
pub(super) fn clamp(cx: &mut Context<'_>, row: V, rows: V) -> (V, Flow) {
    let in_range = cx.builder.lt(row, rows);
    let last = cx.builder.sub_int(rows, 1);
    let row = cx.builder.binary(BinaryOp::Min, row, last);
    (row, Flow::Flag { active: Some(in_range) })
}

/// `for index in from..to` over `i64`.
pub(super) fn for_range(
    cx: &mut Context<'_>,
    name: &str,
    from: V,
    to: V,
    body: impl FnOnce(&mut Context<'_>, V) -> Emitted,
) -> Emitted {
    let index = cx.builder.var_of(name, from);
    cx.begin_loop();
    let current = cx.builder.read(index);
    let done = cx.builder.ge(current, to);
    cx.builder.break_if(done);
    body(cx, current)?;
    let next = cx.builder.add_int(current, 1);
    cx.builder.assign(index, next);
    cx.end();
    Ok(())
}

/// As [`for_range`], [`TURNS_AT_ONCE`] at once as long as there are so many: for a body of few instructions, beside which those of the
/// loop count, and what a register is spilled for.
pub(super) fn for_range_unrolled(
    cx: &mut Context<'_>,
    name: &str,
    from: V,
    to: V,
    body: &mut dyn FnMut(&mut Context<'_>, V) -> Emitted,
) -> Emitted {
    let index = cx.builder.var_of(name, from);
    cx.begin_loop();
    let current = cx.builder.read(index);
    let next = cx.builder.add_int(current, TURNS_AT_ONCE);
    let beyond = cx.builder.lt(to, next);
    cx.builder.break_if(beyond);
    for turn in 0..TURNS_AT_ONCE {
        let row = cx.builder.add_int(current, turn);
        body(cx, row)?;
    }
    cx.builder.assign(index, next);
    cx.end();
    let rest = cx.builder.read(index);
    for_range(cx, name, rest, to, |cx, row| body(cx, row))
}
