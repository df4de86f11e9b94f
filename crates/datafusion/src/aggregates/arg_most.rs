//! The value of the row where another value is least or greatest, of rows that have both: `arg_max(x, y)` over the frames of a window.

use std::cmp::Ordering;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};

/// Such an aggregate. Of several rows it is the first one.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct ArgMost {
    is_greatest: bool,
    signature: Signature,
}

impl ArgMost {
    /// Of the least and of the greatest one. Nobody writes their names, which stand in plans.
    pub fn all() -> [ArgMost; 2] {
        let signature = Signature::any(2, Volatility::Immutable);
        [false, true].map(|is_greatest| ArgMost { is_greatest, signature: signature.clone() })
    }
}

impl AggregateUDFImpl for ArgMost {
    fn name(&self) -> &str {
        if self.is_greatest { "kelpie_arg_max" } else { "kelpie_arg_min" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, _] => Ok(value.clone()),
            _ => exec_err!("{} takes two arguments", self.name()),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let [value, key] = arguments.expr_fields else {
            return exec_err!("{} takes two arguments", self.name());
        };
        Ok(Box::new(Most {
            is_greatest: self.is_greatest,
            value: ScalarValue::try_from(value.data_type())?,
            key: ScalarValue::try_from(key.data_type())?,
        }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        Ok(arguments.input_fields.to_vec())
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The row so far; its key is NULL where there is none.
#[derive(Debug)]
struct Most {
    is_greatest: bool,
    value: ScalarValue,
    key: ScalarValue,
}

impl Accumulator for Most {
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        let [values, keys] = arguments else { return internal_err!("a value and a key are expected") };
        for row in (0..keys.len()).filter(|row| keys.is_valid(*row) && values.is_valid(*row)) {
            let key = ScalarValue::try_from_array(keys, row)?;
            let order = if self.is_greatest { Ordering::Greater } else { Ordering::Less };
            if self.key.is_null() || key.partial_cmp(&self.key) == Some(order) {
                self.key = key.compacted();
                self.value = ScalarValue::try_from_array(values, row)?.compacted();
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(self.value.clone())
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.value.size() + self.key.size() - 2 * size_of::<ScalarValue>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.value.clone(), self.key.clone()])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
