//! Plans that are kept, so that a query that was planned before runs at once.
//!
//! There are two places where a plan of a query is found again:
//! - a [`KelpieSession`](crate::KelpieSession) finds it by the text of a statement ([`statements`]): nothing is parsed or planned;
//! - under [`install`](crate::install) the query planner finds it by the optimized logical plan ([`KeptPlans`]), whoever made
//!   that: a `DataFrame`, a prepared statement with its values, another spelling of the same query.
//!
//! And the generic plans of prepared statements ([`generic`]), which serve all values of their parameters, by the statements' plans.
//!
//! A plan is only kept where all that it depends on is known and can be compared cheaply: the session's options, functions and
//! rules by identity, the tables by identity and by their files or batches ([`tables`]). A plan with a function that is not
//! immutable (`now`, `random`, one of the session) is not kept, nor one with a table or an operator of an unknown kind. Any
//! difference means planning again, never another answer.
//!
//! A plan that is kept never runs itself: each query runs a copy ([`plan_copy`]).

mod choice;
mod generic;
mod logical;
mod lru;
mod statements;
mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;

use kelpie_datafusion::parameters::Values;
use kelpie_datafusion::plan_copy::{self, copy_with};
use kelpie_datafusion::recursion_guard::{is_shallow, protect, with_room};
use kelpie_datafusion::{KelpieExec, KelpieOptions, note_reasons, noted_reasons};
use logical::{LogicalKey, hash_of};
use lru::Lru;
use tables::{KnownTable, Seen};

pub(crate) use generic::{Asked, GenericPlans, Learning, Next};
pub(crate) use logical::Repeatable;
pub(crate) use statements::{KeptStatements, MOST_BYTES, Named, Ready};

type Node = Arc<dyn ExecutionPlan>;
type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Copies of a plan share the metrics of its readers of files, which DataFusion offers no way to renew: after so many runs that
/// read files by DataFusion's operators the plan is made anew, so that those metrics do not grow for ever.
const MOST_READS: usize = 100;

/// A physical plan that is kept.
#[derive(Debug)]
pub(crate) struct KeptPlan {
    /// Never runs itself.
    template: Node,
    /// Whether copying it takes a stack of its own.
    is_deep: bool,
    /// Why parts of it are DataFusion's.
    reasons: Vec<String>,
    tables: Vec<KnownTable>,
    /// Whether each compiled part has fallen back.
    fallbacks: Vec<Arc<AtomicBool>>,
    /// Copies that may still be made of it.
    copies_left: AtomicUsize,
}

impl KeptPlan {
    /// A plan over tables as they were before it was made; `None` where it cannot be copied.
    fn of(plan: &Node, tables: Vec<KnownTable>) -> Option<KeptPlan> {
        let reasons = noted_reasons(plan)?;
        let is_deep = !is_shallow(plan);
        let found = with_room(plan, || {
            plan_copy::check(plan).ok()?;
            let mut found = Found::default();
            found.visit(plan);
            Some(found)
        })?;
        let copies = if found.reads_files { MOST_READS } else { usize::MAX };
        Some(KeptPlan {
            template: Arc::clone(plan),
            is_deep,
            reasons,
            tables,
            fallbacks: found.fallbacks,
            copies_left: AtomicUsize::new(copies),
        })
    }

    /// A plan to run, with values where it is generic, unless the time has come to plan again.
    fn copy(&self, values: Option<&Values>) -> Option<Node> {
        let left =
            self.copies_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.ok()?;
        match self.is_deep {
            true => protect(with_room(&self.template, || copy_with(&self.template, values)).ok()?).ok(),
            false => copy_with(&self.template, values).ok(),
        }
    }

    /// Why parts of it are DataFusion's.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Whether planning again may give a better plan: a compiled part could not run, and the rule knows it by now.
    fn is_worn(&self) -> bool {
        self.copies_left.load(Ordering::Relaxed) == 0
            || self.fallbacks.iter().any(|fell_back| fell_back.load(Ordering::Relaxed))
    }

    /// Whether it keeps data in memory that nobody else has any more.
    fn is_gone(&self, seen: &mut Seen) -> bool {
        self.tables.iter().any(|table| table.is_gone(seen))
    }
}

#[derive(Default)]
struct Found {
    fallbacks: Vec<Arc<AtomicBool>>,
    /// Whether DataFusion's operators read files.
    reads_files: bool,
}

impl Found {
    fn visit(&mut self, node: &Node) {
        if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
            self.fallbacks.push(Arc::clone(compiled.fell_back()));
        }
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            self.reads_files |= scan.data_source().downcast_ref::<FileScanConfig>().is_some();
        }
        node.children().into_iter().for_each(|child| self.visit(child));
    }
}

/// A physical plan for a query.
pub(crate) struct Planned {
    /// To be run, once.
    pub plan: Node,
    /// What it is a copy of.
    pub kept: Option<Arc<KeptPlan>>,
    /// Whether it was there before.
    pub is_reused: bool,
    /// Who wants to know what the run takes.
    pub learning: Option<Learning>,
}

impl Planned {
    /// A plan that is not kept.
    pub fn once(plan: Node) -> Planned {
        Planned { plan, kept: None, is_reused: false, learning: None }
    }
}

/// The physical plans that a query planner keeps, by the optimized logical plans they are of.
#[derive(Debug, Default)]
pub(crate) struct KeptPlans {
    plans: Mutex<Lru<Entry>>,
}

struct Entry {
    key: LogicalKey,
    config: Arc<ConfigOptions>,
    rules: Vec<Rule>,
    runtime: Arc<RuntimeEnv>,
    plan: Arc<KeptPlan>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Entry").field(&self.plan).finish()
    }
}

impl Entry {
    fn is_of(&self, state: &SessionState) -> bool {
        Arc::ptr_eq(&self.config, state.config_options())
            && Arc::ptr_eq(&self.runtime, state.runtime_env())
            && are_same(&self.rules, state.physical_optimizers())
    }
}

/// What is to be planned, with what a plan of it is known by.
pub(crate) struct Request<'a> {
    logical: &'a LogicalPlan,
    state: &'a SessionState,
    known: Repeatable,
    hash: u64,
    /// As they are now, before anything is planned.
    tables: Vec<KnownTable>,
    /// Plans that may be kept.
    most: usize,
}

impl<'a> Request<'a> {
    /// `None` where no plan of it is kept.
    pub async fn of(logical: &'a LogicalPlan, session: &'a dyn Session) -> Option<Request<'a>> {
        let state = session.as_any().downcast_ref::<SessionState>()?;
        let options = KelpieOptions::of(state.config_options());
        // A statement that is no query leaves an empty relation behind.
        let is_nothing = matches!(logical, LogicalPlan::EmptyRelation(_));
        if options.kept_plans == 0 || options.explaining || is_nothing {
            return None;
        }
        let known = Repeatable::of(logical)?;
        let start = state.execution_props().query_execution_start_time;
        let moment = start.and_then(|start| start.timestamp_nanos_opt());
        if moment.is_some_and(|moment| known.has_moment(moment)) {
            return None;
        }
        let tables = KnownTable::all(&known.tables, session).await?;
        Some(Request { logical, state, hash: hash_of(logical), known, tables, most: options.kept_plans })
    }
}

impl KeptPlans {
    /// A copy of the plan that is kept of a request.
    pub fn find(&self, request: &Request<'_>) -> Option<Planned> {
        let is_meant = |entry: &Entry| {
            entry.is_of(request.state)
                && entry.plan.tables.len() == request.tables.len()
                && entry.plan.tables.iter().zip(&request.tables).all(|(a, b)| a.is_same(b))
                && !entry.plan.is_worn()
                && entry.key.is_of(request.hash, request.logical, &request.known)
        };
        let kept = self.plans.lock().find(is_meant).map(|entry| Arc::clone(&entry.plan))?;
        let plan = kept.copy(None)?;
        note_reasons(&plan, kept.reasons.clone());
        Some(Planned { plan, kept: Some(kept), is_reused: true, learning: None })
    }

    /// Keeps the plan that was made of a request, where that can be; gives the one to run.
    pub fn keep(&self, request: Request<'_>, plan: Node) -> Result<Planned> {
        let Request { logical, state, known, hash, tables, most } = request;
        let Some(kept) = KeptPlan::of(&plan, tables).map(Arc::new) else { return Ok(Planned::once(plan)) };
        let Some(copy) = kept.copy(None) else { return Ok(Planned::once(plan)) };
        let entry = Entry {
            key: LogicalKey::of(logical, &known)?,
            config: Arc::clone(state.config_options()),
            rules: state.physical_optimizers().to_vec(),
            runtime: Arc::clone(state.runtime_env()),
            plan: Arc::clone(&kept),
        };
        let mut plans = self.plans.lock();
        let mut seen = Seen::default();
        plans.retain(|older| {
            let is_replaced = older.is_of(state) && older.key.is_of(hash, logical, &known);
            !is_replaced && !older.plan.is_worn() && !older.plan.is_gone(&mut seen)
        });
        plans.add(entry, most);
        drop(plans);
        note_reasons(&copy, kept.reasons.clone());
        Ok(Planned { plan: copy, kept: Some(kept), is_reused: false, learning: None })
    }

    /// Drops what keeps data in memory that nobody else has any more.
    pub fn sweep(&self) {
        let mut seen = Seen::default();
        self.plans.lock().retain(|entry| !entry.plan.is_gone(&mut seen));
    }

    /// How many there are.
    #[cfg(feature = "testing")]
    pub fn len(&self) -> usize {
        self.plans.lock().len()
    }
}

/// Whether two lists hold the very same things.
fn are_same<T: ?Sized>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}
