//! Lanes: a stream with what launches in it need. A query has one as long as it runs.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use cudarc::driver::result;
use cudarc::driver::sys::CUdeviceptr;
use parking_lot::Mutex;

use super::deferred::Deferred;
use super::driver::Context;
use super::kernel::{Compiled, CudaKernel};
use super::memory::{CudaMemory, Pool};
use super::stream::{Event, Pinned, Stream};
use crate::query::TICKETS;
use crate::{Buffer, DeviceError, KernelArgument, Launch, LaunchReport, check_arguments};

/// The status of a cancelled launch.
const CANCELLED: u32 = 1;
/// Streams of a copier.
pub const COPY_STREAMS: usize = 2;

/// The lanes of one device: as many as queries ever ran at the same time.
#[derive(Debug)]
pub struct Lanes {
    context: Arc<Context>,
    idle: Mutex<Vec<Lane>>,
    made: AtomicUsize,
}

/// A stream, its events and its status word. One launch at a time.
#[derive(Debug)]
pub struct Lane {
    pub stream: Stream,
    start: Event,
    stop: Event,
    status: Arc<StatusWord>,
    /// For launches that are not waited for.
    pub deferred: Deferred,
    /// Made when a query first streams blocks.
    pub copier: Option<Copier>,
    context: Arc<Context>,
}

/// The copies from the host that go on beside a query's launches.
#[derive(Debug)]
pub struct Copier {
    /// Several, so that one copy starts while another goes on.
    pub streams: [Stream; COPY_STREAMS],
    /// When the copies of a ticket have arrived, by stream.
    pub arrivals: Vec<[Event; COPY_STREAMS]>,
    /// The next ticket.
    pub next: usize,
    /// What the copies use, by ticket.
    pub pending: VecDeque<(usize, Buffer)>,
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

/// The report of a launch that was cancelled before its start.
pub fn cancelled() -> LaunchReport {
    LaunchReport { status: CANCELLED, ..LaunchReport::default() }
}

impl Lanes {
    /// No lane yet: the first query makes one.
    pub fn new(context: Arc<Context>) -> Lanes {
        Lanes { context, idle: Mutex::default(), made: AtomicUsize::new(0) }
    }

    /// A lane that nobody uses and in whose stream nothing is left to do.
    pub fn take(&self) -> Result<Lane, DeviceError> {
        self.context.enter()?;
        let idle = self.idle.lock().pop();
        match idle {
            Some(lane) => Ok(lane),
            None => {
                let lane = Lane::new(&self.context)?;
                self.made.fetch_add(1, Ordering::Relaxed);
                Ok(lane)
            }
        }
    }

    /// Everything in the lane's stream is done. A lane of which that is not known is dropped instead.
    pub fn give_back(&self, lane: Lane) {
        self.idle.lock().push(lane);
    }

    /// How many were ever made.
    pub fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }
}

impl Copier {
    /// Lets go of what the copies of tickets whose events `ticket` and later ones use again have held. Those copies are
    /// long done where the query has waited for them, as it should; here nobody gets memory that is still written.
    pub fn settle_before(&mut self, ticket: usize, operation: &str) -> Result<(), DeviceError> {
        while let Some((older, _)) = self.pending.front().filter(|(older, _)| older + TICKETS <= ticket) {
            for arrival in &self.arrivals[older % TICKETS] {
                arrival.synchronize(operation)?;
            }
            self.pending.pop_front();
        }
        Ok(())
    }
}

impl Lane {
    fn new(context: &Arc<Context>) -> Result<Lane, DeviceError> {
        let stream = Stream::new(context)?;
        Ok(Lane {
            deferred: Deferred::new(context, &stream)?,
            stream,
            start: Event::new(context)?,
            stop: Event::new(context)?,
            status: Arc::new(StatusWord(Pinned::new(context, 4)?)),
            copier: None,
            context: context.clone(),
        })
    }

    /// The lane's copier. The context is current.
    pub fn copier(&mut self) -> Result<&mut Copier, DeviceError> {
        if self.copier.is_none() {
            let context = &self.context;
            let events = || Ok::<_, DeviceError>([Event::new(context)?, Event::new(context)?]);
            let arrivals = (0..TICKETS).map(|_| events()).collect::<Result<Vec<_>, _>>()?;
            let streams = [Stream::new(context)?, Stream::new(context)?];
            self.copier = Some(Copier { streams, arrivals, next: 0, pending: VecDeque::new() });
        }
        self.copier.as_mut().ok_or_else(|| self.context.failed("a copy", "there is no stream for it"))
    }

    /// Waits for everything.
    pub fn settle(&mut self) -> Result<(), DeviceError> {
        self.stream.synchronize("the end of a query")?;
        if let Some(copier) = &mut self.copier {
            for stream in &copier.streams {
                stream.synchronize("the end of a query")?;
            }
            copier.pending.clear();
        }
        Ok(())
    }

    /// Runs a kernel after what is in the stream, and waits for it, unless launches are deferred; one that is
    /// cancelled already is not started, and nothing is waited for (`None`).
    pub fn launch(
        &mut self,
        pool: &Arc<Pool>,
        launch: &Launch<'_>,
    ) -> Result<Option<LaunchReport>, DeviceError> {
        let Some(kernel) = launch.kernel().as_any().downcast_ref::<CudaKernel>() else {
            return Err(self.context.failed("a launch", "the kernel is of another kind of device"));
        };
        let compiled = &*kernel.compiled();
        if !compiled.is_of(&self.context) {
            return Err(self.context.failed("a launch", "the kernel was compiled for another GPU"));
        }
        let operation = format!("kernel {}", compiled.name);
        let arguments = self.arguments(pool, compiled, launch.arguments(), &operation)?;
        if launch.blocks() == 0 {
            return Err(self.context.failed(&operation, "the grid has no blocks"));
        }
        if launch.cancel().is_cancelled() {
            return Ok(None);
        }
        self.context.enter()?;
        if self.deferred.is_on() {
            self.start_deferred(compiled, launch.blocks(), arguments, &operation)?;
            return Ok(Some(LaunchReport::default()));
        }
        self.status.word().store(0, Ordering::SeqCst);
        self.start.record(&self.stream)?;
        let words = (self.status.pointer(), self.deferred.zero());
        self.start(compiled, launch.blocks(), (arguments, words), &operation)?;
        self.stop.record(&self.stream)?;
        let status = Arc::clone(&self.status);
        let stop = Arc::new(move || {
            // What the kernel reported before stays.
            let _ = status.word().compare_exchange(0, CANCELLED, Ordering::SeqCst, Ordering::SeqCst);
        });
        launch.cancel().while_watched(stop, || self.stop.wait(&operation))?;
        Ok(Some(LaunchReport {
            status: self.status.word().load(Ordering::SeqCst),
            time_ns: self.stop.since_ns(&self.start)?,
            ..LaunchReport::default()
        }))
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
        let mut bits = Vec::with_capacity(arguments.len() + 2);
        for argument in arguments {
            bits.push(match argument {
                KernelArgument::Scalar(_, value) => *value as u128,
                KernelArgument::Buffer(..) | KernelArgument::Window(..) => {
                    let (memory, offset) = match argument.buffer() {
                        Some((buffer, offset)) => (buffer.as_any().downcast_ref::<CudaMemory>(), offset),
                        None => (None, 0),
                    };
                    let Some(memory) = memory.filter(|memory| memory.is_of(pool)) else {
                        return Err(self
                            .context
                            .failed(operation, "an argument is memory of another device"));
                    };
                    u128::from(memory.pointer().wrapping_add(offset))
                }
            });
        }
        Ok(bits)
    }

    /// Starts a kernel that nobody waits for now.
    fn start_deferred(
        &mut self,
        compiled: &Compiled,
        blocks: u32,
        arguments: Vec<u128>,
        operation: &str,
    ) -> Result<(), DeviceError> {
        let Some(slot) = self.deferred.slot(&self.stream)? else { return Ok(()) };
        self.deferred.measure(slot, 0, &self.stream)?;
        self.start(compiled, blocks, (arguments, (slot.status, slot.before)), operation)?;
        self.deferred.measure(slot, 1, &self.stream)
    }

    /// Starts a kernel with its own status word, which is 0, and that of the launch before.
    fn start(
        &self,
        compiled: &Compiled,
        blocks: u32,
        (mut arguments, (status, before)): (Vec<u128>, (CUdeviceptr, CUdeviceptr)),
        operation: &str,
    ) -> Result<(), DeviceError> {
        arguments.extend([u128::from(status), u128::from(before)]);
        let mut pointers: Vec<*mut c_void> =
            arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
        // SAFETY: there is one argument for each parameter and the status words, each at least as large as the
        // parameter; the driver copies them during the call. What the kernel does with its pointers is the caller's.
        let launched = unsafe {
            let grid = (blocks, 1, 1);
            let block = (compiled.shape.threads, 1, 1);
            let shared = compiled.shared_bytes;
            result::launch_kernel(compiled.function, grid, block, shared, self.stream.handle, &mut pointers)
        };
        self.context.check(operation, launched)
    }
}
