//! Rows into parts: a sink.
//!
//! A CPU's worker takes places of each part in chunks, so that workers do not meet at each row ([`worker`](super::worker)). A block of a
//! GPU counts its rows and takes places for all of them ([`block`](super::block)).

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Scalar, Scope};

use super::block::BlockEmitter;
use super::worker::WorkerEmitter;
use super::{MANY_BYTES, MANY_COLUMNS, MANY_ROWS, MOST_PARTS, PartStore, RowParts};
use crate::context::{Context, Unsupported};
use crate::expr::{Expr, columns_read};
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::primitives::partition::{PLACES_OF, PLACES_OF_OVERFLOW};
use crate::program::{HostAction, Task, When};
use crate::table::stored::StoredColumn;

/// Brings rows into the parts in which an aggregation or a join then reads them.
#[derive(Debug)]
pub(crate) struct IntoParts {
    pub store: Arc<PartStore>,
    /// What gives a row its part.
    pub by: Arc<dyn RowParts>,
}

impl fmt::Display for IntoParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "into {} parts", self.store.parts)
    }
}

impl Sink for IntoParts {
    fn waits_in_blocks(&self) -> bool {
        true
    }

    fn needs(&self) -> Needs {
        let store = &*self.store;
        let around = HostAction::each(When::OnGrow, vec![store.class], Task::Grow);
        let mut zeroed = vec![store.cursors, store.end, store.rows];
        zeroed.extend(store.has_chunks.then_some(store.fills));
        zeroed.push(store.wanted);
        Needs { zeroed, produced: Some(store.rows), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let keys = self.by.keys().iter().flat_map(columns_read);
        self.store.used(states).map(|(index, _)| index).chain(keys).collect()
    }

    /// Of many parts a block has few rows at a time, and it writes as many pieces of each column as there are parts: so it takes as many
    /// rows as it can.
    fn thread_rows(&self) -> Option<u64> {
        let PartStore { bits, columns, .. } = &*self.store;
        (1 << bits >= MOST_PARTS || columns.len() >= MANY_COLUMNS).then_some(MANY_ROWS)
    }

    fn block_bytes(&self) -> u64 {
        if self.store.has_many() { MANY_BYTES } else { 0 }
    }

    /// Rows are held in registers: texts that are no codes may have to be written first.
    fn takes_flags(&self, is_speculative: &dyn Fn(&Expr) -> bool) -> bool {
        let column = |(index, column): (usize, &StoredColumn)| {
            let info = column.info();
            Expr::column(index, info.data_type.clone(), info.nullable)
        };
        let mut columns = self.store.columns.iter();
        columns.all(|column| column.text_states().is_none())
            && self.store.columns.iter().enumerate().map(column).all(|expr| is_speculative(&expr))
            && self.by.keys().iter().all(is_speculative)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(match cx.shape.is_serial() {
            true => Box::new(WorkerEmitter::begin(self, cx, job)),
            false => Box::new(BlockEmitter::begin(self, cx, job)),
        })
    }
}

impl PartStore {
    /// The columns some of whose states later pipelines read.
    pub(super) fn used<'s>(
        &'s self,
        states: &BTreeSet<usize>,
    ) -> impl Iterator<Item = (usize, &'s StoredColumn)> + use<'s> {
        let used: Vec<bool> = self.columns.iter().map(|column| column.is_used(states)).collect();
        self.columns.iter().enumerate().zip(used).filter(|(_, used)| *used).map(|(column, _)| column)
    }

    /// Adds what a thread has brought to what all have: `rows` (`u64`), and the end (`u32`) of the places that it took.
    pub(super) fn count(&self, cx: &mut Context<'_>, rows: V, end: V) {
        let [all, last] = [self.rows, self.end].map(|state| Self::counter(cx, state));
        cx.builder.atomic_discard(AtomicOp::Add, all, rows, Scope::Device);
        let wanted = Self::counter(cx, self.wanted);
        let b = &mut *cx.builder;
        let (places, of, one) = (b.u64(PLACES_OF), b.u64(PLACES_OF_OVERFLOW), b.u64(1));
        let places = b.mul(rows, places);
        let places = b.div(places, of);
        let places = b.add(places, one);
        b.atomic_discard(AtomicOp::Add, wanted, places, Scope::Device);
        let end = b.convert(end, Scalar::U64);
        b.atomic_discard(AtomicOp::Max, last, end, Scope::Device);
    }
}
