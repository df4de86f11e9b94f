//! Writes a column's values to their place in device memory while the column is still being read: where the rows of every
//! partition and the bounds of the values are known before, the place of each value is too, and nothing needs to wait for the
//! rest of the table.
//!
//! What was promised may be wrong. A batch with values out of the promised bounds, or beyond its partition's rows, is kept
//! aside; whether the others can stay where they are is decided when all have come (`store::plan`).

use std::sync::Arc;

use kelpie_compile::types::Range;
use kelpie_device::{Buffer, Device, DeviceError};

use super::read::{Kind, Wanted};
use super::width::Width;

/// Bytes that a partition gathers before it writes them: large enough for a device's copies, and few enough to stay in a core's
/// cache.
const PIECE_BYTES: usize = 512 << 10;

/// Where a column will lie, known before it is read.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) buffer: Buffer,
    pub(super) width: Width,
    /// Bounds that were promised, of integers.
    pub(super) range: Option<Range>,
    partitions: PartitionRows,
}

/// The first row of each partition, and how many it has.
#[derive(Debug, Clone)]
pub(super) struct PartitionRows(Arc<[(usize, usize)]>);

impl PartitionRows {
    /// By the rows of each; `None` where there are too many to count.
    pub(super) fn new(rows: &[u64]) -> Option<PartitionRows> {
        let mut first = 0usize;
        let partition = |rows: &u64| {
            let (at, rows) = (first, usize::try_from(*rows).ok()?);
            first = first.checked_add(rows)?;
            // A value has at most 16 bytes.
            first.checked_mul(16)?;
            Some((at, rows))
        };
        rows.iter().map(partition).collect::<Option<_>>().map(PartitionRows)
    }

    /// Rows of all partitions.
    pub(super) fn rows(&self) -> usize {
        self.0.last().map_or(0, |(first, rows)| first + rows)
    }
}

/// What a column with a place will take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promised {
    width: Width,
    range: Option<Range>,
}

impl Promised {
    /// How a column will be stored, where that is known well enough to give it a place.
    pub(super) fn of(wanted: &Wanted) -> Option<Promised> {
        match wanted.kind {
            Kind::Float(scalar) => Some(Promised { width: Width { scalar, base: 0 }, range: None }),
            Kind::Integer => {
                let range = wanted.expected?.range?;
                Some(Promised { width: Width::of(range), range: Some(range) })
            }
            Kind::Text => None,
        }
    }

    /// Bytes of so many rows.
    pub(super) fn bytes(self, rows: usize) -> usize {
        rows.saturating_mul(self.width.scalar.bytes() as usize)
    }

    /// Its place in a buffer.
    pub(super) fn at(self, buffer: Buffer, partitions: &PartitionRows) -> Place {
        let Promised { width, range } = self;
        Place { buffer, width, range, partitions: partitions.clone() }
    }
}

impl Place {
    /// Bytes of a stored value.
    pub(super) fn value_bytes(&self) -> usize {
        self.width.scalar.bytes() as usize
    }

    /// Rows of all partitions.
    pub(super) fn rows(&self) -> usize {
        self.partitions.rows()
    }

    /// Where a partition's rows go.
    pub(super) fn of_partition(&self, partition: usize) -> Option<Placing> {
        let (first_row, rows) = *self.partitions.0.get(partition)?;
        let (place, next_row, end_row) = (self.clone(), first_row, first_row + rows);
        Some(Placing { place, first_row, next_row, end_row, staged: Vec::new() })
    }

    /// Whether a column with these bounds, or of no integers, may stay here: they are within what was promised, and no narrower
    /// width would do.
    pub(super) fn serves(&self, range: Option<Range>) -> bool {
        match (range, self.range) {
            (Some(range), Some(promised)) => {
                range.within(promised) && Width::of(range).scalar == self.width.scalar
            }
            (range, promised) => range.is_none() && promised.is_none(),
        }
    }
}

/// The rows of one partition on their way to a place.
#[derive(Debug)]
pub(super) struct Placing {
    place: Place,
    first_row: usize,
    /// The next row to come, and the one behind the partition's last.
    next_row: usize,
    end_row: usize,
    /// The values of the rows just before `next_row`, as they are stored, that are not written yet.
    staged: Vec<u8>,
}

impl Placing {
    pub(super) fn width(&self) -> Width {
        self.place.width
    }

    /// Whether the next rows, with values in these bounds, have a place here.
    pub(super) fn takes(&self, rows: usize, range: Option<Range>) -> bool {
        let in_bounds = match (range, self.place.range) {
            (Some(range), Some(promised)) => range.within(promised),
            (range, promised) => range.is_none() && promised.is_none(),
        };
        in_bounds && rows <= self.end_row.saturating_sub(self.next_row)
    }

    /// Takes the next rows: `encode` writes their values as they are stored.
    pub(super) fn push(
        &mut self,
        device: &dyn Device,
        rows: usize,
        encode: impl FnOnce(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let start = self.staged.len();
        let bytes = rows * self.place.value_bytes();
        if self.staged.capacity() == 0 {
            let all = (self.end_row - self.first_row) * self.place.value_bytes();
            self.staged.reserve_exact(bytes.max(PIECE_BYTES + bytes).min(all));
        }
        self.staged.resize(start + bytes, 0);
        if let Some(out) = self.staged.get_mut(start..) {
            encode(out);
        }
        self.next_row += rows;
        if self.staged.len() >= PIECE_BYTES || self.next_row == self.end_row {
            self.flush(device)
        } else {
            Ok(())
        }
    }

    /// Leaves out the next rows, which are kept elsewhere.
    pub(super) fn skip(&mut self, device: &dyn Device, rows: usize) -> Result<(), DeviceError> {
        self.flush(device)?;
        self.next_row += rows;
        Ok(())
    }

    /// Writes what waits.
    fn flush(&mut self, device: &dyn Device) -> Result<(), DeviceError> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let end = self.next_row * self.place.value_bytes();
        device.upload(&self.place.buffer, end - self.staged.len(), &self.staged)?;
        self.staged.clear();
        if self.next_row >= self.end_row {
            self.staged = Vec::new();
        }
        Ok(())
    }

    /// Ends the partition; whether it had exactly the rows that were promised.
    pub(super) fn end(&mut self, device: &dyn Device) -> Result<bool, DeviceError> {
        self.flush(device)?;
        Ok(self.next_row == self.end_row)
    }

    /// What was written, from the partition's first row on: bytes of rows that were left out are undefined.
    pub(super) fn written(&self, device: &dyn Device) -> Result<Vec<u8>, DeviceError> {
        let width = self.place.value_bytes();
        let mut bytes = vec![0; (self.next_row.min(self.end_row) - self.first_row) * width];
        device.download(&self.place.buffer, self.first_row * width, &mut bytes)?;
        Ok(bytes)
    }
}

/// Values as they are stored: the lower bytes of each, less a base.
pub(super) fn put<const BYTES: usize, T: Copy>(
    values: &[T],
    out: &mut [u8],
    stored: impl Fn(T) -> [u8; BYTES],
) {
    let (out, _) = out.as_chunks_mut::<BYTES>();
    for (out, value) in out.iter_mut().zip(values) {
        *out = stored(*value);
    }
}

/// The values of bytes that [`put`] wrote.
pub(super) fn get<const BYTES: usize, T>(bytes: &[u8], value: impl Fn([u8; BYTES]) -> T) -> Vec<T> {
    let (values, _) = bytes.as_chunks::<BYTES>();
    values.iter().map(|bytes| value(*bytes)).collect()
}
