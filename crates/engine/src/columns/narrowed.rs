//! Which rows of a table are read: all, or the part of them that a query's filters may find rows in.
//!
//! What is read of a table stays, so that later queries find it. A part is read sooner, but serves only the queries that ask for this
//! very part. As nobody knows which queries come, parts are read until together they would have cost as much as the whole table
//! (the rule of renting skis): reading takes at most twice of what it would have taken if the queries had been known.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::datatypes::SchemaRef;
use kelpie_device::{CancelToken, Device};

use super::cache::{COUNTED_TABLES, ColumnCache};
use super::key::Keyed;
use crate::error::EngineError;
use crate::options::{CacheMode, Dictionaries, Query};
use crate::source::{BatchConsumer, ColumnKey, Expected, Lease, TableSource};
use crate::stage;

/// The tables of a query as it reads them.
#[derive(Debug, Default)]
pub(crate) struct Narrowed {
    /// By the numbers of the query's sources.
    pub sources: Vec<Arc<dyn TableSource>>,
    /// What is left out of them, for people.
    pub steps: Vec<String>,
}

/// A table that a query reads.
struct Candidate<'a> {
    device: &'a Arc<dyn Device>,
    source: &'a Arc<dyn TableSource>,
    /// Positions of the columns that it is asked for.
    columns: Vec<usize>,
    dictionaries: Dictionaries,
}

impl ColumnCache {
    /// The tables of a query as they are read on a device. Where it `runs`, and is not merely explained, parts that have to be read
    /// are counted.
    pub(crate) fn narrowed(&self, device: &Arc<dyn Device>, query: &Query, runs: bool) -> Narrowed {
        let Query { plan, sources, options } = query;
        let scans = stage::scans(plan);
        let mut narrowed = Narrowed::default();
        for (place, source) in sources.iter().enumerate() {
            let of_source = scans.iter().filter(|scan| scan.source == place);
            let columns: BTreeSet<usize> = of_source.flat_map(|scan| scan.columns.iter().copied()).collect();
            let columns = columns.into_iter().collect();
            let candidate = Candidate { device, source, columns, dictionaries: options.dictionaries };
            let part = match options.cache {
                CacheMode::All => None,
                CacheMode::Auto => self.part(&candidate, runs),
                CacheMode::None => source.narrower(&candidate.columns),
            };
            narrowed.steps.extend(part.as_ref().and_then(|part| left_out(source.as_ref(), part.as_ref())));
            let read = part.unwrap_or_else(|| Arc::clone(source));
            narrowed.sources.push(match options.cache {
                CacheMode::None => Arc::new(OfOneQuery::new(read)),
                CacheMode::Auto | CacheMode::All => read,
            });
        }
        narrowed
    }

    /// Which of some columns are there, or are being read.
    pub(crate) fn there(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        dictionaries: Dictionaries,
    ) -> Vec<bool> {
        let Some(identity) = source.identity().map(Arc::from) else { return vec![false; columns.len()] };
        let keyed: Vec<_> = columns.iter().map(|column| Keyed::of(source, *column, dictionaries)).collect();
        let state = self.state.lock();
        let is_there = |keyed: Option<Keyed>| {
            let key = |on_host| keyed.map(|keyed| keyed.on(device, &identity, on_host));
            [false, true].into_iter().filter_map(key).any(|key| state.entries.contains_key(&key))
        };
        keyed.into_iter().map(is_there).collect()
    }

    /// Whether another part of some data may be read alone: as long as its parts have no more rows than all of it. Where it is
    /// read now, that is counted.
    fn may_read_part(&self, identity: &str, rows: u64, all: u64, now: bool) -> bool {
        let mut state = self.state.lock();
        let known = state.in_parts.iter().position(|(known, _)| known == identity);
        let before = known.and_then(|at| state.in_parts.get(at)).map_or(0, |(_, rows)| *rows);
        let read = before.saturating_add(rows);
        if now && read <= all {
            if let Some(at) = known {
                state.in_parts.remove(at);
            }
            state.in_parts.push_back((identity.to_string(), read));
            if state.in_parts.len() > COUNTED_TABLES {
                state.in_parts.pop_front();
            }
        }
        read <= all
    }

    /// The part of a table that is worth reading alone.
    fn part(&self, candidate: &Candidate<'_>, runs: bool) -> Option<Arc<dyn TableSource>> {
        let Candidate { device, source, columns, dictionaries } = candidate;
        let part = source.narrower(columns).filter(|_| !columns.is_empty())?;
        let has_all = |source: &dyn TableSource| {
            self.there(device, source, columns, *dictionaries).into_iter().all(|is_there| is_there)
        };
        if has_all(source.as_ref()) {
            return None;
        }
        let (rows, all) = (part.rows_to_read(columns)?, source.exact_rows()?);
        let is_small = rows <= all / 2;
        (has_all(part.as_ref()) || is_small && self.may_read_part(&source.identity()?, rows, all, runs))
            .then_some(part)
    }
}

/// How much of a table is left out, for people.
fn left_out(whole: &dyn TableSource, part: &dyn TableSource) -> Option<String> {
    let (name, all) = (whole.name(), whole.exact_rows()?);
    Some(match part.exact_rows() {
        Some(rows) => format!("{rows} of {all} rows of {name} are read: bounds leave out the others"),
        None => format!("of the {all} rows of {name} only those are stored that its filters leave"),
    })
}

/// A table of which nothing is kept once a query has ended.
#[derive(Debug)]
struct OfOneQuery {
    source: Arc<dyn TableSource>,
    number: u64,
    /// Dropped with the query: columns go with it.
    alive: Arc<dyn Any + Send + Sync>,
}

impl OfOneQuery {
    fn new(source: Arc<dyn TableSource>) -> OfOneQuery {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // An allocation of its own, which a value without bytes would not have.
        OfOneQuery { source, number, alive: Arc::new(number) }
    }
}

impl TableSource for OfOneQuery {
    fn name(&self) -> String {
        self.source.name()
    }

    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn identity(&self) -> Option<String> {
        self.source.identity().map(|identity| format!("{identity}|query {}", self.number))
    }

    fn column_key(&self, column: usize) -> Option<ColumnKey> {
        self.source.column_key(column)
    }

    fn lease(&self) -> Option<Lease> {
        Some(Arc::downgrade(&self.alive))
    }

    fn expected(&self, column: usize) -> Option<Expected> {
        self.source.expected(column)
    }

    fn rows_to_read(&self, columns: &[usize]) -> Option<u64> {
        self.source.rows_to_read(columns)
    }

    fn exact_rows(&self) -> Option<u64> {
        self.source.exact_rows()
    }

    fn partitions(&self) -> usize {
        self.source.partitions()
    }

    fn partition_rows(&self) -> Option<Vec<u64>> {
        self.source.partition_rows()
    }

    fn may_wait(&self) -> bool {
        self.source.may_wait()
    }

    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        self.source.read(columns, consumer, cancel)
    }

    fn count_rows(&self, cancel: &CancelToken) -> Result<u64, EngineError> {
        self.source.count_rows(cancel)
    }
}
