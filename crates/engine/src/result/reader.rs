//! Reads the rows of a result from the device, piece by piece.
//!
//! A copy from a GPU costs its latency, however little it brings. So a small result comes with one: how many rows there are, and
//! the first rows and the first bytes of texts before anybody knows whether there are more of them. A larger one takes a second,
//! which brings all columns and their texts; where the rows or texts are too many for that, pieces of rows come each with one for
//! the columns and one for the bytes of their texts.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, RecordBatchOptions, StringArray, new_null_array};
use arrow::buffer::{BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes as at;
use arrow::record_batch::RecordBatch;
use kelpie_compile::pipeline::{OutputColumn, OutputLayout, OutputStorage};

use super::{arrow_type, scalar_array};
use crate::delivery::{self, RowReceiver, take_cut};
use crate::error::{EngineError, reserve};
use crate::intermediate::code_at;

/// Texts that lie no further apart in a heap than this are read together.
const TEXT_GAP: u64 = 16 << 10;
/// Bytes of a column's texts, and of all columns without them, that come with the number of rows.
const HEAD_BYTES: u64 = 32 << 10;
/// Rows that come with their number, at most.
const HEAD_ROWS: u64 = 1024;

/// Reads bytes of each of several states, given as state and range, with one wait.
pub type ReadStates<'a> = dyn Fn(&[StateBytes]) -> Result<Vec<MutableBuffer>, EngineError> + 'a;

/// Bytes of a state.
pub type StateBytes = (usize, Range<usize>);

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
    /// Bytes of the buffer of a state; `None`: it has none.
    pub bytes: &'a dyn Fn(usize) -> Option<u64>,
    /// Reads the dictionary of a column (its scan and its position there).
    pub dictionary: &'a dyn Fn(usize, usize) -> Result<Dictionary, EngineError>,
    /// Whether a copy costs more than what it brings.
    pub is_far: bool,
}

/// The entries of a dictionary on the host.
pub struct Dictionary {
    offsets: ScalarBuffer<u32>,
    bytes: Buffer,
}

impl Dictionary {
    /// Of the bytes of offsets, a `u32` each, and of the entries.
    pub fn new(offsets: Vec<u8>, bytes: Vec<u8>) -> Dictionary {
        let offsets = offsets.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        Dictionary { offsets, bytes: Buffer::from_vec(bytes) }
    }

    /// Where an entry begins, and how long it is.
    fn entry(&self, code: usize) -> (u64, u32) {
        match (self.offsets.get(code), self.offsets.get(code + 1)) {
            (Some(start), Some(end)) => (u64::from(*start), end.saturating_sub(*start)),
            _ => (0, 0),
        }
    }
}

/// The rows of a piece of a column, before its texts are read.
enum ColumnPiece {
    Whole(ArrayRef),
    Text(TextPiece),
}

struct TextPiece {
    offsets: ScalarBuffer<u64>,
    lengths: ScalarBuffer<u32>,
    nulls: Option<NullBuffer>,
    heap: usize,
    /// The first bytes of the heap, as many as were read.
    known: Buffer,
}

/// What is there before pieces are read.
struct Head {
    rows: u64,
    /// Bytes of each text column's heap that are taken.
    heaps: Vec<u64>,
    /// All columns, where they came with the number of rows.
    columns: Option<Vec<ColumnPiece>>,
}

impl ResultReader<'_> {
    /// Hands the rows that the layout's count tells to `out`. What `out` leaves out is not read.
    pub fn deliver_all(&self, out: &mut dyn RowReceiver) -> Result<Reading, EngineError> {
        let start = Instant::now();
        let head = self.head()?;
        let mut reading = Reading { time_ns: start.elapsed().as_nanos() as u64, bytes: 0 };
        match &head.columns {
            Some(columns) => {
                let first = out.skip(head.rows);
                self.deliver_columns(columns, first as usize..head.rows as usize, out, &mut reading)?;
            }
            None => self.deliver_pieces(head.rows, &head.heaps, out, &mut reading)?,
        }
        Ok(reading)
    }

    /// Hands the first `rows` rows to `out`. What `out` leaves out is not read.
    pub fn deliver(&self, rows: u64, out: &mut dyn RowReceiver) -> Result<Reading, EngineError> {
        let mut reading = Reading::default();
        self.deliver_pieces(self.limited(rows), &[], out, &mut reading)?;
        Ok(reading)
    }

    fn limited(&self, rows: u64) -> u64 {
        self.layout.limit.map_or(rows, |limit| rows.min(limit))
    }

    /// Bytes of a row, without those of texts.
    fn width(&self) -> u64 {
        self.layout.columns.iter().map(row_bytes).sum::<u64>().max(1)
    }

    /// How many rows there are, and where a copy costs most of what it takes, the first of them.
    fn head(&self) -> Result<Head, EngineError> {
        let mut wanted: Vec<StateBytes> = vec![(self.layout.count, 0..8)];
        wanted.extend(self.texts_of().map(|(_, used)| (used, 0..8)));
        let counters = wanted.len();
        let rows = if self.is_far { self.head_rows() } else { 0 };
        if rows > 0 {
            wanted.extend(self.column_bytes(&(0..rows)));
            wanted.extend(self.heap_bytes(|bytes, _| bytes.min(HEAD_BYTES)));
        }
        let mut read = (self.read)(&wanted)?.into_iter().map(Buffer::from);
        let mut words = read.by_ref().take(counters).map(|bytes| match bytes.as_slice().first_chunk() {
            Some(word) => u64::from_le_bytes(*word),
            None => 0,
        });
        let count = self.limited(words.next().unwrap_or(0));
        let heaps = words.collect();
        let columns = match rows > 0 && count <= rows {
            true => Some(self.columns(count as usize, rows as usize, &mut read)?),
            false => None,
        };
        Ok(Head { rows: count, heaps, columns })
    }

    /// As many rows as may come with their number: no more than there is room for.
    fn head_rows(&self) -> u64 {
        let fitting = self.column_bytes(&(0..1)).into_iter();
        let fitting = fitting.filter_map(|(state, range)| Some((self.bytes)(state)? / range.len() as u64));
        (HEAD_BYTES / self.width()).clamp(1, HEAD_ROWS).min(fitting.min().unwrap_or(HEAD_ROWS))
    }

    fn deliver_pieces(
        &self,
        rows: u64,
        heaps: &[u64],
        out: &mut dyn RowReceiver,
        reading: &mut Reading,
    ) -> Result<(), EngineError> {
        let batch_rows = out.batches().rows.max(1) as u64;
        let piece_rows = (out.piece_bytes() / self.width()).max(batch_rows).max(1);
        let mut next = out.skip(rows);
        // All texts come with the columns where all are wanted.
        let is_whole = next == 0 && rows <= piece_rows && !heaps.is_empty();
        let is_whole = is_whole && heaps.iter().sum::<u64>() <= out.piece_bytes();
        while next < rows && !out.is_full() {
            let end = rows.min(next.saturating_add(piece_rows));
            let start = Instant::now();
            let count = usize::try_from(end - next)
                .map_err(|_| EngineError::Internal("a piece of a result is too large".into()))?;
            let mut wanted = self.column_bytes(&(next..end));
            wanted.extend(self.heap_bytes(|bytes, column| match is_whole {
                true => heaps.get(column).map_or(0, |used| bytes.min(*used)),
                false => 0,
            }));
            let mut read = (self.read)(&wanted)?.into_iter().map(Buffer::from);
            let columns = self.columns(count, count, &mut read)?;
            reading.time_ns += start.elapsed().as_nanos() as u64;
            self.deliver_columns(&columns, 0..count, out, reading)?;
            next = end;
        }
        Ok(())
    }

    /// Hands some rows of columns to `out`.
    fn deliver_columns(
        &self,
        columns: &[ColumnPiece],
        rows: Range<usize>,
        out: &mut dyn RowReceiver,
        reading: &mut Reading,
    ) -> Result<(), EngineError> {
        let most = out.batches().text_bytes.clamp(1, i32::MAX as u64);
        let mut first = rows.start;
        while first < rows.end && !out.is_full() {
            let start = Instant::now();
            let end = cut(columns, first..rows.end, most);
            let batch = self.batch(columns, first..end)?;
            reading.bytes += delivery::bytes(&batch);
            reading.time_ns += start.elapsed().as_nanos() as u64;
            take_cut(out, batch)?;
            first = end;
        }
        Ok(())
    }

    /// The heaps of text columns, and the states that tell what of them is taken.
    fn texts_of(&self) -> impl Iterator<Item = (usize, usize)> {
        self.layout.columns.iter().filter_map(|column| match column.storage {
            OutputStorage::Text { heap, used, .. } => Some((heap, used)),
            _ => None,
        })
    }

    /// The first bytes of the heaps: as many as `most` says of each, by its bytes and its number.
    fn heap_bytes(&self, most: impl Fn(u64, usize) -> u64) -> Vec<StateBytes> {
        let heaps = self.texts_of().enumerate();
        heaps
            .map(|(index, (heap, _))| {
                let bytes = (self.bytes)(heap).unwrap_or(0);
                (heap, 0..most(bytes, index) as usize)
            })
            .collect()
    }

    /// What of the states belongs to rows, without the bytes of texts.
    fn column_bytes(&self, rows: &Range<u64>) -> Vec<StateBytes> {
        let range = |bytes: u64| (rows.start * bytes) as usize..(rows.end * bytes) as usize;
        let mut wanted = Vec::new();
        for column in &self.layout.columns {
            wanted.extend(column.validity.map(|state| (state, range(1))));
            match column.storage {
                OutputStorage::Null => {}
                OutputStorage::Scalar(scalar, state) | OutputStorage::Codes { code: scalar, state, .. } => {
                    wanted.push((state, range(u64::from(scalar.bytes()))));
                }
                OutputStorage::Text { offsets, lengths, .. } => {
                    wanted.extend([(offsets, range(8)), (lengths, range(4))]);
                }
            }
        }
        wanted
    }

    /// The first `count` of `rows` rows of which `read` gives the columns, and after them the first bytes of heaps.
    fn columns(
        &self,
        count: usize,
        rows: usize,
        read: &mut dyn Iterator<Item = Buffer>,
    ) -> Result<Vec<ColumnPiece>, EngineError> {
        let fields = self.schema.fields().iter().enumerate();
        let pieces = fields.map(|(index, field)| match self.layout.columns.get(index) {
            Some(column) => self.column_piece(column, (count, rows), read),
            // A pipeline whose source is empty at compile time may have declared no columns.
            None => Ok(ColumnPiece::Whole(new_null_array(field.data_type(), count))),
        });
        let mut pieces = pieces.collect::<Result<Vec<_>, _>>()?;
        for (piece, column) in pieces.iter_mut().zip(&self.layout.columns) {
            if let (ColumnPiece::Text(text), OutputStorage::Text { .. }) = (piece, column.storage) {
                text.known = read.next().unwrap_or_default();
            }
        }
        Ok(pieces)
    }

    /// The first `count` of `rows` rows of a column of what was read for it, which `read` gives next.
    fn column_piece(
        &self,
        column: &OutputColumn,
        (count, rows): (usize, usize),
        read: &mut dyn Iterator<Item = Buffer>,
    ) -> Result<ColumnPiece, EngineError> {
        let mut next = || {
            let missing = || EngineError::Internal(format!("a part of column {} was not read", column.name));
            let bytes = read.next().ok_or_else(missing)?;
            let fitting = bytes.len().checked_div(rows).unwrap_or(0) * count;
            Ok::<Buffer, EngineError>(bytes.slice_with_length(0, fitting))
        };
        let nulls = match column.validity {
            Some(_) => {
                let bytes = next()?;
                Some(NullBuffer::new(BooleanBuffer::collect_bool(count, |row| bytes[row] != 0)))
            }
            None => None,
        };
        Ok(match column.storage {
            OutputStorage::Null => ColumnPiece::Whole(new_null_array(&arrow_type(&column.data_type), count)),
            OutputStorage::Scalar(scalar, _) => {
                ColumnPiece::Whole(scalar_array(&column.data_type, scalar, next()?, count, nulls)?)
            }
            OutputStorage::Codes { code, scan, column, .. } => {
                let (codes, dictionary) = (next()?, (self.dictionary)(scan, column)?);
                let entries = (0..count).map(|row| dictionary.entry(code_at(&codes, code, row)));
                let (offsets, lengths): (Vec<u64>, Vec<u32>) = entries.unzip();
                let (offsets, lengths) = (offsets.into(), lengths.into());
                ColumnPiece::Text(TextPiece { offsets, lengths, nulls, heap: 0, known: dictionary.bytes })
            }
            OutputStorage::Text { heap, .. } => ColumnPiece::Text(TextPiece {
                offsets: ScalarBuffer::new(next()?, 0, count),
                lengths: ScalarBuffer::new(next()?, 0, count),
                nulls,
                heap,
                known: Buffer::default(),
            }),
        })
    }

    /// Rows of a piece as a batch.
    fn batch(&self, columns: &[ColumnPiece], rows: Range<usize>) -> Result<RecordBatch, EngineError> {
        let count = rows.end - rows.start;
        let array = |column: &ColumnPiece| match column {
            ColumnPiece::Whole(array) if array.len() == count => Ok(Arc::clone(array)),
            ColumnPiece::Whole(array) => Ok(array.slice(rows.start, count)),
            ColumnPiece::Text(text) => self.texts(text, rows.clone()),
        };
        let arrays = columns.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(self.schema), arrays, &options)?)
    }

    /// The texts of some rows of a piece; only bytes that are not known are read, and what lies closely between them.
    fn texts(&self, text: &TextPiece, rows: Range<usize>) -> Result<ArrayRef, EngineError> {
        let nulls = text.nulls.as_ref().map(|nulls| nulls.slice(rows.start, rows.end - rows.start));
        let length = |row: usize| match text.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            true => 0,
            false => text.lengths[row],
        };
        let spans: Vec<(u64, u32)> = rows.map(|row| (text.offsets[row], length(row))).collect();
        let needed: u64 = spans.iter().map(|(_, length)| u64::from(*length)).sum();
        let is_known = |(offset, length): &(u64, u32)| {
            *length == 0 || offset.saturating_add(u64::from(*length)) <= text.known.len() as u64
        };
        let (ranges, read) = match spans.iter().all(is_known) {
            true => (std::iter::once(0..text.known.len() as u64).collect(), vec![text.known.clone()]),
            false => {
                let ranges = ranges_of(&spans, needed);
                let of = |range: &Range<u64>| (text.heap, range.start as usize..range.end as usize);
                let read = (self.read)(&ranges.iter().map(of).collect::<Vec<_>>())?;
                (ranges, read.into_iter().map(Buffer::from).collect())
            }
        };
        reserve(needed as usize, "the text of a result")?;
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
        OutputStorage::Scalar(scalar, _) | OutputStorage::Codes { code: scalar, .. } => {
            u64::from(scalar.bytes())
        }
        OutputStorage::Text { .. } => 12,
    };
    values + u64::from(column.validity.is_some())
}

/// The end of as many of the rows as no column has more than `most` bytes of text in; at least one row, if there is one.
fn cut(columns: &[ColumnPiece], rows: Range<usize>, most: u64) -> usize {
    let mut end = rows.end;
    for column in columns {
        let ColumnPiece::Text(TextPiece { lengths, .. }) = column else { continue };
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
