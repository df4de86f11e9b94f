//! Who delivers groups whose rows come in parts: the table of all groups, or workers part after part.

use std::sync::Arc;

use super::groups::groups_of;
use super::{Cut, Open, OpenRows};
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::{AggregateOperator, most_worker_parts};
use crate::operator::partition::{DistinctRows, OwnTables, PartStore};
use crate::program::Purpose;
use crate::variant::axes::{GroupParts, PartDelivery};
use crate::variant::{Site, Variant};

/// What is wanted of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Their keys and results, as rows.
    Rows,
    /// The table that has all of them.
    Table,
}

/// Groups, when their pipelines are cut.
pub(super) enum Grouped {
    /// In a table, but for those that workers deliver themselves.
    Table(Arc<AggregateOperator>, Option<DistinctRows>),
    /// In no table.
    Rows(OpenRows),
}

impl From<Arc<AggregateOperator>> for Grouped {
    fn from(groups: Arc<AggregateOperator>) -> Grouped {
        Grouped::Table(groups, None)
    }
}

impl Grouped {
    /// The table that has all of them ([`Wanted::Table`]).
    pub(super) fn table(self) -> Result<Arc<AggregateOperator>, Unsupported> {
        match self {
            Grouped::Table(groups, None) => Ok(groups),
            _ => Err(Unsupported::internal("groups that are in no table")),
        }
    }

    /// The groups as rows.
    pub(super) fn rows(self) -> OpenRows {
        let (groups, delivered) = match self {
            Grouped::Rows(rows) => return rows,
            Grouped::Table(groups, delivered) => (groups, delivered),
        };
        let bound = groups.row_bound();
        let mut rows = groups_of(groups);
        rows.branches.extend(delivered.map(|delivered| Open::new(delivered, bound)));
        rows
    }
}

impl Cut<'_> {
    /// Why workers cannot deliver the groups of parts.
    pub(super) fn lacks_delivery(
        &self,
        groups: &AggregateOperator,
        (store, infos): (&PartStore, &[ColumnInfo]),
    ) -> Option<&'static str> {
        match () {
            () if self.counts.is_some() => Some("rows are counted before they are written"),
            () if !groups.takes_parts() => Some("rows of a part come to several workers"),
            () if !groups.is_hashed() => Some("groups are not found by a hash"),
            () => DistinctRows::lacks(store, infos),
        }
    }

    /// More parts than the rule wants for the groups' sake, where with so many workers can deliver the groups of each: a table for
    /// all rows of a part is to be in a worker's cache, whatever the number of groups.
    pub(super) fn parts_to_deliver(
        &self,
        parts: GroupParts,
        infos: &[ColumnInfo],
        rows: &OpenRows,
    ) -> Option<GroupParts> {
        let has_floats = infos.iter().any(|info| info.data_type.is_float());
        if parts.0 <= 1 || !self.shape.is_serial() || self.counts.is_some() || has_floats {
            return None;
        }
        let most = most_worker_parts(self.choices);
        let suits = |more: &&GroupParts| {
            (parts.0 + 1..=most).contains(&more.0) && OwnTables::suit(rows.bound(), more.0)
        };
        match OwnTables::suit(rows.bound(), parts.0) {
            true => None,
            false => GroupParts::ALL.iter().find(suits).copied(),
        }
    }

    /// Whether workers deliver the groups of parts by themselves: their tables, and the groups as rows. `lacks`: why not, if they cannot.
    pub(super) fn delivery(
        &mut self,
        store: &Arc<PartStore>,
        groups: &Arc<AggregateOperator>,
        (site, lacks): (Site<'_>, Option<&'static str>),
        (rows, parts): (u64, GroupParts),
    ) -> Result<Option<(Arc<OwnTables>, DistinctRows)>, Unsupported> {
        let rule = match lacks {
            Some(lacks) => (PartDelivery::Table, lacks),
            None if OwnTables::suit(rows, parts.0) => (
                PartDelivery::Worker,
                "a part's rows have a table in a worker's cache, and no other is cleared and read",
            ),
            None => (PartDelivery::Table, "a table for a part's rows is beyond a worker's cache"),
        };
        let chosen = site.choose(rule, |value| match (value, lacks) {
            (PartDelivery::Worker, Some(lacks)) => Err(lacks.into()),
            _ => Ok(()),
        })?;
        if chosen == PartDelivery::Table {
            return Ok(None);
        }
        let states = self.states.of(Purpose::Table);
        let tables = Arc::new(OwnTables::plan((rows, parts.0), self.shape, states));
        let by = Arc::<AggregateOperator>::clone(groups);
        let states = self.states.of(Purpose::Store);
        let rows = DistinctRows::plan(Arc::clone(store), by, Arc::clone(&tables), states);
        Ok(Some((tables, rows)))
    }
}
