//! Owned streams, events and pinned host memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, stream::StreamKind};
use cudarc::driver::sys::{self, CUevent_flags, CUresult};

use super::driver::Context;
use crate::DeviceError;

/// What is short is waited for without giving up the processor.
const SPIN: Duration = Duration::from_millis(2);
/// How often it is looked whether something longer is done.
const NAP: Duration = Duration::from_micros(50);

/// Looks again and again until something is done.
fn wait_until(is_done: impl Fn() -> Result<bool, DeviceError>) -> Result<(), DeviceError> {
    let begun = Instant::now();
    while !is_done()? {
        if begun.elapsed() < SPIN {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(NAP);
        }
    }
    Ok(())
}

/// A stream, which waits for no other.
#[derive(Debug)]
pub struct Stream {
    pub handle: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: a stream may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// A new stream. The context is current.
    pub fn new(context: &Arc<Context>) -> Result<Stream, DeviceError> {
        let created = result::stream::create(StreamKind::NonBlocking);
        let handle = context.check("creating a stream", created)?;
        Ok(Stream { handle, context: context.clone() })
    }

    /// What comes later in this stream comes after what an event of another has recorded.
    pub fn wait_for(&self, event: &Event) -> Result<(), DeviceError> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive and of one context.
        let waits = unsafe { result::stream::wait_event(self.handle, event.handle, flags) };
        self.context.check("waiting for another stream", waits)
    }

    /// Waits until everything in the stream is done; what is short, without giving up the processor.
    pub fn wait(&self, operation: &str) -> Result<(), DeviceError> {
        wait_until(|| {
            // SAFETY: the stream is alive.
            match unsafe { sys::cuStreamQuery(self.handle) }.result() {
                Ok(()) => Ok(true),
                Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
                Err(error) => self.context.check(operation, Err(error)),
            }
        })
    }

    /// Waits until everything in the stream is done.
    pub fn synchronize(&self, operation: &str) -> Result<(), DeviceError> {
        // SAFETY: the stream is alive.
        self.context.check(operation, unsafe { result::stream::synchronize(self.handle) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: created in `new` and destroyed once.
            let _ = unsafe { result::stream::destroy(self.handle) };
        }
    }
}

/// An event that measures time.
#[derive(Debug)]
pub struct Event {
    handle: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: an event may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// A new event. The context is current.
    pub fn new(context: &Arc<Context>) -> Result<Event, DeviceError> {
        let created = result::event::create(CUevent_flags::CU_EVENT_DEFAULT);
        let handle = context.check("creating an event", created)?;
        Ok(Event { handle, context: context.clone() })
    }

    /// Records what is in the stream so far.
    pub fn record(&self, stream: &Stream) -> Result<(), DeviceError> {
        // SAFETY: both are alive and of one context.
        self.context.check("recording an event", unsafe { result::event::record(self.handle, stream.handle) })
    }

    /// Waits for what was recorded.
    pub fn synchronize(&self, operation: &str) -> Result<(), DeviceError> {
        // SAFETY: the event is alive.
        self.context.check(operation, unsafe { result::event::synchronize(self.handle) })
    }

    /// As [`Event::synchronize`]; what is short, without giving up the processor.
    pub fn wait(&self, operation: &str) -> Result<(), DeviceError> {
        wait_until(|| self.is_done(operation))
    }

    /// Whether what was recorded is done.
    pub fn is_done(&self, operation: &str) -> Result<bool, DeviceError> {
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.handle) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => self.context.check(operation, Err(error)),
        }
    }

    /// Nanoseconds from `start` to this; both are done.
    pub fn since_ns(&self, start: &Event) -> Result<u64, DeviceError> {
        // SAFETY: both events are alive and recorded.
        let elapsed = unsafe { result::event::elapsed(start.handle, self.handle) };
        let milliseconds = self.context.check("measuring time", elapsed)?;
        Ok((f64::from(milliseconds) * 1e6).max(0.0) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: created in `new` and destroyed once.
            let _ = unsafe { result::event::destroy(self.handle) };
        }
    }
}

/// Page-locked host memory that the device copies from and to. Cached by the host, so that reading it is fast.
#[derive(Debug)]
pub struct Pinned {
    start: *mut u8,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: plain memory, owned by this.
unsafe impl Send for Pinned {}
// SAFETY: as above; `&Pinned` gives no access to the bytes.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeroed memory. The context is current.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Pinned, DeviceError> {
        // SAFETY: the context is current.
        let allocated = unsafe { result::malloc_host(bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        let start = context.check("allocating pinned memory", allocated)?.cast::<u8>();
        // SAFETY: `bytes` bytes were allocated there.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { start, bytes, context: context.clone() })
    }

    /// The address, on the host and (addressing is unified) on the device.
    pub fn address(&self) -> *mut u8 {
        self.start
    }

    /// The bytes. The caller has waited for every copy from or to them.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the memory is initialised, ours, and borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `new` and freed once.
            let _ = unsafe { result::free_host(self.start.cast()) };
        }
    }
}
