//! Parameters of statements: `?`, `$1` or `$name`.

use std::collections::HashMap;

use arrow::datatypes::DataType;
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::errors::{Kind, of_query, raised};

/// The text of a statement with `$1`, `$2`, … for each `?`. What is no statement stays as it is: planning says better why.
pub fn numbered(sql: &str) -> String {
    let unknown = |token: &Token| matches!(token, Token::Placeholder(name) if name == "?");
    let Ok(mut tokens) = Tokenizer::new(&GenericDialect, sql).with_unescape(false).tokenize() else {
        return sql.to_string();
    };
    if !tokens.iter().any(unknown) {
        return sql.to_string();
    }
    let marks = tokens.iter_mut().filter(|token| unknown(token));
    marks.enumerate().for_each(|(place, token)| *token = Token::Placeholder(format!("${}", place + 1)));
    tokens.iter().map(Token::to_string).collect()
}

/// Values as `kelpie._values.parameters` gives them: a list or a dictionary of pairs, each of a kind and what it holds.
pub fn of(values: &Bound<'_, PyAny>) -> PyResult<ParamValues> {
    if let Ok(named) = values.cast::<PyDict>() {
        let mut all = HashMap::new();
        for (name, value) in named {
            all.insert(name.extract()?, ScalarAndMetadata::from(scalar(&value)?));
        }
        return Ok(ParamValues::Map(all));
    }
    let values = values.try_iter()?.map(|value| Ok(ScalarAndMetadata::from(scalar(&value?)?)));
    Ok(ParamValues::List(values.collect::<PyResult<_>>()?))
}

fn scalar(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let py = value.py();
    let pair = value.cast::<PyTuple>()?;
    let (kind, value) = (pair.get_item(0)?.extract::<String>()?, pair.get_item(1)?);
    Ok(match kind.as_str() {
        "null" => ScalarValue::Null,
        "bool" => ScalarValue::Boolean(Some(value.extract()?)),
        "int" => ScalarValue::Int64(Some(value.extract()?)),
        "unsigned" => ScalarValue::UInt64(Some(value.extract()?)),
        "float" => ScalarValue::Float64(Some(value.extract()?)),
        "text" => ScalarValue::Utf8(Some(value.extract()?)),
        "bytes" => ScalarValue::Binary(Some(value.cast::<PyBytes>()?.as_bytes().to_vec())),
        "decimal" => {
            let (digits, precision, scale) = value.extract()?;
            ScalarValue::Decimal128(Some(digits), precision, scale)
        }
        "date" => ScalarValue::Date32(Some(value.extract()?)),
        "time" => ScalarValue::Time64Microsecond(Some(value.extract()?)),
        "timestamp" => ScalarValue::TimestampMicrosecond(Some(value.extract()?), None),
        "moment" => ScalarValue::TimestampMicrosecond(Some(value.extract()?), Some("+00:00".into())),
        "interval" => {
            let (days, nanoseconds) = value.extract()?;
            ScalarValue::new_interval_mdn(0, days, nanoseconds)
        }
        "list" => list(&value)?,
        _ => return Err(raised(py, Kind::Internal, &format!("there is no parameter of kind {kind}"))),
    })
}

fn list(values: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let py = values.py();
    let mut elements = values.try_iter()?.map(|value| scalar(&value?)).collect::<PyResult<Vec<_>>>()?;
    let mut types = elements.iter().map(ScalarValue::data_type);
    let data_type = types.find(|kind| !kind.is_null()).unwrap_or(DataType::Null);
    for element in &mut elements {
        *element = element.cast_to(&data_type).map_err(|error| of_query(py, &error))?;
    }
    let list = ScalarValue::new_list_nullable(&elements, &data_type);
    Ok(ScalarValue::List(list))
}
