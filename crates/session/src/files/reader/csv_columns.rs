//! Columns from the rows of CSV that were cut: of the types that are found out, in one step from text to array. What is written in another
//! form than the one that nearly all files have is left to Arrow's parsers, value by value or as a column.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, PrimitiveArray, PrimitiveBuilder, StringBuilder,
};
use datafusion::arrow::compute::kernels::cast_utils::Parser;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float64Type, Int64Type, SchemaRef, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::error::{DataFusionError, Result};

use super::csv::typed;
use super::csv_rows::{CsvRows, CutRows, RowError};
use super::iso_times::IsoTime;
use super::text::OPEN_QUOTE;
use crate::files::dialect::Dialect;
use crate::files::error::at;
use crate::files::misfit::NOT_UTF8;

/// Powers of ten that a float holds exactly, by which a whole number that it holds exactly is divided with one rounding.
const POWERS: [f64; 16] =
    [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
/// Digits of numbers that a float holds exactly.
const EXACT_DIGITS: usize = 15;

/// Whether columns of a type are read here.
pub(super) fn reads(data_type: &DataType, dialect: &Dialect) -> bool {
    use DataType::{Boolean, Date32, Float64, Int64, Timestamp, Utf8, Utf8View};
    matches!(data_type, Boolean | Int64 | Float64 | Date32 | Timestamp(_, None) | Utf8 | Utf8View)
        && !dialect.forms.concern(data_type)
}

/// The rows of a text in the types of some of its columns.
pub(super) struct CsvBatches<R> {
    pub rows: CsvRows<R>,
    /// The columns that are read, in their order in the file.
    pub schema: SchemaRef,
    pub dialect: Dialect,
    /// Whether the types come from all rows: else a value may have more than its type, which must not be cut off.
    pub is_complete: bool,
    pub path: PathBuf,
    pub batch_size: usize,
}

impl<R: Read> CsvBatches<R> {
    /// Leaves a header out.
    pub fn skip_row(&mut self) -> Result<()> {
        self.rows.advance(1).map(|_| ()).map_err(|error| failed(error, &self.path))
    }

    fn batch(&mut self) -> Result<Option<RecordBatch>> {
        let CsvBatches { rows, schema, dialect, is_complete, path, batch_size } = self;
        let Some(rows) = rows.advance(*batch_size).map_err(|error| failed(error, path))? else {
            return Ok(None);
        };
        let batch = Batch { rows, dialect, path, is_complete: *is_complete };
        let columns = schema.fields().iter().enumerate();
        let columns = columns.map(|(column, field)| batch.column(column, field.data_type()));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.rows));
        Ok(Some(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?))
    }
}

/// As an error of Arrow's reader: then the row is looked for, to name its line.
fn failed(error: RowError, path: &Path) -> DataFusionError {
    let problem = match error {
        RowError::Io(error) => return at(path, error),
        RowError::OpenQuote => return at(path, OPEN_QUOTE),
        RowError::Values { found, columns } => {
            format!("a row has {found} values, and the table {columns} columns")
        }
        RowError::NotUtf8 => NOT_UTF8.to_string(),
        RowError::TooLong => "a row has more than a gigabyte".to_string(),
    };
    ArrowError::CsvError(format!("{}: {problem}", path.display())).into()
}

/// Rows that become a batch.
struct Batch<'a> {
    rows: CutRows<'a>,
    dialect: &'a Dialect,
    path: &'a Path,
    is_complete: bool,
}

impl Batch<'_> {
    /// The values of a column of the batch.
    fn column(&self, column: usize, data_type: &DataType) -> Result<ArrayRef> {
        let times = |unit| move |text: &str| IsoTime::parse(text.as_bytes())?.in_units(unit);
        let array = match data_type {
            DataType::Int64 => Some(self.parsed::<Int64Type>(column, data_type, whole)?),
            DataType::Float64 => Some(self.parsed::<Float64Type>(column, data_type, float)?),
            DataType::Boolean => Some(self.truths(column)?),
            DataType::Date32 => {
                self.in_form::<Date32Type>(column, |text| IsoTime::parse(text.as_bytes())?.date())?
            }
            DataType::Timestamp(unit, _) => match unit {
                TimeUnit::Second => self.in_form::<TimestampSecondType>(column, times(*unit))?,
                TimeUnit::Millisecond => self.in_form::<TimestampMillisecondType>(column, times(*unit))?,
                TimeUnit::Microsecond => self.in_form::<TimestampMicrosecondType>(column, times(*unit))?,
                TimeUnit::Nanosecond => self.in_form::<TimestampNanosecondType>(column, times(*unit))?,
            },
            _ => None,
        };
        if let Some(array) = array {
            return Ok(array);
        }
        let texts = self.texts(column)?;
        if self.is_complete && texts.data_type() != data_type {
            let options = CastOptions { safe: false, format_options: FormatOptions::default() };
            return Ok(cast_with_options(&texts, data_type, &options)?);
        }
        typed(&texts, data_type, &self.dialect.forms)
    }

    /// The values of a column; nothing stands for NULL.
    fn values(&self, column: usize) -> impl Iterator<Item = Result<Option<Cow<'_, str>>>> {
        self.rows.values(column).map(|value| {
            let value = value.ok_or_else(|| at(self.path, NOT_UTF8))?;
            Ok(Some(value).filter(|value| !self.dialect.is_null(value)))
        })
    }

    /// Values of which each is read by itself.
    fn parsed<T>(
        &self,
        column: usize,
        data_type: &DataType,
        parse: impl Fn(&str) -> Option<T::Native>,
    ) -> Result<ArrayRef>
    where
        T: ArrowPrimitiveType,
    {
        let values = self.values(column).map(|value| {
            let Some(value) = value? else { return Ok(None) };
            match parse(&value) {
                Some(value) => Ok(Some(value)),
                None => Err(ArrowError::ParseError(format!("'{value}' is no {data_type}")).into()),
            }
        });
        Ok(Arc::new(values.collect::<Result<PrimitiveArray<T>>>()?))
    }

    /// Values that are all in the form that is read fast; nothing where one is not.
    fn in_form<T>(&self, column: usize, parse: impl Fn(&str) -> Option<T::Native>) -> Result<Option<ArrayRef>>
    where
        T: ArrowPrimitiveType,
    {
        let mut values = PrimitiveBuilder::<T>::new();
        for value in self.values(column) {
            match value?.map(|value| parse(&value)) {
                None => values.append_null(),
                Some(Some(value)) => values.append_value(value),
                Some(None) => return Ok(None),
            }
        }
        Ok(Some(Arc::new(values.finish())))
    }

    fn truths(&self, column: usize) -> Result<ArrayRef> {
        let values = self.values(column).map(|value| {
            let Some(value) = value? else { return Ok(None) };
            let is_word = |word: &str| value.eq_ignore_ascii_case(word);
            match (is_word("true"), is_word("false")) {
                (false, false) => Err(ArrowError::ParseError(format!("'{value}' is no Boolean")).into()),
                (is_true, _) => Ok(Some(is_true)),
            }
        });
        Ok(Arc::new(values.collect::<Result<BooleanArray>>()?))
    }

    fn texts(&self, column: usize) -> Result<ArrayRef> {
        let mut texts = StringBuilder::new();
        for value in self.values(column) {
            texts.append_option(value?);
        }
        Ok(Arc::new(texts.finish()))
    }
}

impl<R: Read> Iterator for CsvBatches<R> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        self.batch().transpose()
    }
}

/// A whole number: of up to eighteen digits here, others by Arrow.
fn whole(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !(1..=18).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Int64Type::parse(text);
    }
    let number = digits.bytes().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
    Some(if digits.len() < text.len() { -number } else { number })
}

/// A float: where a float holds its digits exactly by one division, else by Arrow.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mut number, mut digits, mut point) = (0_u64, 0, None);
    for byte in unsigned.bytes() {
        match byte {
            b'0'..=b'9' if digits < EXACT_DIGITS => {
                (number, digits) = (number * 10 + u64::from(byte - b'0'), digits + 1);
            }
            b'.' if point.is_none() && digits > 0 => point = Some(digits),
            _ => return Float64Type::parse(text),
        }
    }
    let places = point.map_or(0, |point| digits - point);
    if digits == 0 || (places == 0 && point.is_some()) {
        return Float64Type::parse(text);
    }
    let value = number as f64 / POWERS[places];
    Some(if unsigned.len() < text.len() { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::{Float64Type, Int64Type, Parser, float, whole};

    #[test]
    fn numbers_are_those_of_arrow() {
        let texts = [
            "0", "-0", "7", "-42", "+5", "007", "999999999999999999", "1000000000000000000",
            "9223372036854775807", "-9223372036854775808", "9223372036854775808", "", "-", "1a", " 1", "1 ",
            "0.1", "-0.0", "0.3", "123.456", "3.", ".5", "1e3", "1.7976931348623157e308",
            "0.000000000000001", "123456789012345", "1234567890123456", "0.123456789012345",
            "99999.9999999999", "1.2.3", "NaN", "nan", "inf", "-inf", "١", "1,5", "--1", "1_000",
        ];
        for text in texts {
            assert_eq!(whole(text), Int64Type::parse(text), "{text}");
            let bits = |value: Option<f64>| value.map(f64::to_bits);
            assert_eq!(bits(float(text)), bits(Float64Type::parse(text)), "{text}");
        }
        for number in 0..100_000_u64 {
            let number = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000_000_000;
            for places in [1, 2, 5, 9, 14] {
                let digits = format!("{number:015}");
                let (whole, part) = digits.split_at(15 - places);
                let text = format!("{whole}.{part}");
                assert_eq!(float(&text), Float64Type::parse(&text), "{text}");
            }
        }
    }
}
