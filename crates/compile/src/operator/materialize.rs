//! Materialisation: rows that one kernel hands to the next through memory. As a sink it stores the columns that are used
//! later, densely; as a source it delivers them. Operator-at-a-time has one after each operator, multi-pass before each
//! aggregation (HorseQC, sections 3 and 5).
//!
//! Text is stored by address and dictionary columns by code, as in any other store of rows.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;

use super::places::Dense;
use crate::context::{Context, Joined, Unsupported};
use crate::pipeline::states_of::States;
use crate::pipeline::{ColumnInfo, Rows};
use crate::table::rows::{Layout, RowStore};

/// Rows in memory between two kernels.
#[derive(Debug, Clone)]
pub struct Materialize {
    store: RowStore,
}

impl Materialize {
    /// Declares the states. `row_bound`: an upper bound of the rows.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        row_bound: u64,
        layout: Layout,
        states: &mut States,
    ) -> Result<Materialize, Unsupported> {
        Ok(Materialize { store: RowStore::plan(columns, row_bound, layout, states)? })
    }

    /// What is known of the columns.
    pub fn infos(&self) -> Vec<ColumnInfo> {
        self.store.infos()
    }

    /// The rows.
    pub(crate) fn store(&self) -> &RowStore {
        &self.store
    }

    /// The rows as a source.
    pub(crate) fn rows(&self) -> Rows {
        self.store.rows()
    }

    /// Whether there is a row at every place.
    pub(crate) fn is_dense(&self) -> bool {
        self.store.is_dense()
    }

    /// The row at `place` (`i64`).
    pub(crate) fn bind(&self, cx: &mut Context<'_>, place: V) {
        let columns = self.store.columns().iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, place, None)).collect());
    }
}

impl Dense for RowStore {
    fn reserve(&self, cx: &mut Context<'_>, count: V) -> V {
        RowStore::reserve(self, cx, count)
    }

    fn place(&self, cx: &mut Context<'_>, chunk: Option<crate::table::rows::Chunk>) -> V {
        RowStore::place(self, cx, chunk)
    }

    fn write(&self, cx: &mut Context<'_>, place: V, used: &BTreeSet<usize>) -> Result<(), Unsupported> {
        RowStore::write(self, cx, place, used)
    }
}
