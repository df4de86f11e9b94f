//! Expressions that only the first rows in some order need are computed of these rows alone.
//!
//! `SELECT md5(url) … ORDER BY t LIMIT 10` is planned as a projection below the sort, which computes its expressions of every row. What the
//! sort does not look at is moved above it, unless it may fail: then the query fails, whichever row it is. DataFusion's rule that moves
//! projections down is kept from moving it back.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{LexOrdering, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;

use crate::join_order::may_fail;
use crate::node::{Node, pass_through};
use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;

/// Rows that a sort keeps at most: of more, expressions are better computed by all threads.
const MOST_ROWS: usize = 10_000;

/// Moves such expressions above the sort.
#[derive(Debug)]
pub struct LateProjections;

impl PhysicalOptimizerRule for LateProjections {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        if !KelpieOptions::of(config).enabled {
            return Ok(plan);
        }
        let moved = || {
            let moved = Arc::clone(&plan).transform_up(|node| match moved(&node)? {
                Some(late) => Ok(Transformed::yes(late)),
                None => Ok(Transformed::no(node)),
            });
            moved.map(|moved| moved.data)
        };
        with_room(&plan, moved)
    }

    fn name(&self) -> &str {
        "kelpie_late_projections"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The input of a projection that computes something of the few rows that a sort below it keeps.
fn late_projection(node: &Node) -> Option<&Node> {
    let projection = node.downcast_ref::<ProjectionExec>()?;
    let computes = projection.expr().iter().any(|column| !column.expr.is::<Column>());
    (computes && keeps_few(projection.input())).then(|| projection.input())
}

fn keeps_few(node: &Node) -> bool {
    let few = |fetch: Option<usize>| fetch.is_some_and(|fetch| fetch <= MOST_ROWS);
    if let Some(sort) = node.downcast_ref::<SortExec>() {
        return few(sort.fetch());
    }
    if let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() {
        return few(merge.fetch()) || keeps_few(merge.input());
    }
    pass_through(node).is_some_and(keeps_few)
}

/// A plan to which a rule is applied below its last projection, if that is a late one.
pub(crate) fn below_late(node: Node, rule: &dyn Fn(Node) -> Result<Node>) -> Result<Node> {
    let inner = match node.children()[..] {
        [input] if late_projection(&node).is_some() => Some(rule(Arc::clone(input))?),
        [input] if !node.is::<FilterExec>() && leads_to_late(input) => {
            Some(below_late(Arc::clone(input), rule)?)
        }
        _ => None,
    };
    match inner {
        Some(inner) => replace_children_if_necessary(node, vec![inner]),
        None => rule(node),
    }
}

/// The input of a node that computes nothing but what it hands on of a late projection, or of that projection itself.
pub(crate) fn above_late(node: &Node) -> Option<&Node> {
    match node.children()[..] {
        [input] if leads_to_late(node) => Some(input),
        _ => None,
    }
}

fn leads_to_late(node: &Node) -> bool {
    match node.children()[..] {
        [_] if late_projection(node).is_some() => true,
        [input] => (node.is::<ProjectionExec>() || pass_through(node).is_some()) && leads_to_late(input),
        _ => false,
    }
}

/// The sort with what it does not look at computed above it; `None` where there is nothing to move.
fn moved(node: &Node) -> Result<Option<Node>> {
    let Some(sort) = node.downcast_ref::<SortExec>() else { return Ok(None) };
    let Some(projection) = sort.input().downcast_ref::<ProjectionExec>() else { return Ok(None) };
    if sort.fetch().is_none_or(|fetch| fetch > MOST_ROWS) {
        return Ok(None);
    }
    let (outputs, schema) = (projection.expr(), projection.input().schema());
    let keys: Vec<usize> =
        sort.expr().iter().flat_map(|key| collect_columns(&key.expr)).map(|c| c.index()).collect();
    let is_late = |(place, output): (usize, &ProjectionExpr)| {
        let computes = !output.expr.is::<Column>() && !output.expr.is::<Literal>();
        computes
            && !keys.contains(&place)
            && !is_volatile(&output.expr)
            && !may_fail(output.expr.as_ref(), &schema)
    };
    let late: Vec<bool> = outputs.iter().enumerate().map(is_late).collect();
    if !late.contains(&true) {
        return Ok(None);
    }
    let mut early = Early::of(outputs, &late);
    let above = outputs.iter().zip(&late).enumerate().map(|(place, (output, is_late))| {
        let expr = if *is_late { early.moved(&output.expr, &schema)? } else { early.column(place) };
        Ok(ProjectionExpr { expr, alias: output.alias.clone() })
    });
    let above = above.collect::<Result<Vec<_>>>()?;
    let keys = sort.expr().iter().map(|key| {
        let expr = Arc::clone(&key.expr).transform_up(|expr| match expr.downcast_ref::<Column>() {
            Some(column) => Ok(Transformed::yes(early.column(column.index()))),
            None => Ok(Transformed::no(expr)),
        })?;
        Ok(PhysicalSortExpr { expr: expr.data, options: key.options })
    });
    let Some(keys) = LexOrdering::new(keys.collect::<Result<Vec<_>>>()?) else { return Ok(None) };
    let below = ProjectionExec::try_new(early.outputs, Arc::clone(projection.input()))?;
    let sorted = SortExec::new(keys, Arc::new(below))
        .with_fetch(sort.fetch())
        .with_preserve_partitioning(sort.preserve_partitioning());
    let above = ProjectionExec::try_new(above, Arc::new(sorted))?;
    let is_alike = datafusion::physical_plan::ExecutionPlan::schema(&above) == node.schema();
    Ok(is_alike.then(|| Arc::new(above) as Node))
}

/// What is computed below the sort.
struct Early {
    outputs: Vec<ProjectionExpr>,
    /// Of each output of the whole projection, its place there, if it is below.
    places: Vec<Option<usize>>,
}

impl Early {
    fn of(outputs: &[ProjectionExpr], late: &[bool]) -> Early {
        let mut early = Early { outputs: Vec::new(), places: Vec::new() };
        for (output, is_late) in outputs.iter().zip(late) {
            early.places.push((!is_late).then_some(early.outputs.len()));
            if !is_late {
                early.outputs.push(output.clone());
            }
        }
        early
    }

    /// A column of the rows that are sorted, by its place among all outputs, which is below.
    fn column(&self, output: usize) -> Arc<dyn PhysicalExpr> {
        let place = self.places.get(output).copied().flatten().unwrap_or_default();
        self.at(place)
    }

    fn at(&self, place: usize) -> Arc<dyn PhysicalExpr> {
        let name = self.outputs.get(place).map_or("", |output| output.alias.as_str());
        Arc::new(Column::new(name, place))
    }

    /// An expression over the sort's rows, to which the columns that it reads are added.
    fn moved(&mut self, expr: &Arc<dyn PhysicalExpr>, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
        let moved = Arc::clone(expr).transform_up(|expr| match expr.downcast_ref::<Column>() {
            Some(column) => Ok(Transformed::yes(self.read(column, schema))),
            None => Ok(Transformed::no(expr)),
        })?;
        Ok(moved.data)
    }

    /// A column of the input as the sort's rows have it.
    fn read(&mut self, column: &Column, schema: &SchemaRef) -> Arc<dyn PhysicalExpr> {
        let is_it = |output: &ProjectionExpr| {
            output.expr.downcast_ref::<Column>().is_some_and(|known| known.index() == column.index())
        };
        if let Some(place) = self.outputs.iter().position(is_it) {
            return self.at(place);
        }
        let name = schema.field(column.index()).name();
        let is_taken = self.outputs.iter().any(|output| output.alias == *name);
        let alias = if is_taken { format!("{name} of {}", column.index()) } else { name.clone() };
        self.outputs.push(ProjectionExpr { expr: Arc::new(column.clone()), alias });
        self.at(self.outputs.len() - 1)
    }
}
