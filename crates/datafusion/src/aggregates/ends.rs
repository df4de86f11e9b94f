//! `any_value`, `first_value` and `last_value` without an order, for many groups.
//!
//! DataFusion's own have an accumulator a group, which is given the group's rows of each batch by themselves: 2 million texts in 200,000 groups
//! take it four seconds. Here the values of a batch are taken out of it together.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use datafusion::arrow::compute::{interleave, is_not_null, take};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::any_value::AnyValue;
use datafusion::functions_aggregate::first_last::{FirstValue, LastValue};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
};

use crate::function_methods::of_inner;

/// Which row of a group an aggregate is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum End {
    First,
    Last,
    /// The first one whose value is not NULL.
    Any,
}

impl End {
    /// That of an aggregate, whether it is DataFusion's or the one in its place.
    pub(crate) fn of(aggregate: &dyn AggregateUDFImpl) -> Option<End> {
        match aggregate.downcast_ref::<GroupedEnd>() {
            Some(grouped) => Some(grouped.end),
            None if aggregate.is::<FirstValue>() => Some(End::First),
            None if aggregate.is::<LastValue>() => Some(End::Last),
            None if aggregate.is::<AnyValue>() => Some(End::Any),
            None => None,
        }
    }
}

/// One of these aggregates; where its call has an order, it is DataFusion's own.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct GroupedEnd {
    inner: Arc<AggregateUDF>,
    end: End,
}

impl GroupedEnd {
    /// What takes the place of one of DataFusion's aggregates, if it is one of these.
    pub fn of(aggregate: &Arc<AggregateUDF>) -> Option<GroupedEnd> {
        let implementation = aggregate.inner().as_ref();
        let end = End::of(implementation).filter(|_| !implementation.is::<GroupedEnd>())?;
        Some(GroupedEnd { inner: Arc::clone(aggregate), end })
    }

    fn is_grouped(&self, arguments: &AccumulatorArgs) -> bool {
        let is_ordered = self.end != End::Any && !arguments.order_bys.is_empty();
        !arguments.is_distinct && !is_ordered
    }
}

impl AggregateUDFImpl for GroupedEnd {
    of_inner!(
        name, aliases, signature, return_type, return_field, accumulator, create_sliding_accumulator,
        state_fields, order_sensitivity, supports_null_handling_clause, documentation
    );

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        self.is_grouped(&arguments) || self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        if !self.is_grouped(&arguments) {
            return self.inner.create_groups_accumulator(arguments);
        }
        Ok(Box::new(EndRows {
            data_type: arguments.return_field.data_type().clone(),
            ignores_nulls: self.end == End::Any || arguments.ignore_nulls,
            is_last: self.end == End::Last,
            rows: Vec::new(),
            groups: Vec::new(),
            held: 0,
            bytes: 0,
        }))
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        beneficial_ordering: bool,
    ) -> Result<Option<Arc<dyn AggregateUDFImpl>>> {
        let ordered = self.inner.as_ref().clone().with_beneficial_ordering(beneficial_ordering)?;
        Ok(ordered.map(|inner| Arc::new(GroupedEnd { inner: Arc::new(inner), end: self.end }) as _))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_udf()
    }
}

/// Where the value of a group without one is looked for.
const NONE: (u32, u32) = (u32::MAX, 0);

/// Values that were taken out of batches are gathered anew where there are so many times more of them than groups,
const HELD_SHARE: usize = 4;
/// and no fewer than so many.
const HELD_ROWS: usize = 1 << 16;

/// The first or the last value of each group.
#[derive(Debug)]
struct EndRows {
    data_type: DataType,
    ignores_nulls: bool,
    is_last: bool,
    /// Values that were taken out of batches.
    rows: Vec<ArrayRef>,
    /// The array and the place of each group's value.
    groups: Vec<(u32, u32)>,
    /// How many values the arrays have.
    held: usize,
    bytes: usize,
}

impl EndRows {
    fn add(
        &mut self,
        values: &ArrayRef,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        if self.groups.len() < count {
            self.groups.resize(count, NONE);
        }
        let valid = (self.ignores_nulls && values.is_nullable()).then(|| is_not_null(values)).transpose()?;
        let is_kept = |row: usize| {
            valid.as_ref().is_none_or(|valid| valid.value(row))
                && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
        };
        let array = self.rows.len() as u32;
        for (row, group) in groups.iter().enumerate() {
            if let Some(known) = self.groups.get_mut(*group)
                && (self.is_last || *known == NONE)
                && is_kept(row)
            {
                *known = (array, row as u32);
            }
        }
        // Rows are places of the batch until now, and become those among what is taken out of it.
        let mut taken = Vec::new();
        for (row, group) in groups.iter().enumerate() {
            if let Some(known) = self.groups.get_mut(*group)
                && *known == (array, row as u32)
            {
                *known = (array, taken.len() as u32);
                taken.push(row as u32);
            }
        }
        if !taken.is_empty() {
            let values = take(values, &UInt32Array::from(taken), None)?;
            self.bytes += values.get_array_memory_size();
            self.held += values.len();
            self.rows.push(values);
        }
        match self.held > HELD_ROWS.max(HELD_SHARE * self.groups.len()) {
            true => self.gather(),
            false => Ok(()),
        }
    }

    /// Leaves out values that later ones have replaced.
    fn gather(&mut self) -> Result<()> {
        let values = self.values_of(&self.groups)?;
        for (place, group) in self.groups.iter_mut().enumerate().filter(|(_, group)| **group != NONE) {
            *group = (0, place as u32);
        }
        (self.held, self.bytes) = (values.len(), values.get_array_memory_size());
        self.rows = vec![values];
        Ok(())
    }

    fn values_of(&self, groups: &[(u32, u32)]) -> Result<ArrayRef> {
        let nothing = new_null_array(&self.data_type, 1);
        let arrays: Vec<&dyn Array> = [&nothing].into_iter().chain(&self.rows).map(AsRef::as_ref).collect();
        let place = |(array, row): &(u32, u32)| match (*array, *row) {
            NONE => (0, 0),
            (array, row) => (array as usize + 1, row as usize),
        };
        let places: Vec<(usize, usize)> = groups.iter().map(place).collect();
        Ok(interleave(&arrays, &places)?)
    }

    /// The values of groups, which are then forgotten, and whether there was one.
    fn values(&mut self, emit: EmitTo) -> Result<(ArrayRef, BooleanArray)> {
        let groups = emit.take_needed(&mut self.groups);
        let values = self.values_of(&groups)?;
        let are_set = groups.iter().map(|group| Some(*group != NONE)).collect();
        if self.groups.is_empty() {
            self.rows.clear();
            (self.held, self.bytes) = (0, 0);
        }
        Ok((values, are_set))
    }
}

impl GroupsAccumulator for EndRows {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        match values {
            [values] => self.add(values, groups, filter, count),
            _ => exec_err!("the first or last value is that of one argument"),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        match states {
            [values, are_set] => self.add(values, groups, Some(are_set.as_boolean()), count),
            _ => exec_err!("the first or last value: two columns of states are expected"),
        }
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        Ok(self.values(emit)?.0)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let (values, are_set) = self.values(emit)?;
        Ok(vec![values, Arc::new(are_set)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return exec_err!("the first or last value is that of one argument") };
        let valid = self.ignores_nulls.then(|| is_not_null(values)).transpose()?;
        let kept = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let is_set = |row: usize| valid.as_ref().is_none_or(|valid| valid.value(row)) && kept(row);
        let are_set: BooleanArray = (0..values.len()).map(|row| Some(is_set(row))).collect();
        Ok(vec![Arc::clone(values), Arc::new(are_set)])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.groups.capacity() * size_of::<(u32, u32)>()
    }
}
