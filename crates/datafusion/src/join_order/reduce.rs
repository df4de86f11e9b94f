//! Semi-join reductions: rows that cannot matter are dropped below an aggregate.
//!
//! A decorrelated subquery aggregates a whole table by the key that it is joined on, though the query may only ask for few
//! values of that key (TPC-H Q2, Q17, Q20). Where another input of the same tree of joins has few values of an equal
//! column, the aggregate's input is semi-joined with it first: groups of other keys find no partner anyway. That input
//! is then computed twice, so it must be a filtered table, or groups of one, and much smaller than what is aggregated. The same holds
//! for the side of an outer join whose rows are dropped where they find no partner.

use std::sync::Arc;

use datafusion::common::{JoinType, NullEquality};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{replace_children_if_necessary, reset_plan_states};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;

use super::flatten::{Flat, Item, ReducerItem, is_volatile};
use super::model::classes;
use super::statistics::{Estimator, estimate};
use crate::node::pass_through;

type Node = Arc<dyn ExecutionPlan>;

/// A reduction must leave at most this share of the keys.
const LARGEST_SHARE: f64 = 0.25;
/// And read at most so many rows for each that is aggregated: a filtered scan is far cheaper than an aggregate.
const LARGEST_EFFORT: f64 = 2.0;

/// Few values of a key.
struct Filter<'a> {
    plan: &'a Node,
    column: usize,
    share: f64,
    base_rows: f64,
}

impl Filter<'_> {
    /// Whether it is worth to leave out others of so many rows.
    fn pays(&self, rows: f64) -> bool {
        self.share <= LARGEST_SHARE && self.base_rows <= LARGEST_EFFORT * rows
    }
}

/// Leaves of a tree, and what is to stand in their place.
pub(crate) fn reductions(tree: &Node, estimator: &Estimator) -> Result<Vec<(Node, Node)>> {
    let mut flat = Flat::default();
    if flat.add(tree).is_none() || !flat.items.iter().any(|item| aggregate(item.plan()).is_some()) {
        return Ok(Vec::new());
    }
    let (class_of, _) = classes(&flat);
    let mut found = Vec::new();
    for (node, item) in flat.items.iter().enumerate() {
        let Some(rows) = aggregate(item.plan()).and_then(|aggregate| estimate(aggregate.input(), estimator))
        else {
            continue;
        };
        let mut best: Option<(usize, Filter<'_>)> = None;
        for (class, column) in keys(item, &class_of) {
            if group_input(item.plan(), column).is_none() {
                continue;
            }
            for filter in filters(&flat, node, class, &class_of, estimator) {
                if filter.pays(rows.rows) && best.as_ref().is_none_or(|(_, old)| filter.share < old.share) {
                    best = Some((column, filter));
                }
            }
        }
        if let Some((column, filter)) = best
            && let Some(reduced) = reduced(item.plan(), column, &filter)?
        {
            found.push((Arc::clone(item.plan()), reduced));
        }
    }
    Ok(found)
}

/// The columns of an item that must equal a class: of a row whose key is not among the class's values, nothing is seen.
fn keys(item: &Item, class_of: &[Option<usize>]) -> Vec<(usize, usize)> {
    match item {
        Item::Relation { plan, first } => {
            let classes = (0..plan.schema().fields().len()).map(|i| (class_of[first + i], i));
            classes.filter_map(|(class, i)| Some((class?, i))).collect()
        }
        Item::Reducer(reducer) => reducer_keys(reducer, class_of),
    }
}

fn reducer_keys(reducer: &ReducerItem, class_of: &[Option<usize>]) -> Vec<(usize, usize)> {
    if reducer.null_aware || reducer.null_equality != NullEquality::NullEqualsNothing {
        return Vec::new();
    }
    let key = |(column, inner): &(usize, Arc<dyn PhysicalExpr>)| {
        Some((class_of[*column]?, inner.downcast_ref::<Column>()?.index()))
    };
    reducer.keys.iter().filter_map(key).collect()
}

/// The filtered tables of a tree, other than one of its items, that hold values of a class.
fn filters<'a>(
    flat: &'a Flat,
    but: usize,
    class: usize,
    class_of: &[Option<usize>],
    estimator: &Estimator,
) -> Vec<Filter<'a>> {
    let others = flat.items.iter().enumerate().filter(|(node, item)| {
        let dropping = matches!(item, Item::Reducer(reducer) if reducer.anti);
        *node != but && !dropping
    });
    let filter = |(_, item): (usize, &'a Item)| {
        let (_, column) = keys(item, class_of).into_iter().find(|(known, _)| *known == class)?;
        filter_of(item.plan(), column, estimator)
    };
    others.filter_map(filter).collect()
}

/// The filtered table that has all values of a column of a plan, by itself or below groups by it.
fn filter_of<'a>(plan: &'a Node, column: usize, estimator: &Estimator) -> Option<Filter<'a>> {
    if !is_filtered_table(plan) {
        let (input, column) = origin(plan, column)?;
        return filter_of(input, column, estimator);
    }
    let known = estimate(plan, estimator)?;
    let values = known.columns.get(column)?;
    let domain = values.domain.unwrap_or(known.base_rows).max(1.0);
    let share = values.distinct_of(known.rows) / domain;
    Some(Filter { plan, column, share, base_rows: known.base_rows })
}

/// An outer join whose groups of the side that is dropped where it finds no partner are made of rows that may find one; `None` where
/// that does not pay.
pub(crate) fn reduced_outer(node: &Node, estimator: &Estimator) -> Result<Option<Node>> {
    let Some(join) = node.downcast_ref::<HashJoinExec>() else { return Ok(None) };
    let (kept, dropped) = match join.join_type() {
        JoinType::Left => (join.left(), join.right()),
        JoinType::Right => (join.right(), join.left()),
        _ => return Ok(None),
    };
    let Some(rows) = aggregate(dropped).and_then(|aggregate| estimate(aggregate.input(), estimator)) else {
        return Ok(None);
    };
    if join.null_equality() != NullEquality::NullEqualsNothing {
        return Ok(None);
    }
    for (left, right) in join.on() {
        let is_left = *join.join_type() == JoinType::Left;
        let (own, other) = if is_left { (left, right) } else { (right, left) };
        let (Some(own), Some(other)) = (own.downcast_ref::<Column>(), other.downcast_ref::<Column>()) else {
            continue;
        };
        if group_input(dropped, other.index()).is_none() {
            continue;
        }
        let Some(filter) = filter_of(kept, own.index(), estimator) else { continue };
        if !filter.pays(rows.rows) {
            continue;
        }
        let Some(reduced) = reduced(dropped, other.index(), &filter)? else { continue };
        let children =
            if is_left { vec![Arc::clone(kept), reduced] } else { vec![reduced, Arc::clone(kept)] };
        return replace_children_if_necessary(Arc::clone(node), children).map(Some);
    }
    Ok(None)
}

/// A scan below filters and projections.
fn is_filtered_table(node: &Node) -> bool {
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return filter.fetch().is_none()
            && !is_volatile(filter.predicate())
            && is_filtered_table(filter.input());
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let stable = projection.expr().iter().all(|e| !is_volatile(&e.expr));
        return stable && is_filtered_table(projection.input());
    }
    node.is::<DataSourceExec>() && node.fetch().is_none()
}

/// The lowest aggregate below projections and filters.
fn aggregate(node: &Node) -> Option<&AggregateExec> {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return match aggregate.mode() {
            AggregateMode::Final | AggregateMode::FinalPartitioned => self::aggregate(aggregate.input()),
            _ => Some(aggregate),
        };
    }
    match node.downcast_ref::<ProjectionExec>() {
        Some(projection) => aggregate(projection.input()),
        None => match node.downcast_ref::<FilterExec>() {
            Some(filter) => aggregate(filter.input()),
            None => aggregate(pass_through(node)?),
        },
    }
}

/// The input of a node that a column of it comes from unchanged, and its position there; of an aggregate only a key.
fn origin(node: &Node, column: usize) -> Option<(&Node, usize)> {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let group = aggregate.group_expr();
        let plain = !group.has_grouping_set() && group.groups().len() <= 1;
        let (key, _) = group.expr().get(column).filter(|_| plain)?;
        return Some((aggregate.input(), key.downcast_ref::<Column>()?.index()));
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let expr = &projection.expr().get(column)?.expr;
        return Some((projection.input(), expr.downcast_ref::<Column>()?.index()));
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let index = match filter.projection() {
            Some(columns) => *columns.get(column)?,
            None => column,
        };
        return (filter.fetch().is_none() && !is_volatile(filter.predicate()))
            .then_some((filter.input(), index));
    }
    Some((pass_through(node).filter(|_| node.fetch().is_none())?, column))
}

/// Whether a node is the step of an aggregate that reads its input's rows.
fn reads_rows(node: &Node) -> bool {
    node.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        !matches!(aggregate.mode(), AggregateMode::Final | AggregateMode::FinalPartitioned)
    })
}

/// The column of the lowest aggregate's input that is the group key behind a column.
fn group_input(node: &Node, column: usize) -> Option<usize> {
    let (input, index) = origin(node, column)?;
    if reads_rows(node) { Some(index) } else { group_input(input, index) }
}

/// The plan with the aggregate's input semi-joined.
fn reduced(node: &Node, column: usize, filter: &Filter<'_>) -> Result<Option<Node>> {
    let Some((input, index)) = origin(node, column) else { return Ok(None) };
    let input = match reads_rows(node) {
        true => semi_join(filter, input, index)?,
        false => reduced(input, index, filter)?,
    };
    input.map(|input| replace_children_if_necessary(Arc::clone(node), vec![input])).transpose()
}

fn semi_join(filter: &Filter<'_>, input: &Node, column: usize) -> Result<Option<Node>> {
    // Plans keep state while they run, so the copy must be one of its own.
    let plan = reset_plan_states(Arc::clone(filter.plan))?;
    let (schema, input_schema) = (plan.schema(), input.schema());
    let key = |schema: &datafusion::arrow::datatypes::Schema, index: usize| -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(schema.field(index).name(), index))
    };
    if schema.field(filter.column).data_type() != input_schema.field(column).data_type() {
        return Ok(None);
    }
    let alias = schema.field(filter.column).name().clone();
    let expr = ProjectionExpr { expr: key(&schema, filter.column), alias };
    let keys = Arc::new(ProjectionExec::try_new([expr], plan)?);
    let on = vec![(key(&keys.schema(), 0), key(&input_schema, column))];
    let join = HashJoinExec::try_new(
        keys,
        Arc::clone(input),
        on,
        None,
        &JoinType::RightSemi,
        None,
        PartitionMode::CollectLeft,
        NullEquality::NullEqualsNothing,
        false,
    )?;
    Ok(Some(Arc::new(join)))
}
