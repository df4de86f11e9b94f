//! Aggregation: rows into the cells of their group (HorseQC, Table 4, rows B and C).
//!
//! The table of groups is chosen at compile time: one group without keys (`single`); direct-addressed where the keys'
//! ranges or dictionaries make a dense domain (`direct`); open addressing where they do not (`hash`). Under
//! `pipelined` every row updates the device's table (B2, C2). Under `resolution` a row updates memory that is private
//! to a thread or block, which is merged into the device's table at the end (B3, C3). Under `multi_pass` and
//! `operator_at_a_time` blocks leave sums that a second kernel reduces (B1), and the input is sorted so that groups come
//! one after the other (C1).
//! Groups found by hashing, and direct-addressed ones too many for local memory, are in one table under both. On a SIMT
//! device the threads of a warp or block first add up what they have for the same groups (C3, `segments`). Of the groups that it
//! meets often a block, or a CPU's worker, keeps copies in its own memory (`near`), which are merged at the end.
//!
//! What a group keeps is a list of `cells`, which `functions` derives from the aggregates and `reading` turns into
//! results; arguments that are DISTINCT have sets of their values (`distinct`).

mod batch;
mod block_counts;
mod block_table;
mod cell_forms;
pub mod cells;
mod dependent;
mod deviations;
mod direct;
mod direct_keys;
mod distinct;
mod domain;
mod end_rows;
mod exact;
mod extremes;
mod functions;
mod group_text;
mod groups;
mod hash;
mod hashed;
mod input;
mod key_count;
mod key_window;
mod known_groups;
mod levels;
mod near;
mod near_block;
mod near_keys;
mod packing;
mod part_groups;
mod part_rule;
mod placement;
mod ranked;
mod reading;
mod reduce;
mod run_accumulator;
mod runs;
mod segments;
mod single;
mod sink;
mod sketch;
mod source;
mod sparse;
mod table_slices;
mod tables;
#[cfg(test)]
mod testing;
mod text_rows;
pub(in crate::operator) mod threads;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use self::batch::{Batch, Parts};
use self::dependent::KeySplit;
pub(crate) use self::dependent::{KnownKeys, are_carried};
use self::distinct::DistinctSet;
pub(crate) use self::end_rows::{EndRow, EndRows};
use self::functions::Cells;
use self::groups::GroupTable;
use self::hash::KeyTable;
pub(crate) use self::input::Input;
use self::known_groups::groups_known;
pub(crate) use self::known_groups::{key_values, scattered_table};
use self::levels::Origin;
pub(crate) use self::levels::{GroupCells, MergedCells, counts_once, lacks_levels, place_at, place_column};
use self::near::NearCopies;
use self::part_groups::{PartGroups, PartPlace};
pub(crate) use self::part_rule::{TableSize, most_worker_parts, rule_of_parts};
pub(crate) use self::ranked::{RankedColumn, RankedValues};
pub(crate) use self::reduce::ReduceSums;
use self::run_accumulator::RunAccumulator;
pub(crate) use self::runs::{Placed, lacks_strides};
use self::segments::Segments;
use self::single::SingleGroup;
pub(crate) use self::sink::AddToGroups;
use self::sketch::GroupSketch;
pub(crate) use self::source::Groups;
use self::sparse::update_cell;
pub(crate) use self::table_slices::suits_slices;
pub(crate) use self::text_rows::{TextCopies, TextLengths, TextRows};
use crate::choices::Choices;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::operator::partition::RowParts;
use crate::plan::Aggregate;
use crate::program::Growth;
use crate::shape::LaunchShape;
use crate::variant::axes::RunAccumulator as AccumulatedGroup;

pub(crate) use crate::program as declare;

/// Values of a key's range for each row from which on it says nothing of how many groups there are.
const VALUES_A_ROW: u64 = 16;

/// An aggregation, planned.
#[derive(Debug)]
pub struct AggregateOperator {
    /// The keys over the input's rows, but for those that are carried.
    keys: Vec<Expr>,
    /// The same over the rows that are taken to their groups: those, or a batch's.
    group_keys: Vec<Expr>,
    /// Keys that are stored with their group, over the input's rows and over those.
    carried: Vec<Expr>,
    group_carried: Vec<Expr>,
    /// All keys.
    key_columns: Vec<ColumnInfo>,
    /// Those of them that follow from the others, whatever becomes of them.
    followers: BTreeSet<usize>,
    cells: Cells,
    /// What the cells were planned by.
    origin: Arc<Origin>,
    table: Box<dyn GroupTable>,
    /// One an argument of [`Cells::distinct`].
    sets: Vec<DistinctSet>,
    segments: Option<Segments>,
    near: Option<NearCopies>,
    /// Whether a thread has what rows add to one group, and to which.
    last: AccumulatedGroup,
    /// Rows come in parts, of which each is added up as a whole.
    parts: Option<PartPlace>,
    /// What estimates how many groups, and values of sets, there are.
    sketch: Option<GroupSketch>,
    /// Rows of a worker that wait for each other: `group_keys`, `group_carried`, `cells` and `sets` are over its columns.
    batch: Option<Batch>,
}

impl fmt::Display for AggregateOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aggregate ({}", self.table)?;
        if let Some(segments) = &self.segments {
            write!(f, ", {}", segments.place())?;
        }
        if self.near.is_some() {
            f.write_str(", near copies")?;
        }
        match self.last {
            AccumulatedGroup::Off => {}
            AccumulatedGroup::On => f.write_str(", last groups")?,
            AccumulatedGroup::Majority => f.write_str(", frequent groups")?,
        }
        match &self.parts {
            Some(PartPlace::Window(_)) => f.write_str(", parts in blocks")?,
            Some(PartPlace::Alone) => f.write_str(", a worker a part")?,
            None => {}
        }
        if self.batch.is_some() {
            f.write_str(", batches")?;
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
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<AggregateOperator, Unsupported> {
        let (aggregates, columns) = (aggregates.to_vec(), input.columns.to_vec());
        let origin = Arc::new(Origin { aggregates, columns, row_bound: input.row_bound });
        let cells = origin.cells(!keys.is_empty())?;
        AggregateOperator::with_cells(keys, (cells, origin), input, on, states)
    }

    /// As [`Self::plan`], of rows that are `finer`'s groups ([`GroupCells`]).
    pub(crate) fn plan_coarser(
        keys: &[Expr],
        finer: &AggregateOperator,
        input: &Input<'_>,
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<AggregateOperator, Unsupported> {
        let cells = levels::cells_of_groups(finer, !keys.is_empty())?;
        let origin = Arc::clone(&finer.origin);
        AggregateOperator::with_cells(keys, (cells, origin), input, on, states)
    }

    /// As [`Self::plan_coarser`], where one of `finer`'s keys has the values of those of the `aggregates` that count equal ones once
    /// ([`levels::cells_of_values`]).
    pub(crate) fn plan_of_values(
        keys: &[Expr],
        (finer, aggregates): (&AggregateOperator, &[Aggregate]),
        input: &Input<'_>,
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<AggregateOperator, Unsupported> {
        let (cells, origin) = levels::cells_of_values(finer, aggregates, !keys.is_empty())?;
        AggregateOperator::with_cells(keys, (cells, Arc::new(origin)), input, on, states)
    }

    fn with_cells(
        keys: &[Expr],
        (mut cells, origin): (Cells, Arc<Origin>),
        input: &Input<'_>,
        on: (&LaunchShape, &Choices<'_>),
        states: &mut declare::States,
    ) -> Result<AggregateOperator, Unsupported> {
        let row_bound = input.row_bound;
        let all_columns: Vec<ColumnInfo> = keys.iter().map(|key| column_of(key, input.columns)).collect();
        let split = KeySplit::choose(keys, &all_columns, input)?;
        let KeySplit { keys, columns: key_columns, carried, stored } = split;
        let columns_only = are_columns(&keys);
        let are_far = !on.0.is_serial()
            && !input.is_sorted
            && input.parts.is_none()
            && key_columns
                .iter()
                .map(key_values)
                .try_fold(1u64, |all, own| Some(all.saturating_mul(own?)))
                .is_none_or(|groups| groups > packing::BESIDE_BLOCKS);
        cells.choose_packing(row_bound, (!keys.is_empty(), are_far), input.site)?;
        let table: Box<dyn GroupTable> = match keys.as_slice() {
            [] => Box::new(SingleGroup::plan(&cells, on, input.site, states)?),
            _ => tables::of_keys((&key_columns, &stored, columns_only), &mut cells, input, on, states)?,
        };
        let sets = cells.distinct.iter();
        let sets = sets.map(|argument| DistinctSet::plan(argument, &key_columns, input, states));
        let mut sets = sets.collect::<Result<Vec<_>, _>>()?;
        let groups = groups_known(&key_columns).min(row_bound);
        // Where the table is hashed, neighbours that add up before cost more than they spare (docs/log/performance.md).
        let are_clustered = !table.has_words() && domain::are_clustered(&key_columns);
        let segments = match table.is_local() {
            true => None,
            false => {
                let words = table.key_table().and_then(KeyTable::words_in_block);
                let has_own_table = !on.0.is_serial()
                    && words.is_some()
                    && !table.has_carried()
                    && row_bound >= near::LEAST_ROWS;
                Segments::plan(&cells, (groups, are_clustered, has_own_table), input, on)?
            }
        };
        let parts = input
            .parts
            .map(|parts| PartGroups::plan(&cells, &*table, (parts, segments.is_some()), input, on.0));
        let part_place = parts.transpose()?.flatten();
        let has_near = !keys.is_empty() && !table.is_local() && !input.is_sorted;
        // What is computed, here or for another step before, has a range, which says little of how many values there are.
        let are_stored = columns_only && key_columns.iter().all(|key| key.origin.is_some());
        // Nor has a range that is far larger than the rows; columns of many values are known by their samples.
        let widest = key_columns.iter().filter_map(domain::values_of).max().unwrap_or(0);
        let says_nothing = !on.0.is_serial() && !are_clustered && widest / VALUES_A_ROW >= row_bound;
        // Copies of the first part's groups are of no use to the next.
        let groups = match input.parts {
            Some(_) => Some(row_bound),
            None => (are_stored && !says_nothing).then_some(groups),
        };

        let follows = input.is_serial && are_clustered;
        let known = near::Known {
            rows: row_bound,
            groups,
            has_words: table.has_words(),
            are_stored: table.has_pointers(),
            key_words: table.key_table().and_then(KeyTable::words_in_block),
            has_carried: table.has_carried(),
            is_set: cells.words() == 0,
            at_least: key_columns.iter().filter_map(|key| Some(key.scattered?.values)).max(),
            window: part_place.as_ref().map(PartPlace::bytes).filter(|_| !on.0.is_serial()),
            has_locks: !on.0.is_serial() && cells.have_locks(),
            is_alone: matches!(part_place, Some(PartPlace::Alone)),
            follows,
        };
        let near = if has_near { NearCopies::plan(&cells, &known, input.site, on)? } else { None };
        let last = match has_near {
            true => {
                let beyond_parts = are_beyond_parts(part_place.as_ref(), &key_columns);
                RunAccumulator::plan(&cells, (beyond_parts, follows), input.site)?
            }
            false => AccumulatedGroup::Off,
        };
        let sketch = GroupSketch::plan(&keys, (table.key_table(), &sets), input, on.0, states)?;
        let (mut group_keys, mut group_carried) = (keys.clone(), carried.clone());
        let tables = u32::from(table.has_words()) + sets.len() as u32;
        // What rows look for lies in the cache where it is a part of the table of all groups or a copy, but for texts that stay where they
        // are.
        // A column of no order whose sample does not show many values far from each other has few, or frequent ones.
        let is_one_column =
            are_stored && key_columns.len() == 1 && on.0.is_serial() && !domain::are_clustered(&key_columns);
        let is_near = part_place.is_some()
            || follows
            || near.is_some_and(|near| {
                near.holds(known.at_least) || (is_one_column && known.at_least.is_none())
            });
        let has_texts = table.has_pointers() && !known.is_alone;
        let is_near = is_near && !has_texts && sets.is_empty();
        let distinct = sets.iter_mut().map(DistinctSet::argument_mut).collect();
        let (own, stored) = (&mut group_keys, &mut group_carried);
        let parts = Parts { keys: own, carried: stored, cells: &mut cells, distinct, tables };
        let batch = Batch::plan(parts, (input, is_near), on)?;
        Ok(AggregateOperator {
            keys,
            group_keys,
            carried,
            group_carried,
            key_columns: all_columns,
            followers: input.followers.clone(),
            cells,
            origin,
            table,
            sets,
            segments,
            near,
            last,
            parts: part_place,
            sketch,
            batch,
        })
    }

    /// What is known of the result's columns: keys, then aggregates.
    pub fn columns(&self) -> Vec<ColumnInfo> {
        self.key_columns.iter().map(ColumnInfo::stored).chain(self.cells.columns()).collect()
    }

    /// The places of keys of which no two groups have the same.
    pub(crate) fn telling_keys(&self) -> impl Iterator<Item = usize> {
        (0..self.key_columns.len()).filter(|key| !self.followers.contains(key))
    }

    /// An upper bound of the groups.
    pub fn row_bound(&self) -> u64 {
        self.table.row_bound()
    }

    /// Whether the kernel leaves a sum a block, which another kernel reduces.
    pub(crate) fn has_partials(&self) -> bool {
        self.table.partials().is_some()
    }

    /// How many of the parts that rows are brought into may have some, where parts have numbers of so many bits.
    pub(crate) fn parts_used(&self, bits: u32) -> u64 {
        self.table.parts_used(bits)
    }

    /// Whether blocks, or workers, add up rows that come in parts a part at a time.
    pub(crate) fn takes_parts(&self) -> bool {
        self.parts.is_some()
    }

    /// Whether groups are found by a hash of their keys.
    pub(crate) fn is_hashed(&self) -> bool {
        self.table.key_table().is_some()
    }

    /// Whether the hashes of rows that come in parts are to be stored with them, and texts among their keys beside each other.
    pub(crate) fn takes_hashes(&self) -> bool {
        matches!(self.parts, Some(PartPlace::Alone)) && self.table.has_pointers()
    }

    /// The window over a part's groups.
    fn window(&self) -> Option<&PartGroups> {
        match &self.parts {
            Some(PartPlace::Window(window)) => Some(window),
            _ => None,
        }
    }

    /// The expressions that a row evaluates.
    fn expressions(&self) -> Vec<&Expr> {
        if let Some(batch) = &self.batch {
            return batch.exprs().iter().collect();
        }
        let contributions = self.cells.cells.iter().flat_map(|cell| cell.contribution.arguments());
        let keys = self.keys.iter().chain(&self.carried);
        keys.chain(&self.cells.distinct).chain(contributions).collect()
    }
}

/// Whether rows may come to groups that have found no place in their part.
fn are_beyond_parts(place: Option<&PartPlace>, keys: &[ColumnInfo]) -> bool {
    match place {
        Some(PartPlace::Window(_)) => true,
        Some(PartPlace::Alone) => !keys.iter().any(|key| key.scattered.is_some_and(|own| own.are_even)),
        None => false,
    }
}

/// Whether no key is computed.
fn are_columns(keys: &[Expr]) -> bool {
    keys.iter().all(|key| matches!(key.kind, ExprKind::Column(_)))
}

impl RowParts for AggregateOperator {
    fn keys(&self) -> &[Expr] {
        &self.keys
    }

    fn part(&self, cx: &mut Context<'_>, bits: u32) -> Result<(V, Option<V>), Unsupported> {
        self.table.part(cx, &self.keys, bits)
    }
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
pub(in crate::operator) fn word_pointer(cx: &mut Context<'_>, base: V, word: u32) -> V {
    let index = cx.builder.i64(i64::from(word));
    cx.builder.offset(base, index)
}

/// Adds a row's contributions to the group at `base`.
fn update_group(cx: &mut Context<'_>, cells: &Cells, base: V, values: &[Vec<V>], scope: kelpie_kir::Scope) {
    for (cell, value) in cells.cells.iter().zip(values) {
        let pointer = word_pointer(cx, base, cell.word);
        update_cell(cx, cell, pointer, value, scope);
    }
}

/// A capacity of exactly `slots` groups.
fn fixed_class(states: &mut declare::States, slots: u64) -> usize {
    states.class(slots, Growth::Fixed)
}
