//! A stride of rows: stored with their words, sorted by the engine, and delivered in order, each with the place of its group. The next
//! stride takes the same room.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::{SortOperator, SortRows, SortedRows};
use crate::context::{Context, Unsupported};
use crate::expr::Expr;
use crate::layout::ColumnInfo;
use crate::operator::aggregate::{place_at, place_column};
use crate::operator::roles::{Emitter, Job, Needs, Sink, Source};
use crate::program::{HostAction, RowCount, Task, When};
use crate::table::joined::Joined;
use crate::table::places::DenseTarget;
use crate::types::DataType;

/// Stores the rows of a stride.
#[derive(Debug)]
pub(crate) struct StrideRows(pub SortRows);

impl fmt::Display for StrideRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stride")
    }
}

impl Sink for StrideRows {
    fn needs(&self) -> Needs {
        let Needs { zeroed, produced, around } = self.0.needs();
        let mut all = HostAction::each(When::BeforeBlock, zeroed, Task::Clear);
        all.extend(around);
        Needs { zeroed: Vec::new(), produced, around: all }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.read(states)
    }

    fn target(&self) -> Option<DenseTarget> {
        self.0.target()
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        self.0.begin(cx, job)
    }
}

/// The rows of a stride in order, with the places of their groups as the last column.
#[derive(Debug)]
pub(crate) struct PlacedStride {
    sort: Arc<SortOperator>,
    /// State of one `u32` a row.
    places: usize,
}

impl PlacedStride {
    /// Of a sort's rows; `places`: a state of one `u32` a row.
    pub fn new(sort: Arc<SortOperator>, places: usize) -> PlacedStride {
        PlacedStride { sort, places }
    }

    /// The place.
    pub fn place(&self) -> Expr {
        Expr::column(self.sort.columns.len(), DataType::Int64, false)
    }
}

impl fmt::Display for PlacedStride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sorted stride")
    }
}

impl Source for PlacedStride {
    fn rows(&self) -> RowCount {
        RowCount::Counted(self.sort.count)
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.sort.infos().into_iter().chain([place_column()]).collect()
    }

    fn has_every_row(&self) -> bool {
        true
    }

    fn live(&self, _cx: &mut Context<'_>, _row: V) -> Option<V> {
        None
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let mut columns = self.sort.columns_at(cx, 0..self.sort.columns.len(), row, None);
        columns.push(Joined::Value(place_at(cx, self.places, row)));
        cx.push_joined(columns);
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        SortedRows(Arc::clone(&self.sort)).read(columns, states);
    }
}
