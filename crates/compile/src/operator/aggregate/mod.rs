//! Aggregation: rows into the cells of their group (HorseQC, Table 4, rows B and C).
//!
//! The table of groups is chosen at compile time: one group without keys (`tables/single`); direct-addressed where the keys'
//! ranges or dictionaries make a dense domain (`tables/direct`); open addressing where they do not (`tables/hashed`). Under
//! `pipelined` every row updates the device's table (B2, C2). Under `resolution` a row updates memory that is private
//! to a thread or block, which is merged into the device's table at the end (B3, C3). Under `multi_pass` and
//! `operator_at_a_time` blocks leave sums that a second kernel reduces (B1), and the input is sorted so that groups come
//! one after the other (C1).
//! Groups found by hashing, and direct-addressed ones too many for local memory, are in one table under both. On a SIMT
//! device the threads of a warp or block first add up what they have for the same groups (C3, `ordered/segments`). Of the groups that it
//! meets often a block, or a CPU's worker, keeps copies in its own memory (`local/preaggregation`), which are merged at the end.
//!
//! What a group keeps is a list of cells, which `functions` derives from the aggregates and turns into results; arguments that are
//! DISTINCT have sets of their values (`keys/distinct_sets`). The folders use each other in one direction: `functions` <- `keys` <-
//! `local` <- `tables` <- `parts`, `ordered` <- `operator`, which the files beside it plan, fill and read.

mod adder;
mod block_loop;
mod functions;
mod keys;
mod local;
mod operator;
mod ordered;
mod parts;
mod plan;
mod prepared_row;
mod ranked;
mod reduce_sums;
mod rollup;
mod sink;
mod source;
mod tables;
#[cfg(test)]
mod testing;

pub(in crate::operator) use self::block_loop::{clear, for_each};
pub(in crate::operator) use self::functions::word_pointer;
pub(crate) use self::functions::{
    CellOp, Cells, ContributionForm, combine, counts_once, parts_of, why_not_rollup, words_of,
};
pub(crate) use self::keys::{Input, KnownKeys, TableChoices, are_stored_beside, key_values};
pub(crate) use self::local::fits_in_slices;
pub use self::operator::AggregateOperator;
pub(crate) use self::ordered::why_not_strided;
pub(crate) use self::parts::{TableSize, most_worker_parts, rule_of_parts, scattered_table};
pub(crate) use self::plan::{Contents, SortedRuns};
pub(crate) use self::ranked::{
    EndRow, EndRows, RankedColumn, RankedValues, TextCopies, TextLengths, TextRows,
};
pub(crate) use self::reduce_sums::ReduceSums;
pub(crate) use self::rollup::{GroupCells, MergedCells, place_at, place_column};
pub(crate) use self::sink::AddToGroups;
pub(crate) use self::source::Groups;
