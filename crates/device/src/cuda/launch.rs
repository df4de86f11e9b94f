//! Launches: one at a time in each slot, which has its own stream, events and status word.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::result;
use parking_lot::Mutex;

use super::driver::Context;
use super::kernel::{Compiled, CudaKernel};
use super::memory::{CudaMemory, Pool};
use super::stream::{Event, Pinned, Stream};
use crate::{DeviceError, KernelArgument, Launch, LaunchReport, check_arguments};

/// The status of a cancelled launch.
const CANCELLED: u32 = 1;
/// A short kernel is waited for without giving up the processor.
const SPIN: Duration = Duration::from_micros(200);
/// How often a longer one is asked for.
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
    start: Event,
    stop: Event,
    status: Arc<StatusWord>,
}

/// Pinned host memory that the kernel addresses too. So a cancellation needs no call of the driver, which may hold its
/// locks until the very kernel that is to be cancelled has ended.
#[derive(Debug)]
struct StatusWord(Pinned);

impl StatusWord {
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the memory is pinned, aligned to a page, ours, and only ever accessed by atomics here and on the device.
        unsafe { AtomicU32::from_ptr(self.0.address() as *mut u32) }
    }

    /// The same address on the device: addressing is unified.
    fn pointer(&self) -> u64 {
        self.0.address() as u64
    }
}

impl Slot {
    fn new(context: &Arc<Context>) -> Result<Slot, DeviceError> {
        Ok(Slot {
            stream: Stream::new(context)?,
            start: Event::new(context)?,
            stop: Event::new(context)?,
            status: Arc::new(StatusWord(Pinned::new(context, 4)?)),
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
        let slot = match idle {
            Some(slot) => slot,
            None => Slot::new(&self.context)?,
        };
        // After an error the slot is dropped: nothing is known about its streams.
        self.start(&slot, compiled, launch.blocks, block_threads, arguments, &operation)?;
        let status = Arc::clone(&slot.status);
        let stop = Arc::new(move || {
            // What the kernel reported before stays.
            let _ = status.word().compare_exchange(0, CANCELLED, Ordering::SeqCst, Ordering::SeqCst);
        });
        launch.cancel.while_watched(stop, || self.wait(&slot, &operation))?;
        let report = LaunchReport {
            status: slot.status.word().load(Ordering::SeqCst),
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
        slot: &Slot,
        compiled: &Compiled,
        blocks: u32,
        block_threads: u32,
        mut arguments: Vec<u128>,
        operation: &str,
    ) -> Result<(), DeviceError> {
        arguments.push(u128::from(slot.status.pointer()));
        slot.status.word().store(0, Ordering::SeqCst);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
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
        slot.stop.record(&slot.stream)
    }

    /// Waits for the kernel.
    fn wait(&self, slot: &Slot, operation: &str) -> Result<(), DeviceError> {
        let begun = Instant::now();
        while !slot.stop.is_done(operation)? {
            if begun.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }
}
