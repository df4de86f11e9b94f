//! The sinks of a join's build side that most methods have: its rows into the store, and the store's rows into the index.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use kelpie_kir::builder::V;

use super::JoinOperator;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::columns_read;
use crate::operator::Flow;
use crate::operator::dense::DenseEmitter;
use crate::operator::key_texts::{KeySearch, KeyTexts};
use crate::operator::roles::{Emitter, Job, Needs, Sink};
use crate::plan::JoinKind;
use crate::program::{HostAction, Task, When};
use crate::table::bounds::Bounds;
use crate::table::places::DenseTarget;
use crate::table::shared_keys::Found;
use crate::variant::axes::KeyTextLanes;

/// Stores the rows of the build side.
#[derive(Debug)]
pub(super) struct StoreBuildSide(pub Arc<JoinOperator>);

impl fmt::Display for StoreBuildSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("build side")
    }
}

impl Sink for StoreBuildSide {
    fn needs(&self) -> Needs {
        let JoinOperator { index, matched, nulls, .. } = &*self.0;
        let store = &index.store;
        let zeroed = store.zeroed().into_iter().chain(*matched).chain(*nulls).collect();
        let around = HostAction::each(When::OnGrow, vec![store.class], Task::Grow);
        Needs { zeroed, produced: Some(store.row_count()), around }
    }

    fn read(&self, states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        let stored = self.0.index.store.needed(states);
        stored.iter().filter_map(|column| self.0.stored.get(*column)).flat_map(columns_read).collect()
    }

    fn target(&self) -> Option<DenseTarget> {
        Some(self.0.index.store.target())
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        let rows = DenseEmitter::begin(&self.0.index.store, cx, job);
        Ok(Box::new(StoreEmitter { join: &self.0, rows }))
    }
}

struct StoreEmitter<'s> {
    join: &'s JoinOperator,
    rows: DenseEmitter<'s>,
}

impl Emitter for StoreEmitter<'_> {
    fn begin_row(&mut self, cx: &mut Context<'_>) {
        self.rows.begin_row(cx);
    }

    fn row(&mut self, cx: &mut Context<'_>, row: V, flow: Flow) -> Result<(), Unsupported> {
        self.join.push_stored(cx);
        if self.join.kind == JoinKind::ProbeAnti && self.join.nulls.is_some() {
            self.note_nulls(cx, flow)?;
        }
        self.rows.row(cx, row, flow)
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.rows.end(cx)
    }
}

impl StoreEmitter<'_> {
    /// `NOT IN`: notes what its list has.
    fn note_nulls(&self, cx: &mut Context<'_>, flow: Flow) -> Result<(), Unsupported> {
        if let Some(active) = flow.active() {
            cx.begin_if(active);
        }
        let keys = (0..self.join.probe_keys.len()).map(|key| cx.column(key));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        self.join.note_nulls(cx, &keys);
        if flow.active().is_some() {
            cx.end();
        }
        Ok(())
    }
}

/// Puts the rows of the store into the index, or counts them into its buckets.
#[derive(Debug)]
pub(super) struct IndexRows(pub Arc<JoinOperator>);

impl fmt::Display for IndexRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index ({})", self.0.index)
    }
}

impl Sink for IndexRows {
    fn needs(&self) -> Needs {
        let JoinOperator { index, assumption, .. } = &*self.0;
        let mut around = HostAction::each(When::BeforeGroup, index.path.sized(), Task::Size);
        around.extend(HostAction::each(When::OnNotUnique, vec![*assumption], Task::DropAssumption));
        Needs { zeroed: index.zeroed(), produced: Some(index.store.row_count()), around }
    }

    fn read(&self, _states: &mut BTreeSet<usize>) -> BTreeSet<usize> {
        (0..self.0.probe_keys.len()).collect()
    }

    fn shared_texts(&self) -> Option<Vec<usize>> {
        // The keys are the first columns of a store, where no text is a thread's own.
        (self.0.index.text_lanes() != KeyTextLanes::Lane).then(Vec::new)
    }

    fn begin<'s>(
        &'s self,
        cx: &mut Context<'_>,
        _job: &Job<'s>,
    ) -> Result<Box<dyn Emitter + 's>, Unsupported> {
        Ok(Box::new(IndexEmitter { join: &self.0, bounds: self.0.index.begin_bounds(cx) }))
    }
}

struct IndexEmitter<'s> {
    join: &'s JoinOperator,
    /// Of the only key.
    bounds: Option<Bounds>,
}

impl Emitter for IndexEmitter<'_> {
    fn row(&mut self, cx: &mut Context<'_>, row: V, _flow: Flow) -> Result<(), Unsupported> {
        let index = &self.join.index;
        index.if_indexed(cx, |cx, keys| {
            if let ([key], Some(bounds)) = (keys.values, self.bounds) {
                bounds.widen(cx, key)?;
            }
            index.path.insert(cx, keys, row)
        })
    }

    fn key_search(&self) -> Option<&dyn KeySearch> {
        Some(self)
    }

    fn row_found(&mut self, cx: &mut Context<'_>, row: V, found: Found) -> Result<(), Unsupported> {
        self.join.index.count(cx, row, found);
        Ok(())
    }

    fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Unsupported> {
        self.join.index.end_bounds(cx, self.bounds);
        Ok(())
    }
}

impl KeySearch for IndexEmitter<'_> {
    fn keys(&self, cx: &mut Context<'_>) -> Result<Vec<Lowered>, Unsupported> {
        self.join.index.keys_of_row(cx)
    }

    fn find(
        &self,
        cx: &mut Context<'_>,
        (keys, live): (&[Lowered], V),
        (row, mark): (V, u32),
    ) -> Result<Found, Unsupported> {
        let index = &self.join.index;
        let texts = KeyTexts { mark };
        index.insert_together(cx, keys, (live, row), &texts)
    }
}
