//! Rows that lay on the device as batches on the host.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatchOptions, StringArray};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::record_batch::RecordBatch;
use kelpie_compile::layout::Storage;
use kelpie_compile::types::{DataType, Field};
use kelpie_device::{Buffer as DeviceBuffer, Download, QueryStream};
use kelpie_kir::Scalar;

use super::IntermediateRows;
use crate::columns::ResidentColumn;
use crate::error::EngineError;
use crate::error::reserve;
use crate::result::{arrow_schema, scalar_array};

/// Rows of a batch, and bytes of text of a column of one, unless a single text has more.
const BATCH_ROWS: usize = 1 << 20;
const BATCH_TEXT_BYTES: u64 = 64 << 20;

/// A column whose buffers were copied to the host.
struct HostColumn<'c> {
    column: &'c ResidentColumn,
    data_type: &'c DataType,
    data: Buffer,
    nulls: Option<NullBuffer>,
    /// Where each text begins and ends in its bytes, of a row or of an entry of the dictionary.
    offsets: ScalarBuffer<u32>,
    /// The bytes of texts or entries.
    texts: Buffer,
}

impl IntermediateRows {
    /// Copies the rows to the host.
    pub(crate) fn to_host(
        &self,
        fields: &[Field],
        stream: &dyn QueryStream,
    ) -> Result<Vec<RecordBatch>, EngineError> {
        let rows = usize::try_from(self.rows)
            .map_err(|_| EngineError::Internal("more rows than the host can count".into()))?;
        let pairs = self.columns.iter().zip(fields);
        let columns = pairs.map(|(column, field)| HostColumn::read(column, &field.data_type, rows, stream));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let schema = arrow_schema(fields);
        let mut batches = Vec::new();
        let mut start = 0;
        while start < rows {
            let most = rows.min(start.saturating_add(BATCH_ROWS));
            let end = columns.iter().fold(most, |end, column| column.fitting(start..end));
            let arrays = columns.iter().map(|column| column.array(start..end));
            let arrays = arrays.collect::<Result<Vec<_>, _>>()?;
            let options = RecordBatchOptions::new().with_row_count(Some(end - start));
            batches.push(RecordBatch::try_new_with_options(Arc::clone(&schema), arrays, &options)?);
            start = end;
        }
        Ok(batches)
    }
}

fn read(buffer: &DeviceBuffer, bytes: usize, stream: &dyn QueryStream) -> Result<Buffer, EngineError> {
    reserve(bytes, "the rows of an inner sort")?;
    let mut data = MutableBuffer::from_len_zeroed(bytes);
    stream.download_many(&mut [Download { buffer, offset: 0, data: data.as_slice_mut() }])?;
    Ok(data.into())
}

fn missing(what: &str) -> EngineError {
    EngineError::Internal(format!("a column of an inner sort has no {what}"))
}

impl HostColumn<'_> {
    fn read<'c>(
        column: &'c ResidentColumn,
        data_type: &'c DataType,
        rows: usize,
        stream: &dyn QueryStream,
    ) -> Result<HostColumn<'c>, EngineError> {
        let nulls = match &column.validity {
            Some(bits) => {
                let bits = read(bits, rows.div_ceil(8), stream)?;
                Some(NullBuffer::new(BooleanBuffer::new(bits, 0, rows)))
            }
            None => None,
        };
        let offsets_of = |buffer: &DeviceBuffer, count: usize| {
            Ok::<_, EngineError>(ScalarBuffer::<u32>::new(read(buffer, count * 4, stream)?, 0, count))
        };
        let end = |offsets: &ScalarBuffer<u32>| offsets.last().map_or(0, |end| *end as usize);
        let (data, offsets, texts) = match column.layout.storage {
            Storage::Fixed { scalar, .. } => {
                let data = read(&column.data, rows * scalar.bytes() as usize, stream)?;
                (data, ScalarBuffer::from(Vec::new()), Buffer::default())
            }
            Storage::Text { offset: Scalar::U32 } => {
                let offsets = column.offsets.as_ref().ok_or_else(|| missing("offsets"))?;
                let offsets = offsets_of(offsets, rows + 1)?;
                let texts = read(&column.data, end(&offsets), stream)?;
                (Buffer::default(), offsets, texts)
            }
            Storage::Dictionary { code, entries } => {
                let data = read(&column.data, rows * code.bytes() as usize, stream)?;
                let (offsets, texts) = column.dictionary.as_ref().ok_or_else(|| missing("dictionary"))?;
                let offsets = offsets_of(offsets, entries as usize + 1)?;
                let texts = read(texts, end(&offsets), stream)?;
                (data, offsets, texts)
            }
            Storage::Text { .. } => return Err(missing("offsets of 32 bits")),
        };
        Ok(HostColumn { column, data_type, data, nulls, offsets, texts })
    }

    /// The end of as many rows as have no more text than a batch takes; of one, at least.
    fn fitting(&self, rows: Range<usize>) -> usize {
        if let Storage::Fixed { .. } = self.column.layout.storage {
            return rows.end;
        }
        let mut bytes = 0;
        let fits = rows.clone().take_while(|row| {
            bytes += self.span(*row).len() as u64;
            bytes <= BATCH_TEXT_BYTES
        });
        (rows.start + fits.count()).max(rows.start + 1).min(rows.end)
    }

    /// Where the text of a row is.
    fn span(&self, row: usize) -> Range<usize> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return 0..0;
        }
        let index = match self.column.layout.storage {
            Storage::Dictionary { code, .. } => code_at(&self.data, code, row),
            _ => row,
        };
        match (self.offsets.get(index), self.offsets.get(index + 1)) {
            (Some(start), Some(end)) => *start as usize..*end as usize,
            _ => 0..0,
        }
    }

    fn array(&self, rows: Range<usize>) -> Result<ArrayRef, EngineError> {
        let count = rows.end - rows.start;
        let nulls = self.nulls.as_ref().map(|nulls| nulls.slice(rows.start, count));
        let Storage::Fixed { scalar, .. } = self.column.layout.storage else {
            return self.text_array(rows, nulls);
        };
        let width = scalar.bytes() as usize;
        // An array begins where its type may.
        let part = Buffer::from_slice_ref(&self.data.as_slice()[rows.start * width..rows.end * width]);
        match self.column.base {
            0 => scalar_array(self.data_type, scalar, part, count, nulls),
            base => {
                let values: Vec<i128> = (0..count).map(|row| integer_at(&part, scalar, row) + base).collect();
                scalar_array(self.data_type, Scalar::I128, Buffer::from_vec(values), count, nulls)
            }
        }
    }

    fn text_array(&self, rows: Range<usize>, nulls: Option<NullBuffer>) -> Result<ArrayRef, EngineError> {
        let (mut values, mut ends): (Vec<u8>, Vec<i32>) = (Vec::new(), vec![0]);
        for row in rows {
            let bytes = self.texts.as_slice().get(self.span(row)).ok_or_else(|| missing("such text"))?;
            values.extend_from_slice(bytes);
            let end = i32::try_from(values.len());
            ends.push(end.map_err(|_| EngineError::Internal("a batch has too much text".into()))?);
        }
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        let texts = StringArray::try_new(ends, Buffer::from_vec(values), nulls)
            .map_err(|error| EngineError::Internal(format!("text of an inner sort is not UTF-8: {error}")))?;
        Ok(Arc::new(texts))
    }
}

/// A stored integer; 0 where there is none.
fn integer_at(data: &Buffer, scalar: Scalar, row: usize) -> i128 {
    let width = scalar.bytes() as usize;
    let Some(bytes) = data.as_slice().get(row * width..(row + 1) * width) else { return 0 };
    let mut word = [0; 16];
    word[..width].copy_from_slice(bytes);
    let value = i128::from_le_bytes(word);
    // What is narrower and has a sign has it in its own highest bit.
    let spare = 128 - 8 * width as u32;
    if scalar.is_signed() { value << spare >> spare } else { value }
}

/// A code of a dictionary.
pub(crate) fn code_at(data: &Buffer, code: Scalar, row: usize) -> usize {
    usize::try_from(integer_at(data, code, row)).unwrap_or(0)
}
