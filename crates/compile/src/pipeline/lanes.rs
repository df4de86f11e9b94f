//! Rows on their way through a pipeline in which the lanes of a warp exchange rows at some *points*.
//!
//! Lanes exchange rows where all of them are together. So the steps between two points stand in branches of their own, which
//! end with a note of whether the lane's row has come through and of the registers that it stands on; behind them the lanes
//! are together, the point deals rows out anew, and the next steps go on from there. What waits in buffers when there are no
//! more rows of the source comes through in turns of the row loop that bring no new rows.

use std::collections::BTreeSet;

use kelpie_kir::Type;
use kelpie_kir::builder::{V, Var};

use super::Pipeline;
use super::body::Body;
use super::row::Pass;
use crate::context::{CarriedRow, Context, Unsupported};
use crate::operator::Flow;
use crate::operator::refill::Refill;
use crate::operator::roles::{Emitter, Next, Step};
use crate::variant::axes::LaneRefill;

/// The points of a pipeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Points {
    /// The numbers of the steps before which lanes are refilled.
    pub refills: Vec<usize>,
    /// Of 32 lanes, those with rows at which a warp goes on.
    pub threshold: u64,
}

impl Points {
    /// Where lanes of a pipeline are refilled; or why they are not.
    pub(super) fn refills(pipeline: &Pipeline, refill: LaneRefill) -> Result<Vec<usize>, String> {
        let is_wanted = |step: &dyn Step| match refill {
            LaneRefill::Off => false,
            LaneRefill::Filters => step.condition().is_some(),
            LaneRefill::All => step.drops(),
        };
        let mut refills = Vec::new();
        // Behind a step that makes several rows of one lanes are in loops of their own.
        let steps = pipeline.steps.iter().take_while(|step| !step.expands());
        for (index, step) in steps.enumerate() {
            // Of filters one behind the other only the last one counts.
            let next = pipeline.steps.get(index + 1);
            let goes_on = step.condition().is_some() && next.is_some_and(|next| next.condition().is_some());
            if is_wanted(&**step) && !goes_on {
                refills.push(index + 1);
            }
        }
        match refills.is_empty() {
            true => Err("no step before the first expansion drops rows".into()),
            false => Ok(refills),
        }
    }

    /// Turns of the row loop behind the last row of the source, for rows that wait: each point gives its rows to the next
    /// one.
    pub(super) fn last_turns(&self) -> u64 {
        self.refills.len() as u64
    }

    /// Whether threads may be apart where rows come to the sink.
    pub(super) fn diverge(&self, pipeline: &Pipeline) -> bool {
        let first = self.refills.last().copied().unwrap_or(0);
        pipeline.steps[first..].iter().any(|step| step.diverges())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.refills.is_empty()
    }
}

/// What a point is given: whether there is a row, and the row.
struct Arrived {
    live: Var,
    row: CarriedRow,
    registers: Vec<Var>,
}

/// A turn of the row loop.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The row of the source, `i64`.
    pub row: V,
    /// Whether it is one (`bool`).
    pub in_range: V,
    /// Whether there are no more rows of the source (`bool`, the same in the warp).
    pub is_last: V,
}

impl Body<'_> {
    /// A turn of the row loop for each lane of a warp.
    pub(super) fn row_by_points(
        &self,
        cx: &mut Context<'_>,
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| {
            self.enter(cx, turn.row, Flow::Branch, Pass::None, next)
        };
        self.behind_point(cx, 0, (turn.in_range, bind), turn, emitter)?;
        cx.end_row();
        Ok(())
    }

    /// The steps from number `from` on, where the lanes of a warp are together. A lane has a row where `active`, which
    /// `bind` makes the current one.
    fn behind_point(
        &self,
        cx: &mut Context<'_>,
        from: usize,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let points = &self.variants.points;
        let Some(at) = points.refills.iter().copied().find(|at| *at > from) else {
            return self.to_sink(cx, from, (active, bind), turn, emitter);
        };
        let arrived = self.to_point(cx, from..at, (active, bind))?;
        let registers: Vec<V> = arrived.registers.iter().map(|register| cx.builder.read(*register)).collect();
        let types: Vec<Type> = registers.iter().map(|register| cx.builder.ty(*register)).collect();
        let refill = Refill::new(cx, &types, points.threshold);
        let live = cx.builder.read(arrived.live);
        let (live, registers) = refill.emit(cx, live, &registers, turn.is_last);
        cx.with_carried(&arrived.row, &registers, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
            self.behind_point(cx, at, (live, bind), turn, emitter)
        })
    }

    /// The last steps, and the sink.
    fn to_sink(
        &self,
        cx: &mut Context<'_>,
        from: usize,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let end = self.pipeline.steps.len();
        if self.variants.flags {
            let flow = Flow::Flag { active: Some(active) };
            return self.segment(cx, from..end, flow, &mut |cx, flow| emitter.row(cx, turn.row, flow));
        }
        cx.begin_if(active);
        bind(cx, &mut |cx, flow| {
            self.segment(cx, from..end, flow, &mut |cx, flow| emitter.row(cx, turn.row, flow))
        })?;
        cx.end();
        Ok(())
    }

    /// The steps up to a point, in branches that are closed there.
    fn to_point(
        &self,
        cx: &mut Context<'_>,
        steps: std::ops::Range<usize>,
        (active, bind): (V, &mut Bind<'_>),
    ) -> Result<Arrived, Unsupported> {
        let columns = self.read_behind(steps.end);
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        let live = cx.builder.var_of("arrived", no);
        let mut arrived = None;
        cx.begin_if(active);
        bind(cx, &mut |cx, flow| {
            self.segment(cx, steps.clone(), flow, &mut |cx, _| {
                let row = cx.carried(&columns)?;
                let carry = |register: &V| cx.builder.var_of("carried", *register);
                let registers = row.registers().iter().map(carry).collect();
                cx.builder.assign(live, yes);
                arrived = Some(Arrived { live, row, registers });
                Ok(())
            })
        })?;
        cx.end();
        arrived.ok_or_else(|| Unsupported::internal("steps that lead to no point"))
    }

    /// Steps one inside the other. What they compute is not computed for rows that are not live: nobody has looked at what
    /// lanes without a row have in their registers.
    fn segment(
        &self,
        cx: &mut Context<'_>,
        steps: std::ops::Range<usize>,
        flow: Flow,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let Some(step) = self.pipeline.steps[..steps.end].get(steps.start) else { return next(cx, flow) };
        step.consume(cx, flow, false, &mut |cx, flow| {
            self.segment(cx, steps.start + 1..steps.end, flow, next)
        })
    }

    /// The columns before a step that it, those behind it and the sink read.
    fn read_behind(&self, step: usize) -> BTreeSet<usize> {
        let mut states = self.needed.clone();
        let mut columns = self.pipeline.sink.read(&mut states);
        for step in self.pipeline.steps[step..].iter().rev() {
            columns = step.read(&columns, &mut states);
        }
        columns
    }
}

/// Makes a lane's row the current one, and emits what follows.
type Bind<'b> = dyn FnMut(&mut Context<'_>, &mut Next<'_>) -> Result<(), Unsupported> + 'b;
