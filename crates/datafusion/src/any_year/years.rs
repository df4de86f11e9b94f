//! `date_trunc` to decades, centuries and millennia, which DataFusion does not know.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use datafusion::common::exec_datafusion_err;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use super::{DAY_SECONDS, PERIOD_DAYS};
use crate::zones::ticks_of_second;

/// How many years a call cuts to: as DuckDB has it, the century of 2024 began with 2000.
pub(super) fn years_of(args: &ScalarFunctionArgs) -> Option<i64> {
    let Some(ColumnarValue::Scalar(part)) = args.args.first() else { return None };
    match part.try_as_str().flatten()?.to_lowercase().as_str() {
        "decade" | "decades" => Some(10),
        "century" | "centuries" => Some(100),
        "millennium" | "millennia" | "millenniums" => Some(1000),
        _ => None,
    }
}

/// The first moments of the years that times of a unit, without a zone, are in.
pub(super) fn truncated(times: &ArrayRef, unit: TimeUnit, years: i64) -> Result<ArrayRef> {
    let day = DAY_SECONDS * ticks_of_second(unit);
    let ticks = cast(times, &DataType::Int64)?;
    let first = |ticks: i64| {
        let year = year_of(ticks.div_euclid(day)).div_euclid(years) * years;
        let first = first_day(year).checked_mul(day);
        first.ok_or_else(|| exec_datafusion_err!("date_trunc: the year {year} is beyond its type"))
    };
    let made = ticks.as_primitive::<Int64Type>().iter().map(|ticks| ticks.map(first).transpose());
    let made: Int64Array = made.collect::<Result<_>>()?;
    let made: ArrayRef = Arc::new(made);
    Ok(cast(&made, times.data_type())?)
}

/// The first day of the year 0 of the calendar, counted from 1970-01-01.
const YEAR_ZERO: i64 = -719_528;

/// The year of a day since 1970-01-01.
fn year_of(day: i64) -> i64 {
    let day = day - YEAR_ZERO;
    // It is this year or the one after it, as no year is longer than 366 days and the average is shorter.
    let about = (day.div_euclid(PERIOD_DAYS)) * 400 + day.rem_euclid(PERIOD_DAYS) / 366;
    let begins = |year: i64| first_day(year) - YEAR_ZERO <= day;
    (about..).take_while(|year| begins(*year)).last().unwrap_or(about)
}

/// The first day of a year, since 1970-01-01.
fn first_day(year: i64) -> i64 {
    // Leap days before it: each fourth year from year 0 on, but of the hundreds only each fourth.
    let before = year - 1;
    YEAR_ZERO + year * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_begin_and_end_where_the_calendar_says() {
        let days = [(0, 1970), (-1, 1969), (10_957, 2000), (10_956, 1999), (11_322, 2000), (11_323, 2001)];
        let far = [(-719_528, 0), (-719_529, -1), (-719_162, 1), (2_932_896, 9999), (2_932_897, 10_000)];
        for (day, year) in days.into_iter().chain(far) {
            assert_eq!(year_of(day), year, "day {day}");
        }
        for year in -1000..12_000 {
            assert_eq!((year_of(first_day(year)), year_of(first_day(year) - 1)), (year, year - 1), "{year}");
        }
    }
}
