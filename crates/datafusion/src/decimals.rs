//! Decimals that have more digits than their type: readers hand them on, and what is made of them is cut or wrong.

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type};

/// What is wrong in the first column of a batch with a decimal that its type does not hold.
pub fn check_decimals(batch: &RecordBatch) -> Result<(), String> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let checked = match field.data_type() {
            DataType::Decimal32(precision, _) => {
                column.as_primitive::<Decimal32Type>().validate_decimal_precision(*precision)
            }
            DataType::Decimal64(precision, _) => {
                column.as_primitive::<Decimal64Type>().validate_decimal_precision(*precision)
            }
            DataType::Decimal128(precision, _) => {
                column.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision)
            }
            DataType::Decimal256(precision, _) => {
                column.as_primitive::<Decimal256Type>().validate_decimal_precision(*precision)
            }
            _ => continue,
        };
        checked.map_err(|error| format!("a damaged file: column {}: {error}", field.name()))?;
    }
    Ok(())
}

/// What is wrong in the first column of a result with a decimal that its type does not hold: arithmetic that stays within 128 bits does
/// not look at digits, and what is shown of them is cut.
pub fn check_computed_decimals(batch: &RecordBatch) -> Result<(), String> {
    for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        let checked = match field.data_type() {
            // Results of fewer digits have a type with room for all that may come of the operands.
            DataType::Decimal128(precision @ 38, _) => {
                column.as_primitive::<Decimal128Type>().validate_decimal_precision(*precision)
            }
            DataType::Decimal256(precision @ 76, _) => {
                column.as_primitive::<Decimal256Type>().validate_decimal_precision(*precision)
            }
            _ => continue,
        };
        checked.map_err(|error| {
            format!("column {}: a value is beyond the digits of {}: {error}", field.name(), field.data_type())
        })?;
    }
    Ok(())
}
