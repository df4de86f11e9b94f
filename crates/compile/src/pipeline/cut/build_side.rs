//! Which side of an inner join is built.
//!
//! The planner chooses by statistics, which tables in memory, CSV and JSON hardly have: it counts their rows at best. Here the columns are
//! loaded, so it is known how many rows there are, and of columns in order that no value is there twice.
//!
//! Both sides are opened in the order of the plan, whichever is built: scans, joins and aggregates keep their numbers. Then the join is
//! one whose sides have changed places, below a projection that puts the columns in their places again.

use super::Cut;
use super::join::JoinSite;
use super::join_parts::Downstream;
use super::open::{Open, OpenRows};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind, substitute};
use crate::layout::ColumnInfo;
use crate::lower::{can_fail, column_of};
use crate::operator::join::SearchRange;
use crate::plan::{Join, JoinKind};
use crate::types::{DataType, Range};
use crate::variant::all_but;
use crate::variant::axes::BuiltSide;

/// Rows of a build side up to which it does not matter: launches of kernels, or of workers, take longer than such rows in any of them.
const FEW_ROWS: u64 = 1 << 14;
/// How many times as many rows as the other side has are not built.
const LARGER: u64 = 4;
/// The same where the other side's keys may be there several times, and the build side's are not, which are in order too: such rows are
/// copied to the slots of their keys, while those of the other side are counted, summed up over all slots and put into buckets.
const LARGER_THAN_REPEATED: u64 = 16;

/// A table of so many times the rows that joins can have at most is not built, whatever is left of these.
const LARGER_THAN_ALL: u64 = 8;

/// Rows of both sides below which pairs are tried as they come.
const MANY_PAIRS: u64 = 1 << 10;

/// Why a side is not built that DataFusion might never come to.
const MAY_FAIL: &str = "a side may fail, which nobody looks at where the other one is empty";

/// What is known of a side of a join.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// The rows that are thought to come.
    rows: u64,
    /// It is a table, of which filters alone drop rows.
    is_table: bool,
    /// There are exactly so many rows.
    is_exact: bool,
    /// No two rows have the same keys.
    is_unique: bool,
}

impl Cut<'_> {
    pub(super) fn built_side(
        &self,
        at: &JoinSite<'_>,
        build: &OpenRows,
        probe: &OpenRows,
    ) -> Result<BuiltSide, Unsupported> {
        let join = at.join;
        let sides = (build.columns.as_slice(), probe.columns.as_slice());
        let why_not = self.why_not_other(at, build, probe);
        if join.keys.is_empty() && join.residual.is_some() {
            let rule = match why_not {
                Some(why_not) => (BuiltSide::Written, why_not),
                None if build.bound() < MANY_PAIRS && probe.bound() < MANY_PAIRS => {
                    (BuiltSide::Written, "few pairs are tried")
                }
                None => by_ranges(join, sides),
            };
            return at.site.choose(rule, all_but(BuiltSide::Other, &why_not));
        }
        let (own, other) = (self.known(join, build, true), self.known(join, probe, false));
        if join.kind != JoinKind::Inner && !join.null_aware {
            let asks = matches!(join.kind, JoinKind::BuildSemi | JoinKind::BuildAnti | JoinKind::BuildMark);
            if !asks || join.residual.is_none() {
                return Ok(BuiltSide::Written);
            }
            // The other side runs where there are rows that ask for it: then nothing fails that would not fail anyway.
            let runs = own.is_exact && own.rows > 0;
            let why_not = why_not.filter(|why| !(runs && *why == MAY_FAIL));
            let rule = match why_not {
                Some(why_not) => (BuiltSide::Written, why_not),
                None => by_single_matches(join, (build, probe), own),
            };
            return at.site.choose(rule, all_but(BuiltSide::Other, &why_not));
        }
        let rule = match why_not {
            Some(why_not) => (BuiltSide::Written, why_not),
            // No planner has chosen: the side that NOT IN keeps is always the first.
            None if join.null_aware && own.rows >= other.rows => {
                (BuiltSide::Other, "the list of NOT IN has no more rows than are looked for in it")
            }
            None if join.null_aware && is_repeated(join, build) => {
                (BuiltSide::Other, "each value of the list of NOT IN would be met with many rows")
            }
            None if join.null_aware => (BuiltSide::Written, "the list of NOT IN has many rows"),
            None if join.keys.is_empty() => (BuiltSide::Written, "pairs of all rows need no index"),
            None if own.rows < FEW_ROWS => (BuiltSide::Written, "few rows are built"),
            None if own.is_table && !other.is_table && own.rows / LARGER_THAN_ALL >= probe.bound() => {
                (BuiltSide::Other, "the probe side has far fewer rows at most")
            }
            None if !own.is_table || !other.is_table => {
                (BuiltSide::Written, "how many rows joins and groups leave is not foreseen well")
            }
            // Its source would be another table, whose rows they find at the other's.
            None if at.downstream != Downstream::default() => {
                (BuiltSide::Written, "joins further on may leave out rows at the probe side's scan")
            }
            None if self.is_grouped_in_order(at.ordinal, probe) => {
                (BuiltSide::Written, "the probe side's rows come group after group, or nearly")
            }
            None => by_rows(own, other),
        };
        let estimate = format!("{} built, {} looked up", own.text(), other.text());
        at.site.choose_by((rule, Some(estimate)), all_but(BuiltSide::Other, &why_not))
    }

    /// Why the sides of an inner join may not change places, where that is so.
    pub(super) fn why_not_other(
        &self,
        at: &JoinSite<'_>,
        build: &OpenRows,
        probe: &OpenRows,
    ) -> Option<&'static str> {
        let keeps_order = self.uses.get(at.ordinal).is_none_or(|uses| uses.in_order);
        let fails = |expr: &Expr, rows: &OpenRows| may_fail(expr, &rows.columns);
        match () {
            () if at.join.null_aware && at.join.kind != JoinKind::BuildAnti => {
                Some("NULL keys of the build side count")
            }
            () if at.join.null_aware
                && at.join.keys.iter().any(|(key, _)| key.data_type == DataType::Utf8) =>
            {
                Some("texts that have no code are no NULLs")
            }
            () if keeps_order => Some("texts are strung together in the order of the probe side"),
            () if !build.properties.is_safe || !probe.properties.is_safe => Some(MAY_FAIL),
            () if at.join.keys.iter().any(|(own, other)| fails(own, build) || fails(other, probe)) => {
                Some("a key may fail, which nobody looks at where the other side is empty")
            }
            () => None,
        }
    }

    /// What is known of a side, which `is_build` of a join.
    fn known(&self, join: &Join, rows: &OpenRows, is_build: bool) -> Known {
        let is_table = rows.branches.len() == 1 && rows.branches.iter().all(Open::is_table);
        let is_unique = |(build, probe): &(Expr, Expr)| {
            let key = column_of(if is_build { build } else { probe }, &rows.columns);
            key.origin.is_some_and(|(scan, column)| {
                self.scans
                    .get(scan)
                    .and_then(|info| info.columns.get(column))
                    .is_some_and(|facts| facts.is_unique)
            })
        };
        Known {
            rows: rows.expected(),
            is_table,
            is_exact: is_table && rows.branches.iter().all(Open::has_every_row),
            is_unique: is_table && join.keys.iter().any(is_unique),
        }
    }

    /// Whether rows are grouped further on by what the probe side's rows have in about this order.
    fn is_grouped_in_order(&self, ordinal: usize, probe: &OpenRows) -> bool {
        let is_clustered = |column: &usize| probe.columns.get(*column).is_some_and(|info| info.is_clustered);
        self.uses.get(ordinal).is_some_and(|uses| uses.grouped.iter().any(is_clustered))
    }
}

impl Known {
    fn text(self) -> String {
        let about = if self.is_exact { "" } else { "about " };
        let unique = if self.is_unique { " of unique keys" } else { "" };
        format!("{about}{} rows{unique}", self.rows)
    }
}

/// Whether the build side's keys have far fewer values than there are rows.
fn is_repeated(join: &Join, build: &OpenRows) -> bool {
    let values = |(key, _): &(Expr, Expr)| column_of(key, &build.columns).values();
    let all = join.keys.iter().map(values).try_fold(1u64, |all, values| Some(all.saturating_mul(values?)));
    all.is_some_and(|values| values.saturating_mul(LARGER) <= build.expected())
}

/// The rule where both sides are tables, and nothing but their rows and keys speaks for either.
fn by_rows(build: Known, probe: Known) -> (BuiltSide, &'static str) {
    let larger = if build.is_unique && !probe.is_unique { LARGER_THAN_REPEATED } else { LARGER };
    match () {
        () if probe.is_unique && !build.is_unique && probe.rows <= build.rows => {
            (BuiltSide::Other, "the probe side has unique keys, which need no buckets, and no more rows")
        }
        () if build.is_exact && probe.is_exact && build.rows >= probe.rows.saturating_mul(larger) => {
            (BuiltSide::Other, "the probe side has far fewer rows")
        }
        () if probe.is_unique && !build.is_unique => {
            (BuiltSide::Written, "the probe side has unique keys, but more rows")
        }
        () => (BuiltSide::Written, "nothing is known that the planner did not know"),
    }
}

/// The rule where rows ask whether some pair meets a condition beside the keys: a row with one match at most looks at this one, while
/// matches that look for their rows go through all of a key.
fn by_single_matches(
    join: &Join,
    (build, probe): (&OpenRows, &OpenRows),
    own: Known,
) -> (BuiltSide, &'static str) {
    let (built, looked_up): (Vec<Expr>, Vec<Expr>) = join.keys.iter().cloned().unzip();
    match () {
        () if own.rows < FEW_ROWS => (BuiltSide::Written, "few rows are built"),
        () if !probe.properties.are_unique(&looked_up) => {
            (BuiltSide::Written, "a row may have several matches")
        }
        () if build.properties.are_unique(&built) => (BuiltSide::Written, "a match has one row at most"),
        () => (BuiltSide::Other, "a row has one match at most, which has many rows"),
    }
}

/// The rule where a condition alone decides. Two bounds of one order of the build side's rows are a range of them, where of two orders
/// one alone is searched in; and whether there is a row in a range is one search, where to mark all rows in it takes as long as there are
/// rows.
fn by_ranges(join: &Join, (build, probe): (&[ColumnInfo], &[ColumnInfo])) -> (BuiltSide, &'static str) {
    use JoinKind::*;
    let own = SearchRange::of(join, (build, probe));
    let other = SearchRange::of(&changed(join, build.len(), probe.len()).join, (probe, build));
    let decides = |range: &Option<SearchRange>| range.as_ref().is_some_and(|range| range.rest.is_none());
    let has_both = |range: &Option<SearchRange>| range.as_ref().is_some_and(SearchRange::has_both_ends);
    match join.kind {
        BuildSemi | BuildAnti | BuildMark if decides(&other) => {
            (BuiltSide::Other, "whether a range has a row is one search")
        }
        ProbeSemi | ProbeAnti | ProbeMark if decides(&own) => {
            (BuiltSide::Written, "whether a range has a row is one search")
        }
        _ if has_both(&other) && !has_both(&own) => {
            (BuiltSide::Other, "the other side's rows have an order that is bounded on both sides")
        }
        _ => (BuiltSide::Written, "the other side's rows have no better order"),
    }
}

/// A join with its sides in each other's place.
pub(super) struct Changed {
    pub join: Join,
    /// The columns of that join that the written one's are, in order.
    pub places: Vec<usize>,
}

/// A join with its sides, which have so many columns, in each other's place.
pub(super) fn changed(join: &Join, before: usize, behind: usize) -> Changed {
    use JoinKind::*;
    let place = |column: usize| if column < before { behind + column } else { column - before };
    let moved = |expr: &Expr| match expr.kind {
        ExprKind::Column(column) => Some(Expr { kind: ExprKind::Column(place(column)), ..expr.clone() }),
        _ => None,
    };
    let (kind, places): (JoinKind, Vec<usize>) = match join.kind {
        BuildSemi => (ProbeSemi, (0..before).collect()),
        BuildAnti => (ProbeAnti, (0..before).collect()),
        BuildMark => (ProbeMark, (0..=before).collect()),
        ProbeSemi => (BuildSemi, (0..behind).collect()),
        ProbeAnti => (BuildAnti, (0..behind).collect()),
        ProbeMark => (BuildMark, (0..=behind).collect()),
        pairs => {
            let kind = match pairs {
                BuildOuter => ProbeOuter,
                ProbeOuter => BuildOuter,
                other => other,
            };
            (kind, (0..before + behind).map(place).collect())
        }
    };
    let join = Join {
        build: join.probe.clone(),
        probe: join.build.clone(),
        kind,
        keys: join.keys.iter().map(|(own, other)| (other.clone(), own.clone())).collect(),
        residual: join.residual.as_ref().map(|residual| substitute(residual, &moved)),
        ..*join
    };
    Changed { join, places }
}

/// Whether an expression over some columns may be an error.
pub(super) fn may_fail(expr: &Expr, columns: &[ColumnInfo]) -> bool {
    let range = |column: usize| -> Option<Range> { columns.get(column)?.range };
    !matches!(expr.kind, ExprKind::Column(_) | ExprKind::Literal(_)) && can_fail(expr, &range)
}
