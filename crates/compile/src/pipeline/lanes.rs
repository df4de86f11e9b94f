//! Rows on their way through a pipeline in which the lanes of a warp exchange rows at some *points*.
//!
//! Lanes exchange rows where all of them are together. So the steps between two points stand in branches of their own, which
//! end with a note of whether the lane's row has come through and of the registers that it stands on; behind them the lanes
//! are together, the point deals rows out anew, and the next steps go on from there. What waits in buffers when there are no
//! more rows of the source comes through in turns of the row loop that bring no new rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::Type;
use kelpie_kir::builder::{V, Var};

use super::Pipeline;
use super::body::Body;
use super::row::{Pass, mark};
use crate::context::{CarriedRow, Context, Unsupported};
use crate::expr::share_kept;
use crate::operator::Flow;
use crate::operator::expand::{self, Ranges};
use crate::operator::lanes::any;
use crate::operator::queue::Queue;
use crate::operator::refill::Refill;
use crate::operator::roles::{Emitter, Expansion, Next, Step};
use crate::shape::LaunchShape;
use crate::table::index::Positions;
use crate::variant::axes::{LaneRefill, MatchLanes, WritePlaces};

/// What lanes do at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Point {
    /// Those without a row are given rows that waited.
    Refill,
    /// They take the rows that the step here makes of the warp's rows.
    Expand(MatchLanes),
}

/// Where filters are guessed to keep a larger share of the rows, lanes are not refilled behind them.
const MOST_REFILLED: f64 = 0.7;

/// Turns of the row loop that a launch over all rows has, at least, for a refill to pay: what waits comes through in one more.
const LEAST_TURNS: u64 = 8;

/// The points of a pipeline.
#[derive(Debug, Clone, Default)]
pub(super) struct Points {
    /// What lanes do before the step of a number, or in its place, in order.
    at: Vec<(usize, Point)>,
    /// Of 32 lanes, those with rows at which a warp goes on.
    pub threshold: u64,
    /// The numbers of a range beyond which it waits for all warps at the first expansion, where it does.
    pub longest: Option<u64>,
}

impl Points {
    /// The points of a pipeline.
    pub(super) fn of(pipeline: &Pipeline, refill: LaneRefill, matches: MatchLanes) -> Points {
        let mut at = Vec::new();
        // Where rows may have been dropped, up to which points reach.
        let mut last = None;
        for (index, step) in pipeline.steps.iter().enumerate() {
            let mut drops = step.drops();
            if matches != MatchLanes::Lane && step.expansion().is_ok() {
                at.push((index, Point::Expand(matches)));
                // The last of a row's new rows leave lanes idle.
                drops = true;
            } else if step.expands() {
                // Behind a step that makes several rows of one for its lane alone, lanes are in loops of their own.
                break;
            }
            // Of filters one behind the other only the last one counts.
            let is_filter = |step: &Arc<dyn Step>| step.condition().is_some();
            if !drops || is_filter(step) && pipeline.steps.get(index + 1).is_some_and(is_filter) {
                continue;
            }
            match refill {
                LaneRefill::All => at.push((index + 1, Point::Refill)),
                LaneRefill::Filters if is_filter(step) => at.push((index + 1, Point::Refill)),
                LaneRefill::Last => last = Some(index + 1),
                LaneRefill::Off | LaneRefill::Filters => {}
            }
        }
        at.extend(last.map(|last| (last, Point::Refill)));
        at.sort_by_key(|(at, point)| (*at, *point != Point::Refill));
        Points { at, threshold: 0, longest: None }
    }

    /// Whether warps come with too few rows for what follows; or why not.
    pub(super) fn want_refill(
        pipeline: &Pipeline,
        shape: &LaunchShape,
    ) -> Result<&'static str, &'static str> {
        let threads = u64::from(shape.most_blocks).saturating_mul(shape.block_threads.into());
        if pipeline.shared_out.unwrap_or(pipeline.bound) < LEAST_TURNS.saturating_mul(threads) {
            return Err("warps have hardly any rows that could wait");
        }
        let joins = pipeline.steps.iter().any(|step| step.drops() && step.diverges());
        // A step that diverges and leaves the columns alone.
        let is_runtime_filter = |step: &Arc<dyn Step>| step.diverges() && step.columns(&[]).is_none();
        if pipeline.steps.iter().any(is_runtime_filter) {
            return Err("a runtime filter leaves too few rows for a warp to wait for");
        }
        let (mut share, mut columns) = (1.0, pipeline.source.columns());
        for step in &pipeline.steps {
            if let Some(condition) = step.condition() {
                share *=
                    share_kept(condition, &|index: usize| columns.get(index).and_then(|info| info.range));
            }
            if let Some(behind) = step.columns(&columns) {
                columns = behind;
            }
        }
        match pipeline.sink.target() {
            Some(_) if joins || share <= MOST_REFILLED => Ok("rows that are written are few in a warp"),
            Some(_) => Err("filters keep most rows"),
            None if joins && pipeline.sink.is_costly() => {
                Ok("rows come to a hash table, and are few in a warp")
            }
            None => Err("a row costs little behind the steps that drop rows"),
        }
    }

    /// The number of the first point where lanes take new rows of others, and what makes these rows there; long ranges can wait
    /// only there, as what is drained comes past all points before with no row. Or why there is none.
    pub(super) fn first_expansion<'p>(
        &self,
        pipeline: &'p Pipeline,
    ) -> Result<(usize, &'p dyn Expansion), String> {
        for (number, (at, point)) in self.at.iter().enumerate() {
            if let (Point::Expand(_), Some(step)) = (point, pipeline.steps.get(*at)) {
                let expansion = step.expansion()?;
                if !expansion.only_decides() {
                    return Ok((number, expansion));
                }
            }
        }
        Err("no lane takes new rows of another".into())
    }

    /// Turns of the row loop behind the last row of the source, for rows that wait: each point gives its rows to the next
    /// one.
    pub(super) fn last_turns(&self) -> u64 {
        self.at.iter().filter(|(_, point)| *point == Point::Refill).count() as u64
    }

    /// Whether threads may be apart where rows come to the sink.
    pub(super) fn diverge(&self, pipeline: &Pipeline) -> bool {
        let first = self.at.last().map_or(0, |(at, point)| at + usize::from(*point != Point::Refill));
        pipeline.steps[first..].iter().any(|step| step.diverges())
    }

    /// Whether a warp may be in a loop of its own where rows come to the sink.
    pub(super) fn expand(&self) -> bool {
        self.at.iter().any(|(_, point)| *point != Point::Refill)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}

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

/// The current row as far as `columns` of it are read later, and variables with what it stands on.
fn carry(cx: &mut Context<'_>, columns: &BTreeSet<usize>) -> Result<(CarriedRow, Vec<Var>), Unsupported> {
    let row = cx.carried(columns)?;
    let registers = row.registers().iter().map(|register| cx.builder.var_of("carried", *register)).collect();
    Ok((row, registers))
}

/// A range without numbers.
fn new_range(cx: &mut Context<'_>) -> Positions {
    let zero = cx.builder.u32(0);
    let [begin, count] = ["range", "matches"].map(|name| cx.builder.var_of(name, zero));
    Positions { begin, count }
}

/// Where a row is on its way: the number of the next point, and of the next step.
#[derive(Clone, Copy)]
struct Way {
    point: usize,
    step: usize,
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
        let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| {
            self.enter(cx, turn.row, Flow::Branch, Pass::None, next)
        };
        let active = match self.queue {
            Some(_) => {
                let drains = Queue::drains(cx);
                let brings = cx.builder.not(drains);
                cx.builder.and(turn.in_range, brings)
            }
            None => turn.in_range,
        };
        self.together(cx, Way { point: 0, step: 0 }, (active, bind), turn, emitter)?;
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
            None => self.to_sink(cx, way.step, (active, bind), turn, emitter),
            Some((at, Point::Refill)) => {
                let columns = self.read_behind(*at);
                let arrived = self.to_point(cx, way.step..*at, (active, bind), &columns, &mut |_| Ok(()))?;
                let registers = arrived.registers(cx);
                let types: Vec<Type> = registers.iter().map(|register| cx.builder.ty(*register)).collect();
                let refill = Refill::new(cx, &types, self.variants.points.threshold);
                let live = cx.builder.read(arrived.live);
                let (live, registers) = refill.emit(cx, live, &registers, turn.is_last);
                let next = Way { point: way.point + 1, step: *at };
                cx.with_carried(&arrived.row, &registers, |cx| {
                    let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| next(cx, Flow::Branch);
                    self.together(cx, next, (live, bind), turn, emitter)
                })
            }
            Some((at, Point::Expand(matches))) => {
                let step = &self.pipeline.steps[*at];
                let expansion = step.expansion().map_err(Unsupported::internal)?;
                let from = Way { step: *at, ..way };
                if expansion.only_decides() {
                    let place = (way.step, from, *matches);
                    return self.decide(cx, place, expansion, (active, bind), turn, emitter);
                }
                self.expand(cx, (way.step, from, *matches), expansion, (active, bind), turn, emitter)
            }
        }
    }

    /// The steps from number `first` on, and the rows that an expansion makes, each in the lane that takes it.
    fn expand(
        &self,
        cx: &mut Context<'_>,
        (first, way, matches): (usize, Way, MatchLanes),
        expansion: &dyn Expansion,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let columns = expansion.needed(&self.read_behind(way.step + 1));
        let range = new_range(cx);
        let arrived = self.to_point(cx, first..way.step, (active, bind), &columns, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            expansion.range(cx, range)
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
        let points = &self.variants.points.at[way.point..];
        let waits = points.iter().any(|(_, point)| *point == Point::Refill);
        let once = if waits { turn.is_last } else { cx.builder.bool(false) };
        let next_way = Way { point: way.point + 1, step: way.step + 1 };
        let taken = &mut |cx: &mut Context<'_>, active: V, number: V, registers: &[V]| {
            cx.with_carried(&arrived.row, registers, |cx| {
                let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.item(cx, number, next);
                self.together(cx, next_way, (active, bind), turn, emitter)
            })
        };
        match matches {
            MatchLanes::Packed => expand::packed(cx, &ranges, once, taken),
            MatchLanes::Warp | MatchLanes::Lane => expand::by_leaders(cx, &ranges, once, taken),
        }
    }

    /// As [`Body::expand`], where all that counts is whether one of the new rows goes on.
    fn decide(
        &self,
        cx: &mut Context<'_>,
        (first, way, matches): (usize, Way, MatchLanes),
        expansion: &dyn Expansion,
        (active, bind): (V, &mut Bind<'_>),
        turn: Turn,
        emitter: &mut dyn Emitter,
    ) -> Result<(), Unsupported> {
        let behind = self.read_behind(way.step + 1);
        let range = new_range(cx);
        let mut tested = None;
        let (needed, kept) = (expansion.needed(&behind), expansion.kept(&behind));
        let arrived = self.to_point(cx, first..way.step, (active, bind), &kept, &mut |cx| {
            mark(cx, way.step, Flow::Branch);
            tested = Some(carry(cx, &needed)?);
            expansion.range(cx, range)
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
            MatchLanes::Packed => expand::any_packed(cx, &ranges, test)?,
            MatchLanes::Warp | MatchLanes::Lane => expand::any_by_leaders(cx, &ranges, test)?,
        };
        let (live, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        let next_way = Way { point: way.point + 1, step: way.step + 1 };
        cx.with_carried(&arrived.row, &registers, |cx| {
            let bind = &mut |cx: &mut Context<'_>, next: &mut Next<'_>| expansion.decided(cx, found, next);
            self.together(cx, next_way, (live, bind), turn, emitter)
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
        let mut sink = |cx: &mut Context<'_>, flow| {
            mark(cx, end, flow);
            emitter.row(cx, turn.row, flow)
        };
        if !self.variants.flags {
            cx.begin_if(active);
            bind(cx, &mut |cx, flow| self.segment(cx, from..end, flow, &mut sink))?;
            cx.end();
            return Ok(());
        }
        // The sink wants lanes together.
        let columns = self.read_behind(from);
        let arrived = self.to_point(cx, from..from, (active, bind), &columns, &mut |_| Ok(()))?;
        let (live, registers) = (cx.builder.read(arrived.live), arrived.registers(cx));
        // Most turns bring rows to no lane. Where a block writes together, all of it goes on.
        let in_warps = self.variants.places != WritePlaces::Block;
        if in_warps {
            let any = any(cx, live);
            cx.begin_if(any);
        }
        cx.with_carried(&arrived.row, &registers, |cx| {
            self.segment(cx, from..end, Flow::Flag { active: Some(live) }, &mut sink)
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
        steps: std::ops::Range<usize>,
        (active, bind): (V, &mut Bind<'_>),
        columns: &BTreeSet<usize>,
        at_end: &mut dyn FnMut(&mut Context<'_>) -> Result<(), Unsupported>,
    ) -> Result<Arrived, Unsupported> {
        let (no, yes) = (cx.builder.bool(false), cx.builder.bool(true));
        let live = cx.builder.var_of("arrived", no);
        let mut arrived = None;
        cx.begin_if(active);
        bind(cx, &mut |cx, flow| {
            self.segment(cx, steps.clone(), flow, &mut |cx, _| {
                let (row, registers) = carry(cx, columns)?;
                cx.builder.assign(live, yes);
                arrived = Some(Arrived { live, row, registers });
                at_end(cx)
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
        mark(cx, steps.start, flow);
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
