//! What a code generator may ask of a device: never its name.

/// Properties of a device that change which code is generated for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Threads that run in lock step: 32 on NVIDIA GPUs, 1 on a CPU, any 1..=32 in the interpreter.
    pub lanes: u32,
    /// Threads of a block that suit most kernels, which may be launched with others; a multiple of `lanes`.
    pub block_threads: u32,
    /// Shared memory that one block may use, in bytes. On a CPU: the memory of a worker.
    pub shared_bytes: u32,
    /// Blocks that run at the same time (CPU: workers; GPU: multiprocessors × resident blocks).
    pub resident_blocks: u32,
    /// Bytes of the widest vector that the device handles in one instruction: a machine register, or a wide load. Longer
    /// vectors are split. 0 where the device has no vectors: [`validate_for`](crate::validate_for) then rejects them.
    pub vector_bytes: u32,
    /// Bytes behind the end of every buffer that may be read, whatever they are.
    pub margin_bytes: u32,
    /// Whether the threads that come by a `mark` are counted, by the device or by the kernel: kernels have marks then.
    pub counts_marks: bool,
}

/// Bytes of a vector register of every CPU, and of a wide load of every GPU, that has vectors at all.
pub const VECTOR_BYTES: u32 = 16;

/// Bytes behind the end of every buffer of a CPU that may be read, so that loads of vectors and words need no tail.
pub const MARGIN_BYTES: u32 = 64;

impl Target {
    /// A CPU with `workers` workers: one lane, one thread a block.
    pub fn cpu(workers: u32) -> Target {
        Target {
            lanes: 1,
            block_threads: 1,
            shared_bytes: 1 << 20,
            resident_blocks: workers.max(1),
            vector_bytes: VECTOR_BYTES,
            margin_bytes: MARGIN_BYTES,
            counts_marks: false,
        }
    }

    /// A SIMT device (a GPU, or the interpreter): `lanes` in lock step.
    pub fn simt(lanes: u32, block_threads: u32, shared_bytes: u32, resident_blocks: u32) -> Target {
        Target {
            lanes,
            block_threads,
            shared_bytes,
            resident_blocks,
            vector_bytes: VECTOR_BYTES,
            margin_bytes: 0,
            counts_marks: false,
        }
    }

    /// Whether kernels may use vectors and masks.
    pub fn has_vectors(&self) -> bool {
        self.vector_bytes > 0
    }

    /// Warps of a block.
    pub fn warps(&self) -> u32 {
        self.block_threads.div_ceil(self.lanes)
    }
}
