//! The groups of an aggregation as a source.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::functions::word_pointer;
use super::operator::AggregateOperator;
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;

#[derive(Debug)]
pub(crate) struct Groups(pub Arc<AggregateOperator>);

displayed!(Groups = "groups");

impl Source for Groups {
    fn rows(&self) -> RowCount {
        RowCount::Class(self.0.table.class())
    }

    fn counted(&self) -> Option<usize> {
        self.0.table.count()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.columns()
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.0.table.present(cx, &self.0.cells, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let AggregateOperator { table, cells, key_columns, .. } = &*self.0;
        let base = table.words(cx, cells, row);
        let mut columns = table.keys(cx, key_columns, row);
        columns.extend(cells.results(cx, |cx, word| word_pointer(cx, base, word))?);
        cx.begin_values(columns);
        Ok(())
    }

    /// All columns of a group are always there.
    fn read(&self, _columns: &BTreeSet<usize>, _states: &mut BTreeSet<usize>) {}

    fn sums(&self) -> Vec<String> {
        self.0.cells.names()
    }
}
