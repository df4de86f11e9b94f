//! How values are written that Arrow writes otherwise or not at all: times, intervals, lists, structs and maps.

use std::borrow::Cow;
use std::fmt::Write as _;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, DurationNanosecondType, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{exec_datafusion_err, exec_err};
use datafusion::error::Result;

const SECOND_NS: i64 = 1_000_000_000;

/// Whether the text of a value is not the one that Arrow gives.
pub(super) fn is_written(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_written(values),
        DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => true,
        DataType::Interval(_) | DataType::Duration(_) => true,
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => true,
        DataType::Struct(_) | DataType::Map(..) => true,
        _ => false,
    }
}

/// Adds the text of each value, NULL where it is.
pub(super) fn write_all(values: &ArrayRef, texts: &mut StringBuilder) -> Result<()> {
    let writer = Writer::of(values)?;
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        writer.write(row, &mut text)?;
        texts.append_value(&text);
    }
    Ok(())
}

/// Writes the values of an array.
enum Writer {
    /// A list: the elements, and the first and last of each row.
    List {
        elements: Box<Element>,
        ends: Vec<(usize, usize)>,
    },
    Struct(Vec<(String, Element)>),
    Map {
        keys: Box<Element>,
        values: Box<Element>,
        ends: Vec<(usize, usize)>,
    },
    Interval(ArrayRef),
    /// Texts that are made of an array at once: what Arrow writes values with takes longer to make than to use.
    Texts(StringArray),
}

impl Writer {
    fn of(values: &ArrayRef) -> Result<Writer> {
        let elements = |values: &ArrayRef, offsets: &[i32]| {
            let (first, last) = bounds(offsets);
            Element::of(&values.slice(first, last - first)).map(Box::new)
        };
        Ok(match values.data_type() {
            DataType::Dictionary(_, inner) => Writer::of(&cast(values, inner)?)?,
            DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
                Writer::of(&cast(values, &DataType::List(element.clone()))?)?
            }
            DataType::List(_) => {
                let list = values.as_list::<i32>();
                let offsets = list.value_offsets();
                Writer::List { elements: elements(list.values(), offsets)?, ends: ends(offsets) }
            }
            DataType::Map(..) => {
                let map = values.as_map();
                let offsets = map.value_offsets();
                let (keys, values) = (elements(map.keys(), offsets)?, elements(map.values(), offsets)?);
                Writer::Map { keys, values, ends: ends(offsets) }
            }
            DataType::Struct(fields) => {
                let columns = values.as_struct().columns();
                let named = fields.iter().zip(columns);
                let named = named.map(|(field, column)| Ok((field.name().clone(), Element::of(column)?)));
                Writer::Struct(named.collect::<Result<_>>()?)
            }
            DataType::Interval(_) => {
                Writer::Interval(cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?)
            }
            DataType::Duration(_) => {
                Writer::Interval(cast(values, &DataType::Duration(TimeUnit::Nanosecond))?)
            }
            DataType::Timestamp(..) | DataType::Time32(_) | DataType::Time64(_) => {
                Writer::Texts(times(values)?)
            }
            DataType::Utf8 => Writer::Texts(values.as_string().clone()),
            _ => Writer::Texts(plain(values)?),
        })
    }

    fn write(&self, row: usize, text: &mut String) -> Result<()> {
        match self {
            Writer::List { elements, ends } => {
                text.push('[');
                for place in places(ends, row) {
                    elements.write_next(place, text)?;
                }
                end(text, ']');
            }
            Writer::Map { keys, values, ends } => {
                text.push('{');
                for place in places(ends, row) {
                    keys.write_next(place, text)?;
                    text.truncate(text.len() - ", ".len());
                    text.push('=');
                    values.write_next(place, text)?;
                }
                end(text, '}');
            }
            Writer::Struct(columns) => {
                text.push('{');
                for (name, column) in columns {
                    quote(name, text);
                    text.push_str(": ");
                    column.write_next(row, text)?;
                }
                end(text, '}');
            }
            Writer::Interval(values) => write_interval(interval_of(values, row), text)?,
            Writer::Texts(texts) => text.push_str(text_of(texts, row)?),
        }
        Ok(())
    }
}

/// Values within another one.
struct Element {
    values: ArrayRef,
    writer: Writer,
}

impl Element {
    fn of(values: &ArrayRef) -> Result<Element> {
        Ok(Element { values: values.clone(), writer: Writer::of(values)? })
    }

    /// Writes a value and what comes before the next one.
    fn write_next(&self, row: usize, text: &mut String) -> Result<()> {
        if self.values.is_null(row) || self.values.data_type().is_null() {
            text.push_str("NULL, ");
            return Ok(());
        }
        match &self.writer {
            Writer::Texts(texts) => write_within(text_of(texts, row)?, text),
            Writer::Interval(_) => {
                let mut own = String::new();
                self.writer.write(row, &mut own)?;
                write_within(&own, text);
            }
            writer => writer.write(row, text)?,
        }
        text.push_str(", ");
        Ok(())
    }
}

/// Adds a text within another value.
fn write_within(own: &str, text: &mut String) {
    if needs_quotes(own) { quote(own, text) } else { text.push_str(own) }
}

/// The first and last element of all rows of a list.
fn bounds(offsets: &[i32]) -> (usize, usize) {
    let end = |offset: Option<&i32>| offset.map_or(0, |offset| *offset as usize);
    (end(offsets.first()), end(offsets.last()))
}

/// The elements of each row, from the first one of all rows on.
fn ends(offsets: &[i32]) -> Vec<(usize, usize)> {
    let (first, _) = bounds(offsets);
    offsets.windows(2).map(|ends| (ends[0] as usize - first, ends[1] as usize - first)).collect()
}

fn places(ends: &[(usize, usize)], row: usize) -> std::ops::Range<usize> {
    ends.get(row).map_or(0..0, |(from, to)| *from..*to)
}

/// Ends what has values in it, without the comma behind the last one.
fn end(text: &mut String, sign: char) {
    if text.ends_with(", ") {
        text.truncate(text.len() - ", ".len());
    }
    text.push(sign);
}

/// Whether a value within another one could be taken for something else.
fn needs_quotes(value: &str) -> bool {
    const SIGNS: &[char] = &[',', '\'', '"', '[', ']', '{', '}', '(', ')', ':', '=', '\\'];
    value.is_empty()
        || value.eq_ignore_ascii_case("null")
        || value.contains(SIGNS)
        || value.starts_with(char::is_whitespace)
        || value.ends_with(char::is_whitespace)
}

fn quote(value: &str, text: &mut String) {
    text.push('\'');
    for letter in value.chars() {
        if matches!(letter, '\'' | '\\') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('\'');
}

/// The texts of values as Arrow writes them.
fn plain(values: &ArrayRef) -> Result<StringArray> {
    written(values, &FormatOptions::new().with_display_error(false), |text| Cow::Borrowed(text))
}

/// The texts of values by some options, each in the end as a function makes it.
fn written(
    values: &ArrayRef,
    options: &FormatOptions,
    made: impl Fn(&str) -> Cow<'_, str>,
) -> Result<StringArray> {
    let formatter = ArrayFormatter::try_new(values, options)?;
    let mut texts = StringBuilder::with_capacity(values.len(), 0);
    let mut text = String::new();
    for row in 0..values.len() {
        if values.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        // What lies below a NULL need not have a text, and nobody asks for it.
        match formatter.value(row).write(&mut text) {
            Ok(()) => texts.append_value(made(&text)),
            Err(_) => texts.append_null(),
        }
    }
    Ok(texts.finish())
}

/// The text of a value that is not NULL.
fn text_of(texts: &StringArray, row: usize) -> Result<&str> {
    match texts.is_valid(row) {
        true => Ok(texts.value(row)),
        false => exec_err!("a value has no text, such as a time beyond the years of a calendar"),
    }
}

/// Times with a blank behind the day, as many digits of a second as they have, and an offset of whole hours without its minutes.
fn times(values: &ArrayRef) -> Result<StringArray> {
    let options = FormatOptions::new()
        .with_display_error(false)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:z"));
    let has_offset = matches!(values.data_type(), DataType::Timestamp(_, Some(_)));
    written(values, &options, |text| {
        // The sign before a year of five digits is not SQL's.
        let text = text.strip_prefix('+').unwrap_or(text);
        let (clock, offset) = match has_offset {
            true => text.split_at(text.len().saturating_sub("+00:00".len())),
            false => (text, ""),
        };
        let clock = match clock.contains('.') {
            true => clock.trim_end_matches('0').trim_end_matches('.'),
            false => clock,
        };
        match offset.is_empty() {
            true => Cow::Borrowed(clock),
            false => Cow::Owned(format!("{clock}{}", offset.strip_suffix(":00").unwrap_or(offset))),
        }
    })
}

fn interval_of(values: &ArrayRef, row: usize) -> IntervalMonthDayNano {
    match values.data_type() {
        DataType::Duration(_) => {
            let all = values.as_primitive::<DurationNanosecondType>().value(row);
            IntervalMonthDayNano::new(0, 0, all)
        }
        _ => values.as_primitive::<IntervalMonthDayNanoType>().value(row),
    }
}

/// Years, months, days and the time as a clock shows it, each where there is some.
fn write_interval(interval: IntervalMonthDayNano, text: &mut String) -> Result<()> {
    let begin = text.len();
    let parts = [(interval.months / 12, "year"), (interval.months % 12, "month"), (interval.days, "day")];
    let failed = |_| exec_datafusion_err!("an interval has no text");
    for (number, unit) in parts.into_iter().filter(|(number, _)| *number != 0) {
        let plural = if number.unsigned_abs() == 1 { "" } else { "s" };
        write!(text, "{number} {unit}{plural} ").map_err(failed)?;
    }
    if interval.nanoseconds == 0 && text.len() > begin {
        text.pop();
        return Ok(());
    }
    let sign = if interval.nanoseconds < 0 { "-" } else { "" };
    let all = interval.nanoseconds.unsigned_abs();
    let (seconds, fraction) = (all / SECOND_NS as u64, all % SECOND_NS as u64);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    write!(text, "{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60).map_err(failed)?;
    if fraction != 0 {
        text.push_str(format!(".{fraction:09}").trim_end_matches('0'));
    }
    Ok(())
}
