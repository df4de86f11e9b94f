//! The axes of lanes that exchange rows (DogQC).

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// Where idle lanes of a warp are refilled with rows of other turns: `pipeline/row_loop/lanes`.
    LaneRefill, "lane_refill", Chunk, Paper, "behind which steps idle lanes of a warp are given rows that waited",
    {
        /// Nowhere: a warp goes on with the rows that it has.
        Off = "off",
        /// Behind the last step that drops rows: a filter, a runtime filter, a join with one match.
        Last = "last",
        /// Behind filters.
        Filters = "filters",
        /// Behind each step that drops rows.
        All = "all",
        /// Behind steps from where on less than half of a warp's lanes are thought to have rows: `pipeline/activity`.
        Estimated = "estimated",
    }
);

axis!(
    /// Who takes the matches of a row: `pipeline/row_loop/lanes`, `operator/expand`, `operator/staged`, `operator/walk`.
    MatchLanes, "expansion", Chunk, Paper, "which lanes take the rows that a join with several matches makes of one",
    {
        /// The row's own, one after the other.
        Lane = "lane",
        /// All of its warp, row by row.
        Warp = "warp",
        /// All of its warp, the matches of all of the warp's rows one behind the other.
        Packed = "packed",
        /// The same, but what does not fill the warp waits in the block's memory for the matches of later rows.
        Staged = "staged",
        /// The row's own, one after the other; a lane that has no more takes another row while the others go on.
        Refill = "refill",
    }
);

axis!(
    /// Who looks at the texts without a dictionary of which a filter wants two to be equal, or one to match a pattern: `pipeline/points`,
    /// `operator/texts`, `operator/text_runs`, `operator/match_refill`.
    TextLanes, "text_lanes", Chunk, Paper, "which lanes look at the texts of a row, where a filter compares two or matches one",
    {
        /// The row's own.
        Lane = "lane",
        /// All of its warp, row by row, where two are compared.
        Warp = "warp",
        /// All of its warp, the bytes of all of the warp's rows as one run, where LIKE looks for a text in a table's.
        Run = "run",
        /// The row's own, some bytes at a time, where one is matched; a lane whose match is decided takes another row while the others go on.
        Refill = "refill",
    }
);

axis!(
    /// Who looks at the texts without a dictionary that are keys of a hash table: `table/shared_keys`, `operator/key_texts`.
    KeyTextLanes, "key_text_lanes", Plan, Paper, "which lanes hash and compare the texts of a row that are keys of a hash table",
    {
        /// The row's own.
        Lane = "lane",
        /// All of its warp, row by row.
        Warp = "warp",
    }
);

axis!(
    /// As what rows change lanes: `context/live_columns`, `context/loaded`.
    MovedColumns, "live_columns", Chunk, Paper, "as what rows change lanes, and so where their columns are loaded",
    {
        /// As numbers of rows and places; columns are loaded where they are read (post-projection).
        Places = "places",
        /// As values: columns are loaded at the scan, or at the match, before rows change lanes (full scan).
        Values = "values",
    }
);

numbers!(
    /// Matches of a row from which on they wait in a queue that all warps drain, where a warp shares them; 0: its warp takes
    /// all of them: `operator/queue`.
    QueueMatches, "queue_matches", Chunk, Knob, "matches of one row beyond which all warps take them from a queue",
    [0 = "0", 2 = "2", 32 = "32", 64 = "64", 128 = "128", 256 = "256", 1024 = "1024", 4096 = "4096"]
);

axis!(
    /// Where rows wait that lanes are refilled with: `operator/refill`, `operator/block_refill`.
    RefillBuffer, "refill_buffer", Chunk, Paper, "where rows wait that idle lanes are given, and whose lanes these are",
    {
        /// In registers of a warp, for its lanes.
        Registers = "registers",
        /// In the memory of a block, for all of its warps, as far as there is room and they are together.
        Shared = "shared",
    }
);

numbers!(
    /// Lanes with rows at which a warp goes on, where lanes are refilled: `operator/refill`, `operator/walk`,
    /// `operator/match_refill`.
    RefillThreshold, "refill_threshold", Chunk, Knob, "of 32 lanes, those with rows at which a warp goes on",
    [1 = "1", 8 = "8", 16 = "16", 24 = "24", 28 = "28", 32 = "32"]
);
