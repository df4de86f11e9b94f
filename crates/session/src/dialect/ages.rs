//! `age(later, earlier)`: the time between two moments in months, days and parts of a day, as a calendar counts them.

use chrono::{DateTime, Datelike, Months, NaiveDate, Timelike, Utc};

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
    let (later, earlier) =
        (DateTime::from_timestamp_micros(later)?, DateTime::from_timestamp_micros(earlier)?);
    let time = |moment: &DateTime<Utc>| {
        i64::from(moment.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(moment.nanosecond())
    };
    let month = |moment: &DateTime<Utc>| i64::from(moment.year()) * 12 + i64::from(moment.month0());
    let mut nanoseconds = time(&later) - time(&earlier);
    let mut days = i64::from(later.day()) - i64::from(earlier.day());
    let mut months = month(&later) - month(&earlier);
    if nanoseconds < 0 {
        nanoseconds += 86_400_000_000_000;
        days -= 1;
    }
    if days < 0 {
        days += i64::from(days_of_month(earlier.year(), earlier.month())?);
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
    let day = from.day().min(days_of_month(to.year(), to.month())?);
    let is_reached = (day, from.time()) <= (to.day(), to.time());
    Some(if is_reached { months } else { months - 1 })
}

fn days_of_month(year: i32, month: u32) -> Option<u32> {
    let first = NaiveDate::from_ymd_opt(year, month, 1)?;
    let next = first.checked_add_months(Months::new(1))?;
    u32::try_from((next - first).num_days()).ok()
}
