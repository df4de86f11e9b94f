//! What an aggregation knows of its input and device, and the choices that all of its hash tables have in common.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::domain::{scattered_groups, values_of};
use super::word_keys::WordKeys;
use crate::choices::Choices;
use crate::context::Unsupported;
use crate::layout::ColumnInfo;
use crate::lower::hashing::HASH_RULE;
use crate::program::Fill;
use crate::shape::LaunchShape;
use crate::variant::Site;
use crate::variant::axes::{GroupParts, HashFunction, HashMapping, KeyClaims, SlotFill, SlotLayout};
use crate::variant::estimate::{self, Rows};

/// Rows of a group from which on short searches are worth more than few slots, in the cache of a worker who has a part's groups for
/// itself (docs/log/performance.md).
const ROWS_OF_SHORT_SEARCHES: u64 = 32;

/// What an aggregation knows of its input, and of the device.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    /// The aggregation before its choices.
    pub site: Site<'a>,
    pub shape: &'a LaunchShape,
    pub choices: &'a Choices<'a>,
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
    /// The keys that follow from the others.
    pub followers: BTreeSet<usize>,
    /// In how many parts the rows come, where they come in parts.
    pub parts: Option<GroupParts>,
    /// About how many groups there are, where that is known of such rows.
    pub groups: Option<u64>,
    /// What was chosen for all hash tables of the aggregation.
    pub made: TableChoices,
}

/// Choices that are made with the first hash table of an aggregation, for all of them.
#[derive(Debug, Default)]
pub(crate) struct TableChoices {
    fill: OnceCell<SlotFill>,
    hashing: OnceCell<Hashing>,
    slot_layout: OnceCell<SlotLayout>,
    key_claims: OnceCell<KeyClaims>,
}

/// How keys become a hash, and this the slot where a search begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hashing {
    pub function: HashFunction,
    pub mapping: HashMapping,
}

/// What was chosen once, or is chosen now.
fn once<T: Copy>(
    made: &OnceCell<T>,
    choose: impl FnOnce() -> Result<T, Unsupported>,
) -> Result<T, Unsupported> {
    match made.get() {
        Some(made) => Ok(*made),
        None => choose().map(|chosen| *made.get_or_init(|| chosen)),
    }
}

impl Input<'_> {
    /// Whether a thread takes rows as they come to it: a CPU's worker.
    pub fn is_serial(&self) -> bool {
        self.shape.is_serial()
    }

    /// How many rows come, for people.
    pub fn rows_told(&self) -> Rows {
        match self.parts {
            // How many are left of a table's is not known of rows that are stored in parts.
            Some(_) => Rows::Most(self.row_bound),
            None => Rows::About(self.expected_rows),
        }
    }

    /// About how many different ones come of keys whose values are known to be many, or fewer than rows; `None` where that is not known.
    pub fn keys_foreseen(&self, keys: &[ColumnInfo]) -> Option<u64> {
        let most = keys.iter().map(|key| Some(values_of(key)?.saturating_add(key.nullable.into())));
        let most = most.reduce(|all, own| Some(all?.saturating_mul(own?))).flatten();
        let few = most.filter(|values| *values <= self.expected_rows);
        scattered_groups(keys).into_iter().chain(few).min().map(|values| values.min(self.expected_rows))
    }

    /// Whether the table is small beside the rows, so that searches cost more than its slots.
    fn has_many_rows_a_group(&self) -> bool {
        self.groups.is_some_and(|groups| self.row_bound / groups.max(1) >= ROWS_OF_SHORT_SEARCHES)
    }

    /// How many of the slots of the aggregation's hash tables may be taken. `table`: the first of them.
    pub fn fill(&self, table: &TableForm) -> Result<SlotFill, Unsupported> {
        let rule = match self.parts {
            Some(_) if self.is_serial() && self.has_many_rows_a_group() => {
                (SlotFill(25), "short searches for the many rows of a group")
            }
            Some(_) if self.is_serial() => (SlotFill(75), "searches are in a worker's cache"),
            _ => (SlotFill(50), "short searches, in twice the slots"),
        };
        once(&self.made.fill, || {
            let text = table.estimate(Fill::of(rule.0));
            self.site.choose_by((rule, text), |_| Ok(()))
        })
    }

    /// How the keys of the aggregation's hash tables are hashed. `are_packed`: the keys of the first of them are one word.
    pub fn hashing(&self, are_packed: bool) -> Result<Hashing, Unsupported> {
        let rule = match are_packed && self.is_serial() {
            // Measured on CPUs alone: docs/log/performance.md, "Grouping on two cores".
            true => (
                HashFunction::MultiplyShift,
                "a worker waits for each instruction of the next slot's address",
            ),
            false => (HashFunction::Murmur3, HASH_RULE),
        };
        once(&self.made.hashing, || {
            let function = self.site.choose(rule, |_| Ok(()))?;
            let rule =
                (HashMapping::MultiplyHigh, "tables of any size, and parts of rows are parts of the table");
            Ok(Hashing { function, mapping: self.site.choose(rule, |_| Ok(()))? })
        })
    }

    /// How keys that no word has are claimed in the aggregation's hash tables: the words of such keys, or `None` under a latch of the slot.
    pub fn claimed_words(&self, columns: &[ColumnInfo]) -> Result<Option<WordKeys>, Unsupported> {
        let words = WordKeys::of(columns);
        let rule = match &words {
            _ if self.is_serial() => (KeyClaims::Latch, "workers seldom meet at a slot"),
            None => (KeyClaims::Latch, "keys are texts, or of many words"),
            // On an H100 60 million groups by two numbers of 64 bits take 11 ms, and with latches 25.
            Some(_) => (KeyClaims::Words, "threads wait for no other that writes keys"),
        };
        let claims = once(&self.made.key_claims, || {
            self.site.choose(rule, |value| match value {
                KeyClaims::Words if words.is_none() => Err("keys are texts, or of many words".into()),
                _ => Ok(()),
            })
        })?;
        // What one table has words for may be too wide in another.
        Ok(words.filter(|_| claims == KeyClaims::Words))
    }

    /// Where the slots of the aggregation's hash tables have keys that are stored.
    pub fn slot_layout(&self) -> Result<SlotLayout, Unsupported> {
        let rule = match self.is_serial() {
            true => (SlotLayout::Beside, "a key that is compared lies in the cache line that was looked at"),
            false => (SlotLayout::Apart, "threads of a warp look at entries only"),
        };
        once(&self.made.slot_layout, || self.site.choose(rule, |_| Ok(())))
    }
}

/// A hash table before its slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableForm {
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
pub(crate) fn with_room(slots: u64) -> u64 {
    slots.saturating_add(slots / 4)
}
