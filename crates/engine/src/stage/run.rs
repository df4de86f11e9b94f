//! A running stage: groups, chains and launches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use kelpie_compile::context::{Argument, ColumnPart, Status};
use kelpie_compile::pipeline::{CompiledPipeline, Rows, Sorting};
use kelpie_compile::types::Field;
use kelpie_device::{Buffer, Device, Kernel, KernelArgument};

use super::account::failure;
use super::blocks::Blocks;
use super::counting::Counted;
use super::draining::{Drained, Draining};
use super::{Prepared, Setting};
use crate::delivery::Rows as Outlet;
use crate::error::{EngineError, FallbackReason};
use crate::heap::TextHeap;
use crate::launch::launch;
use crate::primitives::Primitives;
use crate::prune::Bounded;
use crate::sorting::Order;
use crate::{PipelineMetrics, prune, result, sorting};

/// Times that a group runs again because some state was too small, at most.
const GROW_LIMIT: u32 = 24;
/// Rows of a store, at most.
const MOST_STORED_ROWS: u64 = (1 << 31) - 1;
/// Rows that a block of a launch should have, at least, for its start to pay.
const ROWS_PER_CPU_BLOCK: u64 = 16 << 10;

/// A running stage: the state buffers of one execution.
pub(super) struct Run<'a> {
    pub device: &'a Arc<dyn Device>,
    pub setting: Setting<'a>,
    pub prepared: &'a Prepared,
    pub capacities: Vec<u64>,
    pub buffers: Vec<Option<Buffer>>,
    pub constants: HashMap<Vec<u8>, Buffer>,
    pub heap: TextHeap,
    /// Where the columns of the block that runs are, if they stream.
    pub windows: HashMap<(usize, usize, ColumnPart), KernelArgument>,
    /// The result's columns.
    pub schema: SchemaRef,
    /// What was brought from the device while it was made.
    pub drained: Drained,
    /// Rows of the result that are still on the device and complete.
    pub undrained: u64,
    /// The states that the group clears before it runs.
    pub cleared: Vec<usize>,
    /// What finished groups have counted, by state.
    counted: HashMap<usize, u64>,
}

/// How a chain ended.
enum Step {
    Done,
    /// The group is to run again: some state has grown.
    Again,
    /// A join's promise was broken.
    Duplicate(usize),
}

/// What a status asks for.
pub(super) enum Verdict {
    Done,
    Grow,
    Duplicate(usize),
}

impl<'a> Run<'a> {
    pub fn new(
        prepared: &'a Prepared,
        setting: Setting<'a>,
        capacities: Option<Vec<u64>>,
        fields: Vec<Field>,
    ) -> Run<'a> {
        Run {
            device: setting.stream.device(),
            setting,
            prepared,
            capacities: super::state::initial(&prepared.program, &setting.movement, capacities),
            buffers: vec![None; prepared.program.states.len()],
            constants: HashMap::new(),
            heap: TextHeap::new(setting.movement.initial_bytes),
            windows: HashMap::new(),
            schema: result::arrow_schema(&fields),
            drained: Drained::default(),
            undrained: 0,
            cleared: Vec::new(),
            counted: HashMap::new(),
        }
    }

    /// Computes the order of a sort's rows, and how many are delivered; the time on the device or host, in nanoseconds.
    pub fn order(&mut self, sorting: &Sorting) -> Result<u64, EngineError> {
        let start = Instant::now();
        let rows = self.read_word(sorting.rows)?;
        let order = if rows <= self.prepared.host_order_rows {
            let parts: Vec<_> = sorting.words.iter().map(|word| (*word, rows as usize * 8)).collect();
            sorting::on_host(sorting, &self.read_states(&parts)?, rows as usize)
        } else {
            let words = sorting.words.iter().map(|word| self.buffer(*word));
            let words = words.collect::<Result<Vec<_>, _>>()?;
            let Setting { stream, cache, cancel, .. } = self.setting;
            let mut primitives = Primitives::new(stream, cache, cancel)?;
            sorting::on_device(sorting, &mut primitives, &words, rows)?
        };
        let delivered = match order {
            Order::Host(order) => {
                let bytes: Vec<u8> = order.iter().flat_map(|place| place.to_le_bytes()).collect();
                let buffer = self.buffer(sorting.order)?;
                self.setting.stream.upload(&buffer, 0, &bytes)?;
                order.len() as u64
            }
            Order::Device(order, delivered) => {
                self.buffers[sorting.order] = Some(order);
                delivered
            }
        };
        let buffer = self.buffer(sorting.delivered)?;
        self.setting.stream.upload(&buffer, 0, &delivered.to_le_bytes())?;
        if let Some(class) = sorting.class {
            self.resize(class, delivered.max(self.capacities[class]));
        }
        Ok(start.elapsed().as_nanos() as u64)
    }

    /// Runs the pipelines of a group, the first of which is number `first`, until none of them lacks room. The join whose
    /// promise was broken, if one was.
    pub fn group(
        &mut self,
        first: usize,
        pipelines: &[CompiledPipeline],
        out: &mut dyn Outlet,
    ) -> Result<(Vec<PipelineMetrics>, Option<usize>), EngineError> {
        let mut reports: Vec<PipelineMetrics> = Vec::new();
        for pipeline in pipelines {
            self.size(pipeline)?;
            reports.push(PipelineMetrics { name: pipeline.name.clone(), ..PipelineMetrics::default() });
        }
        self.cleared = pipelines.iter().flat_map(|pipeline| pipeline.zeroed.clone()).collect();
        let apart = self.setting.movement.kernel_at_a_time;
        let is_last = self.prepared.program.pipelines.len() == first + pipelines.len();
        let mut runs = 0;
        while runs <= GROW_LIMIT {
            runs += 1;
            self.clear_group()?;
            if is_last {
                self.drained.restart();
            }
            self.undrained = 0;
            reports.iter_mut().for_each(|report| report.rows_in = 0);
            let (mut done, mut again) = (0, false);
            for chain in pipelines.chunk_by(|_, next| next.continues && !apart) {
                let reports = &mut reports[done..done + chain.len()];
                match self.chain(first + done, chain, (pipelines, out), reports)? {
                    Step::Done => done += chain.len(),
                    Step::Duplicate(join) => return Ok((Vec::new(), Some(join))),
                    Step::Again => {
                        again = true;
                        break;
                    }
                }
            }
            if again && self.drained.draining == Draining::Deliver {
                return Err(EngineError::Internal(
                    "a result needs more room after rows of it went out".into(),
                ));
            }
            if !again && is_last && self.drained.draining == Draining::Check {
                // Nothing fails: now for good.
                self.drained.draining = Draining::Deliver;
                runs = 0;
                continue;
            }
            if !again {
                for (pipeline, report) in pipelines.iter().zip(&mut reports) {
                    self.account(pipeline, report)?;
                    self.counted.extend(pipeline.produced.map(|state| (state, report.rows_out)));
                }
                return Ok((reports, None));
            }
        }
        Err(failure(Some(Status::Grow), Status::Grow as u32, &[]))
    }

    fn clear_group(&mut self) -> Result<(), EngineError> {
        let cleared = std::mem::take(&mut self.cleared);
        let done = self.clear(&cleared);
        self.cleared = cleared;
        done
    }

    /// Runs a chain over all rows of its source, block by block where they stream.
    fn chain(
        &mut self,
        first: usize,
        chain: &[CompiledPipeline],
        (group, out): (&[CompiledPipeline], &mut dyn Outlet),
        reports: &mut [PipelineMetrics],
    ) -> Result<Step, EngineError> {
        let Some(source) = chain.first() else { return Ok(Step::Done) };
        if source.skipped_if_empty.iter().any(|state| self.counted.get(state) == Some(&0)) {
            for pipeline in chain {
                self.clear(&pipeline.stores)?;
            }
            return Ok(Step::Done);
        }
        let start = Instant::now();
        let rows = self.source_rows(source)?;
        let appends = self.appends(chain);
        let mut blocks = self.blocks_of(source, rows, appends)?;
        for (pipeline, report) in chain.iter().zip(reports.iter_mut()) {
            report.run_ns += self.sum_up(&pipeline.prefix_sums)?;
        }
        // A result of several blocks need not be on the device as a whole.
        let in_parts = blocks.len() > 1
            || self.undrained > 0
            || self.drained.rows > 0
            || self.drained.block_rows.is_some()
            || self.setting.movement.initial_bytes.is_some();
        let drains = in_parts && appends;
        if drains {
            self.undrained = self.read_word(self.prepared.program.output.count)?;
        }
        let mark = self.heap_mark(chain)?;
        let (mut index, mut made) = (0, 0);
        while index < blocks.len() {
            let mut rows = blocks.begin(index, self)?;
            // As many rows as the last block made have no room beside those that are there.
            if drains && self.undrained > 0 && self.undrained.saturating_add(made) > self.result_capacity() {
                self.drain(group, out)?;
                self.clear_group()?;
            }
            for (position, pipeline) in chain.iter().enumerate() {
                let is_last = position + 1 == chain.len();
                let mut tries = 0;
                loop {
                    if index == 0 || chain.len() > 1 {
                        self.clear(&pipeline.stores)?;
                    }
                    self.clear(&pipeline.restarted)?;
                    if let Some(mark) = mark {
                        self.heap.rewind(mark, self.device)?;
                    }
                    let own = if position == 0 { rows.clone() } else { 0..self.source_rows(pipeline)? };
                    match self.launch(first + position, pipeline, own, &mut reports[position])? {
                        Verdict::Done => break,
                        Verdict::Duplicate(join) => return Ok(Step::Duplicate(join)),
                        Verdict::Grow if is_last && !drains => {
                            self.grow_or_cut(pipeline, blocks.len() - index, (appends, mark.is_some()))?;
                            return Ok(Step::Again);
                        }
                        Verdict::Grow if tries == GROW_LIMIT => {
                            return Err(failure(Some(Status::Grow), Status::Grow as u32, &[]));
                        }
                        // What earlier blocks delivered makes room; only this block is in doubt.
                        Verdict::Grow if is_last && self.undrained > 0 => {
                            self.grow_heap()?;
                            self.drain(group, out)?;
                        }
                        Verdict::Grow if is_last && chain.len() == 1 && blocks.is_free() => {
                            if let Some(shorter) = self.grow_or_shorten(pipeline, &rows, mark.is_some())? {
                                rows = blocks.shorten(index, shorter);
                            }
                        }
                        Verdict::Grow => self.grow(pipeline, 1)?,
                    }
                    if is_last {
                        self.clear_group()?;
                    }
                    tries += 1;
                }
            }
            if drains {
                let before = self.undrained;
                self.undrained = self.read_word(self.prepared.program.output.count)?;
                made = self.undrained - before.min(self.undrained);
            }
            index += 1;
            if self.drained.draining == Draining::Deliver && out.is_full() {
                break;
            }
        }
        if let Some(report) = reports.first_mut() {
            report.blocks += blocks.len() as u64;
            report.link_bytes += blocks.link_bytes;
            report.wall_ns += start.elapsed().as_nanos() as u64;
        }
        self.windows.clear();
        Ok(Step::Done)
    }

    /// The rows of a pipeline's source.
    fn source_rows(&self, pipeline: &CompiledPipeline) -> Result<u64, EngineError> {
        Ok(match pipeline.rows {
            Rows::Scan(scan) => {
                let loaded = self.setting.loaded.get(scan);
                let missing = || EngineError::Internal(format!("{}: scan {scan} is missing", pipeline.name));
                loaded.ok_or_else(missing)?.rows
            }
            Rows::Class(class) => self.capacities[class],
            Rows::Counted(counter) => stored_rows(self.read_word(counter)?, &pipeline.name)?,
        })
    }

    /// The blocks of a pipeline's source in which every finished build side may have a match.
    fn blocks_of(
        &mut self,
        pipeline: &CompiledPipeline,
        rows: u64,
        appends: bool,
    ) -> Result<Blocks, EngineError> {
        let bounds = self.bounds(pipeline)?;
        let most = self.drained.block_rows.filter(|_| appends);
        Blocks::plan(self, pipeline, rows, (&bounds, most))
    }

    /// The zones of the columns that finished build sides bound, and those bounds.
    fn bounds(&self, pipeline: &CompiledPipeline) -> Result<Vec<Bounded<'a>>, EngineError> {
        let Rows::Scan(scan) = pipeline.rows else { return Ok(Vec::new()) };
        let mut bounds = Vec::new();
        for prune in &pipeline.prunes {
            let zones = &self.column(scan, prune.column)?.zones;
            if zones.is_empty() {
                continue;
            }
            let mut words = [0; 16];
            if let Some(buffer) = &self.buffers[prune.bounds] {
                self.setting.stream.download(buffer, 0, &mut words)?;
            }
            bounds.push((zones.as_slice(), prune::bounds(words)));
        }
        Ok(bounds)
    }

    /// Replaces states of `u32` by their exclusive prefix sum; the time on the device, in nanoseconds.
    fn sum_up(&mut self, states: &[usize]) -> Result<u64, EngineError> {
        let mut time_ns = 0;
        for &state in states {
            let buffer = self.buffer(state)?;
            let rows = self.capacities[self.prepared.program.states[state].class];
            let Setting { stream, cache, cancel, .. } = self.setting;
            let mut primitives = Primitives::new(stream, cache, cancel)?;
            primitives.exclusive_scan(&buffer, rows)?;
            time_ns += primitives.time_ns;
        }
        Ok(time_ns)
    }

    /// Launches a pipeline once.
    fn launch(
        &mut self,
        index: usize,
        pipeline: &CompiledPipeline,
        rows: Range<u64>,
        metrics: &mut PipelineMetrics,
    ) -> Result<Verdict, EngineError> {
        if self.setting.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let until = match &pipeline.counting {
            None => None,
            Some(counting) => match self.count((index, pipeline), counting, &rows, metrics)? {
                Counted::Not(verdict) => return Ok(verdict),
                Counted::Until(until) => Some((counting.total, until)),
            },
        };
        metrics.rows_in += rows.end - rows.start;
        let kernel = self.prepared.kernels[index].as_ref();
        let verdict = self.launch_kernel((kernel, &pipeline.arguments), pipeline, &rows, metrics)?;
        if let (Verdict::Done, Some((total, until))) = (&verdict, until) {
            self.set_word(total, until)?;
        }
        Ok(verdict)
    }

    /// Launches one of a pipeline's kernels once.
    pub fn launch_kernel(
        &mut self,
        (kernel, declared): (&dyn Kernel, &[Argument]),
        pipeline: &CompiledPipeline,
        rows: &Range<u64>,
        metrics: &mut PipelineMetrics,
    ) -> Result<Verdict, EngineError> {
        let arguments = self.arguments(declared, rows)?;
        let (blocks, cancel) = (self.grid(rows.end - rows.start), self.setting.cancel);
        let report = launch(self.setting.stream, kernel, blocks, &arguments, cancel)?;
        metrics.run_ns += report.time_ns;
        metrics.launches += 1;
        if !report.accessed.is_empty() {
            let traffic = self.traffic(declared, &arguments, &report.accessed);
            *metrics.traffic.get_or_insert_default() += traffic;
        }
        if let Some(activity) = report.activity {
            let possible = activity.warp_steps.saturating_mul(u64::from(self.device.target().lanes)).max(1);
            metrics.lane_activity = Some(activity.lane_steps as f64 / possible as f64);
        }
        match (Status::from_code(report.status), pipeline.join) {
            (None, _) if report.status == 0 => Ok(Verdict::Done),
            (Some(Status::Grow), _) => Ok(Verdict::Grow),
            (Some(Status::Duplicate), Some(join)) => Ok(Verdict::Duplicate(join)),
            (other, _) => Err(failure(other, report.status, &pipeline.sums)),
        }
    }

    /// Blocks of a launch: enough to fill the device, no more than the rows can use. Generated code relies on it that
    /// there are `resident_blocks`, or at least one thread a row (`operator::aggregate::threads`).
    fn grid(&self, rows: u64) -> u32 {
        let target = self.device.target();
        let per_block =
            if target.block_threads == 1 { ROWS_PER_CPU_BLOCK } else { u64::from(target.block_threads) };
        let useful = rows.div_ceil(per_block).max(1);
        u32::try_from(useful).unwrap_or(u32::MAX).min(target.resident_blocks.max(1))
    }
}

/// The rows of a store, which an index addresses by 31 bits.
fn stored_rows(rows: u64, pipeline: &str) -> Result<u64, EngineError> {
    match rows <= MOST_STORED_ROWS {
        true => Ok(rows),
        false => Err(FallbackReason::Rows { what: pipeline.into(), rows, most: MOST_STORED_ROWS }.into()),
    }
}
