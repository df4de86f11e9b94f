//! The points of a pipeline: where the lanes of a warp exchange rows (`row_loop::lanes`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Pipeline;
use super::activity::Activity;
use super::launches::MoreRows;
use crate::expr::ExprKind;
use crate::expr::share_kept;
use crate::operator::matches::TextMatch;
use crate::operator::roles::{Expansion, Step};
use crate::operator::text_runs::TextRun;
use crate::operator::texts::TextEquality;
use crate::shape::LaunchShape;
use crate::variant::axes::{LaneRefill, MatchLanes, MovedColumns, TextLanes};
use crate::variant::estimate;

/// What lanes do at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangePoint {
    /// Those without a row are given rows that waited.
    Refill,
    /// They take the rows that the step here makes of the warp's rows.
    Expand(MatchLanes),
    /// They look together for the keys that the step or the sink here finds in a hash table, as far as these are texts.
    Keys,
    /// They match the texts of the warp's rows for the filter here as one run of bytes.
    Run,
    /// They match texts for the filter here, and those whose match is decided are given rows that have just arrived.
    Match,
}

impl ExchangePoint {
    /// Whether rows wait there from one turn of the row loop to the next.
    pub(super) fn keeps_rows(self) -> bool {
        match self {
            ExchangePoint::Refill | ExchangePoint::Match => true,
            ExchangePoint::Expand(matches) => matches!(matches, MatchLanes::Refill | MatchLanes::Staged),
            ExchangePoint::Keys | ExchangePoint::Run => false,
        }
    }
}

/// Where filters are guessed to keep a larger share of the rows, lanes are not refilled behind them.
const MOST_REFILLED: f64 = 0.7;

/// Lanes are refilled where fewer of them than this are thought to have rows, if that decides.
const LEAST_ACTIVE: f64 = 0.5;

/// Where fewer of the rows than this are left behind runtime filters, nine of ten warps have none, and go by what follows: that costs little in
/// all, and looking for rows that could wait would cost each warp more.
const LEAST_LEFT: f64 = 0.003;

/// Turns of the row loop that a launch over all rows has, at least, for a refill to pay: what waits comes through in one more.
const LEAST_TURNS: u64 = 8;

/// The points of a pipeline.
#[derive(Debug, Clone)]
pub(super) struct Points {
    /// What lanes do before the step of a number, or in its place, in order.
    pub at: Vec<(usize, ExchangePoint)>,
    /// Who looks at texts.
    pub texts: Texts,
    /// Of 32 lanes, those with rows at which a warp goes on.
    pub threshold: u64,
    /// Rows wait in the memory of a block where its threads are together.
    pub in_block: bool,
    /// As what rows change lanes.
    pub columns: MovedColumns,
    /// The numbers of a range beyond which it waits for all warps at the first expansion, where it does.
    pub longest: Option<u64>,
}

/// The share of the rows that filters are thought to keep.
fn share_of_filters(pipeline: &Pipeline) -> f64 {
    let (mut share, mut columns) = (1.0, pipeline.source.columns());
    for step in &pipeline.steps {
        if let Some(condition) = step.condition() {
            share *= share_kept(condition, &|index: usize| columns.get(index).and_then(|info| info.range));
        }
        if let Some(behind) = step.columns(&columns) {
            columns = behind;
        }
    }
    share
}

impl Points {
    /// The points of a pipeline.
    pub(super) fn of(pipeline: &Pipeline, refill: LaneRefill, matches: MatchLanes, texts: &Texts) -> Points {
        let mut at = Vec::new();
        // Where rows may have been dropped, up to which points reach.
        let mut last = None;
        let mut are_together = true;
        let mut activity = Activity::at_source(pipeline);
        for (index, step) in pipeline.steps.iter().enumerate() {
            at.extend(texts.keys.contains(&index).then_some((index, ExchangePoint::Keys)));
            activity.pass(step);
            let mut drops = step.drops();
            let (expansion, lanes) = match texts.at(index) {
                Some(equality) => (Ok(equality), MatchLanes::Warp),
                None => (step.expansion(), matches),
            };
            if texts.run_at(index).is_some() {
                at.push((index, ExchangePoint::Run));
                drops = true;
            } else if texts.match_at(index).is_some() {
                at.push((index, ExchangePoint::Match));
            } else if let Some(lanes) = expansion.ok().and_then(|expansion| sharing(expansion, lanes)) {
                at.push((index, ExchangePoint::Expand(lanes)));
                // The last of a row's new rows leave lanes idle, though few.
                drops = true;
                activity.fill();
            } else if step.expands() {
                // Behind a step that makes several rows of one for its lane alone, lanes are in loops of their own.
                are_together = false;
                break;
            }
            // Of filters one behind the other only the last one counts.
            let is_filter = |step: &Arc<dyn Step>| step.condition().is_some();
            if !drops || is_filter(step) && pipeline.steps.get(index + 1).is_some_and(is_filter) {
                continue;
            }
            match refill {
                LaneRefill::All => at.push((index + 1, ExchangePoint::Refill)),
                LaneRefill::Filters if is_filter(step) => at.push((index + 1, ExchangePoint::Refill)),
                LaneRefill::Last => last = Some(index + 1),
                LaneRefill::Estimated if (LEAST_LEFT..LEAST_ACTIVE).contains(&activity.share()) => {
                    at.push((index + 1, ExchangePoint::Refill));
                    activity.fill();
                }
                LaneRefill::Off | LaneRefill::Filters | LaneRefill::Estimated => {}
            }
        }
        at.extend(last.map(|last| (last, ExchangePoint::Refill)));
        let end = pipeline.steps.len();
        at.extend((are_together && texts.keys.contains(&end)).then_some((end, ExchangePoint::Keys)));
        // Lanes are refilled before they look for keys, and these are found before there are new rows.
        at.sort_by_key(|(at, point)| (*at, *point != ExchangePoint::Refill, *point != ExchangePoint::Keys));
        Points {
            at,
            texts: texts.clone(),
            threshold: 0,
            in_block: false,
            columns: MovedColumns::Places,
            longest: None,
        }
    }

    /// Where warps come with too few rows for what follows; or why they do not.
    pub(super) fn want_refill(
        pipeline: &Pipeline,
        shape: &LaunchShape,
    ) -> Result<(LaneRefill, &'static str), &'static str> {
        let threads = u64::from(shape.most_blocks).saturating_mul(shape.block_threads.into());
        if pipeline.shared_out.unwrap_or(pipeline.bound) < LEAST_TURNS.saturating_mul(threads) {
            return Err("warps have hardly any rows that could wait");
        }
        let first = pipeline.steps.iter().find_map(|step| step.runtime_filter());
        if first.is_some_and(|first| first.share() < LEAST_LEFT) {
            return Err("a runtime filter leaves hardly any warp a row");
        }
        let joins = pipeline.steps.iter().any(|step| step.drops() && step.diverges());
        // A step that diverges and leaves the columns alone.
        let is_runtime_filter = |step: &Arc<dyn Step>| step.diverges() && step.columns(&[]).is_none();
        let has_runtime_filter = pipeline.steps.iter().any(is_runtime_filter);
        match pipeline.sink.target() {
            Some(_) if has_runtime_filter => {
                Ok((LaneRefill::Estimated, "a runtime filter leaves few of the rows that are written"))
            }
            None if has_runtime_filter => Err("a runtime filter leaves too few rows for a warp to wait for"),
            Some(_) if joins || share_of_filters(pipeline) <= MOST_REFILLED => {
                Ok((LaneRefill::Last, "rows that are written are few in a warp"))
            }
            Some(_) => Err("filters keep most rows"),
            None if joins && pipeline.sink.is_costly() => {
                Ok((LaneRefill::Last, "rows come to a hash table, and are few in a warp"))
            }
            None => Err("a row costs little behind the steps that drop rows"),
        }
    }

    /// What is thought of the rows that may wait, for people.
    pub(super) fn estimate_of_refill(pipeline: &Pipeline, shape: &LaunchShape) -> String {
        let threads = u64::from(shape.most_blocks).saturating_mul(shape.block_threads.into());
        let rows = pipeline.shared_out.unwrap_or(pipeline.bound);
        let joins = pipeline.steps.iter().filter(|step| step.drops() && step.diverges()).count();
        let (kept, turns) = (estimate::percent(share_of_filters(pipeline)), rows / threads.max(1));
        let kept = format!("filters keep about {kept}, joins that drop rows: {joins}");
        format!("at most {rows} rows in {turns} turns of {threads} threads, {kept}")
    }

    /// The number of the first point where lanes take new rows of others, and what makes these rows there; long ranges can wait
    /// only there, as what is drained comes past all points before with no row. Or why there is none.
    pub(super) fn first_expansion<'p>(
        &'p self,
        pipeline: &'p Pipeline,
    ) -> Result<(usize, &'p dyn Expansion), String> {
        for (number, (at, point)) in self.at.iter().enumerate() {
            if let ExchangePoint::Expand(_) = point {
                let expansion = self.expansion(pipeline, *at)?;
                if !expansion.only_decides() {
                    return Ok((number, expansion));
                }
            }
        }
        Err("no lane takes new rows of another".into())
    }

    /// What makes new rows, or decides about rows, at the step of a number.
    pub(super) fn expansion<'p>(
        &'p self,
        pipeline: &'p Pipeline,
        step: usize,
    ) -> Result<&'p dyn Expansion, String> {
        if let Some(equality) = self.texts.at(step) {
            return Ok(equality);
        }
        pipeline.steps.get(step).ok_or("no such step")?.expansion()
    }

    /// Whether lanes do something at any of them.
    pub(super) fn has(&self, point: ExchangePoint) -> bool {
        self.at.iter().any(|(_, own)| *own == point)
    }

    /// What a thread brings to the sink beside its own rows. Texts of all rows of a warp may be matched by the same lane.
    pub(super) fn more_rows(&self) -> MoreRows {
        MoreRows { turns: self.last_turns(), of_warp: self.has(ExchangePoint::Match) }
    }

    /// Turns of the row loop behind the last row of the source, for rows that wait: each point gives its rows to the next
    /// one.
    pub(super) fn last_turns(&self) -> u64 {
        self.at.iter().filter(|(_, point)| point.keeps_rows()).count() as u64
    }

    /// Whether the threads of a block are together at the point of a number: up to the first one at which warps take new rows of their own.
    fn is_in_block(&self, number: usize) -> bool {
        self.at.iter().take(number + 1).all(|(_, point)| *point == ExchangePoint::Refill)
    }

    /// Whether lanes are refilled where the threads of a block are together.
    pub(super) fn refill_in_block(&self) -> bool {
        !self.at.is_empty() && self.is_in_block(0)
    }

    /// Whether rows wait in the memory of a block at the point of a number.
    pub(super) fn waits_in_block(&self, number: usize) -> bool {
        self.in_block && self.is_in_block(number)
    }

    /// Whether threads may be apart where rows come to the sink.
    pub(super) fn diverge(&self, pipeline: &Pipeline) -> bool {
        let is_before = |point: &ExchangePoint| matches!(point, ExchangePoint::Refill | ExchangePoint::Keys);
        let first = self.at.last().map_or(0, |(at, point)| at + usize::from(!is_before(point)));
        pipeline.steps[first..].iter().any(|step| step.diverges())
    }

    /// Whether a warp may be in a loop of its own where rows come to the sink.
    pub(super) fn expand(&self) -> bool {
        self.at.iter().any(|(_, point)| *point != ExchangePoint::Refill)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}

/// The filters of a pipeline in which other lanes can compare texts, or lanes take other rows while texts are matched; and who does.
#[derive(Debug, Clone)]
pub(super) struct Texts {
    pub lanes: TextLanes,
    /// By the numbers of their steps.
    pub equalities: Vec<(usize, Arc<TextEquality>)>,
    /// The same.
    pub matches: Vec<(usize, Arc<TextMatch>)>,
    /// The first filter, where rows of the table are those of the warp.
    pub run: Option<(usize, Arc<TextRun>)>,
    /// The steps, and behind the last one the sink, that find keys whose texts lanes are to look at together.
    pub keys: BTreeSet<usize>,
}

impl Texts {
    /// Those of a pipeline; each lane looks at its own.
    pub(super) fn of(pipeline: &Pipeline) -> Texts {
        let (mut equalities, mut matches, mut keys) = (Vec::new(), Vec::new(), BTreeSet::new());
        let (mut run, mut are_of_table, mut share) = (None, true, 1.0);
        let mut columns = pipeline.source.columns();
        let mut stored = vec![true; columns.len()];
        let are_stored = |texts: Option<Vec<usize>>, stored: &[bool]| {
            texts.is_some_and(|texts| texts.iter().all(|column| stored.get(*column) == Some(&true)))
        };
        for (index, step) in pipeline.steps.iter().enumerate() {
            keys.extend(are_stored(step.shared_texts(), &stored).then_some(index));
            let is_stored = |column: usize| stored.get(column) == Some(&true);
            if let Some(condition) = step.condition() {
                let equality = TextEquality::of(condition, &columns, &is_stored);
                equalities.extend(equality.map(|equality| (index, Arc::new(equality))));
                let matching = TextMatch::of(condition, &columns, &is_stored);
                matches.extend(matching.map(|matching| (index, Arc::new(matching))));
                if run.is_none() && are_of_table {
                    let found = TextRun::of(condition, &columns, (&*pipeline.source, share), &is_stored);
                    run = found.map(|found| (index, Arc::new(found)));
                    share *= share_kept(condition, &|column| columns.get(column).and_then(|info| info.range));
                }
            }
            share *= step.runtime_filter().map_or(1.0, |runtime_filter| runtime_filter.share());
            // Behind a join a column may be one of the build side.
            are_of_table &=
                step.condition().is_some() || step.projection().is_some() || step.runtime_filter().is_some();
            let Some(behind) = step.columns(&columns) else { continue };
            // What a join adds to a row is stored, or a flag.
            stored = match step.projection() {
                Some(exprs) => {
                    let is_kept =
                        |kind: &ExprKind| matches!(kind, ExprKind::Column(column) if is_stored(*column));
                    exprs.iter().map(|expr| is_kept(&expr.kind)).collect()
                }
                None => (0..behind.len()).map(|column| step.below(column).is_none_or(is_stored)).collect(),
            };
            columns = behind;
        }
        keys.extend(are_stored(pipeline.sink.shared_texts(), &stored).then_some(pipeline.steps.len()));
        Texts { lanes: TextLanes::Lane, equalities, matches, run, keys }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.equalities.is_empty() && self.matches.is_empty() && self.run.is_none()
    }

    /// The equality that the filter of a number is, where lanes compare it together.
    fn at(&self, step: usize) -> Option<&dyn Expansion> {
        let found = self.equalities.iter().find(|(index, _)| *index == step);
        found.filter(|_| self.lanes == TextLanes::Warp).map(|(_, equality)| &**equality as &dyn Expansion)
    }

    /// The filter of a number, where lanes match its texts as one run.
    pub(super) fn run_at(&self, step: usize) -> Option<&TextRun> {
        let found = self.run.as_ref().filter(|(index, _)| *index == step && self.lanes == TextLanes::Run);
        found.map(|(_, run)| &**run)
    }

    /// The match that the filter of a number is, where lanes take other rows in the meantime.
    pub(super) fn match_at(&self, step: usize) -> Option<&TextMatch> {
        let found = self.matches.iter().find(|(index, _)| *index == step);
        found.filter(|_| self.lanes == TextLanes::Refill).map(|(_, matching)| &**matching)
    }
}

/// Who makes a step's new rows, where lanes exchange rows for that. Those that are refilled let no row come back to where it was; where all
/// come back, none waits.
fn sharing(expansion: &dyn Expansion, matches: MatchLanes) -> Option<MatchLanes> {
    match matches {
        MatchLanes::Lane => None,
        MatchLanes::Warp | MatchLanes::Packed => Some(matches),
        MatchLanes::Staged if expansion.only_decides() => Some(MatchLanes::Packed),
        MatchLanes::Staged => Some(matches),
        MatchLanes::Refill => (!expansion.only_decides()).then_some(matches),
    }
}
