//! Two values of JSON together: `json_contains` and `json_merge_patch`.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;

use super::document::{Json, Kind, write_letters};
use crate::dialect::by_row::{Definition, Kind as Parameter};

/// Levels of both values: they are gone into one by one, and each level is read anew.
const MOST_LEVELS: usize = 200;

pub(super) fn definitions() -> [Definition; 2] {
    const BOTH: &[Parameter] = &[Parameter::Text, Parameter::Text];
    let contains = Definition {
        name: "json_contains",
        aliases: &[],
        parameters: BOTH,
        least: 2,
        result: DataType::Boolean,
        body: |row| {
            let (value, wanted) = both("json_contains", row.text(0), row.text(1))?;
            Ok(ScalarValue::from(is_within(value, wanted)))
        },
    };
    let merged = Definition {
        name: "json_merge_patch",
        aliases: &[],
        parameters: BOTH,
        least: 2,
        result: DataType::Utf8,
        body: |row| {
            let (value, patch) = both("json_merge_patch", row.text(0), row.text(1))?;
            let mut text = String::new();
            merge(Some(value), patch, &mut text);
            Ok(ScalarValue::from(text))
        },
    };
    [contains, merged]
}

fn both<'a>(function: &str, first: &'a str, second: &'a str) -> Result<(Json<'a>, Json<'a>)> {
    let (first, second) = (Json::of(first, function)?, Json::of(second, function)?);
    match first.levels().max(second.levels()) > MOST_LEVELS {
        true => exec_err!("{function}: a value has more than {MOST_LEVELS} levels"),
        false => Ok((first, second)),
    }
}

/// Whether a value, or one within it, has all that is wanted.
fn is_within(value: Json<'_>, wanted: Json<'_>) -> bool {
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        if has(value, wanted) {
            return true;
        }
        rest.extend(value.elements().map(|element| element.value));
    }
    false
}

/// Whether a value has all that is wanted: an object its keys, an array its elements.
fn has(value: Json<'_>, wanted: Json<'_>) -> bool {
    match (value.kind(), wanted.kind()) {
        (Kind::Object, Kind::Object) => wanted.elements().all(|element| {
            let name = element.key.and_then(Json::text);
            name.and_then(|name| value.field(&name)).is_some_and(|value| has(value, element.value))
        }),
        (Kind::Array, Kind::Array) => {
            wanted.elements().all(|wanted| value.elements().any(|value| has(value.value, wanted.value)))
        }
        (Kind::Text, Kind::Text) => value.text() == wanted.text(),
        (Kind::Number, Kind::Number) => value.compact() == wanted.compact(),
        (first, second) => first == second && value.written() == wanted.written(),
    }
}

/// Writes a value with what a patch says of its keys: NULL takes one away.
fn merge(value: Option<Json<'_>>, patch: Json<'_>, text: &mut String) {
    if patch.kind() != Kind::Object {
        return patch.write(text);
    }
    let value = value.filter(|value| value.kind() == Kind::Object);
    let mut opening = '{';
    let mut field = |name: &str, text: &mut String| {
        text.push(std::mem::replace(&mut opening, ','));
        write_letters(name, text);
        text.push(':');
    };
    for element in value.into_iter().flat_map(Json::elements) {
        let Some(name) = element.key.and_then(Json::text) else { continue };
        match patch.field(&name) {
            Some(removed) if removed.kind() == Kind::Null => {}
            Some(patch) => {
                field(&name, text);
                merge(Some(element.value), patch, text);
            }
            None => {
                field(&name, text);
                element.value.write(text);
            }
        }
    }
    for element in patch.elements().filter(|element| element.value.kind() != Kind::Null) {
        let Some(name) = element.key.and_then(Json::text) else { continue };
        if value.and_then(|value| value.field(&name)).is_none() {
            field(&name, text);
            merge(None, element.value, text);
        }
    }
    text.push_str(if opening == '{' { "{}" } else { "}" });
}
