//! SHOW TABLES lists what somebody has made: the views of `information_schema` are there in every session.

use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;

/// The same list as DataFusion's, without its own views.
const TABLES: &str = "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                      WHERE table_schema <> 'information_schema'";

/// Makes of SHOW TABLES a query for the tables of users.
pub(crate) fn without_views_of_schemas(statement: &mut Statement, state: &SessionState) -> Result<()> {
    let Statement::Statement(shown) = &*statement else { return Ok(()) };
    // Further clauses are DataFusion's to refuse, and sessions without such views.
    if state.config_options().catalog.information_schema
        && matches!(**shown, SqlStatement::ShowTables { .. })
        && shown.to_string() == "SHOW TABLES"
    {
        *statement = state.sql_to_statement(TABLES, &state.config_options().sql_parser.dialect)?;
    }
    Ok(())
}
