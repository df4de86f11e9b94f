//! `approx_percentile_cont` is exact, whoever runs it.
//!
//! DataFusion's is a sketch, of which each group has one, put together anew with every batch. Sorting all values of all groups costs less
//! ([`PercentileCont`]), and compiles. With `kelpie.corrections = off` it is DataFusion's own.

use std::sync::{Arc, LazyLock};

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_percentile_cont::ApproxPercentileCont;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan};

use crate::aggregates::PercentileCont;

/// An aggregation with exact percentiles, which have the type of the values as the approximate ones do.
pub(super) fn corrected(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !matches!(plan, LogicalPlan::Aggregate(_)) {
        return Ok(Transformed::no(plan));
    }
    let concerns = |expr: &Expr| {
        expr.exists(|expr| Ok(matches!(expr, Expr::AggregateFunction(call) if is_approximate(call))))
    };
    super::map_expressions(plan, concerns, |expr| {
        expr.transform_up(|expr| match expr {
            Expr::AggregateFunction(mut call) if is_approximate(&call) => {
                call.func = exact();
                // How many values a sketch keeps is nothing that an exact one needs to know.
                call.params.args.truncate(2);
                Ok(Transformed::yes(Expr::AggregateFunction(call)))
            }
            other => Ok(Transformed::no(other)),
        })
    })
}

/// One for all: plans that are kept are found by the functions that they call.
fn exact() -> Arc<AggregateUDF> {
    static EXACT: LazyLock<Arc<AggregateUDF>> =
        LazyLock::new(|| Arc::new(AggregateUDF::new_from_impl(PercentileCont::default())));
    Arc::clone(&EXACT)
}

/// Whether a call is approximate, and all right: what is wrong with others they say themselves.
fn is_approximate(call: &AggregateFunction) -> bool {
    let AggregateFunction { func, params } = call;
    let is_fixed = |share: &Expr| !share.any_column_refs() && !share.is_volatile();
    func.inner().as_ref().is::<ApproxPercentileCont>()
        && !params.distinct
        && params.args.get(1).is_some_and(is_fixed)
}
