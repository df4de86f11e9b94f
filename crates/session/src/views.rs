//! Views are queries that are planned where they are used. DataFusion plans a view when it is made and keeps that plan, with the tables of
//! that time: after DROP and CREATE of a table, the view still reads the dropped one. Here the statement that has made a view is remembered,
//! and planned anew where a statement names the view and what it reads is another thing now.

pub(crate) mod renewed;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use datafusion::common::{ResolvedTableReference, TableReference};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Sql;
use parking_lot::Mutex;

/// The views of a session that statements have made.
#[derive(Debug, Default)]
pub(crate) struct Views(Mutex<HashMap<ResolvedTableReference, Made>>);

#[derive(Debug, Clone)]
struct Made {
    statement: String,
    /// The tables and views that the statement names.
    reads: Vec<TableReference>,
    /// The view as it is registered.
    view: Weak<dyn TableProvider>,
}

impl Views {
    /// Those of a session, where it has any.
    fn of(state: &SessionState) -> Option<Arc<Views>> {
        state.config().get_extension::<Views>().filter(|views| !views.0.lock().is_empty())
    }

    /// Remembers the statement that has made a view just now, as it is written and parsed.
    pub async fn remember(
        state: &SessionState,
        name: &TableReference,
        (statement, parsed): (&str, Statement),
    ) -> Result<()> {
        let Some(views) = state.config().get_extension::<Views>() else { return Ok(()) };
        let (name, view) = (resolved(state, name), view_of(state, name).await?);
        let (Some(view), Some(query)) = (view, query_of(parsed)) else { return Ok(()) };
        let reads = state.resolve_table_references(&query)?;
        let made = Made { statement: statement.into(), reads, view: Arc::downgrade(&view) };
        views.0.lock().insert(name, made);
        Ok(())
    }

    /// What views among some tables read, and views among these.
    pub fn below(state: &SessionState, names: &[TableReference]) -> Vec<TableReference> {
        let Some(views) = Views::of(state) else { return Vec::new() };
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut open: Vec<ResolvedTableReference> = names.iter().map(|name| resolved(state, name)).collect();
        let made = views.0.lock();
        while let Some(name) = open.pop() {
            if let Some(view) = made.get(&name).filter(|_| seen.insert(name)) {
                open.extend(view.reads.iter().map(|read| resolved(state, read)));
                found.extend(view.reads.iter().cloned());
            }
        }
        found
    }

    /// The views among some tables and those that they read, each behind what it reads itself. One that reads itself is left out: it was
    /// made over a view or table of its name that is no more.
    fn in_order(&self, state: &SessionState, names: &[TableReference]) -> Vec<ResolvedTableReference> {
        let mut order = Vec::new();
        let mut open: Vec<(ResolvedTableReference, bool)> =
            names.iter().map(|name| (resolved(state, name), false)).collect();
        let mut seen = HashSet::new();
        while let Some((name, is_behind)) = open.pop() {
            if is_behind {
                order.push(name);
                continue;
            }
            let reads = self.0.lock().get(&name).map(|made| made.reads.clone());
            let Some(reads) = reads.filter(|_| seen.insert(name.clone())) else { continue };
            let below = Views::below(state, &reads);
            if reads.iter().chain(&below).any(|read| resolved(state, read) == name) {
                continue;
            }
            open.push((name, true));
            open.extend(reads.iter().map(|read| (resolved(state, read), false)));
        }
        order
    }
}

/// The query of a statement that makes a view.
fn query_of(statement: Statement) -> Option<Statement> {
    let Statement::Statement(statement) = statement else { return None };
    let Sql::CreateView(view) = *statement else { return None };
    Some(Statement::Statement(Box::new(Sql::Query(view.query))))
}

fn resolved(state: &SessionState, name: &TableReference) -> ResolvedTableReference {
    let names = &state.config_options().catalog;
    name.clone().resolve(&names.default_catalog, &names.default_schema)
}

/// The view of a name; nothing where it is none.
async fn view_of(state: &SessionState, name: &TableReference) -> Result<Option<Arc<dyn TableProvider>>> {
    let Ok(schema) = state.schema_for_ref(name.clone()) else { return Ok(None) };
    let table = schema.table(name.table()).await?;
    Ok(table.filter(|table| table.get_logical_plan().is_some()))
}
