//! Rows on their way through a pipeline in which the lanes of a warp exchange rows at some *points*.
//!
//! Lanes exchange rows where all of them are together. So the steps between two points stand in branches of their own, which
//! end with a note of whether the lane's row has come through and of the registers that it stands on; behind them the lanes
//! are together, the point deals rows out anew, and the next steps go on from there. What waits in buffers when there are no
//! more rows of the source comes through in turns of the row loop that bring no new rows.

mod texts;

use std::collections::BTreeSet;

use kelpie_kir::Type;
use kelpie_kir::builder::{V, Var};

use super::body::Body;
use super::points::ExchangePoint;
use super::row::{Pass, mark};
use crate::context::lanes::any;
use crate::context::{CarriedRow, Context, Unsupported};
use crate::operator::Flow;
use crate::operator::block_refill::BlockRefill;
use crate::operator::expand::{self, Ranges};
use crate::operator::queue::Queue;
use crate::operator::refill::Refill;
use crate::operator::roles::{Emitter, Expansion, Next};
use crate::operator::staged::Staged;
use crate::operator::walk::Walk;
use crate::table::index::Positions;
use crate::table::together::Found;
use crate::variant::axes::{CarriedRows, MatchLanes, WritePlaces};

/// What a point is given: whether there is a row, and the row.
struct Arrived {
    live: Var,
    row: CarriedRow,
    registers: Vec<Var>,
}

impl Arrived {
    fn registers(&self, cx: &mut Context<'_>) -> Vec<V> {
        read_all(cx, &self.registers)
    }
}

fn read_all(cx: &mut Context<'_>, registers: &[Var]) -> Vec<V> {
    registers.iter().map(|register| cx.builder.read(*register)).collect()
}

fn types_of(cx: &mut Context<'_>, registers: &[V]) -> Vec<Type> {
    registers.iter().map(|register| cx.builder.ty(*register)).collect()
}

/// A range without numbers.
fn new_range(cx: &mut Context<'_>) -> Positions {
    let zero = cx.builder.u32(0);
    let [begin, count] = ["range", "matches"].map(|name| cx.builder.var_of(name, zero));
    Positions { begin, count }
}

/// Where a row is on its way: the number of the next point, and of the next step; and what was found for that, where its keys have been
/// looked for.
#[derive(Clone, Copy)]
struct Way {
    point: usize,
    step: usize,
    found: Option<Found>,
}

impl Way {
    /// At the point of the same number before a step.
    fn to(self, step: usize) -> Way {
        Way { step, found: self.found.filter(|_| self.step == step), ..self }
    }

    /// Behind the point, before a step.
    fn behind(self, step: usize) -> Way {
        Way { point: self.point + 1, step, found: None }
    }
}

/// A turn of the row loop.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    /// The row of the source, `i64`.
    pub row: V,
    /// Whether it is one (`bool`), or, in a launch that drains a queue, whether there is a piece with the warp's number.
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
        let columns = self.read_behind(0);
        let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| {
            self.enter(cx, turn.row, Flow::Branch, Pass::None, &mut |cx, flow| match self
                .variants
                .points
                .carried
            {
                CarriedRows::Values => cx.with_loaded(&columns, |cx| next(cx, flow)),
                CarriedRows::Places => next(cx, flow),
            })
        };
        let active = match self.queue {
            Some(_) => {
                let drains = Queue::drains(cx);
                let brings = cx.builder.not(drains);
                cx.builder.and(turn.in_range, brings)
            }
            None => turn.in_range,
        };
        let way = Way { point: 0, step: 0, found: None };
        self.together(cx, way, (active, bind), turn, emitter)?;
        cx.end_row();
        Ok(())
    }

    /// What follows where the lanes of a warp are together. A lane has a row where `active`, which `bind` makes the current
    /// one.
    fn together(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        match self.variants.points.at.get(way.point) {
            None => self.to_sink(cx, way, (active, bind), turn, emitter),
            Some((at, ExchangePoint::Refill)) => {
                let columns = self.read_behind(*at);
                let arrived = self.to_point(cx, (way, *at), (active, bind), &columns, &mut |_| Ok(()))?;
                let registers = arrived.registers(cx);
                let types = types_of(cx, &registers);
                let live = cx.builder.read(arrived.live);
                let points = &self.variants.points;
                let in_block = match points.waits_in_block(way.point) {
                    true => BlockRefill::new(cx, way.point, (&types, points.threshold)),
                    false => None,
                };
                let (live, registers) = match in_block {
                    Some(refill) => refill.emit(cx, live, &registers, turn.is_last),
                    None => {
                        let refill = Refill::new(cx, &types, points.threshold);
                        refill.emit(cx, live, &registers, turn.is_last)
                    }
                };
                let next = way.behind(*at);
                cx.with_carried(&arrived.row, &registers, |cx| {
                    let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
                    self.together(cx, next, (live, bind), turn, emitter)
                })
            }
            Some((at, ExchangePoint::Expand(matches))) => {
                let expansion = self.variants.points.expansion(self.pipeline, *at);
                let expansion = expansion.map_err(Unsupported::internal)?;
                let place = (way, way.to(*at), *matches);
                match expansion.only_decides() {
                    true => self.decide(cx, place, expansion, (active, bind), turn, emitter),
                    false => self.expand(cx, place, expansion, (active, bind), turn, emitter),
                }
            }
            Some((at, ExchangePoint::Keys)) => {
                self.find_keys(cx, (way, way.to(*at)), (active, bind), turn, emitter)
            }
            Some((at, ExchangePoint::Run)) => {
                self.match_runs(cx, (way, way.to(*at)), (active, bind), turn, emitter)
            }
            Some((at, ExchangePoint::Match)) => {
                self.match_texts(cx, (way, way.to(*at)), (active, bind), turn, emitter)
            }
        }
    }

    /// The steps on the way `from` the last point, and the rows that an expansion makes, each in the lane that takes it.
    fn expand(
        &self,
        cx: &mut Context<'_>,
        (from, way, matches): (Way, Way, MatchLanes),
        expansion: &dyn Expansion,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let columns = expansion.needed(&self.read_behind(way.step + 1));
        let range = new_range(cx);
        let arrived = self.to_point(cx, (from, way.step), (active, bind), &columns, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            range_of_row(cx, expansion, way.found, range)
        })?;
        if let Some(queue) = self.queue
            && self.variants.points.first_expansion(self.pipeline).is_ok_and(|(first, _)| first == way.point)
        {
            queue.take(cx, (turn.row, turn.in_range), range, &arrived.registers);
            let registers = arrived.registers(cx);
            queue.put(cx, range, &registers);
        }
        let registers = arrived.registers(cx);
        let (begin, count) = (cx.builder.read(range.begin), cx.builder.read(range.count));
        let ranges = Ranges { begin, count, registers: &registers };
        // Rows that wait behind the expansion are reached although there is nothing to expand.
        let points = &self.variants.points.at[way.point + 1..];
        let waits = points.iter().any(|(_, point)| point.keeps_rows());
        let once = if waits { turn.is_last } else { cx.builder.bool(false) };
        let next_way = way.behind(way.step + 1);
        let taken = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            cx.with_carried(&arrived.row, registers, |cx| {
                let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.item(cx, number, next);
                self.together(cx, next_way, (active, bind), turn, emitter)
            })
        };
        match matches {
            MatchLanes::Staged => {
                let types = types_of(cx, &registers);
                match Staged::new(cx, way.point, &types) {
                    Some(staged) => staged.emit(cx, &ranges, (turn.is_last, once), taken),
                    None => expand::packed(cx, &ranges, once, taken),
                }
            }
            MatchLanes::Packed => expand::packed(cx, &ranges, once, taken),
            MatchLanes::Warp | MatchLanes::Lane => expand::by_leaders(cx, &ranges, once, taken),
            MatchLanes::Refill => {
                let types = types_of(cx, &registers);
                let walk = Walk::new(cx, &types, self.variants.points.threshold);
                walk.emit(cx, &ranges, (turn.is_last, once), taken)
            }
        }
    }

    /// As [`Body::expand`], where all that counts is whether one of the new rows goes on.
    fn decide(
        &self,
        cx: &mut Context<'_>,
        (from, way, matches): (Way, Way, MatchLanes),
        expansion: &dyn Expansion,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let behind = self.read_behind(way.step + 1);
        let range = new_range(cx);
        let mut tested = None;
        let (needed, kept) = (expansion.needed(&behind), expansion.kept(&behind));
        let arrived = self.to_point(cx, (from, way.step), (active, bind), &kept, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            tested = Some(self.carry(cx, &needed, expansion.loads_before())?);
            range_of_row(cx, expansion, way.found, range)
        })?;
        let (row, registers) = tested.ok_or_else(|| Unsupported::internal("an expansion of no row"))?;
        let registers = read_all(cx, &registers);
        let (begin, count) = (cx.builder.read(range.begin), cx.builder.read(range.count));
        let ranges = Ranges { begin, count, registers: &registers };
        let test = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
            let holds = cx.builder.var_of("holds", no);
            cx.begin_if(active);
            cx.with_carried(&row, registers, |cx| {
                expansion.item(cx, number, &mut |cx, _| {
                    cx.builder.assign(holds, yes);
                    Ok(())
                })
            })?;
            cx.end();
            Ok(cx.builder.read(holds))
        };
        let found = match matches {
            MatchLanes::Packed | MatchLanes::Staged => expand::any_packed(cx, &ranges, test)?,
            MatchLanes::Warp | MatchLanes::Lane => expand::any_by_leaders(cx, &ranges, test)?,
            MatchLanes::Refill => {
                return Err(Unsupported::internal("a row that would not come back to its lane"));
            }
        };
        let (live, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        let next_way = way.behind(way.step + 1);
        cx.with_carried(&arrived.row, &registers, |cx| {
            let bind =
                &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.decided(cx, (range, found), next);
            self.together(cx, next_way, (live, bind), turn, emitter)
        })
    }

    /// The last steps, and the sink.
    fn to_sink(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let (from, end) = (way.step, self.pipeline.steps.len());
        let found = way.to(end).found;
        let mut sink = |cx: &mut Context<'_>, flow| {
            mark(cx, end, flow);
            match found {
                Some(found) => emitter.row_found(cx, turn.row, found),
                None => emitter.row(cx, turn.row, flow),
            }
        };
        if !self.variants.flags {
            cx.begin_if(active);
            bind(cx, &mut |cx, flow| self.segment(cx, (way, end), flow, &mut sink))?;
            cx.end();
            return Ok(());
        }
        // The sink wants lanes together.
        let columns = self.read_behind(from);
        let arrived = self.to_point(cx, (way, from), (active, bind), &columns, &mut |_| Ok(()))?;
        let (live, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        // Most turns bring rows to no lane. Where a block writes together, all of it goes on.
        let in_warps = self.variants.places != WritePlaces::Block;
        if in_warps {
            let any = any(cx, live);
            cx.begin_if(any);
        }
        cx.with_carried(&arrived.row, &registers, |cx| {
            self.segment(cx, (way, end), Flow::Flag { active: Some(live) }, &mut sink)
        })?;
        if in_warps {
            cx.end();
        }
        Ok(())
    }

    /// The steps up to a point, in branches that are closed there. Of the row `columns` are read behind it; `at_end` emits what
    /// else is done with the row.
    fn to_point(
        &self,
        cx: &mut Context<'_>,
        (way, end): (Way, usize),
        (active, bind): (V, &mut Bind<'_>),
        columns: &BTreeSet<usize>,
        at_end: &mut dyn FnMut(&mut Context<'_>) -> Result<(), Unsupported>,
    ) -> Result<Arrived, Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        let live = cx.builder.var_of("arrived", no);
        let mut arrived = None;
        cx.begin_if(active);
        bind(cx, &mut |cx, flow| {
            self.segment(cx, (way, end), flow, &mut |cx, _| {
                let (row, registers) = self.carry(cx, columns, false)?;
                cx.builder.assign(live, yes);
                arrived = Some(Arrived { live, row, registers });
                at_end(cx)
            })
        })?;
        cx.end();
        arrived.ok_or_else(|| Unsupported::internal("steps that lead to no point"))
    }

    /// The current row as far as `columns` of it are read later, and variables with what it stands on. `loads_before`: columns are loaded
    /// whatever the variant is.
    fn carry(
        &self,
        cx: &mut Context<'_>,
        columns: &BTreeSet<usize>,
        loads_before: bool,
    ) -> Result<(CarriedRow, Vec<Var>), Unsupported> {
        let row = match self.variants.points.carried {
            CarriedRows::Places if !loads_before => cx.carried(columns)?,
            CarriedRows::Values | CarriedRows::Places => cx.with_loaded(columns, |cx| cx.carried(columns))?,
        };
        let registers = row.registers().iter();
        let registers = registers.map(|register| cx.builder.var_of("carried", *register)).collect();
        Ok((row, registers))
    }

    /// Steps one inside the other. What they compute is not computed for rows that are not live: nobody has looked at what
    /// lanes without a row have in their registers.
    fn segment(
        &self,
        cx: &mut Context<'_>,
        (way, end): (Way, usize),
        flow: Flow,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let Some(step) = self.pipeline.steps[..end].get(way.step) else { return next(cx, flow) };
        let rest = (Way { step: way.step + 1, found: None, ..way }, end);
        if self.variants.is_tried(way.step) {
            return self.segment(cx, rest, flow, next);
        }
        mark(cx, way.step, flow);
        let next = &mut |cx: &mut Context<'_>, flow| self.segment(cx, rest, flow, next);
        match way.found {
            Some(found) => step.consume_found(cx, found, next),
            None => step.consume(cx, flow, false, next),
        }
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
}

/// Sets the range of the current row, whose keys may have been looked for.
fn range_of_row(
    cx: &mut Context<'_>,
    expansion: &dyn Expansion,
    found: Option<Found>,
    range: Positions,
) -> Result<(), Unsupported> {
    match found {
        Some(found) => expansion.range_of(cx, found, range),
        None => expansion.range(cx, range),
    }
}

/// Makes a lane's row the current one, and emits what follows.
type Bind<'b> = dyn FnMut(&mut Context<'_>, &mut Next<'_>) -> Result<(), Unsupported> + 'b;
