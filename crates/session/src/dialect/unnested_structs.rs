//! `SELECT unnest(s)` of a struct: a column for each of its fields, under the field's name; with `recursive := true`, down to what is neither a
//! list nor a struct.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, Select, SelectItem, SetExpr, Value,
};

use super::words::has;
use crate::corrections::{Which, seek_query, write_out_columns};
use crate::syntax::{
    Flow, Walk, call, first_select, literal, name_of, normal, plain_query, quoted, select_all, statement_of,
    visit,
};

/// Writes such calls of a statement out, the innermost ones first.
pub(crate) async fn expand(state: &SessionState, sql: &str, statement: &mut Statement) {
    if !has(sql, "unnest") {
        return;
    }
    let mut skipped = 0;
    loop {
        let mut passed = skipped;
        let values = seek_query(statement, &mut |query| {
            let select = first_select(&mut query.body, &mut passed, &has_calls)?;
            let mut values = select_all(select.from.clone());
            let value = |call: Call<'_>| SelectItem::UnnamedExpr(call.value.clone());
            let named = select.projection.iter().filter_map(call_of).map(value).zip(0..);
            let named = named.map(|(item, place)| match item {
                SelectItem::UnnamedExpr(expr) => {
                    SelectItem::ExprWithAlias { expr, alias: quoted(format!("kelpie: {place}")) }
                }
                item => item,
            });
            values.projection = named.collect();
            Some(plain_query(SetExpr::Select(Box::new(values))))
        });
        let Some(values) = values else { return };
        let mut expand = Expand { types: types_of(state, values).await, skipped, has_changed: false };
        let _ = visit(statement, &mut expand);
        // What has no structs, and what cannot be planned by itself, stays as it is.
        skipped += usize::from(!expand.has_changed);
    }
}

async fn types_of(state: &SessionState, values: Query) -> Vec<DataType> {
    let mut values = statement_of(values);
    if write_out_columns(state, &mut values, Which::Merged).await.is_err() {
        return vec![];
    }
    let Ok(plan) = state.statement_to_plan(values).await else { return vec![] };
    plan.schema().fields().iter().map(|field| field.data_type().clone()).collect()
}

/// A call of `unnest` that is an item of a list of SELECT.
struct Call<'a> {
    value: &'a Expr,
    is_recursive: bool,
}

fn call_of(item: &SelectItem) -> Option<Call<'_>> {
    let (SelectItem::UnnamedExpr(Expr::Function(function))
    | SelectItem::ExprWithAlias { expr: Expr::Function(function), .. }) = item
    else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    if name_of(function).as_deref() != Some("unnest") {
        return None;
    }
    let (value, options) = list.args.split_first()?;
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) = value else { return None };
    let mut is_recursive = false;
    for option in options {
        let FunctionArg::Named { name, arg: FunctionArgExpr::Expr(Expr::Value(set)), .. } = option else {
            return None;
        };
        let Value::Boolean(set) = set.value else { return None };
        if normal(name) != "recursive" {
            return None;
        }
        is_recursive = set;
    }
    Some(Call { value, is_recursive })
}

/// Whether a SELECT has such calls.
fn has_calls(select: &Select) -> bool {
    select.projection.iter().any(|item| call_of(item).is_some())
}

/// Writes the first such SELECT out.
struct Expand {
    types: Vec<DataType>,
    skipped: usize,
    has_changed: bool,
}

impl Walk for Expand {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Some(select) = first_select(&mut query.body, &mut self.skipped, &has_calls) else {
            return ControlFlow::Continue(());
        };
        let mut types = self.types.iter();
        let mut items = Vec::with_capacity(select.projection.len());
        for item in std::mem::take(&mut select.projection) {
            let columns = match call_of(&item) {
                Some(call) => types.next().and_then(|data_type| columns_of(&call, &item, data_type)),
                None => None,
            };
            match columns {
                Some(columns) => {
                    self.has_changed = true;
                    items.extend(columns);
                }
                None => items.push(item),
            }
        }
        select.projection = items;
        ControlFlow::Break(None)
    }
}

/// What stands in the place of a call; nothing where it may stay.
fn columns_of(call: &Call<'_>, item: &SelectItem, data_type: &DataType) -> Option<Vec<SelectItem>> {
    let name = match item {
        SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
        item => item.to_string(),
    };
    let mut columns = Vec::new();
    match (data_type, call.is_recursive) {
        (DataType::Struct(fields), false) => {
            columns.extend(fields.iter().map(|field| column_of(call.value, field)));
        }
        (_, false) => return None,
        (data_type, true) => each_part(call.value.clone(), name, data_type, &mut columns),
    }
    Some(columns)
}

fn field_of(value: &Expr, field: &Field) -> Expr {
    call("get_field", vec![value.clone(), literal(field.name())])
}

fn column_of(value: &Expr, field: &Field) -> SelectItem {
    SelectItem::ExprWithAlias { expr: field_of(value, field), alias: quoted(field.name()) }
}

/// Adds a column for each part of a value that is neither a list nor a struct.
fn each_part(value: Expr, name: String, data_type: &DataType, columns: &mut Vec<SelectItem>) {
    match data_type {
        DataType::Struct(fields) => fields.iter().for_each(|field| {
            each_part(field_of(&value, field), field.name().clone(), field.data_type(), columns);
        }),
        DataType::List(element) | DataType::LargeList(element) | DataType::FixedSizeList(element, _) => {
            each_part(call("unnest", vec![value]), name, element.data_type(), columns);
        }
        _ => columns.push(SelectItem::ExprWithAlias { expr: value, alias: quoted(name) }),
    }
}
