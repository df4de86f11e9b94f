//! Rows of groups that are kept until their group is asked for, then group by group in an order.
//!
//! DataFusion keeps an accumulator a group for aggregates that need all of its values, and a value by itself in each. Here values stay in
//! the arrays that they come in, and one sort brings them together.

use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, StructArray, UInt32Array, new_empty_array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{and, concat, filter, prep_null_mask_filter, take as take_rows};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::EmitTo;

/// Rows of some columns, each of a group.
#[derive(Debug, Clone)]
pub(super) struct GroupedRows {
    types: Vec<DataType>,
    /// The group of each row.
    groups: Vec<u32>,
    /// Of each column, the arrays that the rows came in.
    columns: Vec<Vec<ArrayRef>>,
    /// How many groups there are.
    count: usize,
    /// What the arrays take: asked for at each batch.
    bytes: usize,
}

/// The rows of some groups, one group behind the other.
pub(super) struct Sorted {
    pub columns: Vec<ArrayRef>,
    /// Where each group begins; one more than there are groups.
    pub offsets: Vec<i32>,
    /// Whether a row is equal to the one before it, by the order; empty where it has none.
    pub repeats: Vec<bool>,
}

impl GroupedRows {
    pub(super) fn new(types: Vec<DataType>) -> GroupedRows {
        let columns = types.iter().map(|_| Vec::new()).collect();
        GroupedRows { types, groups: Vec::new(), columns, count: 0, bytes: 0 }
    }

    /// There are so many groups, whether they have rows or not.
    pub(super) fn add_groups(&mut self, count: usize) {
        self.count = self.count.max(count);
    }

    /// Adds the rows that a filter leaves.
    pub(super) fn add(
        &mut self,
        columns: &[ArrayRef],
        groups: &[usize],
        kept: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        self.add_groups(count);
        if columns.len() != self.columns.len() {
            return exec_err!("an aggregate of {} columns has {}", self.columns.len(), columns.len());
        }
        match kept.map(true_rows) {
            None => self.groups.extend(groups.iter().map(|group| *group as u32)),
            Some(kept) => {
                let kept = groups.iter().zip(kept.values()).filter(|(_, is_kept)| *is_kept);
                self.groups.extend(kept.map(|(group, _)| *group as u32));
            }
        }
        for (all, column) in self.columns.iter_mut().zip(columns) {
            let column = kept.map_or_else(|| Ok(Arc::clone(column)), |kept| filter(column, kept))?;
            self.bytes += bytes_of(&column);
            all.push(column);
        }
        Ok(())
    }

    /// Adds the elements of lists: of each column one a group, of equal lengths.
    pub(super) fn add_lists(&mut self, lists: &[ListArray], groups: &[usize], count: usize) -> Result<()> {
        let Some(first) = lists.first() else { return exec_err!("an aggregate without columns") };
        let mut rows = Vec::new();
        let mut of_rows = Vec::new();
        for (place, group) in groups.iter().enumerate().filter(|(place, _)| first.is_valid(*place)) {
            let (begin, end) = (first.value_offsets()[place], first.value_offsets()[place + 1]);
            rows.extend(begin as u32..end as u32);
            of_rows.extend((begin..end).map(|_| *group));
        }
        let valid = || (0..groups.len()).filter(|place| first.is_valid(*place));
        let columns = lists.iter().map(|list| {
            let shift = list.value_offsets()[0] - first.value_offsets()[0];
            let moved = |place: usize| list.value_offsets()[place] - first.value_offsets()[place];
            if valid().any(|place| moved(place) != shift || moved(place + 1) != shift) {
                return exec_err!("lists of one group have other lengths");
            }
            match rows.len() == list.values().len() && shift == 0 {
                true => Ok(list.values().clone()),
                false => {
                    let rows: UInt32Array = rows.iter().map(|row| row.wrapping_add_signed(shift)).collect();
                    Ok(take_rows(list.values(), &rows, None)?)
                }
            }
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        self.add(&columns, &of_rows, None, count)
    }

    /// Takes the rows of the first groups, or of all: in each group in the order of some columns, and in that in which they came.
    pub(super) fn sorted(&mut self, emit: EmitTo, order: &[(usize, SortField)]) -> Result<Sorted> {
        let groups = match emit {
            EmitTo::All => self.count,
            EmitTo::First(groups) => groups.min(self.count),
        };
        let all = self.columns.iter_mut().zip(&self.types);
        let all =
            all.map(|(arrays, data_type)| joined(take(arrays), data_type)).collect::<Result<Vec<_>>>()?;
        let of_rows = take(&mut self.groups);
        let (mut rows, offsets) = in_groups(&of_rows, groups)?;
        let repeats = sort(&mut rows, &offsets, &all, order)?;
        let rows = UInt32Array::from(rows);
        let columns =
            all.iter().map(|column| take_rows(column, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        self.count -= groups;
        self.bytes = 0;
        if self.count > 0 {
            let left = (0..).zip(&of_rows).filter(|(_, group)| **group as usize >= groups);
            let (left, of_left): (Vec<u32>, Vec<u32>) =
                left.map(|(row, group)| (row, group - groups as u32)).unzip();
            let left = UInt32Array::from(left);
            for (arrays, column) in self.columns.iter_mut().zip(&all) {
                let column = take_rows(column, &left, None)?;
                self.bytes += bytes_of(&column);
                arrays.push(column);
            }
            self.groups = of_left;
        }
        Ok(Sorted { columns, offsets, repeats })
    }

    pub(super) fn size(&self) -> usize {
        size_of_val(self) + self.groups.capacity() * size_of::<u32>() + self.bytes
    }
}

impl Sorted {
    /// Leaves out rows that are equal to the one before them in their group.
    pub(super) fn distinct(self) -> Result<Sorted> {
        let Sorted { columns, offsets, repeats } = self;
        let mut rows = Vec::new();
        let mut left = Vec::with_capacity(offsets.len());
        left.push(0);
        for bounds in offsets.windows(2) {
            let (begin, end) = (bounds[0] as usize, bounds[1] as usize);
            rows.extend((begin..end).filter(|row| *row == begin || !repeats[*row]).map(|row| row as u32));
            left.push(rows.len() as i32);
        }
        let rows = UInt32Array::from(rows);
        let columns =
            columns.iter().map(|column| take_rows(column, &rows, None)).collect::<Result<Vec<_>, _>>()?;
        Ok(Sorted { columns, offsets: left, repeats: Vec::new() })
    }

    /// NULL for each group without rows.
    pub(super) fn empty_are_null(&self) -> Option<NullBuffer> {
        let valid: Vec<bool> = self.offsets.windows(2).map(|bounds| bounds[0] < bounds[1]).collect();
        Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0)
    }

    /// A list a group of the values of a column, or of a structure of them.
    pub(super) fn lists(
        &self,
        element: FieldRef,
        values: ArrayRef,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let offsets = OffsetBuffer::new(self.offsets.clone().into());
        Ok(Arc::new(ListArray::try_new(element, offsets, values, nulls)?))
    }
}

/// A column of one element for each row, as a state has it; NULL where the row is left out.
pub(super) fn single_lists(
    element: FieldRef,
    values: &ArrayRef,
    kept: Option<&BooleanArray>,
) -> Result<ArrayRef> {
    let offsets = OffsetBuffer::from_repeated_length(1, values.len());
    let nulls = kept.map(|kept| NullBuffer::from(true_rows(kept).values().clone()));
    Ok(Arc::new(ListArray::try_new(element, offsets, values.clone(), nulls)?))
}

/// The rows that are neither filtered out nor NULL, where nulls are ignored; `None`: all.
pub(super) fn kept_rows(
    values: &ArrayRef,
    ignores_nulls: bool,
    filter: Option<&BooleanArray>,
) -> Result<Option<BooleanArray>> {
    let valid = values.logical_nulls().filter(|nulls| ignores_nulls && nulls.null_count() > 0);
    let valid = valid.map(|nulls| BooleanArray::new(nulls.inner().clone(), None));
    Ok(match (valid, filter) {
        (Some(valid), Some(filter)) => Some(and(&valid, &true_rows(filter))?),
        (valid, filter) => valid.or_else(|| filter.cloned()),
    })
}

/// A filter that is false where it was NULL.
fn true_rows(filter: &BooleanArray) -> BooleanArray {
    if filter.nulls().is_some() { prep_null_mask_filter(filter) } else { filter.clone() }
}

/// Lists of a state.
pub(super) fn lists_of(states: &[ArrayRef]) -> Result<Vec<ListArray>> {
    let list = |state: &ArrayRef| match state.as_list_opt::<i32>() {
        Some(list) => Ok(list.clone()),
        None => exec_err!("a state of lists has the type {}", state.data_type()),
    };
    states.iter().map(list).collect()
}

/// The columns of lists of structures, as lists.
pub(super) fn unpacked(lists: &ListArray) -> Result<Vec<ListArray>> {
    let Some(structure) = lists.values().as_any().downcast_ref::<StructArray>() else {
        return exec_err!("an order has the type {}", lists.value_type());
    };
    let of_column = |(column, field): (&ArrayRef, &FieldRef)| {
        let list = ListArray::try_new(
            field.clone(),
            lists.offsets().clone(),
            column.clone(),
            lists.nulls().cloned(),
        );
        Ok(list?)
    };
    structure.columns().iter().zip(structure.fields()).map(of_column).collect()
}

fn bytes_of(array: &ArrayRef) -> usize {
    array.to_data().get_slice_memory_size().unwrap_or_default()
}

fn joined(arrays: Vec<ArrayRef>, data_type: &DataType) -> Result<ArrayRef> {
    let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
    match arrays.is_empty() {
        true => Ok(new_empty_array(data_type)),
        false => Ok(concat(&arrays)?),
    }
}

/// The numbers of the rows of the first groups, one group behind the other, and where each begins (a counting sort).
fn in_groups(of_rows: &[u32], groups: usize) -> Result<(Vec<u32>, Vec<i32>)> {
    if i32::try_from(of_rows.len()).is_err() {
        return exec_err!("lists of more than {} values", i32::MAX);
    }
    let mut offsets = vec![0i32; groups + 1];
    for group in of_rows.iter().filter(|group| (**group as usize) < groups) {
        offsets[*group as usize + 1] += 1;
    }
    for group in 0..groups {
        offsets[group + 1] += offsets[group];
    }
    let mut next = offsets.clone();
    let mut rows = vec![0u32; offsets[groups] as usize];
    for (row, group) in (0..).zip(of_rows).filter(|(_, group)| (**group as usize) < groups) {
        let place = &mut next[*group as usize];
        rows[*place as usize] = row;
        *place += 1;
    }
    Ok((rows, offsets))
}

/// Sorts the rows of each group; whether each is equal to the one before it.
fn sort(
    rows: &mut [u32],
    offsets: &[i32],
    columns: &[ArrayRef],
    order: &[(usize, SortField)],
) -> Result<Vec<bool>> {
    if order.is_empty() {
        return Ok(Vec::new());
    }
    let fields = order.iter().map(|(_, field)| field.clone()).collect();
    let keys: Vec<ArrayRef> = order.iter().map(|(column, _)| columns[*column].clone()).collect();
    let keys = RowConverter::new(fields)?.convert_columns(&keys)?;
    // The first bytes of a key decide most comparisons.
    let first = |row: u32| {
        let mut bytes = [0; 8];
        let key = keys.row(row as usize);
        let known = key.as_ref().len().min(bytes.len());
        bytes[..known].copy_from_slice(&key.as_ref()[..known]);
        u64::from_be_bytes(bytes)
    };
    let mut pairs: Vec<(u64, u32)> = rows.iter().map(|row| (first(*row), *row)).collect();
    let compared = |a: &(u64, u32), b: &(u64, u32)| {
        a.0.cmp(&b.0).then_with(|| keys.row(a.1 as usize).cmp(&keys.row(b.1 as usize)))
    };
    for bounds in offsets.windows(2) {
        pairs[bounds[0] as usize..bounds[1] as usize].sort_by(compared);
    }
    let repeats =
        (0..pairs.len()).map(|place| place > 0 && compared(&pairs[place - 1], &pairs[place]).is_eq());
    let repeats = repeats.collect();
    for (row, (_, sorted)) in rows.iter_mut().zip(pairs) {
        *row = sorted;
    }
    Ok(repeats)
}
