//! Adds what a translated plan requests to its scans, and hands it up to where it is used.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::physical_expr::expressions::Column;
use kelpie_compile::expr::{Expr, ExprKind, substitute};
use kelpie_compile::plan::{GroupingSets, Join, JoinKind, Plan, Ranked, SortKey, Window};
use kelpie_compile::types::Field;

use super::request::{REQUESTS, Request};
use crate::derived::Derived;
use crate::source::ScanTable;
use crate::translate::plans::project_columns;
use crate::translate::prune::{self, columns_of};
use crate::translate::translated::Reasons;
use crate::translate::translator::Translator;

/// Adds what a translated plan requests to its scans. `scans` are the addresses of the nodes of the tables' scans.
pub(in crate::translate) fn added(plan: Plan, translator: &mut Translator) -> Option<Plan> {
    if translator.requests.is_empty() || !mentions(&plan) {
        return Some(plan);
    }
    let requests = std::mem::take(&mut translator.requests);
    let Translator { tables, scans, reasons, .. } = translator;
    let mut adding = Adding { requests: &requests, tables, scans, reasons };
    let plan = adding.resolved(plan, &Used::default())?;
    Some(prune::pruned(&plan))
}

/// Whether a plan has a request.
fn mentions(plan: &Plan) -> bool {
    let found = std::cell::Cell::new(false);
    plan.map_exprs(&|expr| {
        found.set(found.get() || requested(expr).next().is_some());
        expr.clone()
    });
    found.get() || plan.inputs().into_iter().any(mentions)
}

fn requested(expr: &Expr) -> impl Iterator<Item = usize> {
    columns_of(expr).into_iter().filter_map(|column| column.checked_sub(REQUESTS))
}

/// The columns of a plan that something else than the result has.
#[derive(Debug, Default)]
enum Used {
    #[default]
    None,
    Some(BTreeSet<usize>),
    All,
}

impl Used {
    fn contains(&self, column: usize) -> bool {
        match self {
            Used::None => false,
            Used::Some(columns) => columns.contains(&column),
            Used::All => true,
        }
    }

    fn with(&self, more: BTreeSet<usize>) -> Used {
        match self {
            Used::None => Used::Some(more),
            Used::Some(columns) => Used::Some(columns.union(&more).copied().collect()),
            Used::All => Used::All,
        }
    }
}

struct Adding<'a> {
    requests: &'a [Request],
    tables: &'a mut [Arc<ScanTable>],
    scans: &'a [usize],
    reasons: &'a mut Reasons,
}

impl Adding<'_> {
    fn refuse<T>(&mut self, request: usize) -> Option<T> {
        if let Some(request) = self.requests.get(request) {
            request.reasons.iter().for_each(|reason| self.reasons.push(reason.clone()));
            if request.reasons.is_empty() {
                self.reasons.push(format!("{} is not compiled", request.field.name));
            }
        }
        None
    }

    fn is_element(&self, request: usize) -> bool {
        self.requests.get(request).is_some_and(|request| request.is_element)
    }

    /// The plan without requests.
    fn resolved(&mut self, plan: Plan, used: &Used) -> Option<Plan> {
        Some(match plan {
            Plan::Scan(_) => plan,
            Plan::Filter { input, predicate } => {
                let input = self.resolved(*input, &used.with(columns_of(&predicate)))?;
                let width = input.fields().len();
                let (input, mut exprs) = self.provided(input, vec![predicate])?;
                cut(Plan::Filter { input: Box::new(input), predicate: exprs.pop()? }, width)?
            }
            Plan::Project { input, exprs, names } => {
                let mut below = BTreeSet::new();
                for (index, expr) in exprs.iter().enumerate() {
                    match (used.contains(index), requested(expr).next()) {
                        (true, _) => below.extend(columns_of(expr)),
                        (false, Some(request)) if !self.is_element(request) => return self.refuse(request),
                        (false, _) => {}
                    }
                }
                let input = self.resolved(*input, &Used::Some(below))?;
                let (input, exprs) = self.provided(input, exprs)?;
                Plan::Project { input: Box::new(input), exprs, names }
            }
            Plan::Aggregate { input, keys, mut aggregates, names } => {
                let input = self.resolved(*input, &Used::All)?;
                let count = keys.len();
                let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.clone());
                let exprs = keys.into_iter().chain(arguments).collect();
                let (input, mut keys) = self.provided(input, exprs)?;
                let mut arguments = keys.split_off(count).into_iter();
                for aggregate in &mut aggregates {
                    if aggregate.argument.is_some() {
                        aggregate.argument = Some(arguments.next()?);
                    }
                }
                Plan::Aggregate { input: Box::new(input), keys, aggregates, names }
            }
            Plan::GroupingSets(sets) => {
                let input = self.resolved(sets.input.clone(), &Used::All)?;
                let (input, exprs) = self.provided(input, sets.exprs().cloned().collect())?;
                let mut sets = GroupingSets { input, ..*sets };
                sets.exprs_mut().zip(exprs).for_each(|(expr, provided)| *expr = provided);
                Plan::GroupingSets(Box::new(sets))
            }
            Plan::Ranked(ranked) => {
                let input = self.resolved(ranked.input.clone(), &Used::All)?;
                let (input, exprs) = self.provided(input, ranked.exprs().cloned().collect())?;
                let mut ranked = Ranked { input, ..*ranked };
                ranked.exprs_mut().zip(exprs).for_each(|(expr, provided)| *expr = provided);
                Plan::Ranked(Box::new(ranked))
            }
            Plan::Window(window) => {
                let width = window.input.fields().len();
                let own = window.fields();
                let input = self.resolved(window.input.clone(), &Used::All)?;
                let (input, exprs) = self.provided(input, window.exprs().cloned().collect())?;
                let wider = input.fields().len();
                let mut window = Window { input, ..*window };
                window.exprs_mut().zip(exprs).for_each(|(expr, provided)| *expr = provided);
                let functions = wider..wider + own.len() - width;
                let kept: Vec<usize> = (0..width).chain(functions).collect();
                project_columns(Plan::Window(Box::new(window)), &kept)?
            }
            Plan::Join(join) => self.resolved_join(*join)?,
            Plan::Union { inputs, fields } => {
                let inputs = inputs.into_iter().map(|input| self.resolved(input, used));
                Plan::Union { inputs: inputs.collect::<Option<_>>()?, fields }
            }
            Plan::Scalars { input, subqueries } => {
                let subqueries = subqueries.into_iter().map(|plan| self.resolved(plan, &Used::All));
                let subqueries = subqueries.collect::<Option<_>>()?;
                Plan::Scalars { input: Box::new(self.resolved(*input, used)?), subqueries }
            }
            Plan::Sort { input, keys, fetch } => {
                let columns = keys.iter().flat_map(|key| columns_of(&key.expr)).collect();
                let input = self.resolved(*input, &used.with(columns))?;
                let width = input.fields().len();
                let exprs = keys.iter().map(|key| key.expr.clone()).collect();
                let (input, exprs) = self.provided(input, exprs)?;
                let keys = keys.into_iter().zip(exprs).map(|(key, expr)| SortKey { expr, ..key });
                cut(Plan::Sort { input: Box::new(input), keys: keys.collect(), fetch }, width)?
            }
            Plan::Limit { input, skip, fetch } => {
                Plan::Limit { input: Box::new(self.resolved(*input, used)?), skip, fetch }
            }
        })
    }

    fn resolved_join(&mut self, join: Join) -> Option<Plan> {
        let Join { build, probe, keys, residual, .. } = join.clone();
        let build = self.resolved(build, &Used::All)?;
        let probe = self.resolved(probe, &Used::All)?;
        let (width, probe_width) = (build.fields().len(), probe.fields().len());
        let (build_keys, probe_keys) = keys.into_iter().unzip();
        let (mut build, build_keys) = self.provided(build, build_keys)?;
        let (mut probe, probe_keys) = self.provided(probe, probe_keys)?;
        let mut residual = residual;
        if let Some(predicate) = &mut residual {
            // Where each request of the residual condition is, on which side.
            let mut places = Vec::new();
            for request in requested(predicate) {
                let scan = self.requests.get(request)?.scan;
                let place = if self.reaches(&build, scan) {
                    let (plan, place) = self.provide(build, request)?;
                    build = plan;
                    (request, None, place)
                } else {
                    let (plan, place) = self.provide(probe, request)?;
                    probe = plan;
                    (request, Some(()), place)
                };
                places.push(place);
            }
            let (wider, fields) = (build.fields().len(), [build.fields(), probe.fields()].concat());
            let moved = |index: usize| match index.checked_sub(REQUESTS) {
                Some(request) => {
                    let place = places.iter().find(|(known, ..)| *known == request);
                    place.map_or(usize::MAX, |(_, probe, place)| probe.map_or(*place, |()| wider + place))
                }
                None if index >= width => index - width + wider,
                None => index,
            };
            *predicate = moved_columns(predicate, &moved, &fields);
        }
        let keys = build_keys.into_iter().zip(probe_keys).collect();
        let (build_now, probe_now) = (build.fields().len(), probe.fields().len());
        let widths = [(width, build_now), (probe_width, probe_now)];
        let kept = kept_columns(join.kind, widths);
        let plan = Plan::Join(Box::new(Join { build, probe, keys, residual, ..join }));
        match kept.len() == plan.fields().len() {
            true => Some(plan),
            false => project_columns(plan, &kept),
        }
    }

    /// Expressions with their requests as columns of a plan, which has further ones for that.
    fn provided(&mut self, mut plan: Plan, exprs: Vec<Expr>) -> Option<(Plan, Vec<Expr>)> {
        let requests: BTreeSet<usize> = exprs.iter().flat_map(requested).collect();
        let mut places = Vec::new();
        for request in requests {
            let (wider, place) = self.provide(plan, request)?;
            plan = wider;
            places.push((request, place));
        }
        if places.is_empty() {
            return Some((plan, exprs));
        }
        let fields = plan.fields();
        let moved = |index: usize| match index.checked_sub(REQUESTS) {
            Some(request) => {
                places.iter().find(|(known, _)| *known == request).map_or(usize::MAX, |(_, place)| *place)
            }
            None => index,
        };
        let exprs = exprs.iter().map(|expr| moved_columns(expr, &moved, &fields)).collect();
        Some((plan, exprs))
    }

    /// A plan with a request as a further column behind its own, or where it is already.
    fn provide(&mut self, plan: Plan, request: usize) -> Option<(Plan, usize)> {
        let scan = self.requests.get(request)?.scan;
        if !self.reaches(&plan, scan) {
            return self.refuse(request);
        }
        match plan {
            Plan::Scan(mut scan) => {
                let asked = self.requests.get(request)?;
                let table = self.tables.get_mut(scan.source).and_then(Arc::get_mut);
                let made = table.and_then(|table| {
                    if asked.is_element {
                        return Some((asked.expr.downcast_ref::<Column>()?.index(), true));
                    }
                    let derived = Derived::new(&asked.expr, table.stored()).ok()?;
                    for condition in &asked.conditions {
                        let condition = Derived::new(condition, table.stored()).ok()?;
                        table.narrow(condition);
                    }
                    let nullable = derived.field().is_nullable();
                    Some((table.derive(derived), nullable))
                });
                let Some((column, nullable)) = made else { return self.refuse(request) };
                let known = scan.columns.iter().position(|known| *known == column);
                let place = known.unwrap_or(scan.columns.len());
                if known.is_none() {
                    scan.columns.push(column);
                    let nullable = nullable || asked.field.nullable;
                    scan.fields.push(Field { nullable, ..asked.field.clone() });
                }
                Some((Plan::Scan(scan), place))
            }
            Plan::Filter { input, predicate } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Filter { input: Box::new(input), predicate }, place))
            }
            Plan::Sort { input, keys, fetch } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Sort { input: Box::new(input), keys, fetch }, place))
            }
            Plan::Scalars { input, subqueries } => {
                let (input, place) = self.provide(*input, request)?;
                Some((Plan::Scalars { input: Box::new(input), subqueries }, place))
            }
            Plan::Project { input, mut exprs, mut names } => {
                let (input, place) = self.provide(*input, request)?;
                let field = input.fields().get(place)?.clone();
                let known = exprs.iter().position(|expr| expr.kind == ExprKind::Column(place));
                let index = known.unwrap_or(exprs.len());
                if known.is_none() {
                    exprs.push(Expr::column(place, field.data_type, field.nullable));
                    names.push(field.name);
                }
                Some((Plan::Project { input: Box::new(input), exprs, names }, index))
            }
            Plan::Join(join) => self.provide_joined(*join, request),
            _ => self.refuse(request),
        }
    }

    fn provide_joined(&mut self, join: Join, request: usize) -> Option<(Plan, usize)> {
        let scan = self.requests.get(request)?.scan;
        let Join { mut build, mut probe, mut residual, .. } = join.clone();
        let (width, probe_width) = (build.fields().len(), probe.fields().len());
        let on_build = self.reaches(&build, scan);
        let place = match on_build {
            true => {
                let (plan, place) = self.provide(build, request)?;
                build = plan;
                place
            }
            false => {
                let (plan, place) = self.provide(probe, request)?;
                probe = plan;
                place
            }
        };
        let wider = build.fields().len();
        if let Some(predicate) = &mut residual {
            let fields = [build.fields(), probe.fields()].concat();
            let moved = |index: usize| if index >= width { index - width + wider } else { index };
            *predicate = moved_columns(predicate, &moved, &fields);
        }
        let probe_now = probe.fields().len();
        let mut kept = kept_columns(join.kind, [(width, wider), (probe_width, probe_now)]);
        let index = match (on_build, join.kind) {
            (true, _) => place,
            (false, JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark) => place,
            (false, _) => wider + place,
        };
        let plan = Plan::Join(Box::new(Join { build, probe, residual, ..join }));
        if kept.len() == plan.fields().len() {
            return Some((plan, index));
        }
        let known = kept.iter().position(|column| *column == index);
        let place = known.unwrap_or(kept.len());
        if known.is_none() {
            kept.push(index);
        }
        Some((project_columns(plan, &kept)?, place))
    }

    /// Whether a column of a scan can be handed up to a plan's rows.
    fn reaches(&self, plan: &Plan, scan: usize) -> bool {
        match plan {
            Plan::Scan(found) => self.scans.get(found.source) == Some(&scan),
            Plan::Filter { input, .. } | Plan::Project { input, .. } | Plan::Scalars { input, .. } => {
                self.reaches(input, scan)
            }
            Plan::Sort { input, fetch: None, .. } => self.reaches(input, scan),
            Plan::Join(join) => match join.kind {
                JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark => {
                    self.reaches(&join.build, scan)
                }
                JoinKind::ProbeSemi | JoinKind::ProbeAnti | JoinKind::ProbeMark => {
                    self.reaches(&join.probe, scan)
                }
                _ => self.reaches(&join.build, scan) != self.reaches(&join.probe, scan),
            },
            Plan::Sort { .. }
            | Plan::Limit { .. }
            | Plan::Aggregate { .. }
            | Plan::GroupingSets(_)
            | Plan::Ranked(_)
            | Plan::Window(_)
            | Plan::Union { .. } => false,
        }
    }
}

/// The columns that a join had before its sides got further ones: `(before, now)` of the build and the probe side.
fn kept_columns(kind: JoinKind, [(build, build_now), (probe, probe_now)]: [(usize, usize); 2]) -> Vec<usize> {
    use JoinKind::*;
    match kind {
        Inner | BuildOuter | ProbeOuter | FullOuter => {
            (0..build).chain(build_now..build_now + probe).collect()
        }
        BuildSemi | BuildAnti => (0..build).collect(),
        ProbeSemi | ProbeAnti => (0..probe).collect(),
        BuildMark => (0..build).chain([build_now]).collect(),
        ProbeMark => (0..probe).chain([probe_now]).collect(),
    }
}

/// An expression whose columns stand elsewhere.
fn moved_columns(expr: &Expr, moved: &dyn Fn(usize) -> usize, fields: &[Field]) -> Expr {
    substitute(expr, &|e| match e.kind {
        ExprKind::Column(index) => {
            let index = moved(index);
            let nullable = fields.get(index).map_or(e.nullable, |field| field.nullable);
            Some(Expr::column(index, e.data_type.clone(), nullable))
        }
        _ => None,
    })
}

/// The plan with its first columns only.
fn cut(plan: Plan, width: usize) -> Option<Plan> {
    match plan.fields().len() == width {
        true => Some(plan),
        false => project_columns(plan, &(0..width).collect::<Vec<_>>()),
    }
}
