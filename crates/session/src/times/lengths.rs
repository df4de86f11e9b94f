//! Intervals by their length: a month is 30 days, and a day 24 hours, as in PostgreSQL and DuckDB.
//!
//! DataFusion compares first the months of two intervals, then the days, then what is left: `interval '1 month'` is longer than
//! `interval '40 days'`, and whatever two timestamps are apart is shorter than a day, as it has no days.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::{DFSchema, ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, name_and_signature, ticks_of_second};

use super::operands::{cast as cast_expr, text};

const DAY_NS: i128 = 86_400_000_000_000;
const MONTH_DAYS: i128 = 30;

/// Whether an expression is an interval.
pub(crate) fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

/// Makes lengths of operands that are compared, if one of them is an interval and the others are intervals, durations or written out;
/// whether they are.
pub(super) fn compare_lengths(operands: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let is_length = |expr: &Expr| {
        let data_type = expr.get_type(schema);
        text(expr).is_some()
            || matches!(data_type, Ok(DataType::Interval(_) | DataType::Duration(_) | DataType::Null))
    };
    let has_interval = operands.iter().any(|operand| is_interval(operand, schema));
    if !has_interval || !operands.iter().all(|operand| is_length(operand)) {
        return false;
    }
    if compare_durations(operands, schema) {
        return true;
    }
    for operand in operands {
        if text(operand).is_some() {
            cast_expr(operand, DataType::Interval(IntervalUnit::MonthDayNano));
        }
        **operand = length_of(std::mem::take(*operand));
    }
    true
}

/// Writes constants as durations where they are compared with durations of one unit, and are whole numbers of its ticks: then ticks are
/// compared as they are. Whether it is so.
fn compare_durations(operands: &mut [&mut Expr], schema: &DFSchema) -> bool {
    let unit_of = |expr: &Expr| match expr.get_type(schema) {
        Ok(DataType::Duration(unit)) => Some(unit),
        _ => None,
    };
    let Some(unit) = operands.iter().find_map(|operand| unit_of(operand)) else { return false };
    let written = |operand: &Expr| match unit_of(operand) {
        Some(other) => (other == unit).then_some(None),
        None => ticks(constant_length(operand)?, unit).map(Some),
    };
    let Some(written) = operands.iter().map(|operand| written(operand)).collect::<Option<Vec<_>>>() else {
        return false;
    };
    for (operand, ticks) in operands.iter_mut().zip(written) {
        if let Some(ticks) = ticks {
            **operand = Expr::Literal(duration(ticks, unit), None);
        }
    }
    true
}

/// The length of a constant interval, in nanoseconds.
fn constant_length(expr: &Expr) -> Option<i128> {
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    let value = match (text(expr), expr) {
        (Some(text), _) => ScalarValue::from(text).cast_to(&interval).ok()?,
        (None, Expr::Literal(value, _)) => value.cast_to(&interval).ok()?,
        _ => return None,
    };
    match value {
        ScalarValue::IntervalMonthDayNano(Some(value)) => Some(length(value)),
        _ => None,
    }
}

/// A length as ticks of a unit, where it is a whole number of them.
fn ticks(nanoseconds: i128, unit: TimeUnit) -> Option<i64> {
    let tick = tick_ns(unit);
    (nanoseconds % tick == 0).then(|| i64::try_from(nanoseconds / tick).ok()).flatten()
}

fn duration(ticks: i64, unit: TimeUnit) -> ScalarValue {
    match unit {
        TimeUnit::Second => ScalarValue::DurationSecond(Some(ticks)),
        TimeUnit::Millisecond => ScalarValue::DurationMillisecond(Some(ticks)),
        TimeUnit::Microsecond => ScalarValue::DurationMicrosecond(Some(ticks)),
        TimeUnit::Nanosecond => ScalarValue::DurationNanosecond(Some(ticks)),
    }
}

/// Nanoseconds of a tick.
fn tick_ns(unit: TimeUnit) -> i128 {
    i128::from(ticks_of_second(TimeUnit::Nanosecond) / ticks_of_second(unit))
}

/// The nanoseconds of an interval.
fn length(interval: IntervalMonthDayNano) -> i128 {
    let days = i128::from(interval.months) * MONTH_DAYS + i128::from(interval.days);
    days * DAY_NS + i128::from(interval.nanoseconds)
}

/// The length of an interval or duration.
pub(crate) fn length_of(expr: Expr) -> Expr {
    static FUNCTION: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(Length { signature: Signature::any(1, Volatility::Immutable) }))
    });
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&FUNCTION), vec![expr]))
}

/// The length of an interval or duration, in nanoseconds.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Length {
    signature: Signature,
}

impl ScalarUDFImpl for Length {
    name_and_signature!("kelpie_interval_length");

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = args.args.first() else {
            return Err(exec_datafusion_err!("an interval is missing"));
        };
        let rows = CallRows::of(&args);
        rows.answer(Arc::new(lengths(&value.to_array(rows.count)?)?))
    }
}

fn lengths(values: &ArrayRef) -> Result<Decimal128Array> {
    let lengths: Decimal128Array = match values.data_type() {
        DataType::Duration(unit) => {
            let tick = tick_ns(*unit);
            let ticks = cast(values, &DataType::Int64)?;
            ticks.as_primitive::<Int64Type>().iter().map(|ticks| Some(i128::from(ticks?) * tick)).collect()
        }
        _ => {
            let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
            intervals.map(|interval| Some(length(interval?))).collect()
        }
    };
    Ok(lengths.with_precision_and_scale(38, 0)?)
}
