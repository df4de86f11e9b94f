//! The sink of a join's build side whose rows lie at the slots of their keys, or leave a bit there: they are stored and indexed at once.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

use super::JoinOperator;
use super::key_codes::KeyEncoding;
use crate::context::{Argument, Context, Unsupported};
use crate::expr::columns_read;
use crate::operator::Flow;
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::primitives::reduce::Reduction;
use crate::program::{HostAction, Task, When};
use crate::table::bitmap::Bitmap;
use crate::table::bounds::{Bounds, begin_for_block};
use crate::table::key_range::{KeyRange, scalar_of};
use crate::table::probing::report_not_unique;

/// Puts the rows of the build side at the slots of their keys.
#[derive(Debug)]
pub(super) struct PlaceBuildSide {
    join: Arc<JoinOperator>,
    range: KeyRange,
    taken: Bitmap,
}

impl PlaceBuildSide {
    pub fn of(join: &Arc<JoinOperator>, range: KeyRange, taken: Bitmap) -> PlaceBuildSide {
        PlaceBuildSide { join: Arc::clone(join), range, taken }
    }
}

impl fmt::Display for PlaceBuildSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "build side ({})", self.join.index)
    }
}

impl Sink for PlaceBuildSide {
    fn needs(&self) -> Needs {
        let JoinOperator { index, assumption, .. } = &*self.join;
        let zeroed = index.store.zeroed().into_iter().chain(index.zeroed()).collect();
        let around = HostAction::each(When::OnNotUnique, vec![*assumption], Task::DropAssumption);
        Needs { zeroed, produced: Some(index.store.row_count()), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let JoinOperator { index, stored, probe_keys, .. } = &*self.join;
        let columns = index.store.needed(states).into_iter().chain(0..probe_keys.len());
        columns.filter_map(|column| stored.get(column)).flat_map(columns_read).collect()
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let none = cx.builder.u32(0);
        let (rows, bounds) = (cx.builder.var_of("placed_rows", none), self.join.index.begin_bounds(cx));
        Ok(Box::new(PlaceEmitter { sink: self, needed: job.needed, bounds, rows }))
    }
}

struct PlaceEmitter<'s> {
    sink: &'s PlaceBuildSide,
    needed: &'s BTreeSet<usize>,
    /// Of the only key.
    bounds: Option<Bounds>,
    /// Rows of this thread, `u32`.
    rows: Var,
}

impl PlaceEmitter<'_> {
    /// Writes the current row to the slot of its key where that is free. Rows with a NULL key are left out.
    fn place(&self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let PlaceBuildSide { join, range, taken } = self.sink;
        let JoinOperator { index, stored, .. } = &**join;
        let is_stored = stored.first().is_some_and(|key| cx.is_stored(key));
        join.push_stored(cx);
        let encoding = index.encodings.first().copied().unwrap_or(KeyEncoding::Value);
        let key = cx.column(0)?;
        let key = encoding.encode(cx, key)?;
        // A key that is computed is looked at before it indexes anything.
        let known = key.range.filter(|_| is_stored);
        let value = scalar_of(&key)?;
        let conditions = [key.valid, range.has(cx, value, known)];
        let opened = conditions.into_iter().flatten().map(|condition| cx.begin_if(condition)).count();
        if let Some(bounds) = self.bounds {
            bounds.widen(cx, &key)?;
        }
        let slot = range.slot(cx, &key)?;
        let was_free = taken.take(cx, slot);
        cx.begin_if(was_free);
        index.store.write_at(cx, slot, self.needed)?;
        let b = &mut *cx.builder;
        let (rows, one) = (b.read(self.rows), b.u32(1));
        let rows = b.add(rows, one);
        b.assign(self.rows, rows);
        if let Some(state) = index.not_unique {
            cx.begin_else();
            report_not_unique(cx, state);
        }
        for _ in 0..=opened {
            cx.end();
        }
        Ok(())
    }
}

impl Emitter for PlaceEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, _row: V, flow: Flow) -> Result<(), Unsupported> {
        let active = flow.active();
        if let Some(active) = active {
            cx.begin_if(active);
        }
        self.place(cx)?;
        if active.is_some() {
            cx.end();
        }
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        let index = &self.sink.join.index;
        index.end_bounds(cx, self.bounds);
        let count = Argument::State(index.store.row_count());
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
