//! Kelpie's one partition among DataFusion's many.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_expr::expressions::UnKnownColumn;
use datafusion::physical_expr::{AcrossPartitions, ConstExpr, EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlanProperties, Partitioning};

use crate::node::Node;

/// What holds of all rows of a plan, in the order that `translate::ordered` gives them, where each partition by itself
/// promises it: an order of several partitions is the one that they are merged to, and what is constant in each need not
/// be the same in all.
pub(crate) fn merged_properties(node: &Node) -> EquivalenceProperties {
    let mut properties = node.equivalence_properties().clone();
    if node.output_partitioning().partition_count() > 1 {
        properties.clear_orderings();
        properties.clear_per_partition_constants();
        if let Some(ordering) = node.output_ordering() {
            properties.add_ordering(ordering.clone());
        }
    }
    properties
}

/// Whether all that each partition of a node promises can be kept when they become one and are dealt out anew: several orders,
/// and orders by what is constant in each partition but not in all, cannot.
pub(super) fn keeps_promises(node: &Node) -> bool {
    let properties = node.equivalence_properties();
    let differs = |constant: &ConstExpr| constant.across_partitions == AcrossPartitions::Heterogeneous;
    node.output_partitioning().partition_count() == 1
        || properties.oeq_class().len() <= 1 && !properties.constants().iter().any(differs)
}

/// A node of one partition with the partitions of the one that it replaces, as the nodes above were planned for them: joins
/// of two sides that are partitioned alike, windows, and whatever works on all cores. Rows stay in order.
pub(super) fn spread(compiled: Node, replaced: &Node) -> Result<Node> {
    let partitioning = match replaced.output_partitioning() {
        partitioning if partitioning.partition_count() == 1 => return Ok(compiled),
        // By columns that a projection dropped: nothing above can ask for that.
        Partitioning::Hash(keys, _) if keys.iter().any(is_unknown) => round_robin(replaced),
        Partitioning::Range(range) if range.ordering().iter().any(|key| is_unknown(&key.expr)) => {
            round_robin(replaced)
        }
        Partitioning::UnknownPartitioning(_) => round_robin(replaced),
        partitioning => partitioning.clone(),
    };
    Ok(Arc::new(RepartitionExec::try_new(compiled, partitioning)?))
}

fn round_robin(replaced: &Node) -> Partitioning {
    Partitioning::RoundRobinBatch(replaced.output_partitioning().partition_count())
}

fn is_unknown(key: &Arc<dyn PhysicalExpr>) -> bool {
    key.exists(|part| Ok(part.is::<UnKnownColumn>())).unwrap_or(true)
}

/// Whether it does not matter to a node and those above it how many partitions an input has; `above`: whether that is so of
/// the node's own.
pub(super) fn any_partitions_below(node: &Node, above: bool) -> bool {
    node.is::<CoalescePartitionsExec>()
        || node.downcast_ref::<RepartitionExec>().is_some_and(|node| !node.preserve_order())
        || above && node.is::<UnionExec>()
}
