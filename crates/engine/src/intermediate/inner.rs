//! Sorts, limits and scalar subqueries inside of a plan: they are carried out first, and the plan around them scans their rows.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use kelpie_compile::plan::Plan;
use kelpie_compile::types::Field;

use super::{InnerRows, Input, Placed};
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::memory_source::MemorySource;
use crate::options::MacroModel;
use crate::query::rows_of_a_stage;
use crate::{result, stage};

impl Execution<'_> {
    /// The plan with every sort, limit and scalar subquery inside carried out: the result of a sort or limit is a table
    /// that is scanned, that of a subquery a literal.
    pub(crate) fn materialize(&mut self, plan: &Plan) -> Result<Plan, EngineError> {
        match plan {
            Plan::Sort { .. } | Plan::Limit { .. } => {
                let rows = self.rows_of(plan)?;
                self.inputs.push(rows);
                Ok(rows_of_a_stage(self.inputs.len() - 1, plan.fields()))
            }
            Plan::Scalars { .. } => {
                let plan = self.resolve(plan)?;
                self.materialize(&plan)
            }
            _ => plan.map_inputs(&mut |input| self.materialize(input)),
        }
    }

    /// The rows of a plan for stages to scan.
    pub(crate) fn rows_of(&mut self, plan: &Plan) -> Result<Input, EngineError> {
        let fields = plan.fields();
        let mut rows = InnerRows::new(self.keeps_rows().then(|| Arc::clone(&self.device)));
        self.run(plan, &mut rows)?;
        Ok(match rows.placed() {
            Placed::Intermediate(rows) => Input::Intermediate(Arc::new(rows), fields),
            Placed::Host(rows) => table_of(&fields, rows),
        })
    }

    /// Makes rows a source, the last of all.
    pub(crate) fn keep(&mut self, fields: &[Field], rows: Vec<RecordBatch>) {
        self.inputs.push(table_of(fields, rows));
    }

    /// Makes a table on the host a source, the last of all.
    pub(crate) fn keep_source(&mut self, source: MemorySource) {
        self.inputs.push(Input::Table(Arc::new(source)));
    }

    /// Whether the rows of inner sorts and limits may stay on the device: where they need not stream through it, and as long as memory
    /// has not been too small.
    fn keeps_rows(&self) -> bool {
        let streams = matches!(self.options.macro_model, MacroModel::Batch | MacroModel::KernelAtATime);
        !streams && self.least_fallback == MemoryFallback::AsAsked
    }

    /// Brings rows of earlier stages that stayed on the device to the host, as a stage has too little memory. Whether there were some that
    /// this stage does not scan: without those, which it would not have beside it, it may have enough.
    pub(crate) fn bring_to_host(&mut self, plan: &Plan) -> Result<bool, EngineError> {
        let scanned: Vec<usize> = stage::scans(plan).into_iter().map(|scan| scan.source).collect();
        let (mut any, mut others) = (false, false);
        for (number, input) in self.inputs.iter_mut().enumerate() {
            let Input::Intermediate(rows, fields) = input else { continue };
            let batches = rows.to_host(fields, self.stream.as_ref())?;
            let source = MemorySource::new("rows", result::arrow_schema(fields), batches);
            *input = Input::Table(Arc::new(source));
            any = true;
            others |= !scanned.contains(&number);
        }
        if any {
            self.metrics.steps.push("the rows of inner sorts and limits go to the host".into());
        }
        Ok(others)
    }

    /// Gives back the memory of rows that stayed on the device for a plan, where no other scans them.
    pub(crate) fn release(&mut self, plan: &Plan) {
        for scan in stage::scans(plan).into_iter().filter(|scan| !self.kept.contains(&scan.source)) {
            if let Some(input @ Input::Intermediate(..)) = self.inputs.get_mut(scan.source) {
                *input = Input::Used;
            }
        }
    }
}

/// Rows on the host as a source.
fn table_of(fields: &[Field], rows: Vec<RecordBatch>) -> Input {
    Input::Table(Arc::new(MemorySource::new("rows", result::arrow_schema(fields), rows)))
}
