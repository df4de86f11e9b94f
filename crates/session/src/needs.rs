//! What a statement asks of its session before it is planned.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement as Sql;

use crate::access::Access;
use crate::planning::{logical_plan, parsed};

/// What a statement asks of its session: an embedder that knows more tables than the session may add those that are missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needs {
    /// Whether it only asks: nothing is changed when it never runs, or runs twice.
    pub is_query: bool,
    /// Tables that it reads and that are not there, as it spells them; those with a schema or a catalog are left out.
    pub missing_tables: Vec<String>,
}

/// What a statement gives and asks for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Described {
    /// Whether it only asks, as [`Needs::is_query`].
    pub is_query: bool,
    /// The columns of its rows. Of statements that give rows of their own kind, as EXECUTE does, there are none.
    pub schema: SchemaRef,
    /// The values that it asks for: `$1`, `$2`, … in order, or by their names.
    pub parameters: Vec<Parameter>,
}

/// A value that a statement asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// `$1` or `$name`.
    pub name: String,
    /// What it is compared with or inserted into, where that says so.
    pub data_type: Option<DataType>,
}

impl Parameter {
    /// Which place it has, where that is its name; the first is 1.
    pub fn place(&self) -> Option<usize> {
        self.name.strip_prefix('$')?.parse().ok()
    }
}

impl Described {
    pub(crate) async fn of(state: &SessionState, sql: &str) -> Result<Described> {
        let statement = parsed(state, sql)?;
        let is_query = is_query(&statement);
        Access::of(state).check_statement(&statement)?;
        let is_macro = matches!(&statement, Statement::Statement(statement)
            if matches!(statement.as_ref(), Sql::CreateMacro { .. } | Sql::DropFunction(_)));
        if is_macro {
            return Ok(Described { is_query, schema: Arc::new(Schema::empty()), parameters: Vec::new() });
        }
        let plan = logical_plan(state, statement, sql).await?;
        let parameters = plan.get_parameter_types()?.into_iter();
        let mut parameters: Vec<Parameter> =
            parameters.map(|(name, data_type)| Parameter { name, data_type }).collect();
        parameters.sort_by(|a, b| a.place().cmp(&b.place()).then_with(|| a.name.cmp(&b.name)));
        let schema = match plan {
            LogicalPlan::Ddl(_) | LogicalPlan::Statement(_) => Arc::new(Schema::empty()),
            plan => Arc::clone(plan.schema().inner()),
        };
        Ok(Described { is_query, schema, parameters })
    }
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
            Sql::Update(update) => is_it(&update.table.relation),
            Sql::Merge(merge) => is_it(&merge.table),
            Sql::Delete(_) | Sql::Drop { .. } | Sql::Truncate(_) => true,
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
