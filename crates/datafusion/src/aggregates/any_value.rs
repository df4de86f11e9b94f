//! `any_value` for many groups.
//!
//! DataFusion's own has an accumulator a group, which is given the group's rows of each batch by themselves: 2 million texts in 200,000 groups
//! take it four seconds. Here the first rows of new groups are taken out of a batch together.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, UInt32Array, new_null_array};
use datafusion::arrow::compute::{interleave, is_not_null, take};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::functions_aggregate::any_value::AnyValue;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator, Signature,
};

/// `any_value`.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupedAnyValue(AnyValue);

impl AggregateUDFImpl for GroupedAnyValue {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        self.0.return_type(arguments)
    }

    fn return_field(&self, arguments: &[FieldRef]) -> Result<FieldRef> {
        self.0.return_field(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.0.accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        self.0.state_fields(arguments)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.0.order_sensitivity()
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(FirstRows {
            data_type: arguments.return_field.data_type().clone(),
            rows: Vec::new(),
            groups: Vec::new(),
            bytes: 0,
        }))
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

/// Where the value of a group without one is looked for.
const NONE: (u32, u32) = (u32::MAX, 0);

/// The first value of each group that is not NULL.
#[derive(Debug)]
struct FirstRows {
    data_type: DataType,
    /// Values that were taken out of batches.
    rows: Vec<ArrayRef>,
    /// The array and the place of each group's value.
    groups: Vec<(u32, u32)>,
    bytes: usize,
}

impl FirstRows {
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
        let valid = values.is_nullable().then(|| is_not_null(values)).transpose()?;
        let is_kept = |row: usize| {
            valid.as_ref().is_none_or(|valid| valid.value(row))
                && filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row))
        };
        let array = self.rows.len() as u32;
        let mut first = Vec::new();
        for (row, group) in groups.iter().enumerate() {
            if let Some(known) = self.groups.get_mut(*group)
                && *known == NONE
                && is_kept(row)
            {
                *known = (array, first.len() as u32);
                first.push(row as u32);
            }
        }
        if !first.is_empty() {
            let values = take(values, &UInt32Array::from(first), None)?;
            self.bytes += values.get_array_memory_size();
            self.rows.push(values);
        }
        Ok(())
    }

    /// The values of groups, which are then forgotten.
    fn values(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let groups = emit.take_needed(&mut self.groups);
        let nothing = new_null_array(&self.data_type, 1);
        let arrays: Vec<&dyn Array> = [&nothing].into_iter().chain(&self.rows).map(AsRef::as_ref).collect();
        let place = |(array, row): &(u32, u32)| match (*array, *row) {
            NONE => (0, 0),
            (array, row) => (array as usize + 1, row as usize),
        };
        let places: Vec<(usize, usize)> = groups.iter().map(place).collect();
        let values = interleave(&arrays, &places)?;
        if self.groups.is_empty() {
            self.rows.clear();
            self.bytes = 0;
        }
        Ok(values)
    }
}

impl GroupsAccumulator for FirstRows {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        match values {
            [values] => self.add(values, groups, filter, count),
            _ => exec_err!("any_value takes one argument"),
        }
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        match states {
            [values, are_set] => self.add(values, groups, Some(are_set.as_boolean()), count),
            _ => exec_err!("any_value: two columns of states are expected"),
        }
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        self.values(emit)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let values = self.values(emit)?;
        let are_set = is_not_null(&values)?;
        Ok(vec![values, Arc::new(are_set)])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let [values] = values else { return exec_err!("any_value takes one argument") };
        let valid = is_not_null(values)?;
        let kept = |row: usize| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
        let are_set: BooleanArray = (0..valid.len()).map(|row| Some(valid.value(row) && kept(row))).collect();
        Ok(vec![Arc::clone(values), Arc::new(are_set)])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes + self.groups.capacity() * size_of::<(u32, u32)>()
    }
}
