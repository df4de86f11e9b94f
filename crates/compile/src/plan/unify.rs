//! Two plans as one: a plan that has the columns of both, where both have the same rows.
//!
//! A statement that uses a view twice has its plan twice, but seldom the same: each use reads other columns of it. So scans may differ in
//! their columns, projections in their expressions and aggregations in their aggregates; everything else must be equal, expression by
//! expression. Names are of no account.

use std::cell::Cell;

use super::{Aggregate, Join, JoinKind, Plan, Scan};
use crate::expr::{Expr, ExprKind, substitute};
use crate::types::Field;

/// A plan in whose rows another plan's columns are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unified {
    /// The plan.
    pub plan: Plan,
    /// Which of its columns the first plan's are, in order.
    pub first: Vec<usize>,
    /// Which of them the second plan's are.
    pub second: Vec<usize>,
}

/// Tells the column of one scan that another scan's column is, by their sources: `None` where these are not the same table.
pub trait SameColumns {
    /// The column of source `of` that has the data of column `column` of source `other`.
    fn column(&self, of: usize, other: usize, column: usize) -> Option<usize>;
}

/// One plan for two, where they have the same rows; `None` where that is not known.
pub fn unify(first: &Plan, second: &Plan, same: &dyn SameColumns) -> Option<Unified> {
    if let (Plan::Project { .. }, _) | (_, Plan::Project { .. }) = (first, second) {
        return projects(first, second, same);
    }
    match (first, second) {
        (Plan::Scan(first), Plan::Scan(second)) => scans(first, second, same),
        (Plan::Filter { input: own, predicate }, Plan::Filter { input: other, predicate: wanted }) => {
            let inputs = unify(own, other, same)?;
            let predicate = moved(predicate, &inputs.first)?;
            if moved(wanted, &inputs.second)? != predicate {
                return None;
            }
            let plan = Plan::Filter { input: Box::new(inputs.plan), predicate };
            Some(Unified { plan, first: inputs.first, second: inputs.second })
        }
        (Plan::Aggregate { .. }, Plan::Aggregate { .. }) => aggregates(first, second, same),
        (Plan::Join(first), Plan::Join(second)) => joins(first, second, same),
        _ => alike(first, second, same),
    }
}

/// An expression with other columns.
fn moved(expr: &Expr, places: &[usize]) -> Option<Expr> {
    let is_known = Cell::new(true);
    let found = substitute(expr, &|part| match part.kind {
        ExprKind::Column(column) => {
            let place = places.get(column).copied();
            is_known.set(is_known.get() && place.is_some());
            Some(Expr { kind: ExprKind::Column(place.unwrap_or(column)), ..part.clone() })
        }
        _ => None,
    });
    is_known.get().then_some(found)
}

/// The place of an element that is added where it is not there yet.
fn place<T: PartialEq>(all: &mut Vec<T>, wanted: T) -> usize {
    all.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        all.push(wanted);
        all.len() - 1
    })
}

fn scans(first: &Scan, second: &Scan, same: &dyn SameColumns) -> Option<Unified> {
    let mut scan = first.clone();
    let mut places = Vec::new();
    for (column, field) in second.columns.iter().zip(&second.fields) {
        let column = same.column(first.source, second.source, *column)?;
        let at = place(&mut scan.columns, column);
        if at == scan.fields.len() {
            scan.fields.push(field.clone());
        }
        places.push(at);
    }
    let own = (0..first.columns.len()).collect();
    Some(Unified { plan: Plan::Scan(scan), first: own, second: places })
}

/// Of two plans of which one projects at least.
fn projects(first: &Plan, second: &Plan, same: &dyn SameColumns) -> Option<Unified> {
    let input = |plan: &Plan| match plan {
        Plan::Project { input, .. } => (**input).clone(),
        other => other.clone(),
    };
    let inputs = unify(&input(first), &input(second), same)?;
    let exprs = |plan: &Plan, places: &[usize]| -> Option<Vec<Expr>> {
        match plan {
            Plan::Project { exprs, .. } => exprs.iter().map(|expr| moved(expr, places)).collect(),
            other => {
                let column = |(index, field): (usize, Field)| {
                    let place = places.get(index)?;
                    Some(Expr::column(*place, field.data_type, field.nullable))
                };
                other.fields().into_iter().enumerate().map(column).collect()
            }
        }
    };
    let (own, other) = (exprs(first, &inputs.first)?, exprs(second, &inputs.second)?);
    let column = |expr: &Expr| match expr.kind {
        ExprKind::Column(column) => Some(column),
        _ => None,
    };
    let columns = |exprs: &[Expr]| exprs.iter().map(column).collect::<Option<Vec<usize>>>();
    if let (Some(own), Some(other)) = (columns(&own), columns(&other)) {
        return Some(Unified { plan: inputs.plan, first: own, second: other });
    }
    let mut all = Vec::new();
    let own = own.into_iter().map(|expr| place(&mut all, expr)).collect();
    let other = other.into_iter().map(|expr| place(&mut all, expr)).collect();
    let names = (0..all.len()).map(|number| format!("column_{number}")).collect();
    let plan = Plan::Project { input: Box::new(inputs.plan), exprs: all, names };
    Some(Unified { plan, first: own, second: other })
}

fn aggregates(first: &Plan, second: &Plan, same: &dyn SameColumns) -> Option<Unified> {
    let (
        Plan::Aggregate { input, keys, aggregates, names },
        Plan::Aggregate { input: other, keys: other_keys, aggregates: wanted, .. },
    ) = (first, second)
    else {
        return None;
    };
    let inputs = unify(input, other, same)?;
    let moved_keys =
        |keys: &[Expr], places| -> Option<Vec<Expr>> { keys.iter().map(|key| moved(key, places)).collect() };
    let own_keys = moved_keys(keys, &inputs.first)?;
    if own_keys != moved_keys(other_keys, &inputs.second)? {
        return None;
    }
    let over = |aggregate: &Aggregate, places: &[usize]| -> Option<Aggregate> {
        let argument = aggregate.argument.as_ref().map(|argument| moved(argument, places));
        let argument = argument.map_or(Some(None), |argument| argument.map(Some))?;
        Some(Aggregate { argument, ..aggregate.clone() })
    };
    let mut all: Vec<Aggregate> =
        aggregates.iter().map(|aggregate| over(aggregate, &inputs.first)).collect::<Option<_>>()?;
    let count = own_keys.len();
    let first = (0..count + all.len()).collect();
    let mut second: Vec<usize> = (0..count).collect();
    for aggregate in wanted {
        let aggregate = over(aggregate, &inputs.second)?;
        let is_same = |known: &Aggregate| {
            let renamed = Field { name: known.field.name.clone(), ..aggregate.field.clone() };
            *known == Aggregate { field: renamed, ..aggregate.clone() }
        };
        let known = all.iter().position(is_same);
        second.push(count + known.unwrap_or(all.len()));
        if known.is_none() {
            all.push(aggregate);
        }
    }
    let mut names: Vec<String> = names.iter().take(count).cloned().collect();
    names.extend(all.iter().map(|aggregate| aggregate.field.name.clone()));
    let plan = Plan::Aggregate { input: Box::new(inputs.plan), keys: own_keys, aggregates: all, names };
    Some(Unified { plan, first, second })
}

fn joins(first: &Join, second: &Join, same: &dyn SameColumns) -> Option<Unified> {
    let is_alike = first.kind == second.kind
        && first.null_equal == second.null_equal
        && first.null_aware == second.null_aware
        && first.keys.len() == second.keys.len();
    if !is_alike {
        return None;
    }
    let build = unify(&first.build, &second.build, same)?;
    let probe = unify(&first.probe, &second.probe, same)?;
    let (before, behind) = (build.plan.fields().len(), probe.plan.fields().len());
    let pairs = |own: &[usize], other: &[usize]| -> Vec<usize> {
        own.iter().copied().chain(other.iter().map(|column| before + column)).collect()
    };
    let moved_join = |join: &Join, own: &[usize], other: &[usize]| {
        let keys = join.keys.iter().map(|(build, probe)| Some((moved(build, own)?, moved(probe, other)?)));
        let residual = join.residual.as_ref().map(|residual| moved(residual, &pairs(own, other)));
        Some((keys.collect::<Option<Vec<_>>>()?, residual.map_or(Some(None), |residual| residual.map(Some))?))
    };
    let (keys, residual) = moved_join(first, &build.first, &probe.first)?;
    if moved_join(second, &build.second, &probe.second)? != (keys.clone(), residual.clone()) {
        return None;
    }
    let columns = |own: &[usize], other: &[usize]| -> Vec<usize> {
        use JoinKind::*;
        match first.kind {
            Inner | BuildOuter | ProbeOuter | FullOuter => pairs(own, other),
            BuildSemi | BuildAnti => own.to_vec(),
            ProbeSemi | ProbeAnti => other.to_vec(),
            BuildMark => own.iter().copied().chain([before]).collect(),
            ProbeMark => other.iter().copied().chain([behind]).collect(),
        }
    };
    let (own, other) = (columns(&build.first, &probe.first), columns(&build.second, &probe.second));
    let join = Join { build: build.plan, probe: probe.plan, keys, residual, ..*first };
    Some(Unified { plan: Plan::Join(Box::new(join)), first: own, second: other })
}

/// Of two plans that are equal but for the sources of their scans.
fn alike(first: &Plan, second: &Plan, same: &dyn SameColumns) -> Option<Unified> {
    let (own, other) = (first.inputs(), second.inputs());
    if own.len() != other.len() || own.is_empty() {
        return None;
    }
    let inputs = own.into_iter().zip(other).map(|(own, other)| {
        let unified = unify(own, other, same)?;
        let all: Vec<usize> = (0..unified.plan.fields().len()).collect();
        (unified.first == all && unified.second == all).then_some(unified.plan)
    });
    let inputs = inputs.collect::<Option<Vec<Plan>>>()?;
    let with_inputs = |plan: &Plan| {
        let mut inputs = inputs.iter().cloned();
        plan.map_inputs::<()>(&mut |_| inputs.next().ok_or(())).ok()
    };
    let plan = with_inputs(first)?;
    if with_inputs(second)? != plan {
        return None;
    }
    let all: Vec<usize> = (0..plan.fields().len()).collect();
    Some(Unified { plan, first: all.clone(), second: all })
}
