//! Columns of scans that are keys of groupings.

use std::collections::BTreeSet;

use kelpie_compile::expr::{Expr, ExprKind};
use kelpie_compile::plan::{Aggregate, JoinKind, Plan, Scan};

/// The scan and column that a column of a plan is, unchanged.
pub(crate) type Origin = Option<(usize, usize)>;

/// What the groupings of a plan have for keys.
#[derive(Debug, Default)]
pub(crate) struct GroupingKeys {
    /// Keys by which rows are grouped together, each grouping's by itself.
    pub(crate) together: Vec<Vec<Origin>>,
    /// Keys of groupings by several sets of keys or with ranks, and arguments of which equal ones count once.
    apart: Vec<Origin>,
}

impl GroupingKeys {
    /// Those of a plan with these scans.
    pub(crate) fn of(plan: &Plan, scans: &[&Scan]) -> GroupingKeys {
        let mut found = GroupingKeys::default();
        found.walk(plan, scans);
        found
    }

    /// All that are columns of scans.
    pub(crate) fn columns(&self) -> BTreeSet<(usize, usize)> {
        self.together.iter().flatten().chain(&self.apart).copied().flatten().collect()
    }

    /// What the columns of a plan are.
    fn walk(&mut self, plan: &Plan, scans: &[&Scan]) -> Vec<Origin> {
        let inputs: Vec<Vec<Origin>> =
            plan.inputs().into_iter().map(|input| self.walk(input, scans)).collect();
        let first = inputs.first().map_or(&[][..], Vec::as_slice);
        match plan {
            Plan::Scan(scan) => {
                let number = scans.iter().position(|own| std::ptr::eq(*own, scan));
                (0..scan.columns.len()).map(|column| Some((number?, column))).collect()
            }
            Plan::Filter { .. } | Plan::Sort { .. } | Plan::Limit { .. } => first.to_vec(),
            // Subqueries are the first inputs.
            Plan::Scalars { .. } => inputs.last().cloned().unwrap_or_default(),
            Plan::Project { exprs, .. } => exprs.iter().map(|expr| origin(expr, first)).collect(),
            Plan::Aggregate { keys, aggregates, .. } => {
                let keys: Vec<Origin> = keys.iter().map(|key| origin(key, first)).collect();
                self.together.push(keys.clone());
                self.add_distinct(aggregates, first);
                keys.into_iter().chain(aggregates.iter().map(|_| None)).collect()
            }
            Plan::Join(join) => {
                let probe = inputs.get(1).map_or(&[][..], Vec::as_slice);
                match join.kind {
                    JoinKind::BuildSemi | JoinKind::BuildAnti => first.to_vec(),
                    JoinKind::BuildMark => [first, &[None]].concat(),
                    JoinKind::ProbeSemi | JoinKind::ProbeAnti => probe.to_vec(),
                    JoinKind::ProbeMark => [probe, &[None]].concat(),
                    _ => [first, probe].concat(),
                }
            }
            Plan::Window(window) => {
                first.iter().copied().chain(window.functions.iter().map(|_| None)).collect()
            }
            Plan::GroupingSets(sets) => {
                self.apart.extend(sets.keys.iter().map(|key| origin(key, first)));
                self.add_distinct(&sets.aggregates, first);
                vec![None; sets.fields.len()]
            }
            Plan::Ranked(ranked) => {
                self.apart.extend(ranked.keys.iter().map(|key| origin(key, first)));
                self.add_distinct(&ranked.aggregates, first);
                vec![None; plan.fields().len()]
            }
            Plan::Union { fields, .. } => vec![None; fields.len()],
        }
    }

    /// Adds the arguments of which equal ones count once: rows are grouped by them too.
    fn add_distinct(&mut self, aggregates: &[Aggregate], input: &[Origin]) {
        let distinct = aggregates.iter().filter(|aggregate| aggregate.distinct);
        self.apart.extend(distinct.filter_map(|aggregate| Some(origin(aggregate.argument.as_ref()?, input))));
    }
}

fn origin(expr: &Expr, input: &[Origin]) -> Origin {
    match expr.kind {
        ExprKind::Column(column) => input.get(column).copied().flatten(),
        _ => None,
    }
}
