//! `s.*` of a column that is a struct: a column for each of its fields.

use std::ops::ControlFlow;

use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    TableFactor, TableWithJoins,
};

use crate::corrections::{Which, seek_query, write_out_columns};
use crate::syntax::{
    Flow, Walk, call, first_select, literal, normal, quoted, select_from, statement_of, visit,
};

/// Writes such wildcards of a statement out, the innermost ones first.
pub(crate) async fn expand(state: &SessionState, sql: &str, statement: &mut Statement) -> Result<()> {
    if !sql.contains(".*") {
        return Ok(());
    }
    let mut skipped = 0;
    loop {
        let mut passed = skipped;
        // The first such SELECT, and all that its FROM has.
        let all = seek_query(statement, &mut |query| {
            Some(select_from(first_select(&mut query.body, &mut passed, &may_have_any)?.from.clone()))
        });
        let Some(all) = all else { return Ok(()) };
        let columns = columns_of(state, all).await;
        let mut expand = Expand { columns, skipped, has_changed: false };
        let _ = visit(statement, &mut expand);
        // What is no struct, DataFusion says.
        skipped += usize::from(!expand.has_changed);
    }
}

/// A column of FROM that is a struct.
struct StructColumn {
    table: Option<String>,
    name: String,
    fields: Vec<String>,
}

async fn columns_of(state: &SessionState, all: Query) -> Vec<StructColumn> {
    let mut all = statement_of(all);
    // A FROM that cannot be planned by itself, such as a lateral subquery, has none that are known.
    if write_out_columns(state, &mut all, Which::Merged).await.is_err() {
        return vec![];
    }
    let Ok(plan) = state.statement_to_plan(all).await else { return vec![] };
    let columns = plan.schema().iter().filter_map(|(table, field)| {
        let DataType::Struct(fields) = field.data_type() else { return None };
        let fields = fields.iter().map(|field| field.name().clone()).collect();
        let table = table.map(|table| table.table().to_string());
        Some(StructColumn { table, name: field.name().clone(), fields })
    });
    columns.collect()
}

/// The parts of a name before `.*` that no table of FROM has.
fn path_of<'a>(item: &'a SelectItem, from: &[TableWithJoins]) -> Option<Vec<&'a Ident>> {
    let SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) = item else {
        return None;
    };
    let path: Vec<&Ident> = name.0.iter().map(ObjectNamePart::as_ident).collect::<Option<_>>()?;
    let parts: Vec<String> = path.iter().map(|part| normal(part)).collect();
    let mut is_table = false;
    for table in from {
        each_factor(table, &mut |factor| is_table |= is_named(factor, &parts));
    }
    (!is_table).then_some(path)
}

fn each_factor(table: &TableWithJoins, see: &mut impl FnMut(&TableFactor)) {
    for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
        match factor {
            TableFactor::NestedJoin { table_with_joins, alias: None } => each_factor(table_with_joins, see),
            factor => see(factor),
        }
    }
}

/// Whether a table goes by a name.
fn is_named(factor: &TableFactor, parts: &[String]) -> bool {
    let named: Vec<String> = match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::TableFunction { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. }
        | TableFactor::Pivot { alias: Some(alias), .. }
        | TableFactor::Unpivot { alias: Some(alias), .. }
        | TableFactor::NestedJoin { alias: Some(alias), .. } => vec![normal(&alias.name)],
        TableFactor::Table { name: ObjectName(name), .. } => {
            name.iter().filter_map(ObjectNamePart::as_ident).map(normal).collect()
        }
        // A query without a name is none that could be meant.
        TableFactor::Derived { alias: None, .. } => return false,
        // Which names others have is not known here.
        _ => return true,
    };
    named.ends_with(parts)
}

/// Whether a SELECT may have such wildcards.
fn may_have_any(select: &Select) -> bool {
    select.projection.iter().any(|item| path_of(item, &select.from).is_some())
}

/// Writes the first such SELECT out.
struct Expand {
    columns: Vec<StructColumn>,
    skipped: usize,
    has_changed: bool,
}

impl Walk for Expand {
    fn post_visit_query(&mut self, query: &mut Query) -> Flow {
        let Some(select) = first_select(&mut query.body, &mut self.skipped, &may_have_any) else {
            return ControlFlow::Continue(());
        };
        let mut items = Vec::new();
        let mut has_changed = false;
        for item in std::mem::take(&mut select.projection) {
            let found = path_of(&item, &select.from).and_then(|path| self.find(&path).zip(Some(path)));
            match found {
                Some((column, path)) => {
                    has_changed = true;
                    let value = match path.as_slice() {
                        [name] => Expr::Identifier((*name).clone()),
                        path => Expr::CompoundIdentifier(path.iter().map(|part| (*part).clone()).collect()),
                    };
                    items.extend(column.fields.iter().map(|field| SelectItem::ExprWithAlias {
                        expr: call("get_field", vec![value.clone(), literal(field)]),
                        alias: quoted(field),
                    }));
                }
                None => items.push(item),
            }
        }
        select.projection = items;
        self.has_changed = has_changed;
        ControlFlow::Break(None)
    }
}

impl Expand {
    fn find(&self, path: &[&Ident]) -> Option<&StructColumn> {
        let (name, tables) = path.split_last()?;
        let (name, table) = (normal(name), tables.last().map(|table| normal(table)));
        self.columns.iter().find(|column| {
            let is_of_table = match &table {
                Some(table) => column.table.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(table)),
                None => true,
            };
            is_of_table && column.name.eq_ignore_ascii_case(&name)
        })
    }
}
