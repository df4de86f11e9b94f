//! Calls that DataFusion has no answer for: parts of a date beyond its own, and numbers and texts beyond what nanoseconds hold.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, lit, when};

use super::TO_TIMESTAMP;
use super::operands::{beyond_nanoseconds, text};

/// What a call is in other words.
pub(super) fn mended_call(call: &ScalarFunction, schema: &DFSchema) -> Result<Option<Expr>> {
    match (call.func.name(), call.args.as_slice()) {
        ("date_part", [part, _]) => match text(part) {
            Some(part) => part_by_years(&part.to_lowercase(), call),
            None => Ok(None),
        },
        (TO_TIMESTAMP, [value]) => Ok(timestamp_of(call, value, schema)),
        _ => Ok(None),
    }
}

/// Decades, centuries and millennia, by years.
fn part_by_years(part: &str, call: &ScalarFunction) -> Result<Option<Expr>> {
    let of_year = |part: &str| {
        let mut call = call.clone();
        if let Some(argument) = call.args.first_mut() {
            *argument = lit(part);
        }
        Expr::ScalarFunction(call)
    };
    let length = match part {
        "decade" | "decades" => return Ok(Some(of_year("year") / lit(10))),
        "century" | "centuries" => 100,
        "millennium" | "millennia" | "millenniums" => 1000,
        _ => return Ok(None),
    };
    // There is no year 0 in them: the first century is that of the years 1 to 100.
    let after = (of_year("year") - lit(1)) / lit(length) + lit(1);
    let before = of_year("year") / lit(length) - lit(1);
    when(of_year("year").gt(lit(0)), after).otherwise(before).map(Some)
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
