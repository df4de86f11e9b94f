//! Texts of JSON from values: `to_json`, `json_array`, `json_object`, and casts to JSON.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float16Type, Float32Type, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};

use super::document::{Json, write_float, write_letters};
use super::marks::{is_marked, marked};

/// What is made of the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Value,
    Array,
    /// Of keys and values in turn.
    Object,
    /// Of a list of texts that are JSON.
    ArrayOfList,
    /// Of a list of keys and one of texts that are JSON.
    ObjectOfLists,
    /// A text is taken for JSON; where it is none, that is an error or NULL.
    Cast {
        tries: bool,
    },
}

/// A function that makes a text of JSON.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Write {
    name: &'static str,
    aliases: Vec<String>,
    what: What,
    signature: Signature,
}

/// What a cast to JSON is written as.
pub(in crate::dialect) const CAST: &str = "cast_to_json";
pub(in crate::dialect) const TRY_CAST: &str = "try_cast_to_json";
/// What `json_group_array` and `json_group_object` are written with.
const ARRAY_OF_LIST: &str = "json_array_of_list";
const OBJECT_OF_LISTS: &str = "json_object_of_lists";

impl Write {
    pub fn all() -> Vec<Write> {
        let any = |number| Signature::any(number, Volatility::Immutable);
        let variadic = || {
            Signature::one_of(
                vec![
                    datafusion::logical_expr::TypeSignature::Nullary,
                    datafusion::logical_expr::TypeSignature::VariadicAny,
                ],
                Volatility::Immutable,
            )
        };
        [
            ("to_json", What::Value, any(1), &["to_jsonb", "array_to_json", "row_to_json", "json_quote"][..]),
            ("json_array", What::Array, variadic(), &["json_build_array", "jsonb_build_array"]),
            ("json_object", What::Object, variadic(), &["json_build_object", "jsonb_build_object"]),
            (ARRAY_OF_LIST, What::ArrayOfList, any(1), &[]),
            (OBJECT_OF_LISTS, What::ObjectOfLists, any(2), &[]),
            (CAST, What::Cast { tries: false }, any(1), &[]),
            (TRY_CAST, What::Cast { tries: true }, any(1), &[]),
        ]
        .map(|(name, what, signature, aliases)| Write {
            name,
            what,
            aliases: aliases.iter().map(ToString::to_string).collect(),
            signature,
        })
        .into()
    }

    fn write(&self, columns: &[Column], row: usize, text: &mut String) -> Result<bool> {
        match (self.what, columns) {
            (What::Value, [only]) => {
                only.write(row, text)?;
                // NULL is NULL where nothing is around it.
                Ok(only.array.is_valid(row) && !only.array.data_type().is_null())
            }
            (What::Cast { tries }, [only]) => match only.text(row) {
                Some(written) => match tries {
                    true => Ok(Json::valid(written).map(|_| text.push_str(written)).is_some()),
                    false => {
                        Json::of(written, "a cast to JSON")?;
                        text.push_str(written);
                        Ok(true)
                    }
                },
                None => {
                    only.write(row, text)?;
                    Ok(only.array.is_valid(row) && !only.array.data_type().is_null())
                }
            },
            (What::ArrayOfList, [list]) => {
                let Some(list) = list.json_list(row) else { return Ok(false) };
                for place in 0..list.array.len() {
                    text.push(if place == 0 { '[' } else { ',' });
                    list.write(place, text)?;
                }
                text.push_str(if list.array.is_empty() { "[]" } else { "]" });
                Ok(true)
            }
            (What::Array, columns) => {
                for (place, column) in columns.iter().enumerate() {
                    text.push(if place == 0 { '[' } else { ',' });
                    column.write(row, text)?;
                }
                text.push_str(if columns.is_empty() { "[]" } else { "]" });
                Ok(true)
            }
            (What::Object, columns) => {
                text.push('{');
                for (place, pair) in columns.chunks(2).enumerate() {
                    let [key, value] = pair else { return internal_err!("{} of pairs", self.name) };
                    if place > 0 {
                        text.push(',');
                    }
                    self.write_key(key, row, text)?;
                    value.write(row, text)?;
                }
                text.push('}');
                Ok(true)
            }
            (What::ObjectOfLists, [keys, values]) => {
                let (Some(keys), Some(values)) = (keys.list(row), values.json_list(row)) else {
                    return Ok(false);
                };
                text.push('{');
                for place in 0..keys.array.len().min(values.array.len()) {
                    if place > 0 {
                        text.push(',');
                    }
                    self.write_key(&keys, place, text)?;
                    values.write(place, text)?;
                }
                text.push('}');
                Ok(true)
            }
            _ => internal_err!("{} of {} arguments", self.name, columns.len()),
        }
    }

    fn write_key(&self, keys: &Column, row: usize, text: &mut String) -> Result<()> {
        let name = if self.what == What::ObjectOfLists { "json_group_object" } else { self.name };
        match keys.text(row) {
            Some(key) => write_letters(key, text),
            None if keys.array.is_null(row) || keys.array.data_type().is_null() => {
                return exec_err!("{name}: a key is NULL");
            }
            None => write_letters(&shown(keys.array.as_ref(), row)?, text),
        }
        text.push(':');
        Ok(())
    }
}

/// Values of an argument, and whether their texts are JSON.
struct Column {
    array: ArrayRef,
    is_json: bool,
}

impl Column {
    /// The letters of a text.
    fn text(&self, row: usize) -> Option<&str> {
        let array = &self.array;
        if array.is_null(row) {
            return None;
        }
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row)),
            DataType::Utf8View => Some(array.as_string_view().value(row)),
            _ => None,
        }
    }

    /// The values of a list.
    fn list(&self, row: usize) -> Option<Column> {
        let array = &self.array;
        if array.is_null(row) {
            return None;
        }
        let (field, array) = match array.data_type() {
            DataType::List(field) => (field, array.as_list::<i32>().value(row)),
            DataType::LargeList(field) => (field, array.as_list::<i64>().value(row)),
            DataType::FixedSizeList(field, _) => (field, array.as_fixed_size_list().value(row)),
            _ => return None,
        };
        Some(Column { array, is_json: is_marked(field) })
    }

    /// The values of a list of texts that are JSON.
    fn json_list(&self, row: usize) -> Option<Column> {
        self.list(row).map(|list| Column { is_json: true, ..list })
    }

    fn write(&self, row: usize, text: &mut String) -> Result<()> {
        let array = &self.array;
        if array.is_null(row) || array.data_type().is_null() {
            text.push_str("null");
            return Ok(());
        }
        if let Some(letters) = self.text(row) {
            match self.is_json {
                true => Json::of(letters, "to_json")?.write(text),
                false => write_letters(letters, text),
            }
            return Ok(());
        }
        if let Some(list) = self.list(row) {
            text.push('[');
            for place in 0..list.array.len() {
                if place > 0 {
                    text.push(',');
                }
                list.write(place, text)?;
            }
            text.push(']');
            return Ok(());
        }
        match array.data_type() {
            DataType::Float16 => write_any_float(array.as_primitive::<Float16Type>().value(row).into(), text),
            DataType::Float32 => write_any_float(array.as_primitive::<Float32Type>().value(row).into(), text),
            DataType::Float64 => write_any_float(array.as_primitive::<Float64Type>().value(row), text),
            DataType::Boolean => text.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
            data_type if data_type.is_integer() => text.push_str(&shown(array.as_ref(), row)?),
            data_type if data_type.is_decimal() => {
                write_decimal(&shown(array.as_ref(), row)?, text);
            }
            DataType::Struct(fields) => {
                let columns = array.as_struct().columns().iter();
                let mut opening = '{';
                for (field, column) in fields.iter().zip(columns) {
                    text.push(opening);
                    opening = ',';
                    write_letters(field.name(), text);
                    text.push(':');
                    Column { array: Arc::clone(column), is_json: is_marked(field) }.write(row, text)?;
                }
                text.push_str(if fields.is_empty() { "{}" } else { "}" });
            }
            DataType::Map(..) => {
                let entries = array.as_map().value(row);
                text.push('{');
                for place in 0..entries.len() {
                    if place > 0 {
                        text.push(',');
                    }
                    write_letters(&shown(entries.column(0).as_ref(), place)?, text);
                    text.push(':');
                    let value = Column { array: Arc::clone(entries.column(1)), is_json: false };
                    value.write(place, text)?;
                }
                text.push('}');
            }
            _ => write_letters(&shown(array.as_ref(), row)?, text),
        }
        Ok(())
    }
}

/// All digits of a decimal but zeros at its end, of which one stays behind the point.
fn write_decimal(digits: &str, text: &mut String) {
    match digits.split_once('.') {
        Some((whole, part)) => {
            let part = part.trim_end_matches('0');
            text.push_str(&format!("{whole}.{}", if part.is_empty() { "0" } else { part }));
        }
        None => text.push_str(digits),
    }
}

/// What is no number in JSON is a text.
fn write_any_float(value: f64, text: &mut String) {
    match value.is_finite() {
        true => write_float(value, text),
        false if value.is_nan() => write_letters("NaN", text),
        false => write_letters(if value > 0.0 { "Infinity" } else { "-Infinity" }, text),
    }
}

/// A value as a text; times have a blank between day and hour.
pub(in crate::dialect) fn shown(array: &dyn Array, row: usize) -> Result<String> {
    let options = FormatOptions::new()
        .with_display_error(false)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:::z"));
    let text = ArrayFormatter::try_new(array, &options)?.value(row).try_to_string()?;
    match array.data_type() {
        DataType::Timestamp(_, None) if text.contains('.') => Ok(text.trim_end_matches('0').to_string()),
        _ => Ok(text),
    }
}

impl ScalarUDFImpl for Write {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let is_text = |field: &FieldRef| field.data_type().is_string() || field.data_type().is_null();
        if self.what == What::Object {
            if arguments.arg_fields.len() % 2 == 1 {
                return plan_err!(
                    "{} takes keys and values in turn, and the last key has no value",
                    self.name
                );
            }
            if let Some(key) = arguments.arg_fields.iter().step_by(2).find(|key| !is_text(key)) {
                return plan_err!("{}: the key {} is no text", self.name, key.name());
            }
        }
        let has_nulls = !matches!(self.what, What::Array | What::Object);
        Ok(Arc::new(marked(Field::new(self.name, DataType::Utf8, has_nulls))))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_one = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if is_one { 1 } else { arguments.number_rows };
        let mut columns = Vec::with_capacity(arguments.args.len());
        for (value, field) in arguments.args.iter().zip(&arguments.arg_fields) {
            let array = value.to_array(rows)?;
            let array = match array.data_type() {
                DataType::Dictionary(_, values) => cast(&array, values)?,
                _ => array,
            };
            columns.push(Column { array, is_json: is_marked(field) });
        }
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..rows {
            text.clear();
            match self.write(&columns, row, &mut text)? {
                true => texts.append_value(&text),
                false => texts.append_null(),
            }
        }
        let texts: ArrayRef = Arc::new(texts.finish());
        match is_one {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&texts, 0)?)),
            false => Ok(ColumnarValue::Array(texts)),
        }
    }
}
