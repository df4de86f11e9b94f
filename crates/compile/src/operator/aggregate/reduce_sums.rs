//! Reduces the sums that blocks have left to the only group: the second kernel of B1 (HorseQC, Table 4).

use std::collections::BTreeSet;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::operator::AggregateOperator;
use crate::context::{Context, Unsupported};
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::program::RowCount;

#[derive(Debug)]
pub(crate) struct ReduceSums(pub Arc<AggregateOperator>);

displayed!(ReduceSums = "reduce sums of blocks");

impl Sink for ReduceSums {
    fn needs(&self) -> Needs {
        Needs::default()
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        BTreeSet::new()
    }

    fn own_rows(&self) -> Option<RowCount> {
        self.0.table.partials().map(|(class, _)| RowCount::Class(class))
    }

    fn emit_alone(&self, cx: &mut Context<'_>, rows: V) -> Result<bool, Unsupported> {
        self.0.table.reduce(cx, &self.0.cells, rows);
        Ok(true)
    }

    fn begin<'s>(
        &'s self,
        _cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Err(Unsupported::internal("rows for a reduction of sums of blocks"))
    }
}
