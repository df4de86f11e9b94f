//! Rows on their way through a pipeline in which the lanes of a warp exchange rows at some *points*.
//!
//! Lanes exchange rows where all of them are together. So the steps between two points stand in branches of their own, which
//! end with a note of whether the lane's row has come through and of the registers that it stands on; behind them the lanes
//! are together, the point deals rows out anew, and the next steps go on from there. What waits in buffers when there are no
//! more rows of the source comes through in turns of the row loop that bring no new rows.

mod text_points;

use std::collections::BTreeSet;

use kelpie_kir::Type;
use kelpie_kir::builder::{V, Var};

use super::grid::Grid;
use super::{Emitted, Rest, RowLoopStrategy};
use crate::context::lanes::any;
use crate::context::{Context, Leaving, LiveColumns, Unsupported};
use crate::operator::Flow;
use crate::operator::block_refill::BlockRefill;
use crate::operator::expand::{self, Ranges};
use crate::operator::queue::Queue;
use crate::operator::refill::Refill;
use crate::operator::roles::{Emitter, Expansion, Next};
use crate::operator::staged::Staged;
use crate::operator::walk::Walk;
use crate::pipeline::body::Body;
use crate::pipeline::points::{ExchangePoint, Points};
use crate::pipeline::row::{Pass, mark};
use crate::table::key_rows::Positions;
use crate::table::shared_keys::Found;
use crate::variant::axes::{MatchLanes, MovedColumns, WritePlaces};

/// Rows of a warp, which its lanes exchange at the points of the pipeline.
pub(super) struct Lanes;

impl RowLoopStrategy for Lanes {
    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        if emitter.rows_at_once() != 1 {
            return Err(Unsupported::internal("lanes exchange rows, of which a thread has several at once"));
        }
        let grid = Grid { body, rows_at_once: 1 };
        grid.emit(cx, emitter, &mut |cx, turn, emitter| {
            emitter.begin_round(cx);
            let row = turn.row;
            let (in_range, is_last) = (cx.builder.lt(row, body.rows), cx.builder.ge(turn.current, body.rows));
            Turn { body, row, in_range, is_last }.emit(cx, emitter)?;
            emitter.end_round(cx)
        })
    }
}

/// What a point is given: whether there is a row, and the row.
struct Arrived {
    live: Var,
    row: LiveColumns,
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

/// Where a row is on its way: the number of the next point, of the next step, and of that before which the point is; and what was found for
/// the next step, where its keys have been looked for.
#[derive(Clone, Copy)]
struct Way {
    point: usize,
    step: usize,
    end: usize,
    found: Option<Found>,
}

impl Way {
    /// What was found for the step, or the sink, at its end.
    fn found_at_end(self) -> Option<Found> {
        self.found.filter(|_| self.step == self.end)
    }

    /// Behind the point, before a step.
    fn behind(self, step: usize) -> Way {
        Way { point: self.point + 1, step, found: None, ..self }
    }
}

/// The steps of a way up to its end, and the columns of the row that are read behind them.
struct Segment<'s> {
    way: Way,
    columns: &'s BTreeSet<usize>,
}

/// Rows that come to where the lanes of a warp are together: whether a lane has one (`bool`), and what makes it the current one.
struct Coming<'b> {
    active: V,
    bind: &'b mut Bind<'b>,
}

/// Makes a lane's row the current one, and emits what follows.
type Bind<'b> = dyn FnMut(&mut Context<'_>, &mut Next<'_>) -> Emitted + 'b;

/// A step that makes rows of one, or decides about one, and who takes them.
struct Expanding<'e> {
    way: Way,
    matches: MatchLanes,
    expansion: &'e dyn Expansion,
}

/// A turn of the row loop in which the lanes of a warp exchange rows.
pub(super) struct Turn<'t> {
    pub body: &'t Body<'t>,
    /// The row of the source, `i64`.
    pub row: V,
    /// Whether it is one (`bool`), or, in a launch that drains a queue, whether there is a piece with the warp's number.
    pub in_range: V,
    /// Whether there are no more rows of the source (`bool`, the same in the warp).
    pub is_last: V,
}

impl Turn<'_> {
    fn points(&self) -> &Points {
        &self.body.variants.points
    }

    /// The turn for each lane of a warp.
    pub(super) fn emit(&self, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted {
        let columns = self.body.read_behind(0);
        let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| {
            let way = (Flow::Branch, Pass::None);
            self.body.enter(cx, self.row, way, &mut |cx, flow| match self.points().columns {
                MovedColumns::Values => cx.with_loaded(&columns, |cx| next(cx, flow)),
                MovedColumns::Places => next(cx, flow),
            })
        };
        let active = match self.body.queue {
            Some(_) => {
                let drains = Queue::drains(cx);
                let brings = cx.builder.not(drains);
                cx.builder.and(self.in_range, brings)
            }
            None => self.in_range,
        };
        let way = Way { point: 0, step: 0, end: 0, found: None };
        self.together(cx, way, Coming { active, bind }, emitter)?;
        cx.end_row();
        Ok(())
    }

    /// What follows where the lanes of a warp are together.
    fn together(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let Some((end, point)) = self.points().at.get(way.point).copied() else {
            let way = Way { end: self.body.pipeline.steps.len(), ..way };
            return self.to_sink(cx, way, coming, emitter);
        };
        let way = Way { end, ..way };
        match point {
            ExchangePoint::Refill => self.refill(cx, way, coming, emitter),
            ExchangePoint::Expand(matches) => {
                let expansion = self.points().expansion(self.body.pipeline, end);
                let expansion = expansion.map_err(Unsupported::internal)?;
                let expanding = Expanding { way, matches, expansion };
                match expansion.only_decides() {
                    true => self.decide(cx, &expanding, coming, emitter),
                    false => self.expand(cx, &expanding, coming, emitter),
                }
            }
            ExchangePoint::Keys => self.find_keys(cx, way, coming, emitter),
            ExchangePoint::Run => self.match_runs(cx, way, coming, emitter),
            ExchangePoint::Match => self.match_texts(cx, way, coming, emitter),
        }
    }

    /// The steps up to a point, and rows for lanes that have none.
    fn refill(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let (points, columns) = (self.points(), self.body.read_behind(way.end));
        let arrived = self.to_point(cx, Segment { way, columns: &columns }, coming, &mut |_| Ok(()))?;
        let registers = arrived.registers(cx);
        let types = types_of(cx, &registers);
        let live = cx.builder.read(arrived.live);
        let in_block = match points.waits_in_block(way.point) {
            true => BlockRefill::new(cx, way.point, (&types, points.threshold)),
            false => None,
        };
        let (active, registers) = match in_block {
            Some(refill) => refill.emit(cx, live, &registers, self.is_last),
            None => {
                let refill = Refill::new(cx, &types, points.threshold);
                refill.emit(cx, live, &registers, self.is_last)
            }
        };
        cx.with_live_columns(&arrived.row, &registers, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
            self.together(cx, way.behind(way.end), Coming { active, bind }, emitter)
        })
    }

    /// The steps up to a point, and the rows that an expansion makes, each in the lane that takes it.
    fn expand(
        &self,
        cx: &mut Context<'_>,
        &Expanding { way, matches, expansion }: &Expanding<'_>,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let points = self.points();
        let columns = expansion.needed(&self.body.read_behind(way.end + 1));
        let range = new_range(cx);
        let arrived = self.to_point(cx, Segment { way, columns: &columns }, coming, &mut |cx| {
            mark(cx, way.end, Flow::Branch);
            range_of_row(cx, expansion, way.found_at_end(), range)
        })?;
        if let Some(queue) = self.body.queue
            && points.first_expansion(self.body.pipeline).is_ok_and(|(first, _)| first == way.point)
        {
            queue.take(cx, (self.row, self.in_range), range, &arrived.registers);
            let registers = arrived.registers(cx);
            queue.put(cx, range, &registers);
        }
        let registers = arrived.registers(cx);
        let (begin, count) = (cx.builder.read(range.begin), cx.builder.read(range.count));
        let ranges = Ranges { begin, count, registers: &registers };
        // Rows that wait behind the expansion are reached although there is nothing to expand.
        let waits = points.at[way.point + 1..].iter().any(|(_, point)| point.keeps_rows());
        let once = if waits { self.is_last } else { cx.builder.bool(false) };
        let taken = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            cx.break_if_cancelled(Leaving::Warp);
            cx.with_live_columns(&arrived.row, registers, |cx| {
                let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.item(cx, number, next);
                self.together(cx, way.behind(way.end + 1), Coming { active, bind }, emitter)
            })
        };
        match matches {
            MatchLanes::Staged => {
                let types = types_of(cx, &registers);
                match Staged::new(cx, way.point, &types) {
                    Some(staged) => staged.emit(cx, &ranges, (self.is_last, once), taken),
                    None => expand::packed(cx, &ranges, once, taken),
                }
            }
            MatchLanes::Packed => expand::packed(cx, &ranges, once, taken),
            MatchLanes::Warp | MatchLanes::Lane => expand::by_leaders(cx, &ranges, once, taken),
            MatchLanes::Refill => {
                let types = types_of(cx, &registers);
                let walk = Walk::new(cx, &types, points.threshold);
                walk.emit(cx, &ranges, (self.is_last, once), taken)
            }
        }
    }

    /// As [`Turn::expand`], where all that counts is whether one of the new rows goes on.
    fn decide(
        &self,
        cx: &mut Context<'_>,
        &Expanding { way, matches, expansion }: &Expanding<'_>,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let behind = self.body.read_behind(way.end + 1);
        let range = new_range(cx);
        let mut tested = None;
        let (needed, kept) = (expansion.needed(&behind), expansion.kept(&behind));
        let arrived = self.to_point(cx, Segment { way, columns: &kept }, coming, &mut |cx| {
            mark(cx, way.end, Flow::Branch);
            tested = Some(self.live_columns(cx, &needed, expansion.loads_before())?);
            range_of_row(cx, expansion, way.found_at_end(), range)
        })?;
        let (row, registers) = tested.ok_or_else(|| Unsupported::internal("an expansion of no row"))?;
        let registers = read_all(cx, &registers);
        let (begin, count) = (cx.builder.read(range.begin), cx.builder.read(range.count));
        let ranges = Ranges { begin, count, registers: &registers };
        let test = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            cx.break_if_cancelled(Leaving::Warp);
            let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
            let holds = cx.builder.var_of("holds", no);
            cx.begin_if(active);
            cx.with_live_columns(&row, registers, |cx| {
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
        let (active, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        cx.with_live_columns(&arrived.row, &registers, |cx| {
            let bind =
                &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.decided(cx, (range, found), next);
            self.together(cx, way.behind(way.end + 1), Coming { active, bind }, emitter)
        })
    }

    /// The last steps, and the sink.
    fn to_sink(
        &self,
        cx: &mut Context<'_>,
        way: Way,
        coming: Coming<'_>,
        emitter: &mut dyn Emitter,
    ) -> Emitted {
        let variants = self.body.variants;
        let mut sink = |cx: &mut Context<'_>, flow| {
            mark(cx, way.end, flow);
            match way.found_at_end() {
                Some(found) => emitter.row_found(cx, self.row, found),
                None => emitter.row(cx, self.row, flow),
            }
        };
        if !variants.alone.has_flags() {
            cx.begin_if(coming.active);
            (coming.bind)(cx, &mut |cx, flow| self.segment(cx, way, flow, &mut sink))?;
            cx.end();
            return Ok(());
        }
        // The sink wants lanes together.
        let columns = self.body.read_behind(way.step);
        let bound = Way { end: way.step, ..way };
        let arrived =
            self.to_point(cx, Segment { way: bound, columns: &columns }, coming, &mut |_| Ok(()))?;
        let (live, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        // Most turns bring rows to no lane. Where a block writes together, all of it goes on.
        let in_warps = variants.places != WritePlaces::Block;
        if in_warps {
            let any = any(cx, live);
            cx.begin_if(any);
        }
        cx.with_live_columns(&arrived.row, &registers, |cx| {
            self.segment(cx, way, Flow::Flag { active: Some(live) }, &mut sink)
        })?;
        if in_warps {
            cx.end();
        }
        Ok(())
    }

    /// The steps up to a point, in branches that are closed there; `at_end` emits what else is done with the row.
    fn to_point(
        &self,
        cx: &mut Context<'_>,
        Segment { way, columns }: Segment<'_>,
        coming: Coming<'_>,
        at_end: &mut dyn FnMut(&mut Context<'_>) -> Emitted,
    ) -> Result<Arrived, Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        let live = cx.builder.var_of("arrived", no);
        let mut arrived = None;
        cx.begin_if(coming.active);
        (coming.bind)(cx, &mut |cx, flow| {
            self.segment(cx, way, flow, &mut |cx, _| {
                let (row, registers) = self.live_columns(cx, columns, false)?;
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
    fn live_columns(
        &self,
        cx: &mut Context<'_>,
        columns: &BTreeSet<usize>,
        loads_before: bool,
    ) -> Result<(LiveColumns, Vec<Var>), Unsupported> {
        let row = match self.points().columns {
            MovedColumns::Places if !loads_before => cx.live_columns(columns)?,
            MovedColumns::Values | MovedColumns::Places => {
                cx.with_loaded(columns, |cx| cx.live_columns(columns))?
            }
        };
        let registers = row.registers().iter();
        let registers = registers.map(|register| cx.builder.var_of("carried", *register)).collect();
        Ok((row, registers))
    }

    /// Steps one inside the other. What they compute is not computed for rows that are not live: nobody has looked at what
    /// lanes without a row have in their registers.
    fn segment(&self, cx: &mut Context<'_>, way: Way, flow: Flow, next: &mut Next<'_>) -> Emitted {
        let Some(step) = self.body.pipeline.steps[..way.end].get(way.step) else { return next(cx, flow) };
        let rest = Way { step: way.step + 1, found: None, ..way };
        if matches!(self.body.variants.row_loop.rest(way.step), Rest::Nothing) {
            return self.segment(cx, rest, flow, next);
        }
        mark(cx, way.step, flow);
        let next = &mut |cx: &mut Context<'_>, flow| self.segment(cx, rest, flow, next);
        match way.found {
            Some(found) => step.consume_found(cx, found, next),
            None => step.consume(cx, flow, false, next),
        }
    }
}

/// Sets the range of the current row, whose keys may have been looked for.
fn range_of_row(
    cx: &mut Context<'_>,
    expansion: &dyn Expansion,
    found: Option<Found>,
    range: Positions,
) -> Emitted {
    match found {
        Some(found) => expansion.range_of(cx, found, range),
        None => expansion.range(cx, range),
    }
}
