//! An aggregation, planned.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::functions::{Cells, Origin};
use super::keys::{DistinctSet, GroupSketch, RowKeys};
use super::local::{Preaggregation, PrefetchBatch};
use super::ordered::Segments;
use super::parts::{PartGroups, PartPlace};
use super::tables::GroupTable;
use crate::context::{Context, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::partition::RowParts;
use crate::variant::axes::RunAccumulator;

/// An aggregation, planned.
#[derive(Debug)]
pub struct AggregateOperator {
    /// Over the input's rows.
    pub(crate) keys: RowKeys,
    /// Over the rows that are taken to their groups: those, or a batch's.
    pub(crate) group_keys: RowKeys,
    /// All keys.
    pub(crate) key_columns: Vec<ColumnInfo>,
    /// Those of them that follow from the others, whatever becomes of them.
    pub(crate) followers: BTreeSet<usize>,
    pub(crate) cells: Cells,
    /// What the cells were planned by.
    pub(crate) origin: Arc<Origin>,
    pub(crate) table: Box<dyn GroupTable>,
    /// One an argument of [`Cells::distinct`].
    pub(crate) sets: Vec<DistinctSet>,
    pub(crate) segments: Option<Segments>,
    pub(crate) preaggregation: Option<Preaggregation>,
    /// Whether a thread has what rows add to one group, and to which.
    pub(crate) run_accumulator: RunAccumulator,
    /// Rows come in parts, of which each is added up as a whole.
    pub(crate) parts: Option<PartPlace>,
    /// What estimates how many groups, and values of sets, there are.
    pub(crate) sketch: Option<GroupSketch>,
    /// Rows of a worker that wait for each other: `group_keys`, `cells` and `sets` are over its columns.
    pub(crate) batch: Option<PrefetchBatch>,
}

impl fmt::Display for AggregateOperator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aggregate ({}", self.table)?;
        if let Some(segments) = &self.segments {
            write!(f, ", {}", segments.place())?;
        }
        if self.preaggregation.is_some() {
            f.write_str(", near copies")?;
        }
        match self.run_accumulator {
            RunAccumulator::Off => {}
            RunAccumulator::On => f.write_str(", last groups")?,
            RunAccumulator::Majority => f.write_str(", frequent groups")?,
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
        matches!(self.parts, Some(PartPlace::Alone)) && self.table.facts().compares_stored
    }

    /// The window over a part's groups.
    pub(crate) fn window(&self) -> Option<&PartGroups> {
        match &self.parts {
            Some(PartPlace::Window(window)) => Some(window),
            _ => None,
        }
    }

    /// The expressions that a row evaluates.
    pub(crate) fn expressions(&self) -> Vec<&Expr> {
        if let Some(batch) = &self.batch {
            return batch.exprs().iter().collect();
        }
        let contributions = self.cells.cells.iter().flat_map(|cell| &cell.contribution.arguments);
        let keys = self.keys.telling.iter().chain(&self.keys.dependent);
        keys.chain(&self.cells.distinct).chain(contributions).collect()
    }
}

impl RowParts for AggregateOperator {
    fn keys(&self) -> &[Expr] {
        &self.keys.telling
    }

    fn part(&self, cx: &mut Context<'_>, bits: u32) -> Result<(V, Option<V>), Unsupported> {
        self.table.part(cx, &self.keys.telling, bits)
    }
}
