//! A query from plan to batch: stages, each with a sort or limit on top.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;
use kelpie_compile::context::Unsupported;
use kelpie_compile::expr::{Expr, ExprKind, substitute};
use kelpie_compile::layout::{ColumnLayout, Storage};
use kelpie_compile::pipeline::{self, Choices, CompiledPipeline, ScanInfo};
use kelpie_compile::plan::{Plan, Scan, SortKey};
use kelpie_compile::shape::LaunchShape;
use kelpie_compile::types::{DataType, Field, Literal};
use kelpie_device::{CancelToken, Device, DeviceKind, QueryStream};
use kelpie_kir::{Module, Scalar, Target};
use parking_lot::Mutex;

use crate::bandwidth::Rates;
use crate::calibration::Calibrations;
use crate::columns::{ColumnCache, Narrowed};
use crate::delivery::Batches;
use crate::delivery::{Collected, Outlet, RowReceiver};
use crate::devices::{DeviceState, Devices};
use crate::error::{EngineError, FallbackReason};
use crate::execution::Execution;
use crate::explain::Explaining;
use crate::handover::Handover;
use crate::intermediate::Input;
use crate::learned::{Fingerprint, Learned};
use crate::memory_fallback::MemoryFallback;
use crate::meter::{self, MeteredStream};
use crate::metrics::{QueryMetrics, QueryOutput};
use crate::options::{CacheMode, DeviceChoice, ExplainStage, Query, QueryOptions};
use crate::profile::ProfiledStream;
use crate::stack::with_room;
use crate::stage::{self, KernelVariants, Prepared};
use crate::threads::QueryThreads;
use crate::trace::{self, TracedStream, Track};
use crate::tuning::Tuner;
use crate::worker_times::WorkerTimes;
use crate::{bandwidth, primitives, result};
use kelpie_compile::{MicroModel, Resolution};

/// Programs that stay compiled.
const PROGRAM_LIMIT: usize = 64;

/// Devices, column cache and kernels: one a process.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) devices: Devices,
    pub(crate) columns: ColumnCache,
    /// What was measured of devices and kept.
    pub(crate) calibrations: Calibrations,
    /// Most recently used last.
    programs: Mutex<VecDeque<(Fingerprint, Arc<Prepared>)>>,
    /// The kernels of these programs.
    pub(crate) variants: KernelVariants,
    /// What earlier runs have taught.
    pub(crate) learned: Learned,
    /// Tries variants of stages that run again.
    pub(crate) tuner: Tuner,
    /// Held by who measures a device.
    measuring: Mutex<()>,
    threads: QueryThreads,
    /// Whose first run was the CPU's.
    pub(crate) handover: Handover,
    worker_times: WorkerTimes,
}

impl Engine {
    /// An engine; devices are looked for when first needed.
    pub fn new() -> Engine {
        Engine::default()
    }

    /// An engine that begins with this.
    pub(crate) fn with(calibrations: Calibrations, learned: Learned) -> Engine {
        Engine { calibrations, learned, ..Engine::default() }
    }

    /// The threads to run its queries on: `execute` and `stream` wait for readers, and must be called from no thread that these
    /// need.
    pub fn threads(&self) -> &QueryThreads {
        &self.threads
    }

    /// Every device: usable, or why not.
    pub fn devices(&self) -> Vec<DeviceState> {
        self.devices.all()
    }

    /// Every reason why a plan cannot be compiled; empty where it can. Needs no data: columns are taken as their
    /// types allow.
    pub fn check(&self, plan: &Plan) -> Vec<String> {
        let mut reasons = Vec::new();
        with_room(plan, || check(plan, &mut reasons));
        reasons
    }

    /// The kernels of a plan for a target that need not be here, with columns at the widest layout their types allow:
    /// for checking generated code without the device.
    pub fn modules(
        plan: &Plan,
        target: &Target,
        (micro_model, resolution): (MicroModel, Resolution),
    ) -> Result<Vec<Module>, EngineError> {
        let mut reasons = Vec::new();
        let stage = match plan {
            Plan::Sort { input, keys, fetch } => {
                let (input, keys) = with_key_columns(input, keys);
                let input = Box::new(cut_stages(&input, &mut reasons));
                Plan::Sort { input, keys, fetch: *fetch }
            }
            Plan::Limit { input, .. } if ends_a_stage(input) => {
                return Engine::modules(input, target, (micro_model, resolution));
            }
            Plan::Limit { input, skip, fetch } => {
                let input = Box::new(cut_stages(input, &mut reasons));
                Plan::Limit { input, skip: *skip, fetch: *fetch }
            }
            Plan::Scalars { .. } => {
                let plan = assume_scalars(plan, &mut reasons);
                return Engine::modules(&plan, target, (micro_model, resolution));
            }
            _ => cut_stages(plan, &mut reasons),
        };
        let infos: Vec<ScanInfo> = stage::scans(&stage).into_iter().map(assume).collect();
        let duplicates = BTreeSet::new();
        let choices = Choices { resolution, ..Choices::new(micro_model, &duplicates) };
        let program = match (pipeline::compile_with(&stage, &infos, target, &choices), plan) {
            // The host sorts.
            (Err(_), Plan::Sort { input, .. }) => {
                return Engine::modules(input, target, (micro_model, resolution));
            }
            (program, _) => program?,
        };
        let mut modules: Vec<Module> = Vec::new();
        let sorts = program.pipelines.iter().any(|pipeline| pipeline.variant.sorting().is_some());
        if sorts || micro_model.counts_places() {
            let primitives = primitives::modules(&LaunchShape::of(target));
            modules.extend(primitives.map_err(|error| EngineError::Internal(error.to_string()))?);
        }
        modules.extend(program.pipelines.into_iter().flat_map(CompiledPipeline::into_modules));
        Ok(modules)
    }

    /// Runs a query and collects its rows in one batch. Blocks; call it from a thread that may. For answers of any size
    /// there is [`Engine::stream`].
    pub fn execute(&self, query: &Query, cancel: &CancelToken) -> Result<QueryOutput, EngineError> {
        let start = Instant::now();
        let mut rows = Collected::default();
        let mut metrics = self.run(query, cancel, &mut rows)?;
        let batch = rows.into_one(&result::arrow_schema(&query.plan.fields()))?;
        metrics.charge(start.elapsed());
        Ok(QueryOutput { batch, metrics })
    }

    /// Runs a query and hands its rows to `consumer` as they come, in order, in batches as `batches` says; what it took.
    /// Blocks, also while the consumer does; call it from a thread that may. An error of the consumer stops the query and
    /// is returned. Any other error before the first batch leaves the caller free to answer the query in another way;
    /// after it, it is [`EngineError::Interrupted`] or [`EngineError::Cancelled`].
    pub fn stream(
        &self,
        query: &Query,
        batches: Batches,
        cancel: &CancelToken,
        consumer: &mut dyn FnMut(RecordBatch) -> Result<(), EngineError>,
    ) -> Result<QueryMetrics, EngineError> {
        let (start, mut waited) = (Instant::now(), Duration::ZERO);
        let mut stopped = None;
        let mut consume = |batch| {
            let handed_out = Instant::now();
            let handing_out = self.devices.budgets().hand_out();
            let taken = consumer(batch);
            drop(handing_out);
            waited += handed_out.elapsed();
            taken.map_err(|error| {
                stopped = Some(error);
                EngineError::Cancelled
            })
        };
        let mut rows = Outlet::new(batches, cancel, &mut consume);
        let outcome = self.run(query, cancel, &mut rows);
        let rows = rows.delivered();
        let outcome = outcome.map(|mut metrics| {
            metrics.charge(start.elapsed().saturating_sub(waited));
            metrics
        });
        match (outcome, stopped) {
            (Err(_), Some(error)) => Err(error),
            (Err(EngineError::Cancelled), None) => Err(EngineError::Cancelled),
            (Err(error), None) if rows > 0 => Err(EngineError::Interrupted { rows, cause: Box::new(error) }),
            (outcome, _) => outcome,
        }
    }

    fn run(
        &self,
        query: &Query,
        cancel: &CancelToken,
        rows: &mut dyn RowReceiver,
    ) -> Result<QueryMetrics, EngineError> {
        let mut execution = self.begin(query, cancel, None)?;
        let running = self.worker_times.begin(query, execution.device.kind(), cancel);
        let _span = trace::open(Track::Host, || format!("compiled part on {}", execution.device.name()));
        let done = with_room(&query.plan, || execution.run_whole(&query.plan, rows));
        if query.options.cache == CacheMode::None {
            // What it has read is nobody's any more.
            execution.inputs.clear();
            self.columns.forget_lost();
        }
        done.map_err(|error| lost(error, &execution.device))?;
        running.ended();
        let (device, total) = (Arc::clone(&execution.device), Arc::clone(&execution.total));
        let mut metrics = execution.metrics;
        metrics.profile = query.options.profile;
        if query.options.meter {
            let pipelines = metrics.pipelines.iter().filter_map(|pipeline| pipeline.traffic);
            metrics.traffic = Some(meter::of_query(pipelines, *total.lock()));
            metrics.rates = Some(self.rates(&device)?);
        }
        Ok(metrics)
    }

    /// Shows a stage of a query's compilation. Reads the columns if they are not cached: their layout shapes the code. Where a GPU is
    /// asked for and there is none, the code is for a usual one.
    pub fn explain(&self, query: &Query, stage: ExplainStage) -> Result<String, EngineError> {
        let cancel = CancelToken::default();
        let (mut query, mut explaining) = (query.clone(), Explaining::of(stage));
        // What runs for it runs on the CPU then.
        if query.options.device == DeviceChoice::Cuda && self.devices.find(&query.options).is_err() {
            query.options.device = DeviceChoice::Cpu;
            explaining.stand_in();
        }
        let mut execution = self.begin(&query, &cancel, Some(explaining))?;
        with_room(&query.plan, || execution.run_whole(&query.plan, &mut Collected::default()))?;
        Ok(execution.explain.map(|explaining| explaining.text).unwrap_or_default())
    }

    /// Whether columns of one of a query's tables are in memory, or are being read.
    pub fn has_columns(&self, query: &Query, source: usize, columns: &[usize]) -> bool {
        let Some(source) = query.sources.get(source) else { return false };
        let Ok(device) = self.devices.find(&query.options) else { return false };
        let there = self.columns.there(&device, source.as_ref(), columns, query.options.dictionaries);
        there.into_iter().all(|is_there| is_there)
    }

    /// Forgets all cached columns.
    pub fn clear_columns(&self) {
        self.columns.clear();
    }

    /// What a device's memory and link can do; measured when first asked for.
    pub fn rates(&self, device: &Arc<dyn Device>) -> Result<Rates, EngineError> {
        let name = device.name();
        let _alone = self.measuring.lock();
        if let Some(rates) = self.learned.rates(&name) {
            return Ok(rates);
        }
        let rates = bandwidth::measure(device)?;
        self.learned.keep_rates(&name, rates);
        Ok(rates)
    }

    /// The same of a device that is open, by its name; `None` where there is none, where it is the interpreter, and where it cannot be
    /// measured now.
    pub fn rates_of(&self, name: &str) -> Option<Rates> {
        let mut devices = self.devices.opened().into_iter();
        let device = devices.find(|device| device.kind() != DeviceKind::Simt && device.name() == name)?;
        self.rates(&device).ok()
    }

    /// The programs that are kept, the one used last at the end.
    #[cfg(feature = "testing")]
    pub(crate) fn prepared(&self) -> Vec<Arc<Prepared>> {
        self.programs.lock().iter().map(|(_, prepared)| Arc::clone(prepared)).collect()
    }

    pub(crate) fn begin<'a>(
        &'a self,
        query: &Query,
        cancel: &'a CancelToken,
        explain: Option<Explaining>,
    ) -> Result<Execution<'a>, EngineError> {
        self.forget_lost();
        let (device, budget) = self.devices.choose(&query.options)?;
        let mut metrics =
            QueryMetrics { device: device.name(), kind: Some(device.kind()), ..QueryMetrics::default() };
        let is_other = device.kind() == DeviceKind::Cpu && query.options.device != DeviceChoice::Cpu;
        metrics
            .steps
            .extend(self.devices.loss().filter(|_| is_other).map(|why| format!("{why}; on the CPU")));
        let total = meter::Total::default();
        let Narrowed { sources, steps } = self.columns.narrowed(&device, query, explain.is_none());
        metrics.steps.extend(steps);
        Ok(Execution {
            engine: self,
            stream: begin_query(&device, &query.options, &total)?,
            calibration: self.constants(&device),
            device,
            budget,
            total,
            options: query.options.clone(),
            least_fallback: MemoryFallback::AsAsked,
            inputs: sources.into_iter().map(Input::Table).collect(),
            kept: BTreeSet::new(),
            cancel,
            metrics,
            explain,
        })
    }

    /// Waits until nothing is being compiled behind the queries, neither variants nor better code: who measures runs goes on then.
    pub fn wait_for_compilers(&self) {
        self.tuner.behind.wait();
        self.devices.opened().iter().for_each(|device| device.finish_compiling());
    }

    /// Drops what was compiled for devices that are lost and what lies on them: they are opened again once nobody holds any
    /// of it.
    fn forget_lost(&self) {
        if self.devices.let_go() {
            let is_usable =
                |prepared: &Prepared| prepared.device.upgrade().is_some_and(|device| !device.is_lost());
            self.programs.lock().retain(|(_, prepared)| is_usable(prepared));
            self.columns.forget_lost();
        }
    }

    /// A program that was made for this very device: another of the same name has memory and kernels of its own.
    pub(crate) fn known(&self, key: Fingerprint, device: &Arc<dyn Device>) -> Option<Arc<Prepared>> {
        let is_for = |prepared: &Prepared| prepared.device.as_ptr().addr() == Arc::as_ptr(device).addr();
        let mut programs = self.programs.lock();
        let position = programs.iter().position(|(known, prepared)| *known == key && is_for(prepared))?;
        let entry = programs.remove(position)?;
        let prepared = Arc::clone(&entry.1);
        programs.push_back(entry);
        Some(prepared)
    }

    pub(crate) fn keep(&self, key: Fingerprint, prepared: &Arc<Prepared>) {
        let mut programs = self.programs.lock();
        if programs.len() >= PROGRAM_LIMIT {
            programs.pop_front();
        }
        programs.push_back((key, Arc::clone(prepared)));
    }
}

/// An error of a device that is lost is no reason for its query to fail.
fn lost(error: EngineError, device: &Arc<dyn Device>) -> EngineError {
    match error {
        EngineError::Device(error) if device.is_lost() => FallbackReason::DeviceLost(error).into(),
        error => error,
    }
}

/// The operations of a query on a device, metered and profiled where it asks for that.
pub(crate) fn begin_query(
    device: &Arc<dyn Device>,
    options: &QueryOptions,
    total: &meter::Total,
) -> Result<Box<dyn QueryStream>, EngineError> {
    let mut stream = Arc::clone(device).begin_query()?;
    stream.set_tier(options.compile);
    if options.profile.counts(device.target()) {
        stream = Box::new(ProfiledStream::new(stream));
    }
    if options.meter {
        stream = Box::new(MeteredStream::new(stream, Arc::clone(total)));
    }
    Ok(match trace::is_on() {
        true => Box::new(TracedStream::new(stream)),
        false => stream,
    })
}

/// The input with the keys that are no columns as columns behind its own, and the keys as columns.
pub(crate) fn with_key_columns(input: &Plan, keys: &[SortKey]) -> (Plan, Vec<SortKey>) {
    if keys.iter().all(|key| matches!(key.expr.kind, ExprKind::Column(_))) {
        return (input.clone(), keys.to_vec());
    }
    let fields = input.fields();
    let width = fields.len();
    let mut exprs: Vec<Expr> = fields
        .iter()
        .enumerate()
        .map(|(index, field)| Expr::column(index, field.data_type.clone(), field.nullable))
        .collect();
    let mut names: Vec<String> = fields.into_iter().map(|field| field.name).collect();
    let mut columns = Vec::new();
    for key in keys {
        if let ExprKind::Column(_) = key.expr.kind {
            columns.push(key.clone());
            continue;
        }
        let column = Expr::column(exprs.len(), key.expr.data_type.clone(), key.expr.nullable);
        columns.push(SortKey { expr: column, ..key.clone() });
        names.push(format!("sort_key_{}", exprs.len() - width));
        exprs.push(key.expr.clone());
    }
    (Plan::Project { input: Box::new(input.clone()), exprs, names }, columns)
}

/// Whether a plan's rows are a batch of their own, also without what stands on it.
pub(crate) fn ends_a_stage(plan: &Plan) -> bool {
    match plan {
        Plan::Sort { .. } | Plan::Limit { .. } => true,
        Plan::Project { input, exprs, .. } => {
            ends_a_stage(input) && exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_)))
        }
        Plan::Scalars { input, .. } => ends_a_stage(input),
        _ => false,
    }
}

/// Collects the reasons against a plan: each sort key and each stage between sorts and limits is tried.
fn check(plan: &Plan, reasons: &mut Vec<String>) {
    match plan {
        Plan::Sort { input, keys, .. } => {
            let exprs: Vec<Expr> = keys.iter().map(|key| key.expr.clone()).collect();
            if exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_))) {
                return check(input, reasons);
            }
            let names = vec![String::new(); exprs.len()];
            check(&Plan::Project { input: input.clone(), exprs, names }, reasons);
        }
        Plan::Limit { input, .. } => check(input, reasons),
        Plan::Scalars { .. } => {
            let plan = assume_scalars(plan, reasons);
            check(&plan, reasons);
        }
        _ => {
            let plan = cut_stages(plan, reasons);
            let infos: Vec<ScanInfo> = stage::scans(&plan).into_iter().map(assume).collect();
            let duplicates = BTreeSet::new();
            let choices = Choices::new(MicroModel::Resolution, &duplicates);
            // Only where something is refused are kernels made, which tell the reasons as they are.
            match pipeline::check(&plan, &infos, &Target::cpu(1), &choices) {
                Ok(()) => debug_assert_eq!(refusals(&plan, &infos, &choices), Vec::<String>::new()),
                Err(_) => {
                    let found = refusals(&plan, &infos, &choices);
                    found.into_iter().for_each(|reason| add_reason(reasons, reason));
                }
            }
        }
    }
}

/// What speaks against making the kernels of a stage, for processors and for GPUs.
fn refusals(plan: &Plan, infos: &[ScanInfo], choices: &Choices<'_>) -> Vec<String> {
    let mut reasons = Vec::new();
    for target in [Target::cpu(1), Target::simt(32, 256, 48 << 10, 1024)] {
        if let Err(Unsupported(reason)) = pipeline::compile_with(plan, infos, &target, choices) {
            add_reason(&mut reasons, reason);
        }
    }
    reasons
}

fn add_reason(reasons: &mut Vec<String>, reason: String) {
    if !reasons.contains(&reason) {
        reasons.push(reason);
    }
}

/// The plan with every sort and limit inside replaced by a scan of its columns, and every scalar subquery by some value
/// of its type.
fn cut_stages(plan: &Plan, reasons: &mut Vec<String>) -> Plan {
    match plan {
        Plan::Sort { .. } | Plan::Limit { .. } => {
            check(plan, reasons);
            rows_of_a_stage(0, plan.fields())
        }
        Plan::Scalars { .. } => cut_stages(&assume_scalars(plan, reasons), reasons),
        _ => {
            let cut = plan.map_inputs::<Infallible>(&mut |input| Ok(cut_stages(input, reasons)));
            cut.unwrap_or_else(|never| match never {})
        }
    }
}

/// The input of a `Plan::Scalars` with some value for each subquery; the subqueries are checked by themselves.
fn assume_scalars(plan: &Plan, reasons: &mut Vec<String>) -> Plan {
    let Plan::Scalars { input, subqueries } = plan else { return plan.clone() };
    let values: Vec<Literal> = subqueries
        .iter()
        .map(|subquery| {
            check(subquery, reasons);
            match subquery.fields().first().map(|field| &field.data_type) {
                Some(DataType::Utf8) => Literal::Utf8("".into()),
                Some(DataType::Boolean) => Literal::Boolean(false),
                Some(data_type) if data_type.is_float() => Literal::Float(0.0),
                Some(DataType::Null | DataType::Interval) | None => Literal::Null,
                Some(_) => Literal::Int(0),
            }
        })
        .collect();
    with_scalars(input, &values)
}

/// The plan with `values[i]` for `ExprKind::Scalar(i)`, down to the next `Plan::Scalars`.
pub(crate) fn with_scalars(plan: &Plan, values: &[Literal]) -> Plan {
    if let Plan::Scalars { .. } = plan {
        return plan.clone();
    }
    let replace = |expr: &Expr| match expr.kind {
        ExprKind::Scalar(index) => values.get(index).map(|value| Expr {
            kind: ExprKind::Literal(value.clone()),
            data_type: expr.data_type.clone(),
            nullable: expr.nullable,
        }),
        _ => None,
    };
    let plan = plan.map_exprs(&|expr| substitute(expr, &replace));
    let mapped = plan.map_inputs::<Infallible>(&mut |input| Ok(with_scalars(input, values)));
    mapped.unwrap_or_else(|never| match never {})
}

/// A scan of the rows that an earlier stage made.
pub(crate) fn rows_of_a_stage(source: usize, fields: Vec<Field>) -> Plan {
    Plan::Scan(Scan { source, table: "rows".into(), columns: (0..fields.len()).collect(), fields })
}

/// The layout that a scan may have at worst.
fn assume(scan: &Scan) -> ScanInfo {
    let layout = |field: &Field| {
        let fixed = |scalar| Storage::Fixed { scalar, has_base: false };
        let storage = match field.data_type {
            DataType::Utf8 => Storage::Text { offset: Scalar::U32 },
            DataType::Boolean | DataType::Null => fixed(Scalar::U8),
            DataType::Float32 => fixed(Scalar::F32),
            DataType::Float64 => fixed(Scalar::F64),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32 => fixed(Scalar::I32),
            DataType::UInt8 | DataType::UInt16 => fixed(Scalar::I32),
            DataType::UInt32 | DataType::Int64 | DataType::Timestamp { .. } | DataType::Duration { .. } => {
                fixed(Scalar::I64)
            }
            DataType::UInt64 | DataType::Decimal128 { .. } | DataType::Interval => fixed(Scalar::I128),
        };
        ColumnLayout { storage, has_nulls: field.nullable, range: None }
    };
    ScanInfo::new(1 << 40, scan.fields.iter().map(layout).collect())
}
