//! Series of numbers and of times (`generate_series`, `range`), whose values are made as they are asked for.
//!
//! DataFusion folds a series of times into a list of all of its values while it plans, and knows nothing of the rows of one of numbers. Here a
//! series is a table that knows how many rows it has and between which bounds they are; where all steps are of one length, its values are
//! computed and not added up one by one.

mod exec;
mod table;

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{ArrayRef, Int64Array, TimestampMicrosecondArray, TimestampNanosecondArray};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType, TimestampNanosecondType};
use datafusion::common::exec_err;
use datafusion::common::stats::Precision;
use datafusion::error::Result;

pub(crate) use self::exec::{SeriesExec, with_series};
pub use self::table::SeriesTable;

const NANOSECONDS_OF_DAY: i128 = 86_400_000_000_000;
/// The first and the last microsecond that a calendar has.
const CALENDAR: [i64; 2] = [-8_334_601_228_800_000_000, 8_210_266_876_799_999_999];

/// The values of a series.
#[derive(Debug, Clone)]
pub struct Series {
    /// BIGINT, or a timestamp in micro- or nanoseconds.
    data_type: DataType,
    first: i64,
    /// The last value that there may be; `None` where there is none at all.
    limit: Option<i64>,
    step: Step,
}

/// How a value follows from the one before it.
#[derive(Debug, Clone)]
enum Step {
    /// By so much.
    Even(i64),
    /// By the clocks and the months of a zone.
    Calendar(Calendar),
}

#[derive(Debug, Clone, Copy)]
struct Calendar {
    interval: IntervalMonthDayNano,
    clock: Tz,
    unit: TimeUnit,
    /// Whether it goes back in time.
    goes_back: bool,
}

/// What a series is made of.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The first value.
    pub start: i64,
    /// Where it ends.
    pub stop: i64,
    /// Whether the end belongs to it.
    pub has_end: bool,
}

impl Series {
    /// Numbers; `None` where the step is 0.
    pub fn of_numbers(bounds: Bounds, step: i64) -> Option<Series> {
        let limit = bounds.limit(step < 0);
        let (data_type, first) = (DataType::Int64, bounds.start);
        (step != 0).then_some(Series { data_type, first, limit, step: Step::Even(step) })
    }

    /// Times of a type, which is one of micro- or nanoseconds.
    pub fn of_times(bounds: Bounds, interval: IntervalMonthDayNano, data_type: &DataType) -> Result<Series> {
        let (unit, zone) = match data_type {
            DataType::Timestamp(unit @ (TimeUnit::Microsecond | TimeUnit::Nanosecond), zone) => (*unit, zone),
            _ => return exec_err!("a series of {data_type}"),
        };
        let zone = zone.as_deref().unwrap_or("+00:00");
        let calendar = Calendar { interval, clock: zone.parse()?, unit, goes_back: false };
        let goes_back = match calendar.next(bounds.start).map(|next| next.cmp(&bounds.start)) {
            Some(Ordering::Greater) => false,
            Some(Ordering::Less) => true,
            Some(Ordering::Equal) => {
                return exec_err!("the step of a series must not be 0, nor below a microsecond");
            }
            None => return exec_err!("the step of a series leads beyond the years that a timestamp holds"),
        };
        let calendar = Calendar { goes_back, ..calendar };
        let is_utc = ["+00:00", "UTC", "Z"].contains(&zone);
        let step = calendar.length().filter(|_| is_utc || interval.days == 0);
        let step = step.map_or(Step::Calendar(calendar), Step::Even);
        let limit = bounds.limit(goes_back).map(|limit| match unit {
            TimeUnit::Microsecond => limit.clamp(CALENDAR[0], CALENDAR[1]),
            _ => limit,
        });
        Ok(Series { data_type: data_type.clone(), first: bounds.start, limit, step })
    }

    /// The type of its values.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// How many values it has.
    pub fn rows(&self) -> Precision<usize> {
        let Some(limit) = self.limit.filter(|limit| self.reaches(*limit)) else { return Precision::Exact(0) };
        let distance = self.first.abs_diff(limit);
        match &self.step {
            Step::Even(step) => Precision::Exact(counted(distance / step.unsigned_abs())),
            Step::Calendar(calendar) => Precision::Inexact(counted(distance / calendar.about().max(1))),
        }
    }

    /// The smallest and the largest value, where they are known without looking.
    pub(crate) fn extremes(&self) -> Option<(i64, i64)> {
        let limit = self.limit.filter(|limit| self.reaches(*limit))?;
        let Step::Even(step) = self.step else { return None };
        let steps = self.first.abs_diff(limit) / step.unsigned_abs();
        let last = self.first.wrapping_add(step.wrapping_mul(steps as i64));
        Some((self.first.min(last), self.first.max(last)))
    }

    /// Whether values become smaller.
    pub(crate) fn falls(&self) -> bool {
        match &self.step {
            Step::Even(step) => *step < 0,
            Step::Calendar(calendar) => calendar.goes_back,
        }
    }

    /// Whether the limit is not before the first value.
    fn reaches(&self, limit: i64) -> bool {
        if self.falls() { self.first >= limit } else { self.first <= limit }
    }

    /// Adds all of its values to those of other lists of an array.
    pub fn add_all(&self, values: &mut Vec<i64>) -> Result<()> {
        let most = (i32::MAX as usize).saturating_sub(values.len());
        let too_many = || exec_err!("lists of more than {} values", i32::MAX);
        if matches!(self.rows(), Precision::Exact(rows) if rows > most) {
            return too_many();
        }
        let mut left = self.values();
        left.take_into(values, most);
        if left.next.is_some() { too_many() } else { Ok(()) }
    }

    /// Its values from the beginning.
    pub fn values(&self) -> Values {
        let limit = self.limit.filter(|limit| self.reaches(*limit));
        let next = limit.map(|_| self.first);
        Values { series: self.clone(), next }
    }
}

fn counted(steps: u64) -> usize {
    usize::try_from(steps.saturating_add(1)).unwrap_or(usize::MAX)
}

impl Bounds {
    /// The last value that there may be.
    fn limit(self, falls: bool) -> Option<i64> {
        match (self.has_end, falls) {
            (true, _) => Some(self.stop),
            (false, true) => self.stop.checked_add(1),
            (false, false) => self.stop.checked_sub(1),
        }
    }
}

impl Calendar {
    fn next(&self, time: i64) -> Option<i64> {
        match self.unit {
            TimeUnit::Microsecond => {
                TimestampMicrosecondType::add_month_day_nano(time, self.interval, self.clock)
            }
            _ => TimestampNanosecondType::add_month_day_nano(time, self.interval, self.clock),
        }
    }

    /// How long each step is, where days are of 24 hours: none where it has months or parts of a unit.
    fn length(&self) -> Option<i64> {
        let IntervalMonthDayNano { months, days, nanoseconds } = self.interval;
        let length = i128::from(days) * NANOSECONDS_OF_DAY + i128::from(nanoseconds);
        let unit = self.nanoseconds_of_unit();
        (months == 0 && length % unit == 0).then(|| i64::try_from(length / unit).ok()).flatten()
    }

    /// About how long a step is.
    fn about(&self) -> u64 {
        let IntervalMonthDayNano { months, days, nanoseconds } = self.interval;
        let days = i128::from(months) * 30 + i128::from(days);
        let length = days * NANOSECONDS_OF_DAY + i128::from(nanoseconds);
        u64::try_from(length.unsigned_abs() / self.nanoseconds_of_unit().unsigned_abs()).unwrap_or(u64::MAX)
    }

    fn nanoseconds_of_unit(&self) -> i128 {
        if self.unit == TimeUnit::Microsecond { 1_000 } else { 1 }
    }
}

/// What of a series has not been made yet.
#[derive(Debug)]
pub struct Values {
    series: Series,
    next: Option<i64>,
}

impl Values {
    /// Further values, so many at most; `None` at the end.
    pub fn take(&mut self, rows: usize) -> Option<ArrayRef> {
        let mut values = Vec::new();
        self.take_into(&mut values, rows);
        (!values.is_empty()).then(|| self.array(values))
    }

    /// Adds further values to some, so many at most.
    pub fn take_into(&mut self, values: &mut Vec<i64>, rows: usize) {
        let (Some(first), Some(limit)) = (self.next, self.series.limit) else { return };
        match &self.series.step {
            Step::Even(step) => {
                let left = counted(first.abs_diff(limit) / step.unsigned_abs());
                let count = left.min(rows);
                values.extend((0..count as i64).map(|place| first.wrapping_add(place.wrapping_mul(*step))));
                let next = first.wrapping_add((count as i64).wrapping_mul(*step));
                self.next = (count < left).then_some(next);
            }
            Step::Calendar(calendar) => {
                let (mut time, end) = (first, values.len().saturating_add(rows));
                self.next = loop {
                    if values.len() == end {
                        break Some(time);
                    }
                    values.push(time);
                    // Beyond the years that a timestamp holds there is no further time.
                    let goes_on = |next: &i64| match calendar.goes_back {
                        true => *next < time && *next >= limit,
                        false => *next > time && *next <= limit,
                    };
                    match calendar.next(time).filter(goes_on) {
                        Some(next) => time = next,
                        None => break None,
                    }
                };
            }
        }
    }

    fn array(&self, values: Vec<i64>) -> ArrayRef {
        match &self.series.data_type {
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Arc::new(TimestampMicrosecondArray::from(values).with_timezone_opt(zone.clone()))
            }
            DataType::Timestamp(_, zone) => {
                Arc::new(TimestampNanosecondArray::from(values).with_timezone_opt(zone.clone()))
            }
            _ => Arc::new(Int64Array::from(values)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(series: &Series) -> Vec<i64> {
        let (mut values, mut made) = (series.values(), Vec::new());
        for rows in [0, 1, 2, 3, 100] {
            values.take_into(&mut made, rows);
        }
        made
    }

    fn numbers(start: i64, stop: i64, step: i64, has_end: bool) -> Vec<i64> {
        let series = Series::of_numbers(Bounds { start, stop, has_end }, step).unwrap();
        let made = all(&series);
        assert_eq!(series.rows(), Precision::Exact(made.len()), "{series:?}");
        let extremes = made.iter().min().copied().zip(made.iter().max().copied());
        assert_eq!(series.extremes(), extremes, "{series:?}");
        made
    }

    #[test]
    fn numbers_end_where_they_should() {
        assert_eq!(numbers(1, 10, 3, true), [1, 4, 7, 10]);
        assert_eq!(numbers(1, 10, 3, false), [1, 4, 7]);
        assert_eq!(numbers(10, 1, -4, true), [10, 6, 2]);
        assert_eq!(numbers(5, 5, 1, true), [5]);
        assert_eq!(numbers(5, 5, -1, false), [0; 0]);
        assert_eq!(numbers(5, 4, 1, true), [0; 0]);
        assert_eq!(numbers(i64::MAX - 1, i64::MAX, 1, true), [i64::MAX - 1, i64::MAX]);
        assert_eq!(numbers(i64::MIN + 1, i64::MIN, -5, true), [i64::MIN + 1]);
        assert_eq!(numbers(i64::MIN, i64::MAX, i64::MAX, true), [i64::MIN, -1, i64::MAX - 1]);
        assert_eq!(numbers(i64::MIN, i64::MIN, 1, false), [0; 0]);
        assert_eq!(numbers(i64::MAX, i64::MAX, -1, false), [0; 0]);
        assert!(Series::of_numbers(Bounds { start: 1, stop: 2, has_end: true }, 0).is_none());
    }

    #[test]
    fn a_calendar_ends_where_it_is_said_to() {
        let clock: Tz = "+00:00".parse().unwrap();
        let nothing = IntervalMonthDayNano::new(0, 0, 0);
        let same = |time| TimestampMicrosecondType::add_month_day_nano(time, nothing, clock);
        for time in CALENDAR {
            assert_eq!(same(time), Some(time));
        }
        assert_eq!((same(CALENDAR[0] - 1), same(CALENDAR[1] + 1)), (None, None));
    }

    #[test]
    fn even_steps_are_those_of_a_calendar() {
        let data_type = DataType::Timestamp(TimeUnit::Microsecond, None);
        for (days, nanoseconds) in [(1, 0), (0, 3_600_000_000_000), (-2, 5_000), (3, -1_000_000)] {
            for has_end in [true, false] {
                let interval = IntervalMonthDayNano::new(0, days, nanoseconds);
                let stop = i64::from(days.signum()) * 20 * 86_400_000_000 + 7_200_000_000;
                let even =
                    Series::of_times(Bounds { start: 17, stop, has_end }, interval, &data_type).unwrap();
                let Step::Even(step) = even.step else { panic!("{even:?}") };
                let calendar = Calendar {
                    interval,
                    clock: "+00:00".parse().unwrap(),
                    unit: TimeUnit::Microsecond,
                    goes_back: step < 0,
                };
                let other = Series { step: Step::Calendar(calendar), ..even.clone() };
                assert_eq!(all(&even), all(&other), "{even:?}");
            }
        }
    }
}
