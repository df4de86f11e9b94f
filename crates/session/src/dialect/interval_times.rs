//! `interval_times(interval, n)`, which numbers times intervals are written as: `n * interval '1 day'`, `interval (n) day`, `to_days(n)`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{
    DataType, Float64Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
};
use datafusion::common::{exec_datafusion_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType as SqlType, DateTimeField, Expr, Interval};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::names_of_types::name_of_type;
use super::rewrite::double;
use crate::syntax::{call, literal, number, taken};

const NAME: &str = "interval_times";
const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
/// As DuckDB and PostgreSQL count, of parts of a month and of a day.
const DAYS_OF_MONTH: f64 = 30.0;
const NANOSECONDS_OF_DAY: f64 = 86_400e9;

/// Writes a product of an interval and a number, and an interval of a number that is no literal, as such a call.
pub(super) fn rewrite(expr: &mut Expr) {
    let is_interval = |expr: &Expr| match unnested(expr) {
        Expr::Interval(_) => true,
        Expr::Cast { data_type: SqlType::Interval { .. }, .. } => true,
        Expr::Function(function) => function.name.to_string() == NAME,
        _ => false,
    };
    match expr {
        Expr::BinaryOp { left, op: BinaryOperator::Multiply, right } => {
            if is_interval(left) && !is_interval(right) {
                *expr = call(NAME, vec![taken(left), taken(right)]);
            } else if is_interval(right) && !is_interval(left) {
                *expr = call(NAME, vec![taken(right), taken(left)]);
            }
        }
        Expr::BinaryOp { left, op: BinaryOperator::Divide, right } if is_interval(left) => {
            let part = Expr::BinaryOp {
                left: Box::new(double(number("1"))),
                op: BinaryOperator::Divide,
                right: Box::new(Expr::Nested(Box::new(taken(right)))),
            };
            *expr = call(NAME, vec![taken(left), part]);
        }
        Expr::Interval(interval) => {
            let Interval {
                value, leading_field: Some(unit), leading_precision: None, last_field: None, ..
            } = interval
            else {
                return;
            };
            let literal = match unnested(value) {
                Expr::UnaryOp { expr, .. } => unnested(expr),
                value => value,
            };
            if matches!(literal, Expr::Value(_)) {
                return;
            }
            let (number, one) = (taken(value), of_one(unit.clone()));
            *expr = call(NAME, vec![one, number]);
        }
        _ => {}
    }
}

fn unnested(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

fn of_one(unit: DateTimeField) -> Expr {
    Expr::Interval(Interval {
        value: Box::new(literal("1")),
        leading_field: Some(unit),
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct IntervalTimes {
    signature: Signature,
}

impl IntervalTimes {
    pub fn new() -> IntervalTimes {
        IntervalTimes { signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl ScalarUDFImpl for IntervalTimes {
    name_and_signature!(NAME);

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let [interval, number] = arguments else { return plan_err!("{NAME} takes an interval and a number") };
        if !matches!(interval, DataType::Interval(_) | DataType::Null) {
            return plan_err!("a {} is no interval", name_of_type(interval));
        }
        match number {
            number if number.is_integer() || *number == DataType::Null => Ok(vec![INTERVAL, DataType::Int64]),
            number if number.is_numeric() => Ok(vec![INTERVAL, DataType::Float64]),
            other => plan_err!("an interval is multiplied by a number, and not by a {}", name_of_type(other)),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let arrays = arguments.args.iter().map(|own| own.to_array(rows.count)).collect::<Result<Vec<_>>>()?;
        let [intervals, numbers] = arrays.as_slice() else {
            return internal_err!("{NAME} of two arguments");
        };
        let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>();
        let is_null = |row: usize| intervals.is_null(row) || numbers.is_null(row);
        let product = |row: usize| match numbers.data_type() {
            DataType::Int64 => whole(intervals.value(row), numbers.as_primitive::<Int64Type>().value(row)),
            _ => parts(intervals.value(row), numbers.as_primitive::<Float64Type>().value(row)),
        };
        let product = |row: usize| {
            let beyond = || exec_datafusion_err!("an interval times a number is beyond what intervals hold");
            if is_null(row) { Ok(None) } else { product(row).ok_or_else(beyond).map(Some) }
        };
        let products = (0..rows.count).map(product).collect::<Result<IntervalMonthDayNanoArray>>()?;
        rows.answer(Arc::new(products))
    }
}

fn whole(interval: IntervalMonthDayNano, times: i64) -> Option<IntervalMonthDayNano> {
    let narrow = |part: i32| i32::try_from(i64::from(part).checked_mul(times)?).ok();
    Some(IntervalMonthDayNano {
        months: narrow(interval.months)?,
        days: narrow(interval.days)?,
        nanoseconds: interval.nanoseconds.checked_mul(times)?,
    })
}

/// What is left of a month are days, and what is left of a day is time.
fn parts(interval: IntervalMonthDayNano, times: f64) -> Option<IntervalMonthDayNano> {
    let narrow = |part: f64| (part.abs() <= f64::from(i32::MAX)).then_some(part as i32);
    let months = f64::from(interval.months) * times;
    let days = f64::from(interval.days) * times + months.fract() * DAYS_OF_MONTH;
    let nanoseconds = interval.nanoseconds as f64 * times + days.fract() * NANOSECONDS_OF_DAY;
    // The least that is no longer a whole number of nanoseconds.
    let fits = nanoseconds.is_finite() && nanoseconds.abs() < 9.2e18;
    Some(IntervalMonthDayNano {
        months: narrow(months.trunc())?,
        days: narrow(days.trunc())?,
        nanoseconds: fits.then(|| nanoseconds.round() as i64)?,
    })
}
