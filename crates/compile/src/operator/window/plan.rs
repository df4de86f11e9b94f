//! Plans a window over the rows of a sort: which runs, numbers and trees its functions need.

use std::sync::Arc;

use super::frames::RowFrame;
use super::range_key::{RangeKey, integer_distance};
use super::runs::{KeyRuns, RunKey};
use super::tree::{FrameTree, level_class, levels_above};
use super::valid_rows::ValidRows;
use super::{Call, Function, WindowOperator};
use crate::context::Unsupported;
use crate::expr::{Expr, ExprKind};
use crate::layout::ColumnInfo;
use crate::operator::aggregate::Cells;
use crate::operator::sort::SortOperator;
use crate::plan::{Aggregate, FrameUnits, SortKey, WindowCall, WindowFunction};
use crate::program::States;
use crate::types::{DataType, Range};

/// A window over the columns that a sort stores, of which the first are the input's.
pub(crate) struct StoredWindow<'a> {
    pub sort: Arc<SortOperator>,
    pub width: usize,
    /// An upper bound of the rows.
    pub bound: u64,
    /// Its keys, which are columns, and functions of columns.
    pub keys: &'a [SortKey],
    pub functions: &'a [WindowFunction],
    /// The rows of a partition by all keys are a group, of which one row comes out.
    pub are_groups: bool,
}

impl WindowOperator {
    /// Declares the states.
    pub(crate) fn plan(
        stored: &StoredWindow<'_>,
        states: &mut States,
    ) -> Result<WindowOperator, Unsupported> {
        let StoredWindow { sort, width, bound, .. } = stored;
        let mut window = WindowOperator {
            sort: Arc::clone(sort),
            width: *width,
            runs: stored.runs(states),
            range_keys: Vec::new(),
            valid_rows: Vec::new(),
            frames: Vec::new(),
            functions: Vec::new(),
            levels: Vec::new(),
        };
        // By frame, the aggregates over it.
        let mut aggregates: Vec<Vec<Aggregate>> = Vec::new();
        for function in stored.functions {
            let call = window.plan_call(stored, function, &mut aggregates, states)?;
            let WindowFunction { partition, order, field, .. } = function;
            let info = ColumnInfo::new(field.data_type.clone(), field.nullable, None);
            window.functions.push(Function { call, partition: *partition, order: *order, info });
        }
        let infos = sort.infos();
        let cells = |aggregates: &Vec<Aggregate>| match aggregates.as_slice() {
            [] => Ok(None),
            aggregates => Cells::plan(aggregates, &infos, *bound, stored.are_groups).map(Some),
        };
        let cells = aggregates.iter().map(cells).collect::<Result<Vec<_>, _>>()?;
        if cells.iter().flatten().any(FrameTree::needs_nodes) {
            let levels = 1..=levels_above(*bound);
            window.levels = levels.map(|level| level_class(level, sort, states)).collect();
        }
        for (frame, cells) in window.frames.iter_mut().zip(cells) {
            // Of a group there is one look at what it comes to.
            let is_whole = frame.frame.is_partition() && !stored.are_groups;
            let plan = |cells| FrameTree::plan((cells, is_whole), sort, &window.levels, states);
            frame.tree = cells.map(plan);
        }
        window.describe(*bound, &infos);
        Ok(window)
    }

    fn plan_call(
        &mut self,
        stored: &StoredWindow<'_>,
        function: &WindowFunction,
        aggregates: &mut Vec<Vec<Aggregate>>,
        states: &mut States,
    ) -> Result<Call, Unsupported> {
        Ok(match &function.call {
            WindowCall::RowNumber => Call::RowNumber,
            WindowCall::Rank => Call::Rank,
            WindowCall::DenseRank => Call::DenseRank,
            WindowCall::PercentRank => Call::PercentRank,
            WindowCall::CumeDist => Call::CumeDist,
            WindowCall::Ntile(parts) => Call::Ntile(*parts),
            WindowCall::Shifted { argument, offset, default, ignores_nulls } => {
                let column = column_of(argument)?;
                let valid_rows = ignores_nulls.then(|| self.numbered(column, states));
                Call::Shifted { column, offset: *offset, default: default.clone(), valid_rows }
            }
            WindowCall::At { argument, place, ignores_nulls } => {
                let column = column_of(argument)?;
                let valid_rows = ignores_nulls.then(|| self.numbered(column, states));
                let frame = self.frame(stored, function, states)?;
                aggregates.resize_with(self.frames.len(), Vec::new);
                Call::At { column, place: *place, valid_rows, frame }
            }
            WindowCall::Aggregate { function: aggregate, argument } => {
                let frame = self.frame(stored, function, states)?;
                aggregates.resize_with(self.frames.len(), Vec::new);
                let own = aggregates.get_mut(frame);
                let own = own.ok_or_else(|| Unsupported::internal("an aggregate without its frame"))?;
                own.push(Aggregate {
                    function: *aggregate,
                    argument: argument.clone(),
                    distinct: false,
                    field: function.field.clone(),
                });
                Call::Aggregate { frame, number: own.len() - 1 }
            }
        })
    }

    /// The number of the rows that have a value in a column.
    fn numbered(&mut self, column: usize, states: &mut States) -> usize {
        let known = self.valid_rows.iter().position(|rows| rows.column == column);
        known.unwrap_or_else(|| {
            self.valid_rows.push(ValidRows::plan(column, &self.sort, states));
            self.valid_rows.len() - 1
        })
    }

    /// The number of a function's frame.
    fn frame(
        &mut self,
        stored: &StoredWindow<'_>,
        function: &WindowFunction,
        states: &mut States,
    ) -> Result<usize, Unsupported> {
        let WindowFunction { partition, order, frame, .. } = function;
        let is_same = |known: &RowFrame| {
            known.partition == *partition && known.order == *order && known.frame == *frame
        };
        if let Some(known) = self.frames.iter().position(is_same) {
            return Ok(known);
        }
        let has_distance = [&frame.start, &frame.end].into_iter().any(|bound| bound.distance().is_some());
        let range_key = match frame.units {
            FrameUnits::Range if has_distance => Some(self.range_key(stored, *partition, states)?),
            _ => None,
        };
        let (partition, order, frame) = (*partition, *order, frame.clone());
        self.frames.push(RowFrame { partition, order, frame, range_key, tree: None });
        Ok(self.frames.len() - 1)
    }

    /// The number of the key behind those of a partition.
    fn range_key(
        &mut self,
        stored: &StoredWindow<'_>,
        partition: usize,
        states: &mut States,
    ) -> Result<usize, Unsupported> {
        let key = stored.keys.get(partition);
        let key = key.ok_or_else(|| Unsupported::internal("a frame over a range without a key"))?;
        let column = column_of(&key.expr)?;
        let is_same = |known: &RangeKey| known.column == column && known.key == *key;
        if let Some(known) = self.range_keys.iter().position(is_same) {
            return Ok(known);
        }
        // Whichever functions go by it: there may be others whose partition is other keys.
        let bounds =
            stored.functions.iter().flat_map(|function| [&function.frame.start, &function.frame.end]);
        let farthest = bounds.filter_map(|bound| bound.distance()).map(integer_distance).max();
        self.range_keys.push(RangeKey::plan((column, key), farthest.unwrap_or(0), &self.sort, states)?);
        Ok(self.range_keys.len() - 1)
    }

    /// What is known of the functions' results.
    fn describe(&mut self, bound: u64, stored: &[ColumnInfo]) {
        let rows = Range::new(1, bound.max(1));
        for function in &mut self.functions {
            let own = &function.info;
            function.info = match &function.call {
                Call::RowNumber | Call::Rank | Call::DenseRank | Call::Ntile(_) => {
                    ColumnInfo::new(own.data_type.clone(), false, Some(rows))
                }
                Call::PercentRank | Call::CumeDist => ColumnInfo::new(DataType::Float64, false, None),
                Call::Shifted { column, default: None, .. } | Call::At { column, .. } => {
                    let Some(info) = stored.get(*column) else { continue };
                    let info =
                        ColumnInfo { nullable: true, scattered: None, is_clustered: false, ..info.clone() };
                    ColumnInfo { has_frequent: false, spacing: None, origin: None, coded: None, ..info }
                }
                // A constant may be none of the column's values.
                Call::Shifted { .. } => ColumnInfo::new(own.data_type.clone(), true, None),
                Call::Aggregate { frame, number } => {
                    let tree = self.frames.get(*frame).and_then(|frame| frame.tree.as_ref());
                    let info = tree.and_then(|tree| tree.cells.columns().get(*number).cloned());
                    let Some(info) = info else { continue };
                    info
                }
            };
        }
    }
}

impl StoredWindow<'_> {
    /// The runs by all numbers of first keys that functions tell rows apart by.
    fn runs(&self, states: &mut States) -> Vec<KeyRuns> {
        let partitions = match self.are_groups {
            true => self.keys.len(),
            false => self.functions.iter().map(|function| function.partition).max().unwrap_or(0),
        };
        let key = |(place, key): (usize, &SortKey)| RunKey {
            column: key.expr.clone(),
            is_partition: place < partitions,
        };
        let keys: Vec<RunKey> = self.keys.iter().enumerate().map(key).collect();
        let mut lengths: Vec<usize> =
            self.functions.iter().flat_map(|function| function.runs()).filter(|keys| *keys > 0).collect();
        lengths.extend(self.are_groups.then_some(self.keys.len()));
        lengths.sort_unstable();
        lengths.dedup();
        let first = |length: &usize| keys.get(..*length);
        let plan = |keys| KeyRuns::plan(keys, self.are_groups, &self.sort, states);
        lengths.iter().filter_map(first).map(plan).collect()
    }
}

impl WindowFunction {
    /// By how many first keys it tells rows apart.
    fn runs(&self) -> impl Iterator<Item = usize> {
        let has_peers = match &self.call {
            WindowCall::RowNumber | WindowCall::Ntile(_) | WindowCall::Shifted { .. } => false,
            WindowCall::Rank | WindowCall::DenseRank | WindowCall::PercentRank | WindowCall::CumeDist => true,
            WindowCall::At { .. } | WindowCall::Aggregate { .. } => self.frame.units != FrameUnits::Rows,
        };
        [self.partition].into_iter().chain(has_peers.then_some(self.order))
    }
}

fn column_of(expr: &Expr) -> Result<usize, Unsupported> {
    match expr.kind {
        ExprKind::Column(column) => Ok(column),
        _ => Err(Unsupported::internal("an argument of a window that is not stored")),
    }
}
