//! What holds of the rows that flow between operators, as a whole: in which order they come, by what they can be told apart, and which
//! of their columns follow from which others.
//!
//! All of it is certain in this run: it begins with what was found while all rows of a table were read (what a file's metadata claim
//! is believed nowhere), and each operator passes on what it keeps. An order is that of the source's places: what a sink makes of
//! the rows has it only where every row keeps its place.

use std::collections::BTreeSet;

use super::dependence::Dependences;
use crate::expr::{Expr, ExprKind};
use crate::layout::{ColumnFacts, ColumnInfo};
use crate::plan::{Join, JoinKind, SortKey};

/// Properties of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct RowProperties {
    /// Columns by each of which, taken alone, the rows are in order. None of them has a NULL.
    pub orders: Vec<OrderedColumn>,
    /// Columns of which no two rows agree in all.
    pub unique: Vec<BTreeSet<usize>>,
    /// Which of the columns follow from which others.
    pub dependences: Dependences,
    /// Nothing that the rows are computed by may be an error, as far as that is asked.
    pub is_safe: bool,
}

/// A column by which rows are in order; equal values may be next to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OrderedColumn {
    pub column: usize,
    pub descends: bool,
}

impl RowProperties {
    /// Those of rows of which no more is known than what follows from what.
    pub fn new(dependences: Dependences) -> RowProperties {
        RowProperties { dependences, ..RowProperties::default() }
    }

    /// Those of a scan.
    pub fn of_scan(columns: &[ColumnInfo], facts: &[ColumnFacts]) -> RowProperties {
        let known = || facts.iter().zip(columns).enumerate().filter(|(_, (_, info))| !info.nullable);
        let ordered = |(column, (facts, _)): (usize, (&ColumnFacts, _))| {
            facts.order.map(|order| OrderedColumn { column, descends: order.descends })
        };
        let unique = known().filter(|(_, (facts, _))| facts.is_unique);
        RowProperties {
            orders: known().filter_map(ordered).collect(),
            unique: unique.map(|(column, _)| BTreeSet::from([column])).collect(),
            dependences: Dependences::of_scan(columns, facts),
            is_safe: false,
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
        let moved = |own: &OrderedColumn| Some(OrderedColumn { column: place(&own.column)?, ..*own });
        RowProperties {
            orders: self.orders.iter().filter_map(moved).collect(),
            unique: self.unique.iter().filter_map(|key| key.iter().map(place).collect()).collect(),
            dependences: self.dependences.projected(exprs),
            is_safe: self.is_safe,
        }
    }

    /// Those of a join's rows, but for what follows from what. `width`: columns of the build side; `is_single`: a probe row has one match
    /// at most.
    pub fn of_join(join: &Join, build: &Self, probe: &Self, (width, is_single): (usize, bool)) -> Self {
        use JoinKind::*;
        let by = |shift: usize| RowProperties {
            orders: probe
                .orders
                .iter()
                .map(|own| OrderedColumn { column: own.column + shift, ..*own })
                .collect(),
            unique: probe
                .unique
                .iter()
                .map(|key| key.iter().map(|column| column + shift).collect())
                .collect(),
            ..RowProperties::default()
        };
        match join.kind {
            // Build rows come as they lie in their store, which is in no order.
            BuildSemi | BuildAnti | BuildMark => {
                RowProperties { unique: build.unique.clone(), ..RowProperties::default() }
            }
            ProbeSemi | ProbeAnti | ProbeMark => by(0),
            Inner | ProbeOuter if is_single => by(width),
            // Matches of a probe row come one after the other.
            Inner | ProbeOuter => RowProperties { unique: Vec::new(), ..by(width) },
            BuildOuter | FullOuter => RowProperties::default(),
        }
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

    /// Whether rows that come in this order are in that of the keys.
    pub fn satisfy(&self, keys: &[SortKey]) -> bool {
        let Some(SortKey { expr: Expr { kind: ExprKind::Column(column), .. }, descending, .. }) =
            keys.first()
        else {
            return false;
        };
        let wanted = OrderedColumn { column: *column, descends: *descending };
        // Where the first key tells all rows apart, the others do not matter.
        self.orders.contains(&wanted) && (keys.len() == 1 || self.unique.contains(&BTreeSet::from([*column])))
    }
}
