//! A sort in runs of rows that fit the device, which the host merges.
//!
//! The first run is as large as the budget, and where one does not fit, it and those that follow are half as large. All runs of a size are
//! one program ([`CommonFacts`]).

use arrow::record_batch::RecordBatch;
use kelpie_compile::plan::{Plan, SortKey};
use kelpie_device::DeviceError;

use super::known_columns;
use crate::delivery::Collected;
use crate::error::EngineError;
use crate::execution::Execution;
use crate::memory_fallback::MemoryFallback;
use crate::memory_source::MemorySource;
use crate::movement::Movement;
use crate::query::rows_of_a_stage;
use crate::source::CommonFacts;
use crate::{host, result};

/// Rows of a run, at least and at most.
const RUN_ROWS: (usize, usize) = (1 << 12, 1 << 22);

impl Execution<'_> {
    /// Sorts rows on the host in runs on the device, which are merged.
    pub(super) fn sort_in_runs(
        &mut self,
        plan: &Plan,
        rows: &[RecordBatch],
        (keys, fetch): (&[SortKey], Option<usize>),
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let movement = Movement::of(MemoryFallback::Parts, &self.options, &self.device);
        let (fields, (least, most)) = (plan.fields(), RUN_ROWS);
        let schema = result::arrow_schema(&fields);
        let columns = known_columns(rows, fields.len());
        let mut run_rows = self.rows_that_fit(rows).clamp(least, most);
        let (mut runs, mut sorted, mut in_vain) = (Collected::default(), 0, 0);
        let mut next = Place { batch: 0, row: 0 };
        loop {
            let (run, after) = next.run(rows, run_rows);
            if run.is_empty() {
                break;
            }
            let common = CommonFacts { rows: run_rows as u64, columns: columns.clone() };
            self.keep_source(MemorySource::new("rows", schema.clone(), run).with_common(common));
            let scan = Box::new(rows_of_a_stage(self.inputs.len() - 1, fields.clone()));
            let sort = Plan::Sort { input: scan, keys: keys.to_vec(), fetch };
            let (before, pipelines) = (runs.batches.len(), self.metrics.pipelines.len());
            let loaded = self.load(&sort, &movement);
            let outcome = loaded.and_then(|loaded| self.run_loaded(&sort, &loaded, movement, &mut runs));
            self.inputs.pop();
            match outcome {
                Ok(()) => (next, sorted) = (after, sorted + 1),
                Err(EngineError::Device(DeviceError::OutOfMemory { .. })) if run_rows > least => {
                    runs.batches.truncate(before);
                    self.metrics.pipelines.truncate(pipelines);
                    (run_rows, in_vain) = ((run_rows / 2).max(least), in_vain + 1);
                }
                Err(error) => return Err(error),
            }
        }
        let tried = super::tried_in_vain(in_vain);
        self.metrics.steps.push(format!("{sorted} sorted runs{tried}, merged on the host"));
        let mut merged = Collected::default();
        host::merge(&schema, &runs.batches, keys, fetch, &mut merged)?;
        Ok(merged.batches)
    }

    /// How many of some rows have as many bytes as the device.
    fn rows_that_fit(&self, rows: &[RecordBatch]) -> usize {
        let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
        let bytes: usize = rows.iter().map(RecordBatch::get_array_memory_size).sum();
        let of_row = (bytes / count.max(1)).max(1) as u64;
        usize::try_from(self.device.memory().1 / of_row).unwrap_or(usize::MAX)
    }
}

/// A row of some batches.
#[derive(Debug, Clone, Copy)]
struct Place {
    batch: usize,
    row: usize,
}

impl Place {
    /// The next rows from here on, at most so many, and the row after them.
    fn run(self, batches: &[RecordBatch], rows: usize) -> (Vec<RecordBatch>, Place) {
        let (mut at, mut left, mut run) = (self, rows, Vec::new());
        while let Some(batch) = batches.get(at.batch).filter(|_| left > 0) {
            let count = left.min(batch.num_rows() - at.row);
            if count > 0 {
                run.push(batch.slice(at.row, count));
            }
            left -= count;
            at.row += count;
            if at.row == batch.num_rows() {
                at = Place { batch: at.batch + 1, row: 0 };
            }
        }
        (run, at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn runs_have_each_row_once() {
        let batch = |values: Vec<i64>| {
            RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(values)) as _)]).unwrap()
        };
        let batches = [batch(vec![1, 2, 3]), batch(vec![]), batch(vec![4]), batch(vec![5, 6])];
        for rows in 1..8 {
            let (mut at, mut lengths) = (Place { batch: 0, row: 0 }, Vec::new());
            loop {
                let (run, after) = at.run(&batches, rows);
                if run.is_empty() {
                    break;
                }
                lengths.push(run.iter().map(RecordBatch::num_rows).sum::<usize>());
                at = after;
            }
            let (last, others) = lengths.split_last().unwrap();
            assert!(others.iter().all(|length| *length == rows) && *last <= rows, "{rows}: {lengths:?}");
            assert_eq!(lengths.iter().sum::<usize>(), 6);
        }
    }
}
