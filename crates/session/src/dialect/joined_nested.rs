//! Structs and maps that are several in one: `struct_concat(s, t)`, `map_concat(m, n)`.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, MapArray, StructArray, UInt64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::name_and_signature;

use super::names_of_types::name_of_type;

/// Both functions.
pub(super) fn functions() -> [ScalarUDF; 2] {
    let signature = || Signature::user_defined(Volatility::Immutable);
    [
        ScalarUDF::new_from_impl(StructConcat { signature: signature() }),
        ScalarUDF::new_from_impl(MapConcat { signature: signature() }),
    ]
}

/// A struct with the fields of several.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StructConcat {
    signature: Signature,
}

impl ScalarUDFImpl for StructConcat {
    name_and_signature!("struct_concat");

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arguments.to_vec())
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        let mut fields: Vec<FieldRef> = Vec::new();
        for argument in arguments {
            let DataType::Struct(own) = argument else {
                return plan_err!("struct_concat: a {} is no struct", name_of_type(argument));
            };
            for field in own {
                if fields.iter().any(|known| known.name() == field.name()) {
                    return plan_err!("struct_concat: two structs have a field {}", field.name());
                }
                fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
            }
        }
        match fields.is_empty() {
            true => plan_err!("struct_concat takes structs"),
            false => Ok(DataType::Struct(fields.into())),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Struct(fields) = arguments.return_field.data_type() else {
            return internal_err!("struct_concat makes a struct");
        };
        let mut columns = Vec::with_capacity(fields.len());
        for structs in ColumnarValue::values_to_arrays(&arguments.args)? {
            // Of a struct that is NULL all fields are.
            for column in structs.as_struct().columns() {
                let nulls = NullBuffer::union(column.logical_nulls().as_ref(), structs.nulls());
                let data = column.to_data().into_builder().nulls(nulls);
                columns.push(match column.data_type().is_null() {
                    true => Arc::clone(column),
                    false => datafusion::arrow::array::make_array(data.build()?),
                });
            }
        }
        Ok(ColumnarValue::Array(Arc::new(StructArray::try_new(fields.clone(), columns, None)?)))
    }
}

/// A map with the entries of several; of equal keys the value of the last one.
#[derive(Debug, PartialEq, Eq, Hash)]
struct MapConcat {
    signature: Signature,
}

impl ScalarUDFImpl for MapConcat {
    name_and_signature!("map_concat");

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let Some(map) = arguments.iter().find(|argument| !argument.is_null()) else {
            return plan_err!("map_concat takes maps");
        };
        if !matches!(map, DataType::Map(..)) {
            return plan_err!("map_concat takes maps, and a {} is none", name_of_type(map));
        }
        let name = name_of_type(map);
        match arguments.iter().find(|other| !other.is_null() && name_of_type(other) != name) {
            Some(other) => {
                plan_err!(
                    "map_concat takes maps of one type, and not a {} beside a {name}",
                    name_of_type(other)
                )
            }
            None => Ok(vec![map.clone(); arguments.len()]),
        }
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments.first() {
            Some(map) => Ok(map.clone()),
            None => plan_err!("map_concat takes maps"),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let DataType::Map(entries, is_sorted) = arguments.return_field.data_type() else {
            return internal_err!("map_concat makes a map");
        };
        let arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let maps: Vec<&MapArray> = arrays.iter().map(|maps| maps.as_map()).collect();
        let all = |column: fn(&MapArray) -> &ArrayRef| -> Result<ArrayRef> {
            let parts: Vec<&dyn Array> = maps.iter().map(|map| column(map).as_ref()).collect();
            Ok(concat(&parts)?)
        };
        let (keys, values) = (all(MapArray::keys)?, all(MapArray::values)?);
        let places = Places::of(&maps, &keys)?;
        let taken = UInt64Array::from(places.taken);
        let columns = vec![take(&keys, &taken, None)?, take(&values, &taken, None)?];
        let DataType::Struct(fields) = entries.data_type() else {
            return internal_err!("a map has entries");
        };
        let columns = StructArray::try_new(fields.clone(), columns, None)?;
        let offsets = OffsetBuffer::from_lengths(places.lengths);
        let nulls = NullBuffer::from(places.is_there);
        let made = MapArray::try_new(Arc::clone(entries), offsets, columns, Some(nulls), *is_sorted)?;
        Ok(ColumnarValue::Array(Arc::new(made)))
    }
}

/// Which entries the maps of all rows have, of those of all arguments one behind the other.
struct Places {
    taken: Vec<u64>,
    lengths: Vec<usize>,
    /// Whether a row has a map: where one of its arguments has.
    is_there: Vec<bool>,
}

impl Places {
    fn of(maps: &[&MapArray], keys: &ArrayRef) -> Result<Places> {
        let mut begins = Vec::with_capacity(maps.len());
        let mut begin = 0;
        for map in maps {
            begins.push(begin);
            begin += map.keys().len();
        }
        let rows = maps.first().map_or(0, |map| map.len());
        let mut places = Places { taken: Vec::new(), lengths: Vec::new(), is_there: Vec::new() };
        for row in 0..rows {
            let mut own: Vec<u64> = Vec::new();
            let mut known: HashMap<ScalarValue, usize> = HashMap::new();
            for (map, begin) in maps.iter().zip(&begins).filter(|(map, _)| map.is_valid(row)) {
                let offsets = map.value_offsets();
                for entry in offsets[row] as usize..offsets[row + 1] as usize {
                    let place = begin + entry;
                    let key = ScalarValue::try_from_array(keys, place)?;
                    match known.get(&key) {
                        Some(earlier) => own[*earlier] = place as u64,
                        None => {
                            known.insert(key, own.len());
                            own.push(place as u64);
                        }
                    }
                }
            }
            places.lengths.push(own.len());
            places.taken.extend(own);
            places.is_there.push(maps.iter().any(|map| map.is_valid(row)));
        }
        Ok(places)
    }
}
