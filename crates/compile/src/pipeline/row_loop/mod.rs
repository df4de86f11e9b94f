//! Row loops: how the rows of a pipeline's source go through its kernel. Each is a strategy, one file each: what it lacks, why the rule takes
//! it, how many rows a thread takes in a turn, and the loop that it emits.
//!
//! | strategy | device | rows |
//! |---|---|---|
//! | [`Single`] | all | one by one, or several of a thread that lie a block apart |
//! | [`Wide`] | all | eight as one, whose columns are vectors, up to the sums |
//! | [`Selected`] | CPU | those of a selection vector, which filters make |
//! | [`Batched`] | CPU | those of a batch come to a look-up together |
//! | [`Prefetched`] | SIMT | one by one, of eight that were loaded at once |
//! | [`StagedFiltering`] | SIMT | those that pass, of several that were tried; also before lanes exchange rows |
//! | [`Lanes`] | SIMT | lanes of a warp exchange rows |
//! | [`PartPieces`] | all | those of a part after those of another |
//!
//! Two loops stand below them: a SIMT device's grid strides over the rows ([`grid`]), a CPU's workers take morsels ([`morsels`]).

mod batched;
mod grid;
mod lanes;
mod morsels;
mod part_pieces;
mod prefetched;
mod selected;
mod single;
mod staged_filtering;
mod wide;

use self::batched::Batched;
use self::lanes::Lanes;
use self::part_pieces::PartPieces;
use self::prefetched::Prefetched;
use self::selected::Selected;
use self::single::Single;
use self::staged_filtering::StagedFiltering;
use self::wide::Wide;
use super::body::Body;
use super::variants::Facts;
use crate::context::{Context, Unsupported, WIDE_ROWS};
use crate::operator::filter::Filter;
use crate::operator::roles::{Arrival, Emitter};
use crate::shape::ShapeChoices;
use crate::variant::axes::{RowLoop, RuntimeFilters, SelectionRows, WritePlaces};

/// Of rows that pass filters at a larger share, a selection vector is as long as the table: branches are taken as foretold.
const MOST_SELECTED: f64 = 0.9;

/// Of rows that find a match at a larger share, branches are taken as foretold.
const MOST_FILTERED: f64 = 0.75;

/// What emission gives.
pub(super) type Emitted = Result<(), Unsupported>;

/// A row loop.
pub(super) trait RowLoopStrategy {
    /// The rows that a thread takes in a turn.
    fn turn_rows(&self) -> TurnRows {
        TurnRows::One
    }

    /// Whether a thread has no more than its share of the rows of a launch.
    fn shares_out(&self) -> bool {
        true
    }

    /// How rows come to the sink, where single ones come as given.
    fn arrival(&self, alone: Arrival) -> Arrival {
        alone
    }

    /// What of a step is left for the rows that the loop has tried.
    fn rest(&self, _step: usize) -> Rest<'_> {
        Rest::Step
    }

    /// Emits the loop.
    fn emit(&self, body: &Body<'_>, cx: &mut Context<'_>, emitter: &mut dyn Emitter) -> Emitted;
}

/// A row loop that is a value of the axis `row_loop`.
trait Candidate: RowLoopStrategy {
    /// Why the rule takes it where it is possible, or why not.
    fn why(&self) -> Result<&'static str, &'static str>;

    /// Makes the choices that are open once it is taken.
    fn settle(&mut self, _facts: &Facts<'_>) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// The rows that a thread takes in a turn of a row loop: what the launch's shape follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnRows {
    /// One.
    One,
    /// As many as the launch is chosen for.
    Several,
    /// As many as a wide row has, side by side.
    Blocked,
    /// The same, in registers all at once.
    Prefetched,
    /// A wide row.
    Wide,
}

impl TurnRows {
    /// How many they are, where the launch is to be asked for that.
    pub(super) fn asked(self) -> Option<u32> {
        matches!(self, TurnRows::Blocked | TurnRows::Prefetched).then_some(WIDE_ROWS.into())
    }

    /// Whether they begin at multiples of a wide row's rows, as rows that are loaded together do.
    fn are_aligned(self) -> bool {
        matches!(self, TurnRows::Blocked | TurnRows::Prefetched | TurnRows::Wide)
    }
}

/// What of a step is left for rows that were tried.
pub(super) enum Rest<'r> {
    /// All of it.
    Step,
    /// A part of its condition.
    Filter(&'r Filter),
    /// Nothing.
    Nothing,
}

/// Chooses the row loop of a pipeline.
pub(super) fn choose(facts: &Facts<'_>) -> Result<Box<dyn RowLoopStrategy>, Unsupported> {
    if !facts.scans() {
        return single_rows(facts);
    }
    let selected = match facts.is_simt() {
        true => StagedFiltering::possible(facts)?.map(boxed),
        false => Selected::possible(facts)?.map(boxed),
    };
    let candidates = [(RowLoop::Wide, Wide::possible(facts).map(boxed)), (RowLoop::Selected, selected)];
    let first = candidates.iter().find_map(|(value, found)| Some((*value, found.as_ref().ok()?.why())));
    let (value, why) =
        first.unwrap_or((RowLoop::Single, Err("not everything has a form for several rows at once")));
    let rule = match facts.in_resolution(why) {
        Ok(why) => (value, why),
        Err(why_not) => (RowLoop::Single, why_not),
    };
    let chosen = facts.site.choose(rule, |value| {
        match candidates.iter().find(|(candidate, _)| *candidate == value) {
            Some((_, Err(why_not))) => Err(why_not.clone()),
            _ => Ok(()),
        }
    })?;
    let found = candidates.into_iter().find(|(candidate, _)| *candidate == chosen);
    match found.and_then(|(_, found)| found.ok()) {
        Some(mut strategy) => {
            strategy.settle(facts)?;
            Ok(strategy)
        }
        None if Prefetched::choose(facts)? => Ok(Box::new(Prefetched)),
        None => single_rows(facts),
    }
}

/// The loop of rows that go through the steps one by one.
fn single_rows(facts: &Facts<'_>) -> Result<Box<dyn RowLoopStrategy>, Unsupported> {
    let single = Single::of(facts);
    if facts.pipeline.source.parts().is_some() {
        return Ok(Box::new(PartPieces(single)));
    }
    if facts.is_simt() {
        return Ok(if facts.points.is_empty() { Box::new(single) } else { Box::new(Lanes) });
    }
    if facts.places == WritePlaces::Selection {
        let mut selected = Selected::default();
        selected.settle(facts)?;
        return Ok(Box::new(selected));
    }
    Ok(match Batched::choose(facts)? {
        Some(mut batched) => {
            batched.rows = selection_rows(facts)?;
            Box::new(batched)
        }
        None => Box::new(single),
    })
}

fn boxed(strategy: impl Candidate + 'static) -> Box<dyn Candidate> {
    Box::new(strategy)
}

/// Whether rows are selected by runtime filters; `why_not`: why they cannot be.
fn runtime_filters(facts: &Facts<'_>, why_not: Option<&str>) -> Result<bool, Unsupported> {
    if !facts.pipeline.steps.iter().any(|step| step.runtime_filter().is_some()) {
        return Ok(false);
    }
    let why = match facts.is_simt() {
        true => "their loads hide each other's latency",
        false => "which rows find a match would be foretold badly",
    };
    facts.takes([RuntimeFilters::Off, RuntimeFilters::On], why_not, facts.in_resolution(Ok(why)), None)
}

/// Rows of a batch of a CPU's worker.
fn selection_rows(facts: &Facts<'_>) -> Result<u64, Unsupported> {
    let rule = (SelectionRows(1024), "a selection vector stays in the first-level cache");
    Ok(facts.site.choose(rule, |_| Ok(()))?.0)
}

/// What a launch is asked for where a thread has as many rows as a wide row; or why it cannot be.
fn blocked_shape(facts: &Facts<'_>) -> Result<ShapeChoices, String> {
    let asked = facts.environment.asked;
    match asked.thread_rows {
        Some(rows) if rows != u32::from(WIDE_ROWS) => Err(format!("{rows} rows of a thread are asked for")),
        _ => Ok(ShapeChoices { thread_rows: Some(WIDE_ROWS.into()), ..*asked }),
    }
}
