//! Operators with more stack than their thread has.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::Result;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{OrderingRequirements, PhysicalExpr};
use datafusion::physical_plan::distribution_requirements::InputDistributionRequirements;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, InvariantLevel, replace_children_if_necessary,
};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::Stream;
use kelpie_engine::with_stack;

use super::shape::{Shape, own_exprs};
use crate::exec::KelpieExec;

/// Levels of expressions and of operators that DataFusion's operators evaluate on any stack.
const SHALLOW: usize = 48;
/// Every so many levels of operators, a deep plan gets a stack of its own.
const SPAN: usize = 16;
/// What execution takes that is not deep, and for a level, in a build without optimization.
const BASE_BYTES: usize = 1 << 20;
const LEVEL_BYTES: usize = 6 << 10;

type Node = Arc<dyn ExecutionPlan>;

/// Whether [`protect`] leaves a plan as it is.
pub fn is_shallow(plan: &Node) -> bool {
    let shape = Shape::of(plan);
    shape.levels <= SHALLOW && shape.expr_levels <= SHALLOW
}

/// The plan with deep parts guarded: their operators run, and are dropped, with as much stack as they need. Most plans stay
/// as they are.
pub fn protect(plan: Node) -> Result<Node> {
    let shape = Shape::of(&plan);
    if shape.levels <= SHALLOW && shape.expr_levels <= SHALLOW {
        return Ok(plan);
    }
    // Whoever drops the root may drop all of it.
    let bytes = bytes_of(shape.levels.saturating_mul(2) + shape.expr_levels);
    let guarded = with_stack(bytes, || guarded(&plan, 1))?;
    Ok(Arc::new(Guard { inner: Some(guarded), bytes }))
}

fn bytes_of(levels: usize) -> usize {
    BASE_BYTES + levels.saturating_mul(LEVEL_BYTES)
}

fn guarded(node: &Node, level: usize) -> Result<Node> {
    let children = node.children().into_iter().map(|child| guarded(child, level + 1));
    let node = replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)?;
    let expr_levels = match node.downcast_ref::<KelpieExec>() {
        Some(compiled) => {
            let shape = Shape::of(compiled.original());
            shape.levels + shape.expr_levels
        }
        None => own_exprs(&node).0,
    };
    match expr_levels > SHALLOW || level.is_multiple_of(SPAN) {
        true => Ok(Arc::new(Guard { inner: Some(node), bytes: bytes_of(expr_levels + SPAN) })),
        false => Ok(node),
    }
}

/// Stands for an operator and gives it stack; everything else is the operator's.
struct Guard {
    /// Absent only while it is dropped.
    inner: Option<Node>,
    bytes: usize,
}

impl Guard {
    fn around(&self, inner: Node) -> Node {
        Arc::new(Guard { inner: Some(inner), bytes: self.bytes })
    }

    fn inner(&self) -> &Node {
        match &self.inner {
            Some(inner) => inner,
            None => unreachable!("a guard is used while it is dropped"),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            with_stack(self.bytes, || drop(inner));
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_stack(self.bytes, || self.inner().fmt(f))
    }
}

impl DisplayAs for Guard {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_stack(self.bytes, || self.inner().fmt_as(format, f))
    }
}

impl ExecutionPlan for Guard {
    fn name(&self) -> &str {
        self.inner().name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.inner().as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.inner().properties()
    }

    fn check_invariants(&self, check: InvariantLevel) -> Result<()> {
        self.inner().check_invariants(check)
    }

    fn dynamic_expressions_produced(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner().dynamic_expressions_produced()
    }

    fn input_distribution_requirements(&self) -> InputDistributionRequirements {
        self.inner().input_distribution_requirements()
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        self.inner().required_input_ordering()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.inner().maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.inner().benefits_from_input_partitioning()
    }

    fn children(&self) -> Vec<&Node> {
        self.inner().children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.inner().apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Node>,
        options: ReplaceChildrenOptions,
    ) -> Result<Node> {
        let inner = Arc::clone(self.inner());
        Ok(self.around(with_stack(self.bytes, || inner.replace_children(children, options))?))
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Node> {
        let inner = Arc::clone(self.inner());
        Ok(self.around(inner.reset_state()?))
    }

    fn with_new_state(&self, state: Arc<dyn Any + Send + Sync>) -> Option<Node> {
        Some(self.around(self.inner().with_new_state(state)?))
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let stream = with_stack(self.bytes, || self.inner().execute(partition, context))?;
        Ok(Box::pin(GuardStream { schema: stream.schema(), stream: Some(stream), bytes: self.bytes }))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.inner().metrics()
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        with_stack(self.bytes, || self.inner().statistics_from_inputs(inputs, arguments))
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        self.inner().child_stats_requests(partition)
    }

    fn supports_limit_pushdown(&self) -> bool {
        self.inner().supports_limit_pushdown()
    }

    fn fetch(&self) -> Option<usize> {
        self.inner().fetch()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.inner().cardinality_effect()
    }
}

/// An operator's rows, computed and dropped with as much stack as it needs.
struct GuardStream {
    schema: SchemaRef,
    /// Absent once it has ended.
    stream: Option<SendableRecordBatchStream>,
    bytes: usize,
}

impl Stream for GuardStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let this = &mut *self;
        with_stack(this.bytes, || {
            let Some(stream) = &mut this.stream else { return Poll::Ready(None) };
            let next = stream.as_mut().poll_next(cx);
            if let Poll::Ready(None) = next {
                this.stream = None;
            }
            next
        })
    }
}

impl RecordBatchStream for GuardStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for GuardStream {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take() {
            with_stack(self.bytes, || drop(stream));
        }
    }
}
