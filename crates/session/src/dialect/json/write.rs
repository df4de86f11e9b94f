//! Texts of JSON from values: `to_json`, `json_array`, `json_object`, and casts to JSON.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float16Type, Float32Type, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::{exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, name_and_signature};

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
                Ok(!only.is_null(row))
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
                    Ok(!only.is_null(row))
                }
            },
            (What::ArrayOfList, [list]) => {
                let Some((list, places)) = list.list(row) else { return Ok(false) };
                for place in places.clone() {
                    text.push(if place == places.start { '[' } else { ',' });
                    list.write(place, text)?;
                }
                text.push_str(if places.is_empty() { "[]" } else { "]" });
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
                let (Some((keys, of_keys)), Some((values, of_values))) = (keys.list(row), values.list(row))
                else {
                    return Ok(false);
                };
                text.push('{');
                for (key, value) in of_keys.clone().zip(of_values) {
                    if key > of_keys.start {
                        text.push(',');
                    }
                    self.write_key(keys, key, text)?;
                    values.write(value, text)?;
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
            None if keys.is_null(row) => return exec_err!("{name}: a key is NULL"),
            None => match &keys.parts {
                Parts::Shown(texts) => write_letters(text_of(texts, row)?, text),
                // Floats, truth values, lists and the like are as seldom keys as their texts are short.
                _ => write_letters(text_of(&shown(keys.array.slice(row, 1).as_ref())?, 0)?, text),
            },
        }
        text.push(':');
        Ok(())
    }
}

/// Values of an argument.
struct Column {
    array: ArrayRef,
    /// Whether their texts are JSON.
    is_json: bool,
    parts: Parts,
}

/// What the values of a column are made of.
enum Parts {
    /// Lists: the elements, and those of each row.
    List {
        elements: Box<Column>,
        ends: Vec<Range<usize>>,
    },
    Struct(Vec<(String, Column)>),
    Map {
        keys: StringArray,
        values: Box<Column>,
        ends: Vec<Range<usize>>,
    },
    /// The texts of values that are no texts themselves.
    Shown(StringArray),
    /// What is written as it is.
    Own,
}

impl Column {
    fn of(array: ArrayRef, is_json: bool) -> Result<Column> {
        let part = |array: &ArrayRef, field: &Field| Column::of(Arc::clone(array), is_marked(field));
        let parts = match array.data_type() {
            DataType::List(field) => {
                let list = array.as_list::<i32>();
                let (first, ends) = ends(list.value_offsets());
                let elements = list.values().slice(first, ends.last().map_or(0, |last| last.end));
                Parts::List { elements: Box::new(part(&elements, field)?), ends }
            }
            DataType::LargeList(field) | DataType::FixedSizeList(field, _) => {
                let lists = cast(&array, &DataType::List(Arc::clone(field)))?;
                return Column::of(lists, is_json);
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(array.as_struct().columns());
                let columns = columns.map(|(field, column)| Ok((field.name().clone(), part(column, field)?)));
                Parts::Struct(columns.collect::<Result<_>>()?)
            }
            DataType::Map(..) => {
                let map = array.as_map();
                let (first, ends) = ends(map.value_offsets());
                let length = ends.last().map_or(0, |last| last.end);
                let keys = shown(map.keys().slice(first, length).as_ref())?;
                let values = Column::of(map.values().slice(first, length), false)?;
                Parts::Map { keys, values: Box::new(values), ends }
            }
            DataType::Float16 | DataType::Float32 | DataType::Float64 | DataType::Boolean => Parts::Own,
            data_type if data_type.is_string() || data_type.is_null() => Parts::Own,
            _ => Parts::Shown(shown(array.as_ref())?),
        };
        Ok(Column { array, is_json, parts })
    }

    /// A list whose elements are JSON.
    fn with_json(mut self, is_json: bool) -> Column {
        if let Parts::List { elements, .. } = &mut self.parts {
            elements.is_json |= is_json;
        }
        self
    }

    fn is_null(&self, row: usize) -> bool {
        self.array.is_null(row) || self.array.data_type().is_null()
    }

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

    /// The elements of a list, and where they are among them.
    fn list(&self, row: usize) -> Option<(&Column, Range<usize>)> {
        match &self.parts {
            Parts::List { elements, ends } if self.array.is_valid(row) => {
                Some((elements, ends.get(row)?.clone()))
            }
            _ => None,
        }
    }

    fn write(&self, row: usize, text: &mut String) -> Result<()> {
        if self.is_null(row) {
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
        match &self.parts {
            Parts::List { elements, ends } => {
                text.push('[');
                let places = ends.get(row).cloned().unwrap_or_default();
                for place in places.clone() {
                    if place > places.start {
                        text.push(',');
                    }
                    elements.write(place, text)?;
                }
                text.push(']');
            }
            Parts::Struct(columns) => {
                let mut opening = '{';
                for (name, column) in columns {
                    text.push(opening);
                    opening = ',';
                    write_letters(name, text);
                    text.push(':');
                    column.write(row, text)?;
                }
                text.push_str(if columns.is_empty() { "{}" } else { "}" });
            }
            Parts::Map { keys, values, ends } => {
                text.push('{');
                let places = ends.get(row).cloned().unwrap_or_default();
                for place in places.clone() {
                    if place > places.start {
                        text.push(',');
                    }
                    write_letters(text_of(keys, place)?, text);
                    text.push(':');
                    values.write(place, text)?;
                }
                text.push('}');
            }
            Parts::Shown(texts) => {
                let shown = text_of(texts, row)?;
                match self.array.data_type() {
                    data_type if data_type.is_integer() => text.push_str(shown),
                    data_type if data_type.is_decimal() => write_decimal(shown, text),
                    _ => write_letters(shown, text),
                }
            }
            Parts::Own => self.write_own(row, text),
        }
        Ok(())
    }

    fn write_own(&self, row: usize, text: &mut String) {
        let array = &self.array;
        match array.data_type() {
            DataType::Float16 => write_any_float(array.as_primitive::<Float16Type>().value(row).into(), text),
            DataType::Float32 => write_any_float(array.as_primitive::<Float32Type>().value(row).into(), text),
            DataType::Float64 => write_any_float(array.as_primitive::<Float64Type>().value(row), text),
            DataType::Boolean => text.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
            _ => text.push_str("null"),
        }
    }
}

/// The first element of all lists, and those of each, counted from it.
fn ends(offsets: &[i32]) -> (usize, Vec<Range<usize>>) {
    let first = offsets.first().map_or(0, |first| *first as usize);
    let place = |offset: i32| offset as usize - first;
    (first, offsets.windows(2).map(|ends| place(ends[0])..place(ends[1])).collect())
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

/// Values as texts, of an array at once: what writes them takes longer to make than to use. Times have a blank between day and hour.
pub(in crate::dialect) fn shown(array: &dyn Array) -> Result<StringArray> {
    let options = FormatOptions::new()
        .with_display_error(false)
        .with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"))
        .with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f%:::z"));
    let is_local = matches!(array.data_type(), DataType::Timestamp(_, None));
    let formatter = ArrayFormatter::try_new(array, &options)?;
    let mut texts = StringBuilder::with_capacity(array.len(), 0);
    let mut text = String::new();
    for row in 0..array.len() {
        text.clear();
        // What lies below a NULL need not have a text, and nobody asks for it.
        let is_written = array.is_valid(row) && formatter.value(row).write(&mut text).is_ok();
        match is_local && text.contains('.') {
            _ if !is_written => texts.append_null(),
            true => texts.append_value(text.trim_end_matches('0')),
            false => texts.append_value(&text),
        }
    }
    Ok(texts.finish())
}

/// The text of a value that is not NULL.
pub(in crate::dialect) fn text_of(texts: &StringArray, row: usize) -> Result<&str> {
    match texts.is_valid(row) {
        true => Ok(texts.value(row)),
        false => exec_err!("a value has no text, such as a time beyond the years of a calendar"),
    }
}

impl ScalarUDFImpl for Write {
    name_and_signature!(with aliases);

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
        let rows = CallRows::of(&arguments);
        let mut columns = Vec::with_capacity(arguments.args.len());
        for (value, field) in arguments.args.iter().zip(&arguments.arg_fields) {
            let array = value.to_array(rows.count)?;
            let array = match array.data_type() {
                DataType::Dictionary(_, values) => cast(&array, values)?,
                _ => array,
            };
            let is_of_json = matches!(self.what, What::ArrayOfList | What::ObjectOfLists);
            columns.push(Column::of(array, is_marked(field))?.with_json(is_of_json));
        }
        let mut texts = StringBuilder::new();
        let mut text = String::new();
        for row in 0..rows.count {
            text.clear();
            match self.write(&columns, row, &mut text)? {
                true => texts.append_value(&text),
                false => texts.append_null(),
            }
        }
        rows.answer(Arc::new(texts.finish()))
    }
}
