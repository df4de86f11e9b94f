//! What an aggregation knows of its input, and the choices that all of its hash tables have in common.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::domain;
use super::hash::{Hashing, WordKeys};
use super::known_groups::scattered_groups;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::lower::hashing::HASH_RULE;
use crate::program::Fill;
use crate::variant::Site;
use crate::variant::axes::{GroupParts, HashFunction, HashMapping, KeyClaims, SlotFill, SlotLayout};
use crate::variant::estimate::{self, Rows};

/// Rows of a group from which on short searches are worth more than few slots, in the cache of a worker who has a part's groups for
/// itself (docs/log/performance.md).
const ROWS_OF_SHORT_SEARCHES: u64 = 32;

/// What an aggregation knows of its input.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    /// The aggregation before its choices.
    pub site: Site<'a>,
    pub columns: &'a [ColumnInfo],
    /// An upper bound of the rows.
    pub row_bound: u64,
    /// The rows that are thought to come, after filters and joins.
    pub expected_rows: u64,
    /// An upper bound of those that one thread sees.
    pub thread_rows: u64,
    /// A row of the source becomes one row at most, and no loop is around it.
    pub is_single: bool,
    /// Rows are looked up in the tables of joins before.
    pub has_probes: bool,
    /// Rows of one group come together.
    pub is_sorted: bool,
    /// Whether a thread takes rows as they come to it: a CPU's worker.
    pub is_serial: bool,
    /// The keys that follow from the others.
    pub followers: BTreeSet<usize>,
    /// In how many parts the rows come, where they come in parts.
    pub parts: Option<GroupParts>,
    /// About how many groups there are, where that is known of such rows.
    pub groups: Option<u64>,
    /// What hash tables of the aggregation may have taken, once it is chosen.
    pub fill: OnceCell<Fill>,
    /// How their keys are hashed, once it is chosen.
    pub hashing: OnceCell<Hashing>,
    /// Where their slots have keys that are stored, once it is chosen.
    pub slot_layout: OnceCell<SlotLayout>,
    /// How slots of keys that are wider than a word are claimed, once it is chosen.
    pub key_claims: OnceCell<KeyClaims>,
}

impl Input<'_> {
    /// How many rows come, for people.
    pub(super) fn rows_told(&self) -> Rows {
        match self.parts {
            // How many are left of a table's is not known of rows that are stored in parts.
            Some(_) => Rows::Most(self.row_bound),
            None => Rows::About(self.expected_rows),
        }
    }

    /// About how many different ones come of keys whose values are known to be many, or fewer than rows; `None` where that is not known.
    pub(super) fn keys_foreseen(&self, keys: &[ColumnInfo]) -> Option<u64> {
        let most = keys.iter().map(|key| Some(domain::values_of(key)?.saturating_add(key.nullable.into())));
        let most = most.reduce(|all, own| Some(all?.saturating_mul(own?))).flatten();
        let few = most.filter(|values| *values <= self.expected_rows);
        scattered_groups(keys).into_iter().chain(few).min().map(|values| values.min(self.expected_rows))
    }

    /// Whether the table is small beside the rows, so that searches cost more than its slots.
    fn has_many_rows_a_group(&self) -> bool {
        self.groups.is_some_and(|groups| self.row_bound / groups.max(1) >= ROWS_OF_SHORT_SEARCHES)
    }

    /// How many of the slots of the aggregation's hash tables may be taken. `table`: the first of them.
    pub(super) fn fill(&self, table: &TableForm) -> Result<Fill, Unsupported> {
        if let Some(fill) = self.fill.get() {
            return Ok(*fill);
        }
        let rule = match self.parts {
            Some(_) if self.is_serial && self.has_many_rows_a_group() => {
                (SlotFill(25), "short searches for the many rows of a group")
            }
            Some(_) if self.is_serial => (SlotFill(75), "searches are in a worker's cache"),
            _ => (SlotFill(50), "short searches, in twice the slots"),
        };
        let text = table.estimate(Fill::of(rule.0));
        let fill = Fill::of(self.site.choose_by((rule, text), |_| Ok(()))?);
        Ok(*self.fill.get_or_init(|| fill))
    }

    /// How the keys of the aggregation's hash tables are hashed. `are_packed`: the keys of the first of them are one word.
    pub(super) fn hashing(&self, are_packed: bool) -> Result<Hashing, Unsupported> {
        if let Some(hashing) = self.hashing.get() {
            return Ok(*hashing);
        }
        let rule = match are_packed && self.is_serial {
            // Measured on CPUs alone: docs/log/performance.md, "Grouping on two cores".
            true => (
                HashFunction::MultiplyShift,
                "a worker waits for each instruction of the next slot's address",
            ),
            false => (HashFunction::Murmur3, HASH_RULE),
        };
        let function = self.site.choose(rule, |_| Ok(()))?;
        let rule =
            (HashMapping::MultiplyHigh, "tables of any size, and parts of rows are parts of the table");
        let mapping = self.site.choose(rule, |_| Ok(()))?;
        Ok(*self.hashing.get_or_init(|| Hashing { function, mapping }))
    }

    /// How slots of the aggregation's hash tables are claimed for keys that no word has.
    pub(super) fn claims(&self, columns: &[ColumnInfo]) -> Result<Claims, Unsupported> {
        let words = WordKeys::of(columns);
        let claims = match self.key_claims.get() {
            Some(claims) => *claims,
            None => {
                let rule = match &words {
                    _ if self.is_serial => (KeyClaims::Latch, "workers seldom meet at a slot"),
                    None => (KeyClaims::Latch, "keys are texts, or of many words"),
                    // On an H100 60 million groups by two numbers of 64 bits take 11 ms, and with latches 25.
                    Some(_) => (KeyClaims::Words, "threads wait for no other that writes keys"),
                };
                let claims = self.site.choose(rule, |value| match value {
                    KeyClaims::Words if words.is_none() => Err("keys are texts, or of many words".into()),
                    _ => Ok(()),
                })?;
                *self.key_claims.get_or_init(|| claims)
            }
        };
        Ok(match (claims, words) {
            (KeyClaims::Words, Some(words)) => Claims::Words(words),
            // What one table has words for may be too wide in another.
            (KeyClaims::Words | KeyClaims::Latch, _) => Claims::Latch,
        })
    }

    /// Where the table of groups has what is added up beside keys of one word.
    pub(super) fn packed_layout(&self) -> Result<SlotLayout, Unsupported> {
        let rule = (SlotLayout::Beside, "a row that finds its key has its sums in the same cache line");
        self.site.choose(rule, |_| Ok(()))
    }

    /// Where the slots of the aggregation's hash tables have keys that are stored.
    pub(super) fn slot_layout(&self) -> Result<SlotLayout, Unsupported> {
        if let Some(layout) = self.slot_layout.get() {
            return Ok(*layout);
        }
        let rule = match self.is_serial {
            true => (SlotLayout::Beside, "a key that is compared lies in the cache line that was looked at"),
            false => (SlotLayout::Apart, "threads of a warp look at entries only"),
        };
        let layout = self.site.choose(rule, |_| Ok(()))?;
        Ok(*self.slot_layout.get_or_init(|| layout))
    }
}

/// How slots are claimed for keys that no word has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Claims {
    /// Under a latch of the slot.
    Latch,
    /// Word by word.
    Words(WordKeys),
}

/// A hash table before its slots.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableForm {
    /// Keys, about, where it is known of a column of them how many values it has: at least.
    pub keys: Option<u64>,
    /// Bytes of a slot, and of what is stored for it elsewhere.
    pub slot_bytes: u64,
}

impl TableForm {
    /// What a table with room for a quarter more keys takes, for people.
    fn estimate(&self, fill: Fill) -> Option<String> {
        let keys = self.keys?;
        let slots = with_room(fill.slots(keys));
        let table = estimate::table(slots, slots.saturating_mul(self.slot_bytes));
        Some(format!("about {keys} keys, {table}"))
    }
}

/// So many slots, and a quarter more: as there will be where the number of keys is known from a run before.
pub(super) fn with_room(slots: u64) -> u64 {
    slots.saturating_add(slots / 4)
}
