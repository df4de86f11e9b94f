//! Aggregates of the elements of a list: `list_median(l)`, `list_aggregate(l, 'median')`. Each row's list goes through the aggregate of
//! the same name.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Field, FieldRef, Schema};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;

use super::names_of_types::name_of_type;

/// Functions of lists, and the aggregates that they are.
const ALL: [(&str, &str); 21] = [
    ("list_sum", "sum"),
    ("list_avg", "avg"),
    ("list_max", "max"),
    ("list_product", "product"),
    ("list_count", "count"),
    ("list_median", "median"),
    ("list_mode", "mode"),
    ("list_stddev_pop", "stddev_pop"),
    ("list_stddev_samp", "stddev"),
    ("list_var_pop", "var_pop"),
    ("list_var_samp", "var"),
    ("list_bool_and", "bool_and"),
    ("list_bool_or", "bool_or"),
    ("list_bit_and", "bit_and"),
    ("list_bit_or", "bit_or"),
    ("list_bit_xor", "bit_xor"),
    ("list_first", "first_value"),
    ("list_last", "last_value"),
    ("list_approx_count_distinct", "approx_distinct"),
    ("list_histogram", "histogram"),
    ("list_entropy", "entropy"),
];

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    for (name, aggregate) in ALL {
        let aggregate = state.aggregate_functions().get(aggregate).cloned();
        // DataFusion's sum of a list is a float, which does not hold all whole numbers.
        let is_free = state.scalar_functions().get(name).is_none_or(|known| known.name() == "array_sum");
        if let Some(aggregate) = aggregate
            && is_free
        {
            let signature = Signature::user_defined(Volatility::Immutable);
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(ListAggregate {
                name,
                aggregate,
                signature,
            })))?;
        }
    }
    Ok(())
}

/// The sum of whole numbers, which is an error where its type does not hold it: DataFusion's begins anew from the least one.
fn whole_sum(values: &ArrayRef, data_type: &DataType) -> Result<ScalarValue> {
    let values = cast(values, &DataType::Decimal128(20, 0))?;
    let sum = values.as_primitive::<Decimal128Type>().iter().flatten().reduce(|sum, value| sum + value);
    match ScalarValue::Decimal128(sum, 38, 0).cast_to(data_type) {
        Ok(sum) => Ok(sum),
        Err(_) => exec_err!("list_sum: the sum of a list is beyond {}", name_of_type(data_type)),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListAggregate {
    name: &'static str,
    aggregate: Arc<AggregateUDF>,
    signature: Signature,
}

impl ListAggregate {
    fn element(&self, arguments: &[DataType]) -> Result<FieldRef> {
        let element = match arguments {
            [
                DataType::List(element)
                | DataType::LargeList(element)
                | DataType::ListView(element)
                | DataType::LargeListView(element)
                | DataType::FixedSizeList(element, _),
            ] => element,
            [DataType::Null] => return Ok(Arc::new(Field::new("value", DataType::Int64, true))),
            [other] => return plan_err!("{} takes a list, and a {} is none", self.name, name_of_type(other)),
            _ => return plan_err!("{} takes a list", self.name),
        };
        // Elements of no type are numbers as well as anything.
        let data_type = if element.data_type().is_null() { &DataType::Int64 } else { element.data_type() };
        let element = Arc::new(Field::new("value", data_type.clone(), true));
        match fields_with_udf(&[element], self.aggregate.as_ref())?.into_iter().next() {
            Some(field) => Ok(field),
            None => internal_err!("{} of no values", self.name),
        }
    }
}

impl ScalarUDFImpl for ListAggregate {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let element = self.element(arguments)?;
        Ok(vec![DataType::List(Arc::new(Field::new_list_field(element.data_type().clone(), true)))])
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(self.aggregate.return_field(&[self.element(arguments)?])?.data_type().clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [list] = arguments.args.as_slice() else { return internal_err!("{} of one list", self.name) };
        let is_one = matches!(list, ColumnarValue::Scalar(_));
        let lists = list.to_array(if is_one { 1 } else { arguments.number_rows })?;
        let element = self.element(&[lists.data_type().clone()])?;
        let schema = Schema::new(vec![Arc::clone(&element)]);
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(element.name(), 0));
        let return_field = Arc::new(Field::new(self.name, arguments.return_type().clone(), true));
        let none = ScalarValue::try_from(arguments.return_type())?;
        let mut answers = Vec::with_capacity(lists.len());
        let is_whole_sum = self.name == "list_sum" && element.data_type().is_integer();
        for values in lists.as_list::<i32>().iter() {
            let Some(values) = values else {
                answers.push(none.clone());
                continue;
            };
            if is_whole_sum {
                answers.push(whole_sum(&values, arguments.return_type())?);
                continue;
            }
            let mut accumulator = self.aggregate.accumulator(AccumulatorArgs {
                return_field: Arc::clone(&return_field),
                schema: &schema,
                ignore_nulls: false,
                order_bys: &[],
                is_reversed: false,
                name: self.name,
                is_distinct: false,
                exprs: std::slice::from_ref(&column),
                expr_fields: std::slice::from_ref(&element),
            })?;
            if !values.is_empty() {
                accumulator.update_batch(&[values])?;
            }
            answers.push(accumulator.evaluate()?);
        }
        let answers: ArrayRef = match answers.is_empty() {
            true => none.to_array_of_size(0)?,
            false => ScalarValue::iter_to_array(answers)?,
        };
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&answers, 0)?)),
            false => Ok(ColumnarValue::Array(answers)),
        }
    }
}
