//! What plans of Kelpie have that DataFusion's form of plans for other processes does not know.
//!
//! DataFusion sends functions by their names. A process that is to run parts of plans adds [`functions`] and [`aggregates`] to its
//! session. `sum` is one name for two functions here, so the exact one goes under a name of its own: [`with_names_apart`].

use std::sync::{Arc, LazyLock};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;

use crate::corrections::exact::{Exact, ExactOp, ExactSum};
use crate::corrections::extremes::Extreme;
use crate::corrections::list_texts::ListOfText;
use crate::corrections::nan::OneNan;
use crate::corrections::texts::{How, OfText};
use crate::corrections::zeros::OneZero;
use crate::node::Node;
use crate::outer_constants::OuterRowsExec;
use crate::window_functions::numbering;

/// The functions that corrections put into plans.
pub fn functions() -> Vec<ScalarUDF> {
    let exact =
        [ExactOp::Add, ExactOp::Subtract, ExactOp::Multiply].map(|op| ScalarUDF::from(Exact::new(op)));
    let texts = How::ALL.map(|how| ScalarUDF::from(OfText::new(how)));
    let single = [ScalarUDF::from(OneNan::new()), ScalarUDF::from(OneZero::new())];
    let lists = ListOfText::both().map(ScalarUDF::from);
    exact.into_iter().chain(texts).chain(lists).chain(single).collect()
}

/// The aggregates that corrections put into plans, by the names under which they are sent.
pub fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let extremes = SENT_EXTREMES.iter().map(Arc::clone);
    [sent_sum()].into_iter().chain(extremes).collect()
}

/// The window functions that corrections put into plans, under the names of those that they stand for.
pub fn window_functions() -> Vec<Arc<WindowUDF>> {
    numbering()
}

/// The least and the greatest float.
static SENT_EXTREMES: LazyLock<[Arc<AggregateUDF>; 2]> = LazyLock::new(|| {
    [Extreme::named("kelpie_min", false), Extreme::named("kelpie_max", true)]
        .map(|extreme| Arc::new(AggregateUDF::new_from_impl(extreme)))
});

fn sent_sum() -> Arc<AggregateUDF> {
    static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
        Arc::new(AggregateUDF::new_from_impl(ExactSum::named("kelpie_exact_sum", sum_udaf())))
    });
    Arc::clone(&FUNCTION)
}

/// The plan with aggregates under the names of [`aggregates`].
pub fn with_names_apart(plan: Node) -> Result<Node> {
    let renamed = plan.transform_up(|node| {
        let Some(aggregate) = node.downcast_ref::<AggregateExec>() else { return Ok(Transformed::no(node)) };
        if !aggregate.aggr_expr().iter().any(|call| sent(call).is_some()) {
            return Ok(Transformed::no(node));
        }
        let calls = aggregate.aggr_expr().iter().map(|call| match sent(call) {
            Some(sent) => apart(sent, call, aggregate).map(Arc::new),
            None => Ok(Arc::clone(call)),
        });
        let calls = calls.collect::<Result<Vec<_>>>()?;
        Ok(Transformed::yes(Arc::new(aggregate.with_new_aggr_exprs(calls)) as Node))
    })?;
    Ok(renamed.data)
}

/// What a call is sent as, where its name is that of another function as well.
fn sent(call: &AggregateFunctionExpr) -> Option<Arc<AggregateUDF>> {
    let implementation = call.fun().inner().as_ref();
    if implementation.is::<ExactSum>() {
        return Some(sent_sum());
    }
    let [least, greatest] = &*SENT_EXTREMES;
    let extreme = implementation.downcast_ref::<Extreme>()?;
    Some(Arc::clone(if extreme.is_greatest() { greatest } else { least }))
}

fn apart(
    sent: Arc<AggregateUDF>,
    call: &AggregateFunctionExpr,
    aggregate: &AggregateExec,
) -> Result<AggregateFunctionExpr> {
    AggregateExprBuilder::new(sent, call.expressions())
        .schema(aggregate.input_schema())
        .alias(call.name())
        .order_by(call.order_bys().to_vec())
        .with_distinct(call.is_distinct())
        .with_ignore_nulls(call.ignore_nulls())
        .with_reversed(call.is_reversed())
        .build()
}

/// A node of Kelpie's own that any process can make of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnNode {
    /// The rows of an outer join, of which nothing is known.
    OuterRows,
}

impl OwnNode {
    /// A node, where it is one of these.
    pub fn of(node: &dyn ExecutionPlan) -> Option<OwnNode> {
        node.downcast_ref::<OuterRowsExec>().map(|_| OwnNode::OuterRows)
    }

    /// The node over an input.
    pub fn over(self, input: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
        match self {
            OwnNode::OuterRows => Arc::new(OuterRowsExec::new(input)),
        }
    }
}
