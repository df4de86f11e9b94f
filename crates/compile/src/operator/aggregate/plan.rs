//! How an aggregation is planned: facts about keys, cells, table and device first (`keys/facts`), then one choice after the other. Each
//! choice is a rule from those facts to a value with a reason, and stands with what is chosen.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::functions::{BESIDE_BLOCKS, Cells, Origin};
use super::keys::{DistinctSet, Facts, GroupSketch, Input, KeyFacts, KeySplit, RowKeys};
use super::local::{BatchedExprs, Preaggregation, PrefetchBatch, RunAccumulator};
use super::operator::AggregateOperator;
use super::ordered::{RunTable, Segments};
use super::parts::PartPlace;
use super::rollup;
use super::tables;
use crate::context::Unsupported;
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::lower::column_of;
use crate::plan::Aggregate;
use crate::program::{PlacedGroups, States};
use crate::variant::axes::{CellPacking, RunAccumulator as AccumulatedGroup};

/// What rows bring to their groups.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Contents<'a> {
    /// The arguments of aggregates.
    Rows(&'a [Aggregate]),
    /// The rows are groups of this aggregation ([`GroupCells`](super::GroupCells)), and bring what its cells hold.
    Groups(&'a AggregateOperator),
    /// The same, where one of its keys has the values of those of the aggregates that count equal ones once.
    Values(&'a AggregateOperator, &'a [Aggregate]),
}

impl Contents<'_> {
    /// The cells that take it, and what these are planned by.
    fn cells(self, input: &Input<'_>, grouped: bool) -> Result<(Cells, Arc<Origin>), Unsupported> {
        match self {
            Contents::Rows(aggregates) => {
                let (aggregates, columns) = (aggregates.to_vec(), input.columns.to_vec());
                let origin = Arc::new(Origin { aggregates, columns, row_bound: input.row_bound });
                Ok((origin.cells(grouped)?, origin))
            }
            Contents::Groups(finer) => {
                let first = finer.key_columns.len();
                Ok((rollup::cells_of_groups(finer, grouped, first)?, Arc::clone(&finer.origin)))
            }
            Contents::Values(finer, aggregates) => {
                let (cells, origin) = rollup::cells_of_values(finer, aggregates, grouped)?;
                Ok((cells, Arc::new(origin)))
            }
        }
    }
}

/// Packs narrow cells into words if that is chosen.
fn choose_packing(cells: &mut Cells, keys: &KeyFacts, input: &Input<'_>) -> Result<(), Unsupported> {
    let words = cells.packable(input.row_bound);
    let why_not = match () {
        () if keys.count == 0 => Some("the only group is added up in registers"),
        () if words.is_empty() => Some("no two cells are known to fit a word together"),
        () => None,
    };
    let are_many = keys.combinations.is_none_or(|groups| groups > BESIDE_BLOCKS);
    let are_far = !input.is_serial() && !input.is_sorted && input.parts.is_none() && are_many;
    let rule = match why_not {
        Some(why_not) => (CellPacking::Off, why_not),
        None if are_far => (CellPacking::Packed, "an atomic in the device's memory less for each row"),
        None => (CellPacking::Off, "rows may be added up in a block's memory, or by a worker"),
    };
    let chosen = input.site.choose(rule, |value| match (value, why_not) {
        (CellPacking::Packed, Some(why_not)) => Err(why_not.into()),
        _ => Ok(()),
    })?;
    match chosen {
        CellPacking::Off => Ok(()),
        CellPacking::Packed => cells.pack(input.row_bound, &words),
    }
}

/// Whether what rows look for lies in the cache of a CPU's worker: it is a part of the table of all groups, or a copy. Texts stay where
/// they are.
fn are_cached(facts: &Facts<'_>, preaggregation: Option<Preaggregation>) -> bool {
    let keys = &facts.keys;
    // A column of no order whose sample does not show many values far from each other has few, or frequent ones.
    let is_one_column = keys.are_stored && keys.count == 1 && facts.input.is_serial() && !keys.are_clustered;
    let have_copies = preaggregation
        .is_some_and(|own| own.holds(keys.sampled) || (is_one_column && keys.sampled.is_none()));
    let has_texts = facts.table.compares_stored && !facts.is_alone;
    let is_near = facts.is_in_parts() || facts.follow_each_other() || have_copies;
    is_near && !has_texts
}

impl AggregateOperator {
    /// Makes its choices and declares its states.
    pub(crate) fn plan(
        keys: &[Expr],
        contents: Contents<'_>,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<AggregateOperator, Unsupported> {
        let (mut cells, origin) = contents.cells(input, !keys.is_empty())?;
        let key_columns: Vec<ColumnInfo> = keys.iter().map(|key| column_of(key, input.columns)).collect();
        let split = KeySplit::choose(keys, &key_columns, input)?;
        let key_facts = KeyFacts::of(&split);
        choose_packing(&mut cells, &key_facts, input)?;
        let table = tables::choose(&split, &key_facts, &mut cells, input, states)?;
        let sets = cells.distinct.iter();
        let sets = sets.map(|argument| DistinctSet::plan(argument, &split.columns, input, states));
        let mut sets = sets.collect::<Result<Vec<_>, _>>()?;
        let facts = Facts::of(input, key_facts, table.facts(), &cells);
        let segments = if facts.table.is_local { None } else { Segments::plan(&cells, &facts)? };
        let parts = PartPlace::plan(&cells, &*table, &facts, segments.is_some())?;
        let facts = Facts {
            window: parts.as_ref().and_then(PartPlace::window_bytes),
            is_alone: matches!(parts, Some(PartPlace::Alone)),
            ..facts
        };
        let has_copies = !keys.is_empty() && !facts.table.is_local && !input.is_sorted;
        let preaggregation = if has_copies { Preaggregation::plan(&facts)? } else { None };
        let run_accumulator =
            if has_copies { RunAccumulator::choose(&facts)? } else { AccumulatedGroup::Off };
        let sketch = GroupSketch::plan(&split.keys.telling, table.key_table(), &sets, input, states)?;
        let mut group_keys = split.keys.clone();
        let is_near = are_cached(&facts, preaggregation) && sets.is_empty();
        let exprs = BatchedExprs { keys: &mut group_keys, cells: &mut cells, sets: &mut sets };
        let batch = PrefetchBatch::plan(exprs, &facts, is_near)?;
        Ok(AggregateOperator {
            keys: split.keys,
            group_keys,
            key_columns,
            followers: input.followers.clone(),
            cells,
            origin,
            table,
            sets,
            segments,
            preaggregation,
            run_accumulator,
            parts,
            sketch,
            batch,
        })
    }

    /// Groups to which rows come sorted, with their group's place in a column; and where the groups are.
    pub(crate) fn plan_runs(
        runs: &SortedRuns<'_>,
        contents: Contents<'_>,
        input: &Input<'_>,
        states: &mut States,
    ) -> Result<(AggregateOperator, PlacedGroups), Unsupported> {
        let (cells, origin) = match contents {
            // The groups come without their keys.
            Contents::Groups(finer) => (rollup::cells_of_groups(finer, true, 0)?, Arc::clone(&finer.origin)),
            contents => contents.cells(input, true)?,
        };
        let table = RunTable::plan(runs.key_columns, &cells, (input.row_bound, runs.initial), states)?;
        let places = table.places;
        let keys = RowKeys { telling: vec![runs.place.clone()], dependent: Vec::new() };
        let operator = AggregateOperator {
            group_keys: keys.clone(),
            keys,
            key_columns: runs.key_columns.to_vec(),
            followers: BTreeSet::new(),
            cells,
            origin,
            table: Box::new(table),
            sets: Vec::new(),
            segments: Some(Segments::of_sorted_rows(input.shape)),
            preaggregation: None,
            run_accumulator: AccumulatedGroup::Off,
            parts: None,
            sketch: None,
            batch: None,
        };
        Ok((operator, places))
    }
}

/// Rows that come sorted by groups.
#[derive(Debug)]
pub(crate) struct SortedRuns<'a> {
    /// The groups' keys.
    pub key_columns: &'a [ColumnInfo],
    /// The rows' column that has the place of their group.
    pub place: Expr,
    /// For how many groups there is room at first.
    pub initial: u64,
}
