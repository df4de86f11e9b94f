//! Rows in parts, part after part, as a source.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::{CHUNK, CHUNK_SHIFT, PartStore};
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::primitives::partition::cursor;
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::table::stored::StoredColumn;

/// The rows, with places in between that have none.
#[derive(Debug)]
pub(crate) struct PartRows(pub Arc<PartStore>);

impl fmt::Display for PartRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rows in {} parts", self.0.parts)
    }
}

impl Source for PartRows {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.0.end)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.infos()
    }

    /// A CPU's chunk notes how many rows it has. Otherwise the rows of a part are those before its cursor.
    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        if cx.shape.is_serial() {
            let fills = self.0.fills(cx);
            let b = &mut *cx.builder;
            let (shift, mask) = (b.i64(CHUNK_SHIFT.into()), b.i64(i64::from(CHUNK) - 1));
            let chunk = b.binary(BinaryOp::Shr, row, shift);
            let fill = b.element(fills, chunk);
            let within = b.and(row, mask);
            let within = b.convert(within, Scalar::U8);
            return Some(b.lt(within, fill));
        }
        let (layout, cursors) = (self.0.layout(cx), self.0.cursors(cx));
        let b = &mut *cx.builder;
        let place = b.convert(row, Scalar::U32);
        let one = b.u32(1);
        let divisor = b.binary(BinaryOp::Max, layout.part_places, one);
        let part = b.div(place, divisor);
        let last = b.u32(self.0.parts);
        let is_overflow = b.ge(place, layout.overflow);
        let part = b.select(is_overflow, last, part);
        let start = b.mul(part, layout.part_places);
        let within = b.sub(place, start);
        let pointer = cursor(b, cursors, part);
        let taken = b.load(pointer);
        Some(b.lt(within, taken))
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let columns = self.0.columns.iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, row, None)).collect());
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        let columns = columns.iter().filter_map(|column| self.0.columns.get(*column));
        states.extend(columns.flat_map(StoredColumn::states));
    }
}
