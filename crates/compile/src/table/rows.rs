//! A dense store of rows: what a pipeline materialises for later ones (the build side of a join), column by column.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

use super::stored::StoredColumn;
use crate::context::{Argument, Context, Status, Unsupported};
use crate::pipeline::states_of::States;
use crate::pipeline::{ColumnInfo, Growth, Rows};

/// Rows of a store at the first launch, at most.
const INITIAL_ROWS: u64 = 4 << 20;

/// A store of rows; their order is arbitrary.
#[derive(Debug, Clone)]
pub struct RowStore {
    columns: Vec<StoredColumn>,
    /// State that counts the rows, one `u64`.
    pub count: usize,
    /// The class of the columns' capacity; other arrays of one element a row may join it.
    pub class: usize,
    /// A state of the class.
    places: usize,
}

impl RowStore {
    /// Declares the states. `row_bound`: an upper bound of the rows.
    pub(crate) fn plan(
        columns: &[ColumnInfo],
        row_bound: u64,
        states: &mut States,
    ) -> Result<RowStore, Unsupported> {
        let count = states.counter("stored_rows");
        let class = states.class(row_bound.clamp(1, INITIAL_ROWS), Growth::Counted(count));
        let columns = columns.iter().map(|info| StoredColumn::plan(info, class, states));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        // Capacity is asked of some state, also where no column stores anything.
        let places = match states.states.iter().position(|state| state.class == class) {
            Some(state) => state,
            None => states.state("places", 1, class),
        };
        Ok(RowStore { columns, count, class, places })
    }

    /// What is known of the columns.
    pub fn infos(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(|column| column.info().clone()).collect()
    }

    /// The columns.
    pub fn columns(&self) -> &[StoredColumn] {
        &self.columns
    }

    /// The rows of the store as a source.
    pub fn rows(&self) -> Rows {
        Rows::Counted(self.count)
    }

    /// Takes `count` (`u64`) places; the first of them.
    pub fn reserve(&self, cx: &mut Context<'_>, count: V) -> V {
        let counter = cx.argument("stored_rows", Type::global(Scalar::U64), Argument::State(self.count));
        cx.builder.atomic(AtomicOp::Add, counter, count, Scope::Device)
    }

    /// Writes the current row, which is live, to place `place` (`u64`); where there is none, asks for more. Columns none
    /// of whose states is `used` are left out.
    pub fn write(&self, cx: &mut Context<'_>, place: V, used: &BTreeSet<usize>) -> Result<(), Unsupported> {
        let capacity = cx.argument("row_capacity", Scalar::I64, Argument::StateCapacity(self.places));
        let place = cx.builder.bitcast(place, Scalar::I64);
        let fits = cx.builder.lt(place, capacity);
        cx.begin_if(fits);
        for (index, column) in self.columns.iter().enumerate().filter(|(_, column)| column.is_used(used)) {
            let value = cx.column(index)?;
            column.store(cx, &value, place)?;
        }
        cx.begin_else();
        cx.builder.report(Status::Grow as u32);
        cx.end();
        Ok(())
    }
}
