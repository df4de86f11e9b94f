//! FILTER of window functions as part of their arguments: `sum(x) FILTER (WHERE p) OVER w` is `sum(CASE WHEN p THEN x END) OVER w`, as
//! these aggregates skip NULL. DataFusion's physical expression of a window keeps its FILTER to itself, so that nobody else could
//! compile it.

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, WindowFunctionDefinition, when};

use crate::logical_rule::LogicalRule;
use crate::translate::skips_nulls;

/// Makes filters of windows part of their arguments.
pub const WINDOW_FILTERS: LogicalRule = LogicalRule {
    name: "kelpie_window_filters",
    applies: |options| options.enabled,
    rewrite: |plan| {
        let folded = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Window(_) => {
                let names = NamePreserver::new(&plan);
                plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    let folded = expr.transform_up(folded)?;
                    Ok(folded.update_data(|expr| name.restore(expr)))
                })?
                .map_data(LogicalPlan::recompute_schema)
            }
            other => Ok(Transformed::no(other)),
        });
        Ok(folded?.data)
    },
};

/// An aggregate over a window whose filter is in its argument.
fn folded(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(mut window) = expr else { return Ok(Transformed::no(expr)) };
    let folds = matches!(&window.fun, WindowFunctionDefinition::AggregateUDF(udf) if skips_nulls(udf));
    let params = &mut window.params;
    if !folds || params.distinct || params.args.len() != 1 {
        return Ok(Transformed::no(Expr::WindowFunction(window)));
    }
    let Some(filter) = params.filter.take() else {
        return Ok(Transformed::no(Expr::WindowFunction(window)));
    };
    if let Some(argument) = params.args.pop() {
        params.args.push(when(*filter, argument).end()?);
    }
    Ok(Transformed::yes(Expr::WindowFunction(window)))
}
