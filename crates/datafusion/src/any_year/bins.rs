//! Bins of times of any year, from any origin.

use datafusion::arrow::array::{Array, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::zones::ticks_of_second;

const DAY_NS: i128 = 86_400_000_000_000;
const SECOND_NS: i128 = 1_000_000_000;

/// How wide bins are.
#[derive(Clone, Copy)]
enum Width {
    Months(i64),
    Nanoseconds(i128),
}

impl Width {
    fn of(interval: &ColumnarValue) -> Option<Width> {
        let (months, ns) = match interval {
            ColumnarValue::Scalar(ScalarValue::IntervalMonthDayNano(Some(width))) => {
                (i64::from(width.months), i128::from(width.days) * DAY_NS + i128::from(width.nanoseconds))
            }
            ColumnarValue::Scalar(ScalarValue::IntervalDayTime(Some(width))) => {
                (0, i128::from(width.days) * DAY_NS + i128::from(width.milliseconds) * 1_000_000)
            }
            ColumnarValue::Scalar(ScalarValue::IntervalYearMonth(Some(months))) => (i64::from(*months), 0),
            _ => return None,
        };
        match (months, ns) {
            (0, 1..) => Some(Width::Nanoseconds(ns)),
            (1.., 0) => Some(Width::Months(months)),
            _ => None,
        }
    }

    /// The beginning of the bin that a time is in, all in nanoseconds since 1970.
    fn bin(self, time: i128, origin: i128) -> i128 {
        match self {
            Width::Nanoseconds(width) => time - (time - origin).rem_euclid(width),
            Width::Months(width) => {
                let (of_time, of_origin) = (months_of(time), months_of(origin));
                let months = (of_time - of_origin).div_euclid(width) * width;
                let bin = add_months(origin, months);
                // An origin within a month may be later in it than the time.
                if bin > time { add_months(origin, months - width) } else { bin }
            }
        }
    }
}

/// The bins of times, for a call of `date_bin` that gives a width which is constant; `None` where it is not, or of no width.
pub(super) fn bins(args: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let (width, times) = match args.args.as_slice() {
        [width, times] | [width, times, _] => (Width::of(width), times.to_array(args.number_rows)?),
        _ => return Ok(None),
    };
    let (Some(width), DataType::Timestamp(unit, _)) = (width, times.data_type()) else { return Ok(None) };
    let origins = match args.args.get(2) {
        None => None,
        Some(origin) => match origin.data_type() {
            DataType::Timestamp(unit, _) => {
                let origins = cast(&origin.to_array(args.number_rows)?, &DataType::Int64)?;
                Some((
                    origins.as_primitive::<Int64Type>().clone(),
                    SECOND_NS / i128::from(ticks_of_second(unit)),
                ))
            }
            _ => return Ok(None),
        },
    };
    let origin = |row: usize| match &origins {
        None => Some(0),
        Some((origins, tick)) => origins.is_valid(row).then(|| i128::from(origins.value(row)) * tick),
    };
    let tick = SECOND_NS / i128::from(ticks_of_second(*unit));
    let values = cast(&times, &DataType::Int64)?;
    let bins = values.as_primitive::<Int64Type>().iter().enumerate().map(|(row, time)| {
        let (Some(time), Some(origin)) = (time, origin(row)) else { return Ok(None) };
        let bin = width.bin(i128::from(time) * tick, origin).div_euclid(tick);
        i64::try_from(bin).map(Some).map_err(|_| {
            exec_datafusion_err!("date_bin: a bin of {} is beyond what the type holds", times.data_type())
        })
    });
    let bins = bins.collect::<Result<Int64Array>>()?;
    Ok(Some(ColumnarValue::Array(cast(&bins, times.data_type())?)))
}

/// The number of a time's month, the first of the year 0 being 0.
fn months_of(time: i128) -> i64 {
    let (year, month, _) = date_of(time.div_euclid(DAY_NS) as i64);
    year * 12 + month
}

/// A time so many months later; a day that the month has not is its last.
fn add_months(time: i128, months: i64) -> i128 {
    let (days, in_day) = (time.div_euclid(DAY_NS) as i64, time.rem_euclid(DAY_NS));
    let (year, month, day) = date_of(days);
    let month = year * 12 + month + months;
    let first = first_of(month);
    let length = first_of(month + 1) - first;
    i128::from(first + day.min(length - 1)) * DAY_NS + in_day
}

/// Year, month and day of a day since 1970, the last two from 0 on (Hinnant, chrono-compatible low-level date algorithms).
pub fn date_of(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5;
    let month = (from_march + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, month, day)
}

/// The first day of a month, counted from the year 0 on, since 1970.
pub fn first_of(month: i64) -> i64 {
    let (year, month) = (month.div_euclid(12), month.rem_euclid(12));
    // Years from March on.
    let year = if month < 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 10) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_months_are_those_of_the_calendar() {
        assert_eq!(date_of(0), (1970, 0, 0));
        assert_eq!(date_of(11_016), (2000, 1, 28));
        assert_eq!(date_of(-719_528), (0, 0, 0));
        assert_eq!(date_of(-719_529), (-1, 11, 30));
        for days in (-1_000_000..3_000_000).step_by(13) {
            let (year, month, day) = date_of(days);
            assert_eq!(first_of(year * 12 + month) + day, days);
        }
    }

    #[test]
    fn months_end_where_they_do() {
        let day = |days: i64| i128::from(days) * DAY_NS;
        // The last day of January 2024 and a month later.
        assert_eq!(add_months(day(19_753), 1), day(19_782));
        let width = Width::Months(1);
        // From the 15th on.
        assert_eq!(width.bin(day(19_753), day(19_737)), day(19_737));
        assert_eq!(width.bin(day(19_736), day(19_737)), day(19_706));
    }
}
