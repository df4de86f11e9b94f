//! How many groups have local copies, and how these are found: the rules.

use super::preaggregation::Preaggregation;
use crate::MicroModel;
use crate::calibration::Limit;
use crate::context::Unsupported;
use crate::operator::aggregate::keys::Facts;
use crate::variant::Variant;
use crate::variant::axes::{LocalPreaggregation, PreaggregationSearch};
use crate::variant::estimate::{self, Rows};

/// How the threads of a block find copies where both ways are possible, and why.
const BLOCK_SEARCH: (PreaggregationSearch, &str) =
    (PreaggregationSearch::Key, "a row whose group has a copy does not look at the table of all groups");
/// Rows from which on copies pay, at least: they are cleared and merged whatever comes.
pub(crate) const LEAST_ROWS: u64 = 1 << 16;
/// Values of a key's range for each row from which on it says nothing of how many groups there are.
const VALUES_A_ROW: u64 = 16;
/// Groups for each copy, at most, where it is known how many there are: each copy is merged at the end, which costs as much as a
/// row, and a block of a GPU may see few more rows than it has copies.
const GROUPS_A_COPY: u64 = 2;
/// Copies beside a window.
const BESIDE_WINDOW: LocalPreaggregation = LocalPreaggregation(256);
/// Most bytes of a SIMT block's copies: several blocks should fit a multiprocessor of an NVIDIA GPU.
const BLOCK_BYTES: u64 = 40 << 10;
/// The same where cells are locked: a group that has no copy has one lock on the device for all of its rows. On an H200 deviations in 1,009
/// groups, of which half have a copy in 40 kB, take 47 ms.
const LOCKED_BLOCK_BYTES: u64 = 112 << 10;
/// Rows of the input for each copy of a CPU's worker, at least: each is cleared and merged whatever comes.
const WORKER_ROWS_A_COPY: u64 = 64;
/// Copies where most groups have none, and those of frequent values gain. More would drive what else a CPU's worker needs out of its
/// first-level cache, and each is cleared and merged by every block of a GPU.
const HEAVY: u64 = 1024;
/// Why groups are not found by words of their keys.
fn why_not_words(facts: &Facts<'_>) -> Result<(), &'static str> {
    if facts.table.is_hashed { Ok(()) } else { Err("groups have no word of their keys") }
}

/// Why all that is known of a group's keys cannot be in a block's memory.
fn why_not_keys_in_block(facts: &Facts<'_>) -> Result<(), &'static str> {
    let table = &facts.table;
    match () {
        () if facts.window.is_some() => Err("rows beyond their part have looked for their slot"),
        () if table.has_dependent => {
            Err("keys that follow from others are stored in the table of all groups")
        }
        () if table.is_hashed && table.words_in_block.is_none() => {
            Err("keys that are no words are compared in the table of all groups")
        }
        () => why_not_words(facts),
    }
}

/// How many groups there are about, where that is told by the values that the keys may have.
fn groups_told(facts: &Facts<'_>) -> Option<u64> {
    let Facts { input, keys, .. } = facts;
    // A range that is far larger than the rows says nothing; columns of many values are known by their samples.
    let says_nothing =
        !input.is_serial() && !facts.are_clustered() && keys.widest / VALUES_A_ROW >= input.row_bound;
    match input.parts {
        // Copies of the first part's groups are of no use to the next.
        Some(_) => Some(input.row_bound),
        None => facts.most_groups().filter(|_| keys.are_stored && !says_nothing),
    }
}

impl Preaggregation {
    /// The most copies that there may be.
    pub(crate) const MOST: u64 = 1 << 14;

    /// Whether all groups are thought to have a copy, where there are so many about.
    pub fn holds(self, groups: Option<u64>) -> bool {
        groups.is_some_and(|groups| groups <= self.copies.into())
    }

    /// Whether a block keeps copies of groups, how many, and how they are found.
    pub fn plan(facts: &Facts<'_>) -> Result<Option<Preaggregation>, Unsupported> {
        let Facts { input, table, words, .. } = facts;
        let (shape, is_serial) = (input.shape, input.is_serial());
        let bytes_of = |copies: u64, head: u32| copies * u64::from(head + words) * 8;
        // A worker keeps the entry of a group's keys and its slot.
        let head = if table.is_hashed && is_serial { 2 } else { 1 };
        let bytes = |copies: u64| bytes_of(copies, head);
        let most = match is_serial {
            true => u64::from(shape.table_bytes()),
            false => {
                let left = u64::from(shape.table_bytes()).saturating_sub(facts.window.unwrap_or(0));
                left.min(u64::from(shape.shared_bytes / 2))
            }
        };
        let why_not = |LocalPreaggregation(copies): LocalPreaggregation| match () {
            () if copies == 0 => Ok(()),
            () if !facts.are_plain => Err("texts are compared in the table of all groups".to_string()),
            () if bytes(copies) > most => Err(format!("{} bytes do not fit a block's {most}", bytes(copies))),
            () => Ok(()),
        };
        let fitting = LocalPreaggregation::ALL.iter().copied();
        let fitting: Vec<_> = fitting.filter(|copies| copies.0 > 0 && why_not(*copies).is_ok()).collect();
        let groups = groups_told(facts);
        let (copies, limit, reason) = match input.choices.micro_model {
            MicroModel::Resolution => Preaggregation::rule(&fitting, &bytes, groups, facts),
            _ => (LocalPreaggregation(0), Limit::fixed(0), "the micro model has an atomic a row"),
        };
        let groups = facts.keys.sampled.or(groups.filter(|groups| *groups <= input.row_bound));
        let mut text = estimate::rows_to_groups(Rows::Most(input.row_bound), groups);
        if copies.0 > 0 {
            text.push_str(&format!(", {} copies in {}", copies.0, estimate::bytes(bytes(copies.0))));
        }
        let rule = ((copies, &*limit.reason(reason)), Some(text));
        let LocalPreaggregation(copies) = input.site.choose_by(rule, why_not)?;
        let copies = u32::try_from(copies).map_err(Unsupported::internal)?;
        if copies == 0 {
            return Ok(None);
        }
        let words = table.words_in_block.unwrap_or(0);
        let has_room = bytes_of(copies.into(), words) <= most;
        let why_not_key = match is_serial {
            true => why_not_words(facts),
            false => {
                why_not_keys_in_block(facts).and(has_room.then_some(()).ok_or("a block's memory has no room"))
            }
        };
        let rule = match why_not_key {
            Ok(()) if is_serial => (PreaggregationSearch::Key, "the table of all groups is not looked at"),
            Ok(()) => BLOCK_SEARCH,
            Err(why_not) => (PreaggregationSearch::Slot, why_not),
        };
        let search = input.site.choose(rule, |value| match value {
            PreaggregationSearch::Slot => Ok(()),
            PreaggregationSearch::Key => why_not_key.map_err(String::from),
        })?;
        let head = match search {
            PreaggregationSearch::Slot => 1,
            PreaggregationSearch::Key if is_serial => 0,
            PreaggregationSearch::Key => words,
        };
        Ok(Some(Preaggregation { copies, search, head }))
    }

    /// How many copies there should be, of the numbers that fit, for about so many groups, where that is told; how many bytes they may
    /// have, where that decides; and why.
    fn rule(
        fitting: &[LocalPreaggregation],
        bytes: &dyn Fn(u64) -> u64,
        groups: Option<u64>,
        facts: &Facts<'_>,
    ) -> (LocalPreaggregation, Limit, &'static str) {
        let (off, any) = (LocalPreaggregation(0), Limit::fixed(u64::MAX));
        let (rows, sampled) = (facts.input.row_bound, facts.keys.sampled);
        if rows < LEAST_ROWS {
            return (off, any, "few rows");
        }
        if facts.is_alone {
            return (off, any, "the groups of a part are a worker's own");
        }
        if facts.follow_each_other() {
            return (off, any, "groups that a worker meets one after the other lie near each other");
        }
        if facts.window.is_some() {
            return match fitting.contains(&BESIDE_WINDOW) {
                true => (BESIDE_WINDOW, any, "where many rows are beyond their part, they are of few groups"),
                false => (off, any, "a block's memory has no room"),
            };
        }
        let is_serial = facts.input.is_serial();
        // A worker's memory is what stays in the second-level cache; the columns' rows go through it too.
        let limit = match is_serial {
            true => facts.input.choices.calibration.worker_copies(facts.input.shape.table_bytes().into()),
            false if facts.have_locks => Limit::fixed(LOCKED_BLOCK_BYTES),
            false => Limit::fixed(BLOCK_BYTES),
        };
        // What copies are not taken is not touched. Half of a power of two to the next one lies in between on average.
        let touched = sampled.map_or(u64::MAX, |groups| groups / 4 * 3);
        let fits = |copies: &&LocalPreaggregation| {
            bytes(copies.0.min(touched)) <= limit.value
                && (!is_serial || copies.0 * WORKER_ROWS_A_COPY <= rows)
        };
        let most = fitting.iter().filter(fits).max_by_key(|copies| copies.0).copied();
        let many = groups.max(sampled.filter(|_| !is_serial));
        let is_vain =
            |copies: LocalPreaggregation| many.is_some_and(|groups| groups > copies.0 * GROUPS_A_COPY);
        match most {
            Some(copies) if is_serial => {
                let (copies, reason) = Preaggregation::of_worker(copies, facts, is_vain(copies));
                (copies, limit, reason)
            }
            // One frequent group makes all of its rows wait, for microseconds each: copies cost far less where there is none.
            Some(copies) if is_vain(copies) && facts.have_locks => {
                (copies, limit, "rows of a frequent group would wait for each other in the device's memory")
            }
            // Additions to one place wait for each other: an H200 does 1.4 thousand million a second, and 100 to places all over.
            Some(copies) if is_vain(copies) && facts.keys.have_frequent => {
                let few = LocalPreaggregation(HEAVY.min(copies.0));
                (few, any, "of so many groups the frequent ones alone gain")
            }
            Some(copies) if is_vain(copies) => (off, limit, "a block meets few of so many groups twice"),
            Some(copies) => (copies, limit, "groups that a block meets often are added up near"),
            None => (off, limit, "a block's memory has no room"),
        }
    }

    /// How many copies a CPU's worker should have, where there is room for so many. `is_vain`: for groups of a domain that all has so many.
    fn of_worker(
        copies: LocalPreaggregation,
        facts: &Facts<'_>,
        is_vain: bool,
    ) -> (LocalPreaggregation, &'static str) {
        let few = LocalPreaggregation(HEAVY.min(copies.0));
        let are_many = facts.keys.sampled.is_some_and(|groups| groups > copies.0 * GROUPS_A_COPY);
        match facts.table.is_hashed {
            // Workers do not wait for each other where they only look.
            _ if facts.words == 0 => (
                LocalPreaggregation(0),
                "a group that is there is found as soon in the table of all as in a copy of it",
            ),
            // A search for a copy that is not there is one more miss of a cache, and so is the text of one that is.
            _ if facts.table.compares_stored => {
                (few, "of keys that are compared in memory the heavy ones alone gain")
            }
            true if are_many => (few, "of so many groups the heavy ones alone gain"),
            // A domain that a table is addressed by is mostly taken; of hashed keys it says little how many groups there are.
            false if is_vain => (few, "among more groups than a worker has room for there may be heavy ones"),
            // Among the groups of a worker there may be heavy ones: it sees many rows, and no longer looks where there are none.
            _ => (copies, "groups that a worker meets often are its own"),
        }
    }
}
