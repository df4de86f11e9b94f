//! The time from one moment to another, which `date_diff` counts in hours and shorter units: of times with a zone it is what has passed,
//! also where clocks were set forward between them.

use datafusion::arrow::array::{AsArray, Int64Array};
use datafusion::arrow::datatypes::{DataType, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::names_of_types::name_of_type;

/// Microseconds between two times.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TimeBetween {
    name: &'static str,
    signature: Signature,
}

impl TimeBetween {
    pub fn new() -> TimeBetween {
        let signature = Signature::user_defined(Volatility::Immutable);
        TimeBetween { name: "kelpie_time_between", signature }
    }
}

/// Whether it is a time, or a text of one.
fn is_time(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_time(values),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) | DataType::Null => true,
        other => other.is_string(),
    }
}

impl ScalarUDFImpl for TimeBetween {
    name_and_signature!();

    /// Where one of the times has a zone, the other is what a clock of that zone shows.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if let Some(other) = arguments.iter().find(|data_type| !is_time(data_type)) {
            return plan_err!("date_diff: a {} is no time", name_of_type(other));
        }
        let zone = arguments.iter().find_map(|data_type| match data_type {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        });
        Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, zone); arguments.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Int64)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let [from, to] = arguments.args.as_slice() else {
            return internal_err!("{} of two times", self.name);
        };
        let (from, to) = (from.to_array(rows.count)?, to.to_array(rows.count)?);
        let (from, to) =
            (from.as_primitive::<TimestampMicrosecondType>(), to.as_primitive::<TimestampMicrosecondType>());
        let between = |(from, to): (Option<i64>, Option<i64>)| match from.zip(to) {
            Some((from, to)) => match to.checked_sub(from) {
                Some(between) => Ok(Some(between)),
                None => exec_err!("date_diff: the times are too far from each other"),
            },
            None => Ok(None),
        };
        let between: Int64Array = from.iter().zip(to.iter()).map(between).collect::<Result<_>>()?;
        rows.answer(std::sync::Arc::new(between))
    }
}
