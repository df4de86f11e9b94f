//! A query on its way: from plan to batch, one stage after the other.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use kelpie_compile::expr::ExprKind;
use kelpie_compile::operator::sort::words::EXACT_TEXT_BYTES;
use kelpie_compile::pipeline::{self, Choices, Program, ScanInfo};
use kelpie_compile::plan::{Plan, SortKey};
use kelpie_device::{CancelToken, Device, DeviceError, DeviceKind, QueryStream};
use kelpie_kir::text;

use crate::effort::Effort;
use crate::error::{EngineError, FallbackReason};
use crate::memory_source::MemorySource;
use crate::query::{Engine, begin_query, ends_a_stage, rows_of_a_stage, with_key_columns, with_scalars};
use crate::source::TableSource;
use crate::stage::{self, Loaded, Movement, Outcome, Prepared, Setting};
use crate::{DeviceChoice, ExplainStage, MacroModel, QueryMetrics, QueryOptions, host, meter, result};

/// One query on its way.
pub(crate) struct Execution<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) stream: Box<dyn QueryStream>,
    pub(crate) options: QueryOptions,
    /// What stages take at least.
    pub(crate) least_effort: Effort,
    pub(crate) sources: Vec<Arc<dyn TableSource>>,
    pub(crate) cancel: &'a CancelToken,
    pub(crate) metrics: QueryMetrics,
    /// What all launches accessed, where they are metered.
    pub(crate) total: meter::Total,
    /// Where given, stages are described and not run beyond what later stages need.
    pub(crate) explain: Option<(ExplainStage, String)>,
}

impl Execution<'_> {
    pub(crate) fn run(&mut self, plan: &Plan) -> Result<RecordBatch, EngineError> {
        match plan {
            Plan::Sort { input, keys, fetch } => self.sort(input, keys, *fetch),
            Plan::Limit { input, skip, fetch } => self.limit(input, *skip, *fetch),
            Plan::Scalars { .. } => {
                let plan = self.resolve(plan)?;
                self.run(&plan)
            }
            // Columns of a sorted result: nothing to compute.
            Plan::Project { input, exprs, .. }
                if ends_a_stage(input)
                    && exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_))) =>
            {
                let batch = self.run(input)?;
                host::columns(&batch, exprs, &result::arrow_schema(&plan.fields()))
            }
            _ => {
                let plan = self.materialize(plan)?;
                self.stage(&plan)
            }
        }
    }

    /// Rows `skip..skip + fetch` of a plan's.
    fn limit(&mut self, input: &Plan, skip: usize, fetch: Option<usize>) -> Result<RecordBatch, EngineError> {
        let rows = fetch.map(|fetch| fetch.saturating_add(skip));
        let batch = match input {
            _ if fetch == Some(0) => RecordBatch::new_empty(result::arrow_schema(&input.fields())),
            Plan::Sort { input, keys, fetch } => {
                let fewer = fetch.iter().chain(&rows).min().copied();
                self.sort(input, keys, fewer)?
            }
            _ if ends_a_stage(input) || rows.is_none() => self.run(input)?,
            _ => {
                let input = Box::new(self.materialize(input)?);
                self.stage(&Plan::Limit { input, skip: 0, fetch: rows })?
            }
        };
        Ok(host::limit(&batch, skip, fetch))
    }

    /// Sorts; keys that are not columns are computed beside the rows first.
    fn sort(
        &mut self,
        input: &Plan,
        keys: &[SortKey],
        fetch: Option<usize>,
    ) -> Result<RecordBatch, EngineError> {
        let width = input.fields().len();
        let (input, keys) = with_key_columns(input, keys);
        let input = Box::new(self.materialize(&input)?);
        let plan = Plan::Sort { input, keys, fetch };
        let sorted = match (self.stage(&plan), &plan) {
            (Err(EngineError::Unsupported(_)), Plan::Sort { input, keys, .. }) => {
                let batch = self.stage(input)?;
                self.sort_on_host(&batch, keys, fetch)?
            }
            (sorted, _) => sorted?,
        };
        match sorted.num_columns() > width {
            true => Ok(sorted.project(&(0..width).collect::<Vec<_>>())?),
            false => Ok(sorted),
        }
    }

    pub(crate) fn sort_on_host(
        &mut self,
        batch: &RecordBatch,
        keys: &[SortKey],
        fetch: Option<usize>,
    ) -> Result<RecordBatch, EngineError> {
        let start = Instant::now();
        let sorted = host::sort(batch, keys, fetch);
        self.metrics.result_ns += start.elapsed().as_nanos() as u64;
        sorted
    }

    /// What is left to do after a stage with a sort on top.
    fn finish(
        &mut self,
        plan: &Plan,
        program: &Program,
        batch: RecordBatch,
    ) -> Result<RecordBatch, EngineError> {
        match (plan, program.sorting()) {
            (Plan::Sort { keys, fetch, .. }, None) => self.sort_on_host(&batch, keys, *fetch),
            (Plan::Sort { keys, fetch, .. }, Some(sorting)) if !sorting.is_exact => {
                let start = Instant::now();
                let sorted = host::sort_ties(&batch, keys, EXACT_TEXT_BYTES as usize)?;
                self.metrics.result_ns += start.elapsed().as_nanos() as u64;
                Ok(host::limit(&sorted, 0, *fetch))
            }
            _ => Ok(batch),
        }
    }

    /// The plan with every sort, limit and scalar subquery inside carried out: the result of a sort or limit is a table
    /// that is scanned, that of a subquery a literal.
    pub(crate) fn materialize(&mut self, plan: &Plan) -> Result<Plan, EngineError> {
        match plan {
            Plan::Sort { .. } | Plan::Limit { .. } => {
                let fields = plan.fields();
                let batch = self.run(plan)?;
                self.sources.push(Arc::new(MemorySource::new("rows", batch)));
                Ok(rows_of_a_stage(self.sources.len() - 1, fields))
            }
            Plan::Scalars { .. } => {
                let plan = self.resolve(plan)?;
                self.materialize(&plan)
            }
            _ => plan.map_inputs(&mut |input| self.materialize(input)),
        }
    }

    /// The input of a `Plan::Scalars` with the values of its subqueries.
    fn resolve(&mut self, plan: &Plan) -> Result<Plan, EngineError> {
        let Plan::Scalars { input, subqueries } = plan else { return Ok(plan.clone()) };
        let mut values = Vec::new();
        for subquery in subqueries {
            values.push(result::scalar(&self.run(subquery)?)?);
        }
        Ok(with_scalars(input, &values))
    }

    /// Compiles and runs a plan without sort and limit but on top. Where device memory is short, with more and more effort.
    pub(crate) fn stage(&mut self, plan: &Plan) -> Result<RecordBatch, EngineError> {
        let (device, model) = (&self.device, self.options.macro_model);
        let key = format!("{:?} {} {model:?} {plan:?}", device.name(), device.memory().1);
        let known = self.engine.efforts.lock().get(&key).copied().unwrap_or_default();
        let mut effort = known.max(self.least_effort);
        let mut last = None;
        loop {
            let pipelines = self.metrics.pipelines.len();
            let outcome = match effort {
                Effort::Parts => {
                    // What it is cut into is no larger problem than the whole was.
                    let before = std::mem::replace(&mut self.least_effort, Effort::SmallBlocks);
                    let outcome = self.in_parts(plan, last.take());
                    self.least_effort = before;
                    outcome
                }
                _ => self.try_stage(plan, effort),
            };
            let error = match outcome {
                Err(EngineError::Device(error @ DeviceError::OutOfMemory { .. })) => error,
                outcome => return outcome,
            };
            if self.options.macro_model == MacroModel::RunToFinish {
                return Err(error.into());
            }
            self.metrics.pipelines.truncate(pipelines);
            let Some(next) = effort.next() else { return self.elsewhere(plan, error) };
            self.metrics.steps.push(format!("{error}; now {next}"));
            self.engine.efforts.lock().insert(key.clone(), next);
            (effort, last) = (next, Some(error));
        }
    }

    /// Runs a plan for which this device's memory is too small on the CPU.
    fn elsewhere(&mut self, plan: &Plan, error: DeviceError) -> Result<RecordBatch, EngineError> {
        if self.device.kind() == DeviceKind::Cpu {
            return Err(FallbackReason::DeviceMemory(error).into());
        }
        let options = QueryOptions { device: DeviceChoice::Cpu, memory_limit: None, ..self.options.clone() };
        let device = self.engine.devices.choose(&options)?;
        self.metrics.steps.push(format!("{error}; now on the {}", device.name()));
        let stream = begin_query(&device, &options, &self.total)?;
        let before =
            (std::mem::replace(&mut self.device, device), std::mem::replace(&mut self.stream, stream));
        let outcome = self.stage(plan);
        (self.device, self.stream) = before;
        outcome
    }

    fn try_stage(&mut self, plan: &Plan, effort: Effort) -> Result<RecordBatch, EngineError> {
        let movement = effort.movement(&self.options, &self.device);
        let loaded = self.load(plan, &movement)?;
        self.run_loaded(plan, &loaded, movement)
    }

    pub(crate) fn load(&mut self, plan: &Plan, movement: &Movement) -> Result<Vec<Loaded>, EngineError> {
        let columns = (&self.engine.columns, movement.placement);
        stage::load(plan, &self.sources, &self.device, columns, self.cancel, &mut self.metrics)
    }

    /// Compiles and runs a plan over its scans' columns.
    pub(crate) fn run_loaded(
        &mut self,
        plan: &Plan,
        loaded: &[Loaded],
        movement: Movement,
    ) -> Result<RecordBatch, EngineError> {
        let infos = stage::describe(loaded);
        let (device, model, local) = (self.device.name(), self.options.micro_model, self.options.resolution);
        let (host, direct) = (self.options.host_sort_rows, movement.initial_bytes);
        let metered = if self.options.meter { "metered" } else { "" };
        let base = format!("{device:?} {metered} {model:?} {local:?} {host:?} {direct:?} {plan:?} {infos:?}");
        loop {
            let duplicates = self.engine.broken.lock().get(&base).cloned().unwrap_or_default();
            let (prepared, fresh) = self.prepare(plan, &infos, &base, &duplicates, direct)?;
            if let Some((stage, out)) = &mut self.explain {
                describe(&prepared, *stage, &self.device, out)?;
            }
            let first = self.metrics.pipelines.len();
            let setting = Setting {
                stream: self.stream.as_ref(),
                cache: &self.engine.columns,
                loaded,
                movement,
                cancel: self.cancel,
            };
            let outcome = stage::run(&prepared, plan, setting, &mut self.metrics)?;
            if fresh {
                let pipelines = self.metrics.pipelines[first..].iter_mut().enumerate();
                for ((index, metrics), kernel) in pipelines.zip(&prepared.kernels) {
                    let counts = prepared.counted.get(&index).map_or(0, |(_, kernel)| kernel.compile_ns());
                    metrics.compile_ns = counts + kernel.compile_ns();
                }
            }
            match outcome {
                Outcome::Rows(batch) => return self.finish(plan, &prepared.program, batch),
                Outcome::Duplicate(join) if duplicates.contains(&join) => {
                    return Err(EngineError::Internal(format!("join {join} broke its promise twice")));
                }
                // The same stage may run elsewhere at the same time, and have found the same.
                Outcome::Duplicate(join) => {
                    self.engine.broken.lock().entry(base.clone()).or_default().insert(join);
                }
            }
        }
    }

    /// The compiled program of a stage, and whether it was compiled just now.
    fn prepare(
        &mut self,
        plan: &Plan,
        infos: &[ScanInfo],
        base: &str,
        duplicates: &BTreeSet<usize>,
        direct_bytes: Option<u64>,
    ) -> Result<(Arc<Prepared>, bool), EngineError> {
        let start = Instant::now();
        let key = format!("{base} {duplicates:?}");
        let found = match self.engine.known(&key) {
            Some(prepared) => (prepared, false),
            None => {
                let target = self.device.target();
                let QueryOptions { micro_model, resolution, host_sort_rows, .. } = self.options;
                let choices = Choices { micro_model, resolution, duplicates, host_sort_rows, direct_bytes };
                let program = pipeline::compile_with(plan, infos, target, &choices)?;
                let prepared = Arc::new(stage::prepare(program, self.stream.as_ref(), host_sort_rows)?);
                self.engine.keep(key, &prepared);
                (prepared, true)
            }
        };
        self.metrics.compile_ns += start.elapsed().as_nanos() as u64;
        Ok(found)
    }
}

/// Appends a description of a stage.
fn describe(
    prepared: &Prepared,
    stage: ExplainStage,
    device: &Arc<dyn Device>,
    out: &mut String,
) -> Result<(), EngineError> {
    for (index, pipeline) in prepared.program.pipelines.iter().enumerate() {
        let _ = writeln!(out, "-- pipeline {index}: {}", pipeline.name);
        match stage {
            ExplainStage::Pipelines => {
                if pipeline.counting.is_some() {
                    let counts = prepared.counted.contains_key(&index);
                    out.push_str(if counts {
                        "   kernels: count, prefix sum, write\n"
                    } else {
                        "   kernels: write\n"
                    });
                }
                for state in pipeline.zeroed.iter().map(|state| &prepared.program.states[*state]) {
                    let slots = prepared.program.classes[state.class].initial;
                    let _ = writeln!(out, "   state {}: {slots} × {} bytes", state.name, state.element_bytes);
                }
            }
            ExplainStage::Kir => {
                let modules = pipeline.clone().into_modules();
                modules.for_each(|module| out.push_str(&text::print(&module)));
            }
            ExplainStage::Code => {
                if let Some((module, _)) = prepared.counted.get(&index) {
                    out.push_str(&device.code(module)?);
                }
                out.push_str(&device.code(&prepared.modules[index])?);
            }
        }
    }
    Ok(())
}
