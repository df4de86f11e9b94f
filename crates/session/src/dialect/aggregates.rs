//! Aggregates that DataFusion lacks: their registration, and the product.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::functions_aggregate::{median, percentile_cont};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};
use kelpie_datafusion::{
    ArgMost, CountDistinctRows, Counted, GroupedArrayAgg, GroupedEnd, GroupedStringAgg, Median,
    PercentileCont, QuantileDisc, name_and_signature,
};

/// Adds the aggregates that a session has not got yet, and makes `array_agg`, `string_agg`, `any_value`, `first_value` and `last_value` ones for many groups, `percentile_cont` exact, and `median` one
/// of times and texts.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let float = Signature::exact(vec![DataType::Float64], Volatility::Immutable);
    let counted = Counted::all().into_iter().map(AggregateUDF::new_from_impl);
    let all = counted.chain(ArgMost::all().map(AggregateUDF::new_from_impl)).chain([
        AggregateUDF::new_from_impl(QuantileDisc::default()),
        AggregateUDF::new_from_impl(CountDistinctRows::default()),
        AggregateUDF::new_from_impl(Product { signature: float }),
    ]);
    for aggregate in all {
        if !state.aggregate_functions().contains_key(aggregate.name()) {
            state.register_udaf(Arc::new(aggregate))?;
        }
    }
    let ends: Vec<_> = state.aggregate_functions().values().filter_map(GroupedEnd::of).collect();
    for end in ends {
        state.register_udaf(Arc::new(AggregateUDF::new_from_impl(end)))?;
    }
    replace::<StringAgg>(state, AggregateUDF::new_from_impl(GroupedStringAgg::default()))?;
    replace::<ArrayAgg>(state, AggregateUDF::new_from_impl(GroupedArrayAgg::default()))?;
    replace::<percentile_cont::PercentileCont>(
        state,
        AggregateUDF::new_from_impl(PercentileCont::default()),
    )?;
    replace::<median::Median>(state, AggregateUDF::new_from_impl(Median::default()))
}

/// Puts an aggregate in the place of DataFusion's own of its name; one of the embedder's stays.
fn replace<T: AggregateUDFImpl>(state: &mut SessionState, aggregate: AggregateUDF) -> Result<()> {
    let is_usual = |known: &Arc<AggregateUDF>| known.inner().downcast_ref::<T>().is_some();
    if state.aggregate_functions().get(aggregate.name()).is_some_and(is_usual) {
        state.register_udaf(Arc::new(aggregate))?;
    }
    Ok(())
}

/// `product(x)` of floats.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Product {
    signature: Signature,
}

impl AggregateUDFImpl for Product {
    name_and_signature!("product");

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        if arguments.is_distinct {
            return plan_err!("product takes no DISTINCT");
        }
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
