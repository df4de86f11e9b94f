//! What may fail stays where DataFusion may never come to it.
//!
//! A join whose build side is empty does not run its probe side, so an expression below it that would fail (a cast of text, a
//! division) never does. Another order may run that part first, and the query would fail where DataFusion's gives an
//! answer. So an order is only taken where everything that may fail is still behind each build side that it was behind; but
//! for tables that are known to have rows, and keys that are not NULL: they never keep anybody from running.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ColumnStatistics;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};

use super::enumerate::JoinTree;
use super::flatten::{Flat, Item};
use super::graph::NodeSet;
use crate::corrections::texts::{How, OfText};

/// Whether an order evaluates what may fail only where the order before would have.
pub(super) fn keeps_guards(flat: &Flat, before: &JoinTree, after: &JoinTree) -> bool {
    let leaves = flat.items.iter().enumerate();
    let leaves = leaves.filter(|(_, item)| item_may_fail(item)).map(|(node, _)| NodeSet::of(node));
    let conditions = flat.predicates.iter().filter(|predicate| predicate.may_fail).map(|p| p.nodes);
    leaves.chain(conditions).all(|nodes| {
        let (place, builds) = guards(after, nodes);
        let is_kept =
            |guard: &NodeSet| guard.within(place) || builds.iter().any(|build| guard.within(*build));
        guards(before, nodes).1.iter().all(|guard| is_kept(guard) || has_rows(flat, *guard))
    })
}

/// Whether a build side is a whole table that has rows, and no NULL: by exact statistics, as files have them.
fn has_rows(flat: &Flat, guard: NodeSet) -> bool {
    let is_filtered = flat.predicates.iter().any(|predicate| predicate.nodes.within(guard));
    let table = flat.items.iter().enumerate().find(|(node, _)| NodeSet::of(*node) == guard);
    let Some((_, Item::Relation { plan, .. })) = table.filter(|_| !is_filtered) else { return false };
    let Ok(statistics) = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new()) else {
        return false;
    };
    let is_full = |column: &ColumnStatistics| column.null_count == Precision::Exact(0);
    matches!(statistics.num_rows, Precision::Exact(1..)) && statistics.column_statistics.iter().all(is_full)
}

/// Where some nodes are first together, and the build sides that must have rows before anything there runs.
fn guards(tree: &JoinTree, nodes: NodeSet) -> (NodeSet, Vec<NodeSet>) {
    let mut builds = Vec::new();
    let mut place = tree;
    while let JoinTree::Join(build, probe) = place {
        if nodes.within(build.nodes()) {
            place = build;
        } else if nodes.within(probe.nodes()) {
            builds.push(build.nodes());
            place = probe;
        } else {
            break;
        }
    }
    (place.nodes(), builds)
}

fn item_may_fail(item: &Item) -> bool {
    let joins = match item {
        Item::Relation { .. } => false,
        Item::Reducer(reducer) => {
            let schema = reducer.plan.schema();
            let filter = reducer.filter.as_ref();
            filter.is_some_and(|filter| may_fail(filter.expression.as_ref(), &filter.schema))
                || reducer.keys.iter().any(|(_, key)| may_fail(key.as_ref(), &schema))
        }
    };
    joins || plan_may_fail(item.plan())
}

/// Whether some expression of a plan may fail.
fn plan_may_fail(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let children = plan.children();
    // Expressions of a node read its only input; those of a source read its columns, whose types are those of its output.
    let schema = match children.as_slice() {
        [input] => input.schema(),
        _ => plan.schema(),
    };
    let mut fails = false;
    let walked = plan.apply_expressions(&mut |expr| {
        fails |= may_fail(expr.as_ref(), &schema);
        Ok(TreeNodeRecursion::Continue)
    });
    fails || walked.is_err() || children.into_iter().any(plan_may_fail)
}

/// Whether an expression may be an error for values that there really are: a division, or a cast that does not always
/// succeed. (Sums and products may leave their type, but hardly ever do.)
pub(crate) fn may_fail(expr: &dyn PhysicalExpr, schema: &Schema) -> bool {
    if let Some(binary) = expr.downcast_ref::<BinaryExpr>()
        && matches!(binary.op(), Operator::Divide | Operator::Modulo)
    {
        return true;
    }
    if let Some(cast) = expr.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        if !from.is_ok_and(|from| always_casts(&from, cast.cast_type())) {
            return true;
        }
    }
    // Which comes before a cast of a text to a whole number.
    let of_text = expr.downcast_ref::<ScalarFunctionExpr>();
    let of_text = of_text.and_then(|call| call.fun().inner().as_ref().downcast_ref::<OfText>());
    if of_text.is_some_and(|of_text| of_text.how() == How::Whole) {
        return true;
    }
    expr.children().into_iter().any(|child| may_fail(child.as_ref(), schema))
}

/// Whether every value of a type becomes one of another.
fn always_casts(from: &DataType, to: &DataType) -> bool {
    use DataType::*;
    let digits = |data_type: &DataType| match data_type {
        Int8 | UInt8 => Some(3),
        Int16 | UInt16 => Some(5),
        Int32 | UInt32 => Some(10),
        Int64 => Some(19),
        UInt64 => Some(20),
        Decimal32(precision, scale) | Decimal64(precision, scale) | Decimal128(precision, scale) => {
            Some(i32::from(*precision) - i32::from(*scale))
        }
        _ => None,
    };
    match (from, to) {
        (from, to) if from == to || to.is_string() && !from.is_nested() => true,
        (Dictionary(_, values), to) => always_casts(values, to),
        (from, Float32 | Float64) => from.is_numeric(),
        (from, Decimal128(precision, scale)) => {
            digits(from).is_some_and(|digits| digits <= i32::from(*precision) - i32::from(*scale))
        }
        (from, to) if from.is_integer() && to.is_integer() => {
            let (signed, wider) = (from.is_signed_integer(), from.primitive_width() < to.primitive_width());
            match to.is_signed_integer() {
                true => wider || signed && from.primitive_width() == to.primitive_width(),
                false => !signed && wider,
            }
        }
        (Date32, Date64 | Timestamp(..)) => true,
        _ => false,
    }
}
