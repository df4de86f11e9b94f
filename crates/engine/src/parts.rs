//! Stages whose state is too large for the device: cut at their pipeline breakers, whose rows go through the host, and each
//! breaker made in parts. An aggregation or join is made for one part of the keys after the other (by a hash of them), a sort
//! in runs of rows that are merged on the host.

use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use kelpie_compile::expr::{CompareOp, Expr, ExprKind, Function};
use kelpie_compile::plan::{Join, Plan, SortKey};
use kelpie_compile::types::{DataType, Literal};
use kelpie_device::DeviceError;

use crate::delivery::{Collected, Window};
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::movement::Movement;
use crate::query::rows_of_a_stage;
use crate::{host, result};

/// Parts are 2, 2², … up to this power of two.
const MOST_BITS: u32 = 12;
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
            Plan::Aggregate { keys, .. } if !keys.is_empty() => {
                let plan = plan.map_inputs(&mut |input| self.through_host(input))?;
                self.by_keys(&plan, &|plan, bits, part| {
                    plan.map_inputs(&mut |input| Ok(of_part(input, keys, bits, part)))
                })
            }
            Plan::Ranked(ranked) if !ranked.keys.is_empty() => {
                let plan = plan.map_inputs(&mut |input| self.through_host(input))?;
                self.by_keys(&plan, &|plan, bits, part| {
                    plan.map_inputs(&mut |input| Ok(of_part(input, &ranked.keys, bits, part)))
                })
            }
            Plan::Join(join) if !join.keys.is_empty() && !join.null_aware => {
                let join = Join {
                    build: self.through_host(&join.build)?,
                    probe: self.through_host(&join.probe)?,
                    ..join.as_ref().clone()
                };
                let (build, probe): (Vec<Expr>, Vec<Expr>) = join.keys.iter().cloned().unzip();
                self.by_keys(&Plan::Join(Box::new(join)), &|plan, bits, part| {
                    let mut sides = [&build, &probe].into_iter();
                    plan.map_inputs(&mut |input| {
                        Ok(of_part(input, sides.next().map_or(&[], Vec::as_slice), bits, part))
                    })
                })
            }
            // Its state may still fit where its inputs come from the host.
            Plan::Aggregate { .. } | Plan::Ranked(_) | Plan::Join(_)
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

    /// Runs a plan for each part of its keys: in few parts, or in more if those do not fit.
    fn by_keys(
        &mut self,
        plan: &Plan,
        part_of: &dyn Fn(&Plan, u32, i128) -> Result<Plan, EngineError>,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let loaded = self.load(plan, &movement)?;
        let mut last = None;
        for bits in (2..=MOST_BITS).step_by(2) {
            let before = self.metrics.pipelines.len();
            let (mut rows, mut made) = (Collected::default(), 0);
            for part in 0..1 << bits {
                match self.run_loaded(&part_of(plan, bits, part)?, &loaded, movement, &mut rows) {
                    Ok(()) => made += 1,
                    Err(EngineError::Device(error @ DeviceError::OutOfMemory { .. })) => {
                        self.metrics.pipelines.truncate(before);
                        last = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if made == 1 << bits {
                self.metrics.steps.push(format!("{} parts by keys", 1 << bits));
                return Ok(rows.batches);
            }
        }
        Err(last.unwrap_or_else(|| self.no_room(plan)).into())
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
        | Plan::Join(_)
        | Plan::Sort { .. }
        | Plan::Limit { .. } => true,
        _ => plan.inputs().into_iter().any(breaks),
    }
}

fn kind(plan: &Plan) -> &'static str {
    match plan {
        Plan::Aggregate { .. } | Plan::Ranked(_) => "an aggregation without keys",
        Plan::Join(_) => "a join without equal keys, or NOT IN",
        _ => "a scan",
    }
}

/// The rows of a part.
fn of_part(input: &Plan, keys: &[Expr], bits: u32, part: i128) -> Plan {
    let int = |kind| Expr { kind, data_type: DataType::Int64, nullable: false };
    let own = int(ExprKind::Function(Function::Part(bits), keys.to_vec()));
    let wanted = int(ExprKind::Literal(Literal::Int(part)));
    let equal = ExprKind::Compare(CompareOp::Eq, Box::new(own), Box::new(wanted));
    let predicate = Expr { kind: equal, data_type: DataType::Boolean, nullable: false };
    Plan::Filter { input: Box::new(input.clone()), predicate }
}
