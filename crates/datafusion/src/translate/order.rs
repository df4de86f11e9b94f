//! The order of a plan's rows. DataFusion puts a sort below operators that keep the order of their input (filters,
//! projections, the probe side of joins), and may drop its keys above it. Kelpie's operators keep no order: such a sort
//! is carried out above them, with its keys as further columns up to there.

use datafusion::physical_expr::LexOrdering;
use datafusion::physical_plan::ExecutionPlanProperties;
use kelpie_compile::expr::{Expr, ExprKind, substitute};
use kelpie_compile::plan::{Join, JoinKind, Plan, SortKey};

use super::expr::ExprTranslator;
use super::plans::project_columns;
use super::translator::Translator;
use crate::node::Node;

/// Whether the engine gives the plan's rows in the order that DataFusion expects.
pub(super) fn is_kept(plan: &Plan) -> bool {
    match plan {
        Plan::Sort { .. } => true,
        Plan::Limit { input, .. } | Plan::Scalars { input, .. } => is_kept(input),
        // The engine hands such rows on as they are.
        Plan::Project { input, exprs, .. }
            if exprs.iter().all(|expr| matches!(expr.kind, ExprKind::Column(_))) =>
        {
            is_kept(input)
        }
        _ => is_one_row(plan),
    }
}

fn is_one_row(plan: &Plan) -> bool {
    match plan {
        Plan::Aggregate { keys, .. } => keys.is_empty(),
        Plan::Ranked(ranked) => ranked.keys.is_empty(),
        Plan::Project { input, .. } | Plan::Scalars { input, .. } => is_one_row(input),
        _ => false,
    }
}

/// The plan with the sort that is below its operators above them; `None` where there is none.
pub(super) fn restored(plan: &Plan) -> Option<Plan> {
    let width = plan.fields().len();
    let (rows, keys) = raised(plan)?;
    let wider = rows.fields().len() > width;
    let sorted = Plan::Sort { input: Box::new(rows), keys, fetch: None };
    if wider { project_columns(sorted, &(0..width).collect::<Vec<_>>()) } else { Some(sorted) }
}

/// The plan without the sorts that a sort above makes superfluous: joins and unions keep no order either.
pub(super) fn unsorted(plan: Plan) -> Plan {
    match plan {
        Plan::Sort { input, fetch: None, .. } => unsorted(*input),
        Plan::Join(join) => {
            let Join { build, probe, .. } = *join;
            Plan::Join(Box::new(Join { build: unsorted(build), probe: unsorted(probe), ..*join }))
        }
        Plan::Union { inputs, fields } => {
            Plan::Union { inputs: inputs.into_iter().map(unsorted).collect(), fields }
        }
        Plan::Filter { input, predicate } => Plan::Filter { input: Box::new(unsorted(*input)), predicate },
        Plan::Project { input, exprs, names } => {
            Plan::Project { input: Box::new(unsorted(*input)), exprs, names }
        }
        plan => plan,
    }
}

/// The plan without its sort, with further columns behind its own, and the sort's keys over all of them.
fn raised(plan: &Plan) -> Option<(Plan, Vec<SortKey>)> {
    match plan {
        Plan::Sort { input, keys, fetch: None } => Some(((**input).clone(), keys.clone())),
        Plan::Sort { keys, .. } => Some((plan.clone(), keys.clone())),
        // The limit needs its rows in order, so they stay sorted.
        Plan::Limit { input, .. } => {
            let (rows, keys) = raised(input)?;
            (rows.fields().len() == input.fields().len()).then(|| (plan.clone(), keys))
        }
        Plan::Filter { input, predicate } => {
            let (rows, keys) = raised(input)?;
            Some((Plan::Filter { input: Box::new(rows), predicate: predicate.clone() }, keys))
        }
        Plan::Scalars { input, subqueries } => {
            let (rows, keys) = raised(input)?;
            Some((Plan::Scalars { input: Box::new(rows), subqueries: subqueries.clone() }, keys))
        }
        Plan::Project { input, exprs, names } => {
            let (rows, keys) = raised(input)?;
            let (mut exprs, mut names) = (exprs.clone(), names.clone());
            let keys = keys.into_iter().map(|key| {
                let place = exprs.iter().position(|expr| *expr == key.expr).unwrap_or_else(|| {
                    names.push(format!("sort_key_{}", exprs.len()));
                    exprs.push(key.expr.clone());
                    exprs.len() - 1
                });
                SortKey { expr: Expr::column(place, key.expr.data_type.clone(), key.expr.nullable), ..key }
            });
            let keys = keys.collect();
            Some((Plan::Project { input: Box::new(rows), exprs, names }, keys))
        }
        Plan::Join(join) => raised_probe(join),
        Plan::Scan(_)
        | Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Window(_)
        | Plan::Union { .. } => None,
    }
}

/// Joins that stream the probe side keep its order in DataFusion.
fn raised_probe(join: &Join) -> Option<(Plan, Vec<SortKey>)> {
    let offset = match join.kind {
        JoinKind::Inner | JoinKind::ProbeOuter => join.build.fields().len(),
        JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark => 0,
        _ => return None,
    };
    let (probe, keys) = raised(&join.probe)?;
    // The mark stands behind the probe side's columns.
    if join.kind == JoinKind::ProbeMark && probe.fields().len() > join.probe.fields().len() {
        return None;
    }
    let shift = |expr: &Expr| match expr.kind {
        ExprKind::Column(index) => Some(Expr::column(index + offset, expr.data_type.clone(), expr.nullable)),
        _ => None,
    };
    let keys = keys.into_iter().map(|key| SortKey { expr: substitute(&key.expr, &shift), ..key });
    let keys = keys.collect();
    Some((Plan::Join(Box::new(Join { probe, ..join.clone() })), keys))
}

/// The plan in the order of its DataFusion node: below a sort, or of a file that is declared as sorted.
pub(super) fn ordered(plan: Plan, node: &Node, translator: &mut Translator) -> Option<Plan> {
    if is_kept(&plan) {
        return Some(plan);
    }
    if let Some(sorted) = restored(&plan) {
        return Some(sorted);
    }
    let Some(ordering) = node.output_ordering() else { return Some(plan) };
    let schema = node.schema();
    let keys = sort_keys(translator.exprs(&schema, "declared order"), ordering)?;
    Some(Plan::Sort { input: Box::new(plan), keys, fetch: None })
}

pub(super) fn sort_keys(mut translator: ExprTranslator<'_>, ordering: &LexOrdering) -> Option<Vec<SortKey>> {
    let keys: Vec<_> = ordering
        .iter()
        .map(|key| {
            Some(SortKey {
                expr: translator.expr(&key.expr)?,
                descending: key.options.descending,
                nulls_first: key.options.nulls_first,
            })
        })
        .collect();
    keys.into_iter().collect()
}
