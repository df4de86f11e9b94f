//! Many aggregates with FILTER over wide rows, without groups.
//!
//! DataFusion filters whole batches for each of them: 300 conditions over 300 columns filter 90,000 columns a batch. Here what aggregates are
//! given is NULL where the condition does not hold, which these aggregates leave out, so that each looks at its own columns alone.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Literal};
use datafusion::physical_expr::{PhysicalExpr, PhysicalExprRef};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::node::Node;
use crate::recursion_guard::with_room;

/// Aggregates of one argument that leave out NULL, and give what they give whatever else they are given.
const WITHOUT_NULLS: [&str; 5] = ["avg", "count", "max", "min", "sum"];

/// From so many columns times filters on.
const WIDE: usize = 64;

/// A plan of DataFusion's operators without such filters.
pub(crate) fn narrow_filters(plan: Node) -> Result<Node> {
    let narrowed = || {
        Arc::clone(&plan).transform_up(|node| {
            let narrowed = narrowed(&node)?;
            Ok(narrowed.map_or_else(|| Transformed::no(node), Transformed::yes))
        })
    };
    Ok(with_room(&plan, narrowed)?.data)
}

/// The node without filters that such aggregates have, where there are many.
fn narrowed(node: &Node) -> Result<Option<Node>> {
    let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(None) };
    let takes_rows = matches!(
        aggregate.mode(),
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned
    );
    let filters = aggregate.filter_expr().iter().flatten().count();
    let columns = aggregate.input().schema().fields().len();
    if !takes_rows || !aggregate.group_expr().is_empty() || filters * columns < WIDE {
        return Ok(None);
    }
    let calls = aggregate.aggr_expr().iter().zip(aggregate.filter_expr());
    let calls = calls.map(|(call, filter)| {
        let made = filter.as_ref().map(|filter| with_nulls(call, filter)).transpose()?.flatten();
        Ok(match made {
            Some(call) => (Arc::new(call), None),
            None => (Arc::clone(call), filter.clone()),
        })
    });
    let (calls, filters) = calls.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let narrowed = AggregateExec::try_new(
        *aggregate.mode(),
        aggregate.group_expr().clone(),
        calls,
        filters,
        Arc::clone(aggregate.input()),
        aggregate.input_schema(),
    )?;
    Ok(Some(Arc::new(narrowed)))
}

/// A call whose argument is NULL where a condition does not hold; nothing for other aggregates.
fn with_nulls(
    call: &AggregateFunctionExpr,
    filter: &Arc<dyn PhysicalExpr>,
) -> Result<Option<AggregateFunctionExpr>> {
    let arguments = call.expressions();
    let ([argument], []) = (arguments.as_slice(), call.order_bys()) else { return Ok(None) };
    if call.is_distinct() || !WITHOUT_NULLS.contains(&call.fun().name()) {
        return Ok(None);
    }
    let argument: PhysicalExprRef = match argument.downcast_ref::<Literal>() {
        // The rows are counted for which this is not NULL.
        Some(one) if call.fun().name() == "count" && !one.value().is_null() => {
            let null = Arc::new(Literal::new(ScalarValue::Boolean(None)));
            Arc::new(BinaryExpr::new(Arc::clone(filter), Operator::Or, null))
        }
        _ => Arc::new(CaseExpr::try_new(None, vec![(Arc::clone(filter), Arc::clone(argument))], None)?),
    };
    Ok(call.with_new_expressions(vec![argument], vec![]))
}
