//! Copies between host and device through pinned memory: while the device copies one chunk, the host copies the next.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use parking_lot::{Condvar, Mutex};

use super::driver::Context;
use super::stream::{Event, Pinned, Stream};
use crate::DeviceError;

/// Bytes of one pinned buffer. Large enough that the copy's start costs nothing, small enough to overlap soon; and the system
/// takes half a millisecond to pin a megabyte, in which no other thread of the process can map memory.
const CHUNK_BYTES: usize = 2 << 20;
/// Pairs of buffers, and so copies at the same time. More threads wait: pinned memory is taken from everybody.
const MAX_PAIRS: usize = 4;

/// The pairs of one device.
#[derive(Debug)]
pub struct Staging {
    context: Arc<Context>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Pair>,
    made: usize,
}

/// Two pinned buffers, an event for each one's last copy, and a stream for copies that are of no query.
#[derive(Debug)]
struct Pair {
    stream: Stream,
    buffers: Buffers,
}

#[derive(Debug)]
struct Buffers {
    events: [Event; 2],
    pinned: [Pinned; 2],
}

/// Device memory, and where it goes on the host.
type Piece<'a> = (CUdeviceptr, &'a mut [u8]);

impl Pair {
    fn new(context: &Arc<Context>) -> Result<Pair, DeviceError> {
        let events = [Event::new(context)?, Event::new(context)?];
        let pinned = [Pinned::new(context, CHUNK_BYTES)?, Pinned::new(context, CHUNK_BYTES)?];
        Ok(Pair { stream: Stream::new(context)?, buffers: Buffers { events, pinned } })
    }
}

impl Staging {
    /// With all pairs, where memory can be pinned: threads that read a first column would wait for that.
    pub fn new(context: Arc<Context>) -> Staging {
        let staging = Staging { context, state: Mutex::default(), returned: Condvar::new() };
        staging.make_ready();
        staging
    }

    /// Makes all pairs that are not there yet.
    fn make_ready(&self) {
        loop {
            let mut state = self.state.lock();
            if state.made >= MAX_PAIRS {
                return;
            }
            state.made += 1;
            drop(state);
            let made = self.context.enter().and_then(|()| Pair::new(&self.context));
            let mut state = self.state.lock();
            let failed = made.is_err();
            match made {
                Ok(pair) => state.idle.push(pair),
                // Whoever copies will be told why.
                Err(_) => state.made -= 1,
            }
            drop(state);
            self.returned.notify_one();
            if failed {
                return;
            }
        }
    }

    /// Copies `data` to device memory that holds at least as much, after what is in the stream (`None`: one of its
    /// own), and waits.
    pub fn upload(
        &self,
        stream: Option<&Stream>,
        target: CUdeviceptr,
        data: &[u8],
    ) -> Result<(), DeviceError> {
        const WHAT: &str = "a copy to the device";
        self.with_pair(stream, |buffers, stream| {
            for (number, chunk) in data.chunks(CHUNK_BYTES).enumerate() {
                let turn = number % 2;
                if number >= 2 {
                    buffers.events[turn].synchronize(WHAT)?;
                }
                let staged = &mut buffers.pinned[turn].bytes()[..chunk.len()];
                staged.copy_from_slice(chunk);
                let at = target + (number * CHUNK_BYTES) as u64;
                // SAFETY: the caller owns `data.len()` bytes at `target`; the pinned buffer is not touched again
                // before the event below.
                let copied = unsafe { result::memcpy_htod_async(at, staged, stream.handle) };
                self.context.check(WHAT, copied)?;
                buffers.events[turn].record(stream)?;
            }
            stream.synchronize(WHAT)
        })
    }

    /// Copies pieces of device memory to the host, after what is in the stream (`None`: one of its own), and waits once
    /// for all that fit a pinned buffer.
    pub fn download(&self, stream: Option<&Stream>, pieces: Vec<Piece<'_>>) -> Result<(), DeviceError> {
        const WHAT: &str = "a copy from the device";
        self.with_pair(stream, |buffers, stream| {
            let mut waiting = None;
            for (number, mut batch) in batches(pieces, CHUNK_BYTES).into_iter().enumerate() {
                let turn = number % 2;
                let mut free = buffers.pinned[turn].bytes();
                for (source, target) in &mut batch {
                    let (staged, rest) = free.split_at_mut(target.len());
                    free = rest;
                    // SAFETY: the caller owns as many bytes at `source` as the piece has; the pinned buffer's last
                    // content was taken out one round ago, and it is not touched before the event below.
                    let copied = unsafe { result::memcpy_dtoh_async(staged, *source, stream.handle) };
                    self.context.check(WHAT, copied)?;
                }
                buffers.events[turn].record(stream)?;
                if let Some((turn, batch)) = waiting.replace((turn, batch)) {
                    buffers.take(turn, batch, WHAT)?;
                }
            }
            match waiting {
                Some((turn, batch)) => buffers.take(turn, batch, WHAT),
                None => Ok(()),
            }
        })
    }

    /// Sets every byte of device memory, and waits.
    pub fn fill(&self, target: CUdeviceptr, bytes: usize, value: u8) -> Result<(), DeviceError> {
        const WHAT: &str = "a fill";
        self.with_pair(None, |_, stream| {
            // SAFETY: the caller owns `bytes` bytes at `target`.
            let filled = unsafe { result::memset_d8_async(target, value, bytes, stream.handle) };
            self.context.check(WHAT, filled)?;
            stream.synchronize(WHAT)
        })
    }

    fn with_pair(
        &self,
        stream: Option<&Stream>,
        copy: impl FnOnce(&mut Buffers, &Stream) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.context.enter()?;
        let mut pair = self.borrow()?;
        let stream = stream.unwrap_or(&pair.stream);
        let outcome = copy(&mut pair.buffers, stream);
        // After an error a copy may still be under way; the next user must not meet it.
        let settled = outcome.is_ok() || stream.synchronize("a copy").is_ok();
        let mut state = self.state.lock();
        if settled {
            state.idle.push(pair);
        } else {
            state.made -= 1;
        }
        drop(state);
        self.returned.notify_one();
        outcome
    }

    fn borrow(&self) -> Result<Pair, DeviceError> {
        let mut state = self.state.lock();
        loop {
            if let Some(pair) = state.idle.pop() {
                return Ok(pair);
            }
            if state.made < MAX_PAIRS {
                break;
            }
            self.returned.wait(&mut state);
        }
        state.made += 1;
        drop(state);
        Pair::new(&self.context).inspect_err(|_| {
            self.state.lock().made -= 1;
            self.returned.notify_one();
        })
    }
}

impl Buffers {
    /// Waits for a batch and takes it out of its pinned buffer.
    fn take(&mut self, turn: usize, batch: Vec<Piece<'_>>, what: &str) -> Result<(), DeviceError> {
        self.events[turn].synchronize(what)?;
        let mut staged = &*self.pinned[turn].bytes();
        for (_, target) in batch {
            let (part, rest) = staged.split_at(target.len());
            target.copy_from_slice(part);
            staged = rest;
        }
        Ok(())
    }
}

/// The pieces in order, cut into batches of at most `limit` bytes.
fn batches(pieces: Vec<Piece<'_>>, limit: usize) -> Vec<Vec<Piece<'_>>> {
    let (mut batches, mut batch, mut free) = (Vec::new(), Vec::new(), limit);
    for (mut source, mut target) in pieces {
        while !target.is_empty() {
            let (part, rest) = target.split_at_mut(free.min(target.len()));
            let bytes = part.len();
            batch.push((source, part));
            (source, target) = (source + bytes as u64, rest);
            free -= bytes;
            if free == 0 {
                batches.push(std::mem::take(&mut batch));
                free = limit;
            }
        }
    }
    if !batch.is_empty() {
        batches.push(batch);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_the_order_and_are_full_but_the_last() {
        let lists: [&[usize]; 7] = [&[], &[0], &[3, 0, 4], &[10], &[20, 1], &[7, 13, 0, 1, 29], &[1; 25]];
        for lengths in lists {
            let mut memory: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
            let pieces = memory.iter_mut().enumerate();
            let pieces = pieces.map(|(at, target)| (1000 * at as u64, target.as_mut_slice())).collect();
            let batches = batches(pieces, 10);
            let sizes: Vec<usize> =
                batches.iter().map(|batch| batch.iter().map(|(_, target)| target.len()).sum()).collect();
            let total: usize = lengths.iter().sum();
            assert_eq!(sizes.len(), total.div_ceil(10), "{lengths:?}");
            assert!(sizes.iter().rev().skip(1).all(|size| *size == 10), "{lengths:?} {sizes:?}");
            let bytes = batches
                .into_iter()
                .flatten()
                .flat_map(|(source, target)| (0..target.len() as u64).map(move |at| source + at));
            let expected = lengths
                .iter()
                .enumerate()
                .flat_map(|(at, length)| (0..*length as u64).map(move |byte| 1000 * at as u64 + byte));
            assert!(bytes.eq(expected), "{lengths:?}");
        }
    }
}
