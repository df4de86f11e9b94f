//! Statements of a session whose plans are kept, by their texts.

use std::ptr;
use std::sync::{Arc, Weak};

use datafusion::catalog::{CatalogProviderList, SchemaProvider, Session, TableFunction, TableProvider};
use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr_rewriter::FunctionRewrite;
use datafusion::logical_expr::planner::{ExprPlanner, RelationPlanner};
use datafusion::optimizer::{AnalyzerRule, OptimizerRule};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as ParsedStatement;
use kelpie_datafusion::KelpieOptions;
use kelpie_datafusion::clock::moment;
use parking_lot::Mutex;

use super::lru::Lru;
use super::tables::{KnownTable, Seen};
use super::{KeptPlan, Node, Rule, are_same};
use crate::views::Views;

/// Longer texts are not kept: what is in them takes longer than planning them.
pub(crate) const MOST_BYTES: usize = 64 << 10;

/// All of a session but its tables that decides what a text means and how it is planned.
pub(crate) struct Environment {
    /// Options, functions and runtime; what queries run in.
    pub task: Arc<TaskContext>,
    analyzer: Vec<Arc<dyn AnalyzerRule + Send + Sync>>,
    rewrites: Vec<Arc<dyn FunctionRewrite + Send + Sync>>,
    optimizer: Vec<Arc<dyn OptimizerRule + Send + Sync>>,
    rules: Vec<Rule>,
    exprs: Vec<Arc<dyn ExprPlanner>>,
    relations: Vec<Arc<dyn RelationPlanner>>,
    table_functions: Functions<TableFunction>,
    planner: Arc<dyn QueryPlanner + Send + Sync>,
    catalogs: Arc<dyn CatalogProviderList>,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

impl Environment {
    /// That of a session as it is now.
    pub fn of(state: &SessionState) -> Environment {
        Environment {
            task: Arc::new(TaskContext::from(state)),
            analyzer: state.analyzer().rules.clone(),
            rewrites: state.analyzer().function_rewrites().to_vec(),
            optimizer: state.optimizers().to_vec(),
            rules: state.physical_optimizers().to_vec(),
            exprs: state.expr_planners().to_vec(),
            relations: state.relation_planners().to_vec(),
            table_functions: state.table_functions().clone(),
            planner: Arc::clone(state.query_planner()),
            catalogs: Arc::clone(state.catalog_list()),
        }
    }

    /// Whether the session still is what it was.
    pub(super) fn is_of(&self, state: &SessionState) -> bool {
        Arc::ptr_eq(self.task.session_config().options(), state.config_options())
            && ptr::addr_eq(Arc::as_ptr(&self.planner), Arc::as_ptr(state.query_planner()))
            && ptr::addr_eq(Arc::as_ptr(&self.catalogs), Arc::as_ptr(state.catalog_list()))
            && Arc::ptr_eq(&self.task.runtime_env(), state.runtime_env())
            && are_same(&self.analyzer, &state.analyzer().rules)
            && are_same(&self.rewrites, state.analyzer().function_rewrites())
            && are_same(&self.optimizer, state.optimizers())
            && are_same(&self.rules, state.physical_optimizers())
            && are_same(&self.exprs, state.expr_planners())
            && are_same(&self.relations, state.relation_planners())
            && have_same(&self.table_functions, state.table_functions())
            && have_same(self.task.scalar_functions(), state.scalar_functions())
            && have_same(self.task.higher_order_functions(), state.higher_order_functions())
            && have_same(self.task.aggregate_functions(), state.aggregate_functions())
            && have_same(self.task.window_functions(), state.window_functions())
    }
}

type Functions<F> = std::collections::HashMap<String, Arc<F>>;

/// Whether two sets of functions have the very same under every name. There are hundreds: a set and its copy have them in one order,
/// and only where that is another one each is looked up.
fn have_same<F>(a: &Functions<F>, b: &Functions<F>) -> bool {
    let is_there =
        |(name, function): (&String, &Arc<F>)| b.get(name).is_some_and(|other| Arc::ptr_eq(function, other));
    let in_order = || a.iter().zip(b).all(|(one, other)| Arc::ptr_eq(one.1, other.1) && one.0 == other.0);
    a.len() == b.len() && (in_order() || a.iter().all(is_there))
}

/// The tables that a statement names, and what they are; nothing where there is no such table.
pub(crate) struct Named(Vec<(TableReference, Option<Weak<dyn TableProvider>>)>);

impl Named {
    /// Those of a statement now.
    pub async fn of(state: &SessionState, statement: &ParsedStatement) -> Result<Named> {
        let mut named = Vec::new();
        let mut references = state.resolve_table_references(statement)?;
        // What a view stands for changes with what it reads.
        references.extend(Views::below(state, &references));
        for reference in references {
            let schema = state.schema_for_ref(reference.clone()).ok();
            let table = match schema {
                Some(schema) => schema.table(reference.table()).await?,
                None => None,
            };
            named.push((reference, table.as_ref().map(Arc::downgrade)));
        }
        Ok(Named(named))
    }

    /// Where to look for each of them.
    fn schemas(&self, state: &SessionState) -> Vec<Option<Arc<dyn SchemaProvider>>> {
        self.0.iter().map(|(reference, _)| state.schema_for_ref(reference.clone()).ok()).collect()
    }

    /// Whether the names still stand for the same.
    async fn are_same(&self, schemas: Vec<Option<Arc<dyn SchemaProvider>>>) -> bool {
        for ((reference, known), schema) in self.0.iter().zip(schemas) {
            let table = match schema {
                Some(schema) => schema.table(reference.table()).await,
                None => Ok(None),
            };
            let is_same = match (table, known) {
                (Ok(Some(table)), Some(known)) => ptr::addr_eq(Arc::as_ptr(&table), known.as_ptr()),
                (Ok(None), None) => true,
                _ => false,
            };
            if !is_same {
                return false;
            }
        }
        true
    }
}

struct Statement {
    text: String,
    named: Named,
    plan: Arc<KeptPlan>,
}

/// A statement that may run at once.
pub(crate) struct Ready {
    pub plan: Node,
    pub kept: Arc<KeptPlan>,
    pub task: Arc<TaskContext>,
}

/// The statements of a session whose plans are kept.
#[derive(Default)]
pub(crate) struct KeptStatements(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// In which all of them were planned.
    environment: Option<Arc<Environment>>,
    statements: Lru<Arc<Statement>>,
}

impl KeptStatements {
    /// The plan of a text, where it is kept and still is the one that planning would give.
    pub async fn find(&self, text: &str, context: &SessionContext) -> Option<Ready> {
        let (statement, environment, schemas) = {
            let state = context.state_ref();
            let state = state.read();
            let mut kept = self.0.lock();
            let environment = kept.environment.clone()?;
            if !environment.is_of(&state) {
                *kept = Kept::default();
                return None;
            }
            let statement = Arc::clone(kept.statements.find(|statement| statement.text == text)?);
            drop(kept);
            let schemas = statement.named.schemas(&state);
            (statement, environment, schemas)
        };
        // Most tables look at their files when they are named.
        let since = moment();
        let is_current = !statement.plan.is_worn()
            && statement.named.are_same(schemas).await
            && self.has_same_data(&statement.plan, since, context).await;
        match is_current.then(|| statement.plan.copy(None)).flatten() {
            Some(plan) => {
                Some(Ready { plan, kept: Arc::clone(&statement.plan), task: Arc::clone(&environment.task) })
            }
            None => {
                self.0.lock().statements.retain(|known| !Arc::ptr_eq(known, &statement));
                None
            }
        }
    }

    async fn has_same_data(&self, plan: &KeptPlan, since: u64, context: &SessionContext) -> bool {
        // Only an object store is asked in the name of a session, and copying that takes time.
        let state = plan.tables.iter().any(KnownTable::is_listed).then(|| context.state());
        let session = state.as_ref().map(|state| state as &dyn Session);
        for table in &plan.tables {
            if !table.is_unchanged(session, since).await {
                return false;
            }
        }
        true
    }

    /// Keeps the plan of a text that was planned in an environment, over tables that it names.
    pub fn keep(&self, text: &str, environment: Arc<Environment>, named: Named, plan: &Arc<KeptPlan>) {
        let most = KelpieOptions::of(environment.task.session_config().options()).kept_plans;
        if most == 0 || text.len() > MOST_BYTES {
            return;
        }
        let statement = Arc::new(Statement { text: text.to_string(), named, plan: Arc::clone(plan) });
        let mut kept = self.0.lock();
        let is_same = kept.environment.as_ref().is_some_and(|known| Arc::ptr_eq(known, &environment));
        if !is_same {
            *kept = Kept { environment: Some(environment), statements: Lru::default() };
        }
        kept.statements.retain(|known| known.text != text && !known.plan.is_worn());
        kept.statements.add(statement, most);
    }

    /// The environment of a session, which is the known one where nothing has changed.
    pub fn environment(&self, state: &SessionState) -> Arc<Environment> {
        let known = self.0.lock().environment.clone();
        known.filter(|known| known.is_of(state)).unwrap_or_else(|| Arc::new(Environment::of(state)))
    }

    /// Drops what keeps data in memory that nobody else has any more.
    pub fn sweep(&self) {
        let mut seen = Seen::default();
        self.0.lock().statements.retain(|statement| !statement.plan.is_gone(&mut seen));
    }

    /// Drops all of them.
    pub fn forget(&self) {
        *self.0.lock() = Kept::default();
    }

    /// How many there are.
    #[cfg(feature = "testing")]
    pub fn len(&self) -> usize {
        self.0.lock().statements.len()
    }
}
