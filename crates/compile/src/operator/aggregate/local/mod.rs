//! What is added up in the memory of a block, a CPU's worker or a thread before it comes to the table of all groups.

mod accumulator_memory;
mod block_copies;
mod block_counts;
mod block_table;
mod cell_forms;
mod key_window;
mod preaggregation;
mod preaggregation_rule;
mod prefetch_batch;
mod run_accumulator;
mod table_slices;
mod thread_tables;
mod worker_copies;

pub(crate) use self::accumulator_memory::{CellMemory, Local};
pub(crate) use self::block_table::{BlockLayout, BlockTable, LocalRow};
pub(crate) use self::cell_forms::CellForms;
pub(crate) use self::key_window::KeyWindow;
pub(crate) use self::preaggregation::{AddFar, Preaggregation, PreaggregationTable};
pub(crate) use self::preaggregation_rule::LEAST_ROWS;
pub(crate) use self::prefetch_batch::{BatchMemory, BatchedExprs, PrefetchBatch};
pub(crate) use self::run_accumulator::RunAccumulator;
#[cfg(test)]
pub(crate) use self::table_slices::BlockForm;
pub(crate) use self::table_slices::{TableExtent, fits_in_slices, least_slots};
pub(crate) use self::worker_copies::{KeyArrays, Spot};
