//! Queries that are given as texts: `FROM query('SELECT 1')`, and tables whose names are: `FROM query_table(['a', 'b'])`.

use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectNamePart, Statement as Sql, TableFactor,
};
use datafusion::sql::sqlparser::dialect::GenericDialect;

use super::functions::text;
use crate::syntax::normal;

/// Writes such a call as the query that it stands for; one of a function that the session has stays.
pub(super) fn write_out(factor: &mut TableFactor, state: &SessionState) -> Result<()> {
    let TableFactor::Table { name, alias, args: Some(args), .. } = factor else { return Ok(()) };
    let [ObjectNamePart::Identifier(called)] = name.0.as_slice() else { return Ok(()) };
    let called = normal(called);
    let is_ours =
        (called == "query" || called == "query_table") && !state.table_functions().contains_key(&called);
    if !is_ours {
        return Ok(());
    }
    let query = match (called.as_str(), args.args.as_slice()) {
        ("query", [argument]) => match written_out(argument).as_deref() {
            Some([query]) => query.to_string(),
            _ => return plan_err!("query takes the text of a query, written out"),
        },
        ("query_table", [tables] | [tables, _]) => {
            let Some(tables) = written_out(tables).filter(|tables| !tables.is_empty()) else {
                return plan_err!("query_table takes the name of a table, or a list of names, written out");
            };
            let by_name =
                args.args.get(1).is_some_and(|by_name| by_name.to_string().eq_ignore_ascii_case("true"));
            let union = if by_name { " UNION ALL BY NAME " } else { " UNION ALL " };
            let tables = tables
                .iter()
                .map(|table| format!("SELECT * FROM {}", Ident::with_quote('"', table.as_str())));
            tables.collect::<Vec<_>>().join(union)
        }
        _ => return plan_err!("{called} has too few or too many arguments"),
    };
    let written = super::written(&query, &GenericDialect)?;
    let statement = state.sql_to_statement(&written.sql, &state.config_options().sql_parser.dialect)?;
    let Statement::Statement(statement) = statement else {
        return plan_err!("{called}: this is no query: {query}");
    };
    let Sql::Query(subquery) = *statement else { return plan_err!("{called}: this is no query: {query}") };
    let alias = alias.take();
    *factor = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    Ok(())
}

/// A text that is written out, or a list of such.
fn written_out(argument: &FunctionArg) -> Option<Vec<String>> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Array(all))) => {
            all.elem.iter().map(|one| text(one).map(ToString::to_string)).collect()
        }
        FunctionArg::Unnamed(FunctionArgExpr::Expr(one)) => text(one).map(|one| vec![one.to_string()]),
        _ => None,
    }
}
