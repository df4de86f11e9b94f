//! A statement's plan cut into stages for workers, or kept in this process with the reason.
//!
//! A query is planned as DataFusion would run it in one process, with Kelpie's order of joins; the rules that compile leave it alone
//! (`KelpieOptions::for_workers`). `datafusion-distributed` cuts that plan into stages, and the node [`StageExec`] goes to the top of
//! each: whoever runs a stage compiles it. A query that is too small to be cut, or that workers would not understand, is planned
//! again as in any session.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use datafusion::catalog::Session;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::{LogicalPlan, PlanType, StringifiedPlan};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::explain::ExplainExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};
use datafusion_distributed::{
    BroadcastExec, DistributedExec, NetworkBoundaryExt, SessionStateBuilderExt, Stage,
};
use kelpie_datafusion::wire::with_names_apart;
use kelpie_session::{Engine, KelpieOptions};

use crate::analyze::AnalyzeClusterExec;
use crate::cluster::Cluster;
use crate::query::ClusterExec;
use crate::sending::{Inspector, check_written};
use crate::stage::{Node, StageExec};

type PlanFuture<'a> = Pin<Box<dyn Future<Output = Result<Node>> + Send + 'a>>;

/// The planner of sessions whose queries run on workers.
pub(crate) struct ClusterPlanner {
    cluster: Arc<Cluster>,
    engine: Arc<Engine>,
}

impl std::fmt::Debug for ClusterPlanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ClusterPlanner").field(&self.cluster).finish()
    }
}

/// How a query runs.
enum Plan {
    OnWorkers(ClusterExec),
    /// In this process, and why.
    Here(String),
}

impl ClusterPlanner {
    pub fn new(cluster: Arc<Cluster>, engine: Arc<Engine>) -> ClusterPlanner {
        ClusterPlanner { cluster, engine }
    }

    fn planned<'a>(&'a self, logical: &'a LogicalPlan, session: &'a dyn Session) -> PlanFuture<'a> {
        Box::pin(async move {
            let local = DefaultPhysicalPlanner::default();
            let Some(state) = session.as_any().downcast_ref::<SessionState>() else {
                return local.create_physical_plan(logical, session).await;
            };
            if let LogicalPlan::Explain(explain) = logical {
                let shown = local.create_physical_plan(logical, session).await?;
                return self.explained(shown, &explain.plan, state).await;
            }
            let whole = local.create_physical_plan(logical, &for_workers(state)).await?;
            match self.distributed(&whole, state).await? {
                Plan::OnWorkers(query) => around(&whole, query),
                Plan::Here(_) => local.create_physical_plan(logical, session).await,
            }
        })
    }

    /// An EXPLAIN whose physical plan is the one with stages, or which says why there are none.
    async fn explained(&self, shown: Node, logical: &LogicalPlan, state: &SessionState) -> Result<Node> {
        let Some(explain) = shown.downcast_ref::<ExplainExec>() else { return Ok(shown) };
        let local = DefaultPhysicalPlanner::default();
        // What cannot be planned is in the text already.
        let Ok(whole) = local.create_physical_plan(logical, &for_workers(state)).await else {
            return Ok(shown);
        };
        let mut lines = explain.stringified_plans().to_vec();
        let kind = PlanType::FinalPhysicalPlan;
        match self.distributed(&whole, state).await? {
            Plan::OnWorkers(query) => {
                let query: Node = Arc::new(query);
                let text =
                    DisplayableExecutionPlan::new(query.as_ref()).indent(explain.verbose()).to_string();
                lines.retain(|line| line.plan_type != kind);
                lines.push(StringifiedPlan::new(kind, text));
            }
            Plan::Here(reason) => {
                lines.push(StringifiedPlan::new(kind, format!("not distributed: {reason}")));
            }
        }
        Ok(Arc::new(ExplainExec::new(explain.schema(), lines, explain.verbose())))
    }

    async fn distributed(&self, whole: &Node, state: &SessionState) -> Result<Plan> {
        let query = query_of(whole);
        if reads_nothing(query) {
            return Ok(Plan::Here("it reads no table".into()));
        }
        self.cluster.refresh().await?;
        let named = with_names_apart(Arc::clone(query))?;
        let stages = with_stages(Arc::clone(&named), state).await?;
        if !stages.is::<DistributedExec>() {
            return Ok(Plan::Here("its tables are too small to be shared out".into()));
        }
        if let Some(reason) = self.refusal(&named) {
            return Ok(Plan::Here(reason));
        }
        let options = KelpieOptions::of(state.config_options());
        // EXPLAIN ANALYZE shows what was done, not what would be.
        let engine = (options.explaining && !whole.is::<AnalyzeExec>()).then_some(&self.engine);
        let compiled = Compiling { engine, config: state.config_options() }.query(&stages)?;
        Ok(Plan::OnWorkers(ClusterExec::new(compiled, Arc::clone(&self.cluster))))
    }

    /// Why a plan is not sent: as a whole, since its stages are parts of it.
    fn refusal(&self, plan: &Node) -> Option<String> {
        let worker = &self.cluster.worker;
        match Inspector::of(worker).refusal(plan) {
            Some(unsendable) => Some(unsendable.to_string()),
            None => check_written(plan, worker).err().map(|error| error.strip_backtrace()),
        }
    }
}

// Written out, as in `kelpie_session`: the body of an `async_trait` is proven to be `Send` anew under bounds of lifetimes.
impl QueryPlanner for ClusterPlanner {
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

/// The state by which a plan is made whose stages others compile.
fn for_workers(state: &SessionState) -> SessionState {
    let mut state = state.clone();
    if let Some(options) = state.config_mut().options_mut().extensions.get_mut::<KelpieOptions>() {
        options.for_workers = true;
    }
    state
}

/// The query of a plan: without what writes its rows, or counts what it does.
fn query_of(plan: &Node) -> &Node {
    match plan.children()[..] {
        [input] if plan.is::<DataSinkExec>() || plan.is::<AnalyzeExec>() => query_of(input),
        _ => plan,
    }
}

/// What is around a query, around it on workers.
fn around(plan: &Node, query: ClusterExec) -> Result<Node> {
    match plan.children()[..] {
        [input] if plan.is::<DataSinkExec>() => {
            replace_children_if_necessary(Arc::clone(plan), vec![around(input, query)?])
        }
        _ => Ok(match plan.downcast_ref::<AnalyzeExec>() {
            Some(analyze) => Arc::new(AnalyzeClusterExec::new(analyze, query)),
            None => Arc::new(query),
        }),
    }
}

fn reads_nothing(node: &Node) -> bool {
    use datafusion::datasource::source::DataSourceExec;
    !node.is::<DataSourceExec>() && node.children().into_iter().all(reads_nothing)
}

/// A plan cut into stages by the library; the plan itself where it does not cut it.
async fn with_stages(plan: Node, state: &SessionState) -> Result<Node> {
    let mut builder =
        SessionStateBuilder::new().with_query_planner(Arc::new(Planned(plan))).with_distributed_planner();
    match builder.query_planner().take() {
        // Whatever the statement is: its plan is there.
        Some(library) => library.create_physical_plan(&LogicalPlan::default(), state).await,
        None => datafusion::common::internal_err!("the distributed planner is none"),
    }
}

/// A planner of one plan.
#[derive(Debug)]
struct Planned(Node);

impl QueryPlanner for Planned {
    fn create_physical_plan<'a, 'b, 'c, 'd>(
        &'a self,
        _: &'b LogicalPlan,
        _: &'c dyn Session,
    ) -> PlanFuture<'d>
    where
        'a: 'd,
        'b: 'd,
        'c: 'd,
        Self: 'd,
    {
        Box::pin(async { Ok(Arc::clone(&self.0)) })
    }
}

/// Puts [`StageExec`] to the top of stages.
struct Compiling<'a> {
    /// Where the plan is explained: by which is told what workers will make of it.
    engine: Option<&'a Arc<Engine>>,
    config: &'a ConfigOptions,
}

impl Compiling<'_> {
    fn query(&self, stages: &Node) -> Result<Node> {
        let [plan] = stages.children()[..] else { return Ok(Arc::clone(stages)) };
        let plan = Arc::clone(plan).transform_up(|node| {
            let Some(boundary) = node.as_network_boundary() else { return Ok(Transformed::no(node)) };
            let Stage::Local(stage) = boundary.input_stage() else { return Ok(Transformed::no(node)) };
            let mut stage = stage.clone();
            stage.plan = self.stage(stage.plan)?;
            Ok(Transformed::yes(boundary.with_input_stage(Stage::Local(stage))? as Node))
        })?;
        // The last stage runs in this process.
        let last = if computes(&plan.data) { self.compiled(plan.data)? } else { plan.data };
        Ok(Arc::new(DistributedExec::new(last).with_metrics_collection(true)))
    }

    /// A stage, below what hands its rows to others.
    fn stage(&self, plan: Node) -> Result<Node> {
        let hands_on = plan.is::<RepartitionExec>() || plan.is::<BroadcastExec>();
        match plan.children()[..] {
            [input] if hands_on => {
                let input = self.compiled(Arc::clone(input))?;
                replace_children_if_necessary(plan, vec![input])
            }
            _ => self.compiled(plan),
        }
    }

    fn compiled(&self, plan: Node) -> Result<Node> {
        // The rows of a scan or of another stage are only handed on.
        if plan.children().is_empty() || plan.is_network_boundary() {
            return Ok(plan);
        }
        Ok(match self.engine {
            Some(engine) => Arc::new(StageExec::explained(plan, engine, self.config)?),
            None => Arc::new(StageExec::new(plan)),
        })
    }
}

/// Whether a stage does more than to merge the rows of others.
fn computes(node: &Node) -> bool {
    if node.is_network_boundary() {
        return false;
    }
    let own = node.is::<AggregateExec>()
        || node.is::<SortExec>()
        || node.is::<HashJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.is::<WindowAggExec>()
        || node.is::<BoundedWindowAggExec>();
    own || node.children().into_iter().any(computes)
}
