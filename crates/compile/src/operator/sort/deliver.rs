//! The rows of a sort in order, as a source.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::SortOperator;
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;

/// The rows of a sort.
#[derive(Debug)]
pub(crate) struct SortedRows(pub Arc<SortOperator>);

impl fmt::Display for SortedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sorted rows")
    }
}

impl Source for SortedRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.0.delivered)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.infos()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let columns = self.0.columns_at(cx, 0..self.0.columns.len(), row, None);
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.0.read_columns(columns.iter().copied(), states);
    }
}
