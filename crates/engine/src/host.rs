//! Sort, limit and choice of columns of a result, on the host.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use arrow::array::{Array, ArrayRef, AsArray, DynComparator, StringArray, UInt32Array, make_comparator};
use arrow::compute::{
    SortColumn, SortOptions, interleave_record_batch, lexsort_to_indices, take_record_batch,
};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, SortField};
use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::SortKey;

use crate::delivery::{RowReceiver, take_cut};
use crate::error::EngineError;

/// Rows that are merged into one batch, at least.
const MERGED_ROWS: usize = 1 << 13;

/// The rows in the order of the keys, which are columns; at most `fetch` of them.
pub fn sort(batch: &RecordBatch, keys: &[SortKey], fetch: Option<usize>) -> Result<RecordBatch, EngineError> {
    let columns = sort_columns(batch, keys)?;
    if columns.is_empty() {
        return Ok(limit(batch, 0, fetch));
    }
    let indices = lexsort_to_indices(&columns, fetch)?;
    Ok(take_record_batch(batch, &indices)?)
}

/// Merges sorted runs; hands at most `fetch` rows to `out`.
pub fn merge(
    schema: &SchemaRef,
    runs: &[RecordBatch],
    keys: &[SortKey],
    fetch: Option<usize>,
    out: &mut dyn RowReceiver,
) -> Result<(), EngineError> {
    let Some(first) = runs.first() else { return Ok(()) };
    if runs.len() == 1 {
        return take_cut(out, limit(first, 0, fetch));
    }
    let fields = sort_columns(first, keys)?.into_iter().map(|column| {
        SortField::new_with_options(column.values.data_type().clone(), column.options.unwrap_or_default())
    });
    let converter = RowConverter::new(fields.collect())?;
    let mut rows = Vec::new();
    for run in runs {
        let columns: Vec<ArrayRef> =
            sort_columns(run, keys)?.into_iter().map(|column| column.values).collect();
        rows.push(converter.convert_columns(&columns)?);
    }
    let pieces = Merged { schema, runs: runs.iter().collect(), texts: texts_of(runs) };
    // The smallest next row of all runs is on top; of equal ones that of the first run.
    let next =
        |run: usize, row: usize| rows.get(run).filter(|rows| row < rows.num_rows()).map(|rows| rows.row(row));
    let mut heap: BinaryHeap<_> =
        (0..runs.len()).filter_map(|run| Some(Reverse((next(run, 0)?, run, 0)))).collect();
    let mut left = runs.iter().map(RecordBatch::num_rows).sum::<usize>().min(fetch.unwrap_or(usize::MAX));
    let (most, most_bytes) = (MERGED_ROWS.max(out.batches().rows.min(1 << 20)), out.batches().text_bytes);
    let (mut order, mut bytes) = (Vec::new(), 0);
    while left > 0 && !out.is_full() {
        let Some(Reverse((_, run, row))) = heap.pop() else { break };
        let more = pieces.text_bytes(run, row);
        if order.len() >= most || (bytes + more > most_bytes && !order.is_empty()) {
            take_cut(out, pieces.take(&order)?)?;
            order.clear();
            bytes = 0;
        }
        order.push((run, row));
        bytes += more;
        left -= 1;
        heap.extend(next(run, row + 1).map(|key| Reverse((key, run, row + 1))));
    }
    take_cut(out, pieces.take(&order)?)
}

/// Runs from which rows are taken.
struct Merged<'a> {
    schema: &'a SchemaRef,
    runs: Vec<&'a RecordBatch>,
    /// The text columns of each run.
    texts: Vec<Vec<&'a StringArray>>,
}

fn texts_of(runs: &[RecordBatch]) -> Vec<Vec<&StringArray>> {
    let texts =
        runs.iter().map(|run| run.columns().iter().filter_map(|column| column.as_string_opt::<i32>()));
    texts.map(Iterator::collect).collect()
}

impl Merged<'_> {
    /// Bytes of text of a row, in all columns.
    fn text_bytes(&self, run: usize, row: usize) -> u64 {
        let texts = self.texts.get(run).into_iter().flatten();
        texts.map(|text| u64::from(text.value_length(row).unsigned_abs())).sum()
    }

    fn take(&self, order: &[(usize, usize)]) -> Result<RecordBatch, EngineError> {
        match order.is_empty() {
            true => Ok(RecordBatch::new_empty(SchemaRef::clone(self.schema))),
            false => Ok(interleave_record_batch(&self.runs, order)?),
        }
    }
}

fn sort_columns(batch: &RecordBatch, keys: &[SortKey]) -> Result<Vec<SortColumn>, EngineError> {
    let column = |key: &SortKey| {
        let ExprKind::Column(index) = key.expr.kind else {
            return Err(EngineError::Internal("a sort key is not a column".into()));
        };
        if index >= batch.num_columns() {
            return Err(EngineError::Internal(format!("sort key {index} is not a column of the result")));
        }
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        Ok(SortColumn { values: batch.column(index).clone(), options: Some(options) })
    };
    keys.iter().map(column).collect()
}

/// Sorts rows that are in order but for texts of more than `exact` bytes that begin with the same `exact` bytes: where a
/// key is such a text, it and the keys after it are to be compared.
pub fn sort_ties(batch: &RecordBatch, keys: &[SortKey], exact: usize) -> Result<RecordBatch, EngineError> {
    let columns = sort_columns(batch, keys)?;
    let compare = |column: &SortColumn| {
        make_comparator(&column.values, &column.values, column.options.unwrap_or_default())
    };
    let comparators = columns.iter().map(compare).collect::<Result<Vec<DynComparator>, _>>()?;
    let all = |a: u32, b: u32| {
        let mut orders = comparators.iter().map(|compare| compare(a as usize, b as usize));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    // Whether a row and the one before it are in no order yet.
    let tied = |row: usize| {
        for (column, compare) in columns.iter().zip(&comparators) {
            if is_cut_tie(&column.values, row, exact) {
                return true;
            }
            if compare(row - 1, row).is_ne() {
                return false;
            }
        }
        false
    };
    let mut order: Vec<u32> = (0..batch.num_rows() as u32).collect();
    let mut changed = false;
    let mut start = 0;
    for end in 1..=order.len() {
        if end < batch.num_rows() && tied(end) {
            continue;
        }
        if end - start > 1 {
            order[start..end].sort_unstable_by(|a, b| all(*a, *b));
            changed = true;
        }
        start = end;
    }
    match changed {
        true => Ok(take_record_batch(batch, &UInt32Array::from(order))?),
        false => Ok(batch.clone()),
    }
}

/// Whether the texts of a row and of the one before it are longer than `exact` bytes, of which these are the same.
fn is_cut_tie(values: &ArrayRef, row: usize, exact: usize) -> bool {
    if *values.data_type() != DataType::Utf8 || values.is_null(row) || values.is_null(row - 1) {
        return false;
    }
    let texts = values.as_string::<i32>();
    let (a, b) = (texts.value(row - 1).as_bytes(), texts.value(row).as_bytes());
    a.len() > exact && b.len() > exact && a[..exact] == b[..exact]
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
