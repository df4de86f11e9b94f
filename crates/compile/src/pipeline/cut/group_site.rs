//! Names of aggregations, by which their choices are shown and forced. They follow from the plan alone: its operators that make groups have
//! numbers in the order in which their rows are ready, inputs first, whatever is chosen for any of them. Where an operator is carried out
//! by several aggregations, these are told apart behind its number: so what is chosen for one operator renames nothing of another.

use std::fmt;

use super::Cut;
use crate::plan::Plan;

/// An aggregation: `aggregate1`; `aggregate1.set2`, the third level of its grouping sets; `aggregate1.groups`, that of finer groups;
/// `aggregate1.bounds`, that of the first rows of a window; `join1.keys`, that of the rows of a join's side by its keys.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupSite {
    /// The number of the plan's operator.
    operator: usize,
    /// Which of the levels of grouping sets.
    set: usize,
    /// Its rows are groups that other aggregations of the same operator make.
    is_of_groups: bool,
    /// It finds bounds of the rows that a window needs.
    is_of_bounds: bool,
    /// It groups the rows of a join by their keys: the number is the join's.
    is_of_join: bool,
}

impl fmt::Display for GroupSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.is_of_join { "join" } else { "aggregate" };
        write!(f, "{whose}{}", self.operator)?;
        f.write_str(if self.is_of_join { ".keys" } else { "" })?;
        if self.set > 0 {
            write!(f, ".set{}", self.set)?;
        }
        f.write_str(if self.is_of_groups { ".groups" } else { "" })?;
        f.write_str(if self.is_of_bounds { ".bounds" } else { "" })
    }
}

impl GroupSite {
    /// The first aggregation of an operator.
    pub fn of(operator: usize) -> GroupSite {
        GroupSite { operator, ..GroupSite::default() }
    }

    /// The aggregation of the rows of a join's side by its keys.
    pub fn of_join(ordinal: usize) -> GroupSite {
        GroupSite { operator: ordinal, is_of_join: true, ..GroupSite::default() }
    }

    /// The aggregation that makes a level of grouping sets.
    pub fn of_set(self, set: usize) -> GroupSite {
        GroupSite { set, is_of_groups: false, ..self }
    }

    /// The aggregation that bounds the rows of a window.
    pub fn of_bounds(self) -> GroupSite {
        GroupSite { is_of_bounds: true, ..self }
    }

    /// The aggregation of the groups that this one makes.
    pub fn of_groups(self) -> GroupSite {
        GroupSite { is_of_groups: true, ..self }
    }
}

impl Cut<'_> {
    /// The next operator that makes groups is carried out: its input is open.
    pub(super) fn begin_groups(&mut self) {
        self.groups = GroupSite::of(self.next_groups);
        self.next_groups += 1;
    }
}

/// How many operators of a plan make groups.
pub(super) fn group_operators(plan: &Plan) -> usize {
    let own =
        matches!(plan, Plan::Aggregate { .. } | Plan::GroupingSets(_) | Plan::Ranked(_) | Plan::Window(_));
    usize::from(own) + plan.inputs().into_iter().map(group_operators).sum::<usize>()
}
