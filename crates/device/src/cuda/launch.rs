//! Launches: one at a time in each slot, which has its own streams, events and status word.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use parking_lot::Mutex;

use super::driver::Context;
use super::kernel::{Compiled, CudaKernel};
use super::memory::{CudaMemory, Pool};
use super::stream::{Event, Pinned, Stream};
use crate::{CancelToken, DeviceError, KernelArgument, Launch, LaunchReport, check_arguments};

/// The status of a cancelled launch.
const CANCELLED: u32 = 1;
/// A short kernel is waited for without giving up the processor.
const SPIN: Duration = Duration::from_micros(200);
/// How often a longer one is asked for, and so how late a cancellation is seen.
const NAP: Duration = Duration::from_micros(50);

/// The launch slots of one device: as many as threads ever launched at the same time.
#[derive(Debug)]
pub struct Launcher {
    context: Arc<Context>,
    idle: Mutex<Vec<Slot>>,
}

#[derive(Debug)]
struct Slot {
    stream: Stream,
    /// Writes the status word while the kernel runs.
    control: Stream,
    start: Event,
    stop: Event,
    /// After the status was read.
    done: Event,
    status: StatusWord,
    /// The status as read, then what a cancellation writes: two `u32`.
    words: Pinned,
}

/// Four bytes of device memory.
#[derive(Debug)]
struct StatusWord {
    pointer: CUdeviceptr,
    context: Arc<Context>,
}

impl Drop for StatusWord {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: allocated in `Slot::new` and freed once.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

impl Slot {
    fn new(context: &Arc<Context>) -> Result<Slot, DeviceError> {
        // SAFETY: the context is current.
        let pointer = context.check("allocating a status word", unsafe { result::malloc_sync(4) })?;
        let mut words = Pinned::new(context, 8)?;
        words.bytes()[4..].copy_from_slice(&CANCELLED.to_le_bytes());
        Ok(Slot {
            stream: Stream::new(context)?,
            control: Stream::new(context)?,
            start: Event::new(context)?,
            stop: Event::new(context)?,
            done: Event::new(context)?,
            status: StatusWord { pointer, context: context.clone() },
            words,
        })
    }
}

impl Launcher {
    /// No slot yet: the first launch makes one.
    pub fn new(context: Arc<Context>) -> Launcher {
        Launcher { context, idle: Mutex::default() }
    }

    /// Runs a kernel in blocks of `block_threads` threads and waits for it.
    pub fn launch(
        &self,
        pool: &Arc<Pool>,
        launch: &Launch<'_>,
        block_threads: u32,
    ) -> Result<LaunchReport, DeviceError> {
        let Some(kernel) = launch.kernel.as_any().downcast_ref::<CudaKernel>() else {
            return Err(self.context.failed("a launch", "the kernel is of another kind of device"));
        };
        let compiled = &kernel.compiled;
        let operation = format!("kernel {}", compiled.name);
        let arguments = self.arguments(pool, compiled, launch.arguments, &operation)?;
        if launch.blocks == 0 {
            return Err(self.context.failed(&operation, "the grid has no blocks"));
        }
        if launch.cancel.is_cancelled() {
            return Ok(LaunchReport { status: CANCELLED, ..LaunchReport::default() });
        }
        self.context.enter()?;
        let idle = self.idle.lock().pop();
        let mut slot = match idle {
            Some(slot) => slot,
            None => Slot::new(&self.context)?,
        };
        // After an error the slot is dropped: nothing is known about its streams.
        self.start(&mut slot, compiled, launch.blocks, block_threads, arguments, &operation)?;
        self.wait(&mut slot, launch.cancel, &operation)?;
        let mut status = [0u8; 4];
        status.copy_from_slice(&slot.words.bytes()[..4]);
        let report = LaunchReport {
            status: u32::from_le_bytes(status),
            time_ns: slot.stop.since_ns(&slot.start)?,
            ..LaunchReport::default()
        };
        self.idle.lock().push(slot);
        Ok(report)
    }

    /// The arguments' bits. Every one is in 16 bytes of its own, of which the driver reads the parameter's size.
    fn arguments(
        &self,
        pool: &Arc<Pool>,
        compiled: &Compiled,
        arguments: &[KernelArgument],
        operation: &str,
    ) -> Result<Vec<u128>, DeviceError> {
        check_arguments(&self.context.name, &compiled.name, &compiled.params, arguments)?;
        let mut bits = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            bits.push(match argument {
                KernelArgument::Scalar(_, value) => *value as u128,
                KernelArgument::Buffer(buffer, offset) => {
                    let memory = buffer.as_any().downcast_ref::<CudaMemory>();
                    let Some(memory) = memory.filter(|memory| memory.is_of(pool)) else {
                        return Err(self
                            .context
                            .failed(operation, "an argument is memory of another device"));
                    };
                    u128::from(memory.pointer() + offset)
                }
            });
        }
        Ok(bits)
    }

    fn start(
        &self,
        slot: &mut Slot,
        compiled: &Compiled,
        blocks: u32,
        block_threads: u32,
        mut arguments: Vec<u128>,
        operation: &str,
    ) -> Result<(), DeviceError> {
        arguments.push(u128::from(slot.status.pointer));
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        // SAFETY: the status word is 4 bytes.
        let cleared = unsafe { result::memset_d8_async(slot.status.pointer, 0, 4, slot.stream.handle) };
        self.context.check("clearing the status word", cleared)?;
        slot.start.record(&slot.stream)?;
        // SAFETY: there is one argument for each parameter and the status word, each at least as large as the
        // parameter; the driver copies them during the call. What the kernel does with its pointers is the caller's.
        let launched = unsafe {
            let grid = (blocks, 1, 1);
            let block = (block_threads, 1, 1);
            let shared = compiled.shared_bytes;
            result::launch_kernel(compiled.function, grid, block, shared, slot.stream.handle, &mut pointers)
        };
        self.context.check(operation, launched)?;
        slot.stop.record(&slot.stream)?;
        // SAFETY: the pinned word is not touched before the event below.
        let read = unsafe {
            result::memcpy_dtoh_async(&mut slot.words.bytes()[..4], slot.status.pointer, slot.stream.handle)
        };
        self.context.check(operation, read)?;
        slot.done.record(&slot.stream)
    }

    /// Waits for the kernel. A cancellation writes the status word beside it; a kernel that polls the word then leaves.
    fn wait(&self, slot: &mut Slot, cancel: &CancelToken, operation: &str) -> Result<(), DeviceError> {
        let begun = Instant::now();
        let mut cancelled = false;
        while !slot.done.is_done(operation)? {
            if !cancelled && cancel.is_cancelled() {
                cancelled = true;
                let word = &slot.words.bytes()[4..];
                // SAFETY: the status word is 4 bytes, and so is the pinned word, which never changes.
                let written =
                    unsafe { result::memcpy_htod_async(slot.status.pointer, word, slot.control.handle) };
                self.context.check("cancelling a kernel", written)?;
            }
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
        }
        // The write must not reach the next launch of this slot.
        if cancelled { slot.control.synchronize("cancelling a kernel") } else { Ok(()) }
    }
}
