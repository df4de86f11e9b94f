//! Groups of sorted rows: runs by all keys, as a source of a row each, in the order of the keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::BinaryOp;
use kelpie_kir::builder::V;

use super::WindowOperator;
use super::runs::KeyRuns;
use super::tree::FrameTree;
use crate::context::{Context, Lowered, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;
use crate::table::joined::Joined;

/// The runs, each with its keys and what its aggregates come to.
#[derive(Debug)]
pub(crate) struct RunRows(pub Arc<WindowOperator>);

displayed!(RunRows = "runs of sorted rows");

impl RunRows {
    /// The state that counts the runs.
    pub fn count(&self) -> Result<usize, Unsupported> {
        let count = self.runs().and_then(KeyRuns::count);
        count.ok_or_else(|| Unsupported::internal("runs that are not counted"))
    }

    fn runs(&self) -> Option<&KeyRuns> {
        self.0.runs.first()
    }

    fn keys(&self) -> usize {
        self.runs().map_or(0, |runs| runs.keys)
    }

    fn trees(&self) -> impl Iterator<Item = &FrameTree> {
        self.0.frames.iter().filter_map(|frame| frame.tree.as_ref())
    }
}

impl Source for RunRows {
    fn rows(&self) -> RowCount {
        match self.count() {
            Ok(count) => RowCount::Counted(count),
            Err(_) => RowCount::Counted(self.0.sort.delivered()),
        }
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let keys = self.0.sort.infos().into_iter().take(self.keys());
        keys.chain(self.0.functions.iter().map(|function| function.info.clone())).collect()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let window = &*self.0;
        let runs = self.runs().ok_or_else(|| Unsupported::internal("groups without runs"))?;
        let (start, end) = (runs.start(cx, row), runs.end(cx, row));
        // Where more rows came than there is room for, runs are read that nobody has written.
        let rows = window.rows(cx);
        let b = &mut *cx.builder;
        let (zero, one) = (b.i64(0), b.i64(1));
        let last = b.sub(rows, one);
        let start = b.binary(BinaryOp::Min, start, last);
        let start = b.binary(BinaryOp::Max, start, zero);
        let end = b.binary(BinaryOp::Min, end, rows);
        let end = b.binary(BinaryOp::Max, end, start);
        let mut columns = window.sort.columns_at(cx, 0..self.keys(), start, None);
        let mut results: Vec<Lowered> = Vec::new();
        for tree in self.trees() {
            results.extend(tree.results(cx, (start, end), row)?);
        }
        columns.extend(results.into_iter().map(Joined::Value));
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let window = &*self.0;
        let keys = self.keys();
        window.sort.read_columns(columns.iter().copied().filter(|column| *column < keys), states);
        states.extend(window.runs.iter().flat_map(KeyRuns::states));
        states.extend(window.trees().flat_map(|tree| tree.levels().iter().copied()));
        states.insert(window.sort.delivered());
    }

    fn sums(&self) -> Vec<String> {
        self.trees().flat_map(|tree| tree.cells.names()).collect()
    }
}
