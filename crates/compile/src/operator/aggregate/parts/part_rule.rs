//! Into how many parts rows are brought before they come to their groups: the rule.

use std::borrow::Cow;

use super::part_groups::window_bytes;
use crate::calibration::Calibration;
use crate::choices::Choices;
use crate::operator::aggregate::local::Preaggregation;
use crate::operator::partition::PartStore;
use crate::shape::LaunchShape;
use crate::variant::Variant;
use crate::variant::axes::GroupParts;
use crate::variant::estimate::{self, Rows};

/// Rows from which on parts pay on a GPU (`docs/log/performance.md`), unless measured rates of atomics say fewer.
const LEAST_ROWS: u64 = 4 << 20;
/// The same on a CPU.
const LEAST_WORKER_ROWS: u64 = 1 << 18;
/// Bytes of texts that are copied into parts, at most: so many are in a stage's first heap.
const MOST_TEXT_BYTES: u64 = 160 << 20;
/// Parts of a CPU's worker, at least: the last one of a direct-addressed table may have few slots, which the others must have room for.
const LEAST_WORKER_PARTS: u64 = 16;
/// Parts that a CPU's worker writes to, at most, however few columns rows have.
const MOST_WORKER_PARTS: u64 = 1024;
/// Hashed groups from which on they do.
const LEAST_HASHED: u64 = 1 << 13;
/// Rows for each two groups from which on parts pay.
const ROWS_OF_TWO_GROUPS: u64 = 3;
/// Parts at least: threads of a block that count rows of few parts wait for each other.
const LEAST_PARTS: u64 = 64;
/// Rows that are looked at for each that is left, at most. What brings rows into parts goes through all of them with all threads of a
/// block, several rows at a time, where rows that are added as they come are first selected. Measured on an H200 with 180 and
/// 600 million rows (`docs/log/performance.md`): parts pay where a third of the rows is left if the table lies in the last cache, a sixth if it
/// is some times as large, and fewer if it is far larger.
const MOST_OF_ONE_CACHED: u64 = 3;
const MOST_OF_ONE_BEYOND: u64 = 6;
const MOST_OF_ONE_FAR_BEYOND: u64 = 24;
/// How many times as large as the last cache a table is that is far larger.
const FAR_BEYOND: u64 = 4;

/// What is thought of a table of groups that lie anywhere in it.
pub(crate) struct TableSize {
    /// Groups, about.
    pub groups: u64,
    /// Bytes of as many parts as have groups, about.
    pub bytes: u64,
    /// Bytes of all slots of a direct-addressed table.
    pub dense: Option<u64>,
    /// Bytes in a block's memory of as few slots as a slice of it may have, where counts have 1 byte.
    pub slice: Option<u64>,
    /// How many slots it has.
    pub slots: u64,
    /// Cells of a group: atomics of a row.
    pub words: u32,
    /// No value of a key is known to be frequent: threads seldom meet at a group.
    pub are_even: bool,
    /// Bytes of a row's keys that are texts without a dictionary, about, where that is known of all of them.
    pub text_bytes: Option<u64>,
    /// Cache lines of each part that a worker who brings rows there writes to in turn.
    pub lines: u64,
}

impl TableSize {
    /// What is estimated of the table, and of so many rows that come to it as they are: for people.
    pub(crate) fn estimate(&self, rows: u64, calibration: &Calibration) -> String {
        let TableSize { groups, bytes, .. } = *self;
        let bytes = self.dense.unwrap_or(bytes);
        let atomics = (rows.saturating_mul(self.words.into()), bytes);
        let (size, time) = (estimate::bytes(bytes), estimate::atomics(calibration, atomics));
        format!("{} in {size}{time}", estimate::rows_to_groups(Rows::About(rows), Some(groups)))
    }
}

/// Into how many parts rows are to be brought before they come to their groups; and why. `rows`: those that are thought to come to their
/// groups; `looked_at`: those that filters see.
pub(crate) fn rule_of_parts(
    table: &TableSize,
    rows: u64,
    looked_at: u64,
    shape: &LaunchShape,
    choices: &Choices<'_>,
) -> (GroupParts, Cow<'static, str>) {
    if shape.is_serial() {
        return rule_of_worker(table, rows, shape, choices);
    }
    let off = GroupParts(1);
    let bytes = table.dense.unwrap_or(table.bytes);
    let cache = choices.calibration.index_cache(false);
    let most_of_one = match bytes / cache.value.max(1) {
        0 => MOST_OF_ONE_CACHED,
        1..FAR_BEYOND => MOST_OF_ONE_BEYOND,
        FAR_BEYOND.. => MOST_OF_ONE_FAR_BEYOND,
    };
    let least = choices.calibration.rows_in_parts(bytes, LEAST_ROWS);
    let fits = |parts: &&GroupParts| {
        let has_room = table.bytes / parts.0 <= window_bytes(shape, table.dense.is_none());
        parts.0 >= LEAST_PARTS && has_room && PartStore::admits(parts.0, shape).is_ok()
    };
    let (parts, reason) = match GroupParts::ALL.iter().find(fits) {
        _ if table.dense.is_some_and(|bytes| bytes < shape.table_bytes().into()) => {
            (off, "a block's memory has room for all groups")
        }
        _ if table.dense.is_none() && table.groups < LEAST_HASHED => {
            (off, "a block keeps copies of so few groups")
        }
        _ if rows < least.value => return (off, least.reason("few rows")),
        _ if rows < (table.groups / 2).saturating_mul(ROWS_OF_TWO_GROUPS) => (off, "few rows a group"),
        _ if table.are_even && rows < looked_at / most_of_one => {
            return (off, cache.reason("filters leave few of the rows"));
        }
        Some(parts) if rows < LEAST_ROWS => {
            let reason = "atomics beyond the last-level cache take so long that parts pay for fewer rows";
            return (*parts, least.reason(reason));
        }
        Some(parts) => (*parts, "a part's groups fit a block's memory"),
        None => (off, "no part's groups would fit a block's memory"),
    };
    (parts, reason.into())
}

/// Parts that a CPU's worker writes to, at most, where more of them spare a table of all groups.
pub(crate) fn most_worker_parts(choices: &Choices<'_>) -> u64 {
    choices.calibration.worker_pages(MOST_WORKER_PARTS).value
}

/// The same for a CPU, whose workers add up whole parts: so many parts that a core's cache has room for the groups of one.
fn rule_of_worker(
    table: &TableSize,
    rows: u64,
    shape: &LaunchShape,
    choices: &Choices<'_>,
) -> (GroupParts, Cow<'static, str>) {
    let room = choices.calibration.worker_table();
    let fits = |parts: &&GroupParts| parts.0 >= LEAST_WORKER_PARTS && table.bytes / parts.0 <= room.value;
    let most = choices.calibration.worker_parts(MOST_WORKER_PARTS, table.lines);
    let written = GroupParts::ALL.iter().filter(|parts| parts.0 <= most.value);
    let fewest = written.clone().find(fits);
    let off = |reason: &'static str| (GroupParts(1), reason.into());
    match fewest {
        _ if table.dense.is_some_and(|bytes| bytes <= shape.table_bytes().into()) => {
            off("a worker has a table of its own")
        }
        _ if table.text_bytes.is_none() => off("texts may be long, and would lie far from each other"),
        _ if rows.saturating_mul(table.text_bytes.unwrap_or(0)) > MOST_TEXT_BYTES => {
            off("texts would take too much memory for a copy")
        }
        _ if table.groups <= Preaggregation::MOST => off("a worker keeps copies of so few groups"),
        _ if rows < LEAST_WORKER_ROWS => off("few rows"),
        Some(parts) => (*parts, room.reason("a worker adds up a part without atomics, in its cache")),
        None => {
            let parts = written.copied().max_by_key(|parts| parts.0).unwrap_or(GroupParts(1));
            (parts, most.reason("as many parts as a worker can write to"))
        }
    }
}

impl GroupParts {
    /// The greatest number of parts.
    pub(crate) fn most() -> u64 {
        GroupParts::ALL.iter().map(|parts| parts.0).max().unwrap_or(1)
    }
}
