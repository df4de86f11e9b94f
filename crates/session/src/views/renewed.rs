//! Views that are planned anew, where what they read is another thing now.

use std::ptr;
use std::sync::Arc;

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

use super::{Made, Views, resolved, view_of};
use crate::access::Access;
use crate::messages::message;
use crate::planning::{parsed, plan_of};

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

impl Views {
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

/// The plan of a view by the statement that makes it; nothing where it has placeholders, whose values are gone.
async fn planned(state: &SessionState, text: &str) -> Result<Option<LogicalPlan>> {
    let mut state = state.clone();
    // Whoever may not make views may read them.
    let access = Access { only_reads: false, ..Access::of(&state) };
    state.config_mut().set_extension(Arc::new(access));
    let statement = || {
        let mut statement = parsed(&state, text)?;
        // It is there by now.
        if let Statement::Statement(made) = &mut statement
            && let Sql::CreateView(view) = made.as_mut()
        {
            view.if_not_exists = false;
        }
        Ok(statement)
    };
    let plan = plan_of(&state, statement()?, (text, &statement)).await?;
    let LogicalPlan::Ddl(DdlStatement::CreateView(view)) = plan else { return Ok(None) };
    if !view.input.get_parameter_names()?.is_empty() {
        return Ok(None);
    }
    // As DataFusion does when a view is made.
    let coercion = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
    let input = Arc::unwrap_or_clone(view.input);
    coercion.execute_and_check(input, &ConfigOptions::default(), |_, _| {}).map(Some)
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
