//! From the output states on the device to Arrow batches, piece by piece.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::cast::AsArray;
use arrow::array::*;
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes as at;
use arrow::record_batch::RecordBatch;
use kelpie_compile::pipeline::{OutputColumn, OutputLayout, OutputStorage};
use kelpie_compile::types::{DataType, Field, Literal, TimeUnit};
use kelpie_kir::Scalar;

use crate::delivery::{self, RowReceiver, take_cut};
use crate::error::{EngineError, QueryError};

/// Texts that lie no further apart in a heap than this are read together.
const TEXT_GAP: u64 = 16 << 10;

/// Reads bytes of each of several states, given as state and range.
pub type ReadStates<'a> = dyn Fn(&[(usize, Range<usize>)]) -> Result<Vec<MutableBuffer>, EngineError> + 'a;

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
        at::DataType::Float32 => Literal::Float(array.as_primitive::<at::Float32Type>().value(0).into()),
        at::DataType::Float64 => Literal::Float(array.as_primitive::<at::Float64Type>().value(0)),
        at::DataType::Utf8 => Literal::Utf8(array.as_string::<i32>().value(0).into()),
        other => return Err(EngineError::Internal(format!("a scalar subquery of type {other}"))),
    })
}

/// What reading rows took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// Time in nanoseconds, without that of whoever takes the rows.
    pub time_ns: u64,
    /// Bytes of the rows, as Arrow holds them.
    pub bytes: u64,
}

impl std::ops::AddAssign for Reading {
    fn add_assign(&mut self, other: Reading) {
        self.time_ns += other.time_ns;
        self.bytes += other.bytes;
    }
}

/// Reads the rows of a result that lie on a device.
pub struct ResultReader<'a> {
    pub layout: &'a OutputLayout,
    pub schema: &'a at::SchemaRef,
    pub read: &'a ReadStates<'a>,
}

/// The rows of a piece of a column, before its texts are read.
enum ColumnPiece {
    Whole(ArrayRef),
    Text { offsets: ScalarBuffer<u64>, lengths: ScalarBuffer<u32>, nulls: Option<NullBuffer>, heap: usize },
}

impl ResultReader<'_> {
    /// Hands the first `rows` rows to `out`. The device is asked twice for each piece: for the columns, and for the bytes
    /// of texts. What `out` leaves out is not read.
    pub fn deliver(&self, rows: u64, out: &mut dyn RowReceiver) -> Result<Reading, EngineError> {
        let rows = self.layout.limit.map_or(rows, |limit| rows.min(limit));
        let width: u64 = self.layout.columns.iter().map(row_bytes).sum();
        let batch_rows = out.batches().rows.max(1) as u64;
        let piece_rows = (out.piece_bytes() / width.max(1)).max(batch_rows).max(1);
        let mut reading = Reading::default();
        let mut next = out.skip(rows);
        while next < rows && !out.is_full() {
            let end = rows.min(next.saturating_add(piece_rows));
            self.deliver_piece(next..end, out, &mut reading)?;
            next = end;
        }
        Ok(reading)
    }

    fn deliver_piece(
        &self,
        rows: Range<u64>,
        out: &mut dyn RowReceiver,
        reading: &mut Reading,
    ) -> Result<(), EngineError> {
        let start = Instant::now();
        let count = usize::try_from(rows.end - rows.start)
            .map_err(|_| EngineError::Internal("a piece of a result is too large".into()))?;
        let parts = self.parts(&rows, count)?;
        reading.time_ns += start.elapsed().as_nanos() as u64;
        let most = out.batches().text_bytes.clamp(1, i32::MAX as u64);
        let mut first = 0;
        while first < count && !out.is_full() {
            let start = Instant::now();
            let end = cut(&parts, first..count, most);
            let batch = self.batch(&parts, first..end)?;
            reading.bytes += delivery::bytes(&batch);
            reading.time_ns += start.elapsed().as_nanos() as u64;
            take_cut(out, batch)?;
            first = end;
        }
        Ok(())
    }

    /// What is read of each column but the bytes of texts.
    fn parts(&self, rows: &Range<u64>, count: usize) -> Result<Vec<ColumnPiece>, EngineError> {
        let range = |bytes: u64| (rows.start * bytes) as usize..(rows.end * bytes) as usize;
        let mut wanted = Vec::new();
        for column in &self.layout.columns {
            wanted.extend(column.validity.map(|state| (state, range(1))));
            match column.storage {
                OutputStorage::Null => {}
                OutputStorage::Scalar(scalar, state) => {
                    wanted.push((state, range(u64::from(scalar.bytes()))));
                }
                OutputStorage::Text { offsets, lengths, .. } => {
                    wanted.extend([(offsets, range(8)), (lengths, range(4))]);
                }
            }
        }
        let mut read = (self.read)(&wanted)?.into_iter();
        let fields = self.schema.fields().iter().enumerate();
        fields
            .map(|(index, field)| match self.layout.columns.get(index) {
                Some(column) => part(column, count, &mut read),
                // A pipeline whose source is empty at compile time may have declared no columns.
                None => Ok(ColumnPiece::Whole(new_null_array(field.data_type(), count))),
            })
            .collect()
    }

    /// Rows of a piece as a batch.
    fn batch(&self, parts: &[ColumnPiece], rows: Range<usize>) -> Result<RecordBatch, EngineError> {
        let count = rows.end - rows.start;
        let array = |part: &ColumnPiece| match part {
            ColumnPiece::Whole(array) if array.len() == count => Ok(Arc::clone(array)),
            ColumnPiece::Whole(array) => Ok(array.slice(rows.start, count)),
            ColumnPiece::Text { offsets, lengths, nulls, heap } => {
                let nulls = nulls.as_ref().map(|nulls| nulls.slice(rows.start, count));
                self.texts(*heap, &offsets[rows.clone()], &lengths[rows.clone()], nulls)
            }
        };
        let arrays = parts.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.schema), arrays, &options)?)
    }

    /// The texts at these offsets of a heap; only their bytes are read, and what lies closely between them.
    fn texts(
        &self,
        heap: usize,
        offsets: &[u64],
        lengths: &[u32],
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef, EngineError> {
        let length = |row: usize| match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            true => 0,
            false => lengths[row],
        };
        let spans: Vec<(u64, u32)> =
            offsets.iter().enumerate().map(|(row, offset)| (*offset, length(row))).collect();
        let needed: u64 = spans.iter().map(|(_, length)| u64::from(*length)).sum();
        let ranges = ranges_of(&spans, needed);
        let wanted: Vec<_> =
            ranges.iter().map(|range| (heap, range.start as usize..range.end as usize)).collect();
        let read = if wanted.is_empty() { Vec::new() } else { (self.read)(&wanted)? };
        delivery::reserve(needed as usize, "the text of a result")?;
        let mut values: Vec<u8> = Vec::with_capacity(needed as usize);
        let mut ends: Vec<i32> = Vec::with_capacity(spans.len() + 1);
        ends.push(0);
        let lost = || EngineError::Internal("a text of a result was not read".into());
        for (offset, length) in spans {
            if length > 0 {
                let index = ranges.partition_point(|range| range.end <= offset);
                let from = ranges.get(index).and_then(|range| offset.checked_sub(range.start));
                let from = from.ok_or_else(lost)? as usize;
                let bytes = read.get(index).and_then(|read| read.get(from..from + length as usize));
                values.extend_from_slice(bytes.ok_or_else(lost)?);
            }
            let end = i32::try_from(values.len());
            ends.push(end.map_err(|_| EngineError::Internal("a batch has too much text".into()))?);
        }
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        let texts = StringArray::try_new(ends, Buffer::from_vec(values), nulls)
            .map_err(|error| EngineError::Internal(format!("text of a result is not UTF-8: {error}")))?;
        Ok(Arc::new(texts))
    }
}

/// Bytes of a row of a column, without those of texts.
fn row_bytes(column: &OutputColumn) -> u64 {
    let values = match column.storage {
        OutputStorage::Null => 0,
        OutputStorage::Scalar(scalar, _) => u64::from(scalar.bytes()),
        OutputStorage::Text { .. } => 12,
    };
    values + u64::from(column.validity.is_some())
}

/// The end of as many of the rows as no column has more than `most` bytes of text in; at least one row, if there is one.
fn cut(parts: &[ColumnPiece], rows: Range<usize>, most: u64) -> usize {
    let mut end = rows.end;
    for part in parts {
        let ColumnPiece::Text { lengths, .. } = part else { continue };
        let mut bytes = 0;
        let fits = lengths[rows.start..end].iter().take_while(|length| {
            bytes += u64::from(**length);
            bytes <= most
        });
        end = (rows.start + fits.count()).max(rows.start + 1).min(rows.end);
    }
    end
}

/// The ranges of a heap to read for texts of so many bytes in all: one where they lie closely together.
fn ranges_of(spans: &[(u64, u32)], needed: u64) -> Vec<Range<u64>> {
    let used = spans.iter().filter(|(_, length)| *length > 0);
    let mut ranges: Vec<Range<u64>> =
        used.map(|(offset, length)| *offset..offset.saturating_add(u64::from(*length))).collect();
    let start = ranges.iter().map(|range| range.start).min();
    let end = ranges.iter().map(|range| range.end).max();
    let (Some(start), Some(end)) = (start, end) else { return Vec::new() };
    if end - start <= needed.saturating_mul(2).saturating_add(TEXT_GAP) {
        return std::iter::once(start..end).collect();
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(TEXT_GAP) => {
                last.end = last.end.max(range.end)
            }
            _ => joined.push(range),
        }
    }
    joined
}

/// A column of what was read for it, which `read` gives next.
fn part(
    column: &OutputColumn,
    rows: usize,
    read: &mut dyn Iterator<Item = MutableBuffer>,
) -> Result<ColumnPiece, EngineError> {
    let mut next = || {
        let missing = || EngineError::Internal(format!("a part of column {} was not read", column.name));
        read.next().map(Buffer::from).ok_or_else(missing)
    };
    let nulls = match column.validity {
        Some(_) => {
            let bytes = next()?;
            Some(NullBuffer::new(BooleanBuffer::collect_bool(rows, |row| bytes[row] != 0)))
        }
        None => None,
    };
    Ok(match column.storage {
        OutputStorage::Null => ColumnPiece::Whole(new_null_array(&arrow_type(&column.data_type), rows)),
        OutputStorage::Scalar(scalar, _) => {
            ColumnPiece::Whole(scalar_array(&column.data_type, scalar, next()?, rows, nulls)?)
        }
        OutputStorage::Text { heap, .. } => ColumnPiece::Text {
            offsets: ScalarBuffer::new(next()?, 0, rows),
            lengths: ScalarBuffer::new(next()?, 0, rows),
            nulls,
            heap,
        },
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

fn scalar_array(
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
