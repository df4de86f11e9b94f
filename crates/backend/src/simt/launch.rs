//! What a launch is given, and what comes of it.

use std::collections::BTreeMap;

#[cfg(doc)]
use super::Memory;

/// How a launch runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// Lanes of a warp, 1 to 32.
    pub lanes: u32,
    /// Threads of a block, at least 1.
    pub block_threads: u32,
    /// Blocks of the grid, at least 1.
    pub blocks: u32,
    /// Determines the order in which warps run, and the content of shared memory at the start.
    pub seed: u64,
    /// The most statements (one a warp) before the launch fails: against endless loops.
    pub step_limit: u64,
    /// Checks every access for data races, and `load.ro` for writes: several times slower.
    pub detect_races: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { lanes: 32, block_threads: 64, blocks: 1, seed: 0, step_limit: u64::MAX, detect_races: true }
    }
}

/// An argument of a launch; one a kernel parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// The bits of a scalar, zero- or sign-extended.
    Scalar(i128),
    /// An address of [`Memory`].
    Pointer(u64),
}

/// The threads that came by a `mark`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passages {
    /// Of each number of lanes, how often so many came together; from one lane on.
    pub by_lanes: Vec<u64>,
}

impl Passages {
    pub(super) fn count(&mut self, lanes: u32) {
        let Some(index) = lanes.checked_sub(1).map(|index| index as usize) else { return };
        if self.by_lanes.len() <= index {
            self.by_lanes.resize(index + 1, 0);
        }
        self.by_lanes[index] += 1;
    }
}

/// What a launch did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The status word: 0 is success, 1 cancelled, else what the kernel reported first.
    pub status: u32,
    /// Statements executed, one a warp.
    pub warp_steps: u64,
    /// Statements executed by the warp that executed most.
    pub most_warp_steps: u64,
    /// Statements executed, one an active lane.
    pub lane_steps: u64,
    /// Atomic updates of the memory of blocks, one an active lane.
    pub block_atomics: u64,
    /// The same of the device's memory.
    pub device_atomics: u64,
    /// By the number of a `mark`, who came by.
    pub marks: BTreeMap<u32, Passages>,
}

/// Why a launch cannot go on. Places are a function and the number of a statement in it, counted in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An access outside every allocation, or across the end of one.
    #[error("{place}: out of bounds: {bytes} bytes at {address:#x}{nearest}")]
    OutOfBounds {
        /// Where.
        place: String,
        /// The address.
        address: u64,
        /// Size of the access in bytes.
        bytes: u32,
        /// The closest allocation below the address, in words; empty where there is none.
        nearest: String,
    },
    /// An access at an address that is not a multiple of its size.
    #[error("{place}: misaligned: {bytes} bytes at {address:#x}")]
    Misaligned {
        /// Where.
        place: String,
        /// The address.
        address: u64,
        /// Size of the access in bytes, also its alignment.
        bytes: u32,
    },
    /// Two accesses of two threads, at least one a write, not both atomic, which nothing orders.
    #[error("data race at {address:#x}: {second} and before {first}")]
    DataRace {
        /// The address of the later access.
        address: u64,
        /// The earlier access: kind, thread and place.
        first: String,
        /// The later access.
        second: String,
    },
    /// A read-only load of memory that the launch writes.
    #[error("{place}: read-only load of memory that the launch writes, at {address:#x} by {other}")]
    WrittenReadOnly {
        /// Where the later of the two stands.
        place: String,
        /// The address.
        address: u64,
        /// The other access.
        other: String,
    },
    /// A barrier or uniform load that not all threads of the block reach together.
    #[error("{place}: divergent barrier: {detail}")]
    DivergentBarrier {
        /// Where.
        place: String,
        /// Which threads are missing.
        detail: String,
    },
    /// A lane operation that not all lanes of the warp reach together.
    #[error("{place}: divergent lane operation: lanes {active:#x} of {live:#x} are active")]
    DivergentLaneOperation {
        /// Where.
        place: String,
        /// Mask of the active lanes.
        active: u32,
        /// Mask of the lanes that have not left the kernel.
        live: u32,
    },
    /// A uniform load, or a tally, through addresses that differ.
    #[error("{place}: a uniform load or tally through different addresses")]
    DivergentAddress {
        /// Where.
        place: String,
    },
    /// [`Config::step_limit`] is exhausted.
    #[error("kernel {kernel}: stopped after {steps} steps; a warp is at {place}")]
    StepLimit {
        /// The kernel.
        kernel: String,
        /// Where a warp was.
        place: String,
        /// Steps done.
        steps: u64,
    },
    /// The launch does not fit the kernel, or the configuration is impossible.
    #[error("kernel {kernel}: {message}")]
    BadArguments {
        /// The kernel.
        kernel: String,
        /// What is wrong.
        message: String,
    },
}
