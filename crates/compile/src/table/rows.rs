//! A store of rows: what a pipeline materialises for later ones (the build side of a join), column by column.
//!
//! On SIMT devices the store is dense: a row takes a place with one atomic. On a CPU a worker takes `CHUNK_ROWS` places
//! at a time, so that workers do not meet in a counter at every row; how many rows stand in a chunk is noted when it is
//! full or the worker ends, and the places after them are holes.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, BinaryOp, Scalar, Scope, Type};

use super::chunks::{CHUNK_ROWS, CHUNK_SHIFT, Chunk};
use super::stored::StoredColumn;
use crate::context::{Argument, Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::program::States;
use crate::program::{Growth, RowCount};
use crate::shape::LaunchShape;
use crate::table::places::{Dense, DenseTarget};
use crate::table::report_growth;
use crate::variant::axes::WritePlaces;

/// Rows of a store at the first launch, at most.
const INITIAL_ROWS: u64 = 4 << 20;

/// How the places of a store are given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// One after the other: every place below the count has a row.
    Dense,
    /// To so many workers, `CHUNK_ROWS` at a time: there are holes.
    Chunked(u32),
}

impl Layout {
    /// What lets the workers of a device write without meeting at each row.
    pub fn of(shape: &LaunchShape) -> Layout {
        match shape.workers() {
            0 => Layout::Dense,
            workers => Layout::Chunked(workers),
        }
    }
}

/// A store of rows; their order is arbitrary.
#[derive(Debug, Clone)]
pub struct RowStore {
    columns: Vec<StoredColumn>,
    /// State that counts the places that are taken, one `u64`.
    count: usize,
    /// The class of the columns' capacity; other arrays of one element a row may join it.
    pub class: usize,
    /// A state of the class.
    places: usize,
    /// Where the store is not dense: the state of one `u32` a chunk, its rows; and the one that counts all rows.
    fills: Option<(usize, usize)>,
}

impl RowStore {
    /// Declares the states. `row_bound`: an upper bound of the rows.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        row_bound: u64,
        layout: Layout,
        states: &mut States,
    ) -> Result<RowStore, Unsupported> {
        let count = states.counter("places");
        let (is_chunked, slack) = match layout {
            Layout::Dense => (false, 0),
            Layout::Chunked(workers) => (true, CHUNK_ROWS * u64::from(workers)),
        };
        let class = states.class(row_bound.clamp(1, INITIAL_ROWS) + slack, Growth::Counted(count));
        let columns = columns.iter().map(|info| StoredColumn::plan(info, class, states));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        // Capacity is asked of some state, also where no column stores anything.
        let places = match states.states.iter().position(|state| state.class == class) {
            Some(state) => state,
            None => states.state("places", 1, class),
        };
        let fills = is_chunked.then(|| (states.state("chunk_rows", 4, class), states.counter("stored_rows")));
        Ok(RowStore { columns, count, class, places, fills })
    }

    /// Declares the states of a store of so many places, which are given to rows by whoever writes them: its count is that of the
    /// rows, and it never grows.
    pub(crate) fn placed(
        columns: &[ColumnInfo],
        places: u64,
        states: &mut States,
    ) -> Result<RowStore, Unsupported> {
        let count = states.counter("placed_rows");
        let class = states.class(places.max(1), Growth::Fixed);
        let columns = columns.iter().map(|info| StoredColumn::plan(info, class, states));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let places = columns.iter().find_map(|column| column.states().next()).unwrap_or(count);
        Ok(RowStore { columns, count, class, places, fills: None })
    }

    /// Declares the states of the same columns once more, for as many rows, which come to places of their own.
    pub(crate) fn again(&self, states: &mut States) -> Result<RowStore, Unsupported> {
        let again = |column: &StoredColumn| StoredColumn::plan(column.info(), self.class, states);
        let columns = self.columns.iter().map(again);
        Ok(RowStore { columns: columns.collect::<Result<_, _>>()?, ..self.clone() })
    }

    /// Writes the current row, whose columns are the store's, to a place (`i64`) that there is. Columns none of whose states is `needed`
    /// are left out.
    pub(crate) fn write_at(
        &self,
        cx: &mut Context<'_>,
        place: V,
        needed: &BTreeSet<usize>,
    ) -> Result<(), Unsupported> {
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| column.is_used(needed)) {
            let value = cx.column(index)?;
            column.store(cx, &value, place)?;
        }
        Ok(())
    }

    /// What is known of the columns.
    pub fn infos(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(|column| column.info().clone()).collect()
    }

    /// The columns.
    pub fn columns(&self) -> &[StoredColumn] {
        &self.columns
    }

    /// The state that counts the rows, one `u64`.
    pub fn row_count(&self) -> usize {
        self.fills.map_or(self.count, |(_, rows)| rows)
    }

    /// The state that counts the places to look at, one `u64`.
    pub fn place_count(&self) -> usize {
        self.count
    }

    /// The states to clear before rows are written.
    pub fn zeroed(&self) -> Vec<usize> {
        let mut states = vec![self.count];
        states.extend(self.fills.map(|(_, rows)| rows));
        states
    }

    /// The store as an array that is written densely.
    pub(crate) fn target(&self) -> DenseTarget {
        DenseTarget { total: self.count, class: self.class, limit: None, keeps_places: false, chunks: None }
    }

    /// The rows of the store as a source.
    pub fn rows(&self) -> RowCount {
        RowCount::Counted(self.count)
    }

    /// Whether there is a row at every place below the count.
    pub fn is_dense(&self) -> bool {
        self.fills.is_none()
    }

    /// Whether there is a row at `place` (`i64`) below the count; `None`: at every one.
    pub fn is_taken(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        let fills = self.fill_array(cx)?;
        let b = &mut *cx.builder;
        let (shift, mask) = (b.i64(CHUNK_SHIFT.into()), b.i64(CHUNK_ROWS as i64 - 1));
        let chunk = b.binary(BinaryOp::Shr, place, shift);
        let fill = b.element(fills, chunk);
        let within = b.and(place, mask);
        let within = b.convert(within, Scalar::U32);
        Some(b.lt(within, fill))
    }

    /// Behind the last place before `place` (`i64`) that may have a row: itself where there is one before it in its chunk, as most are; else
    /// the places of its chunk that have none are left out. `u32`.
    pub fn taken_before(&self, cx: &mut Context<'_>, place: V) -> V {
        let before = cx.builder.convert(place, Scalar::U32);
        let Some(fills) = self.fill_array(cx) else { return before };
        let b = &mut *cx.builder;
        let (shift, first) = (b.i64(CHUNK_SHIFT.into()), b.i64(-(CHUNK_ROWS as i64)));
        let chunk = b.binary(BinaryOp::Shr, place, shift);
        let fill = b.element(fills, chunk);
        let first = b.and(place, first);
        let first = b.convert(first, Scalar::U32);
        let end = b.add(first, fill);
        b.binary(BinaryOp::Min, before, end)
    }

    fn fill_array(&self, cx: &mut Context<'_>) -> Option<V> {
        let (state, _) = self.fills?;
        Some(cx.argument("chunk_rows", Type::global(Scalar::U32), Argument::State(state)))
    }

    /// Notes how many rows the chunk has, if there is one and the store reaches that far.
    fn note_fill(&self, cx: &mut Context<'_>, chunk: Chunk) {
        let (Some(fills), Some((_, rows))) = (self.fill_array(cx), self.fills) else { return };
        let total = cx.argument("built_rows", Type::global(Scalar::U64), Argument::State(rows));
        let capacity = cx.argument("row_capacity", Scalar::I64, Argument::StateCapacity(self.places));
        let b = &mut *cx.builder;
        let capacity = b.bitcast(capacity, Scalar::U64);
        let (next, end) = (b.read(chunk.next), b.read(chunk.end));
        let zero = b.u64(0);
        let (rows, shift) = (b.u64(CHUNK_ROWS), b.u64(CHUNK_SHIFT.into()));
        let first = b.sub(end, rows);
        // The last chunk may go beyond the capacity, as long as its rows do not.
        let (taken, fits) = (b.ne(end, zero), b.lt(first, capacity));
        let noted = b.and(taken, fits);
        cx.begin_if(noted);
        let b = &mut *cx.builder;
        let index = b.binary(BinaryOp::Shr, first, shift);
        let fill = b.sub(next, first);
        b.atomic_discard(AtomicOp::Add, total, fill, Scope::Device);
        let fill = b.convert(fill, Scalar::U32);
        let pointer = b.offset(fills, index);
        b.store(pointer, fill);
        cx.end();
    }

    /// Adds the states that hold some of the columns, and those that say which places have a row.
    pub fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let columns = columns.iter().filter_map(|column| self.columns.get(*column));
        states.extend(columns.flat_map(StoredColumn::states));
    }

    /// The columns that are read where `states` are.
    pub fn needed(&self, states: &BTreeSet<usize>) -> BTreeSet<usize> {
        let columns = self.columns.iter().enumerate();
        columns.filter(|(_, column)| column.is_used(states)).map(|(index, _)| index).collect()
    }
}

impl Dense for RowStore {
    fn chunk_rows(&self, _places: WritePlaces) -> Option<u64> {
        self.fills.map(|_| CHUNK_ROWS)
    }

    fn note(&self, cx: &mut Context<'_>, chunk: Chunk) {
        self.note_fill(cx, chunk);
    }

    fn reserve(&self, cx: &mut Context<'_>, count: V) -> V {
        let counter = cx.argument("place_count", Type::global(Scalar::U64), Argument::State(self.count));
        cx.builder.atomic(AtomicOp::Add, counter, count, Scope::Device)
    }

    /// Where there is no such place, asks for more. Columns none of whose states is `needed` are left out.
    fn write(&self, cx: &mut Context<'_>, place: V, needed: &BTreeSet<usize>) -> Result<(), Unsupported> {
        let capacity = cx.argument("row_capacity", Scalar::I64, Argument::StateCapacity(self.places));
        let place = cx.builder.bitcast(place, Scalar::I64);
        let fits = cx.builder.lt(place, capacity);
        cx.begin_if(fits);
        self.write_at(cx, place, needed)?;
        cx.begin_else();
        let is_first = cx.builder.eq(place, capacity);
        report_growth(cx, is_first);
        cx.end();
        Ok(())
    }
}
