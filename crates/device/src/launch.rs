//! Launches: a kernel, its arguments, and the promise that the two fit.
#![expect(unsafe_code, reason = "who makes a launch answers for what its kernel does to memory")]

use std::collections::BTreeMap;

use kelpie_kir::Scalar;

use crate::{Buffer, CancelToken, Kernel};

/// An argument of a launch; one a kernel parameter.
#[derive(Debug, Clone)]
pub enum KernelArgument {
    /// A scalar: its bits, zero- or sign-extended.
    Scalar(Scalar, i128),
    /// The address of a buffer plus a byte offset.
    Buffer(Buffer, u64),
    /// A buffer that holds a part of an array, from this byte of the array on: the address that the whole array would
    /// have. The kernel accesses that part only.
    Window(Buffer, u64),
}

impl KernelArgument {
    /// The buffer, and what is added to its address.
    pub(crate) fn buffer(&self) -> Option<(&Buffer, u64)> {
        match self {
            KernelArgument::Scalar(..) => None,
            KernelArgument::Buffer(buffer, offset) => Some((buffer, *offset)),
            KernelArgument::Window(buffer, first) => Some((buffer, first.wrapping_neg())),
        }
    }
}

/// One launch of a kernel, with the promise that it keeps to its memory: running it is safe, so it takes `unsafe` to make it.
/// It is used up when it is run, as the promise holds for one run.
///
/// ```compile_fail,E0133
/// use kelpie_device::{CancelToken, Device, DeviceError, Kernel, KernelArgument, Launch, LaunchReport};
///
/// fn run(
///     device: &dyn Device,
///     kernel: &dyn Kernel,
///     arguments: &[KernelArgument],
/// ) -> Result<LaunchReport, DeviceError> {
///     device.launch(Launch::new(kernel, 1, arguments, &CancelToken::default()))
/// }
/// ```
#[derive(Debug)]
pub struct Launch<'a> {
    kernel: &'a dyn Kernel,
    blocks: u32,
    arguments: &'a [KernelArgument],
    cancel: &'a CancelToken,
}

impl<'a> Launch<'a> {
    /// A launch of `kernel`, which the same device has compiled, on a grid of `blocks` blocks (a CPU: workers), at least one,
    /// with one argument a parameter. A cancellation stops it: its status is then 1.
    ///
    /// # Safety
    /// The device checks number, types and origin of the arguments, and holds their buffers until the launch has ended. The
    /// caller answers for what the kernel does with them:
    /// - it keeps to buffers among the arguments (reads may reach 64 bytes beyond their end), to memory that outlives the launch
    ///   and whose addresses lie in them, and to its own arrays in shared memory. So sizes and positions among the arguments are
    ///   those of the buffers beside them, and so are the positions and addresses that lie in the buffers;
    /// - what an earlier launch of the same query leaves may be among what it relies on, also where that one is deferred
    ///   ([`QueryStream::defer`](crate::QueryStream::defer)): if that one fails, this one does nothing;
    /// - its threads do not race, and while it runs nobody else writes memory that it reads, or reads memory that it writes,
    ///   but by atomics: copies by other threads of the host count. (Uploads and fills of a CPU's buffers wait for the launch.)
    pub unsafe fn new(
        kernel: &'a dyn Kernel,
        blocks: u32,
        arguments: &'a [KernelArgument],
        cancel: &'a CancelToken,
    ) -> Launch<'a> {
        Launch { kernel, blocks, arguments, cancel }
    }

    /// What is launched.
    pub fn kernel(&self) -> &'a dyn Kernel {
        self.kernel
    }

    /// Blocks of the grid.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// One a parameter.
    pub fn arguments(&self) -> &'a [KernelArgument] {
        self.arguments
    }

    /// Stops the launch.
    pub fn cancel(&self) -> &'a CancelToken {
        self.cancel
    }
}

/// What a launch did.
#[derive(Debug, Clone, Default)]
pub struct LaunchReport {
    /// The status word: 0 is success, 1 cancelled, else what the kernel reported.
    pub status: u32,
    /// Time on the device, in nanoseconds.
    pub time_ns: u64,
    /// Warp iterations and active lanes, where the device counts them (the interpreter).
    pub activity: Option<LaneActivity>,
    /// What the launch accessed through each of its arguments, and last what through none of them; empty where nobody
    /// counts.
    pub accessed: Vec<Accessed>,
}

/// Bytes of global memory that kernels really accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accessed {
    /// Loaded.
    pub read: u64,
    /// Stored, or updated by atomics.
    pub written: u64,
}

impl Accessed {
    /// Both.
    pub fn bytes(self) -> u64 {
        self.read.saturating_add(self.written)
    }
}

impl std::ops::AddAssign for Accessed {
    fn add_assign(&mut self, other: Accessed) {
        self.read = self.read.saturating_add(other.read);
        self.written = self.written.saturating_add(other.written);
    }
}

/// How well the lanes of the warps were used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneActivity {
    /// Statements executed, one a warp; 0 where they are not counted.
    pub warp_steps: u64,
    /// Statements executed by the warp that executed most.
    pub most_warp_steps: u64,
    /// Statements executed, one an active lane.
    pub lane_steps: u64,
    /// Atomic updates of the memory of blocks, one an active lane.
    pub block_atomics: u64,
    /// The same of the device's memory.
    pub device_atomics: u64,
    /// By the number of a `mark`: of each number of lanes, from one on, how often so many came by together.
    pub marks: BTreeMap<u32, Vec<u64>>,
}
