//! Constants of the side of an outer join that may be missing. DataFusion takes a column that is 1 on that side (`SELECT 1 AS c`, `WHERE
//! n = 'one'`) for one that is 1 in all rows of the join, and drops `ORDER BY c`. Likewise it takes columns of ROLLUP, CUBE and GROUPING SETS
//! for equal, constant or in an order where they are so below, though a set leaves some of them NULL. And it takes `f` for 2 where
//! `CAST(f AS int) = 2`, and `i` where `i / 2 = 1`. Here such a node gets one above it that knows better.

use std::fmt;
use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
};

use crate::node::Node;
use crate::node_methods::{one_input, rows_of_input};
use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;

/// Puts such nodes above outer joins, grouping sets and filters.
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
/// sets over columns that are equal, constant or in order, or is a filter by what several values become.
fn has_constants(node: &Node) -> bool {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return !node.equivalence_properties().constants().is_empty() && joins_values(filter.predicate());
    }
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

/// Whether an expression has a cast or a quotient, which are the same of several values.
fn joins_values(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let is_quotient = |expr: &BinaryExpr| *expr.op() == Operator::Divide;
    expr.is::<CastExpr>()
        || expr.downcast_ref::<BinaryExpr>().is_some_and(is_quotient)
        || expr.children().into_iter().any(joins_values)
}

/// The rows of a join, a filter or of grouping sets, of which nothing is known.
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

    fn with_input(&self, input: Node) -> OuterRowsExec {
        OuterRowsExec::new(input)
    }
}

impl DisplayAs for OuterRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OuterRowsExec")
    }
}

impl ExecutionPlan for OuterRowsExec {
    one_input!("OuterRowsExec");
    rows_of_input!();

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}
