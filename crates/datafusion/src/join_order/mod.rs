//! The order of joins, by cost.
//!
//! DataFusion joins in the order of the FROM clause and only swaps sides. [`JoinOrderRule`] runs after that: it
//! takes maximal trees of inner, semi and anti joins apart (`flatten`), estimates what each part keeps (`statistics`,
//! `selectivity`, `dictionary`, `model`), looks for the cheapest order (`graph`, `enumerate`), and builds that (`rebuild`), with the
//! same columns on top. Before that, `outer_anti` makes anti joins of outer joins of which only the rows without a match are kept, and
//! `reduce` drops rows below aggregates that nothing above asks for. A tree whose order is good already stays as it is, as does one of which no statistics are known.

mod dictionary;
mod enumerate;
mod failing;
mod flatten;
mod graph;
mod model;
mod outer_anti;
mod rebuild;
mod reduce;
mod selectivity;
mod statistics;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::projection::ProjectionExec;

pub(crate) use failing::may_fail;

use crate::clock::timed;
use crate::options::KelpieOptions;
use crate::recursion_guard::{Shape, with_room};
use flatten::{Flat, is_tree, map_leaves};
use graph::NodeSet;
use kelpie_engine::Phase;
use rebuild::Rebuild;
use statistics::Estimator;

/// The rows that a plan is estimated to have, where anything is known of its tables.
pub(crate) fn rows_estimate(node: &Arc<dyn ExecutionPlan>) -> Option<f64> {
    statistics::estimate(node, &Estimator::default()).map(|estimate| estimate.rows)
}

/// Orders joins by cost, where `kelpie.join_order` is on. To be registered after DataFusion's `JoinSelection` and
/// `FilterPushdown`, before `EnsureRequirements`.
#[derive(Default)]
pub struct JoinOrderRule {
    estimator: Estimator,
}

impl JoinOrderRule {
    /// A rule that may look at the footers of Parquet files that a session has read: pass the session's runtime.
    pub fn new(runtime: &RuntimeEnv) -> JoinOrderRule {
        let footers = Some(runtime.cache_manager.get_file_metadata_cache());
        JoinOrderRule { estimator: Estimator { footers } }
    }
}

impl fmt::Debug for JoinOrderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinOrderRule").finish_non_exhaustive()
    }
}

/// What every step needs.
#[derive(Clone, Copy)]
struct Planning<'a> {
    config: &'a ConfigOptions,
    estimator: &'a Estimator,
}

type Node = Arc<dyn ExecutionPlan>;

/// The rows that a plan is taken to give; `None` where not even those of its tables are known.
pub(crate) fn estimated_rows(node: &Node) -> Option<f64> {
    statistics::estimate(node, &Estimator::default()).map(|estimate| estimate.rows)
}

impl PhysicalOptimizerRule for JoinOrderRule {
    fn name(&self) -> &str {
        "kelpie_join_order"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        match KelpieOptions::of(config).join_order {
            // What is not compiled for its size is not ordered either: both take time that grows faster than the plan.
            true if Shape::of(&plan).refusal().is_none() => {
                let planning = Planning { config, estimator: &self.estimator };
                timed(Phase::JoinOrder, || {
                    with_room(&plan, || ordered(&outer_anti::with_anti_joins(&plan)?, planning))
                })
            }
            true => Ok(plan),
            false => Ok(plan),
        }
    }
}

/// The plan with every tree of joins in it ordered, the innermost first.
fn ordered(node: &Node, planning: Planning<'_>) -> Result<Node> {
    if is_tree(node) {
        let tree = with_ordered_leaves(node, planning)?;
        return Ok(reordered(&tree, planning)?.unwrap_or(tree));
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>()
        && is_tree(projection.input())
    {
        return projected(node, projection, planning);
    }
    let reduced = reduce::reduced_outer(node, planning.estimator)?;
    let node = reduced.as_ref().unwrap_or(node);
    let children = node.children().into_iter().map(|child| ordered(child, planning));
    replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)
}

/// A tree whose leaves are ordered, after what other leaves make superfluous in them is dropped.
fn with_ordered_leaves(tree: &Node, planning: Planning<'_>) -> Result<Node> {
    let reductions = reduce::reductions(tree, planning.estimator)?;
    map_leaves(tree, &mut |leaf| {
        let reduced = reductions.iter().find(|(old, _)| Arc::ptr_eq(old, leaf));
        ordered(reduced.map_or(leaf, |(_, new)| new), planning)
    })
}

/// A projection that computes something over a tree: the tree need not carry what the projection does not read.
fn projected(node: &Node, projection: &ProjectionExec, planning: Planning<'_>) -> Result<Node> {
    let tree = with_ordered_leaves(projection.input(), planning)?;
    let schema = tree.schema();
    let mut read: Vec<usize> = projection
        .expr()
        .iter()
        .flat_map(|e| collect_columns(&e.expr))
        .map(|column| column.index())
        .collect();
    read.sort_unstable();
    read.dedup();
    let column = |i: &usize| {
        let name = schema.field(*i).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, *i)), alias: name.clone() }
    };
    let narrow: Node = match read.is_empty() {
        true => Arc::clone(&tree),
        false => Arc::new(ProjectionExec::try_new(read.iter().map(column), Arc::clone(&tree))?),
    };
    let Some(better) = reordered(&narrow, planning)? else {
        return replace_children_if_necessary(Arc::clone(node), vec![tree]);
    };
    let position = |c: &Column| Some(Column::new(c.name(), read.binary_search(&c.index()).ok()?));
    let moved = projection.expr().iter().map(|e| {
        let expr = flatten::replace_columns(&e.expr, &position).ok_or_else(rebuild::lost)?;
        Ok(ProjectionExpr { expr, alias: e.alias.clone() })
    });
    let moved = moved.collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(ProjectionExec::try_new_with_schema_metadata(moved, better, &projection.schema())?))
}

/// An order is only worth a new plan where it costs less than this share of the old one, beyond what every order costs (each
/// input is read once): estimates are not exact.
const WORTH: f64 = 0.9;

/// A tree in the cheapest order; `None` where it has that already or nothing is known of it.
fn reordered(tree: &Node, planning: Planning<'_>) -> Result<Option<Node>> {
    let mut flat = Flat::default();
    let Some(subtree) = flat.add(tree) else { return Ok(None) };
    let Some(model) = model::model(&flat, planning.estimator) else { return Ok(None) };
    let Some((order, cost)) = enumerate::best_order(&model.graph) else { return Ok(None) };
    let least: f64 = model.graph.all().iter().map(|node| model.graph.input_rows(NodeSet::of(node))).sum();
    match enumerate::cost(&model.graph, &subtree.tree) {
        Some(before) if cost - least >= WORTH * (before - least) => return Ok(None),
        _ => {}
    }
    if !failing::keeps_guards(&flat, &subtree.tree, &order) {
        return Ok(None);
    }
    let rebuild = Rebuild {
        flat: &flat,
        graph: &model.graph,
        class_of: &model.class_of,
        outputs: &subtree.outputs,
        config: planning.config,
    };
    let better = rebuild.plan(&order, &tree.schema())?;
    Ok((better.schema() == tree.schema()).then_some(better))
}
