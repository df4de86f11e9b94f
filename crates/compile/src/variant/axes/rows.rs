//! The axes of how rows of a table go through the steps.

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// How dead rows flow: `pipeline/variants`.
    Predication, "predication", Chunk, Paper, "whether rows that a filter drops are branched around or carried along with a flag",
    {
        /// A branch around what follows.
        Branches = "branches",
        /// A flag, at uniform control flow.
        Flags = "flags",
    }
);

axis!(
    /// How many rows of a table go through the steps at once: `pipeline/row_loop`.
    RowLoop, "row_loop", Chunk, Paper, "whether rows of a table go through the steps one by one or several at once",
    {
        /// One by one.
        Single = "single",
        /// Filters see several rows at once and make a selection vector; the rows in it go on one by one.
        Selected = "selected",
        /// Several at once, up to the sums.
        Wide = "wide",
    }
);

axis!(
    /// Where the rows lie that a thread of a SIMT device tries, or loads, at once: `pipeline/row_loop/staged_filtering`, `pipeline/row_loop/prefetched`.
    RowArrangement, "row_arrangement", Chunk, Rule, "where the rows lie that a thread tries or loads before one of them goes on",
    {
        /// As far apart as a block has threads, so that those of a warp are side by side.
        Striped = "striped",
        /// Side by side, so that one load brings all values of a column.
        Blocked = "blocked",
    }
);

axis!(
    /// How texts are searched for what a filter's pattern has between two `%`: `pipeline/row_loop/selected/text_search`.
    TextSearch, "text_search", Chunk, Rule, "whether texts that a filter matches are searched one by one or those of a batch as one run of bytes",
    {
        /// Each row's by itself.
        Rows = "rows",
        /// Those of a CPU worker's batch together, as they lie one behind the other.
        Batches = "batches",
    }
);

numbers!(
    /// Rows of a batch of a CPU's worker, whose selection vector should stay in the first-level cache: `pipeline/row_loop/selected`.
    SelectionRows, "selection_rows", Chunk, Knob, "rows for which a CPU's worker makes one selection vector",
    [256 = "256", 1024 = "1024", 4096 = "4096"]
);

numbers!(
    /// Rows that a CPU's worker takes at a time: `pipeline/row_loop/morsels`.
    MorselRows, "morsel_rows", Chunk, Knob, "rows that a CPU's worker takes at a time",
    [4096 = "4096", 16384 = "16384", 65536 = "65536", 262_144 = "262144"]
);
