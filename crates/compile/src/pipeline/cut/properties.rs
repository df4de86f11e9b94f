//! What holds of the rows that flow between operators, as a whole: by what they can be told apart, and which of their columns follow from
//! which others.
//!
//! All of it is certain in this run: it begins with what was found while all rows of a table were read (what a file's metadata claim
//! is believed nowhere), and each operator passes on what it keeps.

use std::collections::BTreeSet;

use super::dependence::Dependences;
use crate::expr::{Expr, ExprKind};
use crate::layout::{ColumnFacts, ColumnInfo, Direction};
use crate::plan::{Join, JoinKind, SortKey};
use crate::types::Field;

/// Properties of rows.
#[derive(Debug, Clone, Default)]
pub(super) struct RowProperties {
    /// Columns of which no two rows agree in all.
    pub unique: Vec<BTreeSet<usize>>,
    /// Which of the columns follow from which others.
    pub dependences: Dependences,
    /// Nothing that the rows are computed by may be an error, as far as that is asked.
    pub is_safe: bool,
    /// The columns in whose order rows come, as far as they are as their source has them: [`OpenRows::lacks_order`] says whether.
    pub order: Vec<SortKey>,
    /// Columns each of which is in order by itself: so rows are in the order of any of them, one behind the other.
    pub sorted: Vec<SortKey>,
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
        let sorted = known().filter_map(|(column, (facts, info))| {
            let descending = facts.order? == Direction::Descending;
            let expr = Expr::column(column, info.data_type.clone(), false);
            Some(SortKey { expr, descending, nulls_first: false })
        });
        RowProperties {
            sorted: sorted.collect(),
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
            sorted: self.sorted.iter().filter_map(|key| projected_key(key, exprs)).collect(),
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
            order: probe.order.iter().map_while(|key| moved_key(key, shift)).collect(),
            sorted: probe.sorted.iter().filter_map(|key| moved_key(key, shift)).collect(),
            ..RowProperties::default()
        };
        match join.kind {
            BuildSemi | BuildAnti | BuildMark => {
                RowProperties { unique: build.unique.clone(), ..RowProperties::default() }
            }
            ProbeSemi | ProbeAnti | ProbeMark => by(0),
            Inner | ProbeOuter if is_single => by(width),
            // A row comes as often as it has matches.
            Inner | ProbeOuter | BuildOuter | FullOuter => RowProperties::default(),
        }
    }

    /// Whether rows come in an order, as far as they are as their source has them.
    pub fn are_in_order(&self, keys: &[SortKey]) -> bool {
        let ordered = self.order.iter().zip(keys).take_while(|(own, key)| is_same(own, key)).count();
        let is_sorted = |key: &&SortKey| self.sorted.iter().any(|own| is_same(own, key));
        let sorted = keys.iter().take_while(is_sorted).count();
        let known = ordered.max(sorted);
        // Behind keys that tell all rows apart, others order nothing.
        let is_told = || {
            let exprs: Vec<Expr> = keys[..known].iter().map(|key| key.expr.clone()).collect();
            known > 0 && self.are_unique(&exprs)
        };
        !keys.is_empty() && (known == keys.len() || is_told())
    }

    /// What is known of rows with such columns, for people; nothing where nothing is.
    pub fn describe(&self, fields: &[Field]) -> String {
        let name = |column: &usize| fields.get(*column).map_or_else(String::new, |field| field.name.clone());
        let names = |columns: &BTreeSet<usize>| columns.iter().map(name).collect::<Vec<_>>().join(", ");
        let key = |key: &SortKey| match (&key.expr.kind, key.descending) {
            (ExprKind::Column(column), false) => name(column),
            (ExprKind::Column(column), true) => format!("{} desc", name(column)),
            _ => String::new(),
        };
        let order = self.order.iter().map(key).collect::<Vec<_>>().join(", ");
        let orders = [order].into_iter().filter(|order| !order.is_empty()).chain(self.sorted.iter().map(key));
        let mut all: Vec<String> = orders.map(|order| format!("in order of {order}")).collect();
        all.extend(self.unique.iter().map(|key| format!("unique by {}", names(key))));
        let follows = self.dependences.followers_of().into_iter();
        // From what tells rows apart everything follows.
        let is_more = |of: &BTreeSet<usize>| !self.unique.iter().any(|key| key.is_subset(of));
        let follows = follows.filter(|(of, _)| is_more(of)).map(|(of, follow)| match of.is_empty() {
            true => format!("always the same {}", names(&follow)),
            false => format!("{} by {}", names(&follow), names(of)),
        });
        all.extend(follows);
        all.join("; ")
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

/// Whether rows in the order of one key are in that of another. Where there are no NULLs, nobody asks where they stand.
fn is_same(own: &SortKey, key: &SortKey) -> bool {
    own.expr.kind == key.expr.kind
        && own.descending == key.descending
        && (own.nulls_first == key.nulls_first || !own.expr.nullable)
}

/// A key of an order that is a column, where this one stands so many places further on.
fn moved_key(key: &SortKey, shift: usize) -> Option<SortKey> {
    let ExprKind::Column(column) = key.expr.kind else { return None };
    let expr = Expr::column(column + shift, key.expr.data_type.clone(), key.expr.nullable);
    Some(SortKey { expr, ..key.clone() })
}

/// A key of an order as one of a projection's columns.
fn projected_key(key: &SortKey, exprs: &[Expr]) -> Option<SortKey> {
    let place = exprs.iter().position(|expr| expr.kind == key.expr.kind)?;
    let expr = Expr::column(place, key.expr.data_type.clone(), key.expr.nullable);
    Some(SortKey { expr, ..key.clone() })
}
