//! Kelpie in a session that is there already.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{Analyze, LogicalPlan};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use kelpie_datafusion::clock::{timed, timed_future};
use kelpie_datafusion::{
    CORRECTIONS, ConstantRows, CsvRanges, JoinOrderRule, KelpieOptions, KelpieRule, LateProjections,
    OuterConstants, RecursiveTerms, Rest, SkippedRows, WINDOW_FILTERS, WINDOW_KEYS, WholeQueryRule,
    keep_from_physical_rules,
};
use kelpie_engine::{Engine, Phase};

use crate::constraints::checked_table::CheckedInserts;
use crate::corrections::{
    DISTINCT_ROWS, FIRST_ELEMENTS, LISTS, SPLIT_ORDERS, SUBQUERY_VALUES, SharedPlanner, VALUE_COUNTS,
    VOLATILE_ONCE, WINDOW_TYPES, apart, keep_from_rules,
};
use crate::dialect::{Subscripts, Truths};
use crate::file_facts::FileFacts;
use crate::files::{infer_from_whole_rows, read_external_tables};
use crate::plan_cache::{KeptPlans, Planned, Request};
use crate::report::AnalyzedExec;
use crate::times::add_times;
use crate::whole_writes::{WholeWrites, copy_to_device};

/// Adds Kelpie to a session: its rule after all others, one for queries that compile as a whole before those of DataFusion that
/// make a plan ready to run, the order of joins by cost, the options `kelpie.*`, the reasons of what is not compiled in EXPLAIN,
/// and COPY and INSERT that replace a local file only when all is written. What the builder has already stays: settings,
/// functions, tables, the query planner and the rules; only a query planner or rules that are set *afterwards* replace Kelpie's.
/// Installing it twice is installing it once.
///
/// One [`Engine`] serves any number of sessions: columns that are cached and kernels that are compiled are shared.
///
/// # What a session state cannot carry
///
/// [`KelpieSession::over`](crate::KelpieSession::over) makes a session of the context that is built:
/// - [`sql`](crate::KelpieSession::sql) and [`start`](crate::KelpieSession::start) measure a statement before anything walks
///   it by recursion, and plan it with as much stack as it takes. `SessionContext::sql` parses and plans on the stack of its
///   thread, and aborts the process where a query that somebody else wrote is deep enough; plans that come from there run with the
///   stack they need all the same.
/// - [`last_metrics`](crate::KelpieSession::last_metrics) says where the time of a query went, and
///   [`explain`](crate::KelpieSession::explain) shows its pipelines and kernels.
/// - [`register_path`](crate::KelpieSession::register_path), [`register_dir`](crate::KelpieSession::register_dir) and
///   [`register_data`](crate::KelpieSession::register_data) add tables of local files that follow what becomes of the files;
///   with [`name_files_in_queries`](crate::KelpieSession::name_files_in_queries), `FROM 'file.parquet'` is one.
///
/// And two choices stay the embedder's, which [`KelpieSession::new`](crate::KelpieSession::new) makes: `information_schema` is
/// on, and folders of `CREATE EXTERNAL TABLE` are listed anew for every query
/// (`RuntimeEnvBuilder::with_object_list_cache_limit(0)`; by default DataFusion does not see files that were added).
///
/// ```
/// use std::sync::Arc;
///
/// use datafusion::execution::session_state::SessionStateBuilder;
/// use datafusion::prelude::SessionContext;
/// use kelpie_engine::Engine;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> datafusion::error::Result<()> {
/// let engine = Arc::new(Engine::new());
/// let builder = SessionStateBuilder::new().with_default_features();
/// let state = kelpie_session::install(builder, engine).build();
/// let context = SessionContext::new_with_state(state);
///
/// context.sql("SET kelpie.device = 'cpu'").await?.collect().await?;
/// context.sql("CREATE TABLE t AS SELECT * FROM (VALUES (1, 10), (2, 20), (1, 30)) AS v(k, x)").await?.collect().await?;
/// let plan = context.sql("EXPLAIN SELECT k, sum(x) FROM t GROUP BY k").await?.to_string().await?;
/// assert!(plan.contains("KelpieExec"), "{plan}");
/// let plan = context.sql("EXPLAIN SELECT approx_median(x) FROM t").await?.to_string().await?;
/// assert!(plan.contains("approx_median is not compiled"), "{plan}");
/// # Ok(())
/// # }
/// ```
pub fn install(mut builder: SessionStateBuilder, engine: Arc<Engine>) -> SessionStateBuilder {
    let options = builder.config().get_or_insert_default().options_mut();
    if options.extensions.get::<KelpieOptions>().is_none() {
        options.extensions.insert(KelpieOptions::default());
    }
    if is_installed(&mut builder) {
        return builder;
    }
    infer_from_whole_rows(&mut builder);
    read_external_tables(&mut builder);
    keep_from_rules(&mut builder);
    add_times(&mut builder);
    builder.analyzer().get_or_insert_default().rules.insert(0, Arc::new(WINDOW_TYPES));
    let planners = builder.expr_planners().get_or_insert_default();
    planners.insert(0, Arc::new(Subscripts));
    planners.insert(1, Arc::new(Truths));
    let runtime = Arc::clone(builder.runtime_env().get_or_insert_default());
    let rules = &mut builder.physical_optimizers().get_or_insert_default().rules;
    let planner_engine = Arc::clone(&engine);
    rules.insert(0, Arc::new(FileFacts));
    rules.insert(1, Arc::new(LateProjections));
    rules.insert(2, Arc::new(ConstantRows));
    keep_from_physical_rules(rules);
    add_planning(rules, &engine, &runtime);
    let inner = builder.query_planner().take();
    builder
        .with_analyzer_rule(Arc::new(VOLATILE_ONCE))
        .with_analyzer_rule(Arc::new(LISTS))
        .with_analyzer_rule(Arc::new(SUBQUERY_VALUES))
        .with_analyzer_rule(Arc::new(FIRST_ELEMENTS))
        .with_analyzer_rule(Arc::new(SPLIT_ORDERS))
        .with_analyzer_rule(Arc::new(DISTINCT_ROWS))
        .with_analyzer_rule(Arc::new(VALUE_COUNTS))
        .with_analyzer_rule(Arc::new(CheckedInserts))
        .with_analyzer_rule(Arc::new(CORRECTIONS))
        .with_analyzer_rule(Arc::new(WINDOW_FILTERS))
        .with_analyzer_rule(Arc::new(WINDOW_KEYS))
        .with_physical_optimizer_rule(Arc::new(RecursiveTerms))
        .with_physical_optimizer_rule(Arc::new(KelpieRule::new(engine)))
        .with_physical_optimizer_rule(Arc::new(WholeWrites))
        .with_query_planner(Arc::new(KelpiePlanner {
            inner,
            kept: KeptPlans::default(),
            engine: planner_engine,
        }))
}

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

fn is_installed(builder: &mut SessionStateBuilder) -> bool {
    let is_ours = |rule: &Rule| rule.name() == KelpieRule::NAME;
    builder.physical_optimizer_rules().iter().flatten().any(is_ours)
        || builder.physical_optimizers().iter().flat_map(|optimizer| &optimizer.rules).any(is_ours)
}

/// Joins are ordered after the choice of their sides, and after `FilterPushdown`: that rule moves the filters of a plan by the
/// names of their columns, and the columns of an ordered tree may share names. It must be before the rule that gives inputs
/// the partitions they need: a list without that rule gets none. Queries that compile as a whole are replaced before all
/// of these, where they are DataFusion's own.
fn add_planning(rules: &mut Vec<Rule>, engine: &Arc<Engine>, runtime: &RuntimeEnv) {
    let place = |name: &str| rules.iter().position(|rule| rule.name() == name);
    // Files are dealt out by this rule.
    if let Some(requirements) = place("EnsureRequirements") {
        rules.insert(requirements + 1, Arc::new(CsvRanges));
        rules.insert(requirements, Arc::new(OuterConstants));
        rules.insert(requirements, Arc::new(SkippedRows));
    }
    let place = |name: &str| rules.iter().position(|rule| rule.name() == name);
    let (first, place) = match (place("FilterPushdown"), place("EnsureRequirements")) {
        (Some(filters), Some(requirements)) if filters < requirements => (filters, filters + 1),
        (_, Some(requirements)) => (requirements, requirements),
        _ => return,
    };
    let order = Arc::new(JoinOrderRule::new(runtime));
    rules.insert(place, Arc::clone(&order) as Rule);
    if let Some(rest) = Rest::of(&rules[first..]) {
        rules.insert(first, Arc::new(WholeQueryRule::new(Arc::clone(engine), order, rest)));
    }
}

/// As `async_trait` returns plans.
pub(crate) type PlanFuture<'a> = Pin<Box<dyn Future<Output = Result<Arc<dyn ExecutionPlan>>> + Send + 'a>>;

/// The session's query planner, told what only the statement as a whole shows. Physical rules do not see whether they plan an
/// EXPLAIN; this does, and tells [`KelpieRule`] by an option of the state that it plans with. And COPY to a device is not one to
/// a folder. The plans of queries are kept (`plan_cache`).
#[derive(Debug)]
pub(crate) struct KelpiePlanner {
    /// The session's own; where there is none, DataFusion's.
    inner: Option<Arc<dyn QueryPlanner + Send + Sync>>,
    kept: KeptPlans,
    engine: Arc<Engine>,
}

impl KelpiePlanner {
    /// The planner of a session, where that is Kelpie's.
    pub fn of(state: &SessionState) -> Option<&KelpiePlanner> {
        let planner: &dyn Any = state.query_planner().as_ref();
        planner.downcast_ref()
    }

    /// The plans that it keeps.
    pub fn kept(&self) -> &KeptPlans {
        &self.kept
    }

    /// A physical plan of an optimized logical one: a copy of the one that is kept, or a new one, which is then kept where that
    /// can be.
    pub async fn plan(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Planned> {
        let Some(request) = timed_future(Phase::Find, Request::of(plan, session)).await else {
            return self.plan_anew(plan, session).await.map(Planned::once);
        };
        match timed(Phase::Find, || self.kept.find(&request)) {
            Some(planned) => Ok(planned),
            None => {
                let physical = self.plan_anew(plan, session).await?;
                timed(Phase::Find, || self.kept.keep(request, physical))
            }
        }
    }

    /// What [`QueryPlanner::create_physical_plan`] gives.
    fn planned<'a>(&'a self, plan: &'a LogicalPlan, session: &'a dyn Session) -> PlanFuture<'a> {
        Box::pin(async move { self.plan(plan, session).await.map(|planned| planned.plan) })
    }

    async fn plan_anew(&self, plan: &LogicalPlan, session: &dyn Session) -> Result<Arc<dyn ExecutionPlan>> {
        let to_device = copy_to_device(plan);
        let plan = to_device.as_ref().unwrap_or(plan);
        let explains = matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_));
        let state = session.as_any().downcast_ref::<SessionState>().filter(|_| explains);
        match state.cloned() {
            Some(mut state) => {
                explaining(&mut state);
                // What fails is a row of EXPLAIN, and no error.
                if let LogicalPlan::Explain(explain) = plan
                    && let Err(error) = self.planned_once(&explain.plan, &state).await
                    && let Some(unbounded) = without_bounds(&state, &error)
                {
                    state = unbounded;
                }
                if let LogicalPlan::Analyze(Analyze { verbose: true, .. }) = plan {
                    counting_lanes(&mut state);
                }
                let planned = self.plan_by_inner(plan, &state).await?;
                Ok(AnalyzedExec::over(planned, &self.engine))
            }
            None => self.plan_by_inner(plan, session).await,
        }
    }

    async fn plan_by_inner(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = self.planned_once(plan, session).await;
        let Err(error) = planned else { return planned };
        match without_bounds(session, &error) {
            Some(state) => self.planned_once(plan, &state).await.map_err(|_| error),
            None => Err(error),
        }
    }

    async fn planned_once(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match &self.inner {
            Some(inner) => inner.create_physical_plan(&apart(plan.clone())?, session).await,
            None => {
                let shared = Arc::new(SharedPlanner::default());
                let planner = DefaultPhysicalPlanner::with_extension_planners(vec![shared]);
                planner.create_physical_plan(plan, session).await
            }
        }
    }
}

// `async_trait` writes methods so, with a body that would be proven to be `Send` under bounds of lifetimes, for which the compiler
// goes through all types of DataFusion's plans anew, for seconds. `planned` has no such bounds.
impl QueryPlanner for KelpiePlanner {
    fn create_physical_plan<'a, 'b, 'c, 'd>(
        &'a self,
        plan: &'b LogicalPlan,
        session: &'c dyn Session,
    ) -> PlanFuture<'d>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        self.planned(plan, session)
    }
}

/// A state that plans without the bounds of columns, where they may be why a plan was refused: how many rows fulfil a condition, DataFusion
/// estimates by least and greatest values, and gets them wrong, or their types, of differences of dates and of casts.
fn without_bounds(session: &dyn Session, error: &DataFusionError) -> Option<SessionState> {
    use DataFusionError::{ArrowError, Internal, NotImplemented, Plan};
    let options = KelpieOptions::of(session.config_options());
    let may_be_why = matches!(error.find_root(), ArrowError(..) | Internal(_) | NotImplemented(_) | Plan(_));
    if !options.corrections || options.without_bounds || !may_be_why {
        return None;
    }
    let mut state = session.as_any().downcast_ref::<SessionState>()?.clone();
    let options = &mut state.config_mut().options_mut().extensions;
    options.get_mut::<KelpieOptions>()?.without_bounds = true;
    Some(state)
}

/// Makes kernels of a state's plans count lanes.
fn counting_lanes(state: &mut SessionState) {
    if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<KelpieOptions>() {
        options.counts_lanes = true;
    }
}

/// Makes plans of a state say what is not compiled, and why.
pub(crate) fn explaining(state: &mut SessionState) {
    if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<KelpieOptions>() {
        options.explaining = true;
    }
}
