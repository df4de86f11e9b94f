//! The axes of joins: their index, their build side, and what it leaves out of the probe side.

use crate::variant::{Axis, Level, Status, Variant};

axis!(
    /// Which side of an inner join has the index: `pipeline/cut/build_side`.
    BuiltSide, "build_side", Plan, Rule, "which side of an inner join, or of NOT IN, is built, and which one streams past it",
    {
        /// The one that the plan has as its build side.
        Written = "written",
        /// The other one: the sides change places.
        Other = "other",
    }
);

axis!(
    /// What is kept of the rows that a join asks for a match: `pipeline/cut/key_extremes`.
    AskedRows, "asked_rows", Plan, Rule, "what a join that asks whether there is a match keeps of the rows that are asked",
    {
        /// All of them.
        All = "all",
        /// The least and the greatest value of each key.
        Extremes = "extremes",
    }
);

axis!(
    /// How the index of a join finds keys: `operator/join/method`.
    JoinForm, "join", Plan, Rule, "how the index of a join finds the rows of a key",
    {
        /// At the place that the key gives.
        Direct = "direct",
        /// By open addressing.
        Hash = "hash",
        /// At the rank that the key has among those that there are, by a bitmap of its range.
        Rank = "rank",
        /// Between two places of an order of the build side's rows, which binary searches find.
        Sorted = "sorted",
        /// Nowhere: every row is tried.
        Loop = "nested_loop",
    }
);

axis!(
    /// As what a join compares texts that have a dictionary on the probe side or on both: `operator/join/key_codes`.
    TextJoin, "text_join", Plan, Rule, "as what a join compares texts that have dictionaries",
    {
        /// As texts.
        Texts = "texts",
        /// As codes of one dictionary: the probe side's are mapped to the build side's, or the build side's texts looked up in the probe side's.
        Codes = "codes",
    }
);

axis!(
    /// How rows with equal keys hang together in the index of a join: `operator/join/facts`.
    IndexRows, "index_rows", Plan, Rule, "how the rows of a key hang together in the index of a join",
    {
        /// Each has the number of the next.
        Chains = "chains",
        /// They stand in a bucket, which takes a second pass.
        Buckets = "buckets",
    }
);

axis!(
    /// What stands in the buckets of a join's index: `operator/join/fill_buckets`.
    BucketEntries, "bucket_entries", Plan, Paper, "what the buckets of a join's index have of the rows of a key",
    {
        /// The numbers of rows that lie elsewhere.
        Numbers = "numbers",
        /// The rows themselves: those of a key lie side by side.
        Rows = "rows",
    }
);

axis!(
    /// Where the rows of a build side lie: `operator/join/methods/placed_rows`.
    RowPlaces, "row_places", Plan, Rule, "where the rows of a join's build side lie",
    {
        /// One behind the other, found by an index.
        Packed = "packed",
        /// At the slots of their keys: they are their own index.
        Slot = "slot",
    }
);

axis!(
    /// How it is seen that a slot of a direct-addressed index of unique keys has no row: `operator/join/methods/direct_index`.
    EmptySlots, "empty_slots", Plan, Rule, "how it is seen that a slot of a direct-addressed index has no row",
    {
        /// By a bitmap, which lies in caches where the slots do not.
        Bitmap = "bitmap",
        /// By the slot itself, which is cleared before.
        Cleared = "cleared",
    }
);

axis!(
    /// Whether values outside of a build side's bounds, or not in its bitmap, are left out at the scan: `pipeline/cut`.
    Pruning, "pruning", Plan, Knob, "whether a finished build side leaves out rows at the probe side's scan",
    {
        /// They are.
        On = "on",
        /// All rows come to the join.
        Off = "off",
    }
);

axis!(
    /// Whether a hash table of a build side has a filter that is asked at the probe side's scan: `pipeline/cut/key_filter`.
    KeyFilter, "key_filter", Plan, Rule, "what tells at the probe side's scan that a hash table of a join has no row with a key",
    {
        /// Nothing: rows are looked up in the table.
        Off = "off",
        /// A Bloom filter, which lies in caches where the table does not.
        Bloom = "bloom",
    }
);

axis!(
    /// Whether keys are compared with the bounds of a build side where a selection vector is made: `pipeline/row_loop/selected/key_windows`.
    KeyWindows, "key_windows", Chunk, Knob, "whether keys beyond a build side's bounds are not selected",
    {
        /// They are compared.
        On = "on",
        /// They are not.
        Off = "off",
    }
);

axis!(
    /// Whether rows are tried by the bitmaps of build sides before any goes on, one bitmap after the other: `pipeline/row_loop/selected`.
    RuntimeFilters, "runtime_filters", Chunk, Rule, "whether rows are selected by runtime filters before any goes on",
    {
        /// They are: without a branch.
        On = "on",
        /// They are tried as they go on.
        Off = "off",
    }
);

numbers!(
    /// Into how many parts the probe side's rows are brought before they come to a join: `pipeline/cut/join_parts`.
    JoinParts, "join_parts", Plan, Knob, "parts of a join's index that rows are brought into before they are looked up, one part after the other",
    [1 = "1", 16 = "16", 64 = "64", 256 = "256", 1024 = "1024"]
);

axis!(
    /// Whether the build side's rows are brought into the same parts: `pipeline/cut/join_parts`.
    BuildParts, "build_parts", Plan, Rule, "whether the rows of a build side are brought into the parts of the index before they are stored",
    {
        /// They are stored as they come.
        Off = "off",
        /// They are stored part after part.
        On = "on",
    }
);

axis!(
    /// How many rows a CPU's worker looks up at once: `pipeline/row_loop/batched`.
    FirstLookUps, "first_look_ups", Chunk, Rule, "whether rows are looked up one by one, or those of a batch of a CPU's worker all at once before one goes on",
    {
        /// One by one, each when it has come through all before.
        Row = "row",
        /// All at once in each of the tables that come before rows become several; then they go on one by one.
        Together = "together",
    }
);
