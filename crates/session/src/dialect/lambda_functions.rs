//! Functions of lists and lambdas that DataFusion has not: `list_reduce`, and those whose lambda is given the place of an element too.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, ListArray, UInt64Array, new_empty_array,
    new_null_array,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::compute::{
    CastOptions, cast, cast_with_options, filter, interleave, take, take_arrays,
};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::utils::{adjust_offsets_for_slice, list_values, list_values_row_number};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    ColumnarValue, HigherOrderFunctionArgs, HigherOrderReturnFieldArgs, HigherOrderSignature, HigherOrderUDF,
    HigherOrderUDFImpl, LambdaArgument, LambdaParametersProgress, ValueOrLambda, Volatility,
};

use super::names_of_types::name_of_type;

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let all = [
        ("list_transform_places", What::Transform),
        ("list_filter_places", What::Filter),
        ("list_reduce", What::Reduce),
    ];
    for (name, what) in all {
        if !state.higher_order_functions().contains_key(name) {
            let signature = HigherOrderSignature::user_defined(Volatility::Immutable);
            let function = HigherOrderUDF::new_from_impl(ListFunction { name, what, signature });
            state.register_higher_order_function(Arc::new(function))?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Transform,
    Filter,
    /// Of what there is so far and the next element, and perhaps its place, what there is then.
    Reduce,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ListFunction {
    name: &'static str,
    what: What,
    signature: HigherOrderSignature,
}

impl ListFunction {
    fn element<'a>(&self, list: &'a DataType) -> Result<&'a FieldRef> {
        match list {
            DataType::List(element) => Ok(element),
            other => plan_err!("{} takes a list, and a {} is none", self.name, name_of_type(other)),
        }
    }

    /// The list and, where it is given, what to begin with.
    fn values<'a, V, L>(&self, arguments: &'a [ValueOrLambda<V, L>]) -> Result<(&'a V, Option<&'a V>)> {
        match (self.what, arguments) {
            (_, [ValueOrLambda::Value(list), ValueOrLambda::Lambda(_)]) => Ok((list, None)),
            (
                What::Reduce,
                [ValueOrLambda::Value(list), ValueOrLambda::Lambda(_), ValueOrLambda::Value(first)],
            ) => Ok((list, Some(first))),
            (What::Reduce, _) => {
                plan_err!("list_reduce takes a list and a lambda, such as list_reduce(l, (a, b) -> a + b)")
            }
            _ => plan_err!("{} takes a list and a lambda", self.name),
        }
    }

    fn each(&self, list: &ListArray, lambda: &LambdaArgument, result: &FieldRef) -> Result<ArrayRef> {
        let offsets = adjust_offsets_for_slice(list);
        let elements = list_values(list)?;
        let places: Int64Array = offsets.lengths().flat_map(|length| 1..=length as i64).collect();
        let places: ArrayRef = Arc::new(places);
        let answers =
            lambda.evaluate(&[&|| Ok(Arc::clone(&elements)), &|| Ok(Arc::clone(&places))], |captured| {
                let rows = list_values_row_number(list)?;
                Ok(take_arrays(captured, &rows, None)?)
            })?;
        let answers = answers.into_array(elements.len())?;
        let element = Arc::clone(self.element(result.data_type())?);
        if self.what == What::Transform {
            return Ok(Arc::new(ListArray::try_new(element, offsets, answers, list.nulls().cloned())?));
        }
        let answers = cast(&answers, &DataType::Boolean)?;
        let stay: BooleanArray = answers.as_boolean().iter().map(|stays| Some(stays == Some(true))).collect();
        let bounds = offsets.windows(2).map(|bounds| match bounds {
            [from, to] => (*from as usize, (*to - *from) as usize),
            _ => (0, 0),
        });
        let lengths = bounds.map(|(from, length)| stay.slice(from, length).true_count());
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(ListArray::try_new(element, offsets, filter(&elements, &stay)?, list.nulls().cloned())?))
    }

    /// Goes over the elements of all rows at once, those in one place together.
    fn reduce(&self, list: &ListArray, lambda: &LambdaArgument, first: Option<ArrayRef>) -> Result<ArrayRef> {
        let offsets = adjust_offsets_for_slice(list);
        let elements = list_values(list)?;
        let length = |row: usize| match (list.is_valid(row), offsets.get(row), offsets.get(row + 1)) {
            (true, Some(from), Some(to)) => (to - from) as usize,
            _ => 0,
        };
        let skipped = usize::from(first.is_none());
        if first.is_none()
            && let Some(row) = (0..list.len()).find(|row| list.is_valid(*row) && length(*row) == 0)
        {
            return exec_err!("list_reduce: the list of row {} has no elements to begin with", row + 1);
        }
        let at = |row: usize, place: usize| offsets.get(row).map_or(0, |from| *from as u64 + place as u64);
        let mut rows: Vec<u64> = (0..list.len() as u64).filter(|row| list.is_valid(*row as usize)).collect();
        let data_type = first.as_ref().map_or(elements.data_type(), |first| first.data_type()).clone();
        let mut so_far = match &first {
            Some(first) => take(first, &UInt64Array::from(rows.clone()), None)?,
            None => {
                let places = rows.iter().map(|row| at(*row as usize, 0));
                take(&elements, &UInt64Array::from_iter_values(places), None)?
            }
        };
        // Where each row's answer lies; that of no list is NULL.
        let mut done: Vec<ArrayRef> = vec![new_null_array(&data_type, 1)];
        let mut answers = vec![(0, 0); list.len()];
        for place in skipped.. {
            let mut stay: Vec<u64> = Vec::with_capacity(rows.len());
            let mut staying: Vec<u64> = Vec::with_capacity(rows.len());
            for (index, row) in rows.iter().enumerate() {
                match length(*row as usize) > place {
                    true => {
                        stay.push(*row);
                        staying.push(index as u64);
                    }
                    false => answers[*row as usize] = (done.len(), index),
                }
            }
            if stay.len() < rows.len() {
                done.push(Arc::clone(&so_far));
            }
            rows = stay;
            if rows.is_empty() {
                break;
            }
            let before = take(&so_far, &UInt64Array::from(staying), None)?;
            let next = rows.iter().map(|row| at(*row as usize, place));
            let next = take(&elements, &UInt64Array::from_iter_values(next), None)?;
            let number: ArrayRef = Arc::new(Int64Array::from(vec![place as i64 + 1; rows.len()]));
            let value = lambda.evaluate(
                &[&|| Ok(Arc::clone(&before)), &|| Ok(Arc::clone(&next)), &|| Ok(Arc::clone(&number))],
                |captured| Ok(take_arrays(captured, &UInt64Array::from(rows.clone()), None)?),
            )?;
            // What is no value of the type is an error, and not NULL.
            let strict = CastOptions { safe: false, ..CastOptions::default() };
            so_far = cast_with_options(&value.into_array(rows.len())?, &data_type, &strict)?;
        }
        let done: Vec<&dyn Array> = done.iter().map(AsRef::as_ref).collect();
        Ok(interleave(&done, &answers)?)
    }
}

impl HigherOrderUDFImpl for ListFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &HigherOrderSignature {
        &self.signature
    }

    fn coerce_value_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Some((list, first)) = arguments.split_first() else {
            return plan_err!("{} takes a list and a lambda", self.name);
        };
        let element = match list {
            DataType::List(element)
            | DataType::LargeList(element)
            | DataType::ListView(element)
            | DataType::LargeListView(element)
            | DataType::FixedSizeList(element, _) => Arc::clone(element),
            DataType::Null => Arc::new(Field::new_list_field(DataType::Null, true)),
            other => return plan_err!("{} takes a list, and a {} is none", self.name, name_of_type(other)),
        };
        let [first] = first else { return Ok(vec![DataType::List(element)]) };
        let Some(both) = type_union_resolution(&[element.data_type().clone(), first.clone()]) else {
            return plan_err!(
                "{}: elements of type {} and a beginning of type {} have no type together",
                self.name,
                name_of_type(element.data_type()),
                name_of_type(first)
            );
        };
        Ok(vec![DataType::List(Arc::new(Field::new_list_field(both.clone(), true))), both])
    }

    fn lambda_parameters(
        &self,
        _: usize,
        fields: &[ValueOrLambda<FieldRef, Option<FieldRef>>],
    ) -> Result<LambdaParametersProgress> {
        let (list, _) = self.values(fields)?;
        let element = self.element(list.data_type())?;
        // Even where no element is NULL, what becomes of them may be.
        let element = Arc::new(element.as_ref().clone().with_nullable(true));
        let place = Arc::new(Field::new("place", DataType::Int64, false));
        Ok(LambdaParametersProgress::Complete(vec![match self.what {
            What::Reduce => vec![Arc::clone(&element), element, place],
            _ => vec![element, place],
        }]))
    }

    fn return_field_from_args(&self, arguments: HigherOrderReturnFieldArgs) -> Result<FieldRef> {
        let (list, _) = self.values(arguments.arg_fields)?;
        let data_type = match (self.what, arguments.arg_fields.get(1)) {
            (What::Reduce, _) => self.element(list.data_type())?.data_type().clone(),
            (What::Transform, Some(ValueOrLambda::Lambda(lambda))) => DataType::List(Arc::new(
                Field::new_list_field(lambda.data_type().clone(), lambda.is_nullable()),
            )),
            _ => list.data_type().clone(),
        };
        Ok(Arc::new(Field::new(self.name, data_type, true)))
    }

    fn invoke_with_args(&self, arguments: HigherOrderFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let (list, first) = self.values(&arguments.args)?;
        let Some(ValueOrLambda::Lambda(lambda)) = arguments.args.get(1) else {
            return internal_err!("{} without a lambda", self.name);
        };
        let list = list.to_array(rows)?;
        let list = list.as_list::<i32>();
        if list.value_type().is_null() || list.null_count() == list.len() {
            let first = first.filter(|_| list.null_count() < list.len());
            let data_type = arguments.return_field.data_type();
            return Ok(ColumnarValue::Array(match first {
                Some(first) => cast(&first.to_array(rows)?, data_type)?,
                None if self.what == What::Reduce || list.null_count() == list.len() => {
                    new_null_array(data_type, rows)
                }
                None => {
                    let empty = new_empty_array(self.element(data_type)?.data_type());
                    let element = Arc::clone(self.element(data_type)?);
                    let lengths = OffsetBuffer::<i32>::from_lengths(vec![0; rows]);
                    Arc::new(ListArray::try_new(element, lengths, empty, list.nulls().cloned())?)
                }
            }));
        }
        let first = first.map(|first| first.to_array(rows)).transpose()?;
        Ok(ColumnarValue::Array(match self.what {
            What::Reduce => self.reduce(list, lambda, first)?,
            _ => self.each(list, lambda, &arguments.return_field)?,
        }))
    }
}
