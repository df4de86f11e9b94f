//! The share of a probe side's rows that is thought to find a match.
//!
//! Mostly it is the share of the build side's table that its filters leave: sales of one of twenty regions are a twentieth. A calendar has
//! two hundred years of days, though, and sales those of five: of these, the days of one year are a fifth, and not a two-hundredth. So it
//! is where filters ask for ranges of the key (their columns are in the order of the rows, as it is) and the probe side has keys of a part
//! of the table alone: people ask for the years that there are.

use super::Cut;
use super::open::{Open, OpenRows, value_range};
use crate::expr::{Expr, ExprKind, columns_read, share_kept};
use crate::layout::{ColumnFacts, ColumnInfo};
use crate::lower::{column_of, conjuncts};
use crate::plan::Join;

/// What a build side leaves of a probe side's rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct MatchShare {
    /// Whether the build side may lack rows of its tables.
    pub is_narrowed: bool,
    /// The share that is thought to find a match.
    pub share: f64,
}

/// The shares of a table that its filters leave.
struct Left {
    /// By columns in the order of the rows: ranges of these.
    of_ranges: f64,
    /// By others.
    of_others: f64,
}

impl MatchShare {
    /// The share, where rows may be left out.
    pub(super) fn left(self) -> f64 {
        if self.is_narrowed { self.share } else { 1.0 }
    }
}

impl Cut<'_> {
    pub(super) fn match_share(&self, join: &Join, build: &OpenRows, probe: &OpenRows) -> MatchShare {
        let (is_narrowed, share) = build.narrowed();
        let of_part = self.share_of_part(join, build, probe).filter(|_| is_narrowed);
        MatchShare { is_narrowed, share: of_part.map_or(share, |of_part| of_part.max(share)) }
    }

    /// The share where filters ask for ranges of a key of which the probe side has a part alone.
    fn share_of_part(&self, join: &Join, build: &OpenRows, probe: &OpenRows) -> Option<f64> {
        let ([(own, other)], [open]) = (join.keys.as_slice(), build.branches.as_slice()) else { return None };
        let (own, other) = (column_of(own, &build.columns), column_of(other, &probe.columns));
        let (values, met) = (own.values()?, other.values()?);
        let has_each_once = self.facts_of(&own)?.is_unique && open.is_table();
        let left = self.left_of(open).filter(|_| has_each_once && met < values)?;
        let in_part = open.bound as f64 * left.of_ranges / met.max(1) as f64;
        Some(left.of_others * in_part.min(1.0))
    }

    /// What filters leave of a table.
    fn left_of(&self, open: &Open) -> Option<Left> {
        let mut columns = open.source.columns();
        let mut left = Left { of_ranges: 1.0, of_others: 1.0 };
        for step in &open.steps {
            let conditions = step.condition().map(conjuncts).unwrap_or_default();
            let is_range = |condition: &&Expr| {
                columns_read(condition).iter().all(|column| self.is_in_order(columns.get(*column)))
            };
            let (of_ranges, of_others): (Vec<_>, Vec<_>) = conditions.into_iter().partition(is_range);
            let share = |conditions: Vec<&Expr>| {
                let range = |column: usize| columns.get(column).and_then(value_range);
                all_of(conditions).map_or(1.0, |condition| share_kept(&condition, &range))
            };
            left.of_ranges *= share(of_ranges);
            left.of_others *= share(of_others);
            columns = step.columns(&columns).unwrap_or_else(|| columns.clone());
        }
        (left.of_ranges < 1.0).then_some(left)
    }

    /// Whether a column of a scan is in the order of its rows.
    fn is_in_order(&self, column: Option<&ColumnInfo>) -> bool {
        let facts = column.and_then(|column| self.facts_of(column));
        facts.is_some_and(|facts| facts.order.is_some() || facts.is_clustered)
    }

    /// What is known of a column of a scan.
    pub(super) fn facts_of(&self, column: &ColumnInfo) -> Option<&ColumnFacts> {
        let (scan, column) = column.origin?;
        self.scans.get(scan)?.columns.get(column)
    }
}

/// All conditions at once.
fn all_of(conditions: Vec<&Expr>) -> Option<Expr> {
    let and = |all: Expr, next: Expr| {
        let (data_type, nullable) = (all.data_type.clone(), all.nullable || next.nullable);
        Expr { kind: ExprKind::And(Box::new(all), Box::new(next)), data_type, nullable }
    };
    conditions.into_iter().cloned().reduce(and)
}
