//! Functions of lists that DataFusion has not: the places of elements in their order, and statistics of numbers.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, new_empty_array};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{SortOptions, cast, concat, sort_to_indices};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type};
use datafusion::common::{ScalarValue, internal_err, plan_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::names_of_types::name_of_type;

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let all = [
        ListFunction::new("list_grade_up", &["array_grade_up", "grade_up"], What::Order),
        ListFunction::new("list_mad", &[], What::Deviation),
        ListFunction::new("list_sem", &[], What::ErrorOfMean),
        ListFunction::new("list_skewness", &[], What::Skewness),
        ListFunction::new("list_kurtosis", &[], What::Kurtosis),
        ListFunction::new("list_kurtosis_pop", &[], What::KurtosisOfAll),
    ];
    for function in all {
        if !state.scalar_functions().contains_key(function.name) {
            state.register_udf(Arc::new(ScalarUDF::new_from_impl(function)))?;
        }
    }
    Ok(())
}

/// What is made of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    /// The places that its elements would be taken from to sort it.
    Order,
    /// The median of how far the elements are from their median.
    Deviation,
    ErrorOfMean,
    Skewness,
    Kurtosis,
    KurtosisOfAll,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListFunction {
    name: &'static str,
    aliases: Vec<String>,
    what: What,
    signature: Signature,
}

impl ListFunction {
    fn new(name: &'static str, aliases: &[&str], what: What) -> ListFunction {
        let aliases = aliases.iter().map(ToString::to_string).collect();
        ListFunction { name, aliases, what, signature: Signature::user_defined(Volatility::Immutable) }
    }

    /// The order that the arguments behind the list say.
    fn order(&self, arguments: &[ColumnarValue]) -> Result<SortOptions> {
        let mut order = SortOptions { descending: false, nulls_first: false };
        for argument in arguments {
            let ColumnarValue::Scalar(word) = argument else {
                return plan_err!("{}: the order must be written as a text, such as 'DESC'", self.name);
            };
            let word = word.try_as_str().flatten().unwrap_or_default().trim().to_ascii_uppercase();
            match word.as_str() {
                "ASC" => order.descending = false,
                "DESC" => order.descending = true,
                "NULLS FIRST" => order.nulls_first = true,
                "NULLS LAST" => order.nulls_first = false,
                _ => return plan_err!("{}: '{word}' is no order, such as 'DESC'", self.name),
            }
        }
        Ok(order)
    }
}

impl ScalarUDFImpl for ListFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Some((list, others)) = arguments.split_first() else {
            return plan_err!("{} takes a list", self.name);
        };
        let most = if self.what == What::Order { 2 } else { 0 };
        if others.len() > most {
            return plan_err!("{} takes a list and {most} more arguments at most", self.name);
        }
        let element = match list {
            DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
                element.data_type().clone()
            }
            DataType::Null => DataType::Float64,
            other => return plan_err!("{} takes a list, and a {} is none", self.name, name_of_type(other)),
        };
        let element = match self.what {
            What::Order => element,
            _ if element.is_numeric() || element.is_null() => DataType::Float64,
            _ => {
                return plan_err!("{} takes a list of numbers, not of {}", self.name, name_of_type(&element));
            }
        };
        let list = DataType::List(Arc::new(Field::new_list_field(element, true)));
        Ok(std::iter::once(list).chain(others.iter().map(|_| DataType::Utf8)).collect())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.what {
            What::Order => DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true))),
            _ => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let Some((list, others)) = arguments.args.split_first() else {
            return internal_err!("{} of nothing", self.name);
        };
        let is_one = matches!(list, ColumnarValue::Scalar(_));
        let lists = list.to_array(if is_one { 1 } else { arguments.number_rows })?;
        let lists = lists.as_list::<i32>();
        let made: ArrayRef = match self.what {
            What::Order => Arc::new(orders(lists, self.order(others)?)?),
            what => {
                let of = |values: Option<ArrayRef>| match values {
                    Some(values) => statistic(what, &values),
                    None => Ok(None),
                };
                Arc::new(lists.iter().map(of).collect::<Result<Float64Array>>()?)
            }
        };
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?)),
            false => Ok(ColumnarValue::Array(made)),
        }
    }
}

/// For each list the places of its elements in their order, counted from 1.
fn orders(lists: &ListArray, order: SortOptions) -> Result<ListArray> {
    let mut places = Vec::with_capacity(lists.len());
    for values in lists.iter() {
        let Some(values) = values else {
            places.push(new_empty_array(&DataType::Int64));
            continue;
        };
        let sorted = match values.data_type() {
            DataType::Null => (0..values.len() as u32).collect(),
            _ => sort_to_indices(&values, Some(order), None)?,
        };
        let sorted = cast(&sorted, &DataType::Int64)?;
        let counted = sorted.as_primitive::<datafusion::arrow::datatypes::Int64Type>();
        places.push(Arc::new(counted.unary::<_, datafusion::arrow::datatypes::Int64Type>(|place| place + 1)));
    }
    let lengths = OffsetBuffer::from_lengths(places.iter().map(|places| places.len()));
    let parts: Vec<&dyn Array> = places.iter().map(AsRef::as_ref).collect();
    let values = if parts.is_empty() { new_empty_array(&DataType::Int64) } else { concat(&parts)? };
    let element = Arc::new(Field::new_list_field(DataType::Int64, true));
    Ok(ListArray::try_new(element, lengths, values, lists.nulls().cloned())?)
}

/// A statistic of the elements that are there; NULL where there are too few of them.
fn statistic(what: What, values: &ArrayRef) -> Result<Option<f64>> {
    let values = cast(values, &DataType::Float64)?;
    let values: Vec<f64> = values
        .as_primitive_opt::<Float64Type>()
        .ok_or_else(|| plan_datafusion_err!("a list of numbers is expected"))?
        .iter()
        .flatten()
        .collect();
    let count = values.len() as f64;
    if values.is_empty() {
        return Ok(None);
    }
    let mean = values.iter().sum::<f64>() / count;
    let moment = |power: i32| values.iter().map(|value| (value - mean).powi(power)).sum::<f64>() / count;
    let (second, has) = (moment(2), |least: usize| values.len() >= least);
    Ok(match what {
        What::Order => None,
        What::Deviation => {
            let middle = median(values.clone());
            Some(median(values.iter().map(|value| (value - middle).abs()).collect()))
        }
        What::ErrorOfMean => Some((second / count).sqrt()),
        What::Skewness if has(3) => {
            Some((count * (count - 1.0)).sqrt() / (count - 2.0) * moment(3) / second.powf(1.5))
        }
        What::Kurtosis if has(4) => {
            let factor = (count - 1.0) / ((count - 2.0) * (count - 3.0));
            Some(factor * ((count + 1.0) * moment(4) / (second * second) - 3.0 * (count - 1.0)))
        }
        What::KurtosisOfAll if has(2) => Some(moment(4) / (second * second) - 3.0),
        What::Skewness | What::Kurtosis | What::KurtosisOfAll => None,
    }
    .filter(|value| !value.is_nan() || what == What::Deviation))
}

/// The value in the middle, or between the two that are.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle), middle.checked_sub(1).and_then(|before| values.get(before))) {
        (Some(value), _) if values.len() % 2 == 1 => *value,
        (Some(value), Some(before)) => before / 2.0 + value / 2.0,
        _ => f64::NAN,
    }
}
