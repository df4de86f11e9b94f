//! The first or the last row of each group as a step behind the groups, where a group keeps the least or the greatest number of its
//! rows ([`PlacedRows`](crate::operator::sort::PlacedRows)): the number has the row's place, and the row's columns are loaded from
//! there when they are first asked for.

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::Scalar;

use crate::context::{Context, Repr, Unsupported};
use crate::layout::ColumnInfo;
use crate::operator::Flow;
use crate::operator::roles::{Next, Step};
use crate::operator::sort::{PlacedWord, SortOperator};
use crate::table::joined::Joined;

#[derive(Debug)]
pub(crate) struct EndRow {
    /// The column before the step with its number; NULL where the group has no row.
    pub number: usize,
    /// The stored columns that are wanted of it.
    pub columns: Vec<usize>,
}

/// The columns of groups up to a number, and behind them columns of some of their rows.
#[derive(Debug)]
pub(crate) struct EndRows {
    pub sort: Arc<SortOperator>,
    pub word: PlacedWord,
    pub width: usize,
    pub rows: Vec<EndRow>,
}

impl EndRows {
    /// What is known of the columns behind it, by those before it.
    pub fn columns_behind(&self, below: &[ColumnInfo]) -> Vec<ColumnInfo> {
        let stored = self.sort.infos();
        let columns = self.rows.iter().flat_map(|row| &row.columns).filter_map(|column| stored.get(*column));
        let columns = columns.map(|info| ColumnInfo {
            nullable: true,
            scattered: None,
            has_frequent: false,
            is_clustered: false,
            spacing: None,
            origin: None,
            ..info.clone()
        });
        below.iter().take(self.width).cloned().chain(columns).collect()
    }
}

displayed!(EndRows = "first and last rows");

impl Step for EndRows {
    fn consume(
        &self,
        cx: &mut Context<'_>,
        flow: Flow,
        _speculative: bool,
        next: &mut Next<'_>,
    ) -> Result<(), Unsupported> {
        let mut columns: Vec<Joined> = (0..self.width).map(Joined::Below).collect();
        for row in &self.rows {
            let number = cx.column(row.number)?;
            let Repr::Scalar(value) = number.repr else {
                return Err(Unsupported::internal("a text where a number of a row is expected"));
            };
            let value = cx.builder.convert(value, Scalar::I64);
            let mut place = self.word.place(cx, value);
            let present = match (number.valid, flow.active()) {
                (Some(valid), Some(active)) => Some(cx.builder.and(valid, active)),
                (valid, active) => valid.or(active),
            };
            if let Some(present) = present {
                // What stands there may be no place, and the first can always be read.
                let first = cx.builder.i64(0);
                place = cx.builder.select(present, place, first);
            }
            columns.extend(self.sort.stored_at(row.columns.iter().copied(), place, present));
        }
        cx.push_joined(columns);
        next(cx, flow)
    }

    fn columns(&self, below: &[ColumnInfo]) -> Option<Vec<ColumnInfo>> {
        Some(self.columns_behind(below))
    }

    fn below(&self, column: usize) -> Option<usize> {
        (column < self.width).then_some(column)
    }

    /// The numbers are always read.
    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let behind = self.rows.iter().flat_map(|row| &row.columns).enumerate();
        let wanted = behind.filter(|(place, _)| columns.contains(&(self.width + place)));
        self.sort.read_columns(wanted.map(|(_, column)| *column), states);
        let below = columns.iter().copied().filter(|column| *column < self.width);
        below.chain(self.rows.iter().map(|row| row.number)).collect()
    }
}
