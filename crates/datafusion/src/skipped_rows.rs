//! `ORDER BY y OFFSET 1` in a query whose column `y` nobody reads. What shows the other columns then stands between the sort and the node
//! that skips rows, and DataFusion drops the sort, as it sees no order there that anything could ask for. Here rows are skipped first.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::node::Node;
use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;

/// Skips rows below what computes columns of them.
#[derive(Debug)]
pub struct SkippedRows;

impl PhysicalOptimizerRule for SkippedRows {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        if !KelpieOptions::of(config).corrections {
            return Ok(plan);
        }
        with_room(&plan, || Ok(Arc::clone(&plan).transform_down(skipping_first)?.data))
    }

    fn name(&self) -> &str {
        "kelpie_skipped_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn skipping_first(node: Node) -> Result<Transformed<Node>> {
    let Some(limit) = node.downcast_ref::<GlobalLimitExec>().filter(|limit| limit.fetch().is_none()) else {
        return Ok(Transformed::no(node));
    };
    let Some(shown) = limit.input().downcast_ref::<ProjectionExec>() else {
        return Ok(Transformed::no(node));
    };
    let skipped = Arc::new(GlobalLimitExec::new(Arc::clone(shown.input()), limit.skip(), None));
    Ok(Transformed::yes(replace_children_if_necessary(Arc::clone(limit.input()), vec![skipped])?))
}
