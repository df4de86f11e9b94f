//! BEGIN, COMMIT and ROLLBACK. Each statement is done as a whole or not at all; a transaction remembers the tables and views that there were
//! when it began, with the rows of those in memory, and ROLLBACK brings them back. Rows are shared until they change, so that it costs
//! little. Macros, variables and settings stay as they are, and so does what was written to files. A database keeps what each statement does
//! at once: there BEGIN is an error.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{MemTable, SchemaProvider, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::TableType;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Sql;
use parking_lot::Mutex;

/// The schema of DataFusion's own views.
const OF_VIEWS: &str = "information_schema";

/// The transaction of a session, if one has begun.
#[derive(Debug, Default)]
pub(crate) struct Transactions(Mutex<Option<Before>>);

/// What a statement does with the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Begin,
    Commit,
    Rollback,
}

/// What there was when a transaction began.
#[derive(Debug)]
struct Before(Vec<OfSchema>);

#[derive(Debug)]
struct OfSchema {
    schema: Arc<dyn SchemaProvider>,
    tables: Vec<Saved>,
}

#[derive(Debug)]
struct Saved {
    name: String,
    table: Arc<dyn TableProvider>,
    /// The rows of one in memory.
    rows: Option<Vec<Vec<RecordBatch>>>,
}

impl Step {
    fn of(statement: &Statement) -> Result<Option<Step>> {
        let Statement::Statement(statement) = statement else { return Ok(None) };
        match statement.as_ref() {
            Sql::StartTransaction { statements, .. } if statements.is_empty() => Ok(Some(Step::Begin)),
            Sql::Commit { chain: false, .. } => Ok(Some(Step::Commit)),
            Sql::Rollback { chain: false, savepoint: None } => Ok(Some(Step::Rollback)),
            Sql::Rollback { savepoint: Some(_), .. } | Sql::Savepoint { .. } => {
                plan_err!("savepoints are not supported: ROLLBACK brings back what there was at BEGIN")
            }
            Sql::Commit { .. } | Sql::Rollback { .. } => plan_err!("AND CHAIN is not supported"),
            _ => Ok(None),
        }
    }
}

impl Transactions {
    /// Follows a statement, where it begins or ends a transaction; whether it was one of these.
    pub async fn follow(
        &self,
        statement: &Statement,
        state: &SessionState,
        in_database: bool,
    ) -> Result<bool> {
        let Some(step) = Step::of(statement)? else { return Ok(false) };
        let has_begun = self.0.lock().is_some();
        match step {
            Step::Begin if in_database => {
                return plan_err!(
                    "a database has no transactions: each statement is kept at once, as a whole or not at all"
                );
            }
            Step::Begin if has_begun => return plan_err!("a transaction has begun already"),
            Step::Commit | Step::Rollback if !has_begun => return plan_err!("no transaction has begun"),
            Step::Begin => {
                let before = Before::of(state).await?;
                *self.0.lock() = Some(before);
            }
            Step::Commit => *self.0.lock() = None,
            Step::Rollback => {
                let before = self.0.lock().take();
                if let Some(before) = before {
                    before.bring_back().await?;
                }
            }
        }
        Ok(true)
    }
}

impl Before {
    async fn of(state: &SessionState) -> Result<Before> {
        let mut schemas = Vec::new();
        let catalogs = state.catalog_list();
        for catalog in catalogs.catalog_names().iter().filter_map(|name| catalogs.catalog(name)) {
            for name in catalog.schema_names().into_iter().filter(|name| name != OF_VIEWS) {
                let Some(schema) = catalog.schema(&name) else { continue };
                let mut tables = Vec::new();
                for name in schema.table_names() {
                    // One that cannot be read now is left as it is.
                    if let Ok(Some(table)) = schema.table(&name).await {
                        let rows = rows_of(table.as_ref()).await;
                        tables.push(Saved { name, table, rows });
                    }
                }
                schemas.push(OfSchema { schema, tables });
            }
        }
        Ok(Before(schemas))
    }

    async fn bring_back(self) -> Result<()> {
        for OfSchema { schema, tables } in self.0 {
            let known: HashSet<&String> = tables.iter().map(|saved| &saved.name).collect();
            for name in schema.table_names().iter().filter(|name| !known.contains(name)) {
                schema.deregister_table(name)?;
            }
            for Saved { name, table, rows } in tables {
                let now = if schema.table_exist(&name) { schema.table(&name).await? } else { None };
                let is_own = rows.is_some() || table.table_type() == TableType::View;
                let is_same = now.as_ref().is_some_and(|now| Arc::ptr_eq(now, &table));
                if now.is_none() || is_own && !is_same {
                    if now.is_some() {
                        schema.deregister_table(&name)?;
                    }
                    schema.register_table(name, Arc::clone(&table))?;
                }
                if let Some(rows) = rows {
                    put_back(table.as_ref(), rows).await;
                }
            }
        }
        Ok(())
    }
}

async fn rows_of(table: &dyn TableProvider) -> Option<Vec<Vec<RecordBatch>>> {
    let any: &dyn Any = table;
    let table = any.downcast_ref::<MemTable>()?;
    let mut rows = Vec::with_capacity(table.batches.len());
    for partition in &table.batches {
        rows.push(partition.read().await.clone());
    }
    Some(rows)
}

async fn put_back(table: &dyn TableProvider, rows: Vec<Vec<RecordBatch>>) {
    let any: &dyn Any = table;
    let Some(table) = any.downcast_ref::<MemTable>() else { return };
    for (partition, rows) in table.batches.iter().zip(rows) {
        *partition.write().await = rows;
    }
}
