//! Which columns of rows follow from which others: rows that agree in some columns agree in others too, as groups see it (NULL is equal to
//! NULL, and -0.0 to 0.0).
//!
//! It begins with what is certain in this run: a column of a scan whose values were found to be all different while they were read, and
//! the assumption that a build side's keys are unique, which building its index checks. The rest is derived: through joins, projections
//! and groups. A key of a grouping that follows from the others needs neither be hashed nor compared (`operator/aggregate/dependent`).

use std::collections::BTreeSet;

use crate::expr::{Expr, ExprKind, children, columns_read};
use crate::layout::{ColumnFacts, ColumnInfo};
use crate::plan::{Join, JoinKind};
use crate::types::DataType;

/// Dependences that are kept of some rows, at most.
const MOST: usize = 64;

/// What is known to follow from what.
#[derive(Debug, Clone, Default)]
pub(super) struct Dependences(Vec<Dependence>);

/// Rows that agree in all columns `of` (none: any rows) agree in each of those that `follow`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dependence {
    of: BTreeSet<usize>,
    follow: BTreeSet<usize>,
}

/// One side of a join.
#[derive(Debug, Clone, Copy)]
pub(super) struct Side<'a> {
    pub known: &'a Dependences,
    pub columns: &'a [ColumnInfo],
}

impl Dependences {
    /// Those of a scan.
    pub(super) fn of_scan(columns: &[ColumnInfo], facts: &[ColumnFacts]) -> Dependences {
        let is_unique = |column: usize| facts.get(column).is_some_and(|facts| facts.is_unique);
        let is_key = |column: &usize| is_unique(*column) && !columns[*column].nullable;
        let keys = (0..columns.len()).filter(is_key);
        let all = |key| Dependence { of: BTreeSet::from([key]), follow: (0..columns.len()).collect() };
        Dependences(keys.map(all).collect())
    }

    /// Those of groups that have so many columns, of which `of` tell them apart.
    pub(super) fn of_groups(of: BTreeSet<usize>, columns: usize) -> Dependences {
        Dependences(vec![Dependence { of, follow: (0..columns).collect() }])
    }

    /// Those of a projection.
    pub(super) fn projected(&self, exprs: &[Expr]) -> Dependences {
        let place = |column: &usize| exprs.iter().position(|expr| expr.kind == ExprKind::Column(*column));
        let mut known = Dependences::default();
        for Dependence { of, .. } in &self.0 {
            // What follows from columns that are not passed on is lost, but for what follows by way of them.
            if let Some(places) = of.iter().map(place).collect() {
                known.add(places, self.given(of, exprs));
            }
        }
        // An expression follows from the columns that it reads, and a column from itself where it is passed on again.
        for expr in exprs {
            let of = columns_read(expr).into_iter().collect::<BTreeSet<_>>();
            if let Some(places) = of.iter().map(place).collect() {
                known.add(places, self.given(&of, exprs));
            }
        }
        known
    }

    /// The places of the expressions whose values are given by those of some columns.
    fn given(&self, columns: &BTreeSet<usize>, exprs: &[Expr]) -> BTreeSet<usize> {
        let all = self.closure(columns);
        let places = exprs.iter().enumerate().filter(|(_, expr)| is_given(expr, &all));
        places.map(|(place, _)| place).collect()
    }

    /// Those of a join's rows. `is_unique`: no two rows of the build side that find a match have the same keys.
    pub(super) fn of_join(join: &Join, build: Side<'_>, probe: Side<'_>, is_unique: bool) -> Dependences {
        use JoinKind::*;
        let width = build.columns.len();
        match join.kind {
            BuildSemi | BuildAnti | BuildMark => build.known.clone(),
            ProbeSemi | ProbeAnti | ProbeMark => probe.known.clone(),
            Inner => {
                let mut known = build.known.clone().with(probe.known.moved(width));
                known.add_keys(join, width, is_unique);
                known
            }
            ProbeOuter => {
                let mut known = build.where_present(0).with(probe.known.moved(width));
                // Whether a row has a match depends on its keys alone.
                let is_told = is_unique && join.residual.is_none();
                if let Some((_, keys)) = columns_of_keys(join, width).filter(|_| is_told) {
                    known.add(keys, (0..width).collect());
                }
                known
            }
            BuildOuter => build.known.clone().with(probe.where_present(width)),
            FullOuter => build.where_present(0).with(probe.where_present(width)),
        }
    }

    /// What follows where each row is a pair whose keys are equal.
    fn add_keys(&mut self, join: &Join, width: usize, is_unique: bool) {
        for (build, probe) in &join.keys {
            if let (ExprKind::Column(own), ExprKind::Column(other), false) =
                (&build.kind, &probe.kind, build.data_type.is_float())
            {
                let (own, other) = (*own, width + other);
                self.add(BTreeSet::from([own]), BTreeSet::from([other]));
                self.add(BTreeSet::from([other]), BTreeSet::from([own]));
            }
        }
        if let Some((own, other)) = columns_of_keys(join, width).filter(|_| is_unique) {
            self.add(own, (0..width).collect());
            self.add(other, (0..width).collect());
        }
    }

    fn add(&mut self, of: BTreeSet<usize>, follow: BTreeSet<usize>) {
        let new = Dependence { of, follow };
        if self.0.len() < MOST && !new.follow.is_subset(&new.of) && !self.0.contains(&new) {
            self.0.push(new);
        }
    }

    /// These and those of columns that stand behind.
    fn with(mut self, others: Dependences) -> Dependences {
        self.0.extend(others.0);
        self.0.truncate(MOST);
        self
    }

    /// The same of columns that stand behind so many others.
    fn moved(&self, by: usize) -> Dependences {
        let moved = |columns: &BTreeSet<usize>| columns.iter().map(|column| column + by).collect();
        let all = self.0.iter();
        Dependences(all.map(|own| Dependence { of: moved(&own.of), follow: moved(&own.follow) }).collect())
    }

    /// Sets of columns, each with the others that follow from it.
    pub(super) fn followers_of(&self) -> Vec<(&BTreeSet<usize>, BTreeSet<usize>)> {
        self.0.iter().map(|own| (&own.of, own.follow.difference(&own.of).copied().collect())).collect()
    }

    /// The columns with all that follow from them.
    pub(super) fn closure(&self, columns: &BTreeSet<usize>) -> BTreeSet<usize> {
        let (mut all, mut open) = (columns.clone(), self.0.iter().collect::<Vec<_>>());
        loop {
            let before = open.len();
            open.retain(|own| {
                let holds = own.of.is_subset(&all);
                if holds {
                    all.extend(&own.follow);
                }
                !holds
            });
            if open.len() == before {
                return all;
            }
        }
    }

    /// The keys of a grouping that follow from the others, where these are the rows' columns: as many as there can be, those first that
    /// are dearest to hash and to compare. One is left in any case.
    pub(super) fn followers(&self, keys: &[ColumnInfo]) -> BTreeSet<usize> {
        let mut own: BTreeSet<usize> = (0..keys.len()).collect();
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|key| std::cmp::Reverse(cost(&keys[*key])));
        for key in order {
            let mut others = own.clone();
            others.remove(&key);
            if !others.is_empty() && self.closure(&others).contains(&key) {
                own = others;
            }
        }
        (0..keys.len()).filter(|key| !own.contains(key)).collect()
    }
}

impl Side<'_> {
    /// What follows among the columns of a side, which stand behind `by` others, where some rows have NULLs in all of them since there is
    /// no row of the side. Those agree with each other, and where some column that others follow from is never NULL else, with no
    /// other row.
    fn where_present(self, by: usize) -> Dependences {
        let is_told = |own: &&Dependence| {
            own.of.iter().any(|column| self.columns.get(*column).is_some_and(|column| !column.nullable))
        };
        Dependences(self.known.0.iter().filter(is_told).cloned().collect()).moved(by)
    }
}

/// The columns that a join's keys are, of both sides, if all are; those of the probe side stand behind `width` others. Not of floats: a
/// join may tell apart what is one group.
fn columns_of_keys(join: &Join, width: usize) -> Option<(BTreeSet<usize>, BTreeSet<usize>)> {
    let pair = |(build, probe): &(Expr, Expr)| match (&build.kind, &probe.kind) {
        (ExprKind::Column(own), ExprKind::Column(other)) if !build.data_type.is_float() => {
            Some((*own, width + other))
        }
        _ => None,
    };
    join.keys.iter().map(pair).collect::<Option<Vec<_>>>().map(|pairs| pairs.into_iter().unzip())
}

/// Whether an expression's value is given by those of some columns. One group has rows with 0.0 and with -0.0, of which different values
/// may be computed.
fn is_given(expr: &Expr, columns: &BTreeSet<usize>) -> bool {
    match expr.kind {
        ExprKind::Column(column) => columns.contains(&column),
        _ => children(expr).into_iter().all(|child| is_given(child, columns) && !is_float_column(child)),
    }
}

fn is_float_column(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Column(_)) && expr.data_type.is_float()
}

/// About how dear it is to hash a key and to compare it: the bits that it takes, or more where it fits no word.
fn cost(key: &ColumnInfo) -> u32 {
    const TEXT: u32 = 1 << 10;
    const WIDE: u32 = 1 << 8;
    match (&key.data_type, key.dictionary, key.range) {
        (_, Some((_, _, entries)), _) => u32::BITS - entries.leading_zeros(),
        (DataType::Utf8, None, _) => TEXT,
        (_, _, Some(range)) => {
            range.max.checked_sub(range.min).map_or(WIDE, |width| 128 - width.leading_zeros())
        }
        _ => WIDE,
    }
}
