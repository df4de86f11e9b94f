//! `histogram` of many groups, by one sort of all values.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, MapArray, StructArray, UInt32Array, UInt64Array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::arrow::row::SortField;
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::counted::entries_of;
use super::grouped_rows::{GroupedRows, Sorted, kept_rows, lists_of, single_lists};

/// How often each value of each group has come.
#[derive(Debug)]
pub(super) struct Histograms {
    value: DataType,
    /// Whether a value counts once.
    is_distinct: bool,
    /// Values, each with how many rows it stands for.
    rows: GroupedRows,
}

impl Histograms {
    pub(super) fn new(value: DataType, is_distinct: bool) -> Histograms {
        let rows = GroupedRows::new(vec![value.clone(), DataType::Int64]);
        Histograms { value, is_distinct, rows }
    }

    /// Each value of each group once, and its count.
    fn counted(&mut self, emit: EmitTo) -> Result<Sorted> {
        let order = [(0, SortField::new(self.value.clone()))];
        let Sorted { columns, offsets, repeats } = self.rows.sorted(emit, &order)?;
        let [values, rows] = &columns[..] else { return exec_err!("a histogram of nothing") };
        let rows = rows.as_primitive::<Int64Type>().values();
        let (mut first, mut counts, mut ends) = (Vec::new(), Vec::<i64>::new(), vec![0]);
        for bounds in offsets.windows(2) {
            let (begin, end) = (bounds[0] as usize, bounds[1] as usize);
            for row in begin..end {
                match counts.last_mut().filter(|_| row > begin && repeats[row]) {
                    Some(count) if !self.is_distinct => *count += rows[row],
                    Some(_) => {}
                    None => {
                        first.push(row as u32);
                        counts.push(if self.is_distinct { 1 } else { rows[row] });
                    }
                }
            }
            ends.push(counts.len() as i32);
        }
        let values = take(values, &UInt32Array::from(first), None)?;
        let columns = vec![values, Arc::new(Int64Array::from(counts)) as ArrayRef];
        Ok(Sorted { columns, offsets: ends, repeats: Vec::new() })
    }

    fn elements(&self) -> [FieldRef; 2] {
        [self.value.clone(), DataType::Int64].map(|of| Arc::new(Field::new_list_field(of, true)))
    }
}

/// Values, and how many rows each stands for: one where nothing is said.
fn values_and_rows(columns: &[ArrayRef]) -> Result<(ArrayRef, ArrayRef)> {
    match columns {
        [values] => Ok((Arc::clone(values), Arc::new(Int64Array::from(vec![1; values.len()])))),
        [values, rows] => Ok((Arc::clone(values), Arc::clone(rows))),
        _ => exec_err!("a histogram of {} columns", columns.len()),
    }
}

impl GroupsAccumulator for Histograms {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let (values, rows) = values_and_rows(values)?;
        let kept = kept_rows(&values, true, filter)?;
        self.rows.add(&[values, rows], groups, kept.as_ref(), count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.rows.add_lists(&lists_of(states)?, groups, count)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sorted = self.counted(emit)?;
        let nulls = sorted.empty_are_null();
        let [values, counts] = &sorted.columns[..] else { return exec_err!("a histogram of nothing") };
        let counts = counts.as_primitive::<Int64Type>().values().iter();
        let counts: UInt64Array = counts.map(|count| *count as u64).collect();
        let (entries, fields) = entries_of(&self.value);
        let columns = StructArray::try_new(fields, vec![Arc::clone(values), Arc::new(counts)], None)?;
        let offsets = OffsetBuffer::new(sorted.offsets.into());
        Ok(Arc::new(MapArray::try_new(entries, offsets, columns, nulls, false)?))
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let sorted = self.counted(emit)?;
        let lists = self.elements().into_iter().zip(&sorted.columns);
        lists.map(|(element, column)| sorted.lists(element, Arc::clone(column), None)).collect()
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let (values, rows) = values_and_rows(values)?;
        let kept = kept_rows(&values, true, filter)?;
        let lists = self.elements().into_iter().zip([&values, &rows]);
        lists.map(|(element, column)| single_lists(element, column, kept.as_ref())).collect()
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.size()
    }
}
