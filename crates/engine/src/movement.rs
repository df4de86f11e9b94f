//! How data moves while a stage runs.

use std::sync::Arc;

use kelpie_device::Device;

use crate::columns::Placement;
use crate::memory_fallback::MemoryFallback;
use crate::options::{MacroModel, QueryOptions, Transfer};

/// Bytes of a column of a block, on average: large copies reach the link's bandwidth.
const BLOCK_BYTES: u64 = 16 << 20;
/// Of a smaller block.
const SMALL_BLOCK_BYTES: u64 = 1 << 20;
/// Of the smallest, and of the smallest that is copied.
const LEAST_BLOCK_BYTES: u64 = 24 << 10;
const LEAST_COPIED_BYTES: u64 = 4 << 10;
/// Rows of a block of a source that is a table or a store on the device.
const SMALL_BLOCK_ROWS: u64 = 1 << 16;

/// How data moves while a stage runs.
#[derive(Debug, Clone, Copy)]
pub struct Movement {
    /// Where columns are brought.
    pub placement: Placement,
    /// How kernels get at those on the host.
    pub transfer: Transfer,
    /// What a kernel hands to the next goes through the host.
    pub kernel_at_a_time: bool,
    /// Bytes of a column of a block, on average.
    pub block_bytes: u64,
    /// Rows of a block where nothing streams: all of them where absent.
    pub block_rows: Option<u64>,
    /// Bytes that a state may take at first, where it is not known how much it needs.
    pub initial_bytes: Option<u64>,
}

impl Movement {
    /// How data moves under a fallback.
    pub fn of(fallback: MemoryFallback, options: &QueryOptions, device: &Arc<dyn Device>) -> Movement {
        let budget = device.memory().1;
        let placement = match (fallback, options.macro_model) {
            (MemoryFallback::AsAsked, MacroModel::Auto) => Placement::Either,
            (MemoryFallback::AsAsked, MacroModel::RunToFinish) => Placement::Device,
            _ => Placement::Host,
        };
        let is_small = matches!(fallback, MemoryFallback::SmallBlocks | MemoryFallback::Parts);
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
