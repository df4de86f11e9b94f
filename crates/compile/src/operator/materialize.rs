//! Materialisation: rows that one kernel hands to the next through memory. As a sink it stores the columns that are used
//! later, densely; as a source it delivers them. Operator-at-a-time has one after each operator, multi-pass before each
//! aggregation (HorseQC, sections 3 and 5).
//!
//! Text is stored by address and dictionary columns by code, as in any other store of rows.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::dense::DenseEmitter;
use super::roles::{Emitter, Job, Needs, Sink, Source};
use crate::context::{Context, Unsupported};
use crate::layout::ColumnInfo;
use crate::program::{HostAction, RowCount, Task, When};
use crate::table::joined::Joined;
use crate::table::places::DenseTarget;
use crate::table::rows::RowStore;

/// Rows in memory between two kernels, as a sink.
#[derive(Debug, Clone)]
pub(crate) struct Materialize(pub Arc<RowStore>);

impl fmt::Display for Materialize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")
    }
}

impl Sink for Materialize {
    fn needs(&self) -> Needs {
        let store = &self.0;
        let mut around = HostAction::each(When::BeforeBlock, store.zeroed(), Task::Clear);
        around.extend(HostAction::each(When::OnGrow, vec![store.class], Task::Grow));
        Needs { zeroed: Vec::new(), produced: Some(store.row_count()), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        self.0.needed(states)
    }

    fn target(&self) -> Option<DenseTarget> {
        Some(self.0.target())
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(DenseEmitter::begin(self.0.as_ref(), cx, job)))
    }
}

/// Rows in memory between two kernels, as a source.
#[derive(Debug)]
pub(crate) struct MaterializedRows(pub Arc<RowStore>);

impl fmt::Display for MaterializedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("rows")
    }
}

impl Source for MaterializedRows {
    fn rows(&self) -> RowCount {
        self.0.rows()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.infos()
    }

    fn has_every_row(&self) -> bool {
        self.0.is_dense()
    }

    fn is_speculative(&self) -> bool {
        self.0.is_dense()
    }

    fn is_materialized(&self) -> bool {
        true
    }

    fn live(&self, cx: &mut Context<'_>, row: V) -> Option<V> {
        self.0.is_taken(cx, row)
    }

    fn bind(&self, cx: &mut Context<'_>, row: V) -> Result<(), Unsupported> {
        let columns = self.0.columns().iter();
        cx.push_joined(columns.map(|column| Joined::stored(column, row, None)).collect());
        Ok(())
    }

    fn read(&self, columns: &BTreeSet<usize>, states: &mut BTreeSet<usize>) {
        self.0.read(columns, states);
    }
}
