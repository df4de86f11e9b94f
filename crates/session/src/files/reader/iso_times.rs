//! Dates and times in the one form that nearly all files have: `2020-02-29`, `2020-02-29 12:00:00.5`, `2020-02-29T12:00:00Z`. Others are
//! left to Arrow, whose parser knows more forms and takes a third of a microsecond for a time.

use datafusion::arrow::datatypes::TimeUnit;

const DATE_BYTES: usize = 10;
const SECOND_BYTES: usize = 19;
const SECONDS_OF_A_DAY: i64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_BEFORE_1970: i64 = 719_468;
/// Days of 400 years, after which the calendar is the same again.
const DAYS_OF_AN_ERA: i64 = 146_097;

/// A time as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IsoTime {
    /// Days since 1970-01-01.
    days: i64,
    /// Seconds of the day; nothing where a date stands alone.
    seconds: Option<i64>,
    /// The fraction of a second.
    nanoseconds: i64,
    /// The digits of the fraction as they are written.
    digits: usize,
}

impl IsoTime {
    /// What is written in this form; nothing for other texts, and for days and seconds that there are not.
    pub fn parse(text: &[u8]) -> Option<IsoTime> {
        let days = days(text.get(..DATE_BYTES)?)?;
        let date = IsoTime { days, seconds: None, nanoseconds: 0, digits: 0 };
        if text.len() == DATE_BYTES {
            return Some(date);
        }
        let [b' ' | b'T', h1, h2, b':', m1, m2, b':', s1, s2] = *text.get(DATE_BYTES..SECOND_BYTES)? else {
            return None;
        };
        let (hours, minutes, seconds) = (number(&[h1, h2])?, number(&[m1, m2])?, number(&[s1, s2])?);
        if hours > 23 || minutes > 59 || seconds > 59 {
            return None;
        }
        let rest = text.get(SECOND_BYTES..)?;
        let (fraction, digits) = match rest.strip_suffix(b"Z").unwrap_or(rest) {
            [] => (0, 0),
            [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => (number(digits)?, digits.len()),
            _ => return None,
        };
        let nanoseconds = (digits..9).fold(fraction, |fraction, _| fraction * 10);
        Some(IsoTime { seconds: Some(hours * 3600 + minutes * 60 + seconds), nanoseconds, digits, ..date })
    }

    /// Days since 1970 where a date stands alone.
    pub fn date(self) -> Option<i32> {
        if self.seconds.is_some() {
            return None;
        }
        i32::try_from(self.days).ok()
    }

    /// Units since 1970; nothing where a digit would be cut off, or 64 bits do not hold it.
    pub fn in_units(self, unit: TimeUnit) -> Option<i64> {
        let digits = digits_of(unit);
        if self.digits > digits {
            return None;
        }
        let seconds = self.days * SECONDS_OF_A_DAY + self.seconds.unwrap_or(0);
        let fraction = (digits..9).fold(self.nanoseconds, |fraction, _| fraction / 10);
        (0..digits).try_fold(seconds, |time, _| time.checked_mul(10))?.checked_add(fraction)
    }

    /// The coarsest unit that cuts nothing off; nothing for a date alone.
    pub fn unit(self) -> Option<TimeUnit> {
        self.seconds?;
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
        units.into_iter().find(|unit| self.digits <= digits_of(*unit))
    }
}

/// Decimal digits of a unit's part of a second.
fn digits_of(unit: TimeUnit) -> usize {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// A number of digits alone, few enough for 64 bits.
fn number(digits: &[u8]) -> Option<i64> {
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + i64::from(digit - b'0')))
}

/// Days since 1970 of `2020-02-29`, by the calendar that is counted from March on, so that a leap day is a year's last.
fn days(date: &[u8]) -> Option<i64> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *date else { return None };
    let (year, month, day) = (number(&[y1, y2, y3, y4])?, number(&[m1, m2])?, number(&[d1, d2])?);
    let is_leap_year = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_of_month = match month {
        2 => 28 + i64::from(is_leap_year),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if year == 0 || day == 0 || day > days_of_month {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year / 400, year % 400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(era * DAYS_OF_AN_ERA + year * 365 + year / 4 - year / 100 + day_of_year - DAYS_BEFORE_1970)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray};
    use datafusion::arrow::compute::cast;
    use datafusion::arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
    use std::sync::Arc;

    use super::IsoTime;

    /// As Arrow reads it.
    fn by_arrow(text: &str, data_type: &DataType) -> ArrayRef {
        cast(&(Arc::new(StringArray::from(vec![text])) as ArrayRef), data_type).expect("a cast")
    }

    #[test]
    fn dates_are_those_of_arrow() {
        for year in [1, 4, 99, 100, 400, 1582, 1899, 1900, 1969, 1970, 1999, 2000, 2023, 2024, 2100, 9999] {
            for month in 0..=13 {
                for day in [0, 1, 15, 28, 29, 30, 31, 32] {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    let expected = by_arrow(&text, &DataType::Date32);
                    let expected = expected.as_primitive::<Date32Type>();
                    let expected = expected.is_valid(0).then(|| expected.value(0));
                    assert_eq!(IsoTime::parse(text.as_bytes()).and_then(IsoTime::date), expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn times_are_those_of_arrow() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        for text in [
            "2020-02-29 12:34:56", "2020-02-29T00:00:00Z", "1969-12-31 23:59:59.999999",
            "0001-01-01 00:00:00.1", "9999-12-31T23:59:59.12345Z", "1582-10-15 01:02:03.000001",
            "2024-03-10",
        ] {
            let expected = by_arrow(text, &micros).as_primitive::<TimestampMicrosecondType>().value(0);
            let time = IsoTime::parse(text.as_bytes()).expect("a time");
            assert_eq!(time.in_units(TimeUnit::Microsecond), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_forms_are_left_to_arrow() {
        for text in [
            "",
            "2020",
            "2020-02-30",
            "2020-2-3",
            "0000-01-01",
            "2020-02-29 24:00:00",
            "2020-02-29 12:00:60",
            "2020-02-29 12:00",
            "2020-02-29 12:00:00.",
            "2020-02-29 12:00:00.1234567890",
            "2020-02-29 12:00:00+01:00",
            "2020-02-29x12:00:00",
            "2020-02-29 12:00:00 ",
            "+020-02-29",
            "2020-02-29Z",
            "ä020-02-29",
        ] {
            assert_eq!(IsoTime::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn nothing_is_cut_off_or_wraps() {
        let time = |text: &str| IsoTime::parse(text.as_bytes()).expect("a time");
        let half = time("2020-01-01 00:00:00.5");
        assert_eq!((half.unit(), half.in_units(TimeUnit::Second)), (Some(TimeUnit::Millisecond), None));
        assert_eq!(half.in_units(TimeUnit::Millisecond), Some(1_577_836_800_500));
        assert_eq!(time("2020-01-01").unit(), None);
        assert_eq!(time("2020-01-01 00:00:00").date(), None);
        let late = time("2263-01-01 00:00:00");
        assert_eq!((late.unit(), late.in_units(TimeUnit::Nanosecond)), (Some(TimeUnit::Second), None));
    }
}
