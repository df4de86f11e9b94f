//! Stages whose state is too large for the device: cut at their pipeline breakers, whose rows go through the host, and each
//! breaker made in parts. The rows of an aggregation or join are brought to the host once, with the number of the part that a hash
//! of their keys chooses, and each part is made by itself; one that does not fit is cut further, of whose rows only. So less memory costs
//! as many passes over the rows as parts are cut again, whatever the number of parts. A sort is made in runs of rows that are merged
//! on the host.

use arrow::array::{AsArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::Int64Type;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use kelpie_compile::expr::{Expr, ExprKind, Function};
use kelpie_compile::plan::{Plan, SortKey};
use kelpie_compile::types::DataType;
use kelpie_device::DeviceError;

use crate::delivery::{Collected, Window};
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::movement::Movement;
use crate::query::rows_of_a_stage;
use crate::{host, result};

/// Bits of the hash that chooses a part: there are no more parts than these tell apart.
const PART_BITS: u32 = 16;
/// Bits by which a part is cut further.
const CUT_BITS: u32 = 2;
/// The share of the budget that the rows of a part shall take at first: its state takes as much, and so do blocks of them.
const ROWS_SHARE: u64 = 8;
/// Rows of the first runs of a sort, at most and at least.
const RUN_ROWS: (usize, usize) = (1 << 22, 1 << 12);

impl Execution<'_> {
    /// Runs a stage in parts, after it failed as a whole for this reason, if it was tried.
    pub(crate) fn in_parts(
        &mut self,
        plan: &Plan,
        reason: Option<DeviceError>,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        match plan {
            Plan::Sort { input, keys, fetch } => {
                let rows = self.collect_stage(input)?;
                self.sort_in_runs(plan, &rows, keys, *fetch)
            }
            Plan::Limit { input, skip, fetch } => {
                let mut rows = Collected::default();
                self.stage(input, &mut Window::new(&mut rows, *skip, *fetch))?;
                Ok(rows.batches)
            }
            Plan::Union { inputs, .. } => {
                let schema = result::arrow_schema(&plan.fields());
                let mut rows = Vec::new();
                for input in inputs {
                    for batch in self.collect_stage(input)? {
                        // Columns of the inputs may have other names than those of the union.
                        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
                        let columns = batch.columns().to_vec();
                        rows.push(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?);
                    }
                }
                Ok(rows)
            }
            // One set after the other.
            Plan::GroupingSets(sets) => self.in_parts(&sets.united(), reason),
            Plan::Filter { .. } | Plan::Project { .. } if plan.inputs().into_iter().any(breaks) => {
                let plan = plan.map_inputs(&mut |input| self.through_host(input))?;
                self.collect_stage(&plan)
            }
            Plan::Aggregate { keys, .. } if !keys.is_empty() => self.by_keys(plan, &[keys]),
            Plan::Ranked(ranked) if !ranked.keys.is_empty() => self.by_keys(plan, &[&ranked.keys]),
            Plan::Window(window) if !window.common_keys().is_empty() => {
                self.by_keys(plan, &[&window.common_keys()])
            }
            Plan::Join(join) if !join.keys.is_empty() && !join.null_aware => {
                let (build, probe): (Vec<Expr>, Vec<Expr>) = join.keys.iter().cloned().unzip();
                self.by_keys(plan, &[&build, &probe])
            }
            // Its state may still fit where its inputs come from the host.
            Plan::Aggregate { .. } | Plan::Ranked(_) | Plan::Window(_) | Plan::Join(_)
                if plan.inputs().into_iter().any(breaks) =>
            {
                let plan = plan.map_inputs(&mut |input| self.through_host(input))?;
                self.collect_stage(&plan)
            }
            _ => Err(reason.unwrap_or_else(|| self.no_room(plan)).into()),
        }
    }

    /// A plan whose breakers, if it has any, are made by stages of their own: their rows are a table on the host.
    fn through_host(&mut self, plan: &Plan) -> Result<Plan, EngineError> {
        if !breaks(plan) {
            return Ok(plan.clone());
        }
        let fields = plan.fields();
        let rows = self.collect_stage(plan)?;
        self.keep(&fields, rows);
        Ok(rows_of_a_stage(self.inputs.len() - 1, fields))
    }

    /// Runs a plan for each part of the keys of its inputs.
    fn by_keys(&mut self, plan: &Plan, keys: &[&[Expr]]) -> Result<Vec<RecordBatch>, EngineError> {
        let mut inputs = Vec::new();
        for (input, keys) in plan.inputs().into_iter().zip(keys) {
            let input = self.through_host(input)?;
            inputs.push(self.collect_stage(&with_part(&input, keys))?);
        }
        let bytes: usize = inputs.iter().flatten().map(RecordBatch::get_array_memory_size).sum();
        let share = (self.device.memory().1 / ROWS_SHARE).max(1);
        let bits = (bytes as u64).div_ceil(share).next_power_of_two().trailing_zeros();
        let mut made = PartsMade::default();
        self.cut(plan, inputs, (PART_BITS, bits.clamp(CUT_BITS, PART_BITS)), &mut made)?;
        self.metrics.steps.push(format!("{} parts by keys", made.parts));
        Ok(made.rows)
    }

    /// Runs a plan for each part of some rows: of `left` bits that choose one, the first `bits` have not been looked at.
    fn cut(
        &mut self,
        plan: &Plan,
        inputs: Vec<Vec<RecordBatch>>,
        (left, bits): (u32, u32),
        made: &mut PartsMade,
    ) -> Result<(), EngineError> {
        let below = left - bits;
        let parts =
            inputs.into_iter().map(|rows| split(&rows, below, bits)).collect::<Result<Vec<_>, _>>()?;
        for part in 0..1 << bits {
            let rows: Vec<_> =
                parts.iter().map(|parts| parts.get(part).cloned().unwrap_or_default()).collect();
            if rows.iter().all(Vec::is_empty) {
                continue;
            }
            match self.run_part(plan, &rows) {
                Ok(rows) => {
                    made.parts += 1;
                    made.rows.extend(rows);
                }
                Err(EngineError::Device(DeviceError::OutOfMemory { .. })) if below >= CUT_BITS => {
                    self.cut(plan, rows, (below, CUT_BITS), made)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Runs a plan whose inputs are such rows.
    fn run_part(
        &mut self,
        plan: &Plan,
        inputs: &[Vec<RecordBatch>],
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let (first, pipelines) = (self.inputs.len(), self.metrics.pipelines.len());
        let mut rows = inputs.iter();
        let plan = plan.map_inputs::<EngineError>(&mut |input| {
            let fields = input.fields();
            let without_part: Vec<usize> = (0..fields.len()).collect();
            let rows = rows.next().into_iter().flatten().map(|batch| batch.project(&without_part));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            self.keep(&fields, rows);
            Ok(rows_of_a_stage(self.inputs.len() - 1, fields))
        })?;
        let mut out = Collected::default();
        let loaded = self.load(&plan, &movement);
        let outcome = loaded.and_then(|loaded| self.run_loaded(&plan, &loaded, movement, &mut out));
        self.inputs.truncate(first);
        if outcome.is_err() {
            self.metrics.pipelines.truncate(pipelines);
        }
        outcome.map(|()| out.batches)
    }

    /// Sorts rows on the host in runs on the device, which are merged.
    fn sort_in_runs(
        &mut self,
        plan: &Plan,
        rows: &[RecordBatch],
        keys: &[SortKey],
        fetch: Option<usize>,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let (mut run_rows, least) = RUN_ROWS;
        loop {
            let mut runs = Collected::default();
            let mut short = None;
            let cut = |batch: &RecordBatch| {
                let (batch, rows) = (batch.clone(), batch.num_rows());
                let starts = (0..rows).step_by(run_rows);
                starts.map(move |start| batch.slice(start, run_rows.min(rows - start)))
            };
            for run in rows.iter().flat_map(cut) {
                self.keep(&plan.fields(), vec![run]);
                let scan = rows_of_a_stage(self.inputs.len() - 1, plan.fields());
                let sort = Plan::Sort { input: Box::new(scan), keys: keys.to_vec(), fetch };
                let loaded = self.load(&sort, &movement)?;
                let sorted = self.run_loaded(&sort, &loaded, movement, &mut runs);
                self.inputs.pop();
                match sorted {
                    Ok(()) => {}
                    Err(EngineError::Device(error @ DeviceError::OutOfMemory { .. })) if run_rows > least => {
                        short = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if short.is_none() {
                self.metrics.steps.push(format!("{} sorted runs, merged on the host", runs.batches.len()));
                let mut merged = Collected::default();
                let schema = result::arrow_schema(&plan.fields());
                host::merge(&schema, &runs.batches, keys, fetch, &mut merged)?;
                return Ok(merged.batches);
            }
            run_rows /= 4;
        }
    }

    fn no_room(&self, plan: &Plan) -> DeviceError {
        let (used, limit) = self.device.memory();
        let device = format!("{}: state that cannot be cut into parts ({})", self.device.name(), kind(plan));
        DeviceError::OutOfMemory { device, requested: limit, used, limit }
    }
}

/// Whether a plan's rows come from state.
fn breaks(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Window(_)
        | Plan::Join(_)
        | Plan::Sort { .. }
        | Plan::Limit { .. } => true,
        _ => plan.inputs().into_iter().any(breaks),
    }
}

fn kind(plan: &Plan) -> &'static str {
    match plan {
        Plan::Aggregate { .. } | Plan::Ranked(_) => "an aggregation without keys",
        Plan::Window(_) => "a window of all rows",
        Plan::Join(_) => "a join without equal keys, or NOT IN",
        _ => "a scan",
    }
}

/// What was made of parts.
#[derive(Default)]
struct PartsMade {
    parts: usize,
    rows: Vec<RecordBatch>,
}

/// Rows with the number of their part as a last column.
fn with_part(input: &Plan, keys: &[Expr]) -> Plan {
    let fields = input.fields();
    let columns = fields.iter().enumerate();
    let columns = columns.map(|(index, field)| Expr::column(index, field.data_type.clone(), field.nullable));
    let kind = ExprKind::Function(Function::Part(PART_BITS), keys.to_vec());
    let part = Expr { kind, data_type: DataType::Int64, nullable: false };
    let exprs = columns.chain([part]).collect();
    let names = fields.into_iter().map(|field| field.name).chain(["part".into()]).collect();
    Plan::Project { input: Box::new(input.clone()), exprs, names }
}

/// The rows of each part, as `bits` bits of the last column choose it, below which there are `below` others.
fn split(rows: &[RecordBatch], below: u32, bits: u32) -> Result<Vec<Vec<RecordBatch>>, EngineError> {
    let mut parts = vec![Vec::new(); 1 << bits];
    for batch in rows {
        let chosen = batch.columns().last().and_then(|column| column.as_primitive_opt::<Int64Type>());
        let chosen =
            chosen.ok_or_else(|| EngineError::Internal("rows without the number of a part".into()))?;
        let mut of_part: Vec<Vec<u32>> = vec![Vec::new(); 1 << bits];
        for (row, part) in (0..).zip(chosen.values()) {
            let part = (part >> below) as usize & ((1 << bits) - 1);
            of_part[part].push(row);
        }
        for (part, rows) in parts.iter_mut().zip(of_part) {
            if !rows.is_empty() {
                part.push(take_record_batch(batch, &UInt32Array::from(rows))?);
            }
        }
    }
    Ok(parts)
}
