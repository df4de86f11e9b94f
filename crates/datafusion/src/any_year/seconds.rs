//! `date_trunc` to parts of a second. DataFusion cuts towards 1970, so that an earlier time becomes a later one.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

use crate::zones::ticks_of_second;

/// The times of a call that cuts to parts of a second, cut to the part that has begun.
pub(super) fn truncated(args: &ScalarFunctionArgs) -> Result<Option<ColumnarValue>> {
    let [ColumnarValue::Scalar(part), times] = args.args.as_slice() else { return Ok(None) };
    let parts = match part.try_as_str().flatten().map(str::to_lowercase).as_deref() {
        Some("millisecond") => 1_000,
        Some("microsecond") => 1_000_000,
        _ => return Ok(None),
    };
    let DataType::Timestamp(unit, _) = times.data_type() else { return Ok(None) };
    let ticks = ticks_of_second(unit) / parts;
    if ticks <= 1 {
        return Ok(Some(times.clone()));
    }
    let (times, is_one) = match times {
        ColumnarValue::Array(times) => (Arc::clone(times), false),
        ColumnarValue::Scalar(time) => (time.to_array()?, true),
    };
    let values = cast(&times, &DataType::Int64)?;
    let cut = |value: i64| match value.checked_sub(value.rem_euclid(ticks)) {
        Some(cut) => Ok(cut),
        None => exec_err!("Timestamp {value} out of range after truncating to parts of a second"),
    };
    let made = values.as_primitive::<Int64Type>().iter().map(|value| value.map(cut).transpose());
    let made = made.collect::<Result<Int64Array>>()?;
    let made: ArrayRef = cast(&made, times.data_type())?;
    Ok(Some(match is_one {
        true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
        false => ColumnarValue::Array(made),
    }))
}
