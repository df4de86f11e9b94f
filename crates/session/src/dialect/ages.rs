//! `age(later, earlier)`: the time between two moments in months, days and parts of a day, as a calendar counts them.

use chrono::{DateTime, Datelike, Utc};
use kelpie_datafusion::{date_of, first_of};

const DAY_US: i64 = 86_400_000_000;

/// A time between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Age {
    pub months: i32,
    pub days: i32,
    pub nanoseconds: i64,
}

/// The age of microseconds since 1970; nothing where a calendar ends before.
pub(super) fn age(later: i64, earlier: i64) -> Option<Age> {
    if later < earlier {
        let age = between(earlier, later)?;
        return Some(Age { months: -age.months, days: -age.days, nanoseconds: -age.nanoseconds });
    }
    between(later, earlier)
}

/// The age, where the later moment is not before the earlier one.
fn between(later: i64, earlier: i64) -> Option<Age> {
    let calendar = DateTime::<Utc>::MIN_UTC.timestamp_micros()..=DateTime::<Utc>::MAX_UTC.timestamp_micros();
    if !calendar.contains(&later) || !calendar.contains(&earlier) {
        return None;
    }
    let time = |moment: i64| moment.rem_euclid(DAY_US) * 1_000;
    let (year, month, day) = date_of(later.div_euclid(DAY_US));
    let (from_year, from_month, from_day) = date_of(earlier.div_euclid(DAY_US));
    let mut nanoseconds = time(later) - time(earlier);
    let mut days = day - from_day;
    let mut months = (year - from_year) * 12 + month - from_month;
    if nanoseconds < 0 {
        nanoseconds += DAY_US * 1_000;
        days -= 1;
    }
    if days < 0 {
        days += days_of_month(from_year * 12 + from_month);
        months -= 1;
    }
    Some(Age { months: i32::try_from(months).ok()?, days: i32::try_from(days).ok()?, nanoseconds })
}

/// Whole months from one moment to another, in microseconds since 1970. A day that the later month has not is the last one of that month.
pub(super) fn whole_months(from: i64, to: i64) -> Option<i64> {
    if to < from {
        return whole_months(to, from).map(|months| -months);
    }
    let (from, to) = (DateTime::from_timestamp_micros(from)?, DateTime::from_timestamp_micros(to)?);
    let months = (i64::from(to.year()) - i64::from(from.year())) * 12 + i64::from(to.month())
        - i64::from(from.month());
    let length = days_of_month(i64::from(to.year()) * 12 + i64::from(to.month0()));
    let day = i64::from(from.day()).min(length);
    let is_reached = (day, from.time()) <= (i64::from(to.day()), to.time());
    Some(if is_reached { months } else { months - 1 })
}

/// How long a month is, counted from the year 0 on.
fn days_of_month(month: i64) -> i64 {
    first_of(month + 1) - first_of(month)
}
