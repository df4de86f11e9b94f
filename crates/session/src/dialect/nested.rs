//! Structs and maps that are made of others: `struct_insert(s, b := 1)`, `map_from_entries(l)`.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::name_and_signature;

use super::joined_nested;
use super::names_of_types::name_of_type;

/// Adds the functions that a session has not got yet.
pub(super) fn add(state: &mut SessionState) -> Result<()> {
    let insert = [("struct_insert", false), ("struct_update", true)].map(|(name, replaces)| {
        let signature = Signature::variadic_any(Volatility::Immutable);
        ScalarUDF::new_from_impl(StructInsert { name, replaces, signature })
    });
    let map = MapFromEntries { signature: Signature::any(1, Volatility::Immutable) };
    let joined = joined_nested::functions();
    for function in insert.into_iter().chain([ScalarUDF::new_from_impl(map)]).chain(joined) {
        if !state.scalar_functions().contains_key(function.name()) {
            state.register_udf(Arc::new(function))?;
        }
    }
    Ok(())
}

/// A struct with more fields, or others: of the struct, and of names and values in turn.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StructInsert {
    name: &'static str,
    /// Whether a field that is there already gets the value.
    replaces: bool,
    signature: Signature,
}

impl ScalarUDFImpl for StructInsert {
    name_and_signature!();

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field", self.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let function = self.name;
        let Some((first, added)) = arguments.arg_fields.split_first() else {
            return plan_err!("{function} takes a struct and fields, such as {function}(s, a := 1)");
        };
        let DataType::Struct(fields) = first.data_type() else {
            return plan_err!("{function}: a {} is no struct", name_of_type(first.data_type()));
        };
        if added.len() % 2 == 1 {
            return plan_err!("{function}: a field has no name: write name := value");
        }
        let mut fields: Vec<FieldRef> = fields.iter().cloned().collect();
        let names = arguments.scalar_arguments.iter().skip(1).step_by(2);
        for (name, value) in names.zip(added.iter().skip(1).step_by(2)) {
            let Some(Some(Some(name))) = name.map(ScalarValue::try_as_str) else {
                return plan_err!("{function}: a field has no name: write name := value");
            };
            let field = Arc::new(Field::new(name, value.data_type().clone(), true));
            match fields.iter_mut().find(|field| field.name() == name) {
                Some(known) if self.replaces => *known = field,
                Some(_) => return plan_err!("{function}: the struct has a field {name} already"),
                None => fields.push(field),
            }
        }
        Ok(Arc::new(Field::new(function, DataType::Struct(fields.into()), first.is_nullable())))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Struct(fields) = arguments.return_field.data_type() else {
            return internal_err!("{} makes a struct", self.name);
        };
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let Some((first, added)) = arrays.split_first() else {
            return internal_err!("{} of nothing", self.name);
        };
        let first = first.as_struct();
        let mut columns: Vec<ArrayRef> = first.columns().to_vec();
        let names = arguments.args.iter().skip(1).step_by(2);
        for (name, value) in names.zip(added.iter().skip(1).step_by(2)) {
            let ColumnarValue::Scalar(name) = name else {
                return internal_err!("{}: a name of each row", self.name);
            };
            let name = name.try_as_str().flatten().unwrap_or_default();
            let known = first.column_names().iter().position(|known| *known == name);
            match known.and_then(|place| columns.get_mut(place)) {
                Some(column) => *column = Arc::clone(value),
                None => columns.push(Arc::clone(value)),
            }
        }
        let made = StructArray::try_new(fields.clone(), columns, first.nulls().cloned())?;
        Ok(ColumnarValue::Array(Arc::new(made)))
    }
}

/// A map of a list of structs, each with a key and a value.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MapFromEntries {
    signature: Signature,
}

/// The entries of the map, and their columns.
struct Entries {
    field: FieldRef,
    columns: Fields,
}

impl Entries {
    fn of(data_type: &DataType) -> Result<Entries> {
        if let DataType::List(element) = data_type
            && let DataType::Struct(fields) = element.data_type()
            && let [key, value] = fields.as_ref()
        {
            let columns: Fields = vec![
                Field::new("key", key.data_type().clone(), false),
                Field::new("value", value.data_type().clone(), true),
            ]
            .into();
            let field = Arc::new(Field::new("entries", DataType::Struct(columns.clone()), false));
            return Ok(Entries { field, columns });
        }
        plan_err!(
            "map_from_entries takes a list of structs of a key and a value, and a {} is none",
            name_of_type(data_type)
        )
    }
}

impl ScalarUDFImpl for MapFromEntries {
    name_and_signature!("map_from_entries");

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [only] => Ok(DataType::Map(Entries::of(only)?.field, false)),
            _ => plan_err!("map_from_entries takes a list"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [list] = arguments.args.as_slice() else { return internal_err!("map_from_entries of one list") };
        let list = list.to_array(arguments.number_rows)?;
        let entries = Entries::of(list.data_type())?;
        let list = list.as_list::<i32>();
        for row in (0..list.len()).filter(|row| list.is_valid(*row)) {
            let structs = list.value(row);
            let [keys, _] = structs.as_struct().columns() else { return internal_err!("an entry of a pair") };
            let mut known = HashSet::with_capacity(keys.len());
            for place in 0..keys.len() {
                let key = ScalarValue::try_from_array(keys, place)?;
                if key.is_null() || structs.is_null(place) {
                    return exec_err!("map_from_entries: a key is NULL");
                }
                if !known.insert(key.clone()) {
                    return exec_err!("map_from_entries: the key {key} comes twice");
                }
            }
        }
        // What lies behind a list that is NULL may be anything.
        let (_, offsets, values, nulls) = list.clone().into_parts();
        let columns = values.as_struct().columns().to_vec();
        let has_nulls = columns.first().is_some_and(|keys| keys.null_count() > 0);
        if has_nulls {
            return exec_err!("map_from_entries: a key is NULL");
        }
        let columns = StructArray::try_new(entries.columns, columns, None)?;
        let map = MapArray::try_new(entries.field, offsets, columns, nulls, false)?;
        Ok(ColumnarValue::Array(Arc::new(map)))
    }
}
