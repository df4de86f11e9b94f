//! `sum(DISTINCT x)`, which fails where its type does not hold the result.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;

use super::sums::Description;

/// The distinct values of all rows, or of those of a window's frame, until their sum is asked for.
#[derive(Debug)]
pub(super) struct DistinctSum<T: ArrowPrimitiveType> {
    sum: Description,
    /// How many rows have each value: a frame may leave one of them behind.
    rows: HashMap<T::Native, u64>,
}

impl<T: ArrowPrimitiveType> DistinctSum<T> {
    pub fn new(sum: Description) -> DistinctSum<T> {
        DistinctSum { sum, rows: HashMap::new() }
    }
}

impl<T> Accumulator for DistinctSum<T>
where
    T: ArrowPrimitiveType + std::fmt::Debug + Send + Sync,
    T::Native: Into<i128> + TryFrom<i128> + Eq + Hash,
{
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for value in self.sum.values::<T>(arguments)?.iter().flatten() {
            *self.rows.entry(value).or_default() += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for value in self.sum.values::<T>(arguments)?.iter().flatten() {
            if let Some(rows) = self.rows.get_mut(&value) {
                *rows -= 1;
                if *rows == 0 {
                    self.rows.remove(&value);
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [lists] = states else { return internal_err!("a distinct sum has one state") };
        lists.as_list::<i32>().iter().flatten().try_for_each(|values| self.update_batch(&[values]))
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let mut sum = None;
        for value in self.rows.keys() {
            let added = sum.unwrap_or(0i128).checked_add((*value).into());
            sum = Some(added.ok_or_else(|| self.sum.error())?);
        }
        let sum = sum.map(|sum| self.sum.narrowed::<T::Native>(sum)).transpose()?;
        ScalarValue::new_primitive::<T>(sum, &self.sum.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let values = PrimitiveArray::<T>::from_iter_values(self.rows.keys().copied());
        let values = Arc::new(values.with_data_type(self.sum.data_type.clone()));
        Ok(vec![SingleRowListArrayBuilder::new(values).build_list_scalar()])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.rows.capacity() * size_of::<(T::Native, u64)>()
    }
}
