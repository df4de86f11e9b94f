//! What a statement asks of its session before it is planned.

use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement as Sql;

/// What a statement asks of its session: an embedder that knows more tables than the session may add those that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Whether it only asks: nothing is changed when it never runs, or runs twice.
    pub is_query: bool,
    /// Tables that it reads and that are not there, as it spells them; those with a schema or a catalog are left out.
    pub missing_tables: Vec<String>,
}

impl Needs {
    pub(crate) async fn of(state: &SessionState, statement: &Statement) -> Result<Needs> {
        let mut missing_tables = Vec::new();
        for reference in resolve_table_references(statement, false)?.0 {
            let TableReference::Bare { table } = &reference else { continue };
            if is_written(statement, table) {
                continue;
            }
            let schema = state.schema_for_ref(reference.clone()).ok();
            let is_there = match schema {
                Some(schema) => schema.table(table).await?.is_some(),
                None => false,
            };
            if !is_there {
                missing_tables.push(table.to_string());
            }
        }
        Ok(Needs { is_query: is_query(statement), missing_tables })
    }
}

/// Whether a statement makes, writes or drops what it names so.
fn is_written(statement: &Statement, table: &str) -> bool {
    let is_it = |name: &dyn std::fmt::Display| name.to_string().trim_matches('"') == table;
    match statement {
        Statement::CreateExternalTable(made) => is_it(&made.name),
        Statement::Statement(statement) => match statement.as_ref() {
            Sql::CreateTable(made) => is_it(&made.name),
            Sql::CreateView(made) => is_it(&made.name),
            Sql::Insert(insert) => is_it(&insert.table),
            Sql::Update(_) | Sql::Delete(_) | Sql::Drop { .. } | Sql::Truncate(_) => true,
            _ => false,
        },
        _ => false,
    }
}

fn is_query(statement: &Statement) -> bool {
    match statement {
        Statement::Statement(statement) => matches!(
            statement.as_ref(),
            Sql::Query(_)
                | Sql::ExplainTable { .. }
                | Sql::ShowVariable { .. }
                | Sql::ShowTables { .. }
                | Sql::ShowColumns { .. }
                | Sql::ShowFunctions { .. }
                | Sql::ShowCreate { .. }
        ),
        // EXPLAIN ANALYZE runs what it explains.
        Statement::Explain(explain) => !explain.options.analyze || is_query(&explain.statement),
        _ => false,
    }
}
