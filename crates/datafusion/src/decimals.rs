//! Decimals that have more digits than their type: readers hand them on, and what is made of them is cut or wrong.

use datafusion::arrow::array::{ArrowNativeTypeOp, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalType,
};
use datafusion::arrow::error::ArrowError;

/// What is wrong in the first column of a batch with a decimal that its type does not hold.
pub fn check_decimals(batch: &RecordBatch) -> Result<(), String> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let checked = match field.data_type() {
            DataType::Decimal32(precision, _) => check::<Decimal32Type>(column.as_primitive(), *precision),
            DataType::Decimal64(precision, _) => check::<Decimal64Type>(column.as_primitive(), *precision),
            DataType::Decimal128(precision, _) => check::<Decimal128Type>(column.as_primitive(), *precision),
            DataType::Decimal256(precision, _) => check::<Decimal256Type>(column.as_primitive(), *precision),
            _ => continue,
        };
        checked.map_err(|error| format!("a damaged file: column {}: {error}", field.name()))?;
    }
    Ok(())
}

/// Whether values have at most so many digits.
///
/// Arrow looks at one value after the other, which takes longer than decoding them. All of them together are looked at first, with what
/// stands under NULLs; only where one of these has more digits does Arrow look for it.
fn check<T: DecimalType>(array: &PrimitiveArray<T>, precision: u8) -> Result<(), ArrowError> {
    if let Some(most) = T::MAX_FOR_EACH_PRECISION.get(usize::from(precision)) {
        let least = most.neg_wrapping();
        let outside = |outside, value: &T::Native| outside | (*value < least) | (value > most);
        if !array.values().iter().fold(false, outside) {
            return Ok(());
        }
    }
    array.validate_decimal_precision(precision)
}

/// What is wrong in the first column of a result with a decimal that its type does not hold: arithmetic that stays within 128 bits does
/// not look at digits, and what is shown of them is cut.
pub fn check_computed_decimals(batch: &RecordBatch) -> Result<(), String> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let checked = match field.data_type() {
            // Results of fewer digits have a type with room for all that may come of the operands.
            DataType::Decimal128(precision @ 38, _) => {
                check::<Decimal128Type>(column.as_primitive(), *precision)
            }
            DataType::Decimal256(precision @ 76, _) => {
                check::<Decimal256Type>(column.as_primitive(), *precision)
            }
            _ => continue,
        };
        checked.map_err(|error| {
            format!("column {}: a value is beyond the digits of {}: {error}", field.name(), field.data_type())
        })?;
    }
    Ok(())
}
