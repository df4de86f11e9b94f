//! Axes of sorts on the device.

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// Who sorts: `pipeline/cut`.
    SortPlace, "sort_place", Plan, Rule, "who puts the result's rows in order",
    {
        /// Nobody: they come in its order, which is kept where they are written.
        Input = "input",
        /// A kernel stores them with words of their keys, the device sorts these.
        Device = "device",
        /// The host, when it has the result.
        Host = "host",
    }
);

axis!(
    /// Which rows of a sort with a limit are stored at all: `operator/sort/bound`.
    TopBound, "top_bound", Plan, Rule, "what keeps rows that cannot be among the first of an order from being stored",
    {
        /// Nothing: all rows are stored.
        Off = "off",
        /// The smallest words that a CPU's worker has seen.
        Heap = "heap",
        /// The same, and batches of rows that are all beyond these are passed over before anything else is done with them.
        Batches = "batches",
    }
);

axis!(
    /// Which rows a window stores: `pipeline/cut/first_ranks`.
    WindowRows, "window_rows", Plan, Rule, "which rows of a window are sorted where a filter keeps the first of each partition",
    {
        /// All of them.
        All = "all",
        /// Those that may be among the first, by bounds that are found before.
        First = "first",
    }
);

axis!(
    /// What sorted rows are reduced in: `pipeline/cut/sorted_groups`.
    SortedGroups, "sorted_groups", Plan, Paper, "how rows that were sorted by their keys become groups",
    {
        /// In a table of groups.
        Table = "table",
        /// Runs of equal keys, by segments: no table is filled (C1).
        Runs = "runs",
    }
);

axis!(
    /// How a radix sort comes from one digit to the next: `operator/sort/form`.
    SortPasses, "sort_passes", Plan, Rule, "how the device's sort brings rows into the order of a digit",
    {
        /// Tiles are counted, their counts are summed up, and tiles are moved.
        Tiles = "tiles",
        /// Tiles are moved at once: a block learns from the blocks before it where its rows go.
        Sweep = "sweep",
        /// As tiles, but by no more digits than tell most rows apart: those that are left follow each other, and are put in order one by one.
        Leading = "leading",
    }
);
