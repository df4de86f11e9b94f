//! The generic plans of a session's prepared statements: whether there is one, and what it has taken so far.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use kelpie_datafusion::parameters::{GenericQuery, is_parameters};
use kelpie_datafusion::{GenericPlanMode, KelpieExec, KelpieOptions};
use kelpie_engine::{Group, Phase};
use parking_lot::Mutex;

use super::choice::{Choice, Way};
use super::logical::{LogicalKey, Repeatable, hash_of};
use super::lru::Lru;
use super::statements::{Environment, KeptStatements};
use super::tables::{KnownTable, Seen};
use super::{KeptPlan, Node, Planned};
use crate::timing::QueryTiming;

/// A prepared statement as it is executed: with some of its parameters constant, over tables as they are now.
struct Statement {
    name: String,
    key: LogicalKey,
    tables: Vec<KnownTable>,
    learned: Mutex<Learned>,
}

/// What the executions of a statement have shown.
#[derive(Default)]
struct Learned {
    choice: Choice,
    /// Sets of values that were planned for.
    seen: Vec<u64>,
    /// The columns of the plans with values.
    schema: Option<SchemaRef>,
    /// Whether one of these was compiled as a whole.
    is_compiled: bool,
    plan: Option<Arc<KeptPlan>>,
}

/// The generic plans of a session, and which of its statements have none.
#[derive(Default)]
pub(crate) struct GenericPlans(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// In which all of them were planned.
    environment: Option<Arc<Environment>>,
    statements: Lru<Arc<Statement>>,
    /// Names of statements that are planned with their values for good.
    custom: Lru<String>,
}

/// An execution of a prepared statement.
pub(crate) struct Asked<'a> {
    pub name: &'a str,
    pub query: &'a GenericQuery,
    pub environment: &'a Arc<Environment>,
}

/// How to go on with it.
pub(crate) enum Next {
    /// To be run, and what in.
    Run(Planned, Arc<TaskContext>),
    /// To be planned generically.
    Plan(Learning),
    /// To be planned with its values.
    Custom(Option<Learning>),
    /// The same, and from now on where that succeeds.
    Never,
}

/// Why nothing is known of a statement.
enum Unfit {
    /// Its plan may not be kept: an unknown table, or a function that is not immutable.
    Always,
    /// The session has changed meanwhile.
    Now,
}

impl GenericPlans {
    /// Whether a statement has no generic plan, as far as its name tells: the session does not see what others do to its context.
    pub fn has_none(&self, name: &str, options: &KelpieOptions) -> bool {
        options.generic_plans == GenericPlanMode::Never
            || options.kept_plans == 0
            || self.0.lock().custom.find(|custom| custom == name).is_some()
    }

    /// The environment of a session. What was learned in another one says nothing and is forgotten.
    pub fn environment(&self, state: &SessionState, statements: &KeptStatements) -> Arc<Environment> {
        let mut known = self.0.lock();
        match &known.environment {
            Some(environment) if environment.is_of(state) => Arc::clone(environment),
            _ => {
                let environment = statements.environment(state);
                *known = Known { environment: Some(Arc::clone(&environment)), ..Known::default() };
                environment
            }
        }
    }

    /// From now on a statement is planned with its values.
    pub fn give_up(&self, name: &str) {
        self.0.lock().give_up(name);
    }

    /// How an execution goes on.
    pub async fn next(self: &Arc<Self>, asked: Asked<'_>, state: &SessionState) -> Next {
        match self.statement(&asked, state).await {
            Ok(statement) => self.next_of(statement, &asked, &KelpieOptions::of(state.config_options())),
            Err(Unfit::Now) => Next::Custom(None),
            Err(Unfit::Always) => {
                self.give_up(asked.name);
                Next::Custom(None)
            }
        }
    }

    async fn statement(&self, asked: &Asked<'_>, state: &SessionState) -> Result<Arc<Statement>, Unfit> {
        let logical = &asked.query.plan;
        let known = Repeatable::of(logical).ok_or(Unfit::Always)?;
        let is_data = |table: &&Arc<dyn TableProvider>| !is_parameters(table.as_ref());
        let providers: Vec<_> = known.tables.iter().filter(is_data).cloned().collect();
        let tables = KnownTable::all(&providers, state).await.ok_or(Unfit::Always)?;
        let hash = hash_of(logical);
        let is_same = |statement: &Statement| {
            statement.name == asked.name && statement.key.is_of(hash, logical, &known)
        };
        let is_current = |statement: &Statement| {
            statement.tables.len() == tables.len()
                && statement.tables.iter().zip(&tables).all(|(a, b)| a.is_same(b))
        };
        let mut all = self.0.lock();
        let is_same_environment = |known: &Arc<Environment>| Arc::ptr_eq(known, asked.environment);
        if !all.environment.as_ref().is_some_and(is_same_environment) {
            return Err(Unfit::Now);
        }
        if let Some(found) = all.statements.find(|known| is_same(known) && is_current(known)) {
            return Ok(Arc::clone(found));
        }
        all.statements.retain(|known| !is_same(known));
        let statement = Arc::new(Statement {
            name: asked.name.to_string(),
            key: LogicalKey::of(logical, &known).map_err(|_| Unfit::Always)?,
            tables,
            learned: Mutex::default(),
        });
        all.statements.add(Arc::clone(&statement), KelpieOptions::of(state.config_options()).kept_plans);
        Ok(statement)
    }

    fn next_of(
        self: &Arc<Self>,
        statement: Arc<Statement>,
        asked: &Asked<'_>,
        options: &KelpieOptions,
    ) -> Next {
        let learning = |is_generic| Learning {
            plans: Arc::clone(self),
            statement: Arc::clone(&statement),
            values: hash_of_values(asked.query),
            is_generic,
        };
        let mut learned = statement.learned.lock();
        match learned.choice.next() {
            Way::Custom => Next::Custom(Some(learning(false))),
            Way::CustomForGood if options.generic_plans != GenericPlanMode::Always => {
                drop(learned);
                self.give_up(asked.name);
                Next::Custom(None)
            }
            Way::Generic | Way::CustomForGood => {
                learned.plan.take_if(|plan| plan.is_worn());
                let Some(kept) = learned.plan.clone() else { return Next::Plan(learning(true)) };
                drop(learned);
                match kept.copy(Some(&asked.query.values)) {
                    Some(plan) => {
                        let learning = Some(learning(true));
                        let planned = Planned { plan, kept: Some(kept), is_reused: true, learning };
                        Next::Run(planned, Arc::clone(&asked.environment.task))
                    }
                    // An expression of the values fails: planned with them, the error is DataFusion's.
                    None => Next::Custom(None),
                }
            }
        }
    }

    /// Forgets a statement, of whose name there is another now or none.
    pub fn forget(&self, name: &str) {
        let mut known = self.0.lock();
        known.statements.retain(|statement| statement.name != name);
        known.custom.retain(|custom| custom != name);
    }

    /// Drops what keeps data in memory that nobody else has any more.
    pub fn sweep(&self) {
        let mut seen = Seen::default();
        let mut is_gone =
            |statement: &Statement| statement.tables.iter().any(|table| table.is_gone(&mut seen));
        self.0.lock().statements.retain(|statement| !is_gone(statement));
    }

    /// How many statements have a generic plan, and how many are planned with their values for good.
    #[cfg(feature = "testing")]
    pub fn len(&self) -> (usize, usize) {
        let known = self.0.lock();
        let has_plan = |statement: &&Arc<Statement>| statement.learned.lock().plan.is_some();
        (known.statements.iter().filter(has_plan).count(), known.custom.len())
    }
}

impl Known {
    fn give_up(&mut self, name: &str) {
        self.statements.retain(|statement| statement.name != name);
        self.custom.retain(|custom| custom != name);
        let environment = self.environment.as_ref();
        let options = environment.map(|known| KelpieOptions::of(known.task.session_config().options()));
        self.custom.add(name.to_string(), options.map_or(0, |options| options.kept_plans));
    }
}

fn hash_of_values(query: &GenericQuery) -> u64 {
    let mut hasher = DefaultHasher::new();
    query.values.hash(&mut hasher);
    hasher.finish()
}

/// An execution from which something is learned of its statement.
pub(crate) struct Learning {
    plans: Arc<GenericPlans>,
    statement: Arc<Statement>,
    /// The hash of its values.
    values: u64,
    is_generic: bool,
}

impl Learning {
    /// Whether it runs by the generic plan.
    pub fn is_generic(&self) -> bool {
        self.is_generic
    }

    /// Sees the plan that was made for the values. Where plans for other values have other columns, as their types hang on
    /// the values, no generic plan has both.
    pub fn see_custom(&self, plan: &Node) {
        let schema = plan.schema();
        let mut learned = self.statement.learned.lock();
        let differs = learned.schema.as_ref().is_some_and(|known| *known != schema);
        learned.schema = Some(schema);
        learned.is_compiled |= plan.is::<KelpieExec>();
        drop(learned);
        if differs {
            self.give_up();
        }
    }

    /// Keeps a generic plan; gives the one to run. `None` where it cannot be kept, or is not what the plans with values are: with
    /// the same columns, and compiled where those are.
    pub fn keep(self, plan: &Node, query: &GenericQuery) -> Option<Planned> {
        let mut learned = self.statement.learned.lock();
        let is_alike = learned.schema.as_ref() == Some(&plan.schema())
            && (plan.is::<KelpieExec>() || !learned.is_compiled);
        let kept = match is_alike {
            true => KeptPlan::of(plan, self.statement.tables.clone()).map(Arc::new),
            false => None,
        };
        let copy = kept.as_ref().and_then(|kept| kept.copy(Some(&query.values)));
        let (Some(kept), Some(plan)) = (kept, copy) else {
            drop(learned);
            self.give_up();
            return None;
        };
        learned.plan = Some(Arc::clone(&kept));
        drop(learned);
        Some(Planned { plan, kept: Some(kept), is_reused: false, learning: Some(self) })
    }

    /// From now on the statement is planned with its values.
    pub fn give_up(&self) {
        self.plans.give_up(&self.statement.name);
    }

    /// Notes what the execution took. What it read and compiled, the next one has, and whoever took its rows is no part of it.
    pub fn note(&self, timing: &QueryTiming) {
        let split = &timing.split;
        let once = split.of_group(Group::Compile) + split.of_group(Group::Read) + split.of(Phase::Taking);
        let time_ns = split.total().saturating_sub(once);
        let mut learned = self.statement.learned.lock();
        match (self.is_generic, timing.plan_kept) {
            (true, true) => learned.choice.add_generic(time_ns),
            (false, false) if !learned.seen.contains(&self.values) => {
                learned.seen.push(self.values);
                learned.choice.add_custom(time_ns);
            }
            // Making the generic plan is no part of its runs; nor is a plan for values of use where it was there.
            (true, false) | (false, _) => {}
        }
    }

    /// Notes that the generic plan could not run, after some time, so that the query was planned with its values all the same.
    pub fn note_failure(&self, elapsed: Duration) {
        let mut learned = self.statement.learned.lock();
        let time_ns = learned.choice.custom_ns().saturating_add(elapsed.as_nanos() as u64);
        learned.choice.add_generic(time_ns);
    }
}
