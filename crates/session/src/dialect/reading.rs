//! Calls of functions that read files, as names of tables.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::ExprSchemable;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType as SqlType, Expr, FunctionArg, FunctionArgExpr, ObjectName, ObjectNamePart,
    TableFactor, UnaryOperator, Value,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use serde_json::Value as Json;

use super::types;
use crate::files::FileCall;
use crate::syntax::{as_alias, normal, quoted};

/// Options whose values are types.
const OF_TYPES: [&str; 4] = ["columns", "types", "dtypes", "column_types"];

/// Names the table of a call; one of a function that the session has stays.
pub(super) fn name(factor: &mut TableFactor, state: &SessionState) -> Result<()> {
    let TableFactor::Table { name, alias, args, .. } = factor else { return Ok(()) };
    let (Some(arguments), [ObjectNamePart::Identifier(called)]) = (args.as_ref(), name.0.as_slice()) else {
        return Ok(());
    };
    let called = normal(called);
    let Some(function) = FileCall::function(&called) else { return Ok(()) };
    if state.table_functions().contains_key(&called) {
        return Ok(());
    }
    let mut call = FileCall { function, paths: vec![], options: vec![] };
    for (place, argument) in arguments.args.iter().enumerate() {
        match option(argument) {
            Some((name, value)) => {
                let value = match OF_TYPES.contains(&name.as_str()) {
                    true => types_of(&called, &name, value, state)?,
                    false => json(&called, &name, value)?,
                };
                if call.options.iter().any(|(known, _)| *known == name) {
                    return plan_err!("{called} gets {name} twice");
                }
                call.options.push((name, value));
            }
            None if place == 0 => call.paths = paths(&called, argument)?,
            None => {
                return plan_err!("{called}: {argument} has no name: options are written as name = value");
            }
        }
    }
    if alias.is_none() {
        *alias = Some(as_alias(quoted(called)));
    }
    *name = ObjectName(vec![ObjectNamePart::Identifier(quoted(call.name()))]);
    *args = None;
    Ok(())
}

/// The name and value of an option: `a = 1`, `a := 1` or `a => 1`.
fn option(argument: &FunctionArg) -> Option<(String, &Expr)> {
    match argument {
        FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
            Some((name.value.to_lowercase(), value))
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        })) => match left.as_ref() {
            Expr::Identifier(name) => Some((name.value.to_lowercase(), right)),
            _ => None,
        },
        _ => None,
    }
}

fn text(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::DoubleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

fn paths(called: &str, argument: &FunctionArg) -> Result<Vec<String>> {
    let paths = match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(all))) => all.elem.iter().map(text).collect(),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(one)) => text(one).map(|one| vec![one]),
        _ => None,
    };
    match paths {
        Some(paths) => Ok(paths),
        None => plan_err!(
            "{called}: {argument} is no file: its name, or a list of names, must be written as texts"
        ),
    }
}

fn json(called: &str, name: &str, value: &Expr) -> Result<Json> {
    let number = |text: &str| text.parse::<i64>().ok();
    let json = match value {
        Expr::Identifier(word) => Some(Json::from(word.value.clone())),
        Expr::Array(all) => {
            return all
                .elem
                .iter()
                .map(|one| json(called, name, one))
                .collect::<Result<Vec<_>>>()
                .map(Json::from);
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => number(digits).map(|number| Json::from(-number)),
                _ => None,
            },
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Boolean(value) => Some(Json::from(*value)),
            Value::Number(digits, _) => number(digits).map(Json::from),
            Value::Null => Some(Json::Null),
            _ => text(&Expr::Value(value.clone())).map(Json::from),
        },
        _ => None,
    };
    match json {
        Some(json) => Ok(json),
        None => plan_err!(
            "{called}: {name} is {value}, and must be written as a text, a number or a list of these"
        ),
    }
}

/// Names with types, or types alone, as lists of pairs and texts: an object of JSON has no order.
fn types_of(called: &str, name: &str, value: &Expr, state: &SessionState) -> Result<Json> {
    let of = |expr: &Expr| match text(expr).or_else(|| word(expr)) {
        Some(data_type) => arrow_type(called, &data_type, state),
        None => {
            plan_err!("{called}: {name}: {expr} is no type: types are written as texts, such as 'INTEGER'")
        }
    };
    match value {
        Expr::Dictionary(fields) => {
            let pair = |field: &datafusion::sql::sqlparser::ast::DictionaryField| {
                Ok(Json::from(vec![Json::from(field.key.value.clone()), of(&field.value)?]))
            };
            fields.iter().map(pair).collect::<Result<Vec<_>>>().map(Json::from)
        }
        Expr::Array(all) => all.elem.iter().map(of).collect::<Result<Vec<_>>>().map(Json::from),
        other => {
            plan_err!("{called}: {name} is {other}, and may be names with types, such as {{'a': 'INTEGER'}}")
        }
    }
}

fn word(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(name.value.clone()),
        _ => None,
    }
}

/// A type as the text that stands for it in Arrow.
fn arrow_type(called: &str, text: &str, state: &SessionState) -> Result<Json> {
    let mut parser = Parser::new(&GenericDialect).try_with_sql(text)?;
    let mut data_type = parser.parse_data_type()?;
    types::convert(&mut data_type);
    let schema = DFSchema::empty();
    let is_fine = matches!(data_type, SqlType::Timestamp(Some(9), _));
    let expr = state.create_logical_expr(&format!("CAST(NULL AS {data_type})"), &schema)?;
    let data_type = match expr.get_type(&schema)? {
        DataType::Utf8View => DataType::Utf8,
        // Times of any year, as those of casts are.
        DataType::Timestamp(TimeUnit::Nanosecond, zone) if !is_fine => {
            DataType::Timestamp(TimeUnit::Microsecond, zone)
        }
        other => other,
    };
    if data_type.is_nested() {
        return plan_err!("{called}: a column of a text file cannot be a {text}");
    }
    Ok(Json::from(data_type.to_string()))
}
