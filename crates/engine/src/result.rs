//! From the output states on the device to an Arrow batch.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::*;
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::datatypes as at;
use arrow::record_batch::RecordBatch;
use kelpie_compile::pipeline::{OutputColumn, OutputLayout, OutputStorage};
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};
use kelpie_kir::Scalar;

use crate::error::{EngineError, QueryError};

/// Reads the first bytes of each of several states, given as state and number of bytes.
pub type ReadStates<'a> = dyn Fn(&[(usize, usize)]) -> Result<Vec<Vec<u8>>, EngineError> + 'a;

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

/// The result of a query, or its first `rows` rows. The device is asked three times: for the number of rows, for the
/// columns, and for the bytes of texts.
pub fn read(
    layout: &OutputLayout,
    fields: &[Field],
    rows: Option<u64>,
    read: &ReadStates<'_>,
) -> Result<RecordBatch, EngineError> {
    let count = match rows {
        Some(rows) => rows,
        None => word(&one(read, layout.count, 8)?, 0),
    };
    let rows = layout.limit.map_or(count, |limit| count.min(limit)) as usize;
    let wanted: Vec<_> = layout.columns.iter().flat_map(|column| parts(column, rows)).collect();
    let mut read_parts = read(&wanted)?.into_iter();
    let mut arrays = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        // A pipeline whose source is empty at compile time may have declared no columns.
        arrays.push(match layout.columns.get(index) {
            Some(column) => array(column, rows, &mut read_parts, read)?,
            None => new_null_array(&arrow_type(&field.data_type), rows),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(arrow_schema(fields), arrays, &options)?)
}

/// Bytes of a batch's rows.
pub fn bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size());
    columns.map(|bytes| bytes.unwrap_or_default() as u64).sum()
}

/// The only value of the only column of a scalar subquery's result; NULL where there is no row.
pub fn scalar(batch: &RecordBatch) -> Result<Literal, EngineError> {
    if batch.num_rows() > 1 {
        return Err(QueryError::SubqueryRows.into());
    }
    let Some(array) = batch.columns().first().filter(|array| array.len() == 1 && array.is_valid(0)) else {
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
        at::DataType::Float32 => Literal::Float(array.as_primitive::<at::Float32Type>().value(0).into()),
        at::DataType::Float64 => Literal::Float(array.as_primitive::<at::Float64Type>().value(0)),
        at::DataType::Utf8 => Literal::Utf8(array.as_string::<i32>().value(0).into()),
        other => return Err(EngineError::Internal(format!("a scalar subquery of type {other}"))),
    })
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes.get(index * 8..index * 8 + 8).and_then(|part| part.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn one(read: &ReadStates<'_>, state: usize, bytes: usize) -> Result<Vec<u8>, EngineError> {
    Ok(read(&[(state, bytes)])?.pop().unwrap_or_default())
}

/// The states that a column consists of, and how many of their bytes; without the bytes of texts.
fn parts(column: &OutputColumn, rows: usize) -> Vec<(usize, usize)> {
    let mut parts: Vec<_> = column.validity.map(|validity| (validity, rows)).into_iter().collect();
    match column.storage {
        OutputStorage::Null => {}
        OutputStorage::Scalar(scalar, values) => parts.push((values, rows * scalar.bytes() as usize)),
        OutputStorage::Text { offsets, lengths, .. } => {
            parts.extend([(offsets, rows * 8), (lengths, rows * 4)])
        }
    }
    parts
}

/// A column of its [`parts`], which `read_parts` gives next.
fn array(
    column: &OutputColumn,
    rows: usize,
    read_parts: &mut dyn Iterator<Item = Vec<u8>>,
    read: &ReadStates<'_>,
) -> Result<ArrayRef, EngineError> {
    let mut part = || {
        let missing = || EngineError::Internal(format!("a part of column {} was not read", column.name));
        read_parts.next().ok_or_else(missing)
    };
    let nulls = match column.validity {
        Some(_) => {
            let bytes = part()?;
            Some(NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| bytes[row] != 0)))
        }
        None => None,
    };
    match column.storage {
        OutputStorage::Null => Ok(new_null_array(&arrow_type(&column.data_type), rows)),
        OutputStorage::Scalar(scalar, _) => scalar_array(&column.data_type, scalar, &part()?, nulls),
        OutputStorage::Text { heap, .. } => text_array(rows, &part()?, &part()?, nulls, heap, read),
    }
}

fn text_array(
    rows: usize,
    offsets: &[u8],
    lengths: &[u8],
    nulls: Option<NullBuffer>,
    heap: usize,
    read: &ReadStates<'_>,
) -> Result<ArrayRef, EngineError> {
    let span = |row: usize| {
        let offset = word(offsets, row) as usize;
        let length = lengths
            .get(row * 4..row * 4 + 4)
            .and_then(|part| part.try_into().ok())
            .map_or(0, u32::from_le_bytes);
        (offset, length as usize)
    };
    let used = (0..rows).map(|row| span(row).0 + span(row).1).max().unwrap_or(0);
    let bytes = one(read, heap, used)?;
    let mut builder = StringBuilder::with_capacity(rows, used);
    for row in 0..rows {
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            builder.append_null();
            continue;
        }
        let (offset, length) = span(row);
        let text = std::str::from_utf8(&bytes[offset..offset + length])
            .map_err(|error| EngineError::Internal(format!("text of a result is not UTF-8: {error}")))?;
        builder.append_value(text);
    }
    Ok(Arc::new(builder.finish()))
}

/// Integers of a register type as `i128`s.
fn integers(scalar: Scalar, bytes: &[u8]) -> Vec<i128> {
    macro_rules! read {
        ($ty:ty) => {
            bytes
                .chunks_exact(size_of::<$ty>())
                .map(|chunk| chunk.try_into().map_or(0, <$ty>::from_le_bytes) as i128)
                .collect()
        };
    }
    match scalar {
        Scalar::Bool | Scalar::U8 => read!(u8),
        Scalar::I8 => read!(i8),
        Scalar::I16 => read!(i16),
        Scalar::U16 => read!(u16),
        Scalar::I32 => read!(i32),
        Scalar::U32 => read!(u32),
        Scalar::I64 => read!(i64),
        Scalar::U64 => read!(u64),
        Scalar::I128 => read!(i128),
        Scalar::F32 | Scalar::F64 => Vec::new(),
    }
}

fn scalar_array(
    data_type: &DataType,
    scalar: Scalar,
    bytes: &[u8],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    macro_rules! primitive {
        ($arrow:ty) => {{
            let values = integers(scalar, bytes).into_iter().map(|value| value as _);
            let array = PrimitiveArray::<$arrow>::new(values.collect(), nulls);
            Ok(Arc::new(array.with_data_type(arrow_type(data_type))) as ArrayRef)
        }};
    }
    match data_type {
        DataType::Boolean => {
            let values = BooleanBuffer::collect_bool(bytes.len(), |row| bytes[row] != 0);
            Ok(Arc::new(BooleanArray::new(values, nulls)))
        }
        DataType::Int8 => primitive!(at::Int8Type),
        DataType::Int16 => primitive!(at::Int16Type),
        DataType::Int32 => primitive!(at::Int32Type),
        DataType::Int64 => primitive!(at::Int64Type),
        DataType::UInt8 => primitive!(at::UInt8Type),
        DataType::UInt16 => primitive!(at::UInt16Type),
        DataType::UInt32 => primitive!(at::UInt32Type),
        DataType::UInt64 => primitive!(at::UInt64Type),
        DataType::Date32 => primitive!(at::Date32Type),
        DataType::Decimal128 { .. } => primitive!(at::Decimal128Type),
        DataType::Timestamp { unit, .. } => match unit {
            TimeUnit::Second => primitive!(at::TimestampSecondType),
            TimeUnit::Millisecond => primitive!(at::TimestampMillisecondType),
            TimeUnit::Microsecond => primitive!(at::TimestampMicrosecondType),
            TimeUnit::Nanosecond => primitive!(at::TimestampNanosecondType),
        },
        DataType::Float32 | DataType::Float64 => float_array(data_type, scalar, bytes, nulls),
        other => Err(EngineError::Internal(format!("a result of type {other} as {}", scalar.name()))),
    }
}

fn float_array(
    data_type: &DataType,
    scalar: Scalar,
    bytes: &[u8],
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef, EngineError> {
    let values: Vec<f64> = match scalar {
        Scalar::F32 => {
            bytes.chunks_exact(4).map(|c| c.try_into().map_or(0.0, f32::from_le_bytes).into()).collect()
        }
        Scalar::F64 => bytes.chunks_exact(8).map(|c| c.try_into().map_or(0.0, f64::from_le_bytes)).collect(),
        other => return Err(EngineError::Internal(format!("a float result as {}", other.name()))),
    };
    Ok(match data_type {
        DataType::Float32 => {
            let values: Vec<f32> = values.into_iter().map(|value| value as f32).collect();
            Arc::new(Float32Array::new(values.into(), nulls))
        }
        _ => Arc::new(Float64Array::new(values.into(), nulls)),
    })
}
