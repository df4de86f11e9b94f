//! What a stage does when device memory is short, one step after the other.

use std::fmt;

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
}
