//! `to_char` of many times by a format that is written out.
//!
//! DataFusion's goes through the format for each row again. Here its parts are read once, and what they ask of a time is written digit by
//! digit. Other formats, and times of zones or of years that have not four digits, stay DataFusion's.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::{ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::functions::datetime::to_char::ToCharFunc;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use crate::function_methods::of_inner;
use crate::zones::ticks_of_second;

/// `to_char`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct WrittenTimes {
    inner: Arc<ScalarUDF>,
}

impl WrittenTimes {
    /// The function in the place of DataFusion's.
    pub fn of(function: &Arc<ScalarUDF>) -> Option<ScalarUDF> {
        let inner = Arc::clone(function);
        function.inner().is::<ToCharFunc>().then(|| ScalarUDF::from(WrittenTimes { inner }))
    }
}

impl ScalarUDFImpl for WrittenTimes {
    of_inner!(name, aliases, signature, return_type, documentation);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let [ColumnarValue::Array(times), ColumnarValue::Scalar(ScalarValue::Utf8(Some(format)))] =
            args.args.as_slice()
            && let Some(parts) = parts_of(format)
            && let Some(written) = written(times, &parts)?
        {
            return Ok(ColumnarValue::Array(written));
        }
        self.inner.invoke_with_args(args)
    }
}

/// A part of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Letter(char),
    Year,
    YearOfCentury,
    Month,
    MonthName { is_short: bool },
    Day,
    DayOfYear,
    DayName { is_short: bool },
    Hour,
    HourOfHalf,
    Half,
    Minute,
    Second,
    Nanoseconds,
}

/// The parts of a format of chrono's; nothing where one is not known here.
fn parts_of(format: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            parts.push(Part::Letter(letter));
            continue;
        }
        match letters.next()? {
            'Y' => parts.push(Part::Year),
            'y' => parts.push(Part::YearOfCentury),
            'm' => parts.push(Part::Month),
            'b' | 'h' => parts.push(Part::MonthName { is_short: true }),
            'B' => parts.push(Part::MonthName { is_short: false }),
            'd' => parts.push(Part::Day),
            'j' => parts.push(Part::DayOfYear),
            'a' => parts.push(Part::DayName { is_short: true }),
            'A' => parts.push(Part::DayName { is_short: false }),
            'H' => parts.push(Part::Hour),
            'I' => parts.push(Part::HourOfHalf),
            'p' => parts.push(Part::Half),
            'M' => parts.push(Part::Minute),
            'S' => parts.push(Part::Second),
            'f' => parts.push(Part::Nanoseconds),
            'F' => parts.extend([Part::Year, Part::Letter('-'), Part::Month, Part::Letter('-'), Part::Day]),
            'T' => {
                parts.extend([Part::Hour, Part::Letter(':'), Part::Minute, Part::Letter(':'), Part::Second]);
            }
            '%' => parts.push(Part::Letter('%')),
            _ => return None,
        }
    }
    Some(parts)
}

const DAY_SECONDS: i64 = 86_400;
/// The days of the years 0 to 9999, counted from 1970-01-01.
const DAYS: std::ops::Range<i64> = -719_528..2_932_897;

/// Times that are written; nothing where there are others among them.
fn written(times: &ArrayRef, parts: &[Part]) -> Result<Option<ArrayRef>> {
    let ticks = match times.data_type() {
        DataType::Date32 => 1,
        DataType::Timestamp(unit, None) => ticks_of_second(*unit),
        _ => return Ok(None),
    };
    let ticks_of_day = match times.data_type() {
        DataType::Date32 => 1,
        _ => ticks * DAY_SECONDS,
    };
    let values = match times.data_type() {
        DataType::Date32 => cast(&cast(times, &DataType::Int32)?, &DataType::Int64)?,
        _ => cast(times, &DataType::Int64)?,
    };
    let values = values.as_primitive::<Int64Type>();
    if values.iter().flatten().any(|value| !DAYS.contains(&value.div_euclid(ticks_of_day))) {
        return Ok(None);
    }
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * 4 * parts.len());
    let nanoseconds = ticks_of_second(TimeUnit::Nanosecond) / ticks;
    for value in values {
        let Some(value) = value else {
            texts.append_null();
            continue;
        };
        let within_day = value.rem_euclid(ticks_of_day);
        let time = Time {
            day: value.div_euclid(ticks_of_day),
            second: within_day / ticks,
            nanosecond: within_day % ticks * nanoseconds,
        };
        time.write(parts, &mut texts).map_err(|_| exec_datafusion_err!("to_char: a time is not written"))?;
        // What has been written is one text.
        texts.append_value("");
    }
    Ok(Some(Arc::new(texts.finish())))
}

/// A moment: its day since 1970-01-01, the second of that day, and the nanosecond of that second.
struct Time {
    day: i64,
    second: i64,
    nanosecond: i64,
}

impl Time {
    fn write(&self, parts: &[Part], text: &mut impl Write) -> std::fmt::Result {
        let date = Date::of(self.day);
        let hour = self.second / 3600;
        for part in parts {
            match part {
                Part::Letter(letter) => text.write_char(*letter)?,
                Part::Year => digits(date.year, 1000, text)?,
                Part::YearOfCentury => digits(date.year % 100, 10, text)?,
                Part::Month => digits(date.month, 10, text)?,
                Part::MonthName { is_short } => name(&MONTHS, date.month - 1, *is_short, text)?,
                Part::Day => digits(date.day, 10, text)?,
                Part::DayOfYear => digits(date.day_of_year(), 100, text)?,
                // 1970 began with a Thursday.
                Part::DayName { is_short } => {
                    name(&WEEKDAYS, (self.day + 4).rem_euclid(7), *is_short, text)?;
                }
                Part::Hour => digits(hour, 10, text)?,
                Part::HourOfHalf => digits((hour + 11) % 12 + 1, 10, text)?,
                Part::Half => text.write_str(if hour < 12 { "AM" } else { "PM" })?,
                Part::Minute => digits(self.second / 60 % 60, 10, text)?,
                Part::Second => digits(self.second % 60, 10, text)?,
                Part::Nanoseconds => digits(self.nanosecond, 100_000_000, text)?,
            }
        }
        Ok(())
    }
}

/// The digits of a number from the one of a power of ten on.
fn digits(number: i64, first: i64, text: &mut impl Write) -> std::fmt::Result {
    let mut place = first;
    while place > 0 {
        text.write_char(char::from(b'0' + (number / place % 10) as u8))?;
        place /= 10;
    }
    Ok(())
}

const MONTHS: [&str; 12] = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn name(names: &[&str], place: i64, is_short: bool, text: &mut impl Write) -> std::fmt::Result {
    let name = usize::try_from(place).ok().and_then(|place| names.get(place)).unwrap_or(&"");
    text.write_str(if is_short { name.get(..3).unwrap_or(name) } else { name })
}

/// A day of the calendar.
#[derive(Debug, PartialEq, Eq)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    /// Of a day since 1970-01-01. Years are counted from March on here, so that a leap day is the last one of its year, and periods of 400
    /// years are alike.
    fn of(day: i64) -> Date {
        let day = day + 719_468;
        let (period, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        // Of five months from March on, 153 days.
        let month = (5 * day + 2) / 153;
        let first = (153 * month + 2) / 5;
        let is_next = month >= 10;
        Date {
            year: period * 400 + year + i64::from(is_next),
            month: if is_next { month - 9 } else { month + 3 },
            day: day - first + 1,
        }
    }

    fn day_of_year(&self) -> i64 {
        const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
        let is_leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let before = usize::try_from(self.month - 1).ok().and_then(|month| BEFORE.get(month));
        before.copied().unwrap_or(0) + self.day + i64::from(is_leap && self.month > 2)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Date32Array, TimestampMicrosecondArray, TimestampNanosecondArray, TimestampSecondArray,
    };
    use datafusion::arrow::datatypes::Field;
    use datafusion::common::config::ConfigOptions;
    use datafusion::functions::datetime::to_char;

    use super::*;

    fn call(function: &ScalarUDF, times: &ArrayRef, format: &str) -> ArrayRef {
        let fields = [times.data_type().clone(), DataType::Utf8];
        let args = ScalarFunctionArgs {
            args: vec![ColumnarValue::Array(Arc::clone(times)), ColumnarValue::Scalar(format.into())],
            arg_fields: fields.map(|of| Arc::new(Field::new("", of, true))).to_vec(),
            number_rows: times.len(),
            return_field: Arc::new(Field::new("", DataType::Utf8, true)),
            config_options: Arc::new(ConfigOptions::default()),
        };
        function.invoke_with_args(args).unwrap().into_array(times.len()).unwrap()
    }

    #[test]
    fn times_are_written_as_datafusion_writes_them() {
        let days = (-719_528..2_932_897).step_by(1009).chain([-719_528, -1, 0, 1, 11_016, 2_932_896]);
        let days: Date32Array = days.map(Some).chain([None]).collect();
        let seconds = (-62_167_219_200_i64..253_402_300_800).step_by(8_640_007);
        let seconds = seconds.chain([-1, 0, 43_199, 43_200, 86_399]);
        let seconds: TimestampSecondArray = seconds.map(Some).chain([None]).collect();
        let fractions = [-1_i64, 0, 1, 999_999, 1_000_001, 1_700_000_000_123_456];
        let micros: TimestampMicrosecondArray = fractions.into_iter().map(Some).collect();
        let nanos: TimestampNanosecondArray = fractions.into_iter().map(Some).collect();
        let all: [ArrayRef; 4] = [Arc::new(days), Arc::new(seconds), Arc::new(micros), Arc::new(nanos)];
        let usual = to_char();
        let own = WrittenTimes::of(&usual).unwrap();
        for times in &all {
            for format in [
                "%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%F %T", "%d. %B %Y, %A", "%a %b %e", "%h %j %y",
                "%I:%M %p \u{e9}%%", "%H:%M:%S.%f", "%s", "",
            ] {
                assert_eq!(&call(&own, times, format), &call(&usual, times, format), "{format}");
            }
        }
    }

    #[test]
    fn what_is_not_known_is_left() {
        assert_eq!((parts_of("%e"), parts_of("%"), parts_of("%-d")), (None, None, None));
        let far: ArrayRef = Arc::new(Date32Array::from(vec![2_932_897, -719_529]));
        assert!(written(&far, &[Part::Year]).unwrap().is_none());
    }
}
