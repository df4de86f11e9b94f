//! Stages whose state is too large for the device: made in parts, of which each has less. What is cut is an operator of the plan
//! ([`parted`]), by a hash of its keys, which chooses among the rows that are read ([`by_scans`], where few parts are enough) or that went
//! through the host ([`by_keys`]). A sort is made in runs of rows that are merged on the host ([`sorted_runs`]).

mod by_keys;
mod by_scans;
mod parted;
mod sorted_runs;

use std::cmp::Reverse;

use arrow::array::Array;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use kelpie_compile::plan::Plan;
use kelpie_compile::types::Range;
use kelpie_device::DeviceError;

use self::parted::Parted;
use crate::columns::bounds;
use crate::delivery::{Collected, Window};
use crate::error::EngineError;
use crate::execution::Execution;
use crate::intermediate::Input;
use crate::query::rows_of_a_stage;
use crate::result;
use crate::source::Expected;

/// Operators of which parts are tried that read everything again, at most.
const SCANNED_OPERATORS: usize = 2;

impl Execution<'_> {
    /// Runs a stage in parts, after it failed as a whole for this reason, if it was tried.
    pub(crate) fn in_parts(
        &mut self,
        plan: &Plan,
        reason: Option<DeviceError>,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        if let Some(rows) = self.in_parts_of_an_operator(plan)? {
            return Ok(rows);
        }
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
            // Its state may still fit where its inputs come from the host.
            Plan::Filter { .. }
            | Plan::Project { .. }
            | Plan::Aggregate { .. }
            | Plan::Ranked(_)
            | Plan::Window(_)
            | Plan::Join(_)
                if plan.inputs().into_iter().any(breaks) =>
            {
                let plan = plan.map_inputs(&mut |input| self.through_host(input))?;
                self.collect_stage(&plan)
            }
            _ => Err(reason.unwrap_or_else(|| self.no_room(plan)).into()),
        }
    }

    /// Runs a stage in parts of an operator in it, if one can be cut into parts that fit.
    fn in_parts_of_an_operator(&mut self, plan: &Plan) -> Result<Option<Vec<RecordBatch>>, EngineError> {
        let operators = Parted::all(plan);
        let mut by_size: Vec<&Parted<'_>> = operators.iter().collect();
        // What holds most is most likely what is too large. What is tried in vain takes as long as a part.
        by_size.sort_by_key(|parted| Reverse(self.held_values(parted.operator())));
        for parted in by_size.into_iter().take(SCANNED_OPERATORS) {
            let rows = self.by_scans(parted);
            if let Some(rows) = self.merge_parts(parted, rows)? {
                return Ok(Some(rows));
            }
        }
        // Nothing is read again where rows go through the host, as all that is read is cut.
        let below = operators.iter().find(|parted| !parted.is_itself() && parted.reads_parts_alone());
        if let Some(parted) = below {
            let rows = self.by_keys(parted).map(Some);
            if let Some(rows) = self.merge_parts(parted, rows)? {
                return Ok(Some(rows));
            }
        }
        operators.iter().find(|parted| parted.is_itself()).map(|parted| self.by_keys(parted)).transpose()
    }

    /// The rows of a plan, of those of all parts of an operator in it. `None` where parts did not fit, or a part fails as the whole need
    /// not: a sum may be beyond its type before all of it is there.
    fn merge_parts(
        &mut self,
        parted: &Parted<'_>,
        rows: Result<Option<Vec<RecordBatch>>, EngineError>,
    ) -> Result<Option<Vec<RecordBatch>>, EngineError> {
        let rows = match rows {
            Ok(Some(rows)) => rows,
            Ok(None) | Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => return Ok(None),
            Err(EngineError::SumOverflow { .. } | EngineError::Query(_)) if !parted.is_itself() => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let inputs = parted.operator().inputs().into_iter().cloned().collect();
        let fields = parted.over(inputs).fields();
        let source = self.inputs.len();
        let Some(all) = parted.over_all(rows_of_a_stage(source, fields.clone())) else {
            return Ok(Some(rows));
        };
        self.keep(&fields, rows);
        let rows = self.collect_stage(&all);
        self.inputs.truncate(source);
        rows.map(Some)
    }

    /// How many values of tables an operator keeps to itself, roughly: those of a join's build side, or of all rows of a window. Groups are
    /// mostly fewer than rows.
    fn held_values(&self, operator: &Plan) -> u64 {
        let read = operator.inputs().first().map_or(0, |input| self.read_values(input));
        match operator {
            Plan::Aggregate { .. } => read / 8,
            _ => read,
        }
    }

    /// How many values the scans of a plan have.
    fn read_values(&self, plan: &Plan) -> u64 {
        let Plan::Scan(scan) = plan else {
            return plan.inputs().into_iter().map(|input| self.read_values(input)).sum();
        };
        let rows = match self.inputs.get(scan.source) {
            Some(Input::Table(source)) => source.exact_rows().unwrap_or_default(),
            Some(Input::Intermediate(rows, _)) => rows.rows,
            Some(Input::Used) | None => 0,
        };
        rows.saturating_mul(scan.columns.len() as u64)
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
