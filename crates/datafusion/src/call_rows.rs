//! The rows of a call of a scalar function.

use datafusion::arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};

/// How many rows a function computes for a call: a single one where all arguments are single values, and then so is the answer.
#[derive(Debug, Clone, Copy)]
pub struct CallRows {
    /// How many.
    pub count: usize,
    is_single: bool,
}

impl CallRows {
    /// Those of a call.
    pub fn of(call: &ScalarFunctionArgs) -> CallRows {
        let is_single = call.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        CallRows { count: if is_single { 1 } else { call.number_rows }, is_single }
    }

    /// The answers of the rows, as the call gives them.
    pub fn answer(self, answers: ArrayRef) -> Result<ColumnarValue> {
        match self.is_single {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?)),
            false => Ok(ColumnarValue::Array(answers)),
        }
    }
}
