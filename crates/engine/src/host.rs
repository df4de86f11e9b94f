//! Sort, limit and choice of columns of a result, on the host.

use arrow::compute::{SortColumn, SortOptions, lexsort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::SortKey;

use crate::error::EngineError;

/// The rows in the order of the keys, which are columns; at most `fetch` of them.
pub fn sort(batch: &RecordBatch, keys: &[SortKey], fetch: Option<usize>) -> Result<RecordBatch, EngineError> {
    let mut columns = Vec::new();
    for key in keys {
        let ExprKind::Column(index) = key.expr.kind else {
            return Err(EngineError::Internal("a sort key is not a column".into()));
        };
        if index >= batch.num_columns() {
            return Err(EngineError::Internal(format!("sort key {index} is not a column of the result")));
        }
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        columns.push(SortColumn { values: batch.column(index).clone(), options: Some(options) });
    }
    if columns.is_empty() {
        return Ok(limit(batch, 0, fetch));
    }
    let indices = lexsort_to_indices(&columns, fetch)?;
    Ok(take_record_batch(batch, &indices)?)
}

/// The columns that `exprs` name, under the names of `schema`.
pub fn columns(batch: &RecordBatch, exprs: &[Expr], schema: &SchemaRef) -> Result<RecordBatch, EngineError> {
    let mut columns = Vec::new();
    for expr in exprs {
        match expr.kind {
            ExprKind::Column(index) if index < batch.num_columns() => {
                columns.push(batch.column(index).clone())
            }
            _ => return Err(EngineError::Internal("a projection on the host that is not of columns".into())),
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// Rows `skip..skip + fetch`.
pub fn limit(batch: &RecordBatch, skip: usize, fetch: Option<usize>) -> RecordBatch {
    let start = skip.min(batch.num_rows());
    let rows = (batch.num_rows() - start).min(fetch.unwrap_or(usize::MAX));
    batch.slice(start, rows)
}
