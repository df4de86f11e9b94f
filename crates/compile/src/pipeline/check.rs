//! Whether a plan compiles, found without making its kernels.
//!
//! What decides that are types: an operator refuses them while it is planned, an expression while it is lowered. So the plan is
//! cut and planned as ever, and each of its expressions is lowered by itself, over columns of which nothing is known.

use kelpie_kir::Target;

use super::{Choices, ScanInfo, cut};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::lower::facts;
use crate::plan::Plan;
use crate::shape::LaunchShape;
use crate::variant::Chooser;

/// The first reason against a plan that [`compile_with`](super::compile_with) would give, if it gave one.
pub fn check(
    plan: &Plan,
    scans: &[ScanInfo],
    target: &Target,
    choices: &Choices<'_>,
) -> Result<(), Unsupported> {
    crate::check::check(plan)?;
    let chooser = Chooser::new(choices.forced);
    let shape = LaunchShape::new(target, &choices.shape).map_err(Unsupported)?;
    cut::pipelines(plan, scans, &shape, (choices, &chooser))?;
    expressions(plan)
}

/// Lowers every expression of a plan.
fn expressions(plan: &Plan) -> Result<(), Unsupported> {
    plan.inputs().into_iter().try_for_each(expressions)?;
    match plan {
        Plan::Scan(_) | Plan::Limit { .. } | Plan::Scalars { .. } | Plan::Union { .. } => Ok(()),
        Plan::Filter { predicate, .. } => lowers(predicate),
        Plan::Project { exprs, .. } => exprs.iter().try_for_each(lowers),
        Plan::Aggregate { keys, aggregates, .. } => {
            let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
            keys.iter().chain(arguments).try_for_each(lowers)
        }
        Plan::Ranked(ranked) => ranked.exprs().try_for_each(lowers),
        Plan::Window(window) => window.exprs().try_for_each(lowers),
        Plan::GroupingSets(sets) => sets.exprs().try_for_each(lowers),
        Plan::Join(join) => {
            let keys = join.keys.iter().flat_map(|(build, probe)| [build, probe]);
            keys.chain(&join.residual).try_for_each(lowers)
        }
        Plan::Sort { keys, .. } => keys.iter().try_for_each(|key| lowers(&key.expr)),
    }
}

fn lowers(expr: &Expr) -> Result<(), Unsupported> {
    match expr.kind {
        ExprKind::Column(_) => Ok(()),
        _ => facts(expr, &|_| None).map(|_| ()),
    }
}
