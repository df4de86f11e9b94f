//! `count(DISTINCT (a, b))` beside other aggregates takes as long as its rows need, and not as many times as there are batches
//! ([`CountDistinctRows`]). Alone it is a grouping, which is compiled.

use std::sync::{Arc, LazyLock};

use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions_aggregate::count::Count;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Aggregate, AggregateUDF, Expr, ExprSchemable, LogicalPlan};

use crate::aggregates::CountDistinctRows;

/// An aggregation that counts nested values by their bytes.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let schema = match &plan {
        LogicalPlan::Aggregate(Aggregate { input, aggr_expr, .. }) if aggr_expr.len() > 1 => {
            Arc::clone(input.schema())
        }
        _ => return Ok(Transformed::no(plan)),
    };
    let counts = |expr: &Expr| matches!(expr, Expr::AggregateFunction(call) if is_nested(call, &schema));
    super::map_expressions(
        plan,
        |expr| expr.exists(|expr| Ok(counts(expr))),
        |expr| {
            expr.transform_up(|expr| match expr {
                Expr::AggregateFunction(mut call) if is_nested(&call, &schema) => {
                    call.func = by_bytes();
                    call.params.distinct = false;
                    Ok(Transformed::yes(Expr::AggregateFunction(call)))
                }
                other => Ok(Transformed::no(other)),
            })
        },
    )
}

/// One for all: plans that are kept are found by the functions that they call.
fn by_bytes() -> Arc<AggregateUDF> {
    static BY_BYTES: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(CountDistinctRows::default())));
    Arc::clone(&BY_BYTES)
}

fn is_nested(call: &AggregateFunction, schema: &DFSchema) -> bool {
    let AggregateFunction { func, params } = call;
    let [value] = params.args.as_slice() else { return false };
    let is_counted = || value.get_type(schema).is_ok_and(|data_type| CountDistinctRows::counts(&data_type));
    func.inner().as_ref().is::<Count>() && params.distinct && is_counted()
}
