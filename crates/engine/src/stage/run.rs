//! A running stage: groups, chains and launches.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use kelpie_compile::context::{Argument, ColumnPart, Status};
use kelpie_compile::pipeline::{CompiledPipeline, Rows, Sorting};
use kelpie_compile::types::Field;
use kelpie_device::{Buffer, Device, Kernel, KernelArgument, Launch};

use super::account::failure;
use super::blocks::Blocks;
use super::counting::Counted;
use super::{Prepared, Setting};
use crate::error::{EngineError, FallbackReason};
use crate::heap::TextHeap;
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
    fields: Vec<Field>,
    /// Parts of the result that were brought to the host while it was made.
    pub parts: Vec<RecordBatch>,
    /// Rows of the result that are still on the device and complete.
    undrained: u64,
    pub drain_ns: u64,
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
            fields,
            parts: Vec::new(),
            undrained: 0,
            drain_ns: 0,
            cleared: Vec::new(),
            counted: HashMap::new(),
        }
    }

    /// The result that lies on the device: its first `rows` rows, where they are not all.
    pub fn result(&self, rows: Option<u64>) -> Result<RecordBatch, EngineError> {
        let output = &self.prepared.program.output;
        result::read(output, &self.fields, rows, &|parts| self.read_states(parts))
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
    ) -> Result<(Vec<PipelineMetrics>, Option<usize>), EngineError> {
        let mut reports: Vec<PipelineMetrics> = Vec::new();
        for pipeline in pipelines {
            self.size(pipeline)?;
            reports.push(PipelineMetrics { name: pipeline.name.clone(), ..PipelineMetrics::default() });
        }
        self.cleared = pipelines.iter().flat_map(|pipeline| pipeline.zeroed.clone()).collect();
        let apart = self.setting.movement.kernel_at_a_time;
        for _ in 0..=GROW_LIMIT {
            self.clear_group()?;
            if self.prepared.program.pipelines.len() == first + pipelines.len() {
                self.parts.clear();
            }
            self.undrained = 0;
            reports.iter_mut().for_each(|report| report.rows_in = 0);
            let (mut done, mut again) = (0, false);
            for chain in pipelines.chunk_by(|_, next| next.continues && !apart) {
                let reports = &mut reports[done..done + chain.len()];
                match self.chain(first + done, chain, reports)? {
                    Step::Done => done += chain.len(),
                    Step::Duplicate(join) => return Ok((Vec::new(), Some(join))),
                    Step::Again => {
                        again = true;
                        break;
                    }
                }
            }
            if !again {
                for (pipeline, report) in pipelines.iter().zip(&mut reports) {
                    self.account(pipeline, report)?;
                    self.counted.extend(pipeline.produced.map(|state| (state, report.rows_out)));
                }
                return Ok((reports, None));
            }
        }
        Err(failure(Some(Status::Grow), Status::Grow as u32))
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
        let mut blocks = self.blocks_of(source, rows)?;
        for (pipeline, report) in chain.iter().zip(reports.iter_mut()) {
            report.run_ns += self.sum_up(&pipeline.prefix_sums)?;
        }
        // A result of several blocks need not be on the device as a whole.
        let in_parts =
            blocks.len() > 1 || self.undrained > 0 || self.setting.movement.initial_bytes.is_some();
        let drains = in_parts && self.drains(chain);
        if drains {
            self.undrained = self.read_word(self.prepared.program.output.count)?;
        }
        for index in 0..blocks.len() {
            let rows = blocks.begin(index, self)?;
            for (position, pipeline) in chain.iter().enumerate() {
                let is_last = position + 1 == chain.len();
                let mut tries = 0;
                loop {
                    if index == 0 || chain.len() > 1 {
                        self.clear(&pipeline.stores)?;
                    }
                    self.clear(&pipeline.restarted)?;
                    let rows = if position == 0 { rows.clone() } else { 0..self.source_rows(pipeline)? };
                    match self.launch(first + position, pipeline, rows, &mut reports[position])? {
                        Verdict::Done => break,
                        Verdict::Duplicate(join) => return Ok(Step::Duplicate(join)),
                        Verdict::Grow if is_last && !drains => {
                            self.grow(pipeline, blocks.len() - index)?;
                            return Ok(Step::Again);
                        }
                        Verdict::Grow if tries == GROW_LIMIT => {
                            return Err(failure(Some(Status::Grow), Status::Grow as u32));
                        }
                        // What earlier blocks delivered makes room; only this block is in doubt.
                        Verdict::Grow if is_last && self.undrained > 0 => {
                            self.grow_heap()?;
                            self.drain()?;
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
                self.undrained = self.read_word(self.prepared.program.output.count)?;
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

    /// Whether a chain's last pipeline appends to the result, in any order and without an end.
    fn drains(&self, chain: &[CompiledPipeline]) -> bool {
        let program = &self.prepared.program;
        let is_ordered = program.sorting().is_some();
        let delivers = chain.last().is_some_and(|last| last.produced == Some(program.output.count));
        delivers && !is_ordered && program.output.limit.is_none()
    }

    /// Brings the rows of the result that are complete to the host.
    fn drain(&mut self) -> Result<(), EngineError> {
        let start = Instant::now();
        let part = self.result(Some(self.undrained))?;
        self.parts.push(part);
        self.undrained = 0;
        self.drain_ns += start.elapsed().as_nanos() as u64;
        Ok(())
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
    fn blocks_of(&mut self, pipeline: &CompiledPipeline, rows: u64) -> Result<Blocks, EngineError> {
        let bounds = self.bounds(pipeline)?;
        Blocks::plan(self, pipeline, rows, &bounds)
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
        let report = self.setting.stream.launch(&Launch { kernel, blocks, arguments: &arguments, cancel })?;
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
            (other, _) => Err(failure(other, report.status)),
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
