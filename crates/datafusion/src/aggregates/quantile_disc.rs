//! `quantile_disc(x, fraction)`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray, new_empty_array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{concat, filter, is_not_null, sort_to_indices};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDFImpl, Signature, Volatility};
use datafusion::physical_expr::expressions::Literal;

/// `quantile_disc(x, fraction)`: the first value in their order up to which there is that fraction of all.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct QuantileDisc {
    signature: Signature,
    aliases: Vec<String>,
}

impl Default for QuantileDisc {
    fn default() -> QuantileDisc {
        let signature = Signature::any(2, Volatility::Immutable);
        QuantileDisc { signature, aliases: vec!["quantile".into()] }
    }
}

impl AggregateUDFImpl for QuantileDisc {
    fn name(&self) -> &str {
        "quantile_disc"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [value, _] if value.is_nested() => {
                plan_err!("quantile_disc: values of type {value} have no order")
            }
            [value, _] => Ok(value.clone()),
            _ => plan_err!("quantile_disc takes a value and a fraction"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return plan_err!("quantile_disc takes no DISTINCT");
        }
        let fraction = arguments.exprs.get(1).and_then(|expr| expr.downcast_ref::<Literal>());
        let number = match fraction.map(|fraction| fraction.value().cast_to(&DataType::Float64)) {
            Some(Ok(ScalarValue::Float64(number))) => number,
            _ => None,
        };
        let Some(fraction) = number.filter(|number| (0.0..=1.0).contains(number)) else {
            let shown =
                fraction.map_or_else(|| "the fraction".to_string(), |known| known.value().to_string());
            return plan_err!("quantile_disc: {shown} is no fraction between 0 and 1 that is written out");
        };
        let data_type = arguments.return_field.data_type().clone();
        Ok(Box::new(Ordered { data_type, fraction, parts: Vec::new() }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let element = Arc::new(Field::new_list_field(arguments.return_field.data_type().clone(), true));
        Ok(vec![Arc::new(Field::new(format!("{} values", arguments.name), DataType::List(element), true))])
    }
}

/// All values, in the arrays that they came in.
#[derive(Debug)]
struct Ordered {
    data_type: DataType,
    fraction: f64,
    parts: Vec<ArrayRef>,
}

impl Ordered {
    fn all(&self) -> Result<ArrayRef> {
        let parts: Vec<&dyn Array> = self.parts.iter().map(AsRef::as_ref).collect();
        match parts.is_empty() {
            true => Ok(new_empty_array(&self.data_type)),
            false => Ok(concat(&parts)?),
        }
    }
}

impl Accumulator for Ordered {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(values) = values.first() else { return exec_err!("quantile_disc takes a value") };
        let values = match values.null_count() {
            0 => Arc::clone(values),
            _ => filter(values, &is_not_null(values)?)?,
        };
        if !values.is_empty() {
            self.parts.push(values);
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let all = self.all()?;
        let number = all.len() as f64;
        // As many as reach the fraction, and at least one.
        let place = (number - (number - self.fraction * number).floor()).max(1.0) as usize;
        let order = sort_to_indices(&all, None, Some(place))?;
        match order.values().get(place - 1) {
            Some(row) => ScalarValue::try_from_array(&all, *row as usize),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn size(&self) -> usize {
        // Parts of one batch share its memory, of which each has its own part.
        let bytes = |part: &ArrayRef| part.to_data().get_slice_memory_size().unwrap_or(0);
        size_of_val(self) + self.parts.iter().map(bytes).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.all()?;
        let element = Arc::new(Field::new_list_field(self.data_type.clone(), true));
        let lengths = OffsetBuffer::from_lengths([all.len()]);
        Ok(vec![ScalarValue::List(Arc::new(ListArray::try_new(element, lengths, all, None)?))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values] = states else { return exec_err!("quantile_disc has one state") };
        for values in values.as_list::<i32>().iter().flatten() {
            self.update_batch(&[values])?;
        }
        Ok(())
    }
}
