//! Rows that a query makes of nothing but constants: a series of days, the elements of a list that is written out.
//!
//! They are few, and DataFusion's operators make them; but what reads tables beside them is to be compiled. So such a part of a plan becomes
//! a leaf, whose rows are there before what is compiled begins. Longer series are made as they are asked for (`crate::series`).

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::NestedLoopJoinExec;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

use crate::node::{Node, partition_count, pass_through, unnests};
use crate::options::KelpieOptions;
use crate::received::ReceivedExec;
use crate::recursion_guard::with_room;
use crate::rule::has_endless_pairs;
use crate::series::{SeriesExec, with_series};

/// Makes leaves of such parts of a plan that reads tables.
#[derive(Debug)]
pub struct ConstantRows;

impl PhysicalOptimizerRule for ConstantRows {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let options = KelpieOptions::of(config);
        if !options.enabled || options.for_workers {
            return Ok(plan);
        }
        let made = || {
            let plan = with_series(Arc::clone(&plan))?.data;
            if !reads(&plan, true) {
                return Ok(plan);
            }
            let makes_rows = |node: &Node| unnests(node) || has_series(node);
            let made = plan.transform_down(|node| match makes_rows(&node) && is_constant(&node)? {
                true => {
                    let leaf = Arc::new(ReceivedExec::of_constants(node)) as Node;
                    Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
                }
                false => Ok(Transformed::no(node)),
            });
            made.map(|made| made.data)
        };
        with_room(&plan, made)
    }

    fn name(&self) -> &str {
        "kelpie_constant_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Series of at most so many values are kept as a whole.
const KEPT_ROWS: usize = 1 << 22;

/// Whether a plan reads a table, or has what DataFusion's operators take long for: windows, and so many pairs of rows that its nested loops do
/// not end, not even when they are cancelled. Other queries of constants are theirs, as are pairs that are the result: they are handed on as
/// they are found.
fn reads(node: &Node, is_result: bool) -> bool {
    let is_window = node.is::<WindowAggExec>() || node.is::<BoundedWindowAggExec>();
    let is_endless = has_endless_pairs(node) && (!is_result || node.is::<NestedLoopJoinExec>());
    let is_result = is_result && (node.is::<ProjectionExec>() || pass_through(node).is_some());
    is_window
        || is_endless
        || node.is::<DataSourceExec>()
        || node.children().into_iter().any(|child| reads(child, is_result))
}

/// Whether a node's rows are the same each time, and made on one thread without any table.
fn is_constant(node: &Node) -> Result<bool> {
    let is_known = node.is::<ProjectionExec>() || node.is::<FilterExec>() || node.is::<UnnestExec>();
    let mut changes = false;
    node.apply_expressions(&mut |expr| {
        // The value of a subquery is there only once that has run.
        changes |= is_volatile(expr) || expr.exists(|part| Ok(part.is::<ScalarSubqueryExpr>()))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    match node.children()[..] {
        [] => {
            let is_short = |series: &SeriesExec| {
                let rows = series.rows();
                rows.get_value().is_some_and(|rows| *rows <= KEPT_ROWS)
            };
            let is_row = node.is::<PlaceholderRowExec>() && partition_count(node) == 1;
            Ok(is_row || node.downcast_ref::<SeriesExec>().is_some_and(is_short))
        }
        [input] if is_known && !changes => is_constant(input),
        _ => Ok(false),
    }
}

fn has_series(node: &Node) -> bool {
    node.is::<SeriesExec>() || node.children().into_iter().any(has_series)
}
