//! Copies between host and device through pinned memory: while the device copies one chunk, the host copies the next.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use parking_lot::{Condvar, Mutex};

use super::driver::Context;
use super::stream::{Event, Pinned, Stream};
use crate::DeviceError;

/// Bytes of one pinned buffer. Large enough that the copy's start costs nothing, small enough to overlap soon.
const CHUNK_BYTES: usize = 16 << 20;
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

/// Two pinned buffers, a stream to copy in, and an event for each buffer's last copy.
#[derive(Debug)]
struct Pair {
    stream: Stream,
    events: [Event; 2],
    buffers: [Pinned; 2],
}

impl Pair {
    fn new(context: &Arc<Context>) -> Result<Pair, DeviceError> {
        Ok(Pair {
            stream: Stream::new(context)?,
            events: [Event::new(context)?, Event::new(context)?],
            buffers: [Pinned::new(context, CHUNK_BYTES)?, Pinned::new(context, CHUNK_BYTES)?],
        })
    }
}

impl Staging {
    /// No pair yet: the first copy makes one.
    pub fn new(context: Arc<Context>) -> Staging {
        Staging { context, state: Mutex::default(), returned: Condvar::new() }
    }

    /// Copies `data` to device memory that holds at least as much, and waits.
    pub fn upload(&self, target: CUdeviceptr, data: &[u8]) -> Result<(), DeviceError> {
        const WHAT: &str = "a copy to the device";
        self.with_pair(|pair| {
            for (number, chunk) in data.chunks(CHUNK_BYTES).enumerate() {
                let turn = number % 2;
                if number >= 2 {
                    pair.events[turn].synchronize(WHAT)?;
                }
                let staged = &mut pair.buffers[turn].bytes()[..chunk.len()];
                staged.copy_from_slice(chunk);
                let at = target + (number * CHUNK_BYTES) as u64;
                // SAFETY: the caller owns `data.len()` bytes at `target`; the pinned buffer is not touched again
                // before the event below.
                let copied = unsafe { result::memcpy_htod_async(at, staged, pair.stream.handle) };
                self.context.check(WHAT, copied)?;
                pair.events[turn].record(&pair.stream)?;
            }
            pair.stream.synchronize(WHAT)
        })
    }

    /// Copies device memory to `data`, and waits.
    pub fn download(&self, source: CUdeviceptr, data: &mut [u8]) -> Result<(), DeviceError> {
        const WHAT: &str = "a copy from the device";
        self.with_pair(|pair| {
            let mut waiting: Option<(usize, &mut [u8])> = None;
            for (number, chunk) in data.chunks_mut(CHUNK_BYTES).enumerate() {
                let turn = number % 2;
                let staged = &mut pair.buffers[turn].bytes()[..chunk.len()];
                let at = source + (number * CHUNK_BYTES) as u64;
                // SAFETY: the caller owns `data.len()` bytes at `source`; the pinned buffer's last content was taken
                // out one round ago, and it is not touched before the event below.
                let copied = unsafe { result::memcpy_dtoh_async(staged, at, pair.stream.handle) };
                self.context.check(WHAT, copied)?;
                pair.events[turn].record(&pair.stream)?;
                if let Some((turn, chunk)) = waiting.replace((turn, chunk)) {
                    pair.take(turn, chunk, WHAT)?;
                }
            }
            match waiting {
                Some((turn, chunk)) => pair.take(turn, chunk, WHAT),
                None => Ok(()),
            }
        })
    }

    /// Sets every byte of device memory, and waits.
    pub fn fill(&self, target: CUdeviceptr, bytes: usize, value: u8) -> Result<(), DeviceError> {
        const WHAT: &str = "a fill";
        self.with_pair(|pair| {
            // SAFETY: the caller owns `bytes` bytes at `target`.
            let filled = unsafe { result::memset_d8_async(target, value, bytes, pair.stream.handle) };
            self.context.check(WHAT, filled)?;
            pair.stream.synchronize(WHAT)
        })
    }

    fn with_pair(&self, copy: impl FnOnce(&mut Pair) -> Result<(), DeviceError>) -> Result<(), DeviceError> {
        self.context.enter()?;
        let mut pair = self.borrow()?;
        let outcome = copy(&mut pair);
        // After an error a copy may still be under way; the next user must not meet it.
        let settled = outcome.is_ok() || pair.stream.synchronize("a copy").is_ok();
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

impl Pair {
    fn take(&mut self, turn: usize, chunk: &mut [u8], what: &str) -> Result<(), DeviceError> {
        self.events[turn].synchronize(what)?;
        chunk.copy_from_slice(&self.buffers[turn].bytes()[..chunk.len()]);
        Ok(())
    }
}
