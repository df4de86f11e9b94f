//! The proleptic Gregorian calendar in KIR: days since 1970-01-01 to year, month and day, and back, for any sign
//! (H. Hinnant, "chrono-compatible low-level date algorithms", 2014: years begin in March, eras have 400 years).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Builder, CompareOp, Function, Handle, Scalar, Type};

use super::text::function;
use crate::context::Context;
use crate::types::Range;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_SHIFT: i128 = 719_468;
/// Days of 400 years.
const ERA_DAYS: i128 = 146_097;

/// The days that chrono, and so Arrow, can represent: -262143-01-01 to 262142-12-31.
pub(super) const CHRONO_DAYS: Range = Range { min: -96_465_292, max: 95_026_236 };

/// The year that a day is in.
pub(super) fn year_of(days: i128) -> i128 {
    let shifted = days + EPOCH_SHIFT;
    let (era, day_of_era) = (shifted.div_euclid(ERA_DAYS), shifted.rem_euclid(ERA_DAYS));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // Years begin in March here: January and February have days 306 and later.
    400 * era + year_of_era + i128::from(day_of_year >= 306)
}

/// A part of a date, as `i32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CalendarPart {
    Year,
    Month,
    Day,
    /// 1 to 366.
    DayOfYear,
}

/// Emits code on integers of one register type.
struct Emit<'a> {
    b: &'a mut Builder,
    register: Scalar,
}

impl Emit<'_> {
    fn int(&mut self, value: i128) -> V {
        self.b.int(self.register, value)
    }

    fn with(&mut self, op: BinaryOp, a: V, constant: i128) -> V {
        let constant = self.int(constant);
        self.b.binary(op, a, constant)
    }

    fn add(&mut self, a: V, constant: i128) -> V {
        self.with(BinaryOp::Add, a, constant)
    }

    fn mul(&mut self, a: V, constant: i128) -> V {
        self.with(BinaryOp::Mul, a, constant)
    }

    fn div(&mut self, a: V, constant: i128) -> V {
        self.with(BinaryOp::Div, a, constant)
    }

    /// a / constant towards negative infinity, and the remainder, which is not negative.
    fn floor_div(&mut self, a: V, constant: i128) -> (V, V) {
        let (quotient, rest) = (self.div(a, constant), self.with(BinaryOp::Rem, a, constant));
        let zero = self.int(0);
        let negative = self.b.lt(rest, zero);
        let (lower, raised) = (self.add(quotient, -1), self.add(rest, constant));
        (self.b.select(negative, lower, quotient), self.b.select(negative, raised, rest))
    }

    /// Year, month (1 to 12) and day (1 to 31).
    fn civil_from_days(&mut self, days: V) -> (V, V, V) {
        let shifted = self.add(days, EPOCH_SHIFT);
        let (era, day_of_era) = self.floor_div(shifted, ERA_DAYS);
        let (by_4, by_100, by_400) =
            (self.div(day_of_era, 1460), self.div(day_of_era, 36_524), self.div(day_of_era, 146_096));
        let corrected = self.b.sub(day_of_era, by_4);
        let corrected = self.b.add(corrected, by_100);
        let corrected = self.b.sub(corrected, by_400);
        let year_of_era = self.div(corrected, 365);
        let start = self.days_of_years(year_of_era);
        let day_of_year = self.b.sub(day_of_era, start);
        let scaled = self.mul(day_of_year, 5);
        let scaled = self.add(scaled, 2);
        let month_index = self.div(scaled, 153);
        let month_start = self.days_of_months(month_index);
        let day = self.b.sub(day_of_year, month_start);
        let day = self.add(day, 1);
        let ten = self.int(10);
        let before_january = self.b.lt(month_index, ten);
        let (same_year, next_year) = (self.add(month_index, 3), self.add(month_index, -9));
        let month = self.b.select(before_january, same_year, next_year);
        let years = self.mul(era, 400);
        let year = self.b.add(years, year_of_era);
        let following = self.add(year, 1);
        (self.b.select(before_january, year, following), month, day)
    }

    /// Days of the first years of an era.
    fn days_of_years(&mut self, years: V) -> V {
        let (days, by_4, by_100) = (self.mul(years, 365), self.div(years, 4), self.div(years, 100));
        let days = self.b.add(days, by_4);
        self.b.sub(days, by_100)
    }

    /// Days of the first months of a year that begins in March.
    fn days_of_months(&mut self, months: V) -> V {
        let scaled = self.mul(months, 153);
        let scaled = self.add(scaled, 2);
        self.div(scaled, 5)
    }

    fn days_from_civil(&mut self, year: V, month: V, day: V) -> V {
        let two = self.int(2);
        let after_february = self.b.compare(CompareOp::Gt, month, two);
        let previous = self.add(year, -1);
        let year = self.b.select(after_february, year, previous);
        let (from_march, wrapped) = (self.add(month, -3), self.add(month, 9));
        let month_index = self.b.select(after_february, from_march, wrapped);
        let (era, year_of_era) = self.floor_div(year, 400);
        let days = self.days_of_years(year_of_era);
        let months = self.days_of_months(month_index);
        let days = self.b.add(days, months);
        let days = self.b.add(days, day);
        let eras = self.mul(era, ERA_DAYS);
        let days = self.b.add(days, eras);
        self.add(days, -EPOCH_SHIFT - 1)
    }
}

/// A part of the date `days` (`i32`, in [`CHRONO_DAYS`]).
pub(super) fn date_part(cx: &mut Context<'_>, part: CalendarPart, days: V) -> V {
    let name = match part {
        CalendarPart::Year => "date_year",
        CalendarPart::Month => "date_month",
        CalendarPart::Day => "date_day",
        CalendarPart::DayOfYear => "date_day_of_year",
    };
    let int = Type::Scalar(Scalar::I32);
    let function = function(cx, name, &[("days", int)], Scalar::I32, |b| {
        let days = b.param(0);
        let mut emit = Emit { b, register: Scalar::I32 };
        let (year, month, day) = emit.civil_from_days(days);
        let result = match part {
            CalendarPart::Year => year,
            CalendarPart::Month => month,
            CalendarPart::Day => day,
            CalendarPart::DayOfYear => {
                let one = emit.int(1);
                let start = emit.days_from_civil(year, one, one);
                let index = emit.b.sub(days, start);
                emit.add(index, 1)
            }
        };
        b.return_value(result);
    });
    cx.builder.call(function, &[days])
}

/// The first day of the year, or of the quarter or month, that `days` (`i32`) is in.
pub(super) fn period_start(cx: &mut Context<'_>, months_of_period: i128, days: V) -> V {
    let int = Type::Scalar(Scalar::I32);
    let name = format!("date_start_of_{months_of_period}_months");
    let function = function(cx, &name, &[("days", int)], Scalar::I32, |b| {
        let days = b.param(0);
        let mut emit = Emit { b, register: Scalar::I32 };
        let (year, month, _) = emit.civil_from_days(days);
        let index = emit.add(month, -1);
        let period = emit.div(index, months_of_period);
        let first = emit.mul(period, months_of_period);
        let (month, one) = (emit.add(first, 1), emit.int(1));
        let start = emit.days_from_civil(year, month, one);
        b.return_value(start);
    });
    cx.builder.call(function, &[days])
}

/// `days` plus months (both `i64`), clamped to the last day of the month; `i64`.
pub(super) fn add_months(cx: &mut Context<'_>, days: V, months: V) -> V {
    let params = [("days", Type::I64), ("months", Type::I64)];
    let function = function(cx, "date_add_months", &params, Scalar::I64, |b| {
        let (days, months) = (b.param(0), b.param(1));
        let mut emit = Emit { b, register: Scalar::I64 };
        let (year, month, day) = emit.civil_from_days(days);
        let total = emit.mul(year, 12);
        let total = emit.b.add(total, month);
        let total = emit.b.add(total, months);
        let total = emit.add(total, -1);
        let (year, month) = emit.floor_div(total, 12);
        let month = emit.add(month, 1);
        // Days of the month: from its first day to the next one's.
        let one = emit.int(1);
        let first = emit.days_from_civil(year, month, one);
        let (next_year, next_month) = emit.floor_div_next(total);
        let next = emit.days_from_civil(next_year, next_month, one);
        let last_index = emit.b.sub(next, first);
        let last_index = emit.add(last_index, -1);
        let index = emit.add(day, -1);
        let index = emit.b.binary(BinaryOp::Min, index, last_index);
        let result = emit.b.add(first, index);
        b.return_value(result);
    });
    cx.builder.call(function, &[days, months])
}

/// The function (year, month, day) to days, all `i32`; `i32::MIN` where there is no such day.
pub(super) fn days_function(cx: &mut Context<'_>) -> Handle<Function> {
    let int = Type::Scalar(Scalar::I32);
    let params = [("year", int), ("month", int), ("day", int)];
    function(cx, "date_from_parts", &params, Scalar::I32, |b| {
        let [year, month, day] = [0, 1, 2].map(|index| b.param(index));
        let mut emit = Emit { b, register: Scalar::I32 };
        let days = emit.days_from_civil(year, month, day);
        // What does not come back is no date.
        let (same_year, same_month, same_day) = emit.civil_from_days(days);
        let year = emit.b.eq(year, same_year);
        let month = emit.b.eq(month, same_month);
        let day = emit.b.eq(day, same_day);
        let exists = emit.b.and(year, month);
        let exists = emit.b.and(exists, day);
        let none = emit.int(i32::MIN.into());
        let result = emit.b.select(exists, days, none);
        b.return_value(result);
    })
}

impl Emit<'_> {
    /// Year and month after the month with this number, counted from January of year 0.
    fn floor_div_next(&mut self, total: V) -> (V, V) {
        let next = self.add(total, 1);
        let (year, month) = self.floor_div(next, 12);
        (year, self.add(month, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::{CHRONO_DAYS, year_of};

    /// Days since 1970-01-01 of the first of January of a year.
    fn new_year(year: i128) -> i128 {
        let before = year - 1;
        let leap_days = before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400);
        365 * before + leap_days - 719_162
    }

    #[test]
    fn bounds_are_those_of_chrono() {
        assert_eq!(new_year(1970), 0);
        assert_eq!(new_year(-262_143), CHRONO_DAYS.min);
        assert_eq!(new_year(262_143) - 1, CHRONO_DAYS.max);
    }

    #[test]
    fn years_begin_in_january() {
        for year in [-262_143, -401, -400, -1, 0, 1, 4, 100, 400, 1600, 1969, 1970, 1972, 2000, 2024, 262_142]
        {
            assert_eq!(year_of(new_year(year)), year, "first of January");
            assert_eq!(year_of(new_year(year) + 58), year, "last of February");
            assert_eq!(year_of(new_year(year + 1) - 1), year, "last of December");
        }
    }
}
