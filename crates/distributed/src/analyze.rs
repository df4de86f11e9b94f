//! EXPLAIN ANALYZE of a query on workers: its stages with what their tasks did.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use datafusion_distributed::{DistributedMetricsFormat, explain_analyze};
use futures::{StreamExt, stream};
use tokio::time::timeout;

use crate::query::ClusterExec;
use crate::stage::Node;

/// How long what the tasks did may take to come, after the query has ended.
const COUNTED: Duration = Duration::from_secs(10);

/// Runs a query on workers for what it does.
#[derive(Debug)]
pub(crate) struct AnalyzeClusterExec {
    query: Arc<ClusterExec>,
    input: Node,
    verbose: bool,
    properties: Arc<PlanProperties>,
}

impl AnalyzeClusterExec {
    /// In the place of DataFusion's.
    pub fn new(analyze: &AnalyzeExec, query: ClusterExec) -> AnalyzeClusterExec {
        let query = Arc::new(query);
        let properties = Arc::clone(analyze.properties());
        AnalyzeClusterExec {
            input: Arc::clone(&query) as Node,
            query,
            verbose: analyze.verbose(),
            properties,
        }
    }
}

/// The query's stages, once it has run: summed up over their tasks, and with `verbose` by task too.
async fn analyzed(
    query: Arc<ClusterExec>,
    verbose: bool,
    mut rows: SendableRecordBatchStream,
    schema: SchemaRef,
) -> Result<RecordBatch> {
    let start = Instant::now();
    let mut count = 0;
    while let Some(batch) = rows.next().await.transpose()? {
        count += batch.num_rows();
    }
    let took = start.elapsed();
    let mut lines: Vec<(&str, String)> = Vec::new();
    if let Some(ran) = query.ran() {
        lines.push(("Plan with Metrics", counted(&ran, DistributedMetricsFormat::Aggregated).await?));
        if verbose {
            lines.push(("Plan with Full Metrics", counted(&ran, DistributedMetricsFormat::PerTask).await?));
        }
    }
    if verbose {
        lines.push(("Output Rows", count.to_string()));
        lines.push(("Duration", format!("{took:?}")));
    }
    let column = |values: Vec<&str>| Arc::new(StringArray::from(values)) as ArrayRef;
    let kinds = column(lines.iter().map(|(kind, _)| *kind).collect());
    let texts = column(lines.iter().map(|(_, text)| text.as_str()).collect());
    Ok(RecordBatch::try_new(schema, vec![kinds, texts])?)
}

async fn counted(ran: &Node, format: DistributedMetricsFormat) -> Result<String> {
    match timeout(COUNTED, explain_analyze(Arc::clone(ran), format)).await {
        Ok(text) => text,
        Err(_) => internal_err!("what the tasks of the query did has not come from all workers"),
    }
}

impl DisplayAs for AnalyzeClusterExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnalyzeClusterExec: verbose={}", self.verbose)
    }
}

impl ExecutionPlan for AnalyzeClusterExec {
    fn name(&self) -> &str {
        "AnalyzeClusterExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(self: Arc<Self>, mut children: Vec<Node>, _: ReplaceChildrenOptions) -> Result<Node> {
        let query = children.pop().filter(|_| children.is_empty());
        let query = query.as_ref().and_then(|query| query.downcast_ref::<ClusterExec>()).cloned();
        let Some(query) = query else {
            return internal_err!("AnalyzeClusterExec has one child, a ClusterExec");
        };
        let query = Arc::new(query);
        Ok(Arc::new(AnalyzeClusterExec {
            input: Arc::clone(&query) as Node,
            query,
            verbose: self.verbose,
            properties: Arc::clone(&self.properties),
        }))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let rows = self.input.execute(partition, context)?;
        let batch = analyzed(Arc::clone(&self.query), self.verbose, rows, self.schema());
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(batch))))
    }
}
