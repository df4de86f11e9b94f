//! Calls that DataFusion has no answer for: parts of a date beyond its own, and numbers and texts beyond what nanoseconds hold.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::functions::datetime::date_trunc;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, ScalarUDF, lit, when};
use kelpie_datafusion::{AnyYear, ticks_of_second};

use super::TO_TIMESTAMP;
use super::at_zone::at_time_zone;
use super::operands::{beyond_nanoseconds, text};

/// What a call is in other words.
pub(super) fn mended_call(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    match (call.func.name(), call.args.as_slice()) {
        ("date_part", [part, _]) => match text(part) {
            Some(part) => part_by_others(&part.to_lowercase(), call, schema),
            None => Ok(None),
        },
        (TO_TIMESTAMP, [value]) => Ok(timestamp_of(call, value, schema)),
        _ => Ok(None),
    }
}

/// Parts that DataFusion does not know, by those that it does.
fn part_by_others(part: &str, call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    /// The day that 1970-01-01 is, counted from the beginning of astronomers' days, as PostgreSQL and DuckDB count them.
    const FIRST_DAY: f64 = 2_440_588.0;
    const SECONDS_OF_DAY: f64 = 86_400.0;
    let of = |part: &str| {
        let mut call = call.clone();
        if part == "year" {
            of_any_year(&mut call, schema);
        }
        if let Some(argument) = call.args.first_mut() {
            *argument = lit(part);
        }
        Expr::ScalarFunction(call)
    };
    let length = match part {
        "epoch" => return exact_epoch(call, schema),
        "era" => {
            // NULL has none.
            let mut era = when(of("year").gt(lit(0)), lit(1));
            return era.when(of("year").lt_eq(lit(0)), lit(0)).end().map(Some);
        }
        "weekday" | "dayofweek" => return Ok(Some(of("dow"))),
        "dayofyear" => return Ok(Some(of("doy"))),
        "weekofyear" => return Ok(Some(of("week"))),
        "yearweek" => return Ok(Some(of("isoyear") * lit(100) + of("week"))),
        "julian" => return Ok(Some(of("epoch") / lit(SECONDS_OF_DAY) + lit(FIRST_DAY))),
        "decade" | "decades" => return Ok(Some(of("year") / lit(10))),
        "century" | "centuries" => 100,
        "millennium" | "millennia" | "millenniums" => 1000,
        _ => return part_of_zone(part, call, schema),
    };
    // There is no year 0 in them: the first century is that of the years 1 to 100.
    let after = (of("year") - lit(1)) / lit(length) + lit(1);
    let before = of("year") / lit(length) - lit(1);
    when(of("year").gt(lit(0)), after).otherwise(before).map(Some)
}

/// Makes the year of a time in nanoseconds one of microseconds, where it is compared with a year that nanoseconds do not hold: DataFusion
/// compares the time with the first moment of that year, which then is another.
pub(super) fn mend_year(comparison: &mut BinaryExpr, schema: &DFSchema) -> bool {
    const HELD: std::ops::RangeInclusive<i64> = 1678..=2261;
    let BinaryExpr { left, right, .. } = comparison;
    let is_beyond = |expr: &Expr| match expr {
        Expr::Literal(year, _) => match year.cast_to(&DataType::Int64) {
            Ok(ScalarValue::Int64(Some(year))) => !HELD.contains(&year),
            _ => false,
        },
        _ => false,
    };
    let call = match (left.as_mut(), right.as_mut()) {
        (Expr::ScalarFunction(call), year) | (year, Expr::ScalarFunction(call)) if is_beyond(year) => call,
        _ => return false,
    };
    let is_year = call.func.name() == "date_part"
        && call.args.first().and_then(text).is_some_and(|part| part.eq_ignore_ascii_case("year"));
    is_year && of_any_year(call, schema)
}

/// A cast of a time to a coarser unit, which leaves out the rest of the last one that has begun. Arrow's cuts towards 1970.
pub(super) fn narrowed(cast: &Cast, schema: &DFSchema) -> Option<Expr> {
    static TRUNCATE: LazyLock<Option<Arc<ScalarUDF>>> =
        LazyLock::new(|| AnyYear::of(&date_trunc()).map(Arc::new));
    let DataType::Timestamp(to, zone) = cast.field.data_type() else { return None };
    let Ok(DataType::Timestamp(from, own)) = cast.expr.get_type(schema) else { return None };
    let unit = match to {
        TimeUnit::Second => "second",
        TimeUnit::Millisecond => "millisecond",
        TimeUnit::Microsecond => "microsecond",
        TimeUnit::Nanosecond => return None,
    };
    let is_narrowed =
        |expr: &Expr| matches!(expr, Expr::ScalarFunction(call) if call.func.name() == super::OF_TIMES[0]);
    if ticks_of_second(from) <= ticks_of_second(*to) || own != *zone || is_narrowed(&cast.expr) {
        return None;
    }
    let arguments = vec![lit(unit), cast.expr.as_ref().clone()];
    let begun = ScalarFunction::new_udf(TRUNCATE.clone()?, arguments);
    Some(Expr::Cast(Cast::new(Box::new(Expr::ScalarFunction(begun)), cast.field.data_type().clone())))
}

/// Makes the time of a call one of microseconds, if it is one of nanoseconds; whether it is.
fn of_any_year(call: &mut ScalarFunction, schema: &DFSchema) -> bool {
    let Some(time) = call.args.get_mut(1) else { return false };
    let Ok(DataType::Timestamp(TimeUnit::Nanosecond, zone)) = time.get_type(schema) else { return false };
    super::operands::cast(time, DataType::Timestamp(TimeUnit::Microsecond, zone));
    true
}

/// Seconds since 1970 of a time in nanoseconds, and those of a duration: DataFusion divides a float of all nanoseconds, which has lost the
/// last ones of them, and has no answer for durations of more than 68 years.
fn exact_epoch(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let [_, time] = call.args.as_slice() else { return Ok(None) };
    let unit = match time.get_type(schema)? {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => TimeUnit::Nanosecond,
        DataType::Duration(unit) => unit,
        _ => return Ok(None),
    };
    if time.is_volatile() {
        return Ok(None);
    }
    let cast = |expr: Expr, data_type| Expr::Cast(Cast::new(Box::new(expr), data_type));
    let ticks = || cast(time.clone(), DataType::Int64);
    let per_second = ticks_of_second(unit);
    let seconds = cast(ticks() / lit(per_second), DataType::Float64);
    let rest = cast(ticks() % lit(per_second), DataType::Float64);
    Ok(Some(seconds + rest / lit(per_second as f64)))
}

/// How far the clocks of a time's zone are ahead of UTC, in seconds, or the hours or minutes of that; 0 for a time without a zone.
fn part_of_zone(part: &str, call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    let of_seconds = |seconds: Expr| match part {
        "timezone" => Some(seconds),
        "timezone_hour" => Some(seconds / lit(3600)),
        "timezone_minute" => Some(seconds % lit(3600) / lit(60)),
        _ => None,
    };
    let [_, time] = call.args.as_slice() else { return Ok(None) };
    let whole = |number: Expr| Expr::Cast(Cast::new(Box::new(number), DataType::Int64));
    let ahead = match time.get_type(schema)? {
        DataType::Timestamp(unit, Some(zone)) => {
            let args = vec![time.clone(), lit(zone.to_string())];
            let local = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(at_time_zone()), args));
            (whole(local) - whole(time.clone())) / lit(ticks_of_second(unit))
        }
        _ => {
            // NULL has none.
            let mut call = call.clone();
            if let Some(argument) = call.args.first_mut() {
                *argument = lit("epoch");
            }
            whole(Expr::ScalarFunction(call) * lit(0.0))
        }
    };
    Ok(of_seconds(ahead))
}

/// Seconds since 1970, or a text that nanoseconds do not hold: microseconds.
fn timestamp_of(call: &ScalarFunction, value: &Expr, schema: &DFSchema) -> Option<Expr> {
    let DataType::Timestamp(TimeUnit::Nanosecond, zone) =
        Expr::ScalarFunction(call.clone()).get_type(schema).ok()?
    else {
        return None;
    };
    let cast_to =
        |value: Expr, unit| Expr::Cast(Cast::new(Box::new(value), DataType::Timestamp(unit, zone.clone())));
    if text(value).is_some() {
        let written =
            Cast::new(Box::new(value.clone()), DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()));
        return beyond_nanoseconds(&written).map(|value| Expr::Literal(value, None));
    }
    let is_integer = value.get_type(schema).is_ok_and(|data_type| data_type.is_integer());
    let seconds = || Expr::Cast(Cast::new(Box::new(value.clone()), DataType::Int64));
    is_integer.then(|| cast_to(cast_to(seconds(), TimeUnit::Second), TimeUnit::Microsecond))
}
