//! Intervals by their length: a month is 30 days, and a day 24 hours, as in PostgreSQL and DuckDB.
//!
//! DataFusion compares first the months of two intervals, then the days, then what is left: `interval '1 month'` is longer than
//! `interval '40 days'`, and whatever two timestamps are apart is shorter than a day, as it has no days.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{ArrayRef, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue, exec_datafusion_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::ticks_of_second;

use super::operands::{cast as cast_expr, text};

const DAY_NS: i128 = 86_400_000_000_000;
const MONTH_DAYS: i128 = 30;

/// Whether an expression is an interval.
pub(super) fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
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
    for operand in operands {
        if text(operand).is_some() {
            cast_expr(operand, DataType::Interval(IntervalUnit::MonthDayNano));
        }
        **operand = length_of(std::mem::take(*operand));
    }
    true
}

/// The length of an interval or duration.
pub(super) fn length_of(expr: Expr) -> Expr {
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
    fn name(&self) -> &str {
        "kelpie_interval_length"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Decimal128(38, 0))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some(value) = args.args.first() else {
            return Err(exec_datafusion_err!("an interval is missing"));
        };
        let is_scalar = matches!(value, ColumnarValue::Scalar(_));
        let lengths = lengths(&value.to_array(if is_scalar { 1 } else { args.number_rows })?)?;
        Ok(match is_scalar {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&lengths, 0)?),
            false => ColumnarValue::Array(Arc::new(lengths)),
        })
    }
}

fn lengths(values: &ArrayRef) -> Result<Decimal128Array> {
    let lengths: Decimal128Array = match values.data_type() {
        DataType::Duration(unit) => {
            let tick = i128::from(ticks_of_second(TimeUnit::Nanosecond) / ticks_of_second(*unit));
            let ticks = cast(values, &DataType::Int64)?;
            ticks.as_primitive::<Int64Type>().iter().map(|ticks| Some(i128::from(ticks?) * tick)).collect()
        }
        _ => {
            let intervals = cast(values, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
            let of = intervals.map(|interval| {
                let interval = interval?;
                let days = i128::from(interval.months) * MONTH_DAYS + i128::from(interval.days);
                Some(days * DAY_NS + i128::from(interval.nanoseconds))
            });
            of.collect()
        }
    };
    Ok(lengths.with_precision_and_scale(38, 0)?)
}
