//! Window functions: values of a row over other rows of its partition.
//!
//! Rows are stored and sorted once, by the keys of all functions ([`sort`](crate::operator::sort)). What follows are passes over the
//! rows in order:
//!
//! 1. For each number of first keys by which partitions or peers are told apart, a row notes whether the next one differs from it; the
//!    prefix sum of that is the number of its run, and a second pass notes where runs begin and end ([`runs`]).
//! 2. Where a function ignores NULLs, the rows that have a value are numbered the same way (`valid_rows`).
//! 3. Where aggregates are over frames, each row leaves what it contributes to their cells, and these are combined sixteen by sixteen,
//!    level by level, to a tree ([`tree`]; Leis et al., "Efficient Processing of Window Functions in Analytical SQL Queries", VLDB 2015,
//!    section 4.4). So a frame of any size costs the logarithm of its size, and nothing is ever taken out of an aggregate again.
//! 4. The rows are delivered in order, each with its values: bounds of its frame follow from its runs, or for distances of keys from a
//!    binary search (`frames`); what is asked for of another row is a look at that row (`source`).
//!
//! Groups of sorted rows are runs too: one row comes out for each, with what the tree has of its rows (`run_rows`).

mod frames;
mod plan;
mod range_key;
mod run_rows;
mod runs;
mod source;
mod tree;
mod valid_rows;

use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use self::frames::RowFrame;
pub(crate) use self::plan::StoredWindow;
use self::range_key::RangeKey;
pub(crate) use self::run_rows::RunRows;
use self::runs::KeyRuns;
pub(crate) use self::runs::{RunEnds, RunPlaces};
pub(crate) use self::source::WindowRows;
use self::tree::FrameTree;
pub(crate) use self::tree::{PartitionCells, TreeLevel, TreeNodes};
use self::valid_rows::ValidRows;
use crate::context::{Argument, Context};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::sort::SortOperator;

/// A window over the rows of a sort.
#[derive(Debug)]
pub(crate) struct WindowOperator {
    sort: Arc<SortOperator>,
    /// Columns of the input, which are the first ones that are stored.
    width: usize,
    /// By how many first keys runs are told apart.
    runs: Vec<KeyRuns>,
    /// The keys that frames measure distances of.
    range_keys: Vec<RangeKey>,
    /// The columns whose NULLs are ignored.
    valid_rows: Vec<ValidRows>,
    frames: Vec<RowFrame>,
    functions: Vec<Function>,
    /// The classes of the levels of trees, from the one above the rows on.
    levels: Vec<usize>,
}

/// A function, planned.
#[derive(Debug)]
struct Function {
    call: Call,
    /// First keys in which rows of a partition agree, and peers.
    partition: usize,
    order: usize,
    /// What is known of the result.
    info: ColumnInfo,
}

/// What is computed, over the stored columns.
#[derive(Debug)]
enum Call {
    RowNumber,
    Rank,
    DenseRank,
    PercentRank,
    CumeDist,
    Ntile(u64),
    /// The value of a row of the partition.
    Shifted {
        column: usize,
        offset: i64,
        default: Option<Expr>,
        valid_rows: Option<usize>,
    },
    /// The value of a row of a frame.
    At {
        column: usize,
        place: i64,
        valid_rows: Option<usize>,
        frame: usize,
    },
    /// The aggregate with this number of a frame's tree.
    Aggregate {
        frame: usize,
        number: usize,
    },
}

impl WindowOperator {
    /// Whether rows have to be told apart before values are computed.
    pub fn has_passes(&self) -> bool {
        !self.runs.is_empty()
            || !self.valid_rows.is_empty()
            || self.trees().next().is_some()
            || !self.range_keys.is_empty()
    }

    /// Whether runs or rows with values are numbered.
    pub fn has_numbers(&self) -> bool {
        !self.runs.is_empty() || !self.valid_rows.is_empty()
    }

    /// How many levels trees have above the rows; none where there is no tree.
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Whether what whole partitions come to is put together once for each.
    pub fn has_partition_cells(&self) -> bool {
        self.trees().any(|tree| tree.partitions().is_some())
    }

    /// The trees that have nodes.
    fn trees(&self) -> impl Iterator<Item = &FrameTree> {
        self.frames.iter().filter_map(|frame| frame.tree.as_ref()).filter(|tree| tree.has_nodes())
    }

    /// How many rows there are, `i64`: no more than arrays were made for, whatever was counted.
    fn rows(&self, cx: &mut Context<'_>) -> V {
        let state = Argument::State(self.sort.delivered());
        let delivered = cx.argument("delivered_rows", Type::global(Scalar::U64), state);
        let rows = cx.builder.load(delivered);
        let mut rows = cx.builder.bitcast(rows, Scalar::I64);
        // The levels above this one have room for as many.
        if let Some(state) = self.trees().next().and_then(FrameTree::first_level) {
            let nodes = cx.argument("tree_capacity", Scalar::I64, Argument::StateCapacity(state));
            let bits = cx.builder.i64(i64::from(tree::FANOUT_BITS));
            let most = cx.builder.binary(BinaryOp::Shl, nodes, bits);
            rows = cx.builder.binary(BinaryOp::Min, rows, most);
        }
        rows
    }
}

/// An element of a state of `u32`, as `i64`.
fn number_at(cx: &mut Context<'_>, (name, state): (&str, usize), index: V) -> V {
    let array = cx.argument(name, Type::global(Scalar::U32), Argument::State(state));
    let number = cx.builder.element(array, index);
    cx.builder.convert(number, Scalar::I64)
}

/// Stores a number (`i64`) as an element of a state of `u32`.
fn store_number(cx: &mut Context<'_>, (name, state): (&str, usize), index: V, number: V) {
    let array = cx.argument(name, Type::global(Scalar::U32), Argument::State(state));
    let number = cx.builder.convert(number, Scalar::U32);
    let place = cx.builder.offset(array, index);
    cx.builder.store(place, number);
}
