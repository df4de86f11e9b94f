//! The sink of a join's build side whose rows lie at the slots of their keys: they are stored and indexed at once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

use super::JoinOperator;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::columns_read;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::primitives::reduce::Reduction;
use crate::program::{HostAction, Task, When};
use crate::table::bounds::{Bounds, begin_for_block};

/// Puts the rows of the build side at the slots of their keys.
#[derive(Debug)]
pub(crate) struct PlaceBuildSide(pub Arc<JoinOperator>);

impl fmt::Display for PlaceBuildSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "build side ({})", self.0.index)
    }
}

impl Sink for PlaceBuildSide {
    fn needs(&self) -> Needs {
        let JoinOperator { store, index, promise, .. } = &*self.0;
        let zeroed = store.zeroed().into_iter().chain(index.zeroed()).collect();
        let around = HostAction::each(When::OnDuplicate, vec![*promise], Task::BreakPromise);
        Needs { zeroed, produced: Some(store.row_count()), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let JoinOperator { store, stored, probe_keys, .. } = &*self.0;
        let columns = store.needed(states).into_iter().chain(0..probe_keys.len());
        columns.filter_map(|column| stored.get(column)).flat_map(columns_read).collect()
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let none = cx.builder.u32(0);
        let (rows, bounds) = (cx.builder.var_of("placed_rows", none), self.0.index.begin(cx));
        Ok(Box::new(PlaceEmitter { join: &self.0, needed: job.needed, bounds, rows }))
    }
}

struct PlaceEmitter<'s> {
    join: &'s JoinOperator,
    needed: &'s BTreeSet<usize>,
    /// Of the only key.
    bounds: Option<Bounds>,
    /// Rows of this thread, `u32`.
    rows: Var,
}

impl PlaceEmitter<'_> {
    fn place(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let JoinOperator { store, index, stored, .. } = self.join;
        let is_stored = stored.first().is_some_and(|key| cx.is_stored(key));
        self.join.push_stored(cx);
        let key = cx.column(0)?;
        index.place(cx, (&key, is_stored), self.bounds, |cx, slot| {
            for (number, column) in store.columns().iter().enumerate() {
                if column.is_used(self.needed) {
                    let value = cx.column(number)?;
                    column.store(cx, &value, slot)?;
                }
            }
            let b = &mut *cx.builder;
            let (rows, one) = (b.read(self.rows), b.u32(1));
            let rows = b.add(rows, one);
            b.assign(self.rows, rows);
            Ok(())
        })
    }
}

impl Emitter for PlaceEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        match flow.active() {
            None => self.place(cx),
            Some(active) => {
                cx.begin_if(active);
                self.place(cx)?;
                cx.end();
                Ok(())
            }
        }
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.join.index.end(cx, self.bounds);
        let count = Argument::State(self.join.store.row_count());
        let all = cx.argument("placed_rows", Type::global(Scalar::U64), count);
        let own = cx.builder.read(self.rows);
        let (rows, opened) = begin_for_block(cx, "block_rows", (Reduction::Sum, own));
        let rows = cx.builder.convert(rows, Scalar::U64);
        cx.builder.atomic_discard(AtomicOp::Add, all, rows, Scope::Device);
        for _ in 0..opened {
            cx.end();
        }
        Ok(())
    }
}
