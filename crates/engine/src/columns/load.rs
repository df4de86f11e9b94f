//! Columns that are not in the cache come into it: they are read, laid out and written to the device.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use kelpie_device::{CancelToken, Device, DeviceError};

use super::cache::{Claim, ColumnCache, ColumnRead, Entry};
use super::glance::{Seen, Watch};
use super::key::{Key, Keyed};
use super::placing::{PartitionRows, Promised};
use super::read::{Wanted, too_large};
use super::reading;
use super::resident::ResidentColumn;
use super::store;
use super::wish::{LoadReport, Placement, Wish};
use crate::error::EngineError;
use crate::source::TableSource;
use crate::split::{Phase, Split};
use crate::trace::{self, Track};

impl ColumnCache {
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
}
