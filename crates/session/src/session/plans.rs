//! Plans that come from elsewhere than a statement, and statements whose plans go elsewhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::common::TableReference;
use datafusion::common::config::Dialect;
use datafusion::common::plan_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::ViewTable;
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};
use kelpie_datafusion::recursion_guard::{Depth, Room};

use super::KelpieSession;
use crate::access::Access;
use crate::checked_files::caught;
use crate::corrections::apart;
use crate::planning::{logical_plan, parsed};

/// Levels that expressions of a plan may have besides its relations.
const LEVELS_OF_EXPRESSIONS: usize = 256;

/// What names of views that are plans begin with.
const VIEW: &str = "plan ";

/// The plan that a statement runs as a whole, where it does. Who reads a view has no use for its order, which DataFusion leaves out; here
/// it is what was asked for.
pub(crate) async fn run_as_a_whole(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if let LogicalPlan::Projection(all) = &plan
        && let LogicalPlan::SubqueryAlias(view) = all.input.as_ref()
        && view.alias.table().starts_with(VIEW)
        && all.expr.len() == view.schema.fields().len()
        && all.expr.iter().zip(view.schema.columns()).all(|(expr, column)| *expr == Expr::Column(column))
        && let Some(table) = state.schema_for_ref(view.alias.clone())?.table(view.alias.table()).await?
        && let Some(whole) = table.get_logical_plan()
    {
        return Ok(whole.into_owned());
    }
    Ok(plan)
}

/// A plan that a session has as a view until it is [removed](KelpieSession::remove_plan).
#[derive(Debug)]
pub struct AddedPlan {
    name: String,
    levels: usize,
}

impl AddedPlan {
    /// The statement that runs it.
    pub fn statement(&self) -> String {
        format!("SELECT * FROM \"{}\"", self.name.replace('"', "\"\""))
    }
}

impl KelpieSession {
    /// Takes a plan that somebody makes by the session's tables and functions, and has it as a view that is called `plan` and a name: what
    /// plans a statement plans it, too. It is made with as much stack as plans of so many relations take; where that panics, it is an error.
    pub async fn add_plan<F>(
        &self,
        name: &str,
        most_relations: usize,
        make: impl FnOnce(SessionState) -> F + Send + 'static,
    ) -> Result<AddedPlan>
    where
        F: Future<Output = Result<LogicalPlan>> + Send + 'static,
    {
        let name = format!("{VIEW}{name}");
        let (context, view) = (self.context.clone(), name.clone());
        let adding = async move {
            let state = context.state();
            let plan = make(state.clone()).await?;
            Access::of(&state).check_plan(&plan)?;
            let mut levels = LEVELS_OF_EXPRESSIONS;
            plan.apply_with_subqueries(|_| {
                levels += 1;
                Ok(TreeNodeRecursion::Continue)
            })?;
            context.register_table(TableReference::bare(view), Arc::new(ViewTable::new(plan, None)))?;
            Ok(levels)
        };
        let levels = room(most_relations + LEVELS_OF_EXPRESSIONS)?.run(caught(adding)).await?;
        self.kept.fetch_add(levels, Ordering::Relaxed);
        Ok(AddedPlan { name, levels })
    }

    /// Forgets a plan. What was planned by it goes on.
    pub async fn remove_plan(&self, plan: AddedPlan) -> Result<()> {
        let (context, name) = (self.context.clone(), TableReference::bare(plan.name));
        let removing = async move { context.deregister_table(name).map(drop) };
        room(plan.levels)?.run(removing).await?;
        self.kept.fetch_sub(plan.levels, Ordering::Relaxed);
        Ok(())
    }

    /// Lends the plan of a query to somebody who writes it down: what the statement says, with values of types that fit each other,
    /// before anything is optimized. A statement that is no query is an error.
    pub async fn with_plan<T: Send + 'static>(
        &self,
        sql: &str,
        write: impl FnOnce(&LogicalPlan, &SessionState) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (context, text) = (self.context.clone(), sql.to_string());
        let writing = async move {
            let state = context.state();
            let statement = parsed(&state, &text)?;
            Access::of(&state).check_statement(&statement)?;
            let plan = apart(logical_plan(&state, statement, &text).await?)?;
            if is_no_query(&plan) {
                return plan_err!("only a query has a plan that can be written, and this is none");
            }
            let mut rules = state.analyzer().rules.iter();
            let plan = match rules.find(|rule| rule.name() == "type_coercion") {
                Some(rule) => rule.analyze(plan, state.config_options())?,
                None => plan,
            };
            write(&plan, &state)
        };
        let depth = self.depth(sql).map_err(|error| self.worded(error, sql))?;
        self.room(depth).run(caught(writing)).await.map_err(|error| self.worded(error, sql))
    }
}

fn room(levels: usize) -> Result<Room> {
    Ok(Room::of(Depth::of("", &Dialect::Generic)?, levels))
}

fn is_no_query(plan: &LogicalPlan) -> bool {
    matches!(
        plan,
        LogicalPlan::Ddl(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::DescribeTable(_)
    )
}
