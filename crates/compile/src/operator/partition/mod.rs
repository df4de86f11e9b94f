//! Rows brought into parts before they come to a table, that of groups or a join's index: rows that are looked up near each other in
//! the table are together, so that while a part is worked on, what is looked at or updated is near: in a block's memory (groups:
//! `operator/aggregate/part_groups`), or in a cache (a GPU's second level, a CPU's own).
//!
//! The part of a row is given by the highest bits of the place that it has in the table ([`RowParts`]): of the hash, or of the
//! place of a direct-addressed table. One kernel writes the columns that are read behind to the part's places ([`write`]), the next
//! reads them part after part ([`read`]) on their way to the table, which is the one that there would be without parts:
//! everything behind it stays as it is.
//!
//! An answer never depends on the order of rows. So parts have a fixed share of the places, and what a part has no place for
//! goes to places that are for any ([`primitives::partition`](crate::primitives::partition)).

mod block;
mod distinct;
mod held;
mod read;
mod worker;
mod write;

pub(crate) use self::distinct::{DistinctRows, OwnTables};
pub(crate) use self::read::PartRows;
pub(crate) use self::write::IntoParts;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::primitives::partition::{
    BlockParts, CURSOR_STRIDE, MOST_PLACES, PLACES_OF, PLACES_OF_OVERFLOW, Shares,
};
use crate::program::{Growth, States};
use crate::shape::LaunchShape;
use crate::table::stored::StoredColumn;
use crate::types::DataType;

use std::fmt;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

/// Rows for which there are places at the first launch, at most, where it is not known how many there will be.
const INITIAL_ROWS: u64 = 16 << 20;
/// Places at the first launch for each row that is expected. The rows of a part are spread over its share of the places, so that whatever
/// there is too much of them is memory that is touched for the first time, which costs more than what the rows do.
const PLACES_OF_EXPECTED: u64 = 4;
/// Rows below which it does not matter.
const FEW_ROWS: u64 = 1 << 16;
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

/// Parts from which on a block finds places for as many rows at a time as its threads can: of few rows each part has one or none.
const MANY_PARTS: u32 = 64;
/// Parts, or else columns, from which on its threads have more rows at a time than others, and how many.
const MOST_PARTS: u32 = 1024;
const MANY_COLUMNS: usize = 3;
const MANY_ROWS: u64 = 8;
/// Bytes of a block's memory for rows of many parts: that no more than two such blocks fit a multiprocessor of an NVIDIA GPU makes them
/// as large as can be.
const MANY_BYTES: u64 = 100 << 10;

/// What gives rows their parts.
pub(crate) trait RowParts: fmt::Debug + Send + Sync {
    /// What is computed of the columns of a row for it.
    fn keys(&self) -> &[Expr];

    /// The part of the current row, of which `bits` bits, at least one, are its number: `u32`, less than there are parts that may have
    /// rows. With the hash of its keys (`u64`), where they have one.
    fn part(&self, cx: &mut Context<'_>, bits: u32) -> Result<(V, Option<V>), Unsupported>;
}

/// How many rows come into parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartSize {
    /// At most.
    pub row_bound: u64,
    /// As far as filters can tell.
    pub expected: u64,
    /// There are exactly as many as there may be at most.
    pub is_exact: bool,
}

impl PartSize {
    /// Rows for which there are places at the first launch.
    fn initial_rows(self) -> u64 {
        let expected = self.expected.saturating_mul(PLACES_OF_EXPECTED).max(FEW_ROWS);
        if self.is_exact { self.row_bound } else { self.row_bound.min(INITIAL_ROWS).min(expected) }
    }
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
    /// Why rows cannot come into parts, of which there may be `most`.
    pub(crate) fn lacks(
        columns: &[ColumnInfo],
        (size, most): (PartSize, u64),
        shape: &LaunchShape,
    ) -> Option<String> {
        if places(size.row_bound.saturating_add(spare(most, shape))) > MOST_PLACES {
            return Some(format!("more than {MOST_PLACES} places"));
        }
        let mut states = States::default();
        columns
            .iter()
            .find_map(|info| StoredColumn::plan(info, 0, &mut states).err())
            .map(|lacks| lacks.to_string())
    }

    /// Cache lines of a part that a CPU's worker writes to in turn: of each state that rows have, of their hashes, and of the texts that
    /// are copied beside those.
    pub(crate) fn lines(columns: &[ColumnInfo], has_hashes: bool) -> u64 {
        let copied =
            |info: &ColumnInfo| has_hashes && info.data_type == DataType::Utf8 && info.dictionary.is_none();
        let of_column = |info| StoredColumn::states_of(info) + u64::from(copied(info));
        columns.iter().map(of_column).sum::<u64>() + u64::from(has_hashes)
    }

    /// Whether a block has room to find places in so many parts.
    pub(crate) fn admits(parts: u64, shape: &LaunchShape) -> Result<(), String> {
        let (bytes, most) = (BlockParts::bytes(parts), u64::from(shape.table_bytes()));
        match shape.is_serial() || bytes <= most / 3 * 2 {
            true => Ok(()),
            false => Err(format!("the places of {parts} parts take {bytes} bytes of a block's {most}")),
        }
    }

    /// Declares the states.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        size: PartSize,
        parts: u64,
        shape: &LaunchShape,
        states: &mut States,
    ) -> Result<PartStore, Unsupported> {
        let wanted = states.counter("wanted_places");
        let initial = places(size.initial_rows().saturating_add(spare(parts, shape)));
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
    fn shares(&self, cx: &mut Context<'_>) -> Shares {
        let capacity = self.capacity(cx);
        let chunk = if cx.shape.is_serial() { CHUNK } else { 1 };
        Shares::of(cx.builder, capacity, self.parts, chunk)
    }

    /// How many places there are, `i64`.
    fn capacity(&self, cx: &mut Context<'_>) -> V {
        cx.argument("part_capacity", Scalar::I64, Argument::StateCapacity(self.fills))
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
