//! `ROW(1, 'x')::STRUCT(a INT, b TEXT)`: values without names become fields by their places. DataFusion casts structs by the names of
//! their fields.

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, StructField,
};

use super::types;
use crate::syntax::{call, literal, name_of, normal};

/// Writes such a cast out.
pub(super) fn rewrite(expr: &mut Expr) {
    let Expr::Cast { kind, expr: row, data_type: DataType::Struct(fields, _), .. } = &*expr else { return };
    if let Some(written) = by_place(row, fields, kind) {
        *expr = written;
    }
}

fn by_place(row: &Expr, fields: &[StructField], kind: &CastKind) -> Option<Expr> {
    let values = match row {
        Expr::Nested(inner) => return by_place(inner, fields, kind),
        Expr::Tuple(values) => values.iter().collect(),
        Expr::Function(function) => values_of(function)?,
        _ => return None,
    };
    let mut named = Vec::with_capacity(2 * fields.len());
    if values.len() != fields.len() {
        return None;
    }
    for (value, field) in values.into_iter().zip(fields) {
        let of_fields = match &field.field_type {
            DataType::Struct(fields, _) => by_place(value, fields, kind),
            _ => None,
        };
        let mut data_type = field.field_type.clone();
        types::convert(&mut data_type);
        let cast = || Expr::Cast {
            kind: kind.clone(),
            expr: Box::new(value.clone()),
            data_type,
            array: false,
            format: None,
        };
        named.extend([literal(normal(field.field_name.as_ref()?)), of_fields.unwrap_or_else(cast)]);
    }
    Some(call("named_struct", named))
}

/// The values that a call of `row` makes a struct of.
fn values_of(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    if !matches!(name_of(function)?.as_str(), "row" | "struct") {
        return None;
    }
    let value = |arg: &'_ FunctionArg| matches!(arg, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    if !list.args.iter().all(value) {
        return None;
    }
    let values = list.args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    });
    Some(values.collect())
}
