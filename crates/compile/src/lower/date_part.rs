//! `date_part`, `date_trunc` and `date_bin` of dates and timestamps.

use kelpie_kir::builder::V;
use kelpie_kir::{OverflowOp, Scalar};

use super::cast::bounded;
use super::civil::{self, CHRONO_DAYS, CalendarPart};
use super::datetime::{floor_div, ticks_of_day, ticks_of_second};
use super::value::{
    Int, both, checked, constant, either, float, int, integer, lower_int, report, unsupported,
};
use crate::context::{Context, Lowered, Status, Unsupported};
use crate::expr::{Bins, DatePart, Expr, Granularity};
use crate::types::{DataType, Range, Spacing};

/// The days whose nanoseconds fit `i64`.
const NANOSECOND_DAYS: Range = Range { min: -106_751, max: 106_751 };

/// Lowers `date_part`: NULL for what chrono cannot represent.
pub(super) fn lower_part(
    cx: &mut Context<'_>,
    part: DatePart,
    input: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let expected = match part {
        DatePart::Epoch => DataType::Float64,
        DatePart::Nanosecond => DataType::Int64,
        _ => DataType::Int32,
    };
    if *data_type != expected {
        return unsupported(format!("date_part {part:?} as {data_type}"));
    }
    let (value, valid) = lower_int(cx, input)?;
    let is_date = input.data_type == DataType::Date32;
    if part == DatePart::Epoch {
        let number = cx.builder.convert(value.value, Scalar::F64);
        let seconds = if is_date {
            let factor = cx.builder.f64(86_400.0);
            cx.builder.mul(number, factor)
        } else {
            let divisor = cx.builder.f64(ticks_of_second(&input.data_type)? as f64);
            cx.builder.div(number, divisor)
        };
        return Ok(float(seconds, valid));
    }
    if is_date {
        if is_time_part(part) {
            let zero = constant(cx, 0);
            return Ok(integer(cx, zero.value, valid, zero.range));
        }
        return day_part(cx, part, value, valid);
    }
    let (per_day, per_second) = (ticks_of_day(&input.data_type)?, ticks_of_second(&input.data_type)?);
    let (days, time) = floor_div(cx, value, per_day);
    if !is_time_part(part) {
        return day_part(cx, part, days, valid);
    }
    let valid = representable(cx, days, valid)?.1;
    let result = time_part(cx, part, time, per_second);
    Ok(integer(cx, result.value, valid, result.range))
}

fn is_time_part(part: DatePart) -> bool {
    use DatePart::*;
    matches!(part, Hour | Minute | Second | Millisecond | Microsecond | Nanosecond)
}

/// Days as `i32`, and NULL where chrono cannot represent them.
fn representable(cx: &mut Context<'_>, days: Int, valid: Option<V>) -> Result<(V, Option<V>), Unsupported> {
    let converted = bounded(cx, days, CHRONO_DAYS);
    let good = converted.bad.map(|bad| cx.builder.not(bad));
    let days = int(&converted.value)?.value;
    Ok((cx.builder.convert(days, Scalar::I32), both(cx, valid, good)))
}

fn day_part(
    cx: &mut Context<'_>,
    part: DatePart,
    days: Int,
    valid: Option<V>,
) -> Result<Lowered, Unsupported> {
    let clamp = |day: i128| day.clamp(CHRONO_DAYS.min, CHRONO_DAYS.max);
    let years =
        Range { min: civil::year_of(clamp(days.range.min)), max: civil::year_of(clamp(days.range.max)) };
    let (days, valid) = representable(cx, days, valid)?;
    let bounds = |min: i32, max: i32| Range::new(min, max);
    let (value, range) = match part {
        DatePart::Year => (civil::date_part(cx, CalendarPart::Year, days), years),
        DatePart::Month => (civil::date_part(cx, CalendarPart::Month, days), bounds(1, 12)),
        DatePart::Quarter => {
            let month = civil::date_part(cx, CalendarPart::Month, days);
            let (two, three) = (cx.builder.i32(2), cx.builder.i32(3));
            let shifted = cx.builder.add(month, two);
            (cx.builder.div(shifted, three), bounds(1, 4))
        }
        DatePart::Day => (civil::date_part(cx, CalendarPart::Day, days), bounds(1, 31)),
        DatePart::DayOfYear => (civil::date_part(cx, CalendarPart::DayOfYear, days), bounds(1, 366)),
        // 1970-01-01 was a Thursday: day 4 from Sunday, day 3 from Monday.
        DatePart::DayOfWeek => (day_of_week(cx, days, 4), bounds(0, 6)),
        DatePart::Week => (iso_week(cx, days), bounds(1, 53)),
        DatePart::IsoYear => {
            let thursday = iso_thursday(cx, days);
            let range = Range { min: years.min - 1, max: years.max + 1 };
            (civil::date_part(cx, CalendarPart::Year, thursday), range)
        }
        DatePart::IsoDayOfWeek => {
            let (from_monday, one) = (day_of_week(cx, days, 3), cx.builder.i32(1));
            (cx.builder.add(from_monday, one), bounds(1, 7))
        }
        other => return unsupported(format!("date_part {other:?} of a date")),
    };
    Ok(integer(cx, value, valid, range))
}

/// 0 to 6, where day 0 of the epoch is `epoch_day`.
fn day_of_week(cx: &mut Context<'_>, days: V, epoch_day: i32) -> V {
    let value = cx.builder.add_int(days, epoch_day);
    let min = CHRONO_DAYS.min;
    let shifted = Int { value, range: Range { min, max: -min } };
    floor_div(cx, shifted, 7).1.value
}

/// The Thursday of a day's week, which decides what year the week belongs to.
fn iso_thursday(cx: &mut Context<'_>, days: V) -> V {
    let from_monday = day_of_week(cx, days, 3);
    let monday = cx.builder.sub(days, from_monday);
    cx.builder.add_int(monday, 3)
}

/// A week's number is how many Thursdays the year of its Thursday has had.
fn iso_week(cx: &mut Context<'_>, days: V) -> V {
    let thursday = iso_thursday(cx, days);
    let day_of_year = civil::date_part(cx, CalendarPart::DayOfYear, thursday);
    let (six, seven) = (cx.builder.i32(6), cx.builder.i32(7));
    let shifted = cx.builder.add(day_of_year, six);
    cx.builder.div(shifted, seven)
}

/// A part of the time of day, which is in ticks and not negative.
fn time_part(cx: &mut Context<'_>, part: DatePart, time: Int, per_second: i128) -> Int {
    let (unit, modulus) = match part {
        DatePart::Hour => (3600 * per_second, 24),
        DatePart::Minute => (60 * per_second, 60),
        DatePart::Second => (per_second, 60),
        _ => (1, 60 * per_second),
    };
    let (count, _) = floor_div(cx, time, unit);
    let (_, value) = floor_div(cx, count, modulus);
    let per_second_wanted = match part {
        DatePart::Millisecond => 1_000,
        DatePart::Microsecond => 1_000_000,
        DatePart::Nanosecond => 1_000_000_000,
        _ => return value,
    };
    if per_second_wanted >= per_second {
        let factor = constant(cx, per_second_wanted / per_second);
        checked(cx, OverflowOp::Mul, value, factor).0
    } else {
        floor_div(cx, value, per_second / per_second_wanted).0
    }
}

/// Lowers `date_trunc` of a timestamp.
pub(super) fn lower_trunc(
    cx: &mut Context<'_>,
    granularity: Granularity,
    input: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    if &input.data_type != data_type {
        return unsupported(format!("date_trunc of {} as {data_type}", input.data_type));
    }
    let (per_second, per_day) = (ticks_of_second(data_type)?, ticks_of_day(data_type)?);
    let (value, valid) = lower_int(cx, input)?;
    let Some(unit) = fixed_unit(granularity, (per_second, per_day)) else {
        return coarse_trunc(cx, granularity, value, valid, data_type);
    };
    if unit <= 1 {
        return Ok(integer(cx, value.value, valid, value.range));
    }
    let (units, _) = floor_div(cx, value, unit);
    scaled_back(cx, (units, unit), None, valid, data_type)
}

/// Lowers `date_bin` of a timestamp by bins of some ticks.
pub(super) fn lower_bins(
    cx: &mut Context<'_>,
    bins: Bins,
    input: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    if &input.data_type != data_type || bins.width < 1 {
        return unsupported(format!("date_bin of {} as {data_type}", input.data_type));
    }
    let (value, valid) = lower_int(cx, input)?;
    let first = constant(cx, bins.first.into());
    let (moved, below) = checked(cx, OverflowOp::Sub, value, first);
    let (count, _) = floor_div(cx, moved, bins.width.into());
    let full = data_type.full_range().unwrap_or(crate::expr::range::UNBOUNDED);
    let start = super::cast::scaled_within(cx, count, bins.width.into(), full);
    let (start, bad) = (int(&start.value)?, start.bad);
    let (start, above) = checked(cx, OverflowOp::Add, start, first);
    let within = bounded(cx, start, full);
    let bad = [bad, above, within.bad].into_iter().fold(below, |all, bad| either(cx, all, bad));
    if let Some(bad) = bad {
        report(cx, bad, valid, Status::CastOutOfRange);
    }
    Ok(Lowered { valid, ..within.value })
}

/// Ticks of a granularity of days and shorter, by those of a second and a day.
fn fixed_unit(granularity: Granularity, (per_second, per_day): (i128, i128)) -> Option<i128> {
    Some(match granularity {
        Granularity::Microsecond => per_second / 1_000_000,
        Granularity::Millisecond => per_second / 1_000,
        Granularity::Second => per_second,
        Granularity::Minute => 60 * per_second,
        Granularity::Hour => 3600 * per_second,
        Granularity::Day => per_day,
        _ => return None,
    })
}

/// The distances of truncated times. Months are told apart by their days.
pub(super) fn trunc_spacing(granularity: Granularity, data_type: &DataType) -> Option<Spacing> {
    let (per_second, per_day) = (ticks_of_second(data_type).ok()?, ticks_of_day(data_type).ok()?);
    match (granularity, fixed_unit(granularity, (per_second, per_day))) {
        (_, Some(unit)) => Spacing::new(0, unit),
        // The first day is a Thursday, and weeks begin on Mondays.
        (Granularity::Week, _) => Spacing::new(-3 * per_day, 7 * per_day),
        _ => Spacing::new(0, per_day),
    }
}

/// Weeks and longer: DataFusion computes in nanoseconds, so only their years have a result.
fn coarse_trunc(
    cx: &mut Context<'_>,
    granularity: Granularity,
    value: Int,
    valid: Option<V>,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let (per_second, per_day) = (ticks_of_second(data_type)?, ticks_of_day(data_type)?);
    let scale = 1_000_000_000 / per_second;
    let bounds = Range { min: i128::from(i64::MIN) / scale, max: i128::from(i64::MAX) / scale };
    let in_range = bounded(cx, value, bounds);
    let (days, _) = floor_div(cx, int(&in_range.value)?, per_day);
    let day = cx.builder.convert(days.value, Scalar::I32);
    let (start, longest) = match granularity {
        Granularity::Week => {
            let from_monday = day_of_week(cx, day, 3);
            (cx.builder.sub(day, from_monday), 6)
        }
        Granularity::Month => (civil::period_start(cx, 1, day), 30),
        Granularity::Quarter => (civil::period_start(cx, 3, day), 91),
        _ => (civil::period_start(cx, 12, day), 365),
    };
    let start = Int { value: start, range: Range { min: days.range.min - longest, max: days.range.max } };
    let kept = bounded(cx, start, NANOSECOND_DAYS);
    let bad = either(cx, in_range.bad, kept.bad);
    scaled_back(cx, (int(&kept.value)?, per_day), bad, valid, data_type)
}

/// `count × unit` ticks; an error where that is beyond the type, or `bad` already.
fn scaled_back(
    cx: &mut Context<'_>,
    (count, unit): (Int, i128),
    bad: Option<V>,
    valid: Option<V>,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let full = data_type.full_range().unwrap_or(crate::expr::range::UNBOUNDED);
    let scaled = super::cast::scaled_within(cx, count, unit, full);
    if let Some(bad) = either(cx, bad, scaled.bad) {
        report(cx, bad, valid, Status::CastOutOfRange);
    }
    Ok(Lowered { valid, ..scaled.value })
}
