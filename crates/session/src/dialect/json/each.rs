//! `json_each(j, path)`: a row for each value within another one. It is written as UNNEST of lists, one for each column, of which each is a
//! function of its own.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::sql::sqlparser::ast::{
    FunctionArg, FunctionArgExpr, Ident, ObjectNamePart, TableAliasColumnDef, TableFactor,
};

use super::document::{Element, Json, Kind};
use super::path::Path;
use super::read::name_of_kind;
use crate::dialect::by_row::{Body, Definition, Kind as Parameter, Row, texts_type};
use crate::syntax::{as_alias, call, normal, quoted};

const NAME: &str = "json_each";

/// Levels of a value: they are gone into one by one to number what is within.
const MOST_LEVELS: usize = 200;

/// A column, the function of its list, and what the list has of each value.
struct Column {
    name: &'static str,
    function: &'static str,
    result: fn() -> DataType,
    body: Body,
}

fn numbers_type() -> DataType {
    DataType::List(std::sync::Arc::new(Field::new_list_field(DataType::UInt64, true)))
}

const COLUMNS: [Column; 8] = [
    Column {
        name: "key",
        function: "json_each_key",
        result: texts_type,
        body: |row| listed(row, |value| value.key),
    },
    Column {
        name: "value",
        function: "json_each_value",
        result: texts_type,
        body: |row| listed(row, |value| Some(value.json.compact().into_owned())),
    },
    Column {
        name: "type",
        function: "json_each_type",
        result: texts_type,
        body: |row| listed(row, |value| Some(name_of_kind(value.json).to_string())),
    },
    Column {
        name: "atom",
        function: "json_each_atom",
        result: texts_type,
        body: |row| {
            let is_atom =
                |value: &Value<'_>| !matches!(value.json.kind(), Kind::Object | Kind::Array | Kind::Null);
            listed(row, |value| is_atom(&value).then(|| value.json.compact().into_owned()))
        },
    },
    Column {
        name: "id",
        function: "json_each_id",
        result: numbers_type,
        body: |row| {
            let ids: Vec<ScalarValue> =
                values(row)?.into_iter().map(|value| ScalarValue::UInt64(Some(value.id))).collect();
            Ok(ScalarValue::List(ScalarValue::new_list_nullable(&ids, &DataType::UInt64)))
        },
    },
    Column {
        name: "parent",
        function: "json_each_parent",
        result: numbers_type,
        body: |row| {
            let none = vec![ScalarValue::UInt64(None); values(row)?.len()];
            Ok(ScalarValue::List(ScalarValue::new_list_nullable(&none, &DataType::UInt64)))
        },
    },
    Column {
        name: "fullkey",
        function: "json_each_fullkey",
        result: texts_type,
        body: |row| listed(row, |value| Some(value.full_key)),
    },
    Column {
        name: "path",
        function: "json_each_path",
        result: texts_type,
        body: |row| {
            let path = shown(row.text(1));
            listed(row, |_| Some(path.clone()))
        },
    },
];

/// The functions of all columns.
pub(super) fn definitions() -> impl Iterator<Item = Definition> {
    COLUMNS.into_iter().map(|column| Definition {
        name: column.function,
        aliases: &[],
        parameters: &[Parameter::Text, Parameter::Text],
        least: 1,
        result: (column.result)(),
        body: column.body,
    })
}

/// A value within another one.
struct Value<'a> {
    key: Option<String>,
    json: Json<'a>,
    /// Its number among all keys and values of the text.
    id: u64,
    full_key: String,
}

fn listed(row: &Row<'_>, of: impl Fn(Value<'_>) -> Option<String>) -> Result<ScalarValue> {
    let texts: Vec<ScalarValue> =
        values(row)?.into_iter().map(|value| ScalarValue::Utf8(of(value))).collect();
    Ok(ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8)))
}

/// A path as one from the whole value on.
fn shown(path: &str) -> String {
    match path {
        "" => "$".to_string(),
        path if path.starts_with(['$', '/']) => path.to_string(),
        key => format!("$.\"{key}\""),
    }
}

fn values<'a>(row: &Row<'a>) -> Result<Vec<Value<'a>>> {
    let root = Json::of(row.text(0), NAME)?;
    if root.levels() > MOST_LEVELS {
        return exec_err!("{NAME}: a value has more than {MOST_LEVELS} levels");
    }
    let path = row.text(1);
    let found = match path {
        "" => Some(root),
        path => Path::parsed(path)?.find(root),
    };
    let Some(json) = found else { return Ok(vec![]) };
    let path = shown(path);
    let mut id = number_of(root, json).unwrap_or(0);
    let is_object = json.kind() == Kind::Object;
    if !is_object && json.kind() != Kind::Array {
        return Ok(vec![Value { key: None, json, id, full_key: path }]);
    }
    id += 1;
    let mut values = Vec::new();
    for (place, Element { key, value }) in json.elements().enumerate() {
        id += u64::from(is_object);
        let (key, full_key) = match key.and_then(Json::text) {
            Some(key) => {
                let is_plain =
                    !key.is_empty() && key.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
                let written =
                    if is_plain { key.to_string() } else { format!("\"{}\"", key.replace('"', "\\\"")) };
                (key.into_owned(), format!("{path}.{written}"))
            }
            None => (place.to_string(), format!("{path}[{place}]")),
        };
        values.push(Value { key: Some(key), json: value, id, full_key });
        id += size(value);
    }
    Ok(values)
}

/// How many keys and values a value is made of, itself among them.
fn size(json: Json<'_>) -> u64 {
    let of_key = u64::from(json.kind() == Kind::Object);
    1 + json.elements().map(|element| of_key + size(element.value)).sum::<u64>()
}

/// The number of a value that lies within another one, which is number 0.
fn number_of(root: Json<'_>, wanted: Json<'_>) -> Option<u64> {
    if std::ptr::eq(root.written(), wanted.written()) {
        return Some(0);
    }
    let of_key = u64::from(root.kind() == Kind::Object);
    let mut number = 1;
    for element in root.elements() {
        number += of_key;
        if let Some(within) = number_of(element.value, wanted) {
            return Some(number + within);
        }
        number += size(element.value);
    }
    None
}

/// Writes such a table as UNNEST, where no table of this name is known.
pub(in crate::dialect) fn write_out(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(args), .. } = &mut *factor else { return };
    let [ObjectNamePart::Identifier(called)] = name.0.as_slice() else { return };
    let value = |arg: &FunctionArg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    let values: Option<Vec<_>> = args.args.iter().map(value).collect();
    let Some(values) = values.filter(|values| normal(called) == NAME && (1..=2).contains(&values.len()))
    else {
        return;
    };
    let named = as_alias(quoted(NAME));
    let mut alias = alias.take().unwrap_or(named);
    for column in COLUMNS.iter().skip(alias.columns.len()) {
        let name = Ident::new(column.name);
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    *factor = TableFactor::UNNEST {
        alias: Some(alias),
        array_exprs: COLUMNS.iter().map(|column| call(column.function, values.clone())).collect(),
        with_offset: false,
        with_offset_alias: None,
        with_ordinality: false,
    };
}
