//! Integers of Parquet files, as narrow as they come, and floats.
//!
//! The engine stores integers, days, times and decimals as narrow integers. Where a dictionary has them, their bounds are known before
//! any row is looked at, so that each row becomes a narrow integer at once.

use std::iter::repeat_n;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Decimal32Array, Decimal64Array, Float32Array, Float64Array, Int32Array, Int64Array,
    NullBufferBuilder, UInt8Array, UInt16Array, UInt64Array,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, DecimalType};
use datafusion::parquet::basic::Type;

use super::packed::Run;

/// What the integers of a column are, or its floats, which are read by their bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Integers {
    /// Bytes of one in the file: 4 or 8.
    pub(super) bytes: usize,
    reading: Reading,
    /// Digits and scale.
    decimal: Option<(u8, i8)>,
}

/// How the bits of an integer are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Signed,
    Int8,
    Int16,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    /// The bits of a float.
    Float,
}

impl Integers {
    /// Those of a table's type in a column that has them as such; `None` where they are no integers inside and no floats, or of more bits.
    pub(super) fn of(table: &DataType, physical: Type) -> Option<Integers> {
        use DataType::*;
        let bytes = match physical {
            Type::INT32 | Type::FLOAT => 4,
            Type::INT64 | Type::DOUBLE => 8,
            _ => return None,
        };
        let is_float = matches!(physical, Type::FLOAT | Type::DOUBLE);
        let (reading, decimal) = match (table, bytes) {
            (Float32, 4) | (Float64, 8) if is_float => (Reading::Float, None),
            _ if is_float => return None,
            (Int32 | Date32, 4) | (Int64, 8) | (Timestamp(_, _), _) => (Reading::Signed, None),
            (Int8, 4) => (Reading::Int8, None),
            (Int16, 4) => (Reading::Int16, None),
            (UInt8, 4) => (Reading::UInt8, None),
            (UInt16, 4) => (Reading::UInt16, None),
            (UInt32, 4) => (Reading::UInt32, None),
            (UInt64, 8) => (Reading::UInt64, None),
            (Decimal128(precision @ ..=9, scale), 4) | (Decimal128(precision @ ..=18, scale), 8) => {
                (Reading::Signed, Some((*precision, *scale)))
            }
            _ => return None,
        };
        Some(Integers { bytes, reading, decimal })
    }

    /// What an integer of a file stands for. Bits that its type has not are left out, as Arrow does.
    fn value(self, bits: i64) -> i64 {
        match self.reading {
            Reading::Signed | Reading::UInt64 | Reading::Float => bits,
            Reading::Int8 => i64::from(bits as i8),
            Reading::Int16 => i64::from(bits as i16),
            Reading::UInt8 => i64::from(bits as u8),
            Reading::UInt16 => i64::from(bits as u16),
            Reading::UInt32 => i64::from(bits as u32),
        }
    }

    /// The width of values that stand in a file one behind the other, of which nothing is known.
    fn plain_width(self) -> Width {
        match (self.bytes, self.reading) {
            (4, Reading::UInt32) | (8, _) => Width::I64,
            _ => Width::I32,
        }
    }

    /// The integers that are written one behind the other in some bytes.
    fn plain(self, bytes: &[u8]) -> impl ExactSizeIterator<Item = i64> {
        // A chunk has four or eight bytes.
        bytes.chunks_exact(self.bytes).map(move |bytes| {
            self.value(match (bytes.first_chunk(), bytes.first_chunk()) {
                (_, Some(bytes)) => i64::from_le_bytes(*bytes),
                (Some(bytes), None) => i64::from(i32::from_le_bytes(*bytes)),
                (None, None) => 0,
            })
        })
    }

    /// A dictionary of so many entries, or what is wrong with it.
    pub(super) fn dictionary(self, bytes: &[u8], entries: usize) -> Result<Values, String> {
        let length = entries.checked_mul(self.bytes).filter(|length| *length <= bytes.len());
        let length = length.ok_or("its dictionary has fewer entries than it says")?;
        let bytes = bytes.get(..length).unwrap_or_default();
        let values: Vec<i64> = self.plain(bytes).collect();
        let width = self.width(&values);
        Ok(Values::I64(values).at(width))
    }

    /// Whether they are floats.
    pub(super) fn are_floats(self) -> bool {
        self.reading == Reading::Float
    }

    /// The narrowest width that has all of some values.
    fn width(self, values: &[i64]) -> Width {
        if self.are_floats() {
            return self.plain_width();
        }
        let (min, max) =
            values.iter().fold((0i64, 0i64), |(min, max), value| (min.min(*value), max.max(*value)));
        let most = self.decimal.map(|(precision, _)| {
            let most = Decimal64Type::MAX_FOR_EACH_PRECISION.get(usize::from(precision));
            most.copied().unwrap_or_default()
        });
        // More digits than a decimal may have are an error only where a row has them, and rows are looked at where values are wide. From
        // 2^63 on the bits of an integer without a sign have another meaning in fewer.
        let is_beyond = most.is_some_and(|most| min < -most || max > most);
        if is_beyond || (self.reading == Reading::UInt64 && min < 0) {
            return Width::I64;
        }
        match (u8::try_from(min), u8::try_from(max), u16::try_from(min), u16::try_from(max)) {
            (Ok(_), Ok(_), ..) => Width::U8,
            (_, _, Ok(_), Ok(_)) => Width::U16,
            _ if i32::try_from(min).is_ok() && i32::try_from(max).is_ok() => Width::I32,
            _ => Width::I64,
        }
    }
}

/// Widths of integers; each has all values of those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    U8,
    U16,
    I32,
    I64,
}

/// Integers of some width.
#[derive(Debug)]
pub(super) enum Values {
    U8(Vec<u8>),
    U16(Vec<u16>),
    I32(Vec<i32>),
    I64(Vec<i64>),
}

/// An integer of some width.
trait Integer: Copy + Default {
    /// The value, or its lower bits.
    fn of(value: i64) -> Self;
    fn wide(self) -> i64;
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            fn of(value: i64) -> Self {
                value as $type
            }
            fn wide(self) -> i64 {
                i64::from(self)
            }
        }
    )*};
}
integer!(u8 u16 i32 i64);

/// Does the same with the values of any width.
macro_rules! of_any_width {
    ($values:expr, $of_width:ident => $result:expr) => {
        match $values {
            Values::U8($of_width) => $result,
            Values::U16($of_width) => $result,
            Values::I32($of_width) => $result,
            Values::I64($of_width) => $result,
        }
    };
}

impl Values {
    fn width(&self) -> Width {
        match self {
            Values::U8(_) => Width::U8,
            Values::U16(_) => Width::U16,
            Values::I32(_) => Width::I32,
            Values::I64(_) => Width::I64,
        }
    }

    /// The values at the greatest width.
    pub(super) fn into_wide(self) -> Vec<i64> {
        match self.at(Width::I64) {
            Values::I64(values) => values,
            Values::U8(_) | Values::U16(_) | Values::I32(_) => Vec::new(),
        }
    }

    /// The same values at another width, which has them all.
    fn at(self, width: Width) -> Values {
        fn all<S: Integer, T: Integer>(values: &[S]) -> Vec<T> {
            values.iter().map(|value| T::of(value.wide())).collect()
        }
        if self.width() == width {
            return self;
        }
        of_any_width!(&self, values => match width {
            Width::U8 => Values::U8(all(values)),
            Width::U16 => Values::U16(all(values)),
            Width::I32 => Values::I32(all(values)),
            Width::I64 => Values::I64(all(values)),
        })
    }
}

/// Adds the values of a dictionary's places; `false` where it has not all of these.
fn gather<S: Integer, T: Integer>(out: &mut Vec<T>, dictionary: &[S], places: &Run<'_>) -> bool {
    let mut has_all = true;
    let mut value = |place: u32| {
        let value = dictionary.get(place as usize);
        has_all &= value.is_some();
        T::of(value.copied().unwrap_or_default().wide())
    };
    match places {
        Run::Same(place, count) => out.extend(repeat_n(value(*place), *count)),
        Run::Each(places) => out.extend(places.iter().map(|place| value(*place))),
    }
    has_all
}

/// Moves values that stand one behind the other from some place on to the rows that have one. A row that has none gets any of them, so that
/// nothing depends on which these are.
fn spread<T: Integer>(values: &mut Vec<T>, from: usize, valid: &BooleanBuffer) {
    let mut behind = values.len() - from;
    values.resize(from + valid.len(), T::default());
    let rows = values.get_mut(from..).unwrap_or_default();
    let words: Vec<u64> = valid.bit_chunks().iter_padded().collect();
    for row in (0..rows.len()).rev() {
        let is_valid = words.get(row / 64).is_some_and(|word| word >> (row % 64) & 1 == 1);
        behind -= usize::from(is_valid);
        rows[row] = rows[behind];
    }
}

/// The integers of a batch, while it is read.
#[derive(Debug)]
pub(super) struct Batch {
    rows: usize,
    values: Values,
    nulls: NullBufferBuilder,
}

impl Batch {
    /// For so many rows.
    pub(super) fn new(rows: usize) -> Batch {
        Batch { rows, values: Values::U8(Vec::new()), nulls: NullBufferBuilder::new(rows) }
    }

    /// Makes room for values of a width behind those that are there.
    fn prepare(&mut self, width: Width) {
        if width > self.values.width() {
            let values = std::mem::replace(&mut self.values, Values::U8(Vec::new()));
            self.values = values.at(width);
        }
        let rows = self.rows;
        of_any_width!(&mut self.values, values => values.reserve(rows.saturating_sub(values.len())));
    }

    /// Adds the values of a dictionary's places; `false` where it has not all of these.
    pub(super) fn push_places(&mut self, dictionary: &Values, places: &Run<'_>) -> bool {
        self.prepare(dictionary.width());
        of_any_width!(&mut self.values, values => {
            of_any_width!(dictionary, dictionary => gather(values, dictionary, places))
        })
    }

    /// Adds places in a dictionary of so many entries as they are; `false` where it has not all of these.
    pub(super) fn push_as_places(&mut self, entries: usize, places: &Run<'_>) -> bool {
        fn extend<T: Integer>(out: &mut Vec<T>, places: &Run<'_>) -> Option<u32> {
            match places {
                Run::Same(place, count) => {
                    out.extend(repeat_n(T::of(i64::from(*place)), *count));
                    Some(*place)
                }
                Run::Each(places) => {
                    out.extend(places.iter().map(|place| T::of(i64::from(*place))));
                    places.iter().copied().max()
                }
            }
        }
        self.prepare(match entries {
            ..=0x100 => Width::U8,
            0x101..=0x1_0000 => Width::U16,
            _ => Width::I32,
        });
        let greatest = of_any_width!(&mut self.values, values => extend(values, places));
        greatest.is_none_or(|greatest| (greatest as usize) < entries)
    }

    /// Adds values that are written one behind the other.
    pub(super) fn push_plain(&mut self, integers: Integers, bytes: &[u8]) {
        fn extend<T: Integer>(out: &mut Vec<T>, integers: Integers, bytes: &[u8]) {
            // Of each kind a loop of its own.
            match (integers.reading, integers.bytes) {
                (Reading::Signed | Reading::UInt64 | Reading::Float, 8) => {
                    let (values, _) = bytes.as_chunks::<8>();
                    out.extend(values.iter().map(|bytes| T::of(i64::from_le_bytes(*bytes))));
                }
                (Reading::Signed | Reading::Float, _) => {
                    let (values, _) = bytes.as_chunks::<4>();
                    out.extend(values.iter().map(|bytes| T::of(i64::from(i32::from_le_bytes(*bytes)))));
                }
                _ => out.extend(integers.plain(bytes).map(T::of)),
            }
        }
        self.prepare(integers.plain_width());
        of_any_width!(&mut self.values, values => extend(values, integers, bytes));
    }

    /// Values that are there.
    pub(super) fn len(&self) -> usize {
        of_any_width!(&self.values, values => values.len())
    }

    /// Says which rows the values have that were added since there were so many; `None`: one each.
    pub(super) fn end_rows(&mut self, from: usize, valid: Option<BooleanBuffer>) {
        match valid {
            Some(valid) => {
                of_any_width!(&mut self.values, values => spread(values, from, &valid));
                self.nulls.append_buffer(&NullBuffer::new(valid));
            }
            None => self.nulls.append_n_non_nulls(self.len() - from),
        }
    }

    /// The rows' values, and which rows have none.
    pub(super) fn into_values(mut self) -> (Values, Option<NullBuffer>) {
        let nulls = self.nulls.finish();
        (self.values, nulls)
    }

    /// The rows, as an array of some integers. Decimals of which nobody has looked at the digits are an array of decimals.
    pub(super) fn finish(self, integers: Integers) -> Result<ArrayRef, String> {
        let (values, nulls) = self.into_values();
        if integers.are_floats() {
            // Rows that are all NULL have no width of their own.
            return Ok(match values.at(integers.plain_width()) {
                Values::I64(values) => {
                    let values: ScalarBuffer<f64> = Buffer::from_vec(values).into();
                    Arc::new(Float64Array::new(values, nulls))
                }
                Values::I32(values) => {
                    let values: ScalarBuffer<f32> = Buffer::from_vec(values).into();
                    Arc::new(Float32Array::new(values, nulls))
                }
                Values::U8(_) | Values::U16(_) => return Err("floats are of 32 or 64 bits".into()),
            });
        }
        let array: ArrayRef = match (values, integers.decimal) {
            (Values::U8(values), _) => Arc::new(UInt8Array::new(values.into(), nulls)),
            (Values::U16(values), _) => Arc::new(UInt16Array::new(values.into(), nulls)),
            (Values::I32(values), Some((precision, scale))) if precision <= Decimal32Type::MAX_PRECISION => {
                let array = Decimal32Array::new(values.into(), nulls);
                Arc::new(array.with_precision_and_scale(precision, scale).map_err(|error| error.to_string())?)
            }
            (Values::I32(values), _) => Arc::new(Int32Array::new(values.into(), nulls)),
            (Values::I64(values), Some((precision, scale))) => {
                let array = Decimal64Array::new(values.into(), nulls);
                Arc::new(array.with_precision_and_scale(precision, scale).map_err(|error| error.to_string())?)
            }
            (Values::I64(values), None) if integers.reading == Reading::UInt64 => {
                let values: ScalarBuffer<u64> = Buffer::from_vec(values).into();
                Arc::new(UInt64Array::new(values, nulls))
            }
            (Values::I64(values), None) => Arc::new(Int64Array::new(values.into(), nulls)),
        };
        Ok(array)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::{
        Float32Type, Float64Type, Int32Type, Int64Type, TimeUnit, UInt64Type,
    };

    use super::*;

    fn of(table: &DataType, physical: Type) -> Integers {
        Integers::of(table, physical).unwrap()
    }

    fn longs(values: &[i64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The type of an array of some entries of a dictionary.
    fn type_of(integers: Integers, entries: &[i64]) -> DataType {
        let bytes: Vec<u8> = match integers.bytes {
            4 => entries.iter().flat_map(|value| (*value as i32).to_le_bytes()).collect(),
            _ => longs(entries),
        };
        let dictionary = integers.dictionary(&bytes, entries.len()).unwrap();
        let mut batch = Batch::new(1);
        assert!(batch.push_places(&dictionary, &Run::Same(0, 1)));
        batch.end_rows(0, None);
        batch.finish(integers).unwrap().data_type().clone()
    }

    #[test]
    fn dictionaries_are_as_narrow_as_their_values() {
        let long = of(&DataType::Int64, Type::INT64);
        assert_eq!(type_of(long, &[0, 255]), DataType::UInt8);
        assert_eq!(type_of(long, &[256]), DataType::UInt16);
        assert_eq!(type_of(long, &[65_536]), DataType::Int32);
        assert_eq!(type_of(long, &[5, -1]), DataType::Int32);
        assert_eq!(type_of(long, &[1 << 31]), DataType::Int64);
        assert_eq!(
            type_of(of(&DataType::Timestamp(TimeUnit::Second, None), Type::INT64), &[9]),
            DataType::UInt8
        );
        // Bits that a type has not, and those from 2^63 on.
        assert_eq!(type_of(of(&DataType::UInt8, Type::INT32), &[-1]), DataType::UInt8);
        assert_eq!(type_of(of(&DataType::UInt32, Type::INT32), &[-1]), DataType::Int64);
        let unsigned = of(&DataType::UInt64, Type::INT64);
        assert_eq!(type_of(unsigned, &[-1]), DataType::UInt64);
        assert_eq!(type_of(unsigned, &[70_000]), DataType::Int32);
        // Digits of decimals are looked at by rows where one has too many.
        let decimal = of(&DataType::Decimal128(4, 1), Type::INT64);
        assert_eq!(type_of(decimal, &[9_999, 0]), DataType::UInt16);
        assert_eq!(type_of(decimal, &[-9_999]), DataType::Decimal32(4, 1));
        assert_eq!(type_of(decimal, &[10_000]), DataType::Decimal64(4, 1));
        for (table, physical) in [
            (DataType::Int64, Type::INT32),
            (DataType::Float64, Type::FLOAT),
            (DataType::Int64, Type::DOUBLE),
            (DataType::Float32, Type::INT32),
            (DataType::Decimal128(10, 0), Type::INT32),
            (DataType::Decimal128(19, 0), Type::INT64),
            (DataType::Decimal128(9, 0), Type::FIXED_LEN_BYTE_ARRAY),
            (DataType::Timestamp(TimeUnit::Nanosecond, None), Type::INT96),
        ] {
            assert!(Integers::of(&table, physical).is_none(), "{table}");
        }
    }

    #[test]
    fn places_that_a_dictionary_has_not_are_told() {
        let long = of(&DataType::Int64, Type::INT64);
        let dictionary = long.dictionary(&longs(&[7, 8]), 2).unwrap();
        for places in [Run::Same(2, 5), Run::Each(&[0, 1, 2]), Run::Each(&[u32::MAX])] {
            assert!(!Batch::new(9).push_places(&dictionary, &places), "{places:?}");
        }
        assert!(long.dictionary(&longs(&[7, 8]), 3).is_err() && long.dictionary(&[], usize::MAX).is_err());
        let empty = long.dictionary(&[], 0).unwrap();
        assert!(!Batch::new(9).push_places(&empty, &Run::Same(0, 1)));
    }

    #[test]
    fn rows_come_in_the_widest_form_that_a_batch_needs() {
        let long = of(&DataType::Int64, Type::INT64);
        let dictionary = long.dictionary(&longs(&[7, 8]), 2).unwrap();
        let mut batch = Batch::new(6);
        assert!(batch.push_places(&dictionary, &Run::Each(&[1, 0])));
        batch.end_rows(0, Some(BooleanBuffer::from(vec![false, true, false, true])));
        batch.push_plain(long, &longs(&[-5_000_000_000]));
        batch.end_rows(4, None);
        assert!(batch.push_places(&dictionary, &Run::Same(1, 1)));
        batch.end_rows(5, None);
        let array = batch.finish(long).unwrap();
        let array = array.as_primitive::<Int64Type>();
        let rows: Vec<_> = array.iter().collect();
        assert_eq!(rows, [None, Some(8), None, Some(7), Some(-5_000_000_000), Some(8)]);
        // Rows that are all NULL come before others, and alone.
        let mut batch = Batch::new(3);
        batch.end_rows(0, Some(BooleanBuffer::new_unset(2)));
        batch.push_plain(of(&DataType::Int32, Type::INT32), &(-3i32).to_le_bytes());
        batch.end_rows(2, None);
        let array = batch.finish(of(&DataType::Int32, Type::INT32)).unwrap();
        assert_eq!(array.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(), [None, None, Some(-3)]);
        let mut batch = Batch::new(2);
        batch.end_rows(0, Some(BooleanBuffer::new_unset(2)));
        assert_eq!(batch.finish(long).unwrap().null_count(), 2);
    }

    #[test]
    fn plain_values_are_read_by_their_types() {
        let read = |integers: Integers, bytes: &[u8]| {
            let mut batch = Batch::new(2);
            batch.push_plain(integers, bytes);
            batch.end_rows(0, None);
            batch.finish(integers).unwrap()
        };
        let small: Vec<u8> = [-1i32, 300].iter().flat_map(|value| value.to_le_bytes()).collect();
        let ints = |table: DataType| {
            read(of(&table, Type::INT32), &small).as_primitive::<Int32Type>().values().to_vec()
        };
        assert_eq!(ints(DataType::Int32), [-1, 300]);
        assert_eq!(ints(DataType::Int8), [-1, 44]);
        assert_eq!(ints(DataType::UInt8), [255, 44]);
        assert_eq!(ints(DataType::UInt16), [65_535, 300]);
        let array = read(of(&DataType::UInt32, Type::INT32), &small);
        assert_eq!(array.as_primitive::<Int64Type>().values().to_vec(), [4_294_967_295, 300]);
        let array = read(of(&DataType::UInt64, Type::INT64), &longs(&[-1, 5]));
        assert_eq!(array.as_primitive::<UInt64Type>().values().to_vec(), [u64::MAX, 5]);
        let array = read(of(&DataType::Decimal128(18, 2), Type::INT64), &longs(&[-1, 5]));
        assert_eq!(array.data_type(), &DataType::Decimal64(18, 2));
    }

    #[test]
    fn floats_are_read_by_their_bits() {
        let double = of(&DataType::Float64, Type::DOUBLE);
        let values = [1.5, f64::NAN, -0.0, f64::MIN_POSITIVE];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dictionary = double.dictionary(&bytes, 4).unwrap();
        let mut batch = Batch::new(7);
        batch.end_rows(0, Some(BooleanBuffer::new_unset(1)));
        batch.push_plain(double, &bytes);
        batch.end_rows(1, None);
        assert!(batch.push_places(&dictionary, &Run::Each(&[2, 0])));
        batch.end_rows(5, None);
        let array = batch.finish(double).unwrap();
        let array = array.as_primitive::<Float64Type>();
        let bits = |value: f64| value.to_bits();
        let expected = [values.as_slice(), &[-0.0, 1.5]].concat();
        assert!(array.is_null(0));
        assert_eq!(
            array.values()[1..].iter().map(|value| bits(*value)).collect::<Vec<_>>(),
            expected.into_iter().map(bits).collect::<Vec<_>>()
        );
        let single = of(&DataType::Float32, Type::FLOAT);
        let mut batch = Batch::new(2);
        batch.push_plain(single, &(-2.5f32).to_le_bytes());
        batch.end_rows(0, Some(BooleanBuffer::from(vec![false, true])));
        let array = batch.finish(single).unwrap();
        assert_eq!(array.as_primitive::<Float32Type>().iter().collect::<Vec<_>>(), [None, Some(-2.5)]);
        let mut batch = Batch::new(3);
        batch.end_rows(0, Some(BooleanBuffer::new_unset(3)));
        let array = batch.finish(single).unwrap();
        assert_eq!((array.data_type(), array.null_count()), (&DataType::Float32, 3));
    }
}
