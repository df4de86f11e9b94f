//! Takes columns out of a plan that nothing reads: what a derived column was computed from need not be brought to the device.

use std::collections::BTreeSet;

use kelpie_compile::expr::{Expr, ExprKind, columns_read, substitute};
use kelpie_compile::plan::{GroupingSets, Join, JoinKind, Plan, Ranked, Scan, SortKey, Window};

/// The plan with the same columns, whose scans have those columns only that are read.
pub(crate) fn pruned(plan: &Plan) -> Plan {
    prune(plan, &all(plan)).0
}

fn all(plan: &Plan) -> BTreeSet<usize> {
    (0..plan.fields().len()).collect()
}

/// The columns of an expression.
pub(super) fn columns_of(expr: &Expr) -> BTreeSet<usize> {
    columns_read(expr).into_iter().collect()
}

fn columns_of_all<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> BTreeSet<usize> {
    exprs.into_iter().flat_map(columns_of).collect()
}

/// Where each column that stays was before, in order.
type Kept = Vec<usize>;

/// The plan with the needed columns, and perhaps others.
fn prune(plan: &Plan, needed: &BTreeSet<usize>) -> (Plan, Kept) {
    match plan {
        Plan::Scan(scan) => {
            let kept: Kept = needed.iter().copied().filter(|column| *column < scan.columns.len()).collect();
            let columns = kept.iter().map(|place| scan.columns[*place]).collect();
            let fields = kept.iter().map(|place| scan.fields[*place].clone()).collect();
            (Plan::Scan(Scan { columns, fields, ..scan.clone() }), kept)
        }
        Plan::Filter { input, predicate } => {
            let (input, kept) = prune(input, &(needed | &columns_of(predicate)));
            let predicate = moved(predicate, &kept);
            (Plan::Filter { input: Box::new(input), predicate }, kept)
        }
        Plan::Project { input, exprs, names } => {
            let kept: Kept = needed.iter().copied().filter(|column| *column < exprs.len()).collect();
            let exprs: Vec<&Expr> = kept.iter().map(|place| &exprs[*place]).collect();
            let names = kept.iter().map(|place| names[*place].clone()).collect();
            let (input, below) = prune(input, &columns_of_all(exprs.iter().copied()));
            let exprs = exprs.into_iter().map(|expr| moved(expr, &below)).collect();
            (Plan::Project { input: Box::new(input), exprs, names }, kept)
        }
        Plan::Aggregate { input, keys, aggregates, names } => {
            let arguments = aggregates.iter().filter_map(|aggregate| aggregate.argument.as_ref());
            let (input, below) = prune(input, &columns_of_all(keys.iter().chain(arguments)));
            let keys = keys.iter().map(|key| moved(key, &below)).collect();
            let mut aggregates = aggregates.clone();
            for argument in aggregates.iter_mut().filter_map(|aggregate| aggregate.argument.as_mut()) {
                *argument = moved(argument, &below);
            }
            let plan = Plan::Aggregate { input: Box::new(input), keys, aggregates, names: names.clone() };
            let kept = all(&plan).into_iter().collect();
            (plan, kept)
        }
        Plan::GroupingSets(sets) => {
            let (input, below) = prune(&sets.input, &columns_of_all(sets.exprs()));
            let mut sets = GroupingSets { input, ..sets.as_ref().clone() };
            sets.exprs_mut().for_each(|expr| *expr = moved(expr, &below));
            let plan = Plan::GroupingSets(Box::new(sets));
            let kept = all(&plan).into_iter().collect();
            (plan, kept)
        }
        Plan::Ranked(ranked) => {
            let (input, below) = prune(&ranked.input, &columns_of_all(ranked.exprs()));
            let mut ranked = Ranked { input, ..ranked.as_ref().clone() };
            ranked.exprs_mut().for_each(|expr| *expr = moved(expr, &below));
            let plan = Plan::Ranked(Box::new(ranked));
            let kept = all(&plan).into_iter().collect();
            (plan, kept)
        }
        Plan::Window(window) => {
            let width = window.input.fields().len();
            let passed: BTreeSet<usize> = needed.iter().copied().filter(|column| *column < width).collect();
            let (input, below) = prune(&window.input, &(&passed | &columns_of_all(window.exprs())));
            let mut window = Window { input, ..window.as_ref().clone() };
            window.exprs_mut().for_each(|expr| *expr = moved(expr, &below));
            let functions = width..width + window.functions.len();
            (Plan::Window(Box::new(window)), below.into_iter().chain(functions).collect())
        }
        Plan::Join(join) => prune_join(join, needed),
        Plan::Union { inputs, fields } => {
            let inputs = inputs.iter().map(|input| prune(input, &all(input)).0).collect();
            (Plan::Union { inputs, fields: fields.clone() }, (0..fields.len()).collect())
        }
        Plan::Scalars { input, subqueries } => {
            let subqueries = subqueries.iter().map(pruned).collect();
            let (input, kept) = prune(input, needed);
            (Plan::Scalars { input: Box::new(input), subqueries }, kept)
        }
        Plan::Sort { input, keys, fetch } => {
            let (input, kept) = prune(input, &(needed | &columns_of_all(keys.iter().map(|key| &key.expr))));
            let keys = keys.iter().map(|key| SortKey { expr: moved(&key.expr, &kept), ..key.clone() });
            (Plan::Sort { input: Box::new(input), keys: keys.collect(), fetch: *fetch }, kept)
        }
        Plan::Limit { input, skip, fetch } => {
            let (input, kept) = prune(input, needed);
            (Plan::Limit { input: Box::new(input), skip: *skip, fetch: *fetch }, kept)
        }
    }
}

fn prune_join(join: &Join, needed: &BTreeSet<usize>) -> (Plan, Kept) {
    use JoinKind::*;
    let (build, probe) = (join.build.fields().len(), join.probe.fields().len());
    let pairs = columns_of_all(&join.residual);
    let of_build = |columns: &BTreeSet<usize>| columns.iter().copied().filter(|c| *c < build).collect();
    let of_probe = |columns: &BTreeSet<usize>| -> BTreeSet<usize> {
        columns.iter().filter_map(|column| column.checked_sub(build)).collect()
    };
    let (mut for_build, mut for_probe): (BTreeSet<usize>, _) = (of_build(&pairs), of_probe(&pairs));
    for_build.extend(columns_of_all(join.keys.iter().map(|(key, _)| key)));
    for_probe.extend(columns_of_all(join.keys.iter().map(|(_, key)| key)));
    match join.kind {
        Inner | BuildOuter | ProbeOuter | FullOuter => {
            for_build.extend(of_build(needed));
            for_probe.extend(of_probe(needed));
        }
        BuildSemi | BuildAnti | BuildMark => for_build.extend(of_build(needed)),
        ProbeSemi | ProbeAnti | ProbeMark => for_probe.extend(needed.iter().filter(|c| **c < probe)),
    }
    let (build_plan, build_kept) = prune(&join.build, &for_build);
    let (probe_plan, probe_kept) = prune(&join.probe, &for_probe);
    let probe_above = probe_kept.iter().map(|column| column + build);
    let both: Kept = build_kept.iter().copied().chain(probe_above).collect();
    let keys = join.keys.iter().map(|(l, r)| (moved(l, &build_kept), moved(r, &probe_kept))).collect();
    let residual = join.residual.as_ref().map(|residual| moved(residual, &both));
    let kept = match join.kind {
        Inner | BuildOuter | ProbeOuter | FullOuter => both,
        BuildSemi | BuildAnti => build_kept,
        ProbeSemi | ProbeAnti => probe_kept,
        BuildMark => build_kept.into_iter().chain([build]).collect(),
        ProbeMark => probe_kept.into_iter().chain([probe]).collect(),
    };
    let join = Join { build: build_plan, probe: probe_plan, keys, residual, ..join.clone() };
    (Plan::Join(Box::new(join)), kept)
}

/// An expression over columns of which some went.
fn moved(expr: &Expr, kept: &[usize]) -> Expr {
    substitute(expr, &|e| match e.kind {
        ExprKind::Column(index) => {
            // Ascending: columns stay in their order.
            let place = kept.binary_search(&index).unwrap_or(usize::MAX);
            Some(Expr::column(place, e.data_type.clone(), e.nullable))
        }
        _ => None,
    })
}
