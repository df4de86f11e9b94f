//! Columns that are integers inside: each batch is kept at its own narrowest width until the whole column's is known.

use arrow::array::{Array, BooleanArray, PrimitiveArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::ArrowPrimitiveType;
use kelpie_compile::types::Range;
use kelpie_device::{Device, DeviceError};
use kelpie_kir::Scalar;

use super::order::ChunkOrder;
use super::placing::{Placing, get, put};
use super::width::Width;
use super::{spacing, spread};

/// Stored integers.
#[derive(Debug)]
enum Stored {
    U8(Vec<u8>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    I128(Vec<i128>),
    /// They were written to the column's place, at this width.
    Placed(Scalar),
}

/// The integers of a batch.
#[derive(Debug)]
pub(super) struct IntegerChunk {
    rows: usize,
    /// The values with their bounds and base; `None` where all are NULL.
    values: Option<(Stored, Range, i128)>,
    /// Some of the values.
    sample: Vec<i64>,
    /// The distance that all values have multiples of, 0 where they are all equal.
    step: u64,
    order: ChunkOrder,
}

/// Integers that a device has decoded to the column's place, and what it has found of them.
#[derive(Debug)]
pub(super) struct DecodedChunk {
    pub(super) rows: usize,
    pub(super) width: Width,
    pub(super) range: Range,
    pub(super) sample: Vec<i64>,
    /// See [`IntegerChunk::steps`].
    pub(super) step: u64,
    pub(super) order: ChunkOrder,
}

/// Where a partition writes a column's values while it is read, if that is known.
pub(super) type WritesTo<'a> = (Option<&'a mut Placing>, &'a dyn Device);

/// A native integer of Arrow.
trait Native: Copy + Ord {
    fn wide(self) -> i128;
    /// The lower 64 bits.
    fn low(self) -> i64;
    fn bounds(values: &[Self]) -> Option<Range>;
}

macro_rules! native {
    ($($type:ty),*) => {$(
        impl Native for $type {
            fn wide(self) -> i128 {
                i128::from(self)
            }
            fn low(self) -> i64 {
                self as i64
            }
            fn bounds(values: &[Self]) -> Option<Range> {
                let first = *values.first()?;
                let (min, max) = values.iter().fold((first, first), |(min, max), v| (min.min(*v), max.max(*v)));
                Some(Range { min: min.into(), max: max.into() })
            }
        }
    )*};
}
native!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Native for i128 {
    fn wide(self) -> i128 {
        self
    }

    fn low(self) -> i64 {
        self as i64
    }

    fn bounds(values: &[i128]) -> Option<Range> {
        let first = *values.first()?;
        // Most decimals fit 64 bits, where comparisons are several times faster.
        let (mut min, mut max, mut excess) = (first as i64, first as i64, 0i64);
        for value in values {
            let low = *value as i64;
            excess |= ((*value >> 64) as i64) ^ (low >> 63);
            min = min.min(low);
            max = max.max(low);
        }
        if excess == 0 {
            return Some(Range::new(min, max));
        }
        let (min, max) = values.iter().fold((first, first), |(min, max), v| (min.min(*v), max.max(*v)));
        Some(Range { min, max })
    }
}

impl IntegerChunk {
    /// Encodes an array of a type that is an integer inside.
    pub(super) fn encode<T>(
        array: &PrimitiveArray<T>,
        writes_to: WritesTo<'_>,
    ) -> Result<IntegerChunk, DeviceError>
    where
        T: ArrowPrimitiveType,
        T::Native: NativeValue,
    {
        T::Native::encode(array.values(), array.nulls(), writes_to)
    }

    /// Encodes booleans as 0 and 1.
    pub(super) fn encode_booleans(
        array: &BooleanArray,
        writes_to: WritesTo<'_>,
    ) -> Result<IntegerChunk, DeviceError> {
        let bits = match array.nulls() {
            Some(nulls) => array.values() & nulls.inner(),
            None => array.values().clone(),
        };
        let (rows, valid) = (array.len(), array.len() - array.null_count());
        if valid == 0 {
            return IntegerChunk::without_values(rows, writes_to);
        }
        let set = bits.count_set_bits();
        let range = Range::new(u8::from(set == valid), u8::from(set > 0));
        // What is under a NULL is a value of the batch too.
        let values = if set == valid { vec![1; rows] } else { bits.iter().map(u8::from).collect() };
        IntegerChunk::of_values(&values, range, writes_to)
    }

    /// Values, of which none is NULL and some may be.
    fn of_values<T: Native>(
        values: &[T],
        range: Range,
        (placing, device): WritesTo<'_>,
    ) -> Result<IntegerChunk, DeviceError> {
        let rows = values.len();
        let order = ChunkOrder::of(values);
        let stored = match placing {
            Some(placing) if placing.takes(rows, Some(range)) => {
                let width = placing.width();
                placing.push(device, rows, |out| put_integers(values, width, out))?;
                (Stored::Placed(width.scalar), range, width.base)
            }
            Some(placing) => {
                placing.skip(device, rows)?;
                narrow(values, range)
            }
            None => narrow(values, range),
        };
        let sample = spread::sample(values, Native::low);
        let step = spacing::step(values, Native::low, range);
        Ok(IntegerChunk { rows, values: Some(stored), sample, step, order })
    }

    /// Values that are at their place.
    pub(super) fn decoded(chunk: DecodedChunk) -> IntegerChunk {
        let DecodedChunk { rows, width, range, sample, step, order } = chunk;
        IntegerChunk {
            rows,
            values: Some((Stored::Placed(width.scalar), range, width.base)),
            sample,
            step,
            order,
        }
    }

    /// Rows that are all NULL.
    fn without_values(rows: usize, (placing, device): WritesTo<'_>) -> Result<IntegerChunk, DeviceError> {
        if let Some(placing) = placing {
            placing.skip(device, rows)?;
        }
        let order = if rows == 0 { ChunkOrder::NOTHING } else { ChunkOrder::NONE };
        Ok(IntegerChunk { rows, values: None, sample: Vec::new(), step: 0, order })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Some of the values, in order.
    pub(super) fn sample(&self) -> &[i64] {
        &self.sample
    }

    /// Bounds of the values that are not NULL.
    pub(super) fn range(&self) -> Option<Range> {
        self.values.as_ref().map(|(_, range, _)| *range)
    }

    /// The least value that is not NULL, and the distance that the others have multiples of, 0 where they are all equal.
    pub(super) fn steps(&self) -> Option<(i128, u64)> {
        Some((self.range()?.min, self.step))
    }

    /// The order of its values. That of values under NULLs is none of the column's.
    pub(super) fn order(&self) -> ChunkOrder {
        self.order
    }

    /// Whether its values were written to the column's place.
    pub(super) fn is_placed(&self) -> bool {
        matches!(self.values, Some((Stored::Placed(_), ..)))
    }

    /// Takes values that were written back, given the bytes of its rows there.
    pub(super) fn take_back(&mut self, bytes: &[u8]) {
        if let Some((stored, ..)) = &mut self.values
            && let Stored::Placed(scalar) = stored
        {
            *stored = match scalar {
                Scalar::U8 => Stored::U8(bytes.to_vec()),
                Scalar::U16 => Stored::U16(get(bytes, u16::from_ne_bytes)),
                Scalar::I32 => Stored::I32(get(bytes, i32::from_ne_bytes)),
                Scalar::I64 => Stored::I64(get(bytes, i64::from_ne_bytes)),
                _ => Stored::I128(get(bytes, i128::from_ne_bytes)),
            };
        }
    }

    /// Bytes of the values.
    pub(super) fn bytes(&self) -> usize {
        let width = self.values.as_ref().map_or(0, |(stored, _, _)| match stored {
            Stored::U8(_) => 1,
            Stored::U16(_) => 2,
            Stored::I32(_) => 4,
            Stored::I64(_) => 8,
            Stored::I128(_) => 16,
            Stored::Placed(scalar) => scalar.bytes() as usize,
        });
        self.rows * width
    }
}

/// Integers of Arrow that [`IntegerChunk::encode`] takes.
pub(super) trait NativeValue: Sized {
    fn encode(
        values: &[Self],
        nulls: Option<&NullBuffer>,
        writes_to: WritesTo<'_>,
    ) -> Result<IntegerChunk, DeviceError>;
}

impl<T: Native> NativeValue for T {
    fn encode(
        values: &[T],
        nulls: Option<&NullBuffer>,
        writes_to: WritesTo<'_>,
    ) -> Result<IntegerChunk, DeviceError> {
        let filled: Vec<T>;
        let values = match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => values,
            Some(nulls) => {
                // A value under a NULL becomes a value of the batch, so that it costs no width.
                let filler = nulls.valid_indices().next().and_then(|index| values.get(index));
                let Some(filler) = filler else {
                    return IntegerChunk::without_values(values.len(), writes_to);
                };
                filled = with_filler(values, nulls, *filler);
                &filled
            }
        };
        match T::bounds(values) {
            Some(range) => IntegerChunk::of_values(values, range, writes_to),
            None => IntegerChunk::without_values(0, writes_to),
        }
    }
}

/// Values, with another in place of those under NULLs.
fn with_filler<T: Copy>(values: &[T], nulls: &NullBuffer, filler: T) -> Vec<T> {
    let mut filled = values.to_vec();
    let words = nulls.inner().bit_chunks();
    for (word, out) in words.iter_padded().zip(filled.chunks_mut(64)) {
        let mut missing = !word;
        while let Some(value) = out.get_mut(missing.trailing_zeros() as usize) {
            *value = filler;
            missing &= missing - 1;
        }
    }
    filled
}

/// Values at their narrowest width, with their bounds and their base.
fn narrow<T: Native>(values: &[T], range: Range) -> (Stored, Range, i128) {
    let Width { scalar, base } = Width::of(range);
    // Where the difference fits the width, so do its lower bits: arithmetic modulo 2^64 is exact.
    let low = base as i64;
    let stored = match scalar {
        Scalar::U8 => Stored::U8(values.iter().map(|v| v.low().wrapping_sub(low) as u8).collect()),
        Scalar::U16 => Stored::U16(values.iter().map(|v| v.low().wrapping_sub(low) as u16).collect()),
        Scalar::I32 => Stored::I32(values.iter().map(|v| v.low().wrapping_sub(low) as i32).collect()),
        Scalar::I64 => Stored::I64(values.iter().map(|v| v.low().wrapping_sub(low)).collect()),
        _ => Stored::I128(values.iter().map(|v| v.wide()).collect()),
    };
    (stored, range, base)
}

/// Writes values at a width that holds all of them.
fn put_integers<T: Native>(values: &[T], width: Width, out: &mut [u8]) {
    let low = width.base as i64;
    match width.scalar {
        Scalar::U8 => put(values, out, |v| [v.low().wrapping_sub(low) as u8]),
        Scalar::U16 => put(values, out, |v| (v.low().wrapping_sub(low) as u16).to_ne_bytes()),
        Scalar::I32 => put(values, out, |v| (v.low().wrapping_sub(low) as i32).to_ne_bytes()),
        Scalar::I64 => put(values, out, |v| v.low().wrapping_sub(low).to_ne_bytes()),
        _ => put(values, out, |v| v.wide().to_ne_bytes()),
    }
}

/// The chunks as one buffer of a width that holds every value of them; `filler` is the stored value of NULLs in
/// chunks that have nothing else.
pub(super) fn store(chunks: Vec<IntegerChunk>, width: Width, filler: i128) -> Buffer {
    match width.scalar {
        Scalar::U8 => Buffer::from_vec(widen(chunks, width.base, filler as u8, |low| low as u8)),
        Scalar::U16 => Buffer::from_vec(widen(chunks, width.base, filler as u16, |low| low as u16)),
        Scalar::I32 => Buffer::from_vec(widen(chunks, width.base, filler as i32, |low| low as i32)),
        Scalar::I64 => Buffer::from_vec(widen(chunks, width.base, filler as i64, |low| low)),
        _ => Buffer::from_vec(widen_128(chunks, filler)),
    }
}

fn widen<T: Copy>(chunks: Vec<IntegerChunk>, base: i128, filler: T, of: impl Fn(i64) -> T) -> Vec<T> {
    let mut out = Vec::with_capacity(chunks.iter().map(IntegerChunk::rows).sum());
    for chunk in chunks {
        let Some((stored, _, chunk_base)) = chunk.values else {
            out.resize(out.len() + chunk.rows, filler);
            continue;
        };
        let shift = chunk_base.wrapping_sub(base) as i64;
        match stored {
            Stored::U8(values) => out.extend(values.iter().map(|v| of(i64::from(*v).wrapping_add(shift)))),
            Stored::U16(values) => out.extend(values.iter().map(|v| of(i64::from(*v).wrapping_add(shift)))),
            Stored::I32(values) => out.extend(values.iter().map(|v| of(i64::from(*v).wrapping_add(shift)))),
            Stored::I64(values) => out.extend(values.iter().map(|v| of(v.wrapping_add(shift)))),
            // A chunk this wide makes the whole column as wide; the lower bits are right in any case.
            Stored::I128(values) => out.extend(values.iter().map(|v| of((*v as i64).wrapping_add(shift)))),
            // Taken back before, or not among the chunks.
            Stored::Placed(_) => out.resize(out.len() + chunk.rows, filler),
        }
    }
    out
}

fn widen_128(chunks: Vec<IntegerChunk>, filler: i128) -> Vec<i128> {
    let mut out = Vec::with_capacity(chunks.iter().map(IntegerChunk::rows).sum());
    for chunk in chunks {
        let Some((stored, _, base)) = chunk.values else {
            out.resize(out.len() + chunk.rows, filler);
            continue;
        };
        match stored {
            Stored::U8(values) => out.extend(values.iter().map(|v| base + i128::from(*v))),
            Stored::U16(values) => out.extend(values.iter().map(|v| base + i128::from(*v))),
            Stored::I32(values) => out.extend(values.iter().map(|v| base + i128::from(*v))),
            Stored::I64(values) => out.extend(values.iter().map(|v| base + i128::from(*v))),
            Stored::I128(values) => out.extend(values),
            Stored::Placed(_) => out.resize(out.len() + chunk.rows, filler),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_width_is_taken() {
        let width = |min: i128, max: i128| {
            let Width { scalar, base } = Width::of(Range { min, max });
            (scalar, base)
        };
        assert_eq!(width(0, 255), (Scalar::U8, 0));
        assert_eq!(width(1, 256), (Scalar::U8, 1));
        assert_eq!(width(-1, 0), (Scalar::U8, -1));
        assert_eq!(width(0, 256), (Scalar::U16, 0));
        assert_eq!(width(-5, 65_530), (Scalar::U16, -5));
        assert_eq!(width(i128::MAX, i128::MAX), (Scalar::U8, i128::MAX));
        assert_eq!(width(0, 65_536), (Scalar::I32, 0));
        assert_eq!(width(i32::MIN.into(), i32::MAX.into()), (Scalar::I32, 0));
        assert_eq!(width(1 << 40, (1 << 40) + (1 << 31) - 1), (Scalar::I32, 1 << 40));
        assert_eq!(width(1 << 40, (1 << 40) + (1 << 31)), (Scalar::I64, 0));
        assert_eq!(width(i64::MIN.into(), i64::MAX.into()), (Scalar::I64, 0));
        assert_eq!(width(1, u64::MAX.into()), (Scalar::I128, 0));
        assert_eq!(width(1 << 63, u64::MAX.into()), (Scalar::I64, 1 << 63));
        assert_eq!(width(i128::MIN, i128::MAX), (Scalar::I128, 0));
    }
}
