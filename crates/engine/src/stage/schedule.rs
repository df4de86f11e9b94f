//! The order of events in a running stage: groups of pipelines, the chains of a group, the blocks of a chain, and for each the occasions on which
//! a pipeline's actions are due ([`actions`](super::actions)).

use std::ops::Range;
use std::time::Instant;

use kelpie_compile::context::{Argument, Status};
use kelpie_compile::pipeline::{
    BlockRows, CompiledKernel, CompiledPipeline, PipelineVariant, RowCount, Task, When,
};
use kelpie_device::Kernel;

use super::account::failure;
use super::blocks::Blocks;
use super::drained::Draining;
use super::occasion::{AtHand, Occasion, Verdict};
use super::run::{MOST_STORED_ROWS, Run};
use super::trial::Trial;
use crate::delivery::RowReceiver;
use crate::error::{EngineError, FallbackReason};
use crate::heap::HeapMark;
use crate::metrics::PipelineMetrics;
use crate::prune;
use crate::prune::Bounded;

/// Times that a group runs again because some state was too small, at most.
const GROW_LIMIT: u32 = 24;

/// How a chain, or one of its pipelines, ended.
enum Ended {
    Done,
    /// The group is to run again: some state has grown.
    Again,
    /// A join's build keys are not unique, as was assumed.
    NotUnique(usize),
    /// It is part of a trial that fell behind, of which nothing has gone out.
    GivenUp,
}

/// How a group ended.
pub(super) enum Group {
    /// With what its pipelines did.
    Done(Vec<PipelineMetrics>),
    /// The join whose promise was broken.
    NotUnique(usize),
    /// As [`Ended::GivenUp`].
    GivenUp,
}

/// A chain of pipelines that runs.
struct Chain<'a> {
    /// The number of its first pipeline.
    first: usize,
    pipelines: &'a [CompiledPipeline],
    blocks: Blocks,
    /// The block that runs, and its rows.
    index: usize,
    rows: Range<u64>,
    /// It appends to the result.
    appends: bool,
    /// What earlier blocks appended may be taken from the device before it ends.
    drains: bool,
    /// Where the heap is set back to before each launch.
    mark: Option<HeapMark>,
}

impl<'a> Run<'a> {
    /// Runs the pipelines of a group, the first of which is number `first`, until none of them lacks room.
    pub fn group(
        &mut self,
        first: usize,
        group: &'a [CompiledPipeline],
        out: &mut dyn RowReceiver,
    ) -> Result<Group, EngineError> {
        self.group = group;
        let named = |pipeline: &CompiledPipeline| PipelineMetrics {
            name: pipeline.name.clone(),
            ..PipelineMetrics::default()
        };
        let mut reports: Vec<PipelineMetrics> = group.iter().map(named).collect();
        if first == 0 {
            self.initialise()?;
        }
        self.perform_all(When::BeforeGroup, first, group, &mut reports)?;
        let is_last = self.prepared.program.pipelines.len() == first + group.len();
        let mut runs = 0;
        while runs <= GROW_LIMIT {
            runs += 1;
            self.clear_group()?;
            if is_last {
                self.drained.restart();
            }
            self.drained.waiting = 0;
            reports.iter_mut().for_each(|report| report.rows_in = 0);
            let again = match self.chains(first, out, &mut reports)? {
                Ended::Done => false,
                Ended::Again => true,
                Ended::NotUnique(join) => return Ok(Group::NotUnique(join)),
                Ended::GivenUp => return Ok(Group::GivenUp),
            };
            match self.drained.draining {
                Draining::Deliver if again => {
                    let what = "a result needs more room after rows of it went out";
                    return Err(EngineError::Internal(what.into()));
                }
                // Nothing fails: now for good.
                Draining::Check if !again && is_last => {
                    self.drained.draining = Draining::Deliver;
                    runs = 0;
                }
                _ if again => {}
                _ => {
                    for (pipeline, report) in group.iter().zip(&mut reports) {
                        self.account(pipeline, report)?;
                        self.counted.extend(pipeline.produced.zip(report.rows_out));
                    }
                    return Ok(Group::Done(reports));
                }
            }
        }
        Err(grew_too_often())
    }

    /// Runs the chains of the group one after the other.
    fn chains(
        &mut self,
        first: usize,
        out: &mut dyn RowReceiver,
        reports: &mut [PipelineMetrics],
    ) -> Result<Ended, EngineError> {
        let apart = self.setting.movement.kernel_at_a_time;
        let mut done = 0;
        for chain in self.group.chunk_by(|_, next| next.continues && !apart) {
            let reports = &mut reports[done..done + chain.len()];
            match self.chain(first + done, chain, out, reports)? {
                Ended::Done => done += chain.len(),
                other => return Ok(other),
            }
        }
        Ok(Ended::Done)
    }

    /// Carries out the actions of several pipelines, the first of which is number `first`.
    fn perform_all(
        &mut self,
        when: When,
        first: usize,
        pipelines: &[CompiledPipeline],
        reports: &mut [PipelineMetrics],
    ) -> Result<Verdict, EngineError> {
        for ((index, pipeline), report) in (first..).zip(pipelines).zip(reports) {
            match self.perform(when, &mut Occasion::new(index, pipeline, report))? {
                Verdict::Done => {}
                other => return Ok(other),
            }
            // What other variants need before any block is that their own counters begin at zero.
            for task in pipeline.others.iter().flat_map(|other| other.tasks(when)) {
                if let Task::Clear(state) = task {
                    self.store.clear(*state)?;
                }
            }
        }
        Ok(Verdict::Done)
    }

    /// Forgets what the group has made.
    pub fn clear_group(&mut self) -> Result<(), EngineError> {
        let mut reports = vec![PipelineMetrics::default(); self.group.len()];
        self.perform_all(When::BeforeRun, 0, self.group, &mut reports)?;
        Ok(())
    }

    /// Runs a chain over all rows of its source, block by block where they stream.
    fn chain(
        &mut self,
        first: usize,
        pipelines: &'a [CompiledPipeline],
        out: &mut dyn RowReceiver,
        reports: &mut [PipelineMetrics],
    ) -> Result<Ended, EngineError> {
        let start = Instant::now();
        if let Verdict::Skip = self.perform_all(When::BeforeChain, first, pipelines, reports)? {
            self.perform_all(When::BeforeBlock, first, pipelines, reports)?;
            return Ok(Ended::Done);
        }
        let mut chain = self.begin(first, pipelines)?;
        let mut made = 0;
        while chain.index < chain.blocks.len() {
            chain.rows = chain.blocks.begin(chain.index, &self.setting, &mut self.launcher.windows)?;
            // As many rows as the last block made have no room beside those that are there.
            let waiting = self.drained.waiting;
            if chain.drains && waiting > 0 && waiting.saturating_add(made) > self.result_capacity() {
                self.drain(out)?;
                self.clear_group()?;
            }
            for (position, report) in reports.iter_mut().enumerate() {
                match self.attempts(&mut chain, position, out, report)? {
                    Ended::Done => {}
                    other => return Ok(other),
                }
            }
            if chain.drains {
                let before = self.drained.waiting;
                self.drained.waiting = self.store.read_word(self.prepared.program.output.count)?;
                made = self.drained.waiting - before.min(self.drained.waiting);
            }
            chain.index += 1;
            let is_behind = self.setting.trial.is_some_and(Trial::is_behind);
            if is_behind && self.drained.rows == 0 {
                return Ok(Ended::GivenUp);
            }
            if self.drained.draining == Draining::Deliver && out.is_full() {
                break;
            }
        }
        if let Some(report) = reports.first_mut() {
            report.blocks += chain.blocks.len() as u64;
            report.link_bytes += chain.blocks.link_bytes;
            report.wall_ns += start.elapsed().as_nanos() as u64;
        }
        self.launcher.windows.clear();
        Ok(Ended::Done)
    }

    /// A chain before its first block.
    fn begin(&mut self, first: usize, pipelines: &'a [CompiledPipeline]) -> Result<Chain<'a>, EngineError> {
        let Some(source) = pipelines.first() else {
            return Err(EngineError::Internal("a chain without pipelines".into()));
        };
        let rows = self.source_rows(source)?;
        let appends = self.appends(pipelines);
        let bounds = self.bounds(source)?;
        let most = self.drained.block_rows.filter(|_| appends);
        let most = match source.blocks {
            BlockRows::Any => most,
            BlockRows::AtMost(rows) => Some(most.unwrap_or(rows).min(rows)),
            BlockRows::Whole => Some(u64::MAX),
        };
        let mut blocks = Blocks::plan(&self.setting, &self.store, (source, rows), (&bounds, most))?;
        if source.blocks != BlockRows::Whole && self.setting.trial.is_some_and(Trial::is_bound) {
            blocks.ramp();
        }
        // A result of several blocks need not be on the device as a whole.
        let in_parts = blocks.len() > 1
            || self.drained.waiting > 0
            || self.drained.rows > 0
            || self.drained.block_rows.is_some()
            || self.setting.movement.initial_bytes.is_some();
        let drains = in_parts && appends;
        // What leaves the device before the stage has ended must be right, and text is made as there is room for it.
        if drains || makes_text(pipelines) {
            self.settle()?;
        }
        if drains {
            self.drained.waiting = self.store.read_word(self.prepared.program.output.count)?;
        }
        let mark = self.heap_mark(pipelines)?;
        Ok(Chain { first, pipelines, blocks, index: 0, rows: 0..0, appends, drains, mark })
    }

    /// Launches one pipeline of a chain over the block that runs until it comes to its end.
    fn attempts(
        &mut self,
        chain: &mut Chain<'a>,
        position: usize,
        out: &mut dyn RowReceiver,
        report: &mut PipelineMetrics,
    ) -> Result<Ended, EngineError> {
        let Some(pipeline) = chain.pipelines.get(position) else { return Ok(Ended::Done) };
        let is_last = position + 1 == chain.pipelines.len();
        let at = &mut Occasion::new(chain.first + position, pipeline, report);
        at.turn = match self.setting.trial {
            Some(trial) => trial.turn(at.index),
            None => chain.index % pipeline.variants().count(),
        };
        if position == 0 && chain.index == 0 && self.wants_sketch(at) {
            at.at_hand = AtHand::of(&chain.blocks);
        }
        for _ in 0..=GROW_LIMIT {
            if chain.index == 0 || chain.pipelines.len() > 1 {
                self.perform(When::BeforeBlock, at)?;
            }
            if let Some(mark) = chain.mark {
                self.store.rewind_heap(mark)?;
            }
            at.rows = if position == 0 { chain.rows.clone() } else { 0..self.source_rows(pipeline)? };
            match self.launch(at)? {
                Verdict::Done | Verdict::Skip => return Ok(Ended::Done),
                Verdict::NotUnique(join) => return Ok(Ended::NotUnique(join)),
                Verdict::Grow if is_last && !chain.drains => {
                    let blocks = chain.blocks.len() - chain.index;
                    self.grow_or_cut(at, blocks, (chain.appends, chain.mark.is_some()))?;
                    return Ok(Ended::Again);
                }
                // What earlier blocks delivered makes room; only this block is in doubt.
                Verdict::Grow if is_last && self.drained.waiting > 0 => {
                    self.store.grow_heap()?;
                    self.drain(out)?;
                }
                Verdict::Grow if is_last && chain.pipelines.len() == 1 && chain.blocks.is_free() => {
                    if let Some(shorter) = self.grow_or_shorten(at, chain.mark.is_some())? {
                        chain.rows = chain.blocks.shorten(chain.index, shorter);
                    }
                }
                Verdict::Grow => self.grow(at, 1)?,
            }
            if is_last {
                self.clear_group()?;
            }
        }
        Err(grew_too_often())
    }

    /// Launches a pipeline's kernels once, with the actions before and after.
    fn launch(&mut self, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        let before = at.metrics.run_ns;
        match self.perform(When::BeforeLaunch, at)? {
            Verdict::Done => {}
            other => return Ok(other),
        }
        at.metrics.rows_in += at.rows.end - at.rows.start;
        let rows = at.rows.end - at.rows.start;
        at.metrics.variant_rows.resize(at.pipeline.variants().count(), 0);
        at.metrics.variant_rows[at.turn] += rows;
        let kernel = self.prepared.kernels[at.index][at.turn].main.get(self.setting.stream)?;
        let verdict = self.launch_kernel((kernel.as_ref(), &at.variant().kernel), at)?;
        self.launched(at.index);
        let verdict = match verdict {
            Verdict::Done => self.perform(When::AfterLaunch, at)?,
            other => other,
        };
        // What lacked room tells nothing.
        if let (Some(trial), Verdict::Done) = (self.setting.trial, &verdict) {
            trial.measured((at.index, at.turn), at.pipeline, (rows, at.metrics.run_ns - before));
        }
        Ok(verdict)
    }

    /// Launches one of a pipeline's kernels once.
    pub fn launch_kernel(
        &mut self,
        kernel: (&dyn Kernel, &CompiledKernel),
        at: &mut Occasion<'_>,
    ) -> Result<Verdict, EngineError> {
        let code = self.launcher.launch(kernel, &at.rows, &mut self.store, at.metrics)?;
        let status = Status::from_code(code);
        match status {
            None if code == 0 => Ok(Verdict::Done),
            Some(Status::Grow) => Ok(Verdict::Grow),
            Some(Status::NotUnique) => match self.perform(When::OnNotUnique, at)? {
                Verdict::Done => Err(failure(status, code, &at.pipeline.sums)),
                other => Ok(other),
            },
            _ => Err(failure(status, code, &at.pipeline.sums)),
        }
    }

    /// Makes room after a launch that lacked it; `blocks`: how many may want as much of it as the one that ran.
    pub fn grow(&mut self, at: &mut Occasion<'_>, blocks: usize) -> Result<(), EngineError> {
        // Later blocks want room too; workers of a CPU have stopped when there was none.
        at.is_partial = blocks > 1 || at.variant().kernel.shape.is_serial();
        at.grown = false;
        self.perform(When::OnGrow, at)?;
        match at.grown {
            true => Ok(()),
            false => {
                let name = &at.pipeline.name;
                Err(EngineError::Internal(format!("{name} asks for more state, but has enough")))
            }
        }
    }

    /// Where the heap is to be set back to before each block: text that is made only for rows of the result, which have
    /// copies of it, need not stay.
    fn heap_mark(&self, chain: &[CompiledPipeline]) -> Result<Option<HeapMark>, EngineError> {
        if chain.iter().any(|pipeline| pipeline.keeps_text) || !makes_text(chain) {
            return Ok(None);
        }
        self.store.heap_mark().map(Some)
    }

    /// The rows of a pipeline's source.
    pub fn source_rows(&self, pipeline: &CompiledPipeline) -> Result<u64, EngineError> {
        Ok(match pipeline.rows {
            RowCount::Scan(scan) => {
                let loaded = self.setting.loaded.get(scan);
                let missing = || EngineError::Internal(format!("{}: scan {scan} is missing", pipeline.name));
                loaded.ok_or_else(missing)?.rows
            }
            RowCount::Class(class) => self.store.capacity(class),
            RowCount::Counted(counter) => {
                // Workers take many places at a time: the last of these may lie beyond the store, where no row is.
                let places = self.store.at_most(counter)?.min(self.store.room_for_counted(counter));
                stored_rows(places, &pipeline.name)?
            }
        })
    }

    /// The zones of the columns that finished build sides bound, and those bounds.
    fn bounds(&self, pipeline: &CompiledPipeline) -> Result<Vec<Bounded<'a>>, EngineError> {
        let RowCount::Scan(scan) = pipeline.rows else { return Ok(Vec::new()) };
        let mut bounds = Vec::new();
        for prune in &pipeline.prunes {
            let zones = &self.setting.column(scan, prune.column)?.zones;
            if zones.is_empty() {
                continue;
            }
            let mut words = [0; 16];
            self.store.read_small(prune.bounds, &mut words)?;
            bounds.push((zones.as_slice(), prune::bounds(words)));
        }
        Ok(bounds)
    }
}

/// Whether kernels of a chain make text.
fn makes_text(chain: &[CompiledPipeline]) -> bool {
    let variants = chain.iter().flat_map(CompiledPipeline::variants);
    let mut arguments = variants.flat_map(PipelineVariant::all_arguments);
    arguments.any(|argument| matches!(argument, Argument::Heap(_)))
}

/// The rows of a store, which an index addresses by 31 bits.
fn stored_rows(rows: u64, pipeline: &str) -> Result<u64, EngineError> {
    match rows <= MOST_STORED_ROWS {
        true => Ok(rows),
        false => Err(FallbackReason::Rows { what: pipeline.into(), rows, most: MOST_STORED_ROWS }.into()),
    }
}

fn grew_too_often() -> EngineError {
    failure(Some(Status::Grow), Status::Grow as u32, &[])
}
