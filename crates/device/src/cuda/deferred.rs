//! Launches that are not waited for. Each has a status word of its own in device memory and is told where that of the launch
//! before it lies, so that nothing runs after one that has failed; the words come to the host together.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;

use super::driver::Context;
use super::stream::{Event, Pinned, Stream};
use crate::{DeviceError, Settled};

/// Launches that are under way at the same time, at most.
const MOST: usize = 255;
/// Bytes of a status word.
const WORD: usize = size_of::<u32>();
/// Bytes of all status words: one a launch, and before them one that is always 0.
const WORDS: usize = (MOST + 1) * WORD;
/// Bytes beside the status words that come to the host with them, at most.
const PARTS: usize = 64 << 10;

/// What a lane needs for launches that are not waited for.
#[derive(Debug)]
pub struct Deferred {
    context: Arc<Context>,
    words: CUdeviceptr,
    /// The words on the host, and behind them other parts of device memory.
    mirror: Pinned,
    /// Before and after each launch.
    events: Vec<[Event; 2]>,
    /// Launches whose outcome is not known.
    launched: usize,
    /// What is known of those before; `None` while launches are waited for.
    known: Option<Settled>,
}

/// Where a launch finds the status words.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    number: usize,
    /// Its own.
    pub status: CUdeviceptr,
    /// That of the launch before.
    pub before: CUdeviceptr,
}

impl Deferred {
    /// The context is current.
    pub fn new(context: &Arc<Context>, stream: &Stream) -> Result<Deferred, DeviceError> {
        let mirror = Pinned::new(context, WORDS + PARTS)?;
        // SAFETY: the context is current.
        let words = context.check("allocating status words", unsafe { result::malloc_sync(WORDS) })?;
        let context = Arc::clone(context);
        let deferred = Deferred { context, words, mirror, events: Vec::new(), launched: 0, known: None };
        deferred.clear(stream)?;
        Ok(deferred)
    }

    fn clear(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: the words are ours, and whoever reads or writes them is in this stream.
        let cleared = unsafe { result::memset_d8_async(self.words, 0, WORDS, stream.handle) };
        self.context.check("clearing status words", cleared)
    }

    /// A word that is always 0: the status before a launch that comes after none.
    pub fn zero(&self) -> CUdeviceptr {
        self.words
    }

    /// Whether launches are not waited for.
    pub fn is_on(&self) -> bool {
        self.known.is_some()
    }

    /// Launches since then.
    pub fn launches(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.times_ns.len()) + self.launched
    }

    /// From now on launches are not waited for. The context is current.
    pub fn begin(&mut self, stream: &Stream) -> Result<(), DeviceError> {
        if self.known.is_none() {
            self.clear(stream)?;
            self.launched = 0;
            self.known = Some(Settled::default());
        }
        Ok(())
    }

    /// Room for the next launch; `None` where an earlier one is known to have failed. The context is current.
    pub fn slot(&mut self, stream: &Stream) -> Result<Option<Slot>, DeviceError> {
        if self.launched == MOST {
            self.look(stream, &mut [])?;
            self.clear(stream)?;
        }
        if let Some(known) = self.known.as_mut().filter(|known| known.status != 0) {
            known.times_ns.push(0);
            return Ok(None);
        }
        let number = self.launched;
        if self.events.len() == number {
            self.events.push([Event::new(&self.context)?, Event::new(&self.context)?]);
        }
        self.launched += 1;
        let before = self.words + (number * WORD) as u64;
        Ok(Some(Slot { number, status: before + WORD as u64, before }))
    }

    /// Measures when a launch begins (0) or ends (1).
    pub fn measure(&self, slot: Slot, end: usize, stream: &Stream) -> Result<(), DeviceError> {
        let event = self.events.get(slot.number).and_then(|events| events.get(end));
        event.map_or(Ok(()), |event| event.record(stream))
    }

    /// Launches are waited for again; what became of those that were not is forgotten. Nothing of them is under way any more.
    pub fn forget(&mut self) {
        self.known = None;
        self.launched = 0;
    }

    /// Waits for everything in the stream, and brings parts of device memory to the host, which the caller holds: what does
    /// not fit is left, from that part on; how many did. The context is current.
    pub fn settle(
        &mut self,
        stream: &Stream,
        parts: &mut [(CUdeviceptr, &mut [u8])],
    ) -> Result<(Settled, usize), DeviceError> {
        let fitting = self.look(stream, parts)?;
        Ok((self.known.take().unwrap_or_default(), fitting))
    }

    fn look(
        &mut self,
        stream: &Stream,
        parts: &mut [(CUdeviceptr, &mut [u8])],
    ) -> Result<usize, DeviceError> {
        const WHAT: &str = "kernels of a stage";
        let (words, mut free) = self.mirror.bytes().split_at_mut(WORDS);
        // SAFETY: as many bytes lie there, and the mirror is not touched before the stream is waited for.
        let copied = unsafe { result::memcpy_dtoh_async(words, self.words, stream.handle) };
        self.context.check(WHAT, copied)?;
        let mut fitting = 0;
        for (source, target) in parts.iter() {
            if target.len() > free.len() {
                break;
            }
            let (staged, rest) = std::mem::take(&mut free).split_at_mut(target.len());
            free = rest;
            // SAFETY: the caller holds the memory; the mirror as above.
            let copied = unsafe { result::memcpy_dtoh_async(staged, *source, stream.handle) };
            self.context.check(WHAT, copied)?;
            fitting += 1;
        }
        stream.wait(WHAT)?;
        self.take(&mut parts[..fitting])?;
        Ok(fitting)
    }

    /// Takes out of the mirror what was copied, and times and status of the launches.
    fn take(&mut self, parts: &mut [(CUdeviceptr, &mut [u8])]) -> Result<(), DeviceError> {
        let (words, mut staged) = self.mirror.bytes().split_at_mut(WORDS);
        for (_, target) in parts {
            let (part, rest) = std::mem::take(&mut staged).split_at_mut(target.len());
            target.copy_from_slice(part);
            staged = rest;
        }
        let Some(known) = &mut self.known else { return Ok(()) };
        let launched = std::mem::take(&mut self.launched);
        let statuses = words.chunks_exact(WORD).skip(1).take(launched);
        let statuses = statuses.map(|word| word.try_into().map_or(0, u32::from_ne_bytes));
        known.status = statuses.chain([known.status]).find(|status| *status != 0).unwrap_or(0);
        for [start, stop] in self.events.iter().take(launched) {
            known.times_ns.push(stop.since_ns(start)?);
        }
        Ok(())
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new` and freed once. The driver waits for what may still use it.
            let _ = unsafe { result::free_sync(self.words) };
        }
    }
}
