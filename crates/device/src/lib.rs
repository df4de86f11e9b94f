//! Devices of Kelpie: memory, kernel cache and launches on CPU, CUDA and the SIMT interpreter.
//!
//! **What is trusted.** A device checks what the host gives it: that arguments are of the parameters' types and buffers of this
//! device, and that copies stay inside of them. It does not check what a kernel does: a valid module may address any memory,
//! and only the interpreter looks at each access. Nor is a module safe or not by itself: one that is right for a buffer of a
//! thousand rows writes over other memory when it is told that there are two thousand. So the promise is one of the module and
//! its arguments together, and it is a value: a [`Launch`], which only `unsafe` code can make ([`Launch::new`]), and which running
//! uses up. Everything else here is safe, as compiling runs nothing.

mod access;
mod arguments;
pub mod behind;
mod cache;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod disk_cache;
mod launch;
mod memory;
#[cfg(feature = "cuda")]
pub mod nvrtc;
mod query;
#[cfg(feature = "simt")]
pub mod simt;
#[cfg(feature = "testing")]
pub mod testing;

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use arguments::{check_arguments, kernel_params};
pub use launch::{Accessed, KernelArgument, LaneActivity, Launch, LaunchReport};
pub use memory::prefer_huge_pages;
use parking_lot::Mutex;
pub use query::{CopyTicket, Download, HostCopy, QueryStream, Settled};

use kelpie_kir::{Target, ValidModule};

/// What went wrong on a device.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeviceError {
    /// The device's memory budget does not allow an allocation.
    #[error("{device}: out of memory: {requested} bytes asked for, {used} of {limit} bytes in use")]
    OutOfMemory {
        /// Which device.
        device: String,
        /// Bytes asked for.
        requested: u64,
        /// Bytes in use.
        used: u64,
        /// The budget in bytes.
        limit: u64,
    },
    /// The device or its driver is not usable.
    #[error("{device} is not usable: {reason}")]
    NotUsable {
        /// Which device.
        device: String,
        /// What is missing, and where it was looked for.
        reason: String,
    },
    /// A kernel does not compile: a bug of Kelpie.
    #[error("{device}: kernel {kernel} does not compile: {message}")]
    Compile {
        /// Which device.
        device: String,
        /// Which kernel.
        kernel: String,
        /// The compiler's words.
        message: String,
    },
    /// A launch or a copy failed.
    #[error("{device}: {operation} failed: {message}")]
    Failed {
        /// Which device.
        device: String,
        /// What was tried.
        operation: String,
        /// The driver's words.
        message: String,
    },
}

/// The kind of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// This machine's processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// The SIMT interpreter: slow, and checks everything.
    Simt,
}

/// What a query's launches have in common: how it is cancelled from another thread, and what it has had of a CPU's workers.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<Cancellation>);

#[derive(Default)]
struct Cancellation {
    cancelled: AtomicBool,
    /// Time of workers, in nanoseconds: what it has had, and what it is known to need in all, 0 where that is not known.
    worker_ns: AtomicU64,
    needs_ns: AtomicU64,
    /// When the workers got its first launch, by their clock.
    arrival: OnceLock<Duration>,
    /// Stop what runs at the moment.
    watchers: Mutex<Vec<Watcher>>,
}

/// Stops something that runs.
type Watcher = Arc<dyn Fn() + Send + Sync>;

impl Debug for Cancellation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancellation").field("cancelled", &self.cancelled).finish_non_exhaustive()
    }
}

impl CancelToken {
    /// Asks the query to stop.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        for watcher in self.0.watchers.lock().iter() {
            watcher();
        }
    }

    /// Whether it was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }

    /// Set once it was asked to stop: for those who cannot ask.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.cancelled
    }

    /// Time that workers of a CPU have spent on the query's launches, of all of them together.
    pub fn worker_time(&self) -> Duration {
        Duration::from_nanos(self.0.worker_ns.load(Ordering::Relaxed))
    }

    /// Tells what the query took of workers when it ran before: those that take less go first.
    pub fn expect_worker_time(&self, time: Duration) {
        self.0.needs_ns.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    pub(crate) fn expected_worker_time(&self) -> Duration {
        Duration::from_nanos(self.0.needs_ns.load(Ordering::Relaxed))
    }

    /// When the workers got the query's first launch, which is now where there was none.
    pub(crate) fn arrival(&self, now: Duration) -> Duration {
        *self.0.arrival.get_or_init(|| now)
    }

    pub(crate) fn add_worker_time(&self, time: Duration) {
        self.0.worker_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Runs `body`; a cancellation before its end calls `stop`, at once and from the cancelling thread.
    pub fn while_watched<R>(&self, stop: Watcher, body: impl FnOnce() -> R) -> R {
        self.0.watchers.lock().push(Arc::clone(&stop));
        if self.is_cancelled() {
            stop();
        }
        let result = body();
        self.0.watchers.lock().retain(|other| !Arc::ptr_eq(other, &stop));
        result
    }
}

/// Device memory. Freed (to the device's pool) when the last clone is dropped.
pub trait Memory: Send + Sync + Debug {
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// For the device's own use.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A shared handle of device memory.
pub type Buffer = Arc<dyn Memory>;

/// What a device's driver tells of its parts; `None` where it tells nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Multiprocessors.
    pub multiprocessors: Option<u64>,
    /// Bytes of shared memory that a block may have at most.
    pub shared_bytes: Option<u64>,
    /// Bytes of the last cache before the device's memory.
    pub last_cache: Option<u64>,
}

/// What a kernel's code is told of the blocks that it is launched in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockShape {
    /// Threads of a block: 1 on a CPU; elsewhere a multiple of the device's lanes, or fewer than these.
    pub threads: u32,
    /// Blocks that are to fit on a multiprocessor at the same time, where the compiler is not free to choose: it then uses
    /// no more registers than that leaves.
    pub resident: Option<u32>,
}

/// What a module that is printed as CUDA says of the blocks.
#[cfg(any(feature = "cuda", feature = "simt"))]
pub(crate) fn print_options(shape: BlockShape) -> kelpie_backend::cuda::Options {
    kelpie_backend::cuda::Options {
        block_threads: Some(shape.threads),
        resident_blocks: shape.resident,
        kernel: None,
    }
}

impl BlockShape {
    /// Threads of a block, at most.
    pub const MOST_THREADS: u32 = 1024;

    /// The shape of blocks that suits most kernels of a device.
    pub fn of(target: &Target) -> BlockShape {
        BlockShape { threads: target.block_threads, resident: None }
    }

    /// Why a device with this target has no such blocks, if it has none.
    pub(crate) fn problem(&self, target: &Target) -> Option<String> {
        let threads = self.threads;
        let fits = match target.lanes == 1 && target.block_threads == 1 {
            true => threads == 1,
            false => {
                (1..=BlockShape::MOST_THREADS).contains(&threads)
                    && (threads < target.lanes || threads.is_multiple_of(target.lanes))
            }
        };
        (!fits).then(|| format!("there are no blocks of {threads} threads"))
    }
}

/// `kelpie.compile`: which code a kernel gets, where a device has several compilers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Tier {
    /// What is made soonest: on a GPU the driver assembles PTX.
    Quick,
    /// What runs fastest: on a GPU NVRTC compiles CUDA C++, and whoever asks waits for it.
    Best,
    /// The best code where it is there; else what is made soonest, until the best code, which is made behind the queries, takes
    /// its place at a launch.
    #[default]
    Auto,
}

/// Where the time went that a kernel took to make, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildTimes {
    /// To its source text.
    pub print_ns: u64,
    /// To machine code.
    pub build_ns: u64,
    /// To where it can be launched, from the disk too.
    pub load_ns: u64,
}

/// A compiled kernel of one device.
pub trait Kernel: Send + Sync + Debug {
    /// Time to compile, in nanoseconds; 0 where a cache had it.
    fn compile_ns(&self) -> u64;
    /// Where the time went that it took to make it for whoever asked; all 0 where it was there.
    fn build_times(&self) -> BuildTimes {
        BuildTimes { build_ns: self.compile_ns(), ..BuildTimes::default() }
    }
    /// For the device's own use.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// A device runs kernels over its memory. All of it is thread safe.
pub trait Device: Send + Sync + Debug {
    /// Its kind.
    fn kind(&self) -> DeviceKind;
    /// Its name, for people.
    fn name(&self) -> String;
    /// What tells it, and its driver, from others: what was measured of it is kept under this.
    fn identity(&self) -> String {
        self.name()
    }
    /// What its driver tells of its parts.
    fn attributes(&self) -> Attributes {
        Attributes::default()
    }
    /// Whether it can do nothing any more: its driver has lost the context. What was compiled for it and what lies in its
    /// memory are lost with it; once nobody holds any of that, the device may be opened again.
    fn is_lost(&self) -> bool {
        false
    }
    /// Properties for `kelpie devices`: name and value.
    fn properties(&self) -> Vec<(String, String)>;
    /// What code is generated for.
    fn target(&self) -> &Target;
    /// Bytes in use and the budget.
    fn memory(&self) -> (u64, u64);
    /// Tells what [`Device::memory`] counts from what it counts of other devices, while anybody holds the device, weakly too.
    fn memory_id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>().addr()
    }
    /// The same of all memory that the device shares with others, of which it may have a part of its own.
    fn all_memory_id(&self) -> usize {
        self.memory_id()
    }
    /// Sets the budget in bytes; `None` for the device's default.
    fn set_memory_limit(&self, limit: Option<u64>);
    /// Memory of `bytes` bytes (16-byte aligned, readable up to the next 64 bytes), undefined content.
    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError>;
    /// Memory of the host that this device's kernels address too, outside of the budget: for data that has no room on
    /// the device.
    fn allocate_host(&self, bytes: usize) -> Result<Buffer, DeviceError>;
    /// Copies from the host.
    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError>;
    /// Copies to the host.
    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError>;
    /// Sets every byte of a part.
    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError>;
    /// Compiles a kernel of a module, or takes it from a cache. All its launches are in blocks of that shape.
    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError>;
    /// As [`Device::compile_for`], in blocks of the shape that suits most kernels.
    fn compile(&self, module: &ValidModule, kernel: &str) -> Result<Arc<dyn Kernel>, DeviceError> {
        self.compile_for(module, kernel, BlockShape::of(self.target()))
    }
    /// Compiles a kernel behind the queries, where this device does such things: whoever asks for it later need not wait as long.
    fn compile_behind(&self, _: &Arc<ValidModule>, _: &str, _: BlockShape) {}
    /// Waits until the best code of every kernel is there that was compiled so far.
    fn finish_compiling(&self) {}
    /// The code that `compile_for` makes, for people: CLIF or CUDA C.
    fn code(&self, module: &ValidModule, shape: BlockShape) -> Result<String, DeviceError>;
    /// Runs a kernel and waits for it.
    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError>;
    /// The operations of one query, in an order of their own.
    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError>;
}
