//! Stages whose state is too large for the device: cut at their pipeline breakers, whose rows go through the host, and each breaker
//! made in parts. Those of an aggregation, join or window are chosen by a hash of its keys ([`by_keys`], and [`by_scans`] where few are
//! enough), those of a sort are runs of
//! rows that are merged on the host ([`sorted_runs`]).

mod by_keys;
mod by_scans;
mod sorted_runs;

use arrow::array::Array;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use kelpie_compile::expr::Expr;
use kelpie_compile::plan::Plan;
use kelpie_compile::types::Range;
use kelpie_device::DeviceError;

use crate::columns::bounds;
use crate::delivery::{Collected, Window};
use crate::error::EngineError;
use crate::execution::Execution;
use crate::query::rows_of_a_stage;
use crate::result;
use crate::source::Expected;

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
                self.sort_in_runs(plan, &rows, (keys, *fetch))
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

/// What is known of the first columns of some rows.
fn known_columns(rows: &[RecordBatch], count: usize) -> Vec<Expected> {
    let known = |index: usize| {
        let arrays = || rows.iter().filter_map(|batch| batch.columns().get(index));
        Expected {
            range: arrays().filter_map(bounds).reduce(Range::union),
            has_nulls: arrays().any(|array| array.logical_null_count() > 0),
        }
    };
    (0..count).map(known).collect()
}

/// What a step says of parts that did not fit.
fn tried_in_vain(count: usize) -> String {
    if count > 0 { format!(" ({count} tried in vain)") } else { String::new() }
}
