//! From the output states on the device to Arrow batches, piece by piece ([`reader`]): types and arrays.

mod reader;

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::*;
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes as at;
use arrow::record_batch::RecordBatch;
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};
use kelpie_kir::Scalar;

pub use self::reader::{Dictionary, Reading, ResultReader};
use crate::error::{EngineError, QueryError};

/// The Arrow type of a SQL type.
pub fn arrow_type(data_type: &DataType) -> at::DataType {
    match data_type {
        DataType::Null => at::DataType::Null,
        DataType::Boolean => at::DataType::Boolean,
        DataType::Int8 => at::DataType::Int8,
        DataType::Int16 => at::DataType::Int16,
        DataType::Int32 => at::DataType::Int32,
        DataType::Int64 => at::DataType::Int64,
        DataType::UInt8 => at::DataType::UInt8,
        DataType::UInt16 => at::DataType::UInt16,
        DataType::UInt32 => at::DataType::UInt32,
        DataType::UInt64 => at::DataType::UInt64,
        DataType::Float32 => at::DataType::Float32,
        DataType::Float64 => at::DataType::Float64,
        DataType::Decimal128 { precision, scale } => at::DataType::Decimal128(*precision, *scale),
        DataType::Date32 => at::DataType::Date32,
        DataType::Timestamp { unit, timezone } => {
            at::DataType::Timestamp(arrow_unit(*unit), timezone.clone())
        }
        DataType::Duration { unit } => at::DataType::Duration(arrow_unit(*unit)),
        DataType::Utf8 => at::DataType::Utf8,
        DataType::Interval => at::DataType::Interval(at::IntervalUnit::MonthDayNano),
    }
}

fn arrow_unit(unit: TimeUnit) -> at::TimeUnit {
    match unit {
        TimeUnit::Second => at::TimeUnit::Second,
        TimeUnit::Millisecond => at::TimeUnit::Millisecond,
        TimeUnit::Microsecond => at::TimeUnit::Microsecond,
        TimeUnit::Nanosecond => at::TimeUnit::Nanosecond,
    }
}

/// The Arrow schema of a plan's columns.
pub fn arrow_schema(fields: &[Field]) -> at::SchemaRef {
    let field = |f: &Field| at::Field::new(&f.name, arrow_type(&f.data_type), true);
    Arc::new(at::Schema::new(fields.iter().map(field).collect::<Vec<_>>()))
}

/// The only value of the only column of a scalar subquery's result; NULL where there is no row.
pub fn scalar(batches: &[RecordBatch]) -> Result<Literal, EngineError> {
    if batches.iter().map(RecordBatch::num_rows).sum::<usize>() > 1 {
        return Err(QueryError::SubqueryRows.into());
    }
    let columns = batches.iter().find(|batch| batch.num_rows() == 1).map(RecordBatch::columns);
    let Some(array) =
        columns.and_then(|columns| columns.first()).filter(|array| array.len() == 1 && array.is_valid(0))
    else {
        return Ok(Literal::Null);
    };
    macro_rules! int {
        ($ty:ty) => {
            Literal::Int(array.as_primitive::<$ty>().value(0).into())
        };
    }
    Ok(match array.data_type() {
        at::DataType::Null => Literal::Null,
        at::DataType::Boolean => Literal::Boolean(array.as_boolean().value(0)),
        at::DataType::Int8 => int!(at::Int8Type),
        at::DataType::Int16 => int!(at::Int16Type),
        at::DataType::Int32 => int!(at::Int32Type),
        at::DataType::Int64 => int!(at::Int64Type),
        at::DataType::UInt8 => int!(at::UInt8Type),
        at::DataType::UInt16 => int!(at::UInt16Type),
        at::DataType::UInt32 => int!(at::UInt32Type),
        at::DataType::UInt64 => int!(at::UInt64Type),
        at::DataType::Date32 => int!(at::Date32Type),
        at::DataType::Decimal128(..) => int!(at::Decimal128Type),
        at::DataType::Timestamp(at::TimeUnit::Second, _) => int!(at::TimestampSecondType),
        at::DataType::Timestamp(at::TimeUnit::Millisecond, _) => int!(at::TimestampMillisecondType),
        at::DataType::Timestamp(at::TimeUnit::Microsecond, _) => int!(at::TimestampMicrosecondType),
        at::DataType::Timestamp(at::TimeUnit::Nanosecond, _) => int!(at::TimestampNanosecondType),
        at::DataType::Duration(at::TimeUnit::Second) => int!(at::DurationSecondType),
        at::DataType::Duration(at::TimeUnit::Millisecond) => int!(at::DurationMillisecondType),
        at::DataType::Duration(at::TimeUnit::Microsecond) => int!(at::DurationMicrosecondType),
        at::DataType::Duration(at::TimeUnit::Nanosecond) => int!(at::DurationNanosecondType),
        at::DataType::Float32 => Literal::Float(array.as_primitive::<at::Float32Type>().value(0).into()),
        at::DataType::Float64 => Literal::Float(array.as_primitive::<at::Float64Type>().value(0)),
        at::DataType::Utf8 => Literal::Utf8(array.as_string::<i32>().value(0).into()),
        other => return Err(EngineError::Internal(format!("a scalar subquery of type {other}"))),
    })
}

/// Integers of a register type in a buffer as those of another type, which holds their values.
macro_rules! integers {
    ($scalar:expr, $buffer:expr, $rows:expr, $to:ty) => {{
        macro_rules! from {
            ($from:ty) => {
                $buffer.typed_data::<$from>().iter().map(|value| *value as $to).collect::<ScalarBuffer<$to>>()
            };
        }
        match $scalar {
            Scalar::F32 | Scalar::F64 => None,
            // Of the same width: the same bits.
            scalar if scalar.bytes() as usize == size_of::<$to>() => {
                Some(ScalarBuffer::<$to>::new($buffer, 0, $rows))
            }
            Scalar::Bool | Scalar::U8 => Some(from!(u8)),
            Scalar::I8 => Some(from!(i8)),
            Scalar::I16 => Some(from!(i16)),
            Scalar::U16 => Some(from!(u16)),
            Scalar::I32 => Some(from!(i32)),
            Scalar::U32 => Some(from!(u32)),
            Scalar::I64 => Some(from!(i64)),
            Scalar::U64 => Some(from!(u64)),
            Scalar::I128 => Some(from!(i128)),
        }
    }};
}

/// Values of a register type as an array of a SQL type.
pub(crate) fn scalar_array(
    data_type: &DataType,
    scalar: Scalar,
    buffer: Buffer,
    rows: usize,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    let wrong = || EngineError::Internal(format!("a result of type {data_type} as {}", scalar.name()));
    macro_rules! primitive {
        ($arrow:ty, $native:ty) => {{
            let values = integers!(scalar, buffer, rows, $native).ok_or_else(wrong)?;
            let array = PrimitiveArray::<$arrow>::new(values, nulls);
            Ok(Arc::new(array.with_data_type(arrow_type(data_type))) as ArrayRef)
        }};
    }
    match data_type {
        DataType::Boolean => {
            let values = BooleanBuffer::collect_bool(rows, |row| buffer[row] != 0);
            Ok(Arc::new(BooleanArray::new(values, nulls)))
        }
        DataType::Int8 => primitive!(at::Int8Type, i8),
        DataType::Int16 => primitive!(at::Int16Type, i16),
        DataType::Int32 => primitive!(at::Int32Type, i32),
        DataType::Int64 => primitive!(at::Int64Type, i64),
        DataType::UInt8 => primitive!(at::UInt8Type, u8),
        DataType::UInt16 => primitive!(at::UInt16Type, u16),
        DataType::UInt32 => primitive!(at::UInt32Type, u32),
        DataType::UInt64 => primitive!(at::UInt64Type, u64),
        DataType::Date32 => primitive!(at::Date32Type, i32),
        DataType::Decimal128 { .. } => primitive!(at::Decimal128Type, i128),
        DataType::Timestamp { unit, .. } => match unit {
            TimeUnit::Second => primitive!(at::TimestampSecondType, i64),
            TimeUnit::Millisecond => primitive!(at::TimestampMillisecondType, i64),
            TimeUnit::Microsecond => primitive!(at::TimestampMicrosecondType, i64),
            TimeUnit::Nanosecond => primitive!(at::TimestampNanosecondType, i64),
        },
        DataType::Duration { unit } => match unit {
            TimeUnit::Second => primitive!(at::DurationSecondType, i64),
            TimeUnit::Millisecond => primitive!(at::DurationMillisecondType, i64),
            TimeUnit::Microsecond => primitive!(at::DurationMicrosecondType, i64),
            TimeUnit::Nanosecond => primitive!(at::DurationNanosecondType, i64),
        },
        DataType::Float32 => {
            let values = match scalar {
                Scalar::F32 => ScalarBuffer::new(buffer, 0, rows),
                Scalar::F64 => buffer.typed_data::<f64>().iter().map(|value| *value as f32).collect(),
                _ => return Err(wrong()),
            };
            Ok(Arc::new(Float32Array::new(values, nulls)))
        }
        DataType::Float64 => {
            let values = match scalar {
                Scalar::F64 => ScalarBuffer::new(buffer, 0, rows),
                Scalar::F32 => buffer.typed_data::<f32>().iter().map(|value| f64::from(*value)).collect(),
                _ => return Err(wrong()),
            };
            Ok(Arc::new(Float64Array::new(values, nulls)))
        }
        _ => Err(wrong()),
    }
}
