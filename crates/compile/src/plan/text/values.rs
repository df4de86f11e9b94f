//! Types and constants as text.

use super::lexer::{Kind, quote};
use super::words;
use crate::types::{DataType, Interval, Literal, TimeUnit};

/// The text of a type.
pub(super) fn type_text(data_type: &DataType) -> String {
    match data_type {
        DataType::Decimal128 { precision, scale } => format!("Decimal128({precision}, {scale})"),
        DataType::Timestamp { unit, timezone } => {
            let unit = words::time_unit(*unit).unwrap_or_default();
            match timezone {
                Some(zone) => format!("Timestamp({unit}, {})", quote(zone, '\'')),
                None => format!("Timestamp({unit})"),
            }
        }
        DataType::Duration { unit } => format!("Duration({})", words::time_unit(*unit).unwrap_or_default()),
        other => words::simple_type(other.clone()).unwrap_or_default().into(),
    }
}

/// A type, with a `?` where it may be NULL.
pub(super) fn field_type_text(data_type: &DataType, nullable: bool) -> String {
    format!("{}{}", type_text(data_type), if nullable { "?" } else { "" })
}

/// The type of a constant of which nothing but its text is known. Intervals are always written with their type.
pub(super) fn usual_type(literal: &Literal) -> Option<DataType> {
    match literal {
        Literal::Null => Some(DataType::Null),
        Literal::Boolean(_) => Some(DataType::Boolean),
        Literal::Int(_) => Some(DataType::Int64),
        Literal::Float(_) => Some(DataType::Float64),
        Literal::Utf8(_) => Some(DataType::Utf8),
        Literal::Interval(_) => None,
    }
}

/// The text of a constant where its type is known; `None` where it is no constant of the type.
pub(super) fn value_text(literal: &Literal, data_type: &DataType) -> Option<String> {
    let is_integer = data_type.is_integer();
    Some(match (literal, data_type) {
        (Literal::Null, _) => "null".into(),
        (Literal::Boolean(value), DataType::Boolean) => value.to_string(),
        (Literal::Int(value), DataType::Duration { .. }) => value.to_string(),
        (Literal::Int(value), _) if is_integer => value.to_string(),
        (Literal::Int(value), DataType::Decimal128 { scale, .. }) => decimal_text(*value, *scale),
        (Literal::Int(value), DataType::Date32) => date_text(*value),
        (Literal::Int(value), DataType::Timestamp { unit, .. }) => timestamp_text(*value, *unit),
        (Literal::Float(value), DataType::Float32 | DataType::Float64) => float_text(*value),
        (Literal::Utf8(value), DataType::Utf8) => quote(value, '\''),
        (Literal::Interval(value), DataType::Interval) => interval_text(*value),
        _ => return None,
    })
}

/// The constant of a type that a token stands for, with the sign before it; `None` where it stands for none.
pub(super) fn value_of(kind: &Kind, negative: bool, data_type: &DataType) -> Option<Literal> {
    match (kind, data_type) {
        (Kind::Word(word), _) if word == "null" && !negative => Some(Literal::Null),
        (Kind::Word(word), DataType::Boolean) if !negative => word.parse().ok().map(Literal::Boolean),
        (Kind::Word(word), DataType::Float32 | DataType::Float64) => float_word(word, negative),
        (Kind::Number(text), DataType::Float32 | DataType::Float64) => {
            let value: f64 = text.parse().ok()?;
            Some(Literal::Float(if negative { -value } else { value }))
        }
        (Kind::Number(text), DataType::Decimal128 { scale, .. }) => decimal_of(text, negative, *scale),
        (Kind::Number(text), DataType::Date32 | DataType::Timestamp { .. } | DataType::Duration { .. }) => {
            integer_of(text, negative)
        }
        (Kind::Number(text), _) if data_type.is_integer() => integer_of(text, negative),
        (Kind::Text(text), _) if !negative => match data_type {
            DataType::Utf8 => Some(Literal::Utf8(text.as_str().into())),
            DataType::Date32 => date_of(text).map(Literal::Int),
            DataType::Timestamp { unit, .. } => timestamp_of(text, *unit).map(Literal::Int),
            DataType::Interval => interval_of(text).map(Literal::Interval),
            _ => None,
        },
        _ => None,
    }
}

/// The type of a constant that has only its text.
pub(super) fn usual_type_of(kind: &Kind) -> Option<DataType> {
    match kind {
        Kind::Number(text) if text.contains(['.', 'e', 'E']) && !text.starts_with("0x") => {
            Some(DataType::Float64)
        }
        Kind::Number(_) => Some(DataType::Int64),
        Kind::Text(_) => Some(DataType::Utf8),
        Kind::Word(word) => match word.as_str() {
            "null" => Some(DataType::Null),
            "true" | "false" => Some(DataType::Boolean),
            "NaN" | "inf" => Some(DataType::Float64),
            _ => None,
        },
        _ => None,
    }
}

fn integer_of(text: &str, negative: bool) -> Option<Literal> {
    // With the sign before it, as the lowest integer has no positive counterpart.
    let sign = if negative { "-" } else { "" };
    format!("{sign}{text}").parse().ok().map(Literal::Int)
}

fn float_text(value: f64) -> String {
    match value {
        value if value.is_nan() && value.to_bits() != f64::NAN.to_bits() => {
            format!("NaN({:#x})", value.to_bits())
        }
        value => format!("{value:?}"),
    }
}

fn float_word(word: &str, negative: bool) -> Option<Literal> {
    let value = match word {
        "NaN" if !negative => f64::NAN,
        "inf" => f64::INFINITY,
        _ => return None,
    };
    Some(Literal::Float(if negative { -value } else { value }))
}

/// The NaN of these bits, in hexadecimal.
pub(super) fn nan_of(bits: &str) -> Option<Literal> {
    let value = f64::from_bits(u64::from_str_radix(bits.strip_prefix("0x")?, 16).ok()?);
    value.is_nan().then_some(Literal::Float(value))
}

fn decimal_text(value: i128, scale: i8) -> String {
    let sign = if value < 0 { "-" } else { "" };
    let digits = value.unsigned_abs().to_string();
    match usize::from(scale.unsigned_abs()) {
        0 => format!("{sign}{digits}"),
        places if scale > 0 => {
            let digits = format!("{digits:0>width$}", width = places + 1);
            let (whole, fraction) = digits.split_at(digits.len() - places);
            format!("{sign}{whole}.{fraction}")
        }
        zeros => format!("{sign}{digits}e{zeros}"),
    }
}

/// The integer that a decimal is times a power of ten; `None` where it has more digits behind the point.
fn decimal_of(text: &str, negative: bool, scale: i8) -> Option<Literal> {
    let (number, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let moved = exponent.parse::<i32>().ok()? - fraction.len() as i32 + i32::from(scale);
    let digits = format!("{}{whole}{fraction}", if negative { "-" } else { "" });
    let value: i128 = digits.parse().ok()?;
    let power = 10i128.checked_pow(moved.unsigned_abs())?;
    match moved {
        ..0 if value % power != 0 => None,
        ..0 => Some(Literal::Int(value / power)),
        _ => value.checked_mul(power).map(Literal::Int),
    }
}

/// A calendar date.
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

const SECONDS_OF_DAY: i64 = 86_400;
/// Years beyond these are no text: their days are printed as a number.
const YEARS: std::ops::RangeInclusive<i64> = -999_999..=999_999;

/// Days since 1970-01-01 (Hinnant, "chrono-compatible low-level date algorithms").
fn days_of(date: &Date) -> i64 {
    let year = if date.month <= 2 { date.year - 1 } else { date.year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((date.month + 9) % 12) + 2) / 5 + date.day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn date_at(days: i64) -> Date {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    Date { year, month, day: day_of_year - (153 * shifted_month + 2) / 5 + 1 }
}

/// Of days that are no date of such a year `None`.
fn readable_date(days: i128) -> Option<String> {
    let days = i64::try_from(days).ok().filter(|days| days.unsigned_abs() < 1 << 40)?;
    let Date { year, month, day } = date_at(days);
    let sign = if year < 0 { "-" } else { "" };
    YEARS.contains(&year).then(|| format!("{sign}{:04}-{month:02}-{day:02}", year.unsigned_abs()))
}

fn date_text(days: i128) -> String {
    readable_date(days).map_or_else(|| days.to_string(), |text| format!("'{text}'"))
}

fn date_of(text: &str) -> Option<i128> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let mut parts = text.split('-');
    let mut part = || parts.next()?.parse::<u32>().ok().map(i64::from);
    let (year, month, day) = (part()?, part()?, part()?);
    let date = Date { year: if negative { -year } else { year }, month, day };
    let is_date = parts.next().is_none() && YEARS.contains(&date.year) && (1..=12).contains(&month);
    let days = is_date.then(|| days_of(&date))?;
    // A day that the month does not have is another one of the next.
    (date_at(days).day == day).then_some(days.into())
}

fn timestamp_text(ticks: i128, unit: TimeUnit) -> String {
    let per_second = i128::from(unit.per_second());
    let (seconds, fraction) = (ticks.div_euclid(per_second), ticks.rem_euclid(per_second));
    let day = i128::from(SECONDS_OF_DAY);
    let (days, second) = (seconds.div_euclid(day), seconds.rem_euclid(day));
    let Some(date) = readable_date(days) else { return ticks.to_string() };
    let time = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    match per_second.ilog10() as usize {
        0 => format!("'{date}T{time}'"),
        digits => format!("'{date}T{time}.{fraction:0digits$}'"),
    }
}

fn timestamp_of(text: &str, unit: TimeUnit) -> Option<i128> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = time.split(':');
    let mut part = |most: u32| parts.next()?.parse::<u32>().ok().filter(|part| *part <= most);
    let (hour, minute, second) = (part(23)?, part(59)?, part(59)?);
    let seconds =
        date_of(date)? * i128::from(SECONDS_OF_DAY) + i128::from((hour * 60 + minute) * 60 + second);
    let digits = unit.per_second().ilog10() as usize;
    let is_time = parts.next().is_none() && fraction.len() <= digits;
    let is_fraction = fraction.bytes().all(|byte| byte.is_ascii_digit());
    let fraction: i128 = match is_time && is_fraction {
        true => format!("0{fraction:0<digits$}").parse().ok()?,
        false => return None,
    };
    Some(seconds * i128::from(unit.per_second()) + fraction)
}

fn interval_text(interval: Interval) -> String {
    let Interval { months, days, nanoseconds } = interval;
    format!("'{months} months {days} days {nanoseconds} ns'")
}

/// Numbers of `months`, `days` and `ns`; those that are missing are 0.
fn interval_of(text: &str) -> Option<Interval> {
    let mut interval = Interval { months: 0, days: 0, nanoseconds: 0 };
    let mut words = text.split_ascii_whitespace();
    while let Some(number) = words.next() {
        match words.next()? {
            "month" | "months" => interval.months = number.parse().ok()?,
            "day" | "days" => interval.days = number.parse().ok()?,
            "ns" => interval.nanoseconds = number.parse().ok()?,
            _ => return None,
        }
    }
    Some(interval)
}
