//! `to_json({'a': j})` of a struct or list that is written there: a value of it that is JSON lies in it as JSON, which the struct's type
//! does not say. So it is written as the object or the list of its values.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
};

use super::write::{CAST, TRY_CAST};
use crate::syntax::{call, literal, name_of};

const WRITERS: [&str; 5] = ["to_json", "to_jsonb", "array_to_json", "row_to_json", "json_quote"];

/// What such a call is in other words.
pub(in crate::dialect) fn written_out(function: &Function) -> Option<Expr> {
    let name = name_of(function)?;
    if !WRITERS.contains(&name.as_str()) {
        return None;
    }
    match arguments(function)?.as_slice() {
        [only] => of_value(only),
        _ => None,
    }
}

/// The JSON of a struct or list; nothing of another value, which is written by its type.
fn of_value(value: &Expr) -> Option<Expr> {
    let or_itself = |value: &Expr| of_value(value).unwrap_or_else(|| value.clone());
    match value {
        Expr::Nested(inner) => of_value(inner),
        Expr::Dictionary(fields) if !fields.is_empty() => {
            let pairs = fields.iter().flat_map(|field| [key(&field.key), or_itself(&field.value)]);
            Some(call("json_object", pairs.collect()))
        }
        Expr::Function(made) if name_of(made).as_deref() == Some("named_struct") => {
            let fields = arguments(made)?;
            let pairs = fields.iter().enumerate().map(|(place, field)| match place % 2 {
                0 => (*field).clone(),
                _ => or_itself(field),
            });
            Some(call("json_object", pairs.collect()))
        }
        // Other elements have one type together, which they are written in.
        Expr::Array(list) if !list.elem.is_empty() && list.elem.iter().all(is_json) => {
            Some(call("json_array", list.elem.clone()))
        }
        _ => None,
    }
}

fn key(name: &Ident) -> Expr {
    literal(&name.value)
}

/// Whether a value is a cast to JSON, as it is written or as it becomes.
fn is_json(value: &Expr) -> bool {
    match value {
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::JSON | DataType::JSONB),
        Expr::Function(made) => name_of(made).is_some_and(|name| name == CAST || name == TRY_CAST),
        _ => false,
    }
}

fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let value = |arg| match arg {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref value)) => Some(value),
        _ => None,
    };
    list.args.iter().map(value).collect()
}
