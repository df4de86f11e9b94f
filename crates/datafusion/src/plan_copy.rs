//! Copies of physical plans in which nothing has run.
//!
//! A plan that is kept is never run itself: every query runs a copy of its own, so that queries share nothing and metrics do
//! not add up. DataFusion's operators have state of three kinds:
//! - what one operator holds for itself (a build side, metrics): a copy made by `replace_children` or `reset_state` has its own;
//! - *dynamic filters*: a join, a sort with a limit or an aggregation tightens them while it runs, and scans below read them.
//!   `reset_state` leaves the scans with the old filter, so each copy gets new filters at both ends;
//! - *results of scalar subqueries*: `ScalarSubqueryExec` writes them, and expressions below read them. Each copy gets a new
//!   place for them at both ends.
//!
//! A copy of a generic plan also gets the values of its parameters.
//!
//! An operator that is not listed here is not copied, as nobody knows what it shares.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{internal_err, not_impl_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{
    ArrowSource, CsvSource, FileScanConfig, FileScanConfigBuilder, FileSource, JsonSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{DynamicFilterPhysicalExpr, lit};
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::buffer::BufferExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PiecewiseMergeJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::sorts::partial_sort::PartialSortExec;
use datafusion::physical_plan::sorts::partitioned_topk::PartitionedTopKExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

use crate::corrections::nan::plan::OneNanExec;
use crate::exec::KelpieExec;
use crate::outer_constants::OuterRowsExec;
use crate::parameters::{ParametersExec, Values};
use crate::reader_source::ReaderSource;
use crate::received::ReceivedExec;
use crate::recursive_terms::KeptRowsExec;
use crate::series::SeriesExec;

type Node = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;

/// A copy of a plan that shares no state with it.
pub fn copy(plan: &Node) -> Result<Node> {
    copy_with(plan, None)
}

/// The same with other values of the parameters of a generic plan.
pub fn copy_with(plan: &Node, values: Option<&Values>) -> Result<Node> {
    Copier { values: values.cloned(), ..Copier::default() }.copy(plan)
}

/// An error where a plan cannot be copied, or where a copy would share state after all. What compiled parts replace counts
/// too: it runs where they fall back.
pub fn check(plan: &Node) -> Result<()> {
    let mut copier = Copier { checks: true, ..Copier::default() };
    copier.copy(plan).map(|_| ())
}

#[derive(Default)]
struct Copier {
    /// Whether every copied node is looked over for state that it shares.
    checks: bool,
    /// By the identity of the filter that each stands for.
    filters: HashMap<u64, Arc<DynamicFilterPhysicalExpr>>,
    /// Old and new places of the results of subqueries.
    results: Vec<(ScalarSubqueryResults, ScalarSubqueryResults)>,
    /// Those of a copy's parameters.
    values: Option<Values>,
}

impl Copier {
    fn copy(&mut self, node: &Node) -> Result<Node> {
        if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
            // What a part with parameters replaces never runs.
            if self.checks && !compiled.is_generic() {
                check(compiled.original())?;
            }
            return Ok(Arc::new(compiled.unused(self.values.as_ref())?));
        }
        if let (Some(parameters), Some(values)) = (node.downcast_ref::<ParametersExec>(), &self.values) {
            return Ok(Arc::new(parameters.with_values(values)));
        }
        // What has no state is shared.
        let is_constant = node.downcast_ref::<ReceivedExec>().is_some_and(ReceivedExec::is_constant);
        if is_constant || node.is::<SeriesExec>() {
            return Ok(Arc::clone(node));
        }
        if !is_known(node) {
            return not_impl_err!("{} is not known to be copied", node.name());
        }
        let filter = self.new_filter(node)?;
        if let Some(exec) = node.downcast_ref::<ScalarSubqueryExec>() {
            return self.subqueries(exec);
        }
        let children = node.children().into_iter().map(|child| self.copy(child));
        let children = children.collect::<Result<Vec<_>>>()?;
        let copy = self.with_children(node, children, filter)?;
        if self.checks {
            self.look_over(&copy)?;
        }
        Ok(copy)
    }

    /// The filter of a copy, where a node tightens one while it runs.
    fn new_filter(&mut self, node: &Node) -> Result<Option<Arc<DynamicFilterPhysicalExpr>>> {
        let produced = node.dynamic_expressions_produced();
        let expr = match produced.as_slice() {
            [] => return Ok(None),
            [expr] => expr,
            _ => return not_impl_err!("{} has several dynamic filters", node.name()),
        };
        let (Some(old), Some(id)) = (expr.downcast_ref::<DynamicFilterPhysicalExpr>(), expr.expression_id())
        else {
            return not_impl_err!("{} has a dynamic filter of an unknown kind", node.name());
        };
        let columns = old.children().into_iter().cloned().collect();
        let filter = Arc::new(DynamicFilterPhysicalExpr::new(columns, lit(true)));
        self.filters.insert(id, Arc::clone(&filter));
        Ok(Some(filter))
    }

    fn with_children(
        &self,
        node: &Node,
        children: Vec<Node>,
        filter: Option<Arc<DynamicFilterPhysicalExpr>>,
    ) -> Result<Node> {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
            return self.scan(scan);
        }
        if let Some(exec) = node.downcast_ref::<FilterExec>()
            && let Some(predicate) = self.renewed(exec.predicate())?
        {
            let [input] = only(children)?;
            let builder = FilterExecBuilder::from(exec).with_input(input).with_predicate(predicate);
            return Ok(Arc::new(builder.build()?));
        }
        if let Some(exec) = node.downcast_ref::<ProjectionExec>()
            && let Some(exprs) = self.renewed_projection(exec)?
        {
            let [input] = only(children)?;
            let copy = ProjectionExec::try_new(exprs, input)?;
            return match copy.schema() == exec.schema() {
                true => Ok(Arc::new(copy)),
                false => not_impl_err!("a projection whose schema is its own"),
            };
        }
        if let (Some(aggregate), Some(filter)) = (node.downcast_ref::<AggregateExec>(), &filter) {
            return bounding(aggregate, children, filter);
        }
        if node.is::<KeptRowsExec>() {
            let [input] = only(children)?;
            return Ok(Arc::new(KeptRowsExec::new(input)));
        }
        let keep = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        let copy = Arc::clone(node).replace_children(children, keep)?;
        if let Some(join) = copy.downcast_ref::<HashJoinExec>() {
            let join = join.builder().reset_state().build()?;
            return match filter {
                Some(filter) => Ok(Arc::new(join.with_dynamic_filter_expr(filter)?)),
                None => Ok(Arc::new(join)),
            };
        }
        if copy.is::<SortExec>() {
            let copy = copy.reset_state()?;
            return match (copy.downcast_ref::<SortExec>(), filter) {
                (Some(sort), Some(filter)) => Ok(Arc::new(sort.clone().with_dynamic_filter_expr(filter)?)),
                _ => Ok(copy),
            };
        }
        Ok(copy)
    }

    fn scan(&self, scan: &DataSourceExec) -> Result<Node> {
        let predicate = scan.data_source().downcast_ref::<FileScanConfig>().and_then(|config| {
            let parquet = config.file_source().downcast_ref::<ParquetSource>()?;
            Some((config, parquet, parquet.filter()?))
        });
        if let Some((config, parquet, predicate)) = predicate
            && let Some(predicate) = self.renewed(&predicate)?
        {
            let source = Arc::new(parquet.with_predicate(predicate));
            let config = FileScanConfigBuilder::from(config.clone()).with_source(source).build();
            return Ok(Arc::new(scan.clone().with_data_source(Arc::new(config))));
        }
        let copy: Node = Arc::new(scan.clone());
        copy.reset_state()
    }

    fn subqueries(&mut self, exec: &ScalarSubqueryExec) -> Result<Node> {
        let places = exec.subqueries().iter().map(|link| link.index.as_usize() + 1).max();
        let results = ScalarSubqueryResults::new(places.unwrap_or(0));
        // A subquery of a subquery has places of its own.
        let subqueries = exec
            .subqueries()
            .iter()
            .map(|link| Ok(ScalarSubqueryLink { plan: self.copy(&link.plan)?, index: link.index }));
        let subqueries = subqueries.collect::<Result<Vec<_>>>()?;
        self.results.push((exec.results().clone(), results.clone()));
        let input = self.copy(exec.input());
        self.results.pop();
        Ok(Arc::new(ScalarSubqueryExec::new(input?, subqueries, results)))
    }

    /// An expression with the copy's filters and results; `None` where it reads neither.
    fn renewed(&self, expr: &Expr) -> Result<Option<Expr>> {
        let renewed = Arc::clone(expr).transform_down(|part| {
            let new = match self.counterpart(&part)? {
                Some(new) => new,
                None => return Ok(Transformed::no(part)),
            };
            Ok(Transformed::new(new, true, TreeNodeRecursion::Jump))
        })?;
        Ok(renewed.transformed.then_some(renewed.data))
    }

    /// What stands in a copy for a part of an expression that has state.
    fn counterpart(&self, part: &Expr) -> Result<Option<Expr>> {
        if part.is::<DynamicFilterPhysicalExpr>() {
            let filter = part.expression_id().and_then(|id| self.filters.get(&id));
            // A filter that nobody tightens, as the operator was replaced, stays the constant that it is.
            let Some(filter) = filter else { return Ok(None) };
            let columns = part.children().into_iter().cloned().collect();
            return Arc::clone(filter).with_new_children(columns).map(Some);
        }
        let Some(subquery) = part.downcast_ref::<ScalarSubqueryExpr>() else { return Ok(None) };
        let results = self.results.iter().find(|(old, _)| old == subquery.results());
        let Some((_, results)) = results else { return Ok(None) };
        let field = subquery.return_field(&Schema::empty())?;
        #[expect(deprecated, reason = "nothing else tells which of the results it reads")]
        let index = subquery.index();
        let data_type = field.data_type().clone();
        let new = ScalarSubqueryExpr::new(data_type, field.is_nullable(), index, results.clone());
        Ok(Some(Arc::new(new)))
    }

    fn renewed_projection(&self, exec: &ProjectionExec) -> Result<Option<Vec<ProjectionExpr>>> {
        let mut any = false;
        let renewed = exec.expr().iter().map(|projected| {
            let new = self.renewed(&projected.expr)?;
            any |= new.is_some();
            let expr = new.unwrap_or_else(|| Arc::clone(&projected.expr));
            Ok(ProjectionExpr { expr, alias: projected.alias.clone() })
        });
        let renewed = renewed.collect::<Result<Vec<_>>>()?;
        Ok(any.then_some(renewed))
    }

    /// An error where a copied node reads filters of the plan that it was copied from, or results that are not the copy's.
    fn look_over(&self, copy: &Node) -> Result<()> {
        let mut shared = false;
        copy.apply_expressions(&mut |root| {
            root.apply(|part| {
                if part.is::<DynamicFilterPhysicalExpr>() {
                    shared |= part.expression_id().is_some_and(|id| self.filters.contains_key(&id));
                    // Its parts are its columns.
                    return Ok(TreeNodeRecursion::Jump);
                }
                if let Some(subquery) = part.downcast_ref::<ScalarSubqueryExpr>() {
                    shared |= self.results.iter().all(|(_, new)| new != subquery.results());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        match shared {
            true => not_impl_err!("{} shares state with another operator", copy.name()),
            false => Ok(()),
        }
    }
}

/// A copy of an aggregation that bounds a scan by the least or greatest value so far. Those bounds are its state; only a node
/// that is made anew has its own.
fn bounding(
    aggregate: &AggregateExec,
    children: Vec<Node>,
    filter: &Arc<DynamicFilterPhysicalExpr>,
) -> Result<Node> {
    let [input] = only(children)?;
    let copy = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        aggregate.aggr_expr().to_vec(),
        aggregate.filter_expr().to_vec(),
        input,
        aggregate.input_schema(),
    )?;
    if copy.schema() != aggregate.schema() {
        return not_impl_err!("an aggregation whose schema is its own");
    }
    let copy = copy.with_limit_options(aggregate.limit_options());
    Ok(Arc::new(copy.with_dynamic_filter_expr(Arc::clone(filter))?))
}

fn only<const N: usize>(children: Vec<Node>) -> Result<[Node; N]> {
    match children.try_into() {
        Ok(children) => Ok(children),
        Err(_) => internal_err!("an operator has another number of inputs than its kind"),
    }
}

macro_rules! is_any {
    ($node:expr, $($kind:ty),* $(,)?) => { $($node.is::<$kind>())||* };
}

/// Whether all of a node's state is known, and a copy has its own.
fn is_known(node: &Node) -> bool {
    if let Some(scan) = node.downcast_ref::<DataSourceExec>() {
        let source = scan.data_source();
        let files = source.downcast_ref::<FileScanConfig>().map(FileScanConfig::file_source);
        return source.downcast_ref::<MemorySourceConfig>().is_some()
            || files.is_some_and(|files| {
                is_any!(files, ParquetSource, CsvSource, JsonSource, ArrowSource, ReaderSource)
            });
    }
    is_any!(
        node, AggregateExec, BoundedWindowAggExec, BufferExec, CoalescePartitionsExec, CooperativeExec,
        CrossJoinExec, EmptyExec, FilterExec, GlobalLimitExec, HashJoinExec, InterleaveExec, KeptRowsExec,
        LocalLimitExec, NestedLoopJoinExec, OneNanExec, OuterRowsExec, OutputRequirementExec, ParametersExec,
        PartialSortExec, PartitionedTopKExec, PiecewiseMergeJoinExec, PlaceholderRowExec, ProjectionExec,
        RecursiveQueryExec, RepartitionExec, ScalarSubqueryExec, SortExec, SortMergeJoinExec,
        SortPreservingMergeExec, UnionExec, UnnestExec, WindowAggExec, WorkTableExec,
    )
}
