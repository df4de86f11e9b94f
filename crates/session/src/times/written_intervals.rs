//! Intervals as they are written, in units that DataFusion knows.

use datafusion::common::plan_datafusion_err;
use datafusion::error::Result;

/// A number with so many digits after its point.
#[derive(Debug, Clone, Copy)]
struct Amount {
    digits: i128,
    scale: u32,
}

impl Amount {
    fn of(text: &str) -> Option<Amount> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let has_digits = text.bytes().any(|byte| byte.is_ascii_digit());
        // More than arrow reads.
        if !has_digits || text.len() > 30 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = format!("{whole}{part}").parse().ok()?;
        Some(Amount { digits, scale: u32::try_from(part.len()).ok()? })
    }

    fn times(self, factor: i128) -> Option<Amount> {
        Some(Amount { digits: self.digits.checked_mul(factor)?, ..self })
    }

    fn plus(self, other: Amount) -> Option<Amount> {
        let scale = self.scale.max(other.scale);
        let scaled = |amount: Amount| amount.digits.checked_mul(10_i128.checked_pow(scale - amount.scale)?);
        Some(Amount { digits: scaled(self)?.checked_add(scaled(other)?)?, scale })
    }
}

impl std::fmt::Display for Amount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.digits < 0 { "-" } else { "" };
        let places = self.scale as usize;
        let digits = format!("{:0>width$}", self.digits.unsigned_abs(), width = places + 1);
        let (whole, part) = digits.split_at(digits.len() - places);
        match part {
            "" => write!(f, "{sign}{whole}"),
            part => write!(f, "{sign}{whole}.{part}"),
        }
    }
}

/// A unit in one of those that a text is written in, of which it is so many, and whether DataFusion knows it.
fn unit(name: &str) -> Option<(usize, i128, bool)> {
    Some(match name.to_ascii_lowercase().as_str() {
        "millennium" | "millennia" | "millenniums" | "mil" | "mils" => (MONTHS, 12_000, false),
        "c" | "cent" | "cents" | "century" | "centuries" => (MONTHS, 1200, true),
        "dec" | "decs" | "decade" | "decades" => (MONTHS, 120, true),
        "y" | "yr" | "yrs" | "year" | "years" => (MONTHS, 12, true),
        "quarter" | "quarters" => (MONTHS, 3, false),
        "mon" | "mons" | "month" | "months" => (MONTHS, 1, true),
        "w" | "week" | "weeks" => (DAYS, 7, true),
        "d" | "day" | "days" => (DAYS, 1, true),
        "h" | "hr" | "hrs" | "hour" | "hours" => (NANOSECONDS, 3_600_000_000_000, true),
        "m" | "min" | "mins" | "minute" | "minutes" => (NANOSECONDS, 60_000_000_000, true),
        "s" | "sec" | "secs" | "second" | "seconds" => (NANOSECONDS, 1_000_000_000, true),
        "ms" | "msec" | "msecs" | "msecond" | "mseconds" | "millisecond" | "milliseconds" => {
            (NANOSECONDS, 1_000_000, true)
        }
        "us" | "usec" | "usecs" | "usecond" | "useconds" | "microsecond" | "microseconds" => {
            (NANOSECONDS, 1000, true)
        }
        "nanosecond" | "nanoseconds" => (NANOSECONDS, 1, true),
        _ => return None,
    })
}

const MONTHS: usize = 0;
const DAYS: usize = 1;
const NANOSECONDS: usize = 2;

/// What a text is written in.
const WRITTEN: [&str; 3] = ["months", "days", "nanoseconds"];

/// An interval in units that DataFusion knows, each once; nothing where it is so already, or is written in a way of its own.
pub(crate) fn in_known_units(text: &str) -> Result<Option<String>> {
    let mut words = text.split_whitespace().peekable();
    let (mut sums, mut names) = ([Amount { digits: 0, scale: 0 }; 3], Vec::new());
    let (mut is_known, mut sign) = (true, 1);
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case("ago") && words.peek().is_none() && !names.is_empty() {
            (is_known, sign) = (false, -1);
            break;
        }
        let (place, amount) = match time_of_day(word) {
            Some(amount) => {
                is_known = false;
                (NANOSECONDS, amount)
            }
            None => {
                let end = word.find(|letter: char| !letter.is_ascii_digit() && !"+-.".contains(letter));
                let (number, name) = word.split_at(end.unwrap_or(word.len()));
                let Some(amount) = Amount::of(number) else { return Ok(None) };
                let Some(name) = Some(name).filter(|name| !name.is_empty()).or_else(|| words.next()) else {
                    return Ok(None);
                };
                let Some((place, factor, is_one_of_its)) = unit(name) else {
                    return Err(plan_datafusion_err!(
                        "the interval '{text}' has an unknown unit: {name}; units are millennium, century, decade, year, quarter, \
                         month, week, day, hour, minute, second, millisecond, microsecond and nanosecond"
                    ));
                };
                is_known &= is_one_of_its && !names.contains(&factor) && !number.starts_with('+');
                names.push(factor);
                let Some(amount) = amount.times(factor) else { return Ok(None) };
                (place, amount)
            }
        };
        let Some(sum) = sums[place].plus(amount) else { return Ok(None) };
        sums[place] = sum;
    }
    if is_known {
        return Ok(None);
    }
    let parts = sums.into_iter().zip(WRITTEN).filter(|(sum, _)| sum.digits != 0);
    let parts: Option<Vec<String>> =
        parts.map(|(sum, name)| Some(format!("{} {name}", sum.times(sign)?))).collect();
    Ok(parts.map(|parts| if parts.is_empty() { "0 days".to_string() } else { parts.join(" ") }))
}

/// The nanoseconds of `02:30` and `-02:30:15.5`.
fn time_of_day(word: &str) -> Option<Amount> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word),
    };
    let mut parts = digits.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if parts.next().is_some() || !is_number(hours) || !is_number(minutes) || seconds.starts_with(['-', '+']) {
        return None;
    }
    let minutes = Amount::of(hours)?.times(60)?.plus(Amount::of(minutes)?)?;
    minutes.times(60)?.plus(Amount::of(seconds)?)?.times(sign * 1_000_000_000)
}
