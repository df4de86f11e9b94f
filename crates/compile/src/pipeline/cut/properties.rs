//! What holds of the rows that flow between operators, as a whole: by what they can be told apart, and which of their columns follow from
//! which others.
//!
//! All of it is certain in this run: it begins with what was found while all rows of a table were read (what a file's metadata claim
//! is believed nowhere), and each operator passes on what it keeps.

use std::collections::BTreeSet;

use super::dependence::Dependences;
use crate::expr::{Expr, ExprKind};
use crate::layout::{ColumnFacts, ColumnInfo};
use crate::plan::{Join, JoinKind, SortKey};

/// Properties of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct RowProperties {
    /// Columns of which no two rows agree in all.
    pub unique: Vec<BTreeSet<usize>>,
    /// Which of the columns follow from which others.
    pub dependences: Dependences,
    /// Nothing that the rows are computed by may be an error, as far as that is asked.
    pub is_safe: bool,
    /// The columns in whose order rows come, as far as their pipeline drops none and makes no more of them.
    pub order: Vec<SortKey>,
}

impl RowProperties {
    /// Those of rows of which no more is known than what follows from what.
    pub fn new(dependences: Dependences) -> RowProperties {
        RowProperties { dependences, ..RowProperties::default() }
    }

    /// Those of a scan.
    pub fn of_scan(columns: &[ColumnInfo], facts: &[ColumnFacts]) -> RowProperties {
        let known = || facts.iter().zip(columns).enumerate().filter(|(_, (_, info))| !info.nullable);
        let unique = known().filter(|(_, (facts, _))| facts.is_unique);
        RowProperties {
            unique: unique.map(|(column, _)| BTreeSet::from([column])).collect(),
            dependences: Dependences::of_scan(columns, facts),
            ..RowProperties::default()
        }
    }

    /// Those of groups that have so many columns and are told apart by some of them.
    pub fn of_groups(keys: BTreeSet<usize>, columns: usize) -> RowProperties {
        let dependences = Dependences::of_groups(keys.clone(), columns);
        RowProperties { unique: vec![keys], ..RowProperties::new(dependences) }
    }

    /// Those of a projection of the rows.
    pub fn projected(&self, exprs: &[Expr]) -> RowProperties {
        let place = |column: &usize| exprs.iter().position(|expr| expr.kind == ExprKind::Column(*column));
        RowProperties {
            unique: self.unique.iter().filter_map(|key| key.iter().map(place).collect()).collect(),
            dependences: self.dependences.projected(exprs),
            is_safe: self.is_safe,
            order: self.order.iter().map_while(|key| projected_key(key, exprs)).collect(),
        }
    }

    /// Those of a join's rows, but for what follows from what. `width`: columns of the build side; `is_single`: a probe row has one match
    /// at most.
    pub fn of_join(join: &Join, build: &Self, probe: &Self, (width, is_single): (usize, bool)) -> Self {
        use JoinKind::*;
        let by = |shift: usize| RowProperties {
            unique: probe
                .unique
                .iter()
                .map(|key| key.iter().map(|column| column + shift).collect())
                .collect(),
            ..RowProperties::default()
        };
        match join.kind {
            BuildSemi | BuildAnti | BuildMark => {
                RowProperties { unique: build.unique.clone(), ..RowProperties::default() }
            }
            ProbeSemi | ProbeAnti | ProbeMark => by(0),
            Inner | ProbeOuter if is_single => by(width),
            // A row comes as often as it has matches.
            Inner | ProbeOuter => RowProperties { unique: Vec::new(), ..by(width) },
            BuildOuter | FullOuter => RowProperties::default(),
        }
    }

    /// Whether rows come in an order.
    pub fn are_in_order(&self, keys: &[SortKey]) -> bool {
        // Where there are no NULLs, nobody asks where they stand.
        let is_same = |(own, key): (&SortKey, &SortKey)| {
            own.expr.kind == key.expr.kind
                && own.descending == key.descending
                && (own.nulls_first == key.nulls_first || !own.expr.nullable)
        };
        !keys.is_empty() && keys.len() <= self.order.len() && self.order.iter().zip(keys).all(is_same)
    }

    /// Whether no two rows agree in all of some expressions.
    pub fn are_unique(&self, exprs: &[Expr]) -> bool {
        let column = |expr: &Expr| match expr.kind {
            ExprKind::Column(column) => Some(column),
            _ => None,
        };
        let columns = self.dependences.closure(&exprs.iter().filter_map(column).collect());
        self.unique.iter().any(|key| key.is_subset(&columns))
    }
}

/// A key of an order as one of a projection's columns.
fn projected_key(key: &SortKey, exprs: &[Expr]) -> Option<SortKey> {
    let place = exprs.iter().position(|expr| expr.kind == key.expr.kind)?;
    let expr = Expr::column(place, key.expr.data_type.clone(), key.expr.nullable);
    Some(SortKey { expr, ..key.clone() })
}
