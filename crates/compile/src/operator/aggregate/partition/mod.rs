//! Rows brought into parts before they come to their groups: rows whose groups lie near each other in the table are together,
//! so that while a part is added up, the groups that are updated are near: in a block's memory ([`part_groups`](super::part_groups)),
//! or in a cache (a GPU's second level, a CPU's own).
//!
//! The part of a row is given by the highest bits of the place that its group has ([`GroupTable::part`]): of the hash, or of the
//! place of a direct-addressed table. One kernel writes keys and arguments of aggregates to the part's places ([`write`]), the next
//! reads them part after part ([`read`]) into the table of all groups, which is the one that there would be without parts:
//! everything behind it stays as it is.
//!
//! An answer never depends on the order of rows. So parts have a fixed share of the places, and what a part has no place for
//! goes to places that are for any ([`primitives::partition`](crate::primitives::partition)).
//!
//! [`GroupTable::part`]: super::groups::GroupTable::part

mod held;
mod read;
mod write;

pub(crate) use self::read::PartRows;
pub(crate) use self::write::IntoParts;
use super::near::NearCopies;
use super::part_groups::window_bytes;
use crate::calibration::Calibration;
use crate::choices::Choices;
use crate::context::{Argument, Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::primitives::partition::{
    BlockParts, CURSOR_STRIDE, Layout, MOST_PLACES, PLACES_OF, PLACES_OF_OVERFLOW,
};
use crate::program::{Growth, States};
use crate::shape::LaunchShape;
use crate::table::stored::StoredColumn;
use crate::variant::Variant;
use crate::variant::axes::GroupParts;

use std::borrow::Cow;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

/// Rows for which there are places at the first launch, at most, where it is not known how many there will be.
const INITIAL_ROWS: u64 = 16 << 20;
/// Places that a CPU's worker takes at a time.
const CHUNK: u32 = 1 << CHUNK_SHIFT;
const CHUNK_SHIFT: u32 = 6;
/// Places beside those for rows, a part: where rows are few, a part has less than its share of them.
const SPARE: u64 = 16;

/// Rows in parts.
#[derive(Debug, Clone)]
pub struct PartStore {
    columns: Vec<StoredColumn>,
    /// How many parts may have rows.
    parts: u32,
    /// Bits of a part's number.
    bits: u32,
    class: usize,
    /// State of [`CURSOR_STRIDE`] `u32` a part, and as many for the overflow: the first counts the places that are taken.
    cursors: usize,
    /// State that counts the places that all rows may need, one `u64`.
    wanted: usize,
    /// State of one `u64`: the end of the places that are taken.
    end: usize,
    /// State that counts the rows, one `u64`.
    rows: usize,
    /// State of one byte a place, in the class of the columns. On a CPU the first ones tell of each chunk how many rows it has.
    fills: usize,
    /// Whether these are told.
    has_chunks: bool,
    /// Of keys that are not one word: state of the hash of each row's, one `u64` a place. On a CPU, where texts among them are copied
    /// beside each other.
    hashes: Option<usize>,
}

/// Rows from which on parts pay on a GPU (`docs/performance.md`), unless measured rates of atomics say fewer.
const LEAST_ROWS: u64 = 4 << 20;
/// The same on a CPU.
const LEAST_WORKER_ROWS: u64 = 1 << 18;
/// Bytes of texts that are copied into parts, at most: so many are in a stage's first heap.
const MOST_TEXT_BYTES: u64 = 160 << 20;
/// Parts of a CPU's worker, at least: the last one of a direct-addressed table may have few slots, which the others must have room for.
const LEAST_WORKER_PARTS: u64 = 16;
/// Parts that a CPU's worker writes to, at most: of each a chunk of every column should be in its second-level cache.
const MOST_WORKER_PARTS: u64 = 1024;
/// Hashed groups from which on they do.
const LEAST_HASHED: u64 = 1 << 13;
/// Rows for each two groups from which on parts pay.
const ROWS_OF_TWO_GROUPS: u64 = 3;
/// Parts at least: threads of a block that count rows of few parts wait for each other.
const LEAST_PARTS: u64 = 64;
/// Parts from which on a block finds places for as many rows at a time as its threads can: of few rows each part has one or none.
const MANY_PARTS: u32 = 64;
/// Parts, or else columns, from which on its threads have more rows at a time than others, and how many.
const MOST_PARTS: u32 = 1024;
const MANY_COLUMNS: usize = 3;
const MANY_ROWS: u64 = 8;
/// Bytes of a block's memory for rows of many parts: that no more than two such blocks fit a multiprocessor of an NVIDIA GPU makes them
/// as large as can be.
const MANY_BYTES: u64 = 100 << 10;

/// How many rows come into parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartSize {
    /// At most.
    pub row_bound: u64,
    /// There are exactly so many.
    pub is_exact: bool,
}

/// Places for so many rows.
fn places(rows: u64) -> u64 {
    (rows.saturating_mul(PLACES_OF) / PLACES_OF_OVERFLOW).saturating_add(1)
}

/// Rows that a part may have beside its share: what workers leave of chunks.
fn spare(parts: u64, shape: &LaunchShape) -> u64 {
    let chunks = u64::from(shape.workers()) * u64::from(CHUNK);
    parts * chunks.max(SPARE)
}

impl PartStore {
    /// Why rows cannot come into parts.
    pub(crate) fn lacks(columns: &[ColumnInfo], size: PartSize, shape: &LaunchShape) -> Option<String> {
        let most = GroupParts::most();
        if places(size.row_bound.saturating_add(spare(most, shape))) > MOST_PLACES {
            return Some(format!("more than {MOST_PLACES} places"));
        }
        let mut states = States::default();
        columns
            .iter()
            .find_map(|info| StoredColumn::plan(info, 0, &mut states).err())
            .map(|lacks| lacks.to_string())
    }

    /// Whether a block has room to find places in so many parts.
    pub(crate) fn admits(parts: GroupParts, shape: &LaunchShape) -> Result<(), String> {
        let (bytes, most) = (BlockParts::bytes(parts.0), u64::from(shape.table_bytes()));
        match shape.is_serial() || bytes <= most / 3 * 2 {
            true => Ok(()),
            false => Err(format!("the places of {} parts take {bytes} bytes of a block's {most}", parts.0)),
        }
    }

    /// Declares the states.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        size: PartSize,
        GroupParts(parts): GroupParts,
        shape: &LaunchShape,
        states: &mut States,
    ) -> Result<PartStore, Unsupported> {
        let wanted = states.counter("wanted_places");
        let rows = if size.is_exact { size.row_bound } else { size.row_bound.min(INITIAL_ROWS) };
        let initial = places(rows.saturating_add(spare(parts, shape)));
        let class = states.class(initial, Growth::Counted(wanted));
        let columns = columns.iter().map(|info| StoredColumn::plan(info, class, states));
        let columns = columns.collect::<Result<_, _>>()?;
        let cursor_words = (parts + 1) * u64::from(CURSOR_STRIDE);
        let cursor_class = states.class(cursor_words, Growth::Fixed);
        let parts = u32::try_from(parts).map_err(Unsupported::internal)?;
        Ok(PartStore {
            columns,
            parts,
            bits: parts.ilog2(),
            class,
            cursors: states.state("part_cursors", 4, cursor_class),
            wanted,
            end: states.counter("part_end"),
            rows: states.counter("part_rows"),
            fills: states.state("chunk_rows", 1, class),
            has_chunks: shape.is_serial(),
            hashes: None,
        })
    }

    /// What is known of the columns.
    pub(crate) fn infos(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(|column| column.info().clone()).collect()
    }

    fn column(&self, index: usize) -> Result<&StoredColumn, Unsupported> {
        self.columns.get(index).ok_or_else(|| Unsupported::internal("a column that is not stored"))
    }

    /// Whether a block has few rows of each part at a time.
    fn has_many(&self) -> bool {
        1 << self.bits >= MANY_PARTS
    }

    /// Bits of a part's number.
    pub(crate) fn bits(&self) -> u32 {
        self.bits
    }

    /// The same where only the first parts, so many, may have rows: they share out the places.
    pub(crate) fn of_parts(&self, used: u32) -> PartStore {
        PartStore { parts: used.clamp(1, self.parts), ..self.clone() }
    }

    /// The same with the hashes of keys.
    pub(crate) fn with_hashes(self, states: &mut States) -> PartStore {
        PartStore { hashes: Some(states.state("part_hashes", 8, self.class)), ..self }
    }

    /// The state that has the hashes of keys, if one does.
    pub(crate) fn hashes(&self) -> Option<usize> {
        self.hashes
    }

    /// Where the parts are.
    fn layout(&self, cx: &mut Context<'_>) -> Layout {
        let capacity = cx.argument("part_capacity", Scalar::I64, Argument::StateCapacity(self.fills));
        let chunk = if cx.shape.is_serial() { CHUNK } else { 1 };
        Layout::of(cx.builder, capacity, self.parts, chunk)
    }

    fn cursors(&self, cx: &mut Context<'_>) -> V {
        cx.argument("part_cursors", Type::global(Scalar::U32), Argument::State(self.cursors))
    }

    fn fills(&self, cx: &mut Context<'_>) -> V {
        cx.argument("chunk_rows", Type::global(Scalar::U8), Argument::State(self.fills))
    }

    fn counter(cx: &mut Context<'_>, state: usize) -> V {
        cx.argument("part_counter", Type::global(Scalar::U64), Argument::State(state))
    }
}

/// What is thought of a table of groups that lie anywhere in it.
pub(crate) struct TableSize {
    /// Groups, about.
    pub groups: u64,
    /// Bytes of as many parts as have groups, about.
    pub bytes: u64,
    /// Bytes of all slots of a direct-addressed table.
    pub dense: Option<u64>,
    /// How many these are.
    pub slots: u64,
    /// Cells of a group: atomics of a row.
    pub words: u32,
    /// Bytes of a row's keys that are texts without a dictionary, about, where that is known of all of them.
    pub text_bytes: Option<u64>,
}

impl TableSize {
    /// What is estimated of the table, and of so many rows that come to it as they are: for people.
    pub(crate) fn estimate(&self, rows: u64, calibration: &Calibration) -> String {
        let TableSize { groups, bytes, .. } = *self;
        let bytes = self.dense.unwrap_or(bytes);
        let mut text = format!("about {rows} rows to {groups} groups in {bytes} bytes");
        if let Some(time) = calibration.atomics_ms(rows.saturating_mul(self.words.into()), bytes) {
            text.push_str(&format!(", {time:.2} ms of atomics if added as they come"));
        }
        text
    }
}

/// Into how many parts rows are to be brought before they come to their groups; and why.
pub(crate) fn rule(
    table: &TableSize,
    rows: u64,
    (shape, choices): (&LaunchShape, &Choices<'_>),
) -> (GroupParts, Cow<'static, str>) {
    if shape.is_serial() {
        return rule_of_worker(table, rows, (shape, choices));
    }
    let off = GroupParts(1);
    let least = choices.calibration.rows_in_parts(table.dense.unwrap_or(table.bytes), LEAST_ROWS);
    let fits = |parts: &&GroupParts| {
        let has_room = table.bytes / parts.0 <= window_bytes(shape, table.dense.is_none());
        parts.0 >= LEAST_PARTS && has_room && PartStore::admits(**parts, shape).is_ok()
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
        Some(parts) if rows < LEAST_ROWS => {
            let reason = "atomics beyond the last-level cache take so long that parts pay for fewer rows";
            return (*parts, least.reason(reason));
        }
        Some(parts) => (*parts, "a part's groups fit a block's memory"),
        None => (off, "no part's groups would fit a block's memory"),
    };
    (parts, reason.into())
}

/// The same for a CPU, whose workers add up whole parts: so many parts that a core's cache has room for the groups of one.
fn rule_of_worker(
    table: &TableSize,
    rows: u64,
    (shape, choices): (&LaunchShape, &Choices<'_>),
) -> (GroupParts, Cow<'static, str>) {
    let room = choices.calibration.worker_table();
    let fits = |parts: &&GroupParts| parts.0 >= LEAST_WORKER_PARTS && table.bytes / parts.0 <= room.value;
    let fewest = GroupParts::ALL.iter().filter(|parts| parts.0 <= MOST_WORKER_PARTS).find(fits);
    let off = |reason: &'static str| (GroupParts(1), reason.into());
    match fewest {
        _ if table.dense.is_some_and(|bytes| bytes <= shape.table_bytes().into()) => {
            off("a worker has a table of its own")
        }
        _ if table.text_bytes.is_none() => off("texts may be long, and would lie far from each other"),
        _ if rows.saturating_mul(table.text_bytes.unwrap_or(0)) > MOST_TEXT_BYTES => {
            off("texts would take too much memory for a copy")
        }
        _ if table.groups <= NearCopies::MOST => off("a worker keeps copies of so few groups"),
        _ if rows < LEAST_WORKER_ROWS => off("few rows"),
        Some(parts) => (*parts, room.reason("a worker adds up a part without atomics, in its cache")),
        None => (GroupParts(MOST_WORKER_PARTS), "as many parts as a worker can write to".into()),
    }
}

impl GroupParts {
    /// The greatest number of parts.
    fn most() -> u64 {
        GroupParts::ALL.iter().map(|parts| parts.0).max().unwrap_or(1)
    }
}
