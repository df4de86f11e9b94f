//! A query on its way: from plan to batches, one stage after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_compile::calibration::Calibration;
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::operator::sort::words::EXACT_TEXT_BYTES;
use kelpie_compile::pipeline::ScanInfo;
use kelpie_compile::plan::{Plan, SortKey};
use kelpie_device::{CancelToken, Device, DeviceError, DeviceKind, QueryStream};

use crate::budgets::Budget;
use crate::columns::Wish;
use crate::delivery::{Collected, Mapped, RowReceiver, Undecided, Window, take_cut};
use crate::error::{EngineError, FallbackReason};
use crate::explain::Explaining;
use crate::identity;
use crate::intermediate::Input;
use crate::memory_fallback::MemoryFallback;
use crate::metrics::QueryMetrics;
use crate::movement::Movement;
use crate::options::{DeviceChoice, MacroModel, QueryOptions};
use crate::query::{Engine, begin_query, ends_a_stage, with_key_columns, with_scalars};
use crate::stage::{self, Ahead, Loaded, Loading, Outcome, Prepared, Setting, Trial};
use crate::trace::{self, Track};
use crate::{host, meter, result};

/// One query on its way.
pub(crate) struct Execution<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) device: Arc<dyn Device>,
    /// Its claim to the device's memory.
    pub(crate) budget: Budget,
    pub(crate) stream: Box<dyn QueryStream>,
    /// What was measured of the device.
    pub(crate) calibration: Calibration,
    pub(crate) options: QueryOptions,
    /// What stages take at least.
    pub(crate) least_fallback: MemoryFallback,
    /// What `Scan::source` numbers: the query's tables, and after them the rows of its earlier stages.
    pub(crate) inputs: Vec<Input>,
    /// Those of them that several stages may scan.
    pub(crate) kept: BTreeSet<usize>,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) metrics: QueryMetrics,
    /// What all launches accessed, where they are metered.
    pub(crate) total: meter::Total,
    /// Where given, stages are described and not run beyond what later stages need.
    pub(crate) explain: Option<Explaining>,
}

impl Execution<'_> {
    /// Hands the rows of a plan to `out`, in their order where they have one.
    pub(crate) fn run(&mut self, plan: &Plan, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        match plan {
            Plan::Sort { input, keys, .. } if are_columns(keys) && is_one_stage(input) => {
                self.sort_stage(plan, out)
            }
            Plan::Sort { input, keys, fetch } => self.sort(input, keys, *fetch, out),
            Plan::Limit { input, skip, fetch } => self.limit(input, *skip, *fetch, out),
            Plan::Scalars { .. } => {
                let plan = self.resolve(plan)?;
                self.run(&plan, out)
            }
            // Columns of a sorted result: nothing to compute.
            Plan::Project { input, exprs, .. }
                if ends_a_stage(input)
                    && exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_))) =>
            {
                let schema = result::arrow_schema(&plan.fields());
                let map = |batch: &RecordBatch| host::columns(batch, exprs, &schema);
                let columns: Vec<usize> = exprs.iter().flat_map(column_of).collect();
                self.run(input, &mut Mapped { rows: out, map: &map, columns: &columns })
            }
            _ if is_one_stage(plan) => self.stage(plan, out),
            _ => {
                let plan = self.materialize(plan)?;
                self.stage(&plan, out)
            }
        }
    }

    /// The rows of a plan for a later stage.
    fn collect(&mut self, plan: &Plan) -> Result<Vec<RecordBatch>, EngineError> {
        let mut rows = Collected::default();
        self.run(plan, &mut rows)?;
        Ok(rows.batches)
    }

    /// As [`Self::collect`], of a plan without sort and limit but on top.
    pub(crate) fn collect_stage(&mut self, plan: &Plan) -> Result<Vec<RecordBatch>, EngineError> {
        let mut rows = Collected::default();
        self.stage(plan, &mut rows)?;
        Ok(rows.batches)
    }

    /// Rows `skip..skip + fetch` of a plan's.
    fn limit(
        &mut self,
        input: &Plan,
        skip: usize,
        fetch: Option<usize>,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        let rows = fetch.map(|fetch| fetch.saturating_add(skip));
        let mut out = Window::new(out, skip, fetch);
        match input {
            _ if fetch == Some(0) => Ok(()),
            Plan::Sort { input, keys, fetch } => {
                let fewer = fetch.iter().chain(&rows).min().copied();
                self.sort(input, keys, fewer, &mut out)
            }
            _ if ends_a_stage(input) || rows.is_none() => self.run(input, &mut out),
            _ => {
                let input = Box::new(self.materialize(input)?);
                self.stage(&Plan::Limit { input, skip: 0, fetch: rows }, &mut out)
            }
        }
    }

    /// Sorts; keys that are not columns are computed beside the rows first.
    fn sort(
        &mut self,
        input: &Plan,
        keys: &[SortKey],
        fetch: Option<usize>,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        let width = input.fields().len();
        let (input, keys) = with_key_columns(input, keys);
        let input = Box::new(self.materialize(&input)?);
        let plan = Plan::Sort { input, keys, fetch };
        let without_keys: Vec<usize> = (0..width).collect();
        let map = |batch: &RecordBatch| match batch.num_columns() > width {
            true => Ok(batch.project(&without_keys)?),
            false => Ok(batch.clone()),
        };
        self.sort_stage(&plan, &mut Mapped { rows: out, map: &map, columns: &without_keys })
    }

    /// Carries out a sort by columns whose input is one stage; on the host what does not compile.
    fn sort_stage(&mut self, plan: &Plan, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        match (self.stage(plan, out), plan) {
            (Err(EngineError::Unsupported(_)), Plan::Sort { input, keys, fetch }) => {
                let schema = result::arrow_schema(&input.fields());
                let rows = self.collect_stage(input)?;
                self.sort_on_host(&schema, &rows, keys, *fetch, out)
            }
            (outcome, _) => outcome,
        }
    }

    fn sort_on_host(
        &mut self,
        schema: &SchemaRef,
        rows: &[RecordBatch],
        keys: &[SortKey],
        fetch: Option<usize>,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        let start = Instant::now();
        let sort = |batch: &RecordBatch| host::sort(batch, keys, fetch);
        let runs = rows.iter().map(sort).collect::<Result<Vec<_>, _>>()?;
        trace::record(Track::Host, (start, Instant::now()), || "sort".into());
        self.metrics.result_ns += start.elapsed().as_nanos() as u64;
        host::merge(schema, &runs, keys, fetch, out)
    }

    /// Runs a prepared stage. Where a sort on top is not complete on the device, the host does what is left.
    pub(crate) fn run_prepared(
        &mut self,
        prepared: &Prepared,
        plan: &Plan,
        (loaded, movement, trial): (&[Loaded], Movement, Option<&Trial>),
        out: &mut dyn RowReceiver,
    ) -> Result<Outcome, EngineError> {
        let setting = Setting {
            stream: self.stream.as_ref(),
            cache: &self.engine.columns,
            learned: &self.engine.learned,
            loaded,
            movement,
            keeps_rows: self.asks_to_keep(out),
            cancel: self.cancel,
            trial,
        };
        let Plan::Sort { keys, fetch, .. } = plan else {
            return stage::run(prepared, plan, setting, &mut self.metrics, out);
        };
        let is_complete = prepared.program.sorting().map(|sorting| sorting.is_exact);
        if prepared.program.is_in_order || is_complete == Some(true) {
            return stage::run(prepared, plan, setting, &mut self.metrics, out);
        }
        let schema = result::arrow_schema(&plan.fields());
        if is_complete.is_none() {
            let mut rows = Collected::default();
            let outcome = stage::run(prepared, plan, setting, &mut self.metrics, &mut rows)?;
            if let Outcome::Done = outcome {
                self.sort_on_host(&schema, &rows.batches, keys, *fetch, out)?;
            }
            return Ok(outcome);
        }
        let mut rows = Undecided::new(out);
        let outcome = stage::run(prepared, plan, setting, &mut self.metrics, &mut rows)?;
        if let (Outcome::Done, Some(Collected { batches, left_out })) = (&outcome, rows.left()) {
            let start = Instant::now();
            let sort = |batch| host::sort_ties(batch, keys, EXACT_TEXT_BYTES as usize);
            let runs = batches.iter().map(sort).collect::<Result<Vec<_>, _>>()?;
            trace::record(Track::Host, (start, Instant::now()), || "sort ties".into());
            self.metrics.result_ns += start.elapsed().as_nanos() as u64;
            out.leave_out(left_out);
            let fetch = fetch.map(|fetch| fetch.saturating_sub(left_out as usize));
            host::merge(&schema, &runs, keys, fetch, out)?;
        }
        Ok(outcome)
    }

    /// The input of a `Plan::Scalars` with the values of its subqueries.
    pub(crate) fn resolve(&mut self, plan: &Plan) -> Result<Plan, EngineError> {
        let Plan::Scalars { input, subqueries } = plan else { return Ok(plan.clone()) };
        let mut values = Vec::new();
        for subquery in subqueries {
            values.push(result::scalar(&self.collect(subquery)?)?);
        }
        Ok(with_scalars(input, &values))
    }

    /// Compiles and runs a plan without sort and limit but on top. Where device memory is short, one fallback after the other.
    /// Only until rows went out: then nothing may make them again.
    pub(crate) fn stage(&mut self, plan: &Plan, out: &mut dyn RowReceiver) -> Result<(), EngineError> {
        let device = Arc::clone(&self.device);
        let moved = (self.options.macro_model, self.options.dictionaries);
        let key = || identity::memory_fallback(plan, (&device.name(), device.memory().1), moved);
        let known = self.engine.learned.memory_fallback(key);
        let mut memory_fallback = known.unwrap_or_default().max(self.least_fallback);
        let mut last = None;
        if memory_fallback > MemoryFallback::AsAsked {
            self.bring_to_host(plan)?;
        }
        loop {
            let pipelines = self.metrics.pipelines.len();
            let delivered = out.delivered();
            let outcome = match memory_fallback {
                MemoryFallback::Parts => {
                    // What it is cut into is no larger problem than the whole was.
                    let before = std::mem::replace(&mut self.least_fallback, MemoryFallback::SmallBlocks);
                    let rows = self.in_parts(plan, last.take());
                    self.least_fallback = before;
                    rows.and_then(|rows| rows.into_iter().try_for_each(|batch| take_cut(out, batch)))
                }
                _ => self.try_stage(plan, memory_fallback, out),
            };
            let error = match outcome {
                Err(EngineError::Device(error @ DeviceError::OutOfMemory { .. }))
                    if out.delivered() == delivered =>
                {
                    error
                }
                outcome => {
                    if outcome.is_ok() {
                        self.release(plan);
                    }
                    return outcome;
                }
            };
            if self.bring_to_host(plan)? {
                self.metrics.pipelines.truncate(pipelines);
                continue;
            }
            if self.options.macro_model == MacroModel::RunToFinish {
                return Err(error.into());
            }
            self.metrics.pipelines.truncate(pipelines);
            // On a GPU inputs stream from the host next, where their columns stay; to wait would be to read files again and again, as the
            // others' columns take the place of this query's.
            let waits = self.device.kind() != DeviceKind::Cuda;
            if waits && self.budget.wait_for_memory(self.cancel) {
                self.metrics.steps.push(format!("{error}; again, after another query has ended"));
                continue;
            }
            let Some(next) = memory_fallback.next() else { return self.elsewhere(plan, error, out) };
            self.metrics.steps.push(format!("{error}; now {next}"));
            // What is short of memory beside others need not be alone.
            if !waits || self.budget.is_alone() {
                self.engine.learned.keep_memory_fallback(key(), next);
            }
            (memory_fallback, last) = (next, Some(error));
        }
    }

    /// Runs a plan for which this device's memory is too small on the CPU.
    fn elsewhere(
        &mut self,
        plan: &Plan,
        error: DeviceError,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        if self.device.kind() == DeviceKind::Cpu {
            return Err(FallbackReason::DeviceMemory(error).into());
        }
        let options = QueryOptions { device: DeviceChoice::Cpu, memory_limit: None, ..self.options.clone() };
        let (device, budget) = self.engine.devices.choose(&options)?;
        self.metrics.steps.push(format!("{error}; now on the {}", device.name()));
        let stream = begin_query(&device, &options, &self.total)?;
        let before = (
            std::mem::replace(&mut self.device, device),
            std::mem::replace(&mut self.stream, stream),
            std::mem::replace(&mut self.budget, budget),
        );
        let outcome = self.stage(plan, out);
        (self.device, self.stream, self.budget) = before;
        outcome
    }

    fn try_stage(
        &mut self,
        plan: &Plan,
        memory_fallback: MemoryFallback,
        out: &mut dyn RowReceiver,
    ) -> Result<(), EngineError> {
        let movement = Movement::of(memory_fallback, &self.options, &self.device);
        let (device, options) = (Arc::clone(&self.device), self.options.clone());
        let keeps_rows = self.asks_to_keep(out);
        let (direct_bytes, calibration) = (movement.initial_bytes, self.calibration);
        let ahead = &Ahead { plan, device, options, direct_bytes, keeps_rows, calibration };
        thread::scope(|scope| {
            let foreseen = |infos: Vec<ScanInfo>| {
                // Where there is no thread for it, nothing is compiled ahead.
                let compiling = thread::Builder::new().spawn_scoped(scope, move || ahead.compile(&infos));
                // Tests look at what was compiled before the columns were there: it is then.
                if cfg!(test) {
                    let _ = compiling.map(|thread| thread.join());
                }
            };
            let loaded = self.load_foreseen(plan, &movement, &foreseen)?;
            self.run_loaded(plan, &loaded, movement, out)
        })
    }

    pub(crate) fn load(&mut self, plan: &Plan, movement: &Movement) -> Result<Vec<Loaded>, EngineError> {
        self.load_foreseen(plan, movement, &|_| ())
    }

    fn load_foreseen(
        &mut self,
        plan: &Plan,
        movement: &Movement,
        foreseen: &(dyn Fn(Vec<ScanInfo>) + Sync),
    ) -> Result<Vec<Loaded>, EngineError> {
        let QueryOptions { dictionaries, decoding, .. } = self.options;
        let wish = Wish { placement: movement.placement, dictionaries, decoding };
        let loading = Loading {
            inputs: &self.inputs,
            device: &self.device,
            cache: &self.engine.columns,
            wish,
            cancel: self.cancel,
        };
        stage::load(plan, loading, foreseen, &mut self.metrics)
    }

    /// Whether whoever takes the rows wants them to stay on this query's device.
    pub(crate) fn asks_to_keep(&self, out: &dyn RowReceiver) -> bool {
        out.kept().is_some_and(|wanted| Arc::ptr_eq(&wanted.device, &self.device))
    }
}

/// Whether a plan has no sort, limit or scalar subquery in it.
fn is_one_stage(plan: &Plan) -> bool {
    !matches!(plan, Plan::Sort { .. } | Plan::Limit { .. } | Plan::Scalars { .. })
        && plan.inputs().into_iter().all(is_one_stage)
}

/// The column that an expression is, if it is one.
fn column_of(expr: &Expr) -> Option<usize> {
    match expr.kind {
        ExprKind::Column(index) => Some(index),
        _ => None,
    }
}

fn are_columns(keys: &[SortKey]) -> bool {
    keys.iter().all(|key| matches!(key.expr.kind, ExprKind::Column(_)))
}
