//! What each aggregate function does: the cells that a group keeps for it, what a row contributes to them, and how results are read.

mod aggregate_cells;
mod cell;
mod cells;
mod contribution;
mod deviations;
mod exact;
mod extremes;
mod leading;
mod moments;
mod packing;
mod results;
mod sparse;

pub(crate) use self::aggregate_cells::{Cells, Origin, counts_once, why_not_rollup};
pub(crate) use self::cell::{Cell, Contribution, ContributionForm};
pub(in crate::operator) use self::cells::word_pointer;
pub(crate) use self::cells::{
    CellOp, combine, combine_memory, combine_own, combine_registers, group_pointer, is_used, join, parts_of,
    read_cell, split, words_of, write_cell,
};
pub(crate) use self::extremes::keep_better;
pub(crate) use self::packing::BESIDE_BLOCKS;
pub(crate) use self::sparse::{is_sparse, unless_nothing};
