//! Axes of sorts on the device.

use crate::variant::{Axis, Level, Variant};

axis!(
    /// Who sorts: `pipeline/cut`.
    SortPlace, "sort_place", Plan, "who puts the result's rows in order",
    {
        /// A kernel stores them with words of their keys, the device sorts these.
        Device = "device",
        /// The host, when it has the result.
        Host = "host",
    }
);

axis!(
    /// How rows of an order are found where only some are wanted: `pipeline/cut`. The engine sorts all the same where those
    /// are many.
    TopRows, "top_k", Plan, "how the rows of a sort with a limit are found",
    {
        /// By their rank: keys are counted by their digits until few are left.
        Select = "select",
        /// All rows are sorted.
        Sort = "sort",
    }
);

axis!(
    /// Which rows of a sort with a limit are stored at all: `operator/sort/bound`.
    TopBound, "top_bound", Plan, "what keeps rows that cannot be among the first of an order from being stored",
    {
        /// Nothing: all rows are stored.
        Off = "off",
        /// The smallest words that a CPU's worker has seen.
        Heap = "heap",
        /// The words of the first rows of the source, of which as many as are wanted bound those of all others.
        Sample = "sample",
    }
);

axis!(
    /// What a radix sort moves where the bits of a key's word that differ lie within 32: `operator/sort/form`.
    SortKeys, "sort_keys", Plan, "whether the device's sort moves words of keys as a whole or the bits of them that differ",
    {
        /// Keys of 32 bits, where these have all that differs.
        Narrow = "narrow",
        /// Words of 64 bits.
        Wide = "wide",
    }
);

axis!(
    /// How a radix sort comes from one digit to the next: `operator/sort/form`.
    SortPasses, "sort_passes", Plan, "how the device's sort brings rows into the order of a digit",
    {
        /// Tiles are counted, their counts are summed up, and tiles are moved.
        Tiles = "tiles",
        /// Tiles are moved at once: a block learns from the blocks before it where its rows go.
        Sweep = "sweep",
    }
);
