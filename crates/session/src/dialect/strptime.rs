//! `strptime(text, format, …)`: times by the first of some formats that fits. What a format leaves out is that of 1900-01-01 at midnight.
//! DataFusion's own function knows no such parts, leaves the hour out where there is no minute, and ends in 2262.

use std::sync::Arc;

use chrono::format::{Item, Parsed, StrftimeItems, parse};
use datafusion::arrow::array::{Array, AsArray, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::exec_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::formats;

/// The function, and the one that gives NULL for what no format fits.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Strptime {
    name: &'static str,
    signature: Signature,
    tries: bool,
}

impl Strptime {
    pub fn new(name: &'static str, tries: bool) -> Strptime {
        Strptime { name, signature: Signature::variadic(vec![DataType::Utf8], Volatility::Immutable), tries }
    }
}

impl ScalarUDFImpl for Strptime {
    name_and_signature!();

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let [texts, formats @ ..] = arguments.args.as_slice() else {
            return exec_err!("{} takes a text and a format", self.name);
        };
        if formats.is_empty() {
            return exec_err!("{0} takes a text and a format, such as {0}(s, '%d.%m.%Y')", self.name);
        }
        let texts = texts.to_array(rows.count)?;
        let texts = texts.as_string::<i32>();
        let mut all = Vec::with_capacity(formats.len());
        for format in formats {
            all.push(format.to_array(rows.count)?);
        }
        let mut known = Known::default();
        let mut times = Vec::with_capacity(rows.count);
        for row in 0..rows.count {
            let formats = all.iter().map(|format| format.as_string::<i32>());
            let formats: Vec<&str> =
                formats.filter(|format| format.is_valid(row)).map(|format| format.value(row)).collect();
            let is_there = texts.is_valid(row) && !formats.is_empty();
            times.push(if is_there { self.time(texts.value(row), &formats, &mut known)? } else { None });
        }
        rows.answer(Arc::new(TimestampMicrosecondArray::from(times)))
    }
}

impl Strptime {
    fn time(&self, text: &str, formats: &[&str], known: &mut Known) -> Result<Option<i64>> {
        for format in formats {
            if let Some(time) = micros(text, known.parts(format)?) {
                return Ok(Some(time));
            }
        }
        match self.tries {
            true => Ok(None),
            false => {
                exec_err!("{}: '{text}' is no time of the format '{}'", self.name, formats.join("' or '"))
            }
        }
    }
}

/// The parts of formats: rows have few of them.
#[derive(Default)]
struct Known(Vec<(String, Vec<Item<'static>>)>);

impl Known {
    fn parts(&mut self, format: &str) -> Result<&[Item<'static>]> {
        let place = match self.0.iter().position(|(known, _)| known == format) {
            Some(place) => place,
            None => {
                let written = formats::to_read(format)?;
                let parts = StrftimeItems::new(&written).map(Item::to_owned).collect();
                self.0.push((format.to_string(), parts));
                self.0.len() - 1
            }
        };
        Ok(self.0.get(place).map_or(&[], |(_, parts)| parts.as_slice()))
    }
}

/// Microseconds since 1970 of a text that has a format.
fn micros(text: &str, format: &[Item<'static>]) -> Option<i64> {
    let mut parsed = Parsed::new();
    parse(&mut parsed, text.trim(), format.iter()).ok()?;
    // Of a year without its century, 69 is 1969 and 68 is 2068.
    if (parsed.year(), parsed.year_div_100(), parsed.year_mod_100()) == (None, None, Some(69)) {
        parsed.set_year(1969).ok()?;
    }
    let has_year = parsed.year().or(parsed.year_mod_100()).or(parsed.isoyear()).is_some();
    if !has_year {
        parsed.set_year(1900).ok()?;
    }
    let has_days = parsed.ordinal().is_some()
        || parsed.isoweek().or(parsed.week_from_sun()).or(parsed.week_from_mon()).is_some();
    if !has_days {
        if parsed.month().is_none() {
            parsed.set_month(1).ok()?;
        }
        if parsed.day().is_none() {
            parsed.set_day(1).ok()?;
        }
    }
    match (parsed.hour_div_12(), parsed.hour_mod_12()) {
        (None, None) => drop(parsed.set_hour(0).ok()?),
        (None, Some(_)) => drop(parsed.set_ampm(false).ok()?),
        // Noon or midnight, and no hour.
        (Some(_), None) => drop(parsed.set_hour12(12).ok()?),
        _ => {}
    }
    if parsed.minute().is_none() {
        parsed.set_minute(0).ok()?;
    }
    let date = parsed.to_naive_date().ok()?;
    let time = parsed.to_naive_time().ok()?;
    let offset = i64::from(parsed.offset().unwrap_or(0)) * 1_000_000;
    date.and_time(time).and_utc().timestamp_micros().checked_sub(offset)
}
