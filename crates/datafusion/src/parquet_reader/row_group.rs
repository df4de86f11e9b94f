//! A row group that is being read, some rows of all its columns after the other.

use std::collections::VecDeque;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::parquet::arrow::arrow_reader::{ParquetRecordBatchReader, RowSelection, RowSelector};

use super::forms::FileColumn;
use super::pages::PageColumn;

/// Rows of a batch: a few columns of so many fit a core's caches.
pub(super) const BATCH_ROWS: usize = 1 << 14;

/// What reads a column.
pub(super) enum ColumnReader {
    Pages(Box<PageColumn>),
    /// Arrow's reader; which of the columns that it gives.
    Arrow(usize),
}

/// The columns of a row group.
pub(super) struct RowGroup {
    /// Of those that Arrow's reader reads.
    arrow: Option<ParquetRecordBatchReader>,
    columns: Vec<ColumnReader>,
    /// Rows to read and to pass over.
    rows: VecDeque<RowSelector>,
}

impl RowGroup {
    /// A row group of so many rows, of which some are wanted, or all.
    pub(super) fn new(
        arrow: Option<ParquetRecordBatchReader>,
        columns: Vec<ColumnReader>,
        (all, wanted): (usize, Option<RowSelection>),
    ) -> RowGroup {
        let rows = wanted.map_or_else(|| vec![RowSelector::select(all)].into(), VecDeque::from);
        RowGroup { arrow, columns, rows }
    }

    /// The next rows of all columns; `None` behind the last.
    pub(super) fn next_batch(
        &mut self,
        columns: &[FileColumn],
    ) -> Result<Option<(usize, Vec<ArrayRef>)>, String> {
        let of_arrow = match self.arrow.as_mut().map(Iterator::next) {
            Some(None) => return Ok(None),
            Some(Some(batch)) => Some(batch.map_err(|error| error.to_string())?),
            None => None,
        };
        let steps = self.next_steps(of_arrow.as_ref().map_or(BATCH_ROWS, RecordBatch::num_rows));
        let rows = steps.iter().filter(|step| !step.skip).map(|step| step.row_count).sum();
        if rows == 0 {
            return Ok(None);
        }
        let mut arrays = Vec::new();
        for (column, reader) in columns.iter().zip(&mut self.columns) {
            arrays.push(match reader {
                ColumnReader::Pages(pages) => read_pages(pages, rows, &steps)
                    .map_err(|what| format!("a damaged file: column {}: {what}", column.name))?,
                ColumnReader::Arrow(place) => {
                    let array = of_arrow.as_ref().and_then(|batch| batch.columns().get(*place));
                    array.cloned().ok_or("a column was not read")?
                }
            });
        }
        Ok(Some((rows, arrays)))
    }

    /// What to do for at most so many of the rows that are wanted.
    fn next_steps(&mut self, mut most: usize) -> Vec<RowSelector> {
        let mut steps = Vec::new();
        while most > 0
            && let Some(next) = self.rows.front_mut()
        {
            let count = if next.skip { next.row_count } else { next.row_count.min(most) };
            steps.push(RowSelector { row_count: count, ..*next });
            if !next.skip {
                most -= count;
            }
            next.row_count -= count;
            if next.row_count == 0 {
                self.rows.pop_front();
            }
        }
        steps
    }
}

fn read_pages(pages: &mut PageColumn, rows: usize, steps: &[RowSelector]) -> Result<ArrayRef, String> {
    let mut batch = pages.batch(rows);
    for step in steps {
        match step.skip {
            true => pages.skip(step.row_count)?,
            false => pages.read(step.row_count, &mut batch)?,
        }
    }
    pages.finish(batch)
}
