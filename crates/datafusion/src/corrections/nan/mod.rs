//! One NaN: whatever its sign and payload, it is one value, the greatest.
//!
//! Arrow's kernels order floats as IEEE 754 orders all bit patterns, where a NaN with a sign is less than all numbers and NaNs of
//! different bits differ. Which NaN an operation makes is the processor's: `0.0 / 0.0` has a sign on x86 and none on ARM, and so have
//! the files that were written there. So every NaN that a query compares, groups, joins or orders by is made the one without sign and
//! payload, where it comes into being:
//!
//! - columns of tables, as they are read: by Kelpie's readers ([`canonical_batch`]), and above the scans that DataFusion's operators read
//!   ([`plan`]), whose filters then leave out no part of a file by bounds that say nothing of NaN;
//! - expressions that may make another one: [`OneNan`] around them ([`rule`]), which is folded where they are constant, and compiled.
//!
//! Columns and comparisons of columns stay as they are, so that nothing is slower where no float is computed.

pub(crate) mod plan;
pub(crate) mod rule;

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray, RecordBatch, RecordBatchOptions,
    make_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Float16Type, Float32Type, Float64Type, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use crate::function_methods::name_and_signature;
use half::f16;

use super::null_fields::{any_structs, with_null_fields};

/// Values looked at at once: few enough to end soon where one is found, many enough for vectors.
const RUN: usize = 1024;

/// The function that makes every NaN the one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OneNan {
    signature: Signature,
}

impl OneNan {
    pub(crate) fn new() -> OneNan {
        OneNan { signature: Signature::any(1, Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for OneNan {
    name_and_signature!("one_nan");

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => exec_err!("one_nan takes one argument, not {}", arguments.len()),
        }
    }

    fn is_strict(&self) -> bool {
        true
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match arguments.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(made_one(array, Alike::Nans)?)),
            [ColumnarValue::Scalar(value)] => {
                Ok(ColumnarValue::Scalar(canonical_scalar(value).unwrap_or_else(|| value.clone())))
            }
            other => exec_err!("one_nan takes one argument, not {}", other.len()),
        }
    }
}

/// A constant with the one NaN in place of another; `None` where it is as it should be.
pub(crate) fn canonical_scalar(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Float16(Some(v)) if v.is_nan() => {
            (v.to_bits() != f16::NAN.to_bits()).then_some(ScalarValue::Float16(Some(f16::NAN)))
        }
        ScalarValue::Float32(Some(v)) if v.is_nan() => {
            (v.to_bits() != f32::NAN.to_bits()).then_some(ScalarValue::Float32(Some(f32::NAN)))
        }
        ScalarValue::Float64(Some(v)) if v.is_nan() => {
            (v.to_bits() != f64::NAN.to_bits()).then_some(ScalarValue::Float64(Some(f64::NAN)))
        }
        _ => None,
    }
}

/// Whether values of a type are floats, or have some in them.
pub(crate) fn has_floats(data_type: &DataType) -> bool {
    let of = |field: &Arc<Field>| has_floats(field.data_type());
    match data_type {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => true,
        DataType::Dictionary(_, values) => has_floats(values),
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _)
        | DataType::Map(field, _) => of(field),
        DataType::Struct(fields) => fields.iter().any(of),
        DataType::RunEndEncoded(_, values) => of(values),
        DataType::Union(fields, _) => fields.iter().any(|(_, field)| of(field)),
        _ => false,
    }
}

/// Whether rows of a schema have floats.
fn any_floats(schema: &SchemaRef) -> bool {
    schema.fields().iter().any(|field| has_floats(field.data_type()))
}

/// Whether rows of a schema have values that are mended as they are read.
pub(crate) fn are_mended(schema: &SchemaRef) -> bool {
    any_floats(schema) || any_structs(schema)
}

/// Which values of floats are made one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alike {
    /// NaNs: the one without sign and payload.
    Nans,
    /// The two zeros: the one without sign.
    Zeros,
}

/// A batch with the one NaN in place of all others, and with fields that are NULL where their structs are; the same arrays where there is
/// nothing to mend.
pub(crate) fn canonical_batch(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let batch = with_null_fields(batch)?;
    if !any_floats(batch.schema_ref()) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(|column| made_one(column, Alike::Nans));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &rows)
}

/// An array with one value in place of all those that are alike; the same array where there are no others.
pub(super) fn made_one(array: &ArrayRef, alike: Alike) -> Result<ArrayRef, ArrowError> {
    let is_zero_with_sign = |bits: u64, width: u32| bits == 1 << (width - 1);
    match (array.data_type(), alike) {
        (DataType::Float16, Alike::Nans) => Ok(floats::<Float16Type>(
            array,
            |v| {
                let magnitude = v.to_bits() & 0x7fff;
                magnitude > 0x7c00 && v.to_bits() != f16::NAN.to_bits()
            },
            f16::NAN,
        )),
        (DataType::Float32, Alike::Nans) => Ok(floats::<Float32Type>(
            array,
            |v| {
                let magnitude = v.to_bits() & 0x7fff_ffff;
                magnitude > 0x7f80_0000 && v.to_bits() != f32::NAN.to_bits()
            },
            f32::NAN,
        )),
        (DataType::Float64, Alike::Nans) => Ok(floats::<Float64Type>(
            array,
            |v| {
                let magnitude = v.to_bits() & 0x7fff_ffff_ffff_ffff;
                magnitude > 0x7ff0_0000_0000_0000 && v.to_bits() != f64::NAN.to_bits()
            },
            f64::NAN,
        )),
        (DataType::Float16, Alike::Zeros) => {
            Ok(floats::<Float16Type>(array, |v| is_zero_with_sign(v.to_bits().into(), 16), f16::ZERO))
        }
        (DataType::Float32, Alike::Zeros) => {
            Ok(floats::<Float32Type>(array, |v| is_zero_with_sign(v.to_bits().into(), 32), 0.0))
        }
        (DataType::Float64, Alike::Zeros) => {
            Ok(floats::<Float64Type>(array, |v| is_zero_with_sign(v.to_bits(), 64), 0.0))
        }
        (nested, _) if has_floats(nested) => Ok(make_array(within(array.to_data(), alike)?)),
        _ => Ok(Arc::clone(array)),
    }
}

fn floats<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    is_other: impl Fn(&T::Native) -> bool,
    one: T::Native,
) -> ArrayRef {
    let Some(values) = array.as_primitive_opt::<T>() else { return Arc::clone(array) };
    let any = |run: &[T::Native]| run.iter().fold(false, |any, value| any | is_other(value));
    if !values.values().chunks(RUN).any(any) {
        return Arc::clone(array);
    }
    let made: PrimitiveArray<T> = values.unary(|value| if is_other(&value) { one } else { value });
    Arc::new(made)
}

/// Nested arrays: their parts, whatever they are.
fn within(data: ArrayData, alike: Alike) -> Result<ArrayData, ArrowError> {
    let parts = data.child_data().iter().map(|part| match has_floats(part.data_type()) {
        true => made_one(&make_array(part.clone()), alike).map(|array| array.to_data()),
        false => Ok(part.clone()),
    });
    let parts = parts.collect::<Result<Vec<_>, _>>()?;
    data.into_builder().child_data(parts).build()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{DictionaryArray, Float32Array, Float64Array, ListArray, StructArray};
    use datafusion::arrow::datatypes::Int8Type;

    use super::*;

    const NANS: [f64; 4] =
        [f64::NAN, -f64::NAN, f64::from_bits(0x7ff8_0000_0000_0001), f64::from_bits(0xfff0_0000_0000_0001)];

    fn bits(array: &ArrayRef) -> Vec<Option<u64>> {
        array.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::to_bits)).collect()
    }

    #[test]
    fn every_nan_becomes_the_one_and_all_else_stays() {
        let others = [0.0, -0.0, 1.5, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE, -5e-324];
        let values = NANS.iter().chain(&others).copied().map(Some).chain([None]);
        let array: ArrayRef = Arc::new(Float64Array::from_iter(values));
        let made = bits(&made_one(&array, Alike::Nans).expect("made"));
        assert_eq!(made[..4], [Some(f64::NAN.to_bits()); 4]);
        assert_eq!(made[4..11], others.map(|value| Some(value.to_bits())));
        assert_eq!(made[11], None);
    }

    #[test]
    fn an_array_without_others_is_not_copied() {
        let array: ArrayRef =
            Arc::new(Float64Array::from_iter_values((0..5000).map(f64::from).chain([f64::NAN])));
        assert!(Arc::ptr_eq(&array, &made_one(&array, Alike::Nans).expect("the same")));
        let narrow: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN, -f32::NAN]));
        let narrow = made_one(&narrow, Alike::Nans).expect("made");
        let narrow = narrow.as_primitive::<Float32Type>();
        assert!(narrow.values().iter().all(|value| value.to_bits() == f32::NAN.to_bits()));
    }

    #[test]
    fn floats_in_other_values_are_found() {
        let floats: ArrayRef = Arc::new(Float64Array::from(NANS.to_vec()));
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let fields: StructArray = vec![(Arc::clone(&field), Arc::clone(&floats))].into();
        let lists = ListArray::from_iter_primitive::<Float64Type, _, _>([Some(NANS.map(Some)), None]);
        let keys = datafusion::arrow::array::Int8Array::from(vec![0, 3, 1]);
        let coded = DictionaryArray::<Int8Type>::new(keys, Arc::clone(&floats));
        let part = |array: ArrayRef| -> ArrayRef {
            let made = made_one(&array, Alike::Nans).expect("made");
            make_array(made.to_data().child_data()[0].clone())
        };
        for array in [Arc::new(fields) as ArrayRef, Arc::new(lists), Arc::new(coded)] {
            assert_eq!(bits(&part(array)), [Some(f64::NAN.to_bits()); 4]);
        }
    }
}
