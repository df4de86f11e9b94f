//! The column cache: columns in device memory by device, data and position; the least recently used go first.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use parking_lot::{Condvar, Mutex};

use super::read::{self, Wanted, source_error, too_large};
use super::{LoadReport, ResidentColumn, store};
use crate::error::EngineError;
use crate::source::TableSource;

/// How often a load that waits for another looks at its cancel token.
const CANCEL_POLL: Duration = Duration::from_millis(5);

/// Keeps columns in device memory. It grows to its limit (80 % of the device's budget unless set) and then evicts the
/// least recently used columns that no query holds; a query whose columns exceed the limit may take what the
/// device's budget has.
#[derive(Debug, Default)]
pub struct ColumnCache {
    state: Mutex<State>,
    /// A load ended, well or not.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Counts uses.
    clock: u64,
    limit: Option<u64>,
}

/// A column of some data on a device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    /// The device's address; entries hold the device weakly, so that no other can have it meanwhile.
    device: usize,
    identity: Arc<str>,
    column: usize,
}

#[derive(Debug)]
enum Entry {
    /// A query is reading it.
    Loading,
    Ready {
        column: Arc<ResidentColumn>,
        device: Weak<dyn Device>,
        used: u64,
    },
}

fn address(device: &Arc<dyn Device>) -> usize {
    Arc::as_ptr(device).cast::<()>() as usize
}

impl State {
    /// Bytes of a device's columns.
    fn cached_bytes(&self, device: usize) -> u64 {
        let entries = self.entries.iter().filter(|(key, _)| key.device == device);
        entries
            .map(|(_, entry)| match entry {
                Entry::Ready { column, .. } => column.stored_bytes(),
                Entry::Loading => 0,
            })
            .sum()
    }

    /// Takes out the least recently used column of a device that no query holds.
    fn evict_one(&mut self, device: usize) -> Option<Arc<ResidentColumn>> {
        let unused = |entry: &Entry| match entry {
            Entry::Ready { column, used, .. } if Arc::strong_count(column) == 1 => Some(*used),
            _ => None,
        };
        let of_device = self.entries.iter().filter(|(key, _)| key.device == device);
        let (_, key) =
            of_device.filter_map(|(key, entry)| Some((unused(entry)?, key))).min_by_key(|(used, _)| *used)?;
        let key = key.clone();
        match self.entries.remove(&key) {
            Some(Entry::Ready { column, .. }) => Some(column),
            _ => None,
        }
    }

    /// Takes out the columns of devices that are gone.
    fn drop_orphans(&mut self) {
        self.entries.retain(|_, entry| match entry {
            Entry::Ready { device, .. } => device.strong_count() > 0,
            Entry::Loading => true,
        });
    }
}

/// Columns that one load has undertaken to read; the others wait for them.
struct Claim<'a> {
    cache: &'a ColumnCache,
    keys: Vec<Key>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        for key in &self.keys {
            if matches!(state.entries.get(key), Some(Entry::Loading)) {
                state.entries.remove(key);
            }
        }
        drop(state);
        self.cache.settled.notify_all();
    }
}

impl ColumnCache {
    /// Columns (positions in the source) of every row, from the cache or the source. The missing ones are read in one
    /// pass; columns that another query is reading are waited for.
    pub fn load(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        cancel: &CancelToken,
    ) -> Result<(Vec<Arc<ResidentColumn>>, LoadReport), EngineError> {
        let started = Instant::now();
        let mut loaded_bytes = 0;
        let mut found = HashMap::new();
        match source.identity() {
            None => {
                let mut missing = columns.to_vec();
                missing.sort_unstable();
                missing.dedup();
                for (column, resident) in self.read(device, source, &missing, 0, cancel)? {
                    loaded_bytes += resident.stored_bytes();
                    found.insert(column, resident);
                }
            }
            Some(identity) => {
                let identity = Arc::from(identity);
                while let Some(claim) = self.claim(device, &identity, columns, &mut found, cancel)? {
                    loaded_bytes += self.fulfil(claim, device, source, &mut found, cancel)?;
                }
            }
        }
        let resident: Option<Vec<_>> = columns.iter().map(|column| found.get(column).cloned()).collect();
        let resident = resident.ok_or_else(|| EngineError::Internal("a column was not loaded".into()))?;
        self.check_rows(device, source, &resident)?;
        Ok((resident, LoadReport { loaded_bytes, time_ns: started.elapsed().as_nanos() as u64 }))
    }

    /// Collects what is cached, and undertakes to read what nobody is reading; else waits for those who do. `None`
    /// once all is found.
    fn claim(
        &self,
        device: &Arc<dyn Device>,
        identity: &Arc<str>,
        columns: &[usize],
        found: &mut HashMap<usize, Arc<ResidentColumn>>,
        cancel: &CancelToken,
    ) -> Result<Option<Claim<'_>>, EngineError> {
        let mut state = self.state.lock();
        state.drop_orphans();
        loop {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let (mut claim, mut waiting) = (Vec::new(), false);
            for &column in columns {
                let key = Key { device: address(device), identity: identity.clone(), column };
                state.clock += 1;
                let now = state.clock;
                match state.entries.get_mut(&key) {
                    Some(Entry::Ready { column: resident, used, .. }) => {
                        *used = now;
                        found.insert(column, resident.clone());
                    }
                    // Evicted meanwhile, but held.
                    _ if found.contains_key(&column) => {}
                    Some(Entry::Loading) => waiting |= !claim.contains(&key),
                    None => {
                        state.entries.insert(key.clone(), Entry::Loading);
                        claim.push(key);
                    }
                }
            }
            if !claim.is_empty() {
                return Ok(Some(Claim { cache: self, keys: claim }));
            }
            if !waiting {
                return Ok(None);
            }
            self.settled.wait_for(&mut state, CANCEL_POLL);
        }
    }

    /// Reads the claimed columns and publishes them; their bytes.
    fn fulfil(
        &self,
        claim: Claim<'_>,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        found: &mut HashMap<usize, Arc<ResidentColumn>>,
        cancel: &CancelToken,
    ) -> Result<u64, EngineError> {
        let columns: Vec<usize> = claim.keys.iter().map(|key| key.column).collect();
        let held_bytes = found.values().map(|column| column.stored_bytes()).sum();
        let loaded = self.read(device, source, &columns, held_bytes, cancel)?;
        let mut state = self.state.lock();
        let mut bytes = 0;
        for (key, (position, column)) in claim.keys.iter().zip(loaded) {
            bytes += column.stored_bytes();
            found.insert(position, column.clone());
            state.clock += 1;
            let entry = Entry::Ready { column, device: Arc::downgrade(device), used: state.clock };
            state.entries.insert(key.clone(), entry);
        }
        // The claim's drop locks the state again.
        drop(state);
        drop(claim);
        Ok(bytes)
    }

    /// Reads distinct columns in one pass and stores them; `held_bytes` are those of columns that the query has.
    fn read(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        held_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Vec<(usize, Arc<ResidentColumn>)>, EngineError> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let wanted =
            columns.iter().map(|column| Wanted::new(source, *column)).collect::<Result<Vec<_>, _>>()?;
        let limit = device.memory().1;
        let parts = read::read(source, columns, &wanted, limit, cancel)?;
        let plans = wanted.iter().zip(parts).map(|(wanted, parts)| store::plan(wanted, parts));
        let plans = plans.collect::<Result<Vec<_>, _>>()?;
        let bytes: u64 = plans.iter().map(store::Planned::bytes).sum();
        if bytes.saturating_add(held_bytes) > limit {
            return Err(too_large(source, &wanted, bytes, held_bytes, limit));
        }
        self.make_room(device, bytes);
        let allocate = |bytes| self.allocate(device, bytes);
        let mut tasks = Vec::new();
        let mut resident = Vec::new();
        for (plan, column) in plans.into_iter().zip(columns) {
            let placed = plan.place(device.as_ref(), &allocate, &mut tasks).map_err(|error| match error {
                DeviceError::OutOfMemory { used, limit, .. } => {
                    too_large(source, &wanted, bytes, used, limit)
                }
                other => other.into(),
            })?;
            resident.push((*column, Arc::new(placed)));
        }
        store::run_tasks(device.as_ref(), tasks, cancel)?;
        Ok(resident)
    }

    /// Allocates on a device; where memory is short, columns that no query holds make room.
    pub fn allocate(&self, device: &Arc<dyn Device>, bytes: usize) -> Result<Buffer, DeviceError> {
        loop {
            match device.allocate(bytes) {
                Err(DeviceError::OutOfMemory { device: name, requested, used, limit }) => {
                    let evicted = self.state.lock().evict_one(address(device));
                    if evicted.is_none() {
                        return Err(DeviceError::OutOfMemory { device: name, requested, used, limit });
                    }
                }
                other => return other,
            }
        }
    }

    /// Evicts unused columns until `bytes` more fit the cache's limit; the bytes freed.
    fn make_room(&self, device: &Arc<dyn Device>, bytes: u64) -> u64 {
        let budget = device.memory().1;
        let mut state = self.state.lock();
        let limit = state.limit.unwrap_or(budget / 5 * 4);
        let mut cached = state.cached_bytes(address(device));
        let mut evicted = Vec::new();
        while cached.saturating_add(bytes) > limit {
            let Some(column) = state.evict_one(address(device)) else { break };
            cached = cached.saturating_sub(column.stored_bytes());
            evicted.push(column);
        }
        drop(state);
        evicted.iter().map(|column| column.stored_bytes()).sum()
    }

    /// Evicts unused columns of a device until `bytes` bytes are freed, least recently used first: for a query that
    /// needs memory for something else. The bytes freed.
    pub fn release(&self, device: &Arc<dyn Device>, bytes: u64) -> u64 {
        let mut freed = 0;
        while freed < bytes {
            let evicted = self.state.lock().evict_one(address(device));
            let Some(column) = evicted else { break };
            freed += column.stored_bytes();
        }
        freed
    }

    /// Sets the bytes of columns to keep on a device; `None` for 80 % of its budget.
    pub fn set_limit(&self, limit: Option<u64>) {
        self.state.lock().limit = limit;
    }

    /// Bytes of the columns kept on a device.
    pub fn cached_bytes(&self, device: &Arc<dyn Device>) -> u64 {
        self.state.lock().cached_bytes(address(device))
    }

    /// Columns that were read at different times must be of the same rows, or kernels would read past an end.
    fn check_rows(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[Arc<ResidentColumn>],
    ) -> Result<(), EngineError> {
        let rows = columns.first().map_or(0, |column| column.rows);
        if columns.iter().all(|column| column.rows == rows) {
            return Ok(());
        }
        if let Some(identity) = source.identity() {
            let mut state = self.state.lock();
            state.entries.retain(|key, entry| {
                let stale = key.device == address(device) && *key.identity == *identity;
                !stale || matches!(entry, Entry::Loading)
            });
        }
        Err(source_error(source, "the data changed while it was read: run the query again"))
    }

    /// Forgets everything that is not being read just now.
    pub fn clear(&self) {
        self.state.lock().entries.retain(|_, entry| matches!(entry, Entry::Loading));
    }
}
