//! What a code generator may ask of a device: never its name.

/// Properties of a device that change which code is generated for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Threads that run in lock step: 32 on NVIDIA GPUs, 1 on a CPU, any 1..=32 in the interpreter.
    pub lanes: u32,
    /// Threads of a block that generated kernels are launched with; a multiple of `lanes`.
    pub block_threads: u32,
    /// Shared memory that one block may use, in bytes. On a CPU: the memory of a worker.
    pub shared_bytes: u32,
    /// Blocks that run at the same time (CPU: workers; GPU: multiprocessors × resident blocks).
    pub resident_blocks: u32,
}

impl Target {
    /// A CPU with `workers` workers: one lane, one thread a block.
    pub fn cpu(workers: u32) -> Target {
        Target { lanes: 1, block_threads: 1, shared_bytes: 1 << 20, resident_blocks: workers.max(1) }
    }

    /// A SIMT device (a GPU, or the interpreter): `lanes` in lock step.
    pub fn simt(lanes: u32, block_threads: u32, shared_bytes: u32, resident_blocks: u32) -> Target {
        Target { lanes, block_threads, shared_bytes, resident_blocks }
    }

    /// Warps of a block.
    pub fn warps(&self) -> u32 {
        self.block_threads.div_ceil(self.lanes)
    }
}
