//! What the rows of joins come to further on in their pipeline, by the plan alone.

use std::collections::BTreeSet;

use crate::expr::{Expr, ExprKind, columns_read};
use crate::plan::{Join, JoinKind, Plan};

/// What rows come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// The columns that they are grouped by.
    pub(super) grouped: BTreeSet<usize>,
    /// What becomes of them depends on their order.
    pub(super) in_order: bool,
}

impl Uses {
    /// Those of the probe side of every join of a plan, by the joins' numbers.
    pub(super) fn of_joins(plan: &Plan) -> Vec<Uses> {
        let mut found = Vec::new();
        Uses::default().walk(plan, &mut found);
        found
    }

    /// Rows that are grouped by some keys.
    fn groups<'e>(keys: impl IntoIterator<Item = &'e Expr>) -> Uses {
        Uses { grouped: keys.into_iter().flat_map(columns_read).collect(), in_order: false }
    }

    /// Notes those of joins in a plan whose rows come to this. Joins are numbered before those of their sides.
    fn walk(self, plan: &Plan, found: &mut Vec<Uses>) {
        match plan {
            Plan::Project { input, exprs, .. } => {
                let read = self.grouped.iter().filter_map(|column| exprs.get(*column));
                Uses { in_order: self.in_order, ..Uses::groups(read) }.walk(input, found);
            }
            Plan::Aggregate { input, keys, .. } => Uses::groups(keys).walk(input, found),
            Plan::GroupingSets(sets) => Uses::groups(&sets.keys).walk(&sets.input, found),
            Plan::Ranked(ranked) => {
                let in_order = ranked.keeps_order();
                Uses { in_order, ..Uses::groups(&ranked.keys) }.walk(&ranked.input, found);
            }
            Plan::Window(window) => {
                let in_order = window.keys.is_empty();
                Uses { in_order, ..Uses::default() }.walk(&window.input, found);
            }
            Plan::Join(join) => {
                let probe = self.of_probe(join);
                let build = Uses { in_order: self.in_order, ..Uses::default() };
                found.push(probe.clone());
                build.walk(&join.build, found);
                probe.walk(&join.probe, found);
            }
            Plan::Scan(_)
            | Plan::Filter { .. }
            | Plan::Union { .. }
            | Plan::Sort { .. }
            | Plan::Limit { .. }
            | Plan::Scalars { .. } => {
                plan.inputs().into_iter().for_each(|input| self.clone().walk(input, found));
            }
        }
    }

    /// What the rows of a join's probe side come to, where those of the join come to this.
    fn of_probe(&self, join: &Join) -> Uses {
        use JoinKind::*;
        let width = match join.kind {
            Inner | BuildOuter | ProbeOuter | FullOuter => join.build.fields().len(),
            ProbeSemi | ProbeAnti | ProbeMark => 0,
            // Its pipeline ends there.
            BuildSemi | BuildAnti | BuildMark => return Uses { in_order: self.in_order, ..Uses::default() },
        };
        let partner = |column: usize| {
            join.keys.iter().find_map(|(own, other)| match (&own.kind, &other.kind) {
                (ExprKind::Column(own), ExprKind::Column(other)) if *own == column => Some(*other),
                _ => None,
            })
        };
        let grouped = self.grouped.iter();
        let grouped = grouped.filter_map(|column| column.checked_sub(width).or_else(|| partner(*column)));
        Uses { grouped: grouped.collect(), in_order: self.in_order }
    }
}
