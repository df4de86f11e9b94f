//! The variants of a pipeline: how its row loop goes, which does not change its state.

mod selecting;

use std::collections::BTreeSet;

use super::Pipeline;
use super::batches::BatchedSteps;
use super::exchanges;
use super::kernel::Environment;
use super::launches::{self, MoreRows};
use super::points::Points;
use super::speculation::Speculation;
use super::staged_filtering::StagedFiltering;
use super::wide::{WideFilters, supports_all};
use crate::context::{Unsupported, WIDE_ROWS};
use crate::operator::filter::Filter;
use crate::operator::roles::Job;
use crate::program::Prune;
use crate::shape::{LaunchShape, ShapeChoices};
use crate::table::chunks::PlaceChunks;
use crate::table::places::DenseTarget;
use crate::variant::Site;
use crate::variant::axes::{
    KeyWindows, MorselRows, Predication, RowArrangement, RowLoop, SelectionRows, WritePlaces,
};
use crate::{MicroModel, Resolution};

/// What was chosen for a pipeline.
pub(super) struct ChunkVariants<'a> {
    /// Rows come to the sink with a flag.
    pub flags: bool,
    /// How a dense write finds its places.
    pub places: WritePlaces,
    /// Every row of a table comes to the sink.
    pub keeps_all: bool,
    pub row_loop: RowLoop,
    /// Where lanes of a warp exchange rows.
    pub points: Points,
    /// Keys that are compared with the bounds of finished build sides where a selection vector is made.
    pub windows: Vec<Prune>,
    /// The filters in two parts, where a selection vector is made by that for wide rows, by runtime filters, or both.
    pub wide_filters: Option<WideFilters>,
    /// By what several rows of a thread are tried before one goes on, on a SIMT device.
    pub staged: Option<StagedFiltering>,
    /// By which steps batches of rows are looked up before one goes on, on a CPU.
    pub batched: Option<BatchedSteps>,
    /// Several rows of a thread are loaded at once, and worked on one by one.
    pub holds_rows: bool,
    pub selection: SelectionRows,
    pub morsel: MorselRows,
    /// How its kernels are launched.
    pub shape: LaunchShape,
    pub speculation: Speculation<'a>,
}

/// Of rows that pass filters at a larger share, a selection vector is as long as the table: branches are taken as foretold.
const MOST_SELECTED: f64 = 0.9;

/// Bytes of a row of which several are loaded at once, by rule: those of eight take 32 registers, half of what a thread has where a
/// multiprocessor is half full.
const MOST_HELD_BYTES: u32 = 16;

impl<'a> ChunkVariants<'a> {
    /// Chooses for the pipeline called `site`. `is_counted`: the places of its rows are counted by a kernel before.
    pub(super) fn choose(
        site: &str,
        pipeline: &'a Pipeline,
        is_counted: bool,
        environment: &Environment<'_>,
    ) -> Result<ChunkVariants<'a>, Unsupported> {
        let is_simt = !environment.shape.is_serial();
        let points = exchanges::choose(site, pipeline, (is_counted, is_simt), environment)?;
        let facts = Facts {
            site,
            pipeline,
            environment,
            diverges: points.diverge(pipeline),
            points: &points,
            is_in_warps: points.expand(),
            keeps_all: pipeline.keeps_all() && !is_counted,
            is_simt,
        };
        let speculation = Speculation::of(pipeline);
        let (mut flags, mut places) = (false, WritePlaces::Atomic);
        match pipeline.sink.target() {
            _ if is_counted => {}
            Some(written) => {
                places = facts.places(&written)?;
                flags = matches!(places, WritePlaces::Warp | WritePlaces::Block);
            }
            None => flags = facts.predication(&speculation)?,
        }
        let chosen = facts.row_loop(&speculation, (flags, places), is_counted)?;
        let (side_by_side, before) = (chosen.side_by_side(), chosen.rows_before());
        let Loop { row_loop, wide_filters, staged, holds_rows } = chosen;
        let windows = facts.windows(wide_filters.as_ref().is_some_and(|filters| filters.lacks.is_none()))?;
        let batched = facts.batched(is_counted, places)?;
        let makes_selections = places == WritePlaces::Selection || wide_filters.is_some();
        let (selection, morsel) = facts.batches(makes_selections || batched.is_some())?;
        let batched = batched.map(|batched| batched.of_rows(selection.0));
        let takes_several = match row_loop {
            RowLoop::Wide => false,
            RowLoop::Single => flags && pipeline.sink.target().is_none() && !holds_rows,
            RowLoop::Selected => true,
        };
        let asked = ShapeChoices {
            thread_rows: side_by_side.or(environment.asked.thread_rows),
            ..*environment.asked
        };
        let base = (environment.shape, &asked);
        let site = Site { chooser: environment.chooser, name: site };
        let turns = (takes_several, holds_rows, points.more_rows().plus(before));
        let shape = launches::choose(&site, pipeline, environment.target, base, turns)?;
        let keeps_all = facts.keeps_all;
        Ok(ChunkVariants {
            flags,
            places,
            keeps_all,
            row_loop,
            points,
            windows,
            wide_filters,
            staged,
            batched,
            holds_rows,
            selection,
            morsel,
            shape,
            speculation,
        })
    }

    /// The steps by which rows are selected one after the other.
    pub(super) fn runtime_filters(&self) -> &[usize] {
        self.wide_filters.as_ref().map_or(&[], |filters| &filters.runtime_filters)
    }

    /// Rows before the first that is worked on with which a thread may begin.
    pub(super) fn rows_before(&self) -> u64 {
        rows_before(self.holds_rows, self.staged.as_ref())
    }

    /// Whether the rows of a thread are tried by a step before one goes on.
    pub(super) fn is_tried(&self, step: usize) -> bool {
        self.staged.as_ref().is_some_and(|staged| staged.has(step))
    }

    /// The part of step `index`'s condition that rows of a selection vector are left with; `None`: the step is whole.
    pub(super) fn rest(&self, index: usize) -> Option<Option<&Filter>> {
        self.wide_filters.as_ref().and_then(|filters| filters.rest(index))
    }
}

/// How rows of a table go through the steps: what was chosen, and what it needs.
struct Loop {
    row_loop: RowLoop,
    wide_filters: Option<WideFilters>,
    staged: Option<StagedFiltering>,
    holds_rows: bool,
}

impl Loop {
    const SINGLE: Loop =
        Loop { row_loop: RowLoop::Single, wide_filters: None, staged: None, holds_rows: false };

    /// How many rows of a thread lie side by side, where that does not depend on the launch.
    fn side_by_side(&self) -> Option<u32> {
        let held = self.holds_rows.then_some(WIDE_ROWS.into());
        self.staged.as_ref().and_then(StagedFiltering::rows).or(held)
    }

    /// Rows before the first that is worked on with which a thread may begin.
    fn rows_before(&self) -> u64 {
        rows_before(self.holds_rows, self.staged.as_ref())
    }
}

/// Rows before the first that is worked on with which a thread may begin: rows that are loaded together begin at multiples of their
/// number.
fn rows_before(holds_rows: bool, staged: Option<&StagedFiltering>) -> u64 {
    let held = if holds_rows { WIDE_ROWS.into() } else { 0 };
    held + staged.map_or(0, StagedFiltering::rows_before)
}

/// By what rows are selected before any goes on.
enum Selecting {
    /// A selection vector of a CPU's worker.
    Vector(WideFilters),
    /// Several rows of a thread.
    Tried(StagedFiltering),
}

impl Selecting {
    /// The share of rows that is thought to be selected.
    fn share(&self) -> f64 {
        match self {
            Selecting::Vector(filters) => filters.share,
            Selecting::Tried(staged) => staged.share,
        }
    }
}

/// What the choices follow from.
struct Facts<'a> {
    site: &'a str,
    pipeline: &'a Pipeline,
    environment: &'a Environment<'a>,
    /// A step branches or loops whatever the flow is, and lanes do not come together behind it.
    diverges: bool,
    /// Where lanes exchange rows.
    points: &'a Points,
    /// Warps are in loops of their own where rows come to the sink.
    is_in_warps: bool,
    /// Every row of a table comes to the sink.
    keeps_all: bool,
    is_simt: bool,
}

impl Facts<'_> {
    /// How rows find their places in an array that is written densely.
    fn places(&self, written: &DenseTarget) -> Result<WritePlaces, Unsupported> {
        let resolves = self.environment.micro_model == MicroModel::Resolution && !self.diverges;
        let is_staged = self.pipeline.sink.staged().is_some();
        let in_chunks = written.chunks.is_some();
        let is_worth_it = written.chunks.is_some_and(PlaceChunks::is_worth_it);
        let by_chunks = (WritePlaces::Chunks, "workers do not meet at every row");
        let rule = match (self.is_simt, self.environment.resolution) {
            _ if self.keeps_all && written.keeps_places => {
                (WritePlaces::Atomic, "all rows keep their places")
            }
            (false, _) if self.diverges && is_worth_it => by_chunks,
            _ if self.diverges => (WritePlaces::Atomic, "threads are not together behind a join"),
            _ if !resolves => (WritePlaces::Atomic, "the micro model has an atomic a row"),
            (true, Resolution::WorkEfficient) if written.limit.is_none() && !self.is_in_warps => {
                (WritePlaces::Block, "resolution = work_efficient")
            }
            (true, _) => (WritePlaces::Warp, "one atomic for a warp"),
            (false, _) if is_worth_it => by_chunks,
            (false, _) if is_staged => (WritePlaces::Selection, "one atomic for a batch"),
            (false, _) => (WritePlaces::Atomic, "few rows, or a store that has places by chunks"),
        };
        self.environment.chooser.choose(self.site, rule, |value| match value {
            WritePlaces::Atomic => Ok(()),
            WritePlaces::Chunks if self.is_simt => Err("threads of a warp take places together".into()),
            WritePlaces::Chunks if !in_chunks => {
                Err("few rows are wanted, or a store that has places by chunks".into())
            }
            WritePlaces::Chunks => Ok(()),
            _ if self.diverges => Err("threads are not together behind a join".into()),
            WritePlaces::Warp | WritePlaces::Block if !self.is_simt => {
                Err("a CPU's worker is one thread".into())
            }
            // Lanes leave the loop with their warp once there are enough rows: a block is not together.
            WritePlaces::Block if written.limit.is_some() => {
                Err("a block is not together under a limit".into())
            }
            WritePlaces::Block if self.is_in_warps => Err("warps take matches each for itself".into()),
            WritePlaces::Selection if self.is_simt => Err("only a CPU's worker makes selections".into()),
            WritePlaces::Selection if !is_staged => Err("only the result is written from selections".into()),
            WritePlaces::Warp | WritePlaces::Block | WritePlaces::Selection => Ok(()),
        })
    }

    /// Rows of a selection vector, and those that a CPU's worker takes at a time.
    fn batches(&self, makes_selections: bool) -> Result<(SelectionRows, MorselRows), Unsupported> {
        let (mut selection, mut morsel) = (SelectionRows(1024), MorselRows(65536));
        let (chooser, site) = (self.environment.chooser, self.site);
        if makes_selections {
            let rule = (selection, "a selection vector stays in the first-level cache");
            selection = chooser.choose(site, rule, |_| Ok(()))?;
        }
        if !self.is_simt && self.pipeline.sink.own_rows().is_none() {
            let rule = (morsel, "an atomic counter costs nothing beside so many rows");
            morsel = chooser.choose(site, rule, |_| Ok(()))?;
        }
        Ok((selection, morsel))
    }

    /// Whether rows that go on one by one are loaded several at once.
    fn holds_rows(&self) -> Result<bool, Unsupported> {
        let Environment { target, asked, chooser, micro_model, .. } = *self.environment;
        let Pipeline { source, sink, .. } = self.pipeline;
        let held_bytes = source.held_bytes();
        if !self.is_simt || !sink.takes_held() {
            return Ok(false);
        }
        let of_wide_rows = ShapeChoices { thread_rows: Some(WIDE_ROWS.into()), ..*asked };
        let lacks = match asked.thread_rows {
            Some(rows) if rows != u32::from(WIDE_ROWS) => {
                Err(format!("{rows} rows of a thread are asked for"))
            }
            _ if held_bytes == 0 => Err("no column can be loaded for several rows at once".into()),
            _ => self.pipeline.admits(target, &of_wide_rows, MoreRows::default().plus(WIDE_ROWS.into())),
        };
        let rule = match &lacks {
            Err(lacks) => (RowArrangement::Striped, lacks.as_str()),
            Ok(()) if micro_model != MicroModel::Resolution => {
                (RowArrangement::Striped, "the micro model takes one row at a time")
            }
            Ok(()) if held_bytes > MOST_HELD_BYTES => {
                (RowArrangement::Striped, "columns of several rows would take too many registers")
            }
            Ok(()) => (RowArrangement::Blocked, "one load brings a column's values of several rows"),
        };
        let chosen = chooser.choose(self.site, rule, |value| match (value, &lacks) {
            (RowArrangement::Blocked, Err(lacks)) => Err(lacks.clone()),
            _ => Ok(()),
        })?;
        Ok(chosen == RowArrangement::Blocked)
    }

    /// Whether rows go through the steps one by one, several at once, or one by one where they were selected before.
    fn row_loop(
        &self,
        speculation: &Speculation<'_>,
        (flags, places): (bool, WritePlaces),
        is_counted: bool,
    ) -> Result<Loop, Unsupported> {
        let Facts { pipeline, environment, .. } = *self;
        let on = (environment.target, environment.shape);
        if !pipeline.source.is_scan() || pipeline.sink.own_rows().is_some() {
            return Ok(Loop::SINGLE);
        }
        let selecting = match self.is_simt {
            true => self.staged(speculation, (flags, places), is_counted)?.map(Selecting::Tried),
            false => self.wide_filters(places, is_counted)?.map(Selecting::Vector),
        };
        let needed = BTreeSet::new();
        let wide = || {
            supports_all(pipeline, speculation, on, |rows| Job {
                rows,
                counting: None,
                needed: &needed,
                flags: true,
                wide: true,
                held: false,
                keeps_all: false,
                places: WritePlaces::Atomic,
                thread_rows: u64::MAX,
            })
        };
        let wide = match !self.points.is_empty() {
            true => Err("lanes exchange rows, of which each has one".into()),
            false => wide(),
        };
        let rule = match (&wide, &selecting) {
            _ if environment.micro_model != MicroModel::Resolution => {
                (RowLoop::Single, "the micro model takes one row at a time")
            }
            (Ok(()), _) => (RowLoop::Wide, "everything has a form for several rows at once"),
            (_, Ok(Selecting::Vector(filters))) if filters.found().is_some() => {
                (RowLoop::Selected, "texts are searched batch by batch")
            }
            (_, Ok(Selecting::Vector(filters))) if !filters.runtime_filters.is_empty() => {
                (RowLoop::Selected, "branches of joins would be foretold badly")
            }
            (_, Ok(selecting)) if selecting.share() > MOST_SELECTED => {
                (RowLoop::Single, "filters keep nearly all rows")
            }
            (_, Ok(Selecting::Tried(_))) => (RowLoop::Selected, "their loads hide each other's latency"),
            (_, Ok(Selecting::Vector(_))) => {
                (RowLoop::Selected, "branches of filters would be foretold badly")
            }
            _ => (RowLoop::Single, "not everything has a form for several rows at once"),
        };
        let chosen =
            environment.chooser.choose(self.site, rule, |value| match (value, &wide, &selecting) {
                (RowLoop::Wide, Err(lacks), _) | (RowLoop::Selected, _, Err(lacks)) => Err(lacks.clone()),
                _ => Ok(()),
            })?;
        let comes_alone = chosen == RowLoop::Single && flags && pipeline.sink.target().is_none();
        let holds_rows = comes_alone && self.holds_rows()?;
        let chosen = Loop { row_loop: chosen, holds_rows, ..Loop::SINGLE };
        Ok(match selecting.ok().filter(|_| chosen.row_loop == RowLoop::Selected) {
            Some(Selecting::Vector(filters)) => Loop { wide_filters: Some(filters), ..chosen },
            Some(Selecting::Tried(staged)) => Loop { staged: Some(self.arranged(staged)?), ..chosen },
            None => chosen,
        })
    }

    /// The keys that are compared with bounds of build sides where rows are selected several at once.
    fn windows(&self, are_selected: bool) -> Result<Vec<Prune>, Unsupported> {
        let prunes = &self.pipeline.prunes;
        if prunes.is_empty() || !are_selected {
            return Ok(Vec::new());
        }
        let rule = (KeyWindows::On, "comparing several keys costs less than looking one up");
        let chosen = self.environment.chooser.choose(self.site, rule, |_| Ok(()))?;
        Ok(if chosen == KeyWindows::On { prunes.clone() } else { Vec::new() })
    }

    /// Whether rows come with a flag to a sink that does more than to write densely: that saves a branch which a processor
    /// would predict badly.
    fn predication(&self, speculation: &Speculation<'_>) -> Result<bool, Unsupported> {
        // Where lanes exchange rows nobody has looked at what those without one have in their registers.
        let takes = !self.diverges
            && self.points.is_empty()
            && self.pipeline.sink.takes_flags(&|expr| speculation.of_result(expr));
        let rule = match takes {
            true => (Predication::Flags, "expressions are cheap and cannot fail"),
            false => (Predication::Branches, "dead rows must not be computed"),
        };
        let chosen = self.environment.chooser.choose(self.site, rule, |value| match value {
            Predication::Flags if !takes => Err("what follows must not be computed for dead rows".into()),
            Predication::Flags | Predication::Branches => Ok(()),
        })?;
        Ok(chosen == Predication::Flags)
    }
}
