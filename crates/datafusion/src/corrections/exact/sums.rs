//! `sum` of integers and decimals, which fails where its type does not hold the result. It adds up in 128 bits.

use std::mem::{size_of, size_of_val};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, FieldRef, Int64Type, UInt64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF,
};

use crate::function_methods::of_inner;

use super::distinct::DistinctSum;

/// The function that `sum` becomes.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExactSum {
    name: &'static str,
    /// DataFusion's, which does all but adding up.
    inner: Arc<AggregateUDF>,
}

impl ExactSum {
    pub(super) fn new(inner: Arc<AggregateUDF>) -> ExactSum {
        ExactSum::named("sum", inner)
    }

    /// The function under another name.
    pub(crate) fn named(name: &'static str, inner: Arc<AggregateUDF>) -> ExactSum {
        ExactSum { name, inner }
    }
}

/// Makes what adds up values of a type, which is that of the sum.
macro_rules! of_type {
    ($arguments:expr, $made:ident) => {{
        let data_type = $arguments.return_field.data_type().clone();
        let sum = Description { name: $arguments.name.to_string(), data_type };
        match sum.data_type {
            DataType::Int64 => Ok(Box::new($made::<Int64Type>::new(sum))),
            DataType::UInt64 => Ok(Box::new($made::<UInt64Type>::new(sum))),
            DataType::Decimal128(..) => Ok(Box::new($made::<Decimal128Type>::new(sum))),
            other => internal_err!("an exact sum of {other}"),
        }
    }};
}

impl AggregateUDFImpl for ExactSum {
    of_inner!(signature, return_type, state_fields);

    fn name(&self) -> &str {
        self.name
    }

    fn accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match arguments.is_distinct {
            true => of_type!(arguments, DistinctSum),
            false => of_type!(arguments, Sum),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        match arguments.is_distinct {
            true => of_type!(arguments, DistinctSum),
            false => of_type!(arguments, Sum),
        }
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs<'_>) -> bool {
        !arguments.is_distinct
    }

    fn create_groups_accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        of_type!(arguments, Sums)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// Which sum it is, and its type.
#[derive(Debug)]
pub(super) struct Description {
    pub name: String,
    pub data_type: DataType,
}

impl Description {
    pub fn error(&self) -> DataFusionError {
        let what = format!("{} is beyond the range of {}", self.name, self.data_type);
        DataFusionError::ArrowError(Box::new(ArrowError::ArithmeticOverflow(what)), None)
    }

    /// A sum as a value of its type.
    pub fn narrowed<N: TryFrom<i128>>(&self, sum: i128) -> Result<N> {
        let limit = match self.data_type {
            DataType::Decimal128(precision, _) => 10i128.checked_pow(precision.into()),
            _ => None,
        };
        let fits = limit.is_none_or(|limit| -limit < sum && sum < limit);
        N::try_from(sum).ok().filter(|_| fits).ok_or_else(|| self.error())
    }

    /// Arguments as values of the sum's type: decimals have fewer digits.
    pub fn values<T: ArrowPrimitiveType>(&self, arguments: &[ArrayRef]) -> Result<PrimitiveArray<T>> {
        let Some(values) = arguments.first() else { return internal_err!("a sum of nothing") };
        match values.as_primitive_opt::<T>() {
            Some(values) => Ok(values.clone()),
            None => Ok(cast(values, &self.data_type)?.as_primitive::<T>().clone()),
        }
    }
}

/// The sum of all rows, or of those of a window's frame.
#[derive(Debug)]
struct Sum<T> {
    sum: Description,
    value: i128,
    /// Values that are in it.
    count: u64,
    values: std::marker::PhantomData<T>,
}

impl<T> Sum<T> {
    fn new(sum: Description) -> Sum<T> {
        Sum { sum, value: 0, count: 0, values: std::marker::PhantomData }
    }
}

impl<T> Accumulator for Sum<T>
where
    T: ArrowPrimitiveType + std::fmt::Debug + Send + Sync,
    T::Native: Into<i128> + TryFrom<i128>,
{
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for value in self.sum.values::<T>(arguments)?.iter().flatten() {
            self.value = self.value.checked_add(value.into()).ok_or_else(|| self.sum.error())?;
            self.count += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        for value in self.sum.values::<T>(arguments)?.iter().flatten() {
            self.value = self.value.checked_sub(value.into()).ok_or_else(|| self.sum.error())?;
            self.count = self.count.saturating_sub(1);
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let value = match self.count {
            0 => None,
            _ => Some(self.sum.narrowed::<T::Native>(self.value)?),
        };
        ScalarValue::new_primitive::<T>(value, &self.sum.data_type)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.sum.name.capacity()
    }
}

/// The sums of groups.
#[derive(Debug)]
struct Sums<T> {
    sum: Description,
    sums: Vec<i128>,
    /// Whether a group has a value.
    seen: Vec<bool>,
    values: std::marker::PhantomData<T>,
}

impl<T> Sums<T> {
    fn new(sum: Description) -> Sums<T> {
        Sums { sum, sums: Vec::new(), seen: Vec::new(), values: std::marker::PhantomData }
    }
}

impl<T> GroupsAccumulator for Sums<T>
where
    T: ArrowPrimitiveType + std::fmt::Debug + Send + Sync,
    T::Native: Into<i128> + TryFrom<i128>,
{
    fn update_batch(
        &mut self,
        arguments: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        let values = self.sum.values::<T>(arguments)?;
        self.sums.resize(total, 0);
        self.seen.resize(total, false);
        for (row, (group, value)) in groups.iter().zip(values.iter()).enumerate() {
            let is_kept = filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            let (Some(value), true) = (value, is_kept) else { continue };
            if let (Some(sum), Some(seen)) = (self.sums.get_mut(*group), self.seen.get_mut(*group)) {
                *sum = sum.checked_add(value.into()).ok_or_else(|| self.sum.error())?;
                *seen = true;
            }
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        self.update_batch(states, groups, None, total)
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        let seen = emit_to.take_needed(&mut self.seen);
        let values = sums.into_iter().map(|sum| self.sum.narrowed::<T::Native>(sum));
        let values = values.collect::<Result<Vec<_>>>()?;
        let made = PrimitiveArray::<T>::new(values.into(), Some(seen.into()));
        Ok(Arc::new(made.with_data_type(self.sum.data_type.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(
        &self,
        arguments: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = self.sum.values::<T>(arguments)?;
        let kept = values.iter().enumerate().map(|(row, value)| {
            value.filter(|_| filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row)))
        });
        let kept: PrimitiveArray<T> = kept.collect();
        Ok(vec![Arc::new(kept.with_data_type(self.sum.data_type.clone()))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.seen.capacity()
    }
}
