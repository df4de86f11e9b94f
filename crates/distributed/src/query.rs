//! A query on workers while it runs.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedExec, DistributedExt, NetworkBoundaryExt, Stage};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use uuid::Uuid;

use crate::cluster::Cluster;
use crate::errors::lost_worker;
use crate::settings;
use crate::stage::Node;

/// A query whose stages run on workers.
///
/// Where a worker is lost and no rows were delivered yet, the query runs again on the others. Once rows were delivered, it fails: others
/// might come in another order.
#[derive(Clone)]
pub(crate) struct ClusterExec {
    /// Cut into stages.
    plan: Node,
    cluster: Arc<Cluster>,
    metrics: ExecutionPlanMetricsSet,
    /// As it ran last.
    ran: Arc<Mutex<Option<Node>>>,
}

impl fmt::Debug for ClusterExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterExec").field(&self.plan).finish()
    }
}

impl ClusterExec {
    pub fn new(plan: Node, cluster: Arc<Cluster>) -> ClusterExec {
        ClusterExec { plan, cluster, metrics: ExecutionPlanMetricsSet::new(), ran: Arc::default() }
    }

    /// The plan as it ran, which has what its tasks did; absent before.
    pub fn ran(&self) -> Option<Node> {
        self.ran.lock().clone()
    }

    async fn start(self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let context = with_settings(&context)?;
        let schema = self.schema();
        loop {
            self.cluster.refresh().await?;
            let plan = renewed(&self.plan)?;
            *self.ran.lock() = Some(Arc::clone(&plan));
            let mut rows = plan.execute(0, Arc::clone(&context))?;
            match rows.next().await {
                Some(Err(error)) if self.goes_on_without(&error) => {}
                Some(Err(error)) => return Err(error),
                first => {
                    let first = stream::iter(first);
                    return Ok(Box::pin(RecordBatchStreamAdapter::new(
                        schema,
                        first.chain(self.noting(rows)),
                    )));
                }
            }
        }
    }

    /// Whether a query that has failed runs again, without the worker that was lost.
    fn goes_on_without(&self, error: &DataFusionError) -> bool {
        let goes_on = lost_worker(error).is_some_and(|worker| self.cluster.leave_out(&worker));
        if goes_on {
            MetricBuilder::new(&self.metrics).counter("runs_without_lost_workers", 0).add(1);
        }
        goes_on
    }

    /// The rest of the rows; a worker that is lost on the way gets no stages of the next queries.
    fn noting(self, rows: SendableRecordBatchStream) -> impl futures::Stream<Item = Result<RecordBatch>> {
        rows.inspect_err(move |error| {
            if let Some(worker) = lost_worker(error) {
                self.cluster.leave_out(&worker);
            }
        })
    }
}

/// The context of a query, with the session's settings for those that run its stages.
fn with_settings(context: &Arc<TaskContext>) -> Result<Arc<TaskContext>> {
    let config = context.session_config();
    let headers = settings::headers(config.options())?;
    let config = config.clone().with_distributed_passthrough_headers(headers)?;
    Ok(Arc::new(TaskContext::new(
        context.task_id(),
        context.session_id(),
        config,
        context.scalar_functions().clone(),
        context.higher_order_functions().clone(),
        context.aggregate_functions().clone(),
        context.window_functions().clone(),
        context.runtime_env(),
    )))
}

/// The plan under a new name for its workers: tasks of an earlier run may still be known to them.
fn renewed(plan: &Node) -> Result<Node> {
    let query = Uuid::new_v4();
    let Some(distributed) = plan.downcast_ref::<DistributedExec>() else {
        return internal_err!("a query for workers has no stages");
    };
    let [stages] = distributed.children()[..] else {
        return internal_err!("a query for workers has no plan");
    };
    let renamed = Arc::clone(stages).transform_up(|node| {
        let Some(boundary) = node.as_network_boundary() else { return Ok(Transformed::no(node)) };
        let Stage::Local(stage) = boundary.input_stage() else { return Ok(Transformed::no(node)) };
        let mut stage = stage.clone();
        stage.query_id = query;
        let boundary = boundary.with_input_stage(Stage::Local(stage))?;
        Ok(Transformed::yes(boundary as Node))
    })?;
    Ok(Arc::new(DistributedExec::new(renamed.data).with_metrics_collection(true)))
}

impl DisplayAs for ClusterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterExec: workers={}", self.cluster.present().len())
    }
}

impl ExecutionPlan for ClusterExec {
    fn name(&self) -> &str {
        "ClusterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.plan]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(self: Arc<Self>, mut children: Vec<Node>, _: ReplaceChildrenOptions) -> Result<Node> {
        match (children.pop(), children.is_empty()) {
            (Some(plan), true) => Ok(Arc::new(ClusterExec::new(plan, Arc::clone(&self.cluster)))),
            _ => internal_err!("ClusterExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("ClusterExec has one partition, not {partition}");
        }
        let rows = stream::once(self.clone().start(context)).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}
