//! Aggregation: rows into the cells of their group (HorseQC, Table 4, rows B and C).
//!
//! The table of groups is chosen at compile time: one group without keys (`single`); direct-addressed where the keys'
//! ranges or dictionaries make a dense domain (`direct`); open addressing where they do not (`hash`). Under
//! `pipelined` every row updates the device's table (B2, C2). Under `resolution` a row updates memory that is private
//! to a thread or block, which is merged into the device's table at the end (B3, C3). Under `multi_pass` and
//! `operator_at_a_time` blocks leave sums that a second kernel reduces (B1), and the input is sorted so that groups come
//! one after the other (C1).
//! Groups found by hashing, and direct-addressed ones too many for local memory, are in one table under both. On a SIMT
//! device the threads of a warp or block first add up what they have for the same groups (C3, `segments`). On a CPU with
//! few workers the atomics of one table cost little beside the cache miss of a random group, which tables of each worker
//! would not save.
//!
//! What a group keeps is a list of `cells`, which `functions` derives from the aggregates and `reading` turns into
//! results; arguments that are DISTINCT have sets of their values (`distinct`).

pub mod cells;
mod direct;
mod distinct;
mod exact;
mod extremes;
mod functions;
mod hash;
mod reading;
mod segments;
mod single;
mod threads;

use std::fmt;

use kelpie_kir::Target;
use kelpie_kir::builder::V;

use self::cells::combine_memory;
use self::direct::DirectTable;
use self::distinct::DistinctSet;
use self::extremes::keep_better;
use self::functions::Cells;
use self::hash::KeyTable;
use self::segments::Segments;
use self::single::SingleGroup;
pub(crate) use self::threads::{ROWS_PER_THREAD, rows_of_thread};
use crate::context::{Argument, Context, Lowered, Unsupported};
use crate::expr::{Expr, lower};
use crate::operator::Flow;
use crate::pipeline::{Choices, ColumnInfo, Growth, Rows, column_of};
use crate::plan::Aggregate;

pub(crate) use crate::pipeline::states_of as declare;

/// An aggregation, planned: as a sink it makes the groups, as a source it delivers them.
#[derive(Debug, Clone)]
pub struct AggregateOperator {
    keys: Vec<Expr>,
    key_columns: Vec<ColumnInfo>,
    cells: Box<Cells>,
    table: Table,
    /// One an argument of [`Cells::distinct`].
    sets: Vec<DistinctSet>,
    segments: Option<Segments>,
    row_bound: u64,
}

/// What an aggregation knows of its input.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub columns: &'a [ColumnInfo],
    /// An upper bound of the rows.
    pub row_bound: u64,
    /// An upper bound of those that one thread sees.
    pub thread_rows: u64,
    /// A row of the source becomes one row at most, and no loop is around it.
    pub is_single: bool,
    /// Rows of one group come together.
    pub is_sorted: bool,
}

/// Where the groups are.
#[derive(Debug, Clone)]
enum Table {
    Single(SingleGroup),
    Direct(Box<DirectTable>),
    Hash(KeyTable),
}

impl fmt::Display for AggregateOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.table {
            Table::Single(single) => write!(f, "aggregate ({single}")?,
            Table::Direct(direct) => write!(f, "aggregate ({direct}")?,
            Table::Hash(hash) => write!(f, "aggregate ({hash}")?,
        }
        if let Some(segments) = &self.segments {
            write!(f, ", {}", segments.place())?;
        }
        match self.sets.len() {
            0 => f.write_str(")"),
            1 => f.write_str(", distinct values)"),
            sets => write!(f, ", distinct values of {sets} arguments)"),
        }
    }
}

impl AggregateOperator {
    /// Chooses the table and declares its state.
    pub(crate) fn plan(
        keys: &[Expr],
        aggregates: &[Aggregate],
        input: &Input<'_>,
        on: (&Target, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<AggregateOperator, Unsupported> {
        let row_bound = input.row_bound;
        let key_columns: Vec<ColumnInfo> = keys.iter().map(|key| column_of(key, input.columns)).collect();
        let mut cells = Box::new(Cells::plan(aggregates, input.columns, row_bound, !keys.is_empty())?);
        let table = if keys.is_empty() {
            Table::Single(SingleGroup::plan(&cells, on, states))
        } else {
            // The cell that counts rows is added where it is not there yet.
            let bytes = u64::from(cells.words() + 1) * 8;
            let limit = on.1.direct_bytes.map_or(u64::MAX, |limit| limit / bytes);
            match direct::domain(&key_columns, row_bound, limit) {
                Some(domain) => {
                    let present = cells.row_count();
                    let direct = DirectTable::plan(domain, present, &cells, input.thread_rows, on, states);
                    Table::Direct(Box::new(direct))
                }
                None => Table::Hash(KeyTable::plan(&key_columns, cells.words(), row_bound, states)?),
            }
        };
        let sets = cells.distinct.iter();
        let sets =
            sets.map(|argument| DistinctSet::plan(argument, &key_columns, input.columns, row_bound, states));
        let sets = sets.collect::<Result<_, _>>()?;
        let is_local = match &table {
            Table::Single(_) => true,
            Table::Direct(direct) => direct.is_local(),
            Table::Hash(_) => false,
        };
        let groups = groups_known(&key_columns).min(row_bound);
        let segments = if is_local { None } else { Segments::plan(&cells, groups, input, on) };
        Ok(AggregateOperator { keys: keys.to_vec(), key_columns, cells, table, sets, segments, row_bound })
    }

    /// What sums are called that can be beyond their type ([`Status::sum_overflow`](crate::context::Status::sum_overflow)), by the position of their aggregate.
    pub fn names_of_sums(&self) -> Vec<String> {
        self.cells.names()
    }

    /// What is known of the result's columns: keys, then aggregates.
    pub fn columns(&self) -> Vec<ColumnInfo> {
        self.key_columns.iter().cloned().chain(self.cells.columns()).collect()
    }

    /// An upper bound of the groups.
    pub fn row_bound(&self) -> u64 {
        match &self.table {
            Table::Single(_) => 1,
            Table::Direct(direct) => direct.slots().min(self.row_bound),
            Table::Hash(_) => self.row_bound,
        }
    }

    /// The expressions that a row evaluates.
    pub(crate) fn expressions(&self) -> Vec<Expr> {
        let contributions = self.cells.cells.iter().filter_map(|cell| cell.contribution.argument().cloned());
        self.keys.iter().chain(&self.cells.distinct).cloned().chain(contributions).collect()
    }

    /// Whether dead rows can be taken with their flag, without a branch.
    pub(crate) fn takes_flags(&self) -> bool {
        match &self.table {
            _ if !self.sets.is_empty() => false,
            Table::Single(single) => single.is_private(),
            Table::Direct(direct) => direct.is_local(),
            Table::Hash(_) => false,
        }
    }

    // ---- as a sink

    /// States to clear before the launch.
    pub(crate) fn zeroed(&self) -> Vec<usize> {
        let mut zeroed = match &self.table {
            Table::Single(single) => single.zeroed(),
            Table::Direct(direct) => vec![direct.state, direct.count],
            Table::Hash(hash) => hash.zeroed(),
        };
        zeroed.extend(self.sets.iter().flat_map(DistinctSet::zeroed));
        zeroed
    }

    /// The classes that can be too small, and the state that counts groups.
    pub(crate) fn growth(&self) -> (Vec<usize>, Option<usize>) {
        let (mut grows, count) = match &self.table {
            Table::Hash(hash) => (vec![hash.class], Some(hash.count)),
            Table::Direct(direct) => (Vec::new(), Some(direct.count)),
            Table::Single(_) => (Vec::new(), None),
        };
        grows.extend(self.sets.iter().map(DistinctSet::class));
        (grows, count)
    }

    /// Before the row loop.
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) {
        // Rows that come sorted have their texts stored.
        if self.segments.is_none() && self.cells.cells.iter().any(|cell| !cell.op.is_plain()) {
            cx.declare_scratch();
        }
        match &mut self.table {
            Table::Single(single) => single.begin(cx, &self.cells),
            Table::Direct(direct) => direct.begin(cx, &self.cells),
            Table::Hash(_) => {}
        }
        if let Some(segments) = &mut self.segments {
            segments.begin(cx, &self.cells);
        }
    }

    /// Before each row of the source, at uniform control flow.
    pub(crate) fn open_row(&self, cx: &mut Context<'_>) {
        if let Some(segments) = &self.segments {
            segments.open(cx);
        }
    }

    /// After each row of the source, at uniform control flow.
    pub(crate) fn close_row(&self, cx: &mut Context<'_>) {
        if let Some(segments) = &self.segments {
            segments.close(cx, &self.cells, |cx, slot, values| self.add(cx, slot, values));
        }
    }

    /// A row.
    pub(crate) fn consume(&self, cx: &mut Context<'_>, flow: Flow) -> Result<(), Unsupported> {
        cx.clear_scratch();
        if let Table::Hash(hash) = &self.table {
            return hash.consume(cx, &self.keys, &self.cells, &self.sets, |cx, slot, values| {
                let values = self.kept(cx, Some(slot), values)?;
                self.contribute(cx, slot, &values);
                Ok(())
            });
        }
        let prepared = self.prepare(cx, flow)?;
        self.apply(cx, &prepared)
    }

    /// A row's contributions without texts that its group does not take; the others are copied, where they are in scratch
    /// memory.
    fn kept(
        &self,
        cx: &mut Context<'_>,
        slot: Option<V>,
        values: &[Vec<V>],
    ) -> Result<Vec<Vec<V>>, Unsupported> {
        let mut kept = values.to_vec();
        if !cx.uses_scratch() {
            return Ok(kept);
        }
        for (index, (cell, value)) in self.cells.cells.iter().zip(&mut kept).enumerate() {
            let &[new] = value.as_slice() else { continue };
            if cell.op.is_plain() {
                continue;
            }
            let old = match (&self.table, slot) {
                (Table::Single(single), _) => single.current(cx, &self.cells, index),
                (Table::Direct(direct), Some(slot)) => direct.current(cx, &self.cells, slot, index),
                (Table::Hash(hash), Some(slot)) => hash.current(cx, &self.cells, slot, index),
                (_, None) => None,
            };
            let old = old.ok_or_else(|| Unsupported::internal("a text cell that cannot be looked at"))?;
            *value = vec![keep_better(cx, cell.op, old, new)?];
        }
        Ok(kept)
    }

    /// A live row's contributions to the group in `slot`: now, or once the row is closed.
    fn contribute(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.segments {
            Some(segments) => {
                segments.note(cx, &self.cells, (slot, values), |cx, slot, values| self.add(cx, slot, values));
            }
            None => self.add(cx, slot, values),
        }
    }

    fn add(&self, cx: &mut Context<'_>, slot: V, values: &[Vec<V>]) {
        match &self.table {
            Table::Single(_) => cx.impossible("a slot of the only group"),
            Table::Direct(direct) => direct.apply(cx, &self.cells, slot, values),
            Table::Hash(hash) => hash.apply(cx, &self.cells, slot, values),
        }
    }

    /// The first half of [`AggregateOperator::consume`]: everything that only reads (but for sets
    /// of distinct values). Several rows can be prepared
    /// before the first is applied, so that their loads are in flight together. Not for hash tables.
    pub(crate) fn prepare(&self, cx: &mut Context<'_>, flow: Flow) -> Result<PreparedRow, Unsupported> {
        let (slot, active) = match &self.table {
            Table::Direct(direct) => direct.slot_of_row(cx, &self.keys, flow)?,
            Table::Single(_) | Table::Hash(_) => (None, flow.active()),
        };
        let is_new = match self.sets.is_empty() {
            true => Vec::new(),
            false => {
                let keys = self.keys.iter().map(|key| lower(cx, key)).collect::<Result<Vec<_>, _>>()?;
                distinct::insert(cx, &self.sets, &keys, active)?
            }
        };
        Ok(PreparedRow { slot, values: self.cells.contributions(cx, active, &is_new)? })
    }

    /// The second half: updates the row's group.
    pub(crate) fn apply(&self, cx: &mut Context<'_>, row: &PreparedRow) -> Result<(), Unsupported> {
        let values = self.kept(cx, row.slot, &row.values)?;
        match (&self.table, row.slot) {
            (Table::Single(single), _) => single.apply(cx, &self.cells, &values),
            (Table::Direct(_), Some(slot)) => self.contribute(cx, slot, &values),
            (Table::Direct(_) | Table::Hash(_), _) => cx.impossible("a prepared row without a slot"),
        }
        Ok(())
    }

    /// After the row loop.
    pub(crate) fn end(&self, cx: &mut Context<'_>) {
        match &self.table {
            Table::Single(single) => single.end(cx, &self.cells),
            Table::Direct(direct) => direct.end(cx, &self.cells),
            Table::Hash(_) => {}
        }
        if let Some(segments) = &self.segments {
            segments.end(cx, |cx, slot, values| self.add(cx, slot, values));
        }
    }

    // ---- the sums of blocks

    /// Whether the kernel leaves a sum a block, which another kernel reduces.
    pub(crate) fn has_partials(&self) -> bool {
        matches!(&self.table, Table::Single(single) if single.partials().is_some())
    }

    /// The sums of blocks as a source.
    pub(crate) fn partial_rows(&self) -> Rows {
        Rows::Class(match &self.table {
            Table::Single(single) => single.partials().map_or(single.class, |(class, _)| class),
            Table::Direct(direct) => direct.class,
            Table::Hash(hash) => hash.class,
        })
    }

    /// The body of the kernel that reduces `rows` (`i64`) sums of blocks.
    pub(crate) fn reduce(&mut self, cx: &mut Context<'_>, rows: V) {
        if let Table::Single(single) = &mut self.table {
            single.reduce(cx, &self.cells, rows);
        }
    }

    // ---- as a source

    /// Slots that the source delivers.
    pub(crate) fn rows(&self) -> Rows {
        Rows::Class(match &self.table {
            Table::Single(single) => single.class,
            Table::Direct(direct) => direct.class,
            Table::Hash(hash) => hash.class,
        })
    }

    /// Whether slot `slot` (`i64`) holds a group; `None`: every slot does.
    pub(crate) fn present(&self, cx: &mut Context<'_>, slot: V) -> Option<V> {
        match &self.table {
            Table::Single(_) => None,
            Table::Direct(direct) => Some(direct.present(cx, &self.cells, slot)),
            Table::Hash(hash) => Some(hash.present(cx, slot)),
        }
    }

    /// The columns of the group in `slot`: keys, then aggregates.
    pub(crate) fn deliver(&self, cx: &mut Context<'_>, slot: V) -> Result<Vec<Lowered>, Unsupported> {
        let words = self.cells.words();
        let base = match &self.table {
            Table::Single(single) => group_pointer(cx, single.state, words, slot),
            Table::Direct(direct) => group_pointer(cx, direct.state, words, slot),
            Table::Hash(hash) => hash.words(cx, slot),
        };
        let mut columns = match &self.table {
            Table::Single(_) => Vec::new(),
            Table::Direct(direct) => direct.keys(cx, &self.key_columns, slot),
            Table::Hash(hash) => hash.keys(cx, &self.key_columns, slot),
        };
        columns.extend(self.cells.results(cx, |cx, word| word_pointer(cx, base, word))?);
        Ok(columns)
    }
}

/// Upper bound of the groups by the keys whose number of values is known.
fn groups_known(keys: &[ColumnInfo]) -> u64 {
    let values = |key| direct::values_of(key).map_or(1, |(_, values)| values);
    keys.iter().map(values).fold(1, u64::saturating_mul)
}

/// A row that was prepared: the slot of its group where there are several, and its contribution to each cell (the
/// cell's parts).
#[derive(Debug)]
pub(crate) struct PreparedRow {
    slot: Option<V>,
    values: Vec<Vec<V>>,
}

/// The first word of a group in a state: `ptr<global, u64>`.
fn group_pointer(cx: &mut Context<'_>, state: usize, words: u32, slot: V) -> V {
    let table =
        cx.argument("groups", kelpie_kir::Type::global(kelpie_kir::Scalar::U64), Argument::State(state));
    let stride = cx.builder.i64(i64::from(words));
    let index = cx.builder.mul(slot, stride);
    cx.builder.offset(table, index)
}

/// Word `word` of the group at `base`.
fn word_pointer(cx: &mut Context<'_>, base: V, word: u32) -> V {
    let index = cx.builder.i64(i64::from(word));
    cx.builder.offset(base, index)
}

/// Adds a row's contributions to the group at `base`.
fn update_group(cx: &mut Context<'_>, cells: &Cells, base: V, values: &[Vec<V>], scope: kelpie_kir::Scope) {
    for (cell, value) in cells.cells.iter().zip(values) {
        let pointer = word_pointer(cx, base, cell.word);
        combine_memory(cx, cell.op, pointer, value, scope);
    }
}

/// A capacity of exactly `slots` groups.
fn fixed_class(states: &mut declare::States, slots: u64) -> usize {
    states.class(slots, Growth::Fixed)
}
