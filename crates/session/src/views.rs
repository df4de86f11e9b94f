//! Views are queries that are planned where they are used. DataFusion plans a view when it is made and keeps that plan, with the tables of
//! that time: after DROP and CREATE of a table, the view still reads the dropped one. Here the statement that has made a view is remembered,
//! and planned anew where a statement names the view and what it reads is another thing now.

use std::collections::{HashMap, HashSet};
use std::ptr;
use std::sync::{Arc, Weak};

use datafusion::catalog::TableProvider;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{ResolvedTableReference, TableReference, plan_err};
use datafusion::datasource::{ViewTable, source_as_provider};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{DdlStatement, LogicalPlan};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as Sql;
use kelpie_datafusion::KelpieOptions;
use parking_lot::Mutex;

use crate::access::Access;
use crate::dialect::written_anew;
use crate::messages::message;
use crate::planning::{parsed, plan_of};

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

    /// Remembers the statement that has made a view just now.
    pub async fn remember(state: &SessionState, name: &TableReference, statement: &str) -> Result<()> {
        let Some(views) = state.config().get_extension::<Views>() else { return Ok(()) };
        let (name, view) = (resolved(state, name), view_of(state, name).await?);
        let (Some(view), Some(query)) = (view, query_of(parsed(state, statement)?)) else { return Ok(()) };
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

    /// Plans a view anew where that gives another plan.
    async fn renew(&self, state: &SessionState, name: &ResolvedTableReference) -> Result<()> {
        let Some(made) = self.0.lock().get(name).cloned() else { return Ok(()) };
        let reference = TableReference::from(name.clone());
        let known = view_of(state, &reference).await?;
        let is_known = |view: &Arc<dyn TableProvider>| ptr::addr_eq(Arc::as_ptr(view), made.view.as_ptr());
        let Some(known) = known.filter(is_known) else {
            self.0.lock().remove(name);
            return Ok(());
        };
        let planned = match planned(state, &made.statement).await {
            Ok(planned) => planned,
            Err(error) => {
                return plan_err!("the view {} does not hold any more: {}", name.table, message(&error));
            }
        };
        let (Some(plan), Some(before)) = (planned, known.get_logical_plan()) else { return Ok(()) };
        if plan == *before && tables_of(&plan)? == tables_of(&before)? {
            return Ok(());
        }
        let definition = known.get_table_definition().map(str::to_string);
        let view: Arc<dyn TableProvider> = Arc::new(ViewTable::new(plan, definition));
        let schema = state.schema_for_ref(reference)?;
        schema.deregister_table(&name.table)?;
        schema.register_table(name.table.to_string(), Arc::clone(&view))?;
        self.0.lock().insert(name.clone(), Made { view: Arc::downgrade(&view), ..made });
        Ok(())
    }
}

/// Plans the views that a statement names anew where what they read is another thing now.
pub(crate) async fn renew(state: &SessionState, statement: &Statement) -> Result<()> {
    let Some(views) = Views::of(state) else { return Ok(()) };
    let mut names = state.resolve_table_references(statement)?;
    if let Statement::Statement(statement) = statement {
        // What is dropped or replaced may be a view whose tables are gone.
        let made = match statement.as_ref() {
            Sql::Drop { .. } => return Ok(()),
            Sql::CreateView(view) => Some(view.name.to_string()),
            Sql::CreateTable(table) => Some(table.name.to_string()),
            _ => None,
        };
        if let Some(made) = made {
            let made = resolved(state, &TableReference::from(made));
            names.retain(|name| resolved(state, name) != made);
        }
    }
    for name in views.in_order(state, &names) {
        views.renew(state, &name).await?;
    }
    Ok(())
}

/// The query of a statement that makes a view.
fn query_of(statement: Statement) -> Option<Statement> {
    let Statement::Statement(statement) = statement else { return None };
    let Sql::CreateView(view) = *statement else { return None };
    Some(Statement::Statement(Box::new(Sql::Query(view.query))))
}

/// The plan of a view by the statement that makes it; nothing where it has placeholders, whose values are gone.
async fn planned(state: &SessionState, text: &str) -> Result<Option<LogicalPlan>> {
    let mut state = state.clone();
    // Whoever may not make views may read them.
    let access = Access { only_reads: false, ..Access::of(&state) };
    state.config_mut().set_extension(Arc::new(access));
    let mut statement = parsed(&state, text)?;
    if KelpieOptions::of(state.config_options()).corrections {
        written_anew(&state, None, &mut statement).await?;
    }
    let plan = plan_of(&state, statement, text).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(view)) = plan else { return Ok(None) };
    if !view.input.get_parameter_names()?.is_empty() {
        return Ok(None);
    }
    // As DataFusion does when a view is made.
    let coercion = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
    let input = Arc::unwrap_or_clone(view.input);
    coercion.execute_and_check(input, &ConfigOptions::default(), |_, _| {}).map(Some)
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

/// What a plan reads, by identity.
fn tables_of(plan: &LogicalPlan) -> Result<Vec<usize>> {
    let mut tables = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            tables.push(Arc::as_ptr(&source_as_provider(&scan.source)?).cast::<()>().addr());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
