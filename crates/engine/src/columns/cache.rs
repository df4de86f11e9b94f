//! The column cache: columns in device memory by device, data and position; the least recently used go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use kelpie_compile::layout::Storage;
use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use parking_lot::Mutex;

use super::coding;
use super::key::{Key, Keyed};
use super::read::source_error;
use super::resident::ResidentColumn;
use super::settled::Settled;
use super::wish::{Placement, Wish};
use crate::error::EngineError;
use crate::options::Dictionaries;
use crate::source::{Lease, TableSource};

/// Tables whose rows were counted that are remembered.
pub(super) const COUNTED_TABLES: usize = 64;

/// Keeps columns in device memory. It grows to its limit (80 % of the device's budget unless set) and then evicts the
/// least recently used columns that no query holds; a query whose columns exceed the limit may take what the
/// device's budget has.
#[derive(Debug, Default)]
pub struct ColumnCache {
    pub(super) state: Mutex<State>,
    settled: Arc<Settled>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) entries: HashMap<Key, Entry>,
    /// Counts uses.
    pub(super) clock: u64,
    limit: Option<u64>,
    /// Rows of data, by its identity; the oldest first.
    counted: VecDeque<(Arc<str>, u64)>,
    /// Rows that were read of data in parts, by its identity; the oldest first.
    pub(super) in_parts: VecDeque<(String, u64)>,
}

#[derive(Debug)]
pub(super) enum Entry {
    /// A query is reading it.
    Loading,
    Ready {
        column: Arc<ResidentColumn>,
        device: Weak<dyn Device>,
        /// Where the data has one: dropped with the data.
        lease: Option<Lease>,
        used: u64,
    },
}

impl State {
    /// A column that is there, which is used now. Of one with too many texts for a dictionary both forms are the same.
    fn ready(&mut self, key: Key, now: u64) -> Option<Arc<ResidentColumn>> {
        let with_dictionary =
            key.without_dictionary.then(|| Key { without_dictionary: false, ..key.clone() });
        for (key, may_have_one) in [(Some(key), true), (with_dictionary, false)] {
            let Some(Entry::Ready { column, used, .. }) = key.and_then(|key| self.entries.get_mut(&key))
            else {
                continue;
            };
            if may_have_one || matches!(column.layout.storage, Storage::Text { .. }) {
                *used = now;
                return Some(Arc::clone(column));
            }
        }
        None
    }

    /// The same of a column that may lie where a placement says.
    fn ready_at(&mut self, placement: Placement, key: impl Fn(bool) -> Key) -> Option<Arc<ResidentColumn>> {
        let places: &[bool] = match placement {
            Placement::Device => &[false],
            Placement::Host => &[true],
            Placement::Either => &[false, true],
        };
        self.clock += 1;
        let now = self.clock;
        places.iter().find_map(|on_host| self.ready(key(*on_host), now))
    }

    /// Bytes of a device's columns.
    fn cached_bytes(&self, device: usize) -> u64 {
        let entries = self.entries.iter().filter(|(key, _)| key.device == device && !key.on_host);
        entries
            .map(|(_, entry)| match entry {
                Entry::Ready { column, .. } => column.stored_bytes(),
                Entry::Loading => 0,
            })
            .sum()
    }

    /// Bytes of a device's columns that no query holds.
    fn unused_bytes(&self, device: usize) -> u64 {
        let entries = self.entries.iter().filter(|(key, _)| key.device == device && !key.on_host);
        entries
            .map(|(_, entry)| match entry {
                Entry::Ready { column, .. } if Arc::strong_count(column) == 1 => column.stored_bytes(),
                _ => 0,
            })
            .sum()
    }

    /// Takes out the least recently used column of a device, or of its host memory, that no query holds.
    fn evict_one(&mut self, device: usize, on_host: bool) -> Option<Arc<ResidentColumn>> {
        self.evict_where(|key, _| key.device == device && key.on_host == on_host)
    }

    /// The same of whoever shares all of a device's memory with it.
    fn evict_beside(&mut self, device: &Arc<dyn Device>) -> Option<Arc<ResidentColumn>> {
        let all = device.all_memory_id();
        let is_beside =
            |other: &Weak<dyn Device>| other.upgrade().is_some_and(|other| other.all_memory_id() == all);
        self.evict_where(|key, other| !key.on_host && is_beside(other))
    }

    fn evict_where(
        &mut self,
        is_wanted: impl Fn(&Key, &Weak<dyn Device>) -> bool,
    ) -> Option<Arc<ResidentColumn>> {
        let unused = |(key, entry)| match entry {
            &Entry::Ready { ref column, ref device, used, .. } if Arc::strong_count(column) == 1 => {
                is_wanted(key, device).then_some((used, key))
            }
            _ => None,
        };
        let (_, key) = self.entries.iter().filter_map(unused).min_by_key(|(used, _)| *used)?;
        let key = key.clone();
        match self.entries.remove(&key) {
            Some(Entry::Ready { column, .. }) => Some(column),
            _ => None,
        }
    }

    /// Takes out the columns of devices that are gone or lost, and of data that is gone.
    fn drop_orphans(&mut self) {
        self.entries.retain(|_, entry| match entry {
            Entry::Ready { device, lease, .. } => {
                device.upgrade().is_some_and(|device| !device.is_lost())
                    && lease.as_ref().is_none_or(|lease| lease.strong_count() > 0)
            }
            Entry::Loading => true,
        });
    }
}

/// From where columns are read, for which device, and how they are wanted.
#[derive(Clone, Copy)]
pub(super) struct ColumnRead<'a> {
    pub(super) device: &'a Arc<dyn Device>,
    pub(super) source: &'a dyn TableSource,
    pub(super) wish: Wish,
}

/// Columns that one load has undertaken to read; the others wait for them.
pub(super) struct Claim<'a> {
    cache: &'a ColumnCache,
    /// With the position of each in the source.
    pub(super) keys: Vec<(Key, usize)>,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        for (key, _) in &self.keys {
            if matches!(state.entries.get(key), Some(Entry::Loading)) {
                state.entries.remove(key);
            }
        }
        drop(state);
        self.cache.settled.wake();
    }
}

impl ColumnCache {
    /// Drops the columns of devices that are gone or lost.
    pub(crate) fn forget_lost(&self) {
        self.state.lock().drop_orphans();
    }

    /// A column (position in the source) that lies on the device, where it does.
    pub(crate) fn resident(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        column: usize,
        dictionaries: Dictionaries,
    ) -> Option<Arc<ResidentColumn>> {
        let identity = Arc::from(source.identity()?);
        let key = Keyed::of(source, column, dictionaries)?.on(device, &identity, false);
        let mut state = self.state.lock();
        let now = state.clock;
        state.ready(key, now)
    }

    /// Columns (positions in the source) of every row, where all of them are there.
    pub fn find(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        wish: Wish,
    ) -> Option<Vec<Arc<ResidentColumn>>> {
        let identity = Arc::from(source.identity()?);
        let column = |position: &usize| Keyed::of(source, *position, wish.dictionaries);
        let keyed = columns.iter().map(column).collect::<Option<Vec<_>>>()?;
        let mut state = self.state.lock();
        state.drop_orphans();
        let ready =
            |keyed: &Keyed| state.ready_at(wish.placement, |on_host| keyed.on(device, &identity, on_host));
        let found = keyed.iter().map(ready).collect::<Option<Vec<_>>>()?;
        drop(state);
        self.check_rows(device, source, &found).is_ok().then_some(found)
    }

    /// Collects what is cached, and undertakes to read what nobody is reading; else waits for those who do, holding nothing that
    /// they wait for. `None` once all is found.
    pub(super) fn claim(
        &self,
        device: &Arc<dyn Device>,
        (identity, columns, placement): (&Arc<str>, &[Keyed], Placement),
        found: &mut HashMap<usize, Arc<ResidentColumn>>,
        (source, cancel): (&dyn TableSource, &CancelToken),
    ) -> Result<Option<Claim<'_>>, EngineError> {
        loop {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let mut state = self.state.lock();
            state.drop_orphans();
            let (mut claim, mut waiting) = (Vec::new(), false);
            for keyed in columns {
                let (key, position) = (|on_host| keyed.on(device, identity, on_host), keyed.position);
                let resident = state.ready_at(placement, key);
                let wanted = key(placement == Placement::Host);
                match (resident, state.entries.get(&wanted)) {
                    (Some(resident), _) => {
                        found.insert(position, resident);
                    }
                    // Evicted meanwhile, but held.
                    _ if found.contains_key(&position) => {}
                    (None, Some(_)) => match claim.iter().find(|(key, _)| *key == wanted) {
                        // The same, or another name of it: found once it is there.
                        Some(_) => {}
                        None => waiting = true,
                    },
                    (None, None) => {
                        state.entries.insert(wanted.clone(), Entry::Loading);
                        claim.push((wanted, position));
                    }
                }
            }
            if !claim.is_empty() {
                return Ok(Some(Claim { cache: self, keys: claim }));
            }
            if !waiting {
                return Ok(None);
            }
            // Loads settle after they have changed the state: none that ends from here on is missed.
            let seen = self.settled.count();
            drop(state);
            if !source.may_wait() {
                return Err(EngineError::Cancelled);
            }
            self.settled.wait(seen, cancel);
        }
    }

    /// Gives a column of a query, whose columns have `held_bytes`, codes beside its values, where these are few and far from each other:
    /// rows are grouped by it. Codes only make queries faster, and none fails for want of memory for them.
    pub(crate) fn give_codes(
        &self,
        device: &Arc<dyn Device>,
        column: &ResidentColumn,
        held_bytes: u64,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        let most_bytes = column.rows.saturating_mul(2);
        if held_bytes.saturating_add(most_bytes) > device.memory().1 / 2 {
            return Ok(());
        }
        let allocate = |bytes: usize| {
            self.make_room(device, bytes as u64);
            self.allocate(device, bytes)
        };
        match coding::codes_of(column, device.as_ref(), &allocate, cancel) {
            Ok(codes) => {
                // Another query may have given it some meanwhile: they are the same.
                let _ = column.coded.set(codes);
                Ok(())
            }
            Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether columns of `bytes` bytes, with what is in use and cannot be evicted, leave a part of the budget for the state
    /// of queries; if so, evicts what is in their way.
    pub(crate) fn leaves_room(&self, device: &Arc<dyn Device>, bytes: u64) -> bool {
        let (used, budget) = device.memory();
        let most = budget / 10 * 7;
        let unused = self.state.lock().unused_bytes(device.memory_id());
        if used.saturating_sub(unused).saturating_add(bytes) > most {
            return false;
        }
        self.release(device, used.saturating_add(bytes).saturating_sub(most));
        true
    }

    /// Allocates host memory of a device; where it is short, columns there that no query holds make room.
    pub fn allocate_host(&self, device: &Arc<dyn Device>, bytes: usize) -> Result<Buffer, DeviceError> {
        loop {
            match device.allocate_host(bytes) {
                Err(error @ DeviceError::OutOfMemory { .. }) => {
                    if self.state.lock().evict_one(device.memory_id(), true).is_none() {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
    }

    /// Allocates on a device; where memory is short, columns that no query holds make room.
    pub fn allocate(&self, device: &Arc<dyn Device>, bytes: usize) -> Result<Buffer, DeviceError> {
        loop {
            match device.allocate(bytes) {
                Err(DeviceError::OutOfMemory { device: name, requested, used, limit }) => {
                    let mut state = self.state.lock();
                    let (own_used, own_limit) = device.memory();
                    let evicted = match state.evict_one(device.memory_id(), false) {
                        // It may have more, and others have what there is.
                        None if own_used.saturating_add(requested) <= own_limit => state.evict_beside(device),
                        evicted => evicted,
                    };
                    drop(state);
                    if evicted.is_none() {
                        return Err(DeviceError::OutOfMemory { device: name, requested, used, limit });
                    }
                }
                other => return other,
            }
        }
    }

    /// Evicts unused columns until `bytes` more fit the cache's limit; the bytes freed.
    pub(super) fn make_room(&self, device: &Arc<dyn Device>, bytes: u64) -> u64 {
        let budget = device.memory().1;
        let mut state = self.state.lock();
        let limit = state.limit.unwrap_or(budget / 5 * 4);
        let mut cached = state.cached_bytes(device.memory_id());
        let mut evicted = Vec::new();
        while cached.saturating_add(bytes) > limit {
            let Some(column) = state.evict_one(device.memory_id(), false) else { break };
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
            let evicted = self.state.lock().evict_one(device.memory_id(), false);
            let Some(column) = evicted else { break };
            freed += column.stored_bytes();
        }
        freed
    }

    /// Rows of a table of which no column is read; remembered where the data has an identity.
    pub fn count_rows(&self, source: &dyn TableSource, cancel: &CancelToken) -> Result<u64, EngineError> {
        if let Some(rows) = source.exact_rows() {
            return Ok(rows);
        }
        let Some(identity) = source.identity() else { return source.count_rows(cancel) };
        let known = |state: &State| {
            state.counted.iter().find(|(known, _)| **known == *identity).map(|(_, rows)| *rows)
        };
        if let Some(rows) = known(&self.state.lock()) {
            return Ok(rows);
        }
        let rows = source.count_rows(cancel)?;
        let mut state = self.state.lock();
        if known(&state).is_none() {
            state.counted.push_back((identity.into(), rows));
            if state.counted.len() > COUNTED_TABLES {
                state.counted.pop_front();
            }
        }
        Ok(rows)
    }

    /// Sets the bytes of columns to keep on a device; `None` for 80 % of its budget.
    #[cfg(test)]
    pub fn set_limit(&self, limit: Option<u64>) {
        self.state.lock().limit = limit;
    }

    /// Bytes of the columns kept on a device.
    #[cfg(test)]
    pub fn cached_bytes(&self, device: &Arc<dyn Device>) -> u64 {
        self.state.lock().cached_bytes(device.memory_id())
    }

    /// Columns that were read at different times must be of the same rows, or kernels would read past an end.
    pub(super) fn check_rows(
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
                let stale = key.device == device.memory_id() && *key.identity == *identity;
                !stale || matches!(entry, Entry::Loading)
            });
        }
        Err(source_error(source, "the data changed while it was read: run the query again"))
    }

    /// Forgets everything that is not being read just now.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.entries.retain(|_, entry| matches!(entry, Entry::Loading));
        state.counted.clear();
        state.in_parts.clear();
    }
}
