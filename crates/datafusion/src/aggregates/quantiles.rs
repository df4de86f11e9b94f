//! Values at a share of the values of a group in their order: of one group, or of many by one sort of all.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, UInt32Array, new_empty_array,
};
use datafusion::arrow::compute::{cast, concat, filter, is_not_null, partition, sort_to_indices, take};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::arrow::row::SortField;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::StateFieldsArgs;
use datafusion::logical_expr::{Accumulator, EmitTo, GroupsAccumulator};

use super::grouped_rows::{GroupedRows, Sorted, kept_rows, lists_of, single_lists};

/// Which value of those in their order.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    /// The first one up to which there is this share of all.
    Discrete(f64),
    /// At this share of the way from the first to the last, between two of them.
    Continuous(f64),
}

/// What is wanted of the values of a group.
#[derive(Debug, Clone)]
pub(super) struct Quantile {
    pub place: Place,
    /// The type of the values.
    pub value: DataType,
    /// That of the result.
    pub result: DataType,
    /// Whether a value counts once.
    pub is_distinct: bool,
}

/// The rows that a result is made of, and how far it lies from the lower one towards the other.
struct Rows {
    low: u32,
    high: u32,
    weight: f64,
}

impl Quantile {
    /// The fields of a state: all values.
    pub(super) fn state_fields(arguments: &StateFieldsArgs, value: &DataType) -> Vec<FieldRef> {
        let element = Arc::new(Field::new_list_field(value.clone(), true));
        vec![Arc::new(Field::new(format!("{} values", arguments.name), DataType::List(element), true))]
    }

    fn element(&self) -> FieldRef {
        Arc::new(Field::new_list_field(self.value.clone(), true))
    }

    /// Of the rows from one to before another; nothing where there are none.
    fn rows(&self, begin: i32, end: i32) -> Option<Rows> {
        let number = f64::from(end - begin);
        if end <= begin {
            return None;
        }
        Some(match self.place {
            Place::Discrete(share) => {
                // As many as reach the share, and at least one.
                let reached = (number - (number - share * number).floor()).max(1.0);
                let row = begin as u32 + reached as u32 - 1;
                Rows { low: row, high: row, weight: 0.0 }
            }
            Place::Continuous(share) => {
                let place = share * (number - 1.0);
                let (low, high) = (place.floor(), place.ceil());
                Rows { low: begin as u32 + low as u32, high: begin as u32 + high as u32, weight: place - low }
            }
        })
    }

    /// The results of groups whose values stand one group behind the other, each in its order.
    fn of_sorted(&self, values: &ArrayRef, offsets: &[i32]) -> Result<ArrayRef> {
        let found: Vec<Option<Rows>> =
            offsets.windows(2).map(|bounds| self.rows(bounds[0], bounds[1])).collect();
        let at = |row: fn(&Rows) -> u32| {
            let rows: UInt32Array = found.iter().map(|found| found.as_ref().map(row)).collect();
            take(values, &rows, None)
        };
        let low = at(|rows| rows.low)?;
        if let Place::Discrete(_) = self.place {
            return Ok(low);
        }
        let high = at(|rows| rows.high)?;
        let weights = found.iter().map(|found| found.as_ref().map_or(0.0, |rows| rows.weight));
        if self.result.is_floating() {
            let (low, high) = (cast(&low, &DataType::Float64)?, cast(&high, &DataType::Float64)?);
            let pairs = low.as_primitive::<Float64Type>().iter().zip(high.as_primitive::<Float64Type>());
            let between = pairs.zip(weights).map(|((low, high), weight)| match weight {
                0.0 => low,
                weight => low.zip(high).map(|(low, high)| between_floats(low, high, weight)),
            });
            return Ok(cast(&between.collect::<Float64Array>(), &self.result)?);
        }
        // Times are interpolated as the numbers that they are.
        let number = |values: &ArrayRef| cast(&cast(values, &self.result)?, &DataType::Int64);
        let (low, high) = (number(&low)?, number(&high)?);
        let pairs = low.as_primitive::<Int64Type>().iter().zip(high.as_primitive::<Int64Type>());
        let between = pairs.zip(weights).map(|((low, high), weight)| {
            low.zip(high).map(|(low, high)| {
                let part = ((i128::from(high) - i128::from(low)) as f64 * weight).round();
                low.saturating_add(part as i64)
            })
        });
        Ok(cast(&between.collect::<Int64Array>(), &self.result)?)
    }
}

/// What lies between two floats, with all digits of the weight. The first product is not rounded by itself, as DuckDB has it.
fn between_floats(low: f64, high: f64, weight: f64) -> f64 {
    low.mul_add(1.0 - weight, high * weight)
}

/// The values of many groups.
#[derive(Debug)]
pub(super) struct ManyGroups {
    quantile: Quantile,
    rows: GroupedRows,
}

impl ManyGroups {
    pub(super) fn new(quantile: Quantile) -> ManyGroups {
        let rows = GroupedRows::new(vec![quantile.value.clone()]);
        ManyGroups { quantile, rows }
    }

    fn sorted(&mut self, emit: EmitTo) -> Result<Sorted> {
        let order = [(0, SortField::new(self.quantile.value.clone()))];
        let sorted = self.rows.sorted(emit, &order)?;
        if self.quantile.is_distinct { sorted.distinct() } else { Ok(sorted) }
    }
}

impl GroupsAccumulator for ManyGroups {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        count: usize,
    ) -> Result<()> {
        let Some(values) = values.first() else { return exec_err!("a quantile of nothing") };
        let kept = kept_rows(values, true, filter)?;
        self.rows.add(&[Arc::clone(values)], groups, kept.as_ref(), count)
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], count: usize) -> Result<()> {
        self.rows.add_lists(&lists_of(states)?, groups, count)
    }

    fn evaluate(&mut self, emit: EmitTo) -> Result<ArrayRef> {
        let sorted = self.sorted(emit)?;
        let Some(values) = sorted.columns.first() else { return exec_err!("a quantile of nothing") };
        self.quantile.of_sorted(values, &sorted.offsets)
    }

    fn state(&mut self, emit: EmitTo) -> Result<Vec<ArrayRef>> {
        let sorted = self.sorted(emit)?;
        let Some(values) = sorted.columns.first() else { return exec_err!("a quantile of nothing") };
        Ok(vec![sorted.lists(self.quantile.element(), Arc::clone(values), None)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let Some(values) = values.first() else { return exec_err!("a quantile of nothing") };
        let kept = kept_rows(values, true, filter)?;
        Ok(vec![single_lists(self.quantile.element(), values, kept.as_ref())?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.size()
    }
}

/// The values of one group, in the arrays that they came in.
#[derive(Debug)]
pub(super) struct OneGroup {
    quantile: Quantile,
    parts: Vec<ArrayRef>,
    /// Of the first part, the values that a window has left behind: they go in the order in which they came.
    left: usize,
}

impl OneGroup {
    pub(super) fn new(quantile: Quantile) -> OneGroup {
        OneGroup { quantile, parts: Vec::new(), left: 0 }
    }

    fn all(&self) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        let all = match parts.is_empty() {
            true => new_empty_array(&self.quantile.value),
            false => concat(&parts)?,
        };
        let left = self.left.min(all.len());
        Ok(all.slice(left, all.len() - left))
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return exec_err!("a quantile of nothing") };
        let values = match values.null_count() {
            0 => Arc::clone(values),
            _ => filter(values, &is_not_null(values)?)?,
        };
        if !values.is_empty() {
            self.parts.push(values);
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return exec_err!("a quantile of nothing") };
        self.left += values.len() - values.null_count();
        while let Some(first) = self.parts.first().map(|part| part.len()).filter(|len| *len <= self.left) {
            self.parts.remove(0);
            self.left -= first;
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.all()?;
        let mut sorted = take(&all, &sort_to_indices(&all, None, None)?, None)?;
        if self.quantile.is_distinct && !sorted.is_empty() {
            let ranges = partition(&[Arc::clone(&sorted)])?.ranges();
            let firsts: UInt32Array = ranges.iter().map(|range| range.start as u32).collect();
            sorted = take(&sorted, &firsts, None)?;
        }
        let Ok(number) = i32::try_from(sorted.len()) else {
            return exec_err!("a quantile of more than {} values", i32::MAX);
        };
        let result = self.quantile.of_sorted(&sorted, &[0, number])?;
        ScalarValue::try_from_array(&result, 0)
    }

    fn size(&self) -> usize {
        // Parts of one batch share its memory, of which each has its own part.
        let bytes = |part: &ArrayRef| part.to_data().get_slice_memory_size().unwrap_or(0);
        size_of_val(self) + self.parts.iter().map(bytes).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.all()?;
        let rows = vec![0; all.len()];
        let mut groups = GroupedRows::new(vec![self.quantile.value.clone()]);
        groups.add(&[all], &rows, None, 1)?;
        let sorted = groups.sorted(EmitTo::All, &[])?;
        let Some(values) = sorted.columns.first() else { return exec_err!("a quantile of nothing") };
        let list = sorted.lists(self.quantile.element(), Arc::clone(values), None)?;
        Ok(vec![ScalarValue::try_from_array(&list, 0)?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        for list in lists_of(states)? {
            for values in list.iter().flatten() {
                self.update_batch(&[values])?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(place: Place, values: &[f64]) -> Option<f64> {
        let quantile =
            Quantile { place, value: DataType::Float64, result: DataType::Float64, is_distinct: false };
        let mut group = OneGroup::new(quantile);
        group.update_batch(&[Arc::new(Float64Array::from(values.to_vec()))]).unwrap();
        match group.evaluate().unwrap() {
            ScalarValue::Float64(value) => value,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn weights_have_all_their_digits() {
        assert_eq!(of(Place::Continuous(0.52), &[369.0, 370.0, 371.0]), Some(370.04));
        assert_eq!(of(Place::Continuous(0.7), &[369.0, 370.0, 371.0]), Some(370.400_000_000_000_03));
        assert_eq!(of(Place::Continuous(0.1), &[]), None);
        assert_eq!(of(Place::Continuous(0.3), &[2.5]), Some(2.5));
        assert_eq!(of(Place::Discrete(0.5), &[3.0, 1.0, 2.0, 4.0]), Some(2.0));
    }

    #[test]
    fn windows_leave_values_behind_in_their_order() {
        let place = Place::Continuous(0.5);
        let quantile =
            Quantile { place, value: DataType::Int64, result: DataType::Float64, is_distinct: true };
        let mut group = OneGroup::new(quantile);
        let values = |values: Vec<Option<i64>>| [Arc::new(Int64Array::from(values)) as ArrayRef];
        group.update_batch(&values(vec![Some(9), None, Some(1)])).unwrap();
        group.update_batch(&values(vec![Some(2), Some(2), Some(4)])).unwrap();
        group.retract_batch(&values(vec![Some(9), None])).unwrap();
        assert_eq!(group.evaluate().unwrap(), ScalarValue::Float64(Some(2.0)));
        group.retract_batch(&values(vec![Some(1), Some(2)])).unwrap();
        assert_eq!(group.evaluate().unwrap(), ScalarValue::Float64(Some(3.0)));
    }
}
