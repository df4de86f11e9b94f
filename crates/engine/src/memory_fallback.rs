//! What a stage does when device memory is short, one step after the other.

use std::fmt;
use std::sync::Arc;

use kelpie_device::Device;

use crate::columns::Placement;
use crate::stage::Movement;
use crate::{MacroModel, QueryOptions};

/// Bytes of a column of a block, on average: large copies reach the link's bandwidth.
const BLOCK_BYTES: u64 = 16 << 20;
/// Of a smaller block.
const SMALL_BLOCK_BYTES: u64 = 1 << 20;
/// Of the smallest, and of the smallest that is copied.
const LEAST_BLOCK_BYTES: u64 = 24 << 10;
const LEAST_COPIED_BYTES: u64 = 4 << 10;
/// Rows of a block of a source that is a table or a store on the device.
const SMALL_BLOCK_ROWS: u64 = 1 << 16;

/// How much is done to make a stage fit. Later ones take longer and need less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemoryFallback {
    /// As `kelpie.macro_model` says.
    #[default]
    AsAsked,
    /// Inputs stay on the host and stream.
    Blocks,
    /// In smaller blocks; tables start small and are only as large as they must be.
    SmallBlocks,
    /// State is cut into parts by a hash of its keys, which are made one after the other.
    Parts,
}

impl fmt::Display for MemoryFallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryFallback::AsAsked => "as asked",
            MemoryFallback::Blocks => "batch: the inputs stream in blocks",
            MemoryFallback::SmallBlocks => "batch in smaller blocks",
            MemoryFallback::Parts => "in parts: state partitioned through host memory",
        })
    }
}

impl MemoryFallback {
    /// The next step; `None` where this device cannot do more.
    pub fn next(self) -> Option<MemoryFallback> {
        match self {
            MemoryFallback::AsAsked => Some(MemoryFallback::Blocks),
            MemoryFallback::Blocks => Some(MemoryFallback::SmallBlocks),
            MemoryFallback::SmallBlocks => Some(MemoryFallback::Parts),
            MemoryFallback::Parts => None,
        }
    }

    /// How data moves under this fallback.
    pub fn movement(self, options: &QueryOptions, device: &Arc<dyn Device>) -> Movement {
        let budget = device.memory().1;
        let placement = match (self, options.macro_model) {
            (MemoryFallback::AsAsked, MacroModel::Auto) => Placement::Either,
            (MemoryFallback::AsAsked, MacroModel::RunToFinish) => Placement::Device,
            _ => Placement::Host,
        };
        let is_small = matches!(self, MemoryFallback::SmallBlocks | MemoryFallback::Parts);
        let most = if is_small { SMALL_BLOCK_BYTES } else { BLOCK_BYTES };
        // Copies need three buffers a column: of a few columns, or of many. Else a block is as large as what it makes.
        let (share, least) = match options.transfer.copies(device.kind()) {
            true if is_small => (256, LEAST_COPIED_BYTES),
            _ => (64, LEAST_BLOCK_BYTES),
        };
        let fitting = most.min(budget / share).max(least);
        let asked = options.block_bytes.filter(|_| !is_small);
        Movement {
            placement,
            transfer: options.transfer,
            kernel_at_a_time: options.macro_model == MacroModel::KernelAtATime,
            block_bytes: asked.unwrap_or(fitting),
            block_rows: options.block_rows.or(is_small.then_some(SMALL_BLOCK_ROWS)),
            initial_bytes: is_small.then_some(budget / 32),
        }
    }
}
