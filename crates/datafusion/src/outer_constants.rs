//! Constants of the side of an outer join that may be missing. DataFusion takes a column that is 1 on that side (`SELECT 1 AS c`, `WHERE
//! n = 'one'`) for one that is 1 in all rows of the join, and drops `ORDER BY c`. Likewise it takes columns of ROLLUP, CUBE and GROUPING SETS
//! for equal, constant or in an order where they are so below, though a set leaves some of them NULL. Here such a node gets one above it
//! that knows better.

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Statistics, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    PlanProperties, ReplaceChildrenOptions,
};

use crate::node::Node;
use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;

/// Puts such nodes above outer joins and grouping sets.
#[derive(Debug)]
pub struct OuterConstants;

impl PhysicalOptimizerRule for OuterConstants {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        if !KelpieOptions::of(config).corrections {
            return Ok(plan);
        }
        let original = Arc::clone(&plan);
        let made = || -> Result<Node> {
            let made = original.transform_up(|node| match has_constants(&node) {
                true => Ok(Transformed::yes(Arc::new(OuterRowsExec::new(node)) as Node)),
                false => Ok(Transformed::no(node)),
            })?;
            Ok(made.data)
        };
        with_room(&plan, made)
    }

    fn name(&self) -> &str {
        "kelpie_outer_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether more is known of a node's rows than holds: it is an outer join with constants on a side that may be missing, or has grouping
/// sets over columns that are equal, constant or in order.
fn has_constants(node: &Node) -> bool {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let known = node.equivalence_properties();
        return aggregate.group_expr().has_grouping_set()
            && (!known.eq_group().is_empty() || !known.oeq_class().is_empty());
    }
    let hash = node.downcast_ref::<HashJoinExec>().map(|join| *join.join_type());
    let nested = || node.downcast_ref::<NestedLoopJoinExec>().map(|join| *join.join_type());
    let merge = || node.downcast_ref::<SortMergeJoinExec>().map(SortMergeJoinExec::join_type);
    let Some(kind) = hash.or_else(nested).or_else(merge) else { return false };
    let children = node.children();
    let [left, right] = children.as_slice() else { return false };
    let known = |side: &Node| !side.equivalence_properties().constants().is_empty();
    match kind {
        JoinType::Left => known(right),
        JoinType::Right => known(left),
        JoinType::Full => known(left) || known(right),
        _ => false,
    }
}

/// The rows of a join or of grouping sets, of which nothing is known.
#[derive(Debug)]
pub(crate) struct OuterRowsExec {
    input: Node,
    properties: Arc<PlanProperties>,
}

impl OuterRowsExec {
    pub(crate) fn new(input: Node) -> OuterRowsExec {
        // Neither is an order: a sort that goes by its columns would be made below, where one of them is taken for constant.
        let equivalences = EquivalenceProperties::new(input.schema());
        let properties = input.properties().as_ref().clone().with_eq_properties(equivalences);
        OuterRowsExec { input, properties: Arc::new(properties) }
    }
}

impl DisplayAs for OuterRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OuterRowsExec")
    }
}

impl ExecutionPlan for OuterRowsExec {
    fn name(&self) -> &str {
        "OuterRowsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.input]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Node>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Node> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => Ok(Arc::new(OuterRowsExec::new(input))),
            _ => internal_err!("OuterRowsExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("OuterRowsExec has one child"),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
