//! The rows of a sort in order, as a source.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::SortOperator;
use crate::context::{Argument, Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::table::stored::StoredColumn;

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
        let order = cx.argument("order", Type::global(Scalar::U32), Argument::State(self.0.order));
        let place = cx.builder.element(order, row);
        let place = cx.builder.convert(place, Scalar::I64);
        cx.push_joined(self.0.columns.iter().map(|column| Joined::stored(column, place, None)).collect());
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let columns = columns.iter().filter_map(|column| self.0.columns.get(*column));
        states.extend(columns.flat_map(StoredColumn::states));
        let stored = self.0.texts().into_iter().filter_map(|text| text.stored);
        states.extend(stored.flat_map(|(addresses, lengths)| [addresses, lengths]));
    }
}
