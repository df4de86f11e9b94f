//! Bounds of values that are integers inside.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{max, min};
use arrow::datatypes::*;
use kelpie_compile::types::Range;

/// Bounds of an array's values that are not NULL; `None` where there are none, or they are no integers inside.
pub(crate) fn bounds(array: &ArrayRef) -> Option<Range> {
    macro_rules! bounds {
        ($type:ty) => {{
            let array = array.as_primitive_opt::<$type>()?;
            Some(Range { min: min(array)?.into(), max: max(array)?.into() })
        }};
    }
    match array.data_type() {
        DataType::Boolean => (array.null_count() < array.len()).then_some(Range { min: 0, max: 1 }),
        DataType::Int8 => bounds!(Int8Type),
        DataType::Int16 => bounds!(Int16Type),
        DataType::Int32 => bounds!(Int32Type),
        DataType::Int64 => bounds!(Int64Type),
        DataType::UInt8 => bounds!(UInt8Type),
        DataType::UInt16 => bounds!(UInt16Type),
        DataType::UInt32 => bounds!(UInt32Type),
        DataType::UInt64 => bounds!(UInt64Type),
        DataType::Date32 => bounds!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => bounds!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => bounds!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => bounds!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => bounds!(TimestampNanosecondType),
        DataType::Duration(TimeUnit::Second) => bounds!(DurationSecondType),
        DataType::Duration(TimeUnit::Millisecond) => bounds!(DurationMillisecondType),
        DataType::Duration(TimeUnit::Microsecond) => bounds!(DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => bounds!(DurationNanosecondType),
        DataType::Decimal32(_, _) => bounds!(Decimal32Type),
        DataType::Decimal64(_, _) => bounds!(Decimal64Type),
        DataType::Decimal128(_, _) => bounds!(Decimal128Type),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, Decimal128Array, Float64Array, Int8Array, StringArray, UInt64Array,
    };

    use super::*;

    #[test]
    fn bounds_are_those_of_values_that_are_not_null() {
        let of = |array: ArrayRef| bounds(&array).map(|range| (range.min, range.max));
        assert_eq!(of(Arc::new(Int8Array::from(vec![None, Some(-7), Some(3)]))), Some((-7, 3)));
        assert_eq!(of(Arc::new(UInt64Array::from(vec![u64::MAX, 1]))), Some((1, u64::MAX.into())));
        assert_eq!(of(Arc::new(Date32Array::from(vec![5, 4]))), Some((4, 5)));
        assert_eq!(of(Arc::new(Decimal128Array::from(vec![i128::MIN + 1, 0]))), Some((i128::MIN + 1, 0)));
        assert_eq!(of(Arc::new(BooleanArray::from(vec![Some(true), None]))), Some((0, 1)));
        for nothing in [
            Arc::new(Int8Array::from(vec![None, None])) as ArrayRef,
            Arc::new(BooleanArray::from(vec![None::<bool>])),
            Arc::new(Float64Array::from(vec![1.0])),
            Arc::new(StringArray::from(vec!["a"])),
        ] {
            assert_eq!(of(nothing), None);
        }
    }
}
