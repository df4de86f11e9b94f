//! Aggregates that are made of no others: the most frequent value, and the product.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// Adds the aggregates that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let any = || Signature::any(1, Volatility::Immutable);
    let float = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    let all = [
        AggregateUDF::new_from_impl(Mode { signature: any() }),
        AggregateUDF::new_from_impl(Product { signature: float }),
    ];
    for aggregate in all {
        if !state.aggregate_functions().contains_key(aggregate.name()) {
            state.register_udaf(Arc::new(aggregate))?;
        }
    }
    Ok(())
}

/// `mode(x)`: the most frequent value that is not NULL; of several the one that came first.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [only] => Ok(only.clone()),
            _ => plan_err!("mode takes one argument"),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        let data_type = arguments.return_field.data_type().clone();
        Ok(Box::new(Counts { data_type, counts: HashMap::new(), bytes: 0 }))
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        let list = |name: &str, data_type: DataType| {
            let element = Arc::new(Field::new_list_field(data_type, true));
            Arc::new(Field::new(format!("{} {name}", arguments.name), DataType::List(element), true))
        };
        Ok(vec![list("values", arguments.return_field.data_type().clone()), list("counts", DataType::Int64)])
    }
}

/// How often each value has come.
#[derive(Debug)]
struct Counts {
    data_type: DataType,
    counts: HashMap<ScalarValue, Count>,
    /// What the values take beside their places in the map.
    bytes: usize,
}

#[derive(Debug)]
struct Count {
    rows: i64,
    /// How many others were there before.
    place: usize,
}

impl Counts {
    fn add(&mut self, values: &dyn Array, rows: impl Fn(usize) -> i64) -> Result<()> {
        for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
            let mut value = ScalarValue::try_from_array(values, row)?;
            value.compact();
            let place = self.counts.len();
            if let Some(known) = self.counts.get_mut(&value) {
                known.rows += rows(row);
            } else {
                self.bytes += value.size() - size_of::<ScalarValue>();
                self.counts.insert(value, Count { rows: rows(row), place });
            }
        }
        Ok(())
    }

    fn in_order(&self) -> Vec<(&ScalarValue, &Count)> {
        let mut all: Vec<_> = self.counts.iter().collect();
        all.sort_by_key(|(_, count)| count.place);
        all
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        match values {
            [values] => self.add(values, |_| 1),
            _ => exec_err!("mode takes one argument"),
        }
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let most = self.counts.iter().max_by_key(|(_, count)| (count.rows, std::cmp::Reverse(count.place)));
        match most {
            Some((value, _)) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn size(&self) -> usize {
        let entry = size_of::<ScalarValue>() + size_of::<Count>();
        size_of_val(self) + self.counts.capacity() * entry + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let all = self.in_order();
        let values: Vec<ScalarValue> = all.iter().map(|(value, _)| (*value).clone()).collect();
        let counts: Vec<ScalarValue> = all.iter().map(|(_, count)| ScalarValue::from(count.rows)).collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&values, &self.data_type)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::Int64)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let [values, counts] = states else { return exec_err!("mode has two states") };
        let (values, counts) = (values.as_list::<i32>(), counts.as_list::<i32>());
        for (values, counts) in values.iter().zip(counts.iter()) {
            if let (Some(values), Some(counts)) = (values, counts) {
                let counts = counts.as_primitive::<Int64Type>();
                self.add(values.as_ref(), |row| counts.value(row))?;
            }
        }
        Ok(())
    }
}

/// `product(x)` of floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Product {
    signature: Signature,
}

impl AggregateUDFImpl for Product {
    fn name(&self) -> &str {
        "product"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Factors(None)))
    }
}

/// The product so far, where there is a factor.
#[derive(Debug)]
struct Factors(Option<f64>);

impl Accumulator for Factors {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for values in values {
            for factor in values.as_primitive::<Float64Type>().iter().flatten() {
                self.0 = Some(self.0.unwrap_or(1.0) * factor);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.0))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}
