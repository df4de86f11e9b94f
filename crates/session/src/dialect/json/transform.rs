//! `json_transform(j, '{"a": "INTEGER", "b": ["DOUBLE"]}')`: texts of JSON as values of a type, which the second argument says.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, StringArray, StructArray};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::kernels::zip::zip;
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options, is_not_null};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Float64Type, TimeUnit};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::super::names_of_types::name_of_type;
use super::document::{Json, Kind};

/// Levels of a type.
const MOST_LEVELS: usize = 100;

/// `json_transform`, by which what is no value of its type is NULL, or `json_transform_strict`, by which it is an error.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Transform {
    name: &'static str,
    aliases: Vec<String>,
    is_strict: bool,
    signature: Signature,
}

impl Transform {
    pub fn all() -> [Transform; 2] {
        let made = |name, alias: &str, is_strict| {
            let signature = Signature::user_defined(Volatility::Immutable);
            Transform { name, aliases: vec![alias.to_string()], is_strict, signature }
        };
        [made("json_transform", "from_json", false), made("json_transform_strict", "from_json_strict", true)]
    }
}

/// The type that a structure says.
fn type_of(structure: Json<'_>, name: &str) -> Result<DataType> {
    match structure.kind() {
        Kind::Object => {
            let mut fields: Vec<FieldRef> = Vec::new();
            for element in structure.elements() {
                let Some(key) = element.key.and_then(Json::text) else { continue };
                if fields.iter().any(|field| *field.name() == key) {
                    return plan_err!("{name}: the structure has {key} twice");
                }
                fields.push(Arc::new(Field::new(key, type_of(element.value, name)?, true)));
            }
            if fields.is_empty() {
                return plan_err!("{name}: an object of the structure has no key");
            }
            Ok(DataType::Struct(fields.into()))
        }
        Kind::Array => {
            let mut elements = structure.elements();
            match (elements.next(), elements.next()) {
                (Some(only), None) => {
                    let element = type_of(only.value, name)?;
                    Ok(DataType::List(Arc::new(Field::new_list_field(element, true))))
                }
                _ => plan_err!("{name}: a list of the structure has one type in it, such as [\"INTEGER\"]"),
            }
        }
        Kind::Text => {
            let text = structure.text().unwrap_or_default();
            match named(&text.to_uppercase()) {
                Some(data_type) => Ok(data_type),
                None => plan_err!("{name}: there is no type '{text}'"),
            }
        }
        _ => plan_err!("{name}: {} is no type: types are texts, such as \"INTEGER\"", structure.written()),
    }
}

fn named(name: &str) -> Option<DataType> {
    if let Some(digits) = name.strip_prefix("DECIMAL").or_else(|| name.strip_prefix("NUMERIC")) {
        let digits = digits.trim().trim_start_matches('(').trim_end_matches(')');
        let (precision, scale) = match digits.split_once(',') {
            Some((precision, scale)) => (precision.trim().parse().ok()?, scale.trim().parse().ok()?),
            None if digits.is_empty() => (18, 3),
            None => (digits.trim().parse().ok()?, 0),
        };
        let is_there = (1..=38).contains(&precision) && (0..=precision as i8).contains(&scale);
        return is_there.then_some(DataType::Decimal128(precision, scale));
    }
    Some(match name {
        "BOOLEAN" | "BOOL" | "LOGICAL" => DataType::Boolean,
        "TINYINT" | "INT1" => DataType::Int8,
        "SMALLINT" | "INT2" | "SHORT" => DataType::Int16,
        "INTEGER" | "INT" | "INT4" | "SIGNED" => DataType::Int32,
        "BIGINT" | "INT8" | "LONG" => DataType::Int64,
        "HUGEINT" | "UHUGEINT" => DataType::Decimal128(38, 0),
        "UTINYINT" => DataType::UInt8,
        "USMALLINT" => DataType::UInt16,
        "UINTEGER" => DataType::UInt32,
        "UBIGINT" => DataType::UInt64,
        "FLOAT" | "REAL" | "FLOAT4" => DataType::Float32,
        "DOUBLE" | "FLOAT8" => DataType::Float64,
        "VARCHAR" | "TEXT" | "STRING" | "JSON" | "CHAR" => DataType::Utf8,
        "DATE" => DataType::Date32,
        "TIME" => DataType::Time64(TimeUnit::Nanosecond),
        "TIMESTAMP" | "DATETIME" => DataType::Timestamp(TimeUnit::Microsecond, None),
        "TIMESTAMP WITH TIME ZONE" | "TIMESTAMPTZ" => {
            DataType::Timestamp(TimeUnit::Microsecond, Some("+00:00".into()))
        }
        "NULL" => DataType::Null,
        _ => return None,
    })
}

/// What a value without others in it says.
fn written(json: Json<'_>) -> Option<Cow<'_, str>> {
    match json.kind() {
        Kind::Object | Kind::Array => None,
        _ => Some(json.text().unwrap_or_else(|| json.compact())),
    }
}

/// Makes values of a type.
struct Maker<'a> {
    name: &'a str,
    is_strict: bool,
}

impl Maker<'_> {
    fn values(&self, found: &[Option<Json<'_>>], data_type: &DataType) -> Result<ArrayRef> {
        let found: Vec<Option<Json<'_>>> =
            found.iter().map(|json| json.filter(|json| json.kind() != Kind::Null)).collect();
        match data_type {
            DataType::Struct(fields) => self.structs(&found, fields),
            DataType::List(element) => self.lists(&found, element),
            DataType::Utf8 => {
                let texts =
                    found.iter().map(|json| json.map(|json| json.text().unwrap_or_else(|| json.compact())));
                Ok(Arc::new(texts.collect::<StringArray>()))
            }
            data_type => self.plain(&found, data_type),
        }
    }

    fn refuse<T>(&self, json: Json<'_>, wanted: &str) -> Result<T> {
        exec_err!("{}: {} is no {wanted}", self.name, json.compact())
    }

    fn structs(&self, found: &[Option<Json<'_>>], fields: &Fields) -> Result<ArrayRef> {
        if let Some(json) = found.iter().flatten().find(|json| json.kind() != Kind::Object)
            && self.is_strict
        {
            return self.refuse(*json, "object");
        }
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            let within: Vec<Option<Json<'_>>> =
                found.iter().map(|json| json.and_then(|json| json.field(field.name()))).collect();
            if self.is_strict
                && let Some(json) =
                    found.iter().zip(&within).find_map(|(json, within)| json.filter(|_| within.is_none()))
            {
                return exec_err!("{}: {} has no {}", self.name, json.compact(), field.name());
            }
            columns.push(self.values(&within, field.data_type())?);
        }
        let nulls = NullBuffer::from_iter(found.iter().map(Option::is_some));
        Ok(Arc::new(StructArray::try_new(fields.clone(), columns, Some(nulls))?))
    }

    fn lists(&self, found: &[Option<Json<'_>>], element: &FieldRef) -> Result<ArrayRef> {
        let mut all = Vec::new();
        let mut lengths = Vec::with_capacity(found.len());
        let is_list = |json: &Json<'_>| json.kind() == Kind::Array;
        if let Some(json) = found.iter().flatten().find(|json| !is_list(json))
            && self.is_strict
        {
            return self.refuse(*json, "list");
        }
        for json in found {
            let before = all.len();
            let elements = json.filter(is_list).into_iter().flat_map(Json::elements);
            all.extend(elements.map(|element| Some(element.value)));
            lengths.push(all.len() - before);
        }
        let values = self.values(&all, element.data_type())?;
        let nulls = NullBuffer::from_iter(found.iter().map(|json| json.as_ref().is_some_and(is_list)));
        let offsets = OffsetBuffer::from_lengths(lengths);
        Ok(Arc::new(ListArray::try_new(Arc::clone(element), offsets, values, Some(nulls))?))
    }

    /// Numbers, truth values and times, of what is written. A number with a fraction becomes the nearest whole one.
    fn plain(&self, found: &[Option<Json<'_>>], data_type: &DataType) -> Result<ArrayRef> {
        let texts: StringArray = found.iter().map(|json| json.and_then(written)).collect();
        let mut values =
            cast_with_options(&texts, data_type, &CastOptions { safe: true, ..CastOptions::default() })?;
        if data_type.is_integer() && values.null_count() > texts.null_count() {
            let floats = cast(&texts, &DataType::Float64)?;
            let rounded: Float64Array =
                floats.as_primitive::<Float64Type>().iter().map(|value| value.map(f64::round)).collect();
            values = zip(&is_not_null(&values)?, &values, &cast(&rounded, data_type)?)?;
        }
        let refused = (0..found.len()).find(|row| values.is_null(*row) && found[*row].is_some());
        match refused.and_then(|row| found[row]) {
            Some(json) if self.is_strict => self.refuse(json, &data_type.to_string()),
            _ => Ok(values),
        }
    }
}

impl ScalarUDFImpl for Transform {
    name_and_signature!(with aliases);

    /// Each text stays of its own type: a structure that is cast to the type of the column is no constant any more.
    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        if arguments.len() != 2 {
            return plan_err!("{} takes a text of JSON and a structure", self.name);
        }
        let coerced = |data_type: &DataType| match data_type {
            data_type if data_type.is_string() => Ok(data_type.clone()),
            DataType::Null => Ok(DataType::Utf8),
            DataType::Dictionary(_, values) if values.is_string() => Ok(values.as_ref().clone()),
            other => plan_err!("{} takes texts, and a {} is none", self.name, name_of_type(other)),
        };
        arguments.iter().map(coerced).collect()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field", self.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let name = self.name;
        let structure = match arguments.scalar_arguments.get(1) {
            Some(Some(structure)) => structure.try_as_str().flatten(),
            _ => None,
        };
        let Some(structure) = structure else {
            return plan_err!(
                "{name}: the structure must be written as a text, such as '{{\"a\": \"INTEGER\"}}'"
            );
        };
        let structure = Json::of(structure, name)?;
        if structure.levels() > MOST_LEVELS {
            return plan_err!("{name}: the structure has more than {MOST_LEVELS} levels");
        }
        Ok(Arc::new(Field::new(name, type_of(structure, name)?, true)))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let Some(texts) = arguments.args.first() else { return internal_err!("{} of a text", self.name) };
        let texts = cast(&texts.to_array(rows.count)?, &DataType::Utf8)?;
        let texts = texts.as_string::<i32>();
        let found = texts.iter().map(|text| text.map(|text| Json::of(text, self.name)).transpose());
        let found = found.collect::<Result<Vec<_>>>()?;
        let maker = Maker { name: self.name, is_strict: self.is_strict };
        let values = maker.values(&found, arguments.return_field.data_type())?;
        rows.answer(values)
    }
}
