//! The rows of a sort in order, each with its number: where groups follow each other, the least number of a group is where its
//! rows begin, and the row of any rank in it can be found again.

use std::collections::BTreeSet;
use std::fmt;

use kelpie_kir::builder::V;

use super::SortedRows;
use crate::context::{Context, Lowered, Repr, Unsupported, register_of};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::roles::Source;
use crate::program::RowCount;
use crate::table::joined::Joined;
use crate::types::{DataType, Range};

/// The rows of a sort, with their numbers as the last column.
#[derive(Debug)]
pub(crate) struct NumberedRows {
    sorted: SortedRows,
    /// The numbers.
    range: Range,
}

impl NumberedRows {
    /// Of a sort of `bound` rows at most.
    pub fn new(sorted: SortedRows, bound: u64) -> NumberedRows {
        NumberedRows { sorted, range: Range { min: 0, max: i128::from(bound.max(1)) - 1 } }
    }

    /// The column of the numbers.
    pub fn number(&self) -> Expr {
        Expr::column(self.sorted.columns().len(), DataType::Int64, false)
    }
}

impl fmt::Display for NumberedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "numbered {}", self.sorted)
    }
}

impl Source for NumberedRows {
    fn rows(&self) -> RowCount {
        self.sorted.rows()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let number = ColumnInfo::new(DataType::Int64, false, Some(self.range));
        self.sorted.columns().into_iter().chain([number]).collect()
    }

    fn has_every_row(&self) -> bool {
        self.sorted.has_every_row()
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.sorted.live(cx, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let SortedRows(sort) = &self.sorted;
        let mut columns = sort.columns_at(cx, 0..sort.infos().len(), row, None);
        let number = cx.builder.convert(row, register_of(self.range));
        let number = Lowered { repr: Repr::Scalar(number), valid: None, range: Some(self.range) };
        columns.push(Joined::Value(number));
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.sorted.read(columns, states);
    }
}
