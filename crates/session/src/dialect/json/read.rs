//! What texts of JSON say: `json_extract` and those beside it, each a value, or a list where the path leads to several.

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, ListBuilder, StringBuilder, UInt64Array,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use kelpie_datafusion::{CallRows, name_and_signature};

use super::document::{Json, Kind};
use super::marks::marked;
use super::path::Path;
use super::structure::structure;
use crate::dialect::names_of_types::name_of_type;

/// Levels of a value that is written on lines: each line has as many blanks as there are levels around it.
const MOST_LEVELS: usize = 1000;

/// What is asked of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Itself,
    /// The letters of a text; of other values what is written.
    Text,
    /// A value that has no others in it.
    Scalar,
    Length,
    Kind,
    Keys,
    IsThere,
    IsValid,
    Lines,
    Structure,
}

/// A function of a text of JSON and perhaps of a path into it.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Read {
    name: &'static str,
    aliases: Vec<String>,
    what: What,
    signature: Signature,
}

impl Read {
    pub fn all() -> Vec<Read> {
        [
            ("json_extract", What::Itself, &["json_extract_path", "jsonb_extract_path"][..]),
            (
                "json_extract_string",
                What::Text,
                &["json_extract_path_text", "jsonb_extract_path_text", "get_json_object"],
            ),
            ("json_value", What::Scalar, &[]),
            ("json_array_length", What::Length, &["jsonb_array_length"]),
            ("json_type", What::Kind, &[]),
            ("json_keys", What::Keys, &[]),
            ("json_exists", What::IsThere, &[]),
            ("json_valid", What::IsValid, &[]),
            ("json", What::Itself, &[]),
            ("json_structure", What::Structure, &[]),
            ("json_pretty", What::Lines, &["jsonb_pretty"]),
        ]
        .map(|(name, what, aliases)| Read {
            name,
            what,
            aliases: aliases.iter().map(ToString::to_string).collect(),
            signature: Signature::user_defined(Volatility::Immutable),
        })
        .into()
    }

    /// How many arguments it takes, at least and at most.
    fn arguments(&self) -> std::ops::RangeInclusive<usize> {
        match self.what {
            What::IsValid | What::Lines | What::Structure => 1..=1,
            What::Itself if self.name == "json" => 1..=1,
            What::Length | What::Kind | What::Keys => 1..=2,
            _ => 2..=2,
        }
    }

    /// The type of an answer.
    fn element(&self) -> FieldRef {
        let data_type = match self.what {
            What::Length => DataType::UInt64,
            What::IsThere | What::IsValid => DataType::Boolean,
            What::Keys => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
            _ => DataType::Utf8,
        };
        let field = Field::new_list_field(data_type, true);
        Arc::new(if matches!(self.what, What::Itself | What::Structure) { marked(field) } else { field })
    }

    fn answers(&self, found: &[Found<'_>]) -> ArrayRef {
        match self.what {
            What::Length => {
                let length = |json: Json<'_>| match json.kind() {
                    Kind::Array => json.elements().count() as u64,
                    _ => 0,
                };
                Arc::new(found.iter().map(|found| found.json().map(length)).collect::<UInt64Array>())
            }
            What::IsThere | What::IsValid => {
                let is_there = |found: &Found<'_>| match found {
                    Found::Null => None,
                    found => Some(found.json().is_some()),
                };
                Arc::new(found.iter().map(is_there).collect::<BooleanArray>())
            }
            What::Keys => {
                let mut keys = ListBuilder::new(StringBuilder::new());
                for found in found {
                    let elements = found.json().into_iter().flat_map(Json::elements);
                    for key in elements.filter_map(|element| element.key.and_then(Json::text)) {
                        keys.values().append_value(key);
                    }
                    keys.append(found.json().is_some());
                }
                Arc::new(keys.finish())
            }
            what => {
                let mut texts = StringBuilder::with_capacity(found.len(), 0);
                for found in found {
                    texts.append_option(found.json().and_then(|json| written(what, json)));
                }
                Arc::new(texts.finish())
            }
        }
    }
}

/// What is asked of a value as a text.
fn written(what: What, json: Json<'_>) -> Option<Cow<'_, str>> {
    match (what, json.kind()) {
        (What::Text, Kind::Text) => json.text(),
        (What::Text, Kind::Null) => None,
        (What::Scalar, Kind::Null | Kind::Object | Kind::Array) => None,
        (What::Kind, _) => Some(name_of_kind(json).into()),
        (What::Lines, _) => Some(json.lines().into()),
        (What::Structure, _) => Some(structure(json).into()),
        _ => Some(json.compact()),
    }
}

/// The type of several answers. Their field has no mark: DataFusion's lambdas take elements with none only.
fn of_several(element: &Field) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element.data_type().clone(), true)))
}

/// What a path has led to.
#[derive(Debug, Clone, Copy)]
enum Found<'a> {
    /// There is no text, or no path.
    Null,
    Missing,
    Json(Json<'a>),
}

impl<'a> Found<'a> {
    fn json(self) -> Option<Json<'a>> {
        match self {
            Found::Json(json) => Some(json),
            _ => None,
        }
    }
}

impl<'a> From<Option<Json<'a>>> for Found<'a> {
    fn from(found: Option<Json<'a>>) -> Found<'a> {
        found.map_or(Found::Missing, Found::Json)
    }
}

/// The kind of a value as the name of a type.
pub(super) fn name_of_kind(json: Json<'_>) -> &'static str {
    match json.kind() {
        Kind::Object => "OBJECT",
        Kind::Array => "ARRAY",
        Kind::Text => "VARCHAR",
        Kind::Flag => "BOOLEAN",
        Kind::Null => "NULL",
        Kind::Number if json.written().parse::<u64>().is_ok() => "UBIGINT",
        Kind::Number if json.written().parse::<i64>().is_ok() => "BIGINT",
        Kind::Number => "DOUBLE",
    }
}

/// Where the values of a call's rows lie.
enum Paths {
    One(Option<Path>),
    /// An answer for each.
    Listed(Vec<Option<Path>>),
    OfRows(Vec<Option<Path>>),
}

impl Paths {
    fn of(value: Option<&ColumnarValue>, rows: usize) -> Result<Paths> {
        let Some(value) = value else { return Ok(Paths::One(Some(Path::whole()))) };
        match value {
            ColumnarValue::Scalar(ScalarValue::List(list)) if list.is_valid(0) => {
                Ok(Paths::Listed(each(&list.value(0))?))
            }
            ColumnarValue::Scalar(ScalarValue::List(_)) => Ok(Paths::One(None)),
            ColumnarValue::Scalar(value) => Ok(Paths::One(each(&value.to_array()?)?.pop().flatten())),
            ColumnarValue::Array(values) => {
                debug_assert_eq!(values.len(), rows);
                Ok(Paths::OfRows(each(values)?))
            }
        }
    }

    fn has_several(&self) -> bool {
        match self {
            Paths::One(path) => path.as_ref().is_some_and(Path::has_several),
            Paths::Listed(_) => true,
            Paths::OfRows(_) => false,
        }
    }
}

/// The paths that an array of keys, paths or places has.
fn each(values: &ArrayRef) -> Result<Vec<Option<Path>>> {
    match values.data_type() {
        DataType::Int64 => {
            Ok(values.as_primitive::<Int64Type>().iter().map(|place| place.map(Path::place)).collect())
        }
        DataType::Utf8 => {
            values.as_string::<i32>().iter().map(|text| text.map(Path::parsed).transpose()).collect()
        }
        other => internal_err!("a path is no {other}"),
    }
}

impl ScalarUDFImpl for Read {
    name_and_signature!(with aliases);

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        let name = self.name;
        if !self.arguments().contains(&arguments.len()) {
            return match self.arguments().end() {
                1 => plan_err!("{name} takes a text of JSON"),
                _ => plan_err!("{name} takes a text of JSON and a path, such as '$.a[0]'"),
            };
        }
        let mut coerced = Vec::with_capacity(2);
        for (place, data_type) in arguments.iter().enumerate() {
            let data_type = match data_type {
                DataType::Dictionary(_, values) => values,
                other => other,
            };
            coerced.push(match data_type {
                data_type if data_type.is_string() || data_type.is_null() => DataType::Utf8,
                data_type if place == 1 && data_type.is_integer() => DataType::Int64,
                DataType::List(element)
                | DataType::LargeList(element)
                | DataType::FixedSizeList(element, _)
                    if place == 1 && (element.data_type().is_string() || element.data_type().is_null()) =>
                {
                    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
                }
                other if place == 0 => {
                    return plan_err!(
                        "{name} takes a text of JSON, and a {} is none: to_json makes one of it",
                        name_of_type(other)
                    );
                }
                other => {
                    return plan_err!(
                        "{name}: a {} is neither a key, a path nor a place",
                        name_of_type(other)
                    );
                }
            });
        }
        Ok(coerced)
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("{} has a field", self.name)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> Result<FieldRef> {
        let element = self.element();
        let has_several = match (arguments.arg_fields.get(1), arguments.scalar_arguments.get(1)) {
            (Some(field), _) if matches!(field.data_type(), DataType::List(_)) => true,
            (_, Some(Some(path))) => match path.try_as_str() {
                Some(Some(path)) => Path::parsed(path)?.has_several(),
                _ => false,
            },
            _ => false,
        };
        match has_several {
            true => Ok(Arc::new(Field::new(self.name, of_several(&element), true))),
            false => Ok(Arc::new(element.as_ref().clone().with_name(self.name))),
        }
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = CallRows::of(&arguments);
        let Some(texts) = arguments.args.first() else { return internal_err!("{} of a text", self.name) };
        let texts = texts.to_array(rows.count)?;
        let texts = texts.as_string::<i32>();
        let paths = Paths::of(arguments.args.get(1), rows.count)?;
        let is_list = paths.has_several();
        let mut found: Vec<Found<'_>> = Vec::with_capacity(rows.count);
        let (mut lengths, mut are_there) = (Vec::with_capacity(rows.count), Vec::with_capacity(rows.count));
        for (row, text) in texts.iter().enumerate() {
            let before = found.len();
            let json = match text {
                Some(text) if self.what == What::IsValid => Json::valid(text),
                Some(text) => {
                    let json = Json::of(text, self.name)?;
                    if matches!(self.what, What::Lines | What::Structure) && json.levels() > MOST_LEVELS {
                        return exec_err!("{}: a value has more than {MOST_LEVELS} levels", self.name);
                    }
                    Some(json)
                }
                None => None,
            };
            let path = match &paths {
                Paths::One(path) => path.as_ref(),
                Paths::OfRows(paths) => paths.get(row).and_then(Option::as_ref),
                Paths::Listed(_) => None,
            };
            match (json, &paths, path) {
                (Some(json), Paths::Listed(paths), _) => {
                    found.extend(paths.iter().map(|path| match path {
                        Some(path) => Found::from(path.find(json)),
                        None => Found::Null,
                    }));
                }
                (Some(json), _, Some(path)) if is_list => {
                    found.extend(path.find_all(json).into_iter().map(Found::Json));
                }
                (Some(_), _, Some(path)) if path.has_several() => {
                    return exec_err!(
                        "{}: a path with * must be written as a text, and is not taken from a column",
                        self.name
                    );
                }
                (Some(json), _, Some(path)) => found.push(path.find(json).into()),
                (None, ..) if text.is_some() => found.push(Found::Missing),
                _ if is_list => {}
                _ => found.push(Found::Null),
            }
            lengths.push(found.len() - before);
            are_there.push(json.is_some());
        }
        let mut answers = self.answers(&found);
        if is_list {
            let offsets = OffsetBuffer::from_lengths(lengths);
            let nulls = Some(NullBuffer::from(are_there));
            let element = Arc::new(Field::new_list_field(answers.data_type().clone(), true));
            answers = Arc::new(ListArray::try_new(element, offsets, answers, nulls)?);
        }
        rows.answer(answers)
    }
}
