//! Arithmetic and casts of dates and timestamps (without a time zone, or in UTC), as Arrow and chrono do them.

use kelpie_kir::builder::V;
use kelpie_kir::{OverflowOp, Scalar};

use super::arithmetic::symbol;
use super::cast::{Converted, bounded, scaled_within};
use super::civil::{self, CHRONO_DAYS};
use super::literal::in_register;
use super::value::{Int, checked, constant, either, int, integer, lower_int, report, unsupported};
use crate::context::{Context, Lowered, Status, Unsupported, register_of};
use crate::expr::range::{self, literal_class};
use crate::expr::{ArithmeticOp, Expr, ExprKind};
use crate::types::{DataType, Interval, Literal, Range};

const NANOSECONDS_OF_DAY: i64 = 86_400_000_000_000;

/// Ticks of a day; an error where the type is no timestamp in UTC.
pub(super) fn ticks_of_day(data_type: &DataType) -> Result<i128, Unsupported> {
    Ok(86_400 * ticks_of_second(data_type)?)
}

/// Ticks of a second; an error where the type is no timestamp in UTC.
pub(super) fn ticks_of_second(data_type: &DataType) -> Result<i128, Unsupported> {
    match data_type {
        DataType::Timestamp { unit, timezone } => match timezone.as_deref() {
            None | Some("UTC" | "+00:00" | "Z") => Ok(unit.per_second().into()),
            Some(zone) => unsupported(format!("time zone {zone}")),
        },
        other => unsupported(format!("{other} is no timestamp")),
    }
}

/// a / divisor towards negative infinity, for a divisor above 0; also the remainder, which is not negative.
pub(super) fn floor_div(cx: &mut Context<'_>, a: Int, divisor: i128) -> (Int, Int) {
    let register = register_of(a.range.union(Range { min: -1, max: divisor }));
    let value = cx.builder.convert(a.value, register);
    let divisor_value = cx.builder.int(register, divisor);
    let (mut quotient, mut rest) =
        (cx.builder.div(value, divisor_value), cx.builder.rem(value, divisor_value));
    if a.range.min < 0 {
        let b = &mut *cx.builder;
        let zero = b.zero(register);
        let one = b.int(register, 1);
        let negative = b.lt(rest, zero);
        let (lower, raised) = (b.sub(quotient, one), b.add(rest, divisor_value));
        quotient = b.select(negative, lower, quotient);
        rest = b.select(negative, raised, rest);
    }
    let quotients = Range { min: a.range.min.div_euclid(divisor), max: a.range.max.div_euclid(divisor) };
    (
        Int { value: quotient, range: quotients },
        Int { value: rest, range: Range { min: 0, max: divisor - 1 } },
    )
}

/// Lowers a date or timestamp ± an interval literal.
pub(super) fn add_interval(
    cx: &mut Context<'_>,
    op: ArithmeticOp,
    left: &Expr,
    right: &Expr,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let (point, interval) = match (&left.kind, &right.kind, op) {
        (_, ExprKind::Literal(Literal::Interval(interval)), ArithmeticOp::Add) => (left, *interval),
        (_, ExprKind::Literal(Literal::Interval(interval)), ArithmeticOp::Subtract) => {
            // Wrapping: the one value that has no negative is far out of range either way.
            let Interval { months, days, nanoseconds } = *interval;
            let (months, days) = (months.wrapping_neg(), days.wrapping_neg());
            (left, Interval { months, days, nanoseconds: nanoseconds.wrapping_neg() })
        }
        (ExprKind::Literal(Literal::Interval(interval)), _, ArithmeticOp::Add) => (right, *interval),
        _ => {
            let (a, b) = (&left.data_type, &right.data_type);
            return unsupported(format!("{a} {} {b} other than with a constant interval", symbol(op)));
        }
    };
    if &point.data_type != data_type {
        return unsupported(format!("{} ± an interval as {data_type}", point.data_type));
    }
    match data_type {
        DataType::Date32 => add_to_date(cx, point, interval),
        DataType::Timestamp { .. } => add_to_timestamp(cx, point, interval, data_type),
        other => unsupported(format!("{other} ± an interval")),
    }
}

/// A literal integer of the query, with the range of its class.
fn parameter(cx: &mut Context<'_>, value: i128) -> Int {
    let range = literal_class(value);
    Int { value: in_register(cx, value, register_of(range)), range }
}

/// Keeps a value within bounds and adds to what is bad.
fn keep(cx: &mut Context<'_>, a: Int, bounds: Range, bad: &mut Option<V>) -> Result<Int, Unsupported> {
    let converted = bounded(cx, a, bounds);
    *bad = either(cx, *bad, converted.bad);
    int(&converted.value)
}

/// Days plus months, clamped to the last day of the month; within chrono's days.
fn months_later(
    cx: &mut Context<'_>,
    days: Int,
    months: i32,
    bad: &mut Option<V>,
) -> Result<Int, Unsupported> {
    if months == 0 {
        return Ok(days);
    }
    let months = parameter(cx, months.into());
    let register = Scalar::I64;
    let (day, delta) = (cx.builder.convert(days.value, register), cx.builder.convert(months.value, register));
    let value = civil::add_months(cx, day, delta);
    // A month moves a day by at most 31 days, and clamping by at most 3 to the front.
    let range = Range {
        min: days.range.min + 31 * months.range.min.min(0) - 3,
        max: days.range.max + 31 * months.range.max.max(0),
    };
    keep(cx, Int { value, range }, CHRONO_DAYS, bad)
}

fn add_to_date(cx: &mut Context<'_>, point: &Expr, interval: Interval) -> Result<Lowered, Unsupported> {
    let (days, valid) = lower_int(cx, point)?;
    let mut bad = None;
    let days = keep(cx, days, CHRONO_DAYS, &mut bad)?;
    let mut days = months_later(cx, days, interval.months, &mut bad)?;
    let more = i128::from(interval.days) + i128::from(interval.nanoseconds / NANOSECONDS_OF_DAY);
    if more != 0 {
        let more = parameter(cx, more);
        let (sum, _) = checked(cx, OverflowOp::Add, days, more);
        days = keep(cx, sum, CHRONO_DAYS, &mut bad)?;
    }
    if let Some(bad) = bad {
        report(cx, bad, valid, Status::Overflow);
    }
    Ok(integer(cx, days.value, valid, days.range))
}

fn add_to_timestamp(
    cx: &mut Context<'_>,
    point: &Expr,
    interval: Interval,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    let (per_second, per_day) = (ticks_of_second(data_type)?, ticks_of_day(data_type)?);
    let chrono_ticks = Range { min: CHRONO_DAYS.min * per_day, max: (CHRONO_DAYS.max + 1) * per_day - 1 };
    let (ticks, valid) = lower_int(cx, point)?;
    let mut bad = None;
    let mut ticks = keep(cx, ticks, chrono_ticks, &mut bad)?;
    if interval.months != 0 {
        let (days, time) = floor_div(cx, ticks, per_day);
        let days = months_later(cx, days, interval.months, &mut bad)?;
        let per_day = constant(cx, per_day);
        let (midnight, _) = checked(cx, OverflowOp::Mul, days, per_day);
        (ticks, _) = checked(cx, OverflowOp::Add, midnight, time);
    }
    // Time below a tick is cut off towards the past.
    let nanoseconds_of_tick = 1_000_000_000 / per_second;
    let more = i128::from(interval.days) * per_day
        + i128::from(interval.nanoseconds).div_euclid(nanoseconds_of_tick);
    if more != 0 {
        let more = parameter(cx, more);
        let (sum, _) = checked(cx, OverflowOp::Add, ticks, more);
        ticks = keep(cx, sum, chrono_ticks, &mut bad)?;
    }
    let full = data_type.full_range().unwrap_or(range::UNBOUNDED);
    let ticks = keep(cx, ticks, full, &mut bad)?;
    if let Some(bad) = bad {
        report(cx, bad, valid, Status::Overflow);
    }
    Ok(integer(cx, ticks.value, valid, ticks.range))
}

/// Casts between dates and timestamps.
pub(super) fn convert(
    cx: &mut Context<'_>,
    value: Int,
    from: &DataType,
    to: &DataType,
) -> Result<Converted, Unsupported> {
    let full = to.full_range().unwrap_or(range::UNBOUNDED);
    match (from, to) {
        (DataType::Date32, _) => Ok(scaled_within(cx, value, ticks_of_day(to)?, full)),
        (_, DataType::Date32) => {
            let (days, _) = floor_div(cx, value, ticks_of_day(from)?);
            Ok(bounded(cx, days, CHRONO_DAYS))
        }
        _ => {
            let (old, new) = (ticks_of_second(from)?, ticks_of_second(to)?);
            if new >= old {
                return Ok(scaled_within(cx, value, new / old, full));
            }
            let divisor = old / new;
            let register = register_of(value.range.union(Range { min: 0, max: divisor }));
            let dividend = cx.builder.convert(value.value, register);
            let quotient = cx.builder.div_int(dividend, divisor);
            let range = Range { min: value.range.min / divisor, max: value.range.max / divisor };
            Ok(Converted { value: integer(cx, quotient, None, range), bad: None })
        }
    }
}
