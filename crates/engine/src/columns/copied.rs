//! Columns that lie on a device of another kind: they are copied from there, as reading them again would decode files once more.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use parking_lot::Mutex;

use super::cache::{ColumnCache, ColumnRead, Entry, State};
use super::key::Key;
use super::resident::{ColumnCodes, ResidentColumn};
use super::wish::Placement;
use crate::error::EngineError;
use crate::split::{Phase, Split};
use crate::trace::{self, Track};

/// Bytes that are copied in one piece.
const PIECE_BYTES: usize = 4 << 20;
/// Threads that copy: more do not make a link faster.
const MOST_THREADS: usize = 8;

/// A column that lies on another device.
struct Elsewhere {
    device: Arc<dyn Device>,
    /// Where it is in its source.
    position: usize,
    column: Arc<ResidentColumn>,
}

/// Two devices, and what is to be copied between them.
pub(super) struct Copying<'a> {
    from: &'a Arc<dyn Device>,
    to: &'a Arc<dyn Device>,
    /// Both of the same size.
    buffers: Vec<(Buffer, Buffer)>,
}

impl<'a> Copying<'a> {
    pub(super) fn new(from: &'a Arc<dyn Device>, to: &'a Arc<dyn Device>) -> Copying<'a> {
        Copying { from, to, buffers: Vec::new() }
    }

    /// A column in buffers of the other device, which have its bytes once [`Self::run`] has ended.
    pub(super) fn column(
        &mut self,
        column: &ResidentColumn,
        allocate: &dyn Fn(usize) -> Result<Buffer, DeviceError>,
    ) -> Result<ResidentColumn, DeviceError> {
        let mut place = |buffer: &Buffer| {
            let copy = allocate(buffer.bytes())?;
            self.buffers.push((buffer.clone(), copy.clone()));
            Ok::<_, DeviceError>(copy)
        };
        let data = place(&column.data)?;
        let validity = column.validity.as_ref().map(&mut place).transpose()?;
        let offsets = column.offsets.as_ref().map(&mut place).transpose()?;
        let dictionary = match &column.dictionary {
            Some((offsets, bytes)) => Some((place(offsets)?, place(bytes)?)),
            None => None,
        };
        let coded = OnceLock::new();
        if let Some(known) = column.codes() {
            let (codes, entries) = (place(&known.codes)?, place(&known.entries)?);
            let _ = coded.set(Some(ColumnCodes { codes, entries, ..known.clone() }));
        }
        Ok(ResidentColumn { data, validity, offsets, dictionary, coded, ..column.clone() })
    }

    /// Copies the bytes.
    pub(super) fn run(&self, cancel: &CancelToken) -> Result<(), DeviceError> {
        let mut pieces = Vec::new();
        for (number, (buffer, _)) in self.buffers.iter().enumerate() {
            pieces.extend((0..buffer.bytes()).step_by(PIECE_BYTES).map(|first| (number, first)));
        }
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            let mut bytes = vec![0; PIECE_BYTES];
            while let Some((number, first)) = pieces.get(next.fetch_add(1, Ordering::Relaxed))
                && let Some((buffer, copy)) = self.buffers.get(*number)
                && !cancel.is_cancelled()
            {
                let piece = bytes.get_mut(..PIECE_BYTES.min(buffer.bytes() - first)).unwrap_or_default();
                let copied = self.from.download(buffer, *first, piece);
                if let Err(error) = copied.and_then(|()| self.to.upload(copy, *first, piece)) {
                    next.store(pieces.len(), Ordering::Relaxed);
                    *failed.lock() = Some(error);
                }
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 1..cores.min(MOST_THREADS).min(pieces.len()) {
                // Fewer threads copy as well.
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        failed.into_inner().map_or(Ok(()), Err)
    }
}

impl ColumnCache {
    /// Copies of claimed columns that lie on a device of another kind, where they leave room for the state of queries; with their
    /// positions.
    pub(super) fn copies(
        &self,
        ColumnRead { device, wish, .. }: ColumnRead<'_>,
        keys: &[(Key, usize)],
        cancel: &CancelToken,
        split: &mut Split,
    ) -> Result<Vec<(usize, Arc<ResidentColumn>)>, EngineError> {
        let elsewhere = self.state.lock().elsewhere(keys, device);
        let Some(Elsewhere { device: other, .. }) = elsewhere.first() else { return Ok(Vec::new()) };
        let of_other = || elsewhere.iter().filter(|column| Arc::ptr_eq(&column.device, other));
        let bytes = of_other().map(|found| found.column.stored_bytes()).sum();
        if wish.placement == Placement::Host || !self.leaves_room(device, bytes) {
            return Ok(Vec::new());
        }
        let copying_since = Instant::now();
        self.make_room(device, bytes);
        let mut copying = Copying::new(other, device);
        let allocate = |bytes| self.allocate(device, bytes);
        let copies = of_other().map(|Elsewhere { position, column, .. }| {
            Ok((*position, Arc::new(copying.column(column, &allocate)?)))
        });
        // Where there is no room after all, they are read, block by block if need be.
        let copies = match copies.collect::<Result<Vec<_>, DeviceError>>() {
            Err(DeviceError::OutOfMemory { .. }) => return Ok(Vec::new()),
            copies => copies?,
        };
        copying.run(cancel)?;
        if cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        split.add(Phase::Upload, copying_since.elapsed().as_nanos() as u64);
        trace::record(Track::Copies, (copying_since, Instant::now()), || {
            format!("columns from {}", other.name())
        });
        Ok(copies)
    }
}

impl State {
    /// Claimed columns that lie on a device of another kind than the one that they are claimed for.
    fn elsewhere(&self, keys: &[(Key, usize)], device: &Arc<dyn Device>) -> Vec<Elsewhere> {
        let mut found = Vec::new();
        for (known, entry) in &self.entries {
            let Entry::Ready { column, device: other, .. } = entry else { continue };
            let is_same = |(key, _): &&(Key, usize)| {
                key.identity == known.identity
                    && key.column == known.column
                    && key.without_dictionary == known.without_dictionary
            };
            let Some((_, position)) = keys.iter().find(is_same) else { continue };
            let other = other.upgrade().filter(|other| other.kind() != device.kind() && !other.is_lost());
            if let Some(other) = other.filter(|_| !known.on_host && !column.on_host) {
                found.push(Elsewhere { device: other, position: *position, column: Arc::clone(column) });
            }
        }
        found
    }
}
