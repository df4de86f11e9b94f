//! What is known of a grouping that sorts stride by stride while it runs.

use kelpie_device::Buffer;

/// The runs of one grouping.
#[derive(Debug, Default)]
pub(super) struct Runs {
    /// Where each run of groups ends, the last of which is how many groups there are in all runs.
    pub ends: Vec<u64>,
    /// The stride that was sorted, until its groups have places.
    pub sorted: Option<SortedStride>,
    /// Rows of the longest stride.
    pub most_rows: u64,
    /// How many groups the kernel reduces all runs to, until they take their place.
    pub reduced: Option<u64>,
}

/// A stride in the order of its words.
#[derive(Debug)]
pub(super) struct SortedStride {
    pub words: Buffer,
    /// The number of the run of equal words, a row.
    pub numbers: Buffer,
    pub rows: u64,
    pub groups: u64,
}

impl Runs {
    /// Groups in all runs.
    pub fn groups(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The bounds of the runs.
    pub fn bounds(&self) -> Vec<u64> {
        [0].into_iter().chain(self.ends.iter().copied()).collect()
    }
}
