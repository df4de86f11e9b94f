//! Constants as Arrow's columns, and these as text.

use std::sync::Arc;

use arrow::array::*;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType as ArrowType, Date32Type, Field as ArrowField, Int8Type, Int16Type,
    Int32Type, Int64Type, Schema, TimeUnit as ArrowUnit, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::util::display::array_value_to_string;
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};

/// Rows as a batch.
pub fn batch(fields: &[Field], rows: &[Vec<Literal>]) -> RecordBatch {
    let column = |(index, field): (usize, &Field)| {
        let values: Vec<&Literal> = rows.iter().map(|row| &row[index]).collect();
        array(&field.data_type, &values)
    };
    let columns: Vec<ArrayRef> = fields.iter().enumerate().map(column).collect();
    let named = fields.iter().zip(&columns);
    let named = named.map(|(field, column)| {
        let has_nulls = column.null_count() > 0;
        assert!(field.nullable || !has_nulls, "{} is NULL somewhere, but its type is not", field.name);
        ArrowField::new(&field.name, column.data_type().clone(), field.nullable)
    });
    let schema = Arc::new(Schema::new(named.collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema, columns, &options).expect("a batch")
}

fn integer(value: &Literal) -> Option<i128> {
    match value {
        Literal::Int(value) => Some(*value),
        _ => None,
    }
}

fn float(value: &Literal) -> Option<f64> {
    match value {
        Literal::Float(value) => Some(*value),
        _ => None,
    }
}

fn integers<T: ArrowPrimitiveType>(values: &[&Literal]) -> PrimitiveArray<T>
where
    T::Native: TryFrom<i128, Error: std::fmt::Debug>,
{
    let native = |value: &&Literal| {
        integer(value)
            .map(|value| <T::Native as TryFrom<i128>>::try_from(value).expect("a value of the column's type"))
    };
    values.iter().map(native).collect::<Vec<Option<T::Native>>>().into_iter().collect()
}

fn arrow_unit(unit: TimeUnit) -> ArrowUnit {
    match unit {
        TimeUnit::Second => ArrowUnit::Second,
        TimeUnit::Millisecond => ArrowUnit::Millisecond,
        TimeUnit::Microsecond => ArrowUnit::Microsecond,
        TimeUnit::Nanosecond => ArrowUnit::Nanosecond,
    }
}

/// Integers of 64 bits as another type that they are inside.
fn ticks(values: &[&Literal], data_type: ArrowType) -> ArrayRef {
    let ticks = integers::<Int64Type>(values).into_data().into_builder();
    make_array(ticks.data_type(data_type).build().expect("ticks"))
}

fn array(data_type: &DataType, values: &[&Literal]) -> ArrayRef {
    match data_type {
        DataType::Null => Arc::new(NullArray::new(values.len())),
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|value| match value {
            Literal::Boolean(value) => Some(*value),
            _ => None,
        }))),
        DataType::Int8 => Arc::new(integers::<Int8Type>(values)),
        DataType::Int16 => Arc::new(integers::<Int16Type>(values)),
        DataType::Int32 => Arc::new(integers::<Int32Type>(values)),
        DataType::Int64 => Arc::new(integers::<Int64Type>(values)),
        DataType::UInt8 => Arc::new(integers::<UInt8Type>(values)),
        DataType::UInt16 => Arc::new(integers::<UInt16Type>(values)),
        DataType::UInt32 => Arc::new(integers::<UInt32Type>(values)),
        DataType::UInt64 => Arc::new(integers::<UInt64Type>(values)),
        DataType::Date32 => Arc::new(integers::<Date32Type>(values)),
        DataType::Float32 => Arc::new(Float32Array::from_iter(
            values.iter().map(|value| float(value).map(|value| value as f32)),
        )),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.iter().map(|value| float(value)))),
        DataType::Decimal128 { precision, scale } => {
            let decimals = Decimal128Array::from_iter(values.iter().map(|value| integer(value)));
            Arc::new(decimals.with_precision_and_scale(*precision, *scale).expect("a decimal type"))
        }
        DataType::Timestamp { unit, timezone } => {
            ticks(values, ArrowType::Timestamp(arrow_unit(*unit), timezone.clone()))
        }
        DataType::Duration { unit } => ticks(values, ArrowType::Duration(arrow_unit(*unit))),
        DataType::Utf8 => Arc::new(StringArray::from_iter(values.iter().map(|value| match value {
            Literal::Utf8(value) => Some(&**value),
            _ => None,
        }))),
        DataType::Interval => panic!("no column is of type {data_type}"),
    }
}

/// The rows of a batch as text, in order.
pub fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let cell = |column: &ArrayRef, row: usize| match column.data_type() {
        _ if column.is_null(row) || *column.data_type() == ArrowType::Null => "null".into(),
        ArrowType::Utf8 => format!("'{}'", column.as_string::<i32>().value(row)),
        _ => array_value_to_string(column, row).expect("a value"),
    };
    let row = |row| {
        let cells: Vec<String> = batch.columns().iter().map(|column| cell(column, row)).collect();
        format!("  {}", cells.join(", "))
    };
    (0..batch.num_rows()).map(row).collect()
}
