//! What DataFusion's optimizer and operators take otherwise than SQL says, mended in the logical plan: a statement then means the same
//! whatever of it is compiled. `kelpie.corrections = off` leaves plans as they are.

mod casts;
mod decimals;
mod distinct_counts;
mod distinct_values;
pub(crate) mod exact;
pub(crate) mod extremes;
pub(crate) mod list_texts;
pub(crate) mod nan;
pub(crate) mod null_fields;
mod percentiles;
mod regexes;
pub(crate) mod texts;
mod written_values;
pub(crate) mod zeros;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};

use crate::logical_rule::LogicalRule;
use crate::window_functions::corrected_moving;

/// Mends logical plans. To be registered after DataFusion's own analyzer rules, which give expressions their types.
pub const CORRECTIONS: LogicalRule = LogicalRule {
    name: "kelpie_corrections",
    applies: |options| options.corrections,
    rewrite: |plan| {
        // The first makes new nodes, which the others look at too.
        let plan = plan.transform_up_with_subqueries(distinct_counts::corrected)?.data;
        let mend = |plan| {
            let results = nan::rule::Results::of(&plan);
            regexes::corrected(plan)?
                .transform_data(nan::rule::corrected)?
                .transform_data(zeros::corrected)?
                .transform_data(list_texts::corrected)?
                .transform_data(texts::corrected)?
                .transform_data(casts::corrected)?
                .transform_data(decimals::corrected)?
                .transform_data(exact::corrected)?
                .transform_data(extremes::corrected)?
                .transform_data(percentiles::corrected)?
                .transform_data(distinct_values::corrected)?
                .transform_data(corrected_moving)?
                .transform_data(|plan| results.mended(plan))
        };
        Ok(plan.transform_up_with_subqueries(mend)?.data)
    },
};

/// A node with its expressions mended where `concerns` says that there is something to mend; results keep their names.
pub fn map_expressions(
    plan: LogicalPlan,
    concerns: impl Fn(&Expr) -> Result<bool>,
    mut mend: impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    let mapped = plan.map_expressions(|expr| {
        if !concerns(&expr)? {
            return Ok(Transformed::no(expr));
        }
        map_named(expr, &names, &mut mend)
    })?;
    match mapped.transformed {
        true => mapped.map_data(LogicalPlan::recompute_schema),
        false => Ok(mapped),
    }
}

/// An expression of a node mended under the name that it had. Grouping sets have none: their parts have.
pub fn map_named(
    expr: Expr,
    names: &NamePreserver,
    mend: &mut impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    if let Expr::GroupingSet(sets) = expr {
        return Ok(Transformed::yes(Expr::GroupingSet(map_grouping_sets(sets, mend)?)));
    }
    let name = names.save(&expr);
    Ok(mend(expr)?.update_data(|expr| name.restore(expr)))
}

/// Grouping sets with their parts mended, which are columns of their own, each under its own name.
fn map_grouping_sets(
    sets: GroupingSet,
    mend: &mut impl FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<GroupingSet> {
    let mut part = |expr: Expr| -> Result<Expr> {
        let name = NamePreserver::new_for_projection().save(&expr);
        Ok(name.restore(mend(expr)?.data))
    };
    let mut parts = |exprs: Vec<Expr>| exprs.into_iter().map(&mut part).collect::<Result<Vec<_>>>();
    Ok(match sets {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(parts(exprs)?),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(parts(exprs)?),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.into_iter().map(parts).collect::<Result<Vec<_>>>()?)
        }
    })
}
