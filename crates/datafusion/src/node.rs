//! Nodes of DataFusion's physical plans.

use std::sync::Arc;

use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::corrections::nan::plan::OneNanExec;

/// A node.
pub(crate) type Node = Arc<dyn ExecutionPlan>;

/// The input of a node that hands its rows on unchanged, in whatever order and partition.
pub(crate) fn pass_through(node: &Node) -> Option<&Node> {
    let known = node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<RepartitionExec>()
        || node.is::<BufferExec>()
        || node.is::<OutputRequirementExec>()
        // What is compiled reads so by itself.
        || node.is::<OneNanExec>()
        || node.name() == "OuterRowsExec"
        || node.name() == "KeptRowsExec"
        || node.name() == "CoalesceBatchesExec";
    match node.children().as_slice() {
        [input] if known => Some(input),
        _ => None,
    }
}

/// Whether it has rows that are elements of lists.
pub(crate) fn unnests(node: &Node) -> bool {
    node.is::<UnnestExec>() || node.children().into_iter().any(unnests)
}

/// The name of a node, with the kind of a join.
pub(crate) fn name_of(node: &Node) -> String {
    use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec};
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        format!("HashJoinExec ({})", join.join_type())
    } else if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        format!("NestedLoopJoinExec ({})", join.join_type())
    } else {
        node.name().into()
    }
}

/// How many partitions it has.
pub(crate) fn partition_count(node: &Node) -> usize {
    node.output_partitioning().partition_count()
}
