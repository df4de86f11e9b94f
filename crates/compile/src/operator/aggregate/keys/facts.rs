//! What the choices of an aggregation with keys are made from: facts about its keys, its cells and its table.

use super::dependent::KeySplit;
use super::domain::{are_clustered, groups_known, key_values, values_of};
use super::input::Input;
use crate::expr::{Expr, ExprKind};
use crate::operator::aggregate::functions::Cells;

/// What is known of the keys that tell groups apart.
#[derive(Debug)]
pub(crate) struct KeyFacts {
    pub count: usize,
    /// No key is computed.
    pub are_columns: bool,
    /// Nor was one by an earlier step. What is computed has a range, which says little of how many values there are.
    pub are_stored: bool,
    /// Rows that follow each other have keys near each other.
    pub are_clustered: bool,
    /// A sample of a column shows that no value of it is frequent.
    pub are_even: bool,
    /// Groups at most, where that is known of all keys.
    pub most_groups: Option<u64>,
    /// Combinations of the values of those keys of which it is known how many these are at most: no bound of the groups where there are
    /// others.
    pub known_combinations: u64,
    /// Combinations of values at most, or about, where that is known of all keys.
    pub combinations: Option<u64>,
    /// Values of the key that may have most, of those of which that is known.
    pub widest: u64,
    /// Values that a column has about, where its sample shows many: there are as many groups at least.
    pub sampled: Option<u64>,
    /// There is one key, and frequent values have a good share of its rows.
    pub have_frequent: bool,
}

impl KeyFacts {
    pub fn of(split: &KeySplit) -> KeyFacts {
        let columns = &split.columns;
        let are_columns = are_columns(&split.keys.telling);
        KeyFacts {
            count: columns.len(),
            are_columns,
            are_stored: are_columns && columns.iter().all(|key| key.origin.is_some()),
            are_clustered: are_clustered(columns),
            are_even: columns.iter().any(|key| key.scattered.is_some_and(|own| own.are_even)),
            most_groups: groups_known(columns),
            known_combinations: columns.iter().filter_map(values_of).fold(1, u64::saturating_mul),
            combinations: columns
                .iter()
                .map(key_values)
                .try_fold(1_u64, |all, own| Some(all.saturating_mul(own?))),
            widest: columns.iter().filter_map(values_of).max().unwrap_or(0),
            sampled: columns.iter().filter_map(|key| Some(key.scattered?.values)).max(),
            // Of several keys, the frequent values of each need not come together.
            have_frequent: matches!(&columns[..], [key] if key.has_frequent),
        }
    }
}

/// Whether no key is computed.
fn are_columns(keys: &[Expr]) -> bool {
    keys.iter().all(|key| matches!(key.kind, ExprKind::Column(_)))
}

/// What the table of all groups is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableFacts {
    /// Rows are added up by each thread or block before: other threads do not meet in a group.
    pub is_local: bool,
    /// Groups are found by a word of their keys.
    pub is_hashed: bool,
    /// Keys are compared with what a slot of the table, or the table, points to.
    pub compares_stored: bool,
    /// Keys that follow from others are stored with a group: a row has to put it in.
    pub has_dependent: bool,
    /// Words of a block's memory that tell a group's keys, where some do.
    pub words_in_block: Option<u32>,
}

/// What is known of an aggregation with keys once its table is chosen.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub input: &'a Input<'a>,
    pub keys: KeyFacts,
    pub table: TableFacts,
    /// Words of a group's cells.
    pub words: u32,
    /// Contributions of other threads may be looked at in registers: no cell has texts, which are compared in the table of all groups.
    pub are_plain: bool,
    /// Threads of a GPU that come to a group at once wait for each other.
    pub have_locks: bool,
    /// Bytes of a block's window over the groups of a part, where rows come in parts to one.
    pub window: Option<u64>,
    /// Rows come in parts, whose groups are one worker's.
    pub is_alone: bool,
}

impl<'a> Facts<'a> {
    /// Of groups with these cells.
    pub fn of(input: &'a Input<'a>, keys: KeyFacts, table: TableFacts, cells: &Cells) -> Facts<'a> {
        Facts {
            input,
            keys,
            table,
            words: cells.words(),
            are_plain: cells.are_plain(),
            have_locks: cells.have_locks(),
            window: None,
            is_alone: false,
        }
    }

    /// Whether a worker, or a thread, meets keys near each other one after the other, in slots that are near each other too. Where the
    /// table is hashed, neighbours that add up before cost more than they spare (docs/log/performance.md).
    pub fn are_clustered(&self) -> bool {
        self.keys.are_clustered && !self.table.is_hashed
    }

    /// Whether a worker takes rows that are near each other in that way.
    pub fn follow_each_other(&self) -> bool {
        self.input.is_serial() && self.are_clustered()
    }

    /// Whether a block, or a worker, adds up the rows of a part by itself.
    pub fn is_in_parts(&self) -> bool {
        self.window.is_some() || self.is_alone
    }

    /// Groups at most, by the keys and the rows, where the keys tell.
    pub fn most_groups(&self) -> Option<u64> {
        self.keys.most_groups.map(|groups| groups.min(self.input.row_bound))
    }
}
