//! The column cache: columns in device memory by device, data and position; the least recently used go first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Instant;

use kelpie_compile::layout::Storage;
use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use parking_lot::Mutex;

use super::coding;
use super::glance::{Seen, Watch};
use super::key::{Key, Keyed};
use super::placing::{PartitionRows, Promised};
use super::read::{Wanted, source_error, too_large};
use super::reading;
use super::resident::ResidentColumn;
use super::settled::Settled;
use super::store;
use super::wish::{LoadReport, Placement, Wish};
use crate::error::EngineError;
use crate::options::Dictionaries;
use crate::source::{Lease, TableSource};
use crate::split::{Phase, Split};
use crate::trace::{self, Track};

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
    clock: u64,
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
struct Claim<'a> {
    cache: &'a ColumnCache,
    /// With the position of each in the source.
    keys: Vec<(Key, usize)>,
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

    /// Columns (positions in the source) of every row, from the cache or the source. The missing ones are read in one
    /// pass; columns that another query is reading are waited for.
    pub fn load(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        columns: &[usize],
        wish: Wish,
        watch: &Watch<'_>,
    ) -> Result<(Vec<Arc<ResidentColumn>>, LoadReport), EngineError> {
        let started = Instant::now();
        let (mut loaded_bytes, mut split) = (0, Split::default());
        let mut found = HashMap::new();
        let from = ColumnRead { device, source, wish };
        match source.identity() {
            None => {
                let mut missing = columns.to_vec();
                missing.sort_unstable();
                missing.dedup();
                let tell = |layouts| watch.tell(columns, &found, (&missing, layouts));
                let loaded = self.read(from, &missing, 0, (&tell, watch.cancel), &mut split)?;
                for (column, resident) in loaded {
                    loaded_bytes += resident.stored_bytes();
                    found.insert(column, resident);
                }
            }
            Some(identity) => {
                let identity = Arc::from(identity);
                let (keyed, mut fresh) = Keyed::all(source, columns, wish.dictionaries);
                let wanted = (&identity, keyed.as_slice(), wish.placement);
                while let Some(claim) = self.claim(device, wanted, &mut found, (source, watch.cancel))? {
                    // Columns that are not kept are read in the same pass.
                    let beside = std::mem::take(&mut fresh);
                    let read = (columns, beside.as_slice());
                    loaded_bytes += self.fulfil(claim, read, from, (&mut found, &mut split), watch)?;
                }
                let held_bytes = found.values().map(|column| column.stored_bytes()).sum();
                let tell = |layouts| watch.tell(columns, &found, (&fresh, layouts));
                let loaded = self.read(from, &fresh, held_bytes, (&tell, watch.cancel), &mut split)?;
                for (column, resident) in loaded {
                    loaded_bytes += resident.stored_bytes();
                    found.insert(column, resident);
                }
            }
        }
        let resident: Option<Vec<_>> = columns.iter().map(|column| found.get(column).cloned()).collect();
        let resident = resident.ok_or_else(|| EngineError::Internal("a column was not loaded".into()))?;
        self.check_rows(device, source, &resident)?;
        let time_ns = started.elapsed().as_nanos() as u64;
        // Looking for columns, and waiting for others.
        split.add(Phase::Open, time_ns.saturating_sub(split.total()));
        Ok((resident, LoadReport { loaded_bytes, split }))
    }

    /// Collects what is cached, and undertakes to read what nobody is reading; else waits for those who do, holding nothing that
    /// they wait for. `None` once all is found.
    fn claim(
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

    /// Reads the claimed ones of `columns`, and `fresh` ones beside them, and publishes what was claimed; the bytes of all.
    fn fulfil(
        &self,
        claim: Claim<'_>,
        (columns, fresh): (&[usize], &[usize]),
        from: ColumnRead<'_>,
        (found, split): (&mut HashMap<usize, Arc<ResidentColumn>>, &mut Split),
        watch: &Watch<'_>,
    ) -> Result<u64, EngineError> {
        let copied = self.copies(from, &claim.keys, watch.cancel, split)?;
        found.extend(copied.iter().cloned());
        let claimed = claim.keys.iter().map(|(_, column)| *column);
        let claimed = claimed.filter(|column| copied.iter().all(|(known, _)| known != column));
        let missing: Vec<usize> = claimed.chain(fresh.iter().copied()).collect();
        let held_bytes = found.values().map(|column| column.stored_bytes()).sum();
        let tell = |layouts| watch.tell(columns, found, (&missing, layouts));
        let mut loaded = self.read(from, &missing, held_bytes, (&tell, watch.cancel), split)?;
        loaded.extend(copied);
        let ColumnRead { device, source, .. } = from;
        let bytes = loaded.iter().map(|(_, column)| column.stored_bytes()).sum();
        found.extend(loaded.iter().cloned());
        let lease = source.lease();
        let mut state = self.state.lock();
        let of_claim = |(key, claimed): &'_ (Key, usize)| {
            let column = loaded.iter().find(|(column, _)| column == claimed)?;
            Some((key.clone(), Arc::clone(&column.1)))
        };
        for (key, column) in claim.keys.iter().filter_map(of_claim) {
            state.clock += 1;
            let on_host = column.on_host;
            let (device, lease, used) = (Arc::downgrade(device), lease.clone(), state.clock);
            let entry = Entry::Ready { column, device, lease, used };
            state.entries.insert(Key { on_host, ..key }, entry);
        }
        // The claim's drop locks the state again.
        drop(state);
        drop(claim);
        Ok(bytes)
    }

    /// Reads distinct columns in one pass and stores them; `held_bytes` are those of columns that the query has.
    fn read(
        &self,
        from: ColumnRead<'_>,
        columns: &[usize],
        held_bytes: u64,
        (tell, cancel): (&Seen<'_>, &CancelToken),
        split: &mut Split,
    ) -> Result<Vec<(usize, Arc<ResidentColumn>)>, EngineError> {
        if columns.is_empty() {
            return Ok(Vec::new());
        }
        let ColumnRead { device, source, wish } = from;
        let placement = wish.placement;
        let wanted = columns.iter().map(|column| {
            let wanted = Wanted::new(source, *column, wish.dictionaries)?;
            Ok::<_, EngineError>((*column, wanted))
        });
        let mut wanted = wanted.collect::<Result<Vec<_>, _>>()?;
        self.give_places(device, source, &mut wanted, (placement, held_bytes));
        let budget = device.memory().1;
        let limit = if placement == Placement::Device { budget } else { u64::MAX };
        let table = || source.name();
        let plans = reading::plans(from, self, &mut wanted, limit, (tell, cancel), split)?;
        let uploading = Instant::now();
        let bytes: u64 = plans.iter().map(|(_, plan)| plan.bytes()).sum();
        let placed: u64 = plans.iter().map(|(_, plan)| plan.placed_bytes()).sum();
        let on_host = match placement {
            Placement::Device => false,
            Placement::Host => true,
            Placement::Either => !self.leaves_room(device, bytes.saturating_sub(placed)),
        };
        if !on_host {
            if bytes.saturating_add(held_bytes) > budget {
                return Err(too_large(source, &wanted, bytes, held_bytes, budget));
            }
            self.make_room(device, bytes);
        }
        let allocate = |on_host, bytes| match on_host {
            true => self.allocate_host(device, bytes),
            false => self.allocate(device, bytes),
        };
        let mut tasks = Vec::new();
        let mut resident = Vec::new();
        for (column, plan) in plans {
            let placed = plan.place(device.as_ref(), (on_host, &allocate), &mut tasks);
            let placed = placed.map_err(|error| match error {
                DeviceError::OutOfMemory { used, limit, .. } => {
                    too_large(source, &wanted, bytes, used, limit)
                }
                other => other.into(),
            })?;
            resident.push((column, Arc::new(placed)));
        }
        store::run_tasks(device.as_ref(), tasks, cancel)?;
        split.add(Phase::Upload, uploading.elapsed().as_nanos() as u64);
        trace::record(Track::Copies, (uploading, Instant::now()), || format!("columns of {}", table()));
        Ok(resident)
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

    /// Gives columns their places on the device before they are read, where it is known how they will be stored and that they
    /// will be stored there.
    fn give_places(
        &self,
        device: &Arc<dyn Device>,
        source: &dyn TableSource,
        wanted: &mut [(usize, Wanted)],
        (placement, held_bytes): (Placement, u64),
    ) {
        let rows = source.partition_rows().filter(|rows| rows.len() == source.partitions());
        let Some(partitions) = rows.and_then(|rows| PartitionRows::new(&rows)) else { return };
        let promised: Vec<_> = wanted.iter().map(|(_, wanted)| Promised::of(wanted)).collect();
        let bytes_of = |promised: &Promised| promised.bytes(partitions.rows());
        let bytes: u64 = promised.iter().flatten().map(|promised| bytes_of(promised) as u64).sum();
        // As much again is left to columns of which nothing is known.
        let others = if promised.iter().all(Option::is_some) { 0 } else { bytes };
        let most = bytes.saturating_add(others).saturating_add(held_bytes);
        let fits = match placement {
            Placement::Host => false,
            Placement::Device => most <= device.memory().1,
            Placement::Either => self.leaves_room(device, bytes.saturating_add(others)),
        };
        if !fits || bytes == 0 {
            return;
        }
        self.make_room(device, bytes);
        for ((_, wanted), promised) in wanted.iter_mut().zip(promised) {
            let Some(promised) = promised else { continue };
            // Without a place it is stored once it is read.
            let buffer = self.allocate(device, bytes_of(&promised)).ok();
            wanted.place = buffer.map(|buffer| promised.at(buffer, &partitions));
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
