//! One compiled stage: columns to the device, kernels, launches, result.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use kelpie_compile::context::{Argument, ColumnPart, Constant, Status};
use kelpie_compile::pipeline::{CompiledPipeline, Growth, Program, Rows, ScanInfo, Sorting};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_device::{Buffer, CancelToken, Device, Download, Kernel, KernelArgument, Launch, QueryStream};
use kelpie_kir::{Scalar, ValidModule, validate};
use parking_lot::Mutex;

use crate::columns::{ColumnCache, ResidentColumn};
use crate::error::EngineError;
use crate::heap::TextHeap;
use crate::primitives::Primitives;
use crate::sorting::Order;
use crate::source::TableSource;
use crate::{PipelineMetrics, QueryMetrics, prune, result, sorting};

/// Launches of one pipeline before the engine gives up growing its state.
const GROW_LIMIT: u32 = 24;
/// Elements that a state keeps free a CPU worker, beside a quarter of what it held: a worker may leave a part of a chunk of
/// places unused (`table::rows`).
const FITTING_SLACK: u64 = 1 << 10;
/// Rows that a block should have, at least, for its start to pay.
const ROWS_PER_CPU_BLOCK: u64 = 16 << 10;

/// A program with its kernels on one device.
#[derive(Debug)]
pub struct Prepared {
    pub program: Program,
    pub modules: Vec<ValidModule>,
    pub kernels: Vec<Arc<dyn Kernel>>,
    /// Rows of a sort up to which the host computes the order.
    host_order_rows: u64,
    /// Capacities that fit what the program held when it last ran: it starts with them the next time.
    learned: Mutex<Option<Vec<u64>>>,
}

/// How a stage ended.
#[derive(Debug)]
pub enum Outcome {
    /// With its result.
    Rows(RecordBatch),
    /// The build side of this join has a key twice: to be compiled again without the promise that it has not.
    Duplicate(usize),
}

/// The data of a scan on the device.
#[derive(Debug)]
pub struct Loaded {
    pub rows: u64,
    pub columns: Vec<Arc<ResidentColumn>>,
}

/// The scans of a plan, in the compiler's order.
pub fn scans(plan: &Plan) -> Vec<&Scan> {
    match plan {
        Plan::Scan(scan) => vec![scan],
        _ => plan.inputs().into_iter().flat_map(scans).collect(),
    }
}

/// Brings the columns of every scan to the device.
pub fn load(
    plan: &Plan,
    sources: &[Arc<dyn TableSource>],
    device: &Arc<dyn Device>,
    cache: &ColumnCache,
    cancel: &CancelToken,
    metrics: &mut QueryMetrics,
) -> Result<Vec<Loaded>, EngineError> {
    let mut loaded = Vec::new();
    for scan in scans(plan) {
        let source = sources.get(scan.source).ok_or_else(|| {
            EngineError::Internal(format!("source {} of {} is missing", scan.source, scan.table))
        })?;
        // A scan without columns only counts: where the rows are not known, some column tells.
        let columns: Vec<usize> = match (scan.columns.is_empty(), source.exact_rows()) {
            (true, Some(rows)) => {
                loaded.push(Loaded { rows, columns: Vec::new() });
                continue;
            }
            (true, None) => vec![0],
            (false, _) => scan.columns.clone(),
        };
        let (mut resident, report) = cache.load(device, source.as_ref(), &columns, cancel)?;
        metrics.transfer_ns += report.time_ns;
        metrics.transfer_bytes += report.loaded_bytes;
        let rows = resident.first().map_or(0, |column| column.rows);
        resident.truncate(scan.columns.len());
        loaded.push(Loaded { rows, columns: resident });
    }
    Ok(loaded)
}

/// What the compiler must know of loaded data.
pub fn describe(loaded: &[Loaded]) -> Vec<ScanInfo> {
    let info = |data: &Loaded| ScanInfo {
        rows: data.rows,
        layouts: data.columns.iter().map(|column| column.layout.clone()).collect(),
    };
    loaded.iter().map(info).collect()
}

/// Validates and compiles the kernels of a program, side by side.
pub fn prepare(
    program: Program,
    device: &Arc<dyn Device>,
    host_sort_rows: Option<u64>,
) -> Result<Prepared, EngineError> {
    let mut modules = Vec::new();
    for pipeline in &program.pipelines {
        let module = validate(pipeline.module.clone())
            .map_err(|error| EngineError::Internal(format!("kernel of {}: {error}", pipeline.name)))?;
        modules.push(module);
    }
    let compile = |index: usize| device.compile(&modules[index], &program.pipelines[index].kernel);
    let kernels: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..modules.len()).map(|index| scope.spawn(move || compile(index))).collect();
        let first = (0..modules.len().min(1)).map(compile);
        let first: Vec<_> = first.collect();
        let others = others.into_iter().map(|handle| match handle.join() {
            Ok(kernel) => kernel.map_err(EngineError::from),
            Err(_) => Err(EngineError::Internal("a compiling thread panicked".into())),
        });
        first.into_iter().map(|kernel| kernel.map_err(EngineError::from)).chain(others).collect()
    });
    let kernels = kernels.into_iter().collect::<Result<Vec<_>, _>>()?;
    let host_order_rows = host_sort_rows.unwrap_or(sorting::HOST_ORDER_ROWS);
    Ok(Prepared { program, modules, kernels, host_order_rows, learned: Mutex::new(None) })
}

/// The rows of a store, which an index addresses by 32 bits.
fn stored_rows(rows: u64, pipeline: &str) -> Result<u64, EngineError> {
    match rows < u64::from(u32::MAX) {
        true => Ok(rows),
        false => {
            let message = format!("{pipeline}: {rows} rows are held at once, more than {}", u32::MAX - 1);
            Err(EngineError::Fallback(message))
        }
    }
}

/// Where capacities start.
fn initial(program: &Program) -> Vec<u64> {
    program.classes.iter().map(|class| class.initial).collect()
}

/// A running stage: the state buffers of one execution.
struct Run<'a> {
    device: &'a Arc<dyn Device>,
    /// What runs, copies and fills: in order.
    stream: &'a dyn QueryStream,
    /// Makes room for state by evicting columns.
    cache: &'a ColumnCache,
    prepared: &'a Prepared,
    loaded: &'a [Loaded],
    capacities: Vec<u64>,
    buffers: Vec<Option<Buffer>>,
    constants: HashMap<Vec<u8>, Buffer>,
    heap: TextHeap,
    cancel: &'a CancelToken,
}

/// Runs a prepared stage.
pub fn run(
    prepared: &Prepared,
    plan: &Plan,
    loaded: &[Loaded],
    stream: &dyn QueryStream,
    cache: &ColumnCache,
    cancel: &CancelToken,
    metrics: &mut QueryMetrics,
) -> Result<Outcome, EngineError> {
    let program = &prepared.program;
    let learned = prepared.learned.lock().clone();
    let mut run = Run {
        device: stream.device(),
        stream,
        cache,
        prepared,
        loaded,
        capacities: learned.clone().unwrap_or_else(|| initial(program)),
        buffers: vec![None; program.states.len()],
        constants: HashMap::new(),
        heap: TextHeap::default(),
        cancel,
    };
    let mut first = 0;
    for group in program.pipelines.chunk_by(|a, b| a.group == b.group) {
        let sorting = program.sorting.as_ref().filter(|sorting| sorting.pipeline == first);
        let order_ns = sorting.map(|sorting| run.order(sorting)).transpose()?;
        let (mut reports, duplicate) = run.group(first, group)?;
        if let (Some(order_ns), Some(report)) = (order_ns, reports.first_mut()) {
            report.run_ns += order_ns;
        }
        metrics.kernel_ns += reports.iter().map(|report| report.run_ns).sum::<u64>();
        metrics.pipelines.extend(reports);
        if let Some(join) = duplicate {
            return Ok(Outcome::Duplicate(join));
        }
        first += group.len();
    }
    // What was learned before is still right unless something grew.
    if learned.is_none_or(|learned| learned != run.capacities) {
        *prepared.learned.lock() = Some(run.fitting()?);
    }
    let start = Instant::now();
    let batch = result::read(&program.output, &plan.fields(), &|parts| run.read_states(parts))?;
    metrics.result_ns += start.elapsed().as_nanos() as u64;
    Ok(Outcome::Rows(batch))
}

impl Run<'_> {
    /// Computes the order of a sort's rows, and how many are delivered; the time on the device or host, in nanoseconds.
    fn order(&mut self, sorting: &Sorting) -> Result<u64, EngineError> {
        let start = Instant::now();
        let rows = self.read_word(sorting.rows)?;
        let order = if rows <= self.prepared.host_order_rows {
            let parts: Vec<_> = sorting.words.iter().map(|word| (*word, rows as usize * 8)).collect();
            sorting::on_host(sorting, &self.read_states(&parts)?, rows as usize)
        } else {
            let words = sorting.words.iter().map(|word| self.buffer(*word));
            let words = words.collect::<Result<Vec<_>, _>>()?;
            let mut primitives = Primitives::new(self.stream, self.cache, self.cancel)?;
            sorting::on_device(sorting, &mut primitives, &words, rows)?
        };
        let delivered = match order {
            Order::Host(order) => {
                let bytes: Vec<u8> = order.iter().flat_map(|place| place.to_le_bytes()).collect();
                let buffer = self.buffer(sorting.order)?;
                self.stream.upload(&buffer, 0, &bytes)?;
                order.len() as u64
            }
            Order::Device(order, delivered) => {
                self.buffers[sorting.order] = Some(order);
                delivered
            }
        };
        let buffer = self.buffer(sorting.delivered)?;
        self.stream.upload(&buffer, 0, &delivered.to_le_bytes())?;
        self.resize(sorting.class, delivered.max(self.capacities[sorting.class]));
        Ok(start.elapsed().as_nanos() as u64)
    }

    /// Runs the pipelines of a group, the first of which is number `first`, until none of them lacks room. The join whose
    /// promise was broken, if one was.
    fn group(
        &mut self,
        first: usize,
        pipelines: &[CompiledPipeline],
    ) -> Result<(Vec<PipelineMetrics>, Option<usize>), EngineError> {
        let mut reports: Vec<PipelineMetrics> = Vec::new();
        for pipeline in pipelines {
            self.size(pipeline)?;
            reports.push(PipelineMetrics { name: pipeline.name.clone(), ..PipelineMetrics::default() });
        }
        let mut index = 0;
        while let Some(pipeline) = pipelines.get(index) {
            let report = &mut reports[index];
            if index == 0 {
                self.clear(&pipeline.zeroed)?;
            }
            self.clear(&pipeline.restarted)?;
            let status = self.launch(first + index, pipeline, report)?;
            match Status::from_code(status) {
                None if status == 0 => {
                    self.account(pipeline, report)?;
                    index += 1;
                }
                Some(Status::Grow) if report.launches < GROW_LIMIT => {
                    self.grow(pipeline)?;
                    index = 0;
                }
                Some(Status::Duplicate) if pipeline.join.is_some() => return Ok((reports, pipeline.join)),
                other => return Err(failure(other, status)),
            }
        }
        Ok((reports, None))
    }

    /// The rows of a pipeline's scan between the first and the last that may match every finished build side.
    fn pruned(&self, pipeline: &CompiledPipeline, rows: Range<u64>) -> Result<Range<u64>, EngineError> {
        let Rows::Scan(scan) = pipeline.rows else { return Ok(rows) };
        let mut rows = rows;
        for prune in &pipeline.prunes {
            let zones = &self.column(scan, prune.column)?.zones;
            if zones.is_empty() {
                continue;
            }
            let mut words = [0; 16];
            if let Some(buffer) = &self.buffers[prune.bounds] {
                self.stream.download(buffer, 0, &mut words)?;
            }
            let hull = prune::hull(zones, prune::bounds(words));
            rows = rows.start.max(hull.start)..rows.end.min(hull.end);
        }
        Ok(if rows.is_empty() { 0..0 } else { rows })
    }

    /// Gives the classes their size that follow from what ran before.
    fn size(&mut self, pipeline: &CompiledPipeline) -> Result<(), EngineError> {
        for &class in &pipeline.sizes {
            if let Growth::Sized(counter) = self.prepared.program.classes[class].growth {
                let slots = self.read_word(counter)?.saturating_mul(2).max(16).next_power_of_two();
                self.resize(class, slots);
            }
        }
        Ok(())
    }

    fn resize(&mut self, class: usize, capacity: u64) {
        if self.capacities[class] == capacity {
            return;
        }
        self.capacities[class] = capacity;
        for (state, declared) in self.prepared.program.states.iter().enumerate() {
            if declared.class == class {
                self.buffers[state] = None;
            }
        }
    }

    /// The capacities that the state in use needs, with room for a different order of the same rows. Those of classes that
    /// follow from others stay.
    fn fitting(&self) -> Result<Vec<u64>, EngineError> {
        let mut capacities = self.capacities.clone();
        let target = self.device.target();
        let workers = if target.block_threads == 1 { u64::from(target.resident_blocks) } else { 0 };
        let slack = (workers + 1) * FITTING_SLACK;
        for (class, capacity) in self.prepared.program.classes.iter().zip(&mut capacities) {
            let fits = match class.growth {
                Growth::Fixed | Growth::Sized(_) => continue,
                Growth::Table(counter) => {
                    self.read_word(counter)?.saturating_mul(4).max(64).checked_next_power_of_two()
                }
                Growth::Counted(counter) => {
                    let used = self.read_word(counter)?;
                    Some(used.saturating_add(used / 4).saturating_add(slack))
                }
            };
            *capacity = fits.map_or(*capacity, |fits| fits.min(*capacity));
        }
        Ok(capacities)
    }

    fn clear(&mut self, states: &[usize]) -> Result<(), EngineError> {
        for state in states {
            let buffer = self.buffer(*state)?;
            self.stream.fill(&buffer, 0, self.state_bytes(*state)?, 0)?;
        }
        Ok(())
    }

    /// Launches a pipeline's kernel once; its status.
    fn launch(
        &mut self,
        index: usize,
        pipeline: &CompiledPipeline,
        metrics: &mut PipelineMetrics,
    ) -> Result<u32, EngineError> {
        if self.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let rows = match pipeline.rows {
            Rows::Scan(scan) => self.loaded.get(scan).map_or(0, |data| data.rows),
            Rows::Class(class) => self.capacities[class],
            Rows::Counted(counter) => stored_rows(self.read_word(counter)?, &pipeline.name)?,
        };
        let rows = self.pruned(pipeline, 0..rows)?;
        metrics.rows_in = rows.end - rows.start;
        let arguments = self.arguments(pipeline, &rows)?;
        let launch = Launch {
            kernel: self.prepared.kernels[index].as_ref(),
            blocks: self.blocks(metrics.rows_in),
            arguments: &arguments,
            cancel: self.cancel,
        };
        let report = self.stream.launch(&launch)?;
        metrics.run_ns += report.time_ns;
        metrics.launches += 1;
        if let Some(activity) = report.activity {
            let possible = activity.warp_steps.saturating_mul(u64::from(self.device.target().lanes)).max(1);
            metrics.lane_activity = Some(activity.lane_steps as f64 / possible as f64);
        }
        Ok(report.status)
    }

    /// Blocks of a launch: enough to fill the device, no more than the rows can use. Generated code relies on it that
    /// there are `resident_blocks`, or at least one thread a row (`operator::aggregate::threads`).
    fn blocks(&self, rows: u64) -> u32 {
        let target = self.device.target();
        let per_block =
            if target.block_threads == 1 { ROWS_PER_CPU_BLOCK } else { u64::from(target.block_threads) };
        let useful = rows.div_ceil(per_block).max(1);
        u32::try_from(useful).unwrap_or(u32::MAX).min(target.resident_blocks.max(1))
    }

    /// Makes room after a launch that lacked it.
    fn grow(&mut self, pipeline: &CompiledPipeline) -> Result<(), EngineError> {
        let mut grown = self.heap.grow(self.device, self.cache)?;
        for &class in &pipeline.grows {
            let needed = match self.prepared.program.classes[class].growth {
                Growth::Fixed | Growth::Sized(_) => continue,
                // Another table of the pipeline may be the one that is full.
                Growth::Table(count) if self.read_word(count)? < self.capacities[class] / 2 => continue,
                Growth::Table(_) => self.capacities[class].saturating_mul(4),
                Growth::Counted(counter) => self.read_word(counter)?,
            };
            if needed > self.capacities[class] {
                self.resize(class, needed);
                grown = true;
            }
        }
        match grown {
            true => Ok(()),
            false => {
                Err(EngineError::Internal(format!("{} asks for more state, but has enough", pipeline.name)))
            }
        }
    }

    fn state_bytes(&self, state: usize) -> Result<usize, EngineError> {
        let declared = &self.prepared.program.states[state];
        self.capacities[declared.class]
            .checked_mul(u64::from(declared.element_bytes))
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or_else(|| EngineError::Internal(format!("state {} is too large", declared.name)))
    }

    fn buffer(&mut self, state: usize) -> Result<Buffer, EngineError> {
        if let Some(buffer) = &self.buffers[state] {
            return Ok(Arc::clone(buffer));
        }
        let buffer = self.cache.allocate(self.device, self.state_bytes(state)?.max(16))?;
        self.buffers[state] = Some(Arc::clone(&buffer));
        Ok(buffer)
    }

    /// The first bytes of each of several states, with one wait.
    fn read_states(&self, parts: &[(usize, usize)]) -> Result<Vec<Vec<u8>>, EngineError> {
        let mut read: Vec<Vec<u8>> = parts.iter().map(|(_, bytes)| vec![0; *bytes]).collect();
        let mut downloads = Vec::new();
        for ((state, _), data) in parts.iter().zip(&mut read) {
            if let Some(buffer) = &self.buffers[*state] {
                downloads.push(Download { buffer, offset: 0, data });
            }
        }
        self.stream.download_many(&mut downloads)?;
        Ok(read)
    }

    fn read_word(&self, state: usize) -> Result<u64, EngineError> {
        let mut bytes = [0; 8];
        if let Some(buffer) = &self.buffers[state] {
            self.stream.download(buffer, 0, &mut bytes)?;
        }
        Ok(u64::from_le_bytes(bytes))
    }

    fn arguments(
        &mut self,
        pipeline: &CompiledPipeline,
        rows: &Range<u64>,
    ) -> Result<Vec<KernelArgument>, EngineError> {
        pipeline.arguments.iter().map(|argument| self.argument(argument, rows)).collect()
    }

    fn argument(&mut self, argument: &Argument, rows: &Range<u64>) -> Result<KernelArgument, EngineError> {
        let whole = |buffer: &Buffer| KernelArgument::Buffer(Arc::clone(buffer), 0);
        Ok(match argument {
            Argument::Column { scan, column, part } => {
                let resident = self.column(*scan, *column)?;
                let buffer = part_of(resident, *part);
                let missing = || EngineError::Internal(format!("column {column} has no {part:?}"));
                whole(buffer.ok_or_else(missing)?)
            }
            Argument::ColumnBase { scan, column, scalar } => {
                KernelArgument::Scalar(*scalar, self.column(*scan, *column)?.base)
            }
            Argument::RowCount => KernelArgument::Scalar(Scalar::I64, i128::from(rows.end)),
            Argument::FirstRow => KernelArgument::Scalar(Scalar::I64, i128::from(rows.start)),
            Argument::Constant(Constant::Int(scalar, value)) => KernelArgument::Scalar(*scalar, *value),
            Argument::Constant(Constant::F32(value)) => {
                KernelArgument::Scalar(Scalar::F32, i128::from(value.to_bits()))
            }
            Argument::Constant(Constant::F64(value)) => {
                KernelArgument::Scalar(Scalar::F64, i128::from(value.to_bits()))
            }
            Argument::Constant(Constant::Bool(value)) => {
                KernelArgument::Scalar(Scalar::Bool, i128::from(*value))
            }
            Argument::Bytes(bytes) => match self.constants.get(bytes.as_ref()) {
                Some(buffer) => whole(buffer),
                None => {
                    let buffer = self.cache.allocate(self.device, bytes.len().max(16))?;
                    self.stream.upload(&buffer, 0, bytes)?;
                    self.constants.insert(bytes.to_vec(), Arc::clone(&buffer));
                    whole(&buffer)
                }
            },
            Argument::Heap(part) => self.heap.argument(*part, rows.end, self.device, self.cache)?,
            Argument::Scratch { words, .. } => {
                let bytes = *words as usize * 4;
                let buffer = self.cache.allocate(self.device, bytes.max(16))?;
                self.device.fill(&buffer, 0, bytes, 0)?;
                whole(&buffer)
            }
            Argument::State(state) => whole(&self.buffer(*state)?),
            Argument::StateCapacity(state) => {
                let class = self.prepared.program.states[*state].class;
                KernelArgument::Scalar(Scalar::I64, i128::from(self.capacities[class]))
            }
        })
    }

    fn column(&self, scan: usize, column: usize) -> Result<&ResidentColumn, EngineError> {
        let found = self.loaded.get(scan).and_then(|data| data.columns.get(column));
        found
            .map(AsRef::as_ref)
            .ok_or_else(|| EngineError::Internal(format!("column {column} of scan {scan}")))
    }

    /// Rows out and bytes: what the kernel reads and writes at least once.
    fn account(&self, pipeline: &CompiledPipeline, metrics: &mut PipelineMetrics) -> Result<(), EngineError> {
        for argument in &pipeline.arguments {
            match argument {
                Argument::Column { scan, column, part } => {
                    let resident = self.column(*scan, *column)?;
                    let buffer = part_of(resident, *part);
                    metrics.bytes_read += buffer.map_or(0, |buffer| buffer.bytes() as u64);
                }
                Argument::State(state) => {
                    let bytes = self.state_bytes(*state)? as u64;
                    let own = pipeline.zeroed.contains(state)
                        || pipeline.grows.contains(&self.prepared.program.states[*state].class);
                    *(if own { &mut metrics.bytes_written } else { &mut metrics.bytes_read }) += bytes;
                }
                _ => {}
            }
        }
        metrics.rows_out = match pipeline.produced {
            Some(counter) => self.read_word(counter)?,
            None => 1,
        };
        Ok(())
    }
}

/// A buffer of a column, where the column has it.
fn part_of(column: &ResidentColumn, part: ColumnPart) -> Option<&Buffer> {
    match part {
        ColumnPart::Data => Some(&column.data),
        ColumnPart::Validity => column.validity.as_ref(),
        ColumnPart::Offsets => column.offsets.as_ref(),
        ColumnPart::DictionaryOffsets => column.dictionary.as_ref().map(|(offsets, _)| offsets),
        ColumnPart::DictionaryBytes => column.dictionary.as_ref().map(|(_, bytes)| bytes),
    }
}

/// The error of a status that is not success.
fn failure(status: Option<Status>, code: u32) -> EngineError {
    match status {
        Some(Status::Cancelled) => EngineError::Cancelled,
        Some(Status::Grow) => EngineError::Internal("a state buffer grew too often".into()),
        Some(Status::DivideByZero) => EngineError::Query("Divide by zero error".into()),
        Some(Status::Overflow) => EngineError::Query("Arithmetic overflow".into()),
        Some(Status::CastOutOfRange) => {
            EngineError::Query("Cast error: a value does not fit the target type".into())
        }
        Some(Status::CastParse) => {
            EngineError::Query("Cast error: text is not a value of the target type".into())
        }
        Some(Status::Fallback) => EngineError::Fallback(
            "a value that kernels do not handle (text beyond ASCII or of 64 KiB, a sum beyond 128 bits)"
                .into(),
        ),
        Some(Status::Duplicate) => EngineError::Internal("a key of a join twice, without a promise".into()),
        Some(Status::NegativeSubstringLength) => {
            EngineError::Query("negative substring length not allowed".into())
        }
        None => EngineError::Internal(format!("a kernel reported the unknown status {code}")),
    }
}
