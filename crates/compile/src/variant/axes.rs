//! The axes. What a value presupposes, and the rule that picks one, stand where the choice is made; the documentation of each
//! type names the place.

use super::{Axis, Level, Status, Variant};

/// An axis whose values are names.
macro_rules! axis {
    ($(#[$doc:meta])* $type:ident, $name:literal, $level:ident, $status:ident, $about:literal,
     { $($(#[$value_doc:meta])* $value:ident = $value_name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $type { $($(#[$value_doc])* $value),+ }

        impl Variant for $type {
            const AXIS: Axis = Axis {
                name: $name, level: Level::$level, status: Status::$status, values: &[$($value_name),+], about: $about,
            };
            const ALL: &'static [$type] = &[$($type::$value),+];
        }
    };
}

/// An axis whose values are numbers.
macro_rules! numbers {
    ($(#[$doc:meta])* $type:ident, $name:literal, $level:ident, $status:ident, $about:literal, [$($value:literal = $value_name:literal),+]) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(
            /// The number.
            pub u64,
        );

        impl Variant for $type {
            const AXIS: Axis = Axis {
                name: $name, level: Level::$level, status: Status::$status, values: &[$($value_name),+], about: $about,
            };
            const ALL: &'static [$type] = &[$($type($value)),+];
        }
    };
}

mod joins;
mod keys;
mod lanes;
mod parts;
mod rows;
mod sorts;
mod states;

pub use self::joins::{
    AskedRows, BucketEntries, BuildParts, BuiltSide, EmptySlots, FirstLookUps, IndexRows, JoinForm,
    JoinParts, KeyFilter, KeyWindows, Pruning, RowPlaces, RuntimeFilters, TextJoin,
};
pub use self::keys::{ComputedKeys, DependentKeys, GroupsBelow, TextKeys, UniqueRows};
pub use self::lanes::{
    KeyTextLanes, LaneRefill, MatchLanes, MovedColumns, QueueMatches, RefillBuffer, RefillThreshold,
    TextLanes,
};
pub use self::parts::{GroupParts, PartDelivery, PartMemory};
pub use self::rows::{MorselRows, Predication, RowArrangement, RowLoop, SelectionRows, TextSearch};
pub use self::sorts::{SortPasses, SortPlace, SortedGroups, TopBound, WindowRows};
pub use self::states::InitForm;

axis!(
    /// Where groups are: `operator/aggregate`.
    GroupForm, "group_table", Plan, Rule, "where an aggregation with keys finds the groups of its rows",
    {
        /// At the place that the keys' values give.
        Direct = "direct",
        /// In a hash table.
        Hash = "hash",
    }
);

axis!(
    /// Where rows of direct-addressed groups are added up: `operator/aggregate/local/accumulator_memory`.
    AccumulatorMemory, "accumulator_memory", Plan, Paper, "whose memory rows of direct-addressed groups are added up in",
    {
        /// Each thread's own table, in its block's memory.
        Thread = "thread",
        /// The table of a block, or of a CPU's worker.
        Block = "block",
        /// The device's table.
        Global = "global",
        /// Each thread's own table, in the device's memory.
        ThreadGlobal = "thread_global",
    }
);

axis!(
    /// How rows come into the only group: `operator/aggregate/tables/single`.
    SingleSum, "single_sum", Plan, Paper, "how rows come into the only group of an aggregation without keys",
    {
        /// One atomic a row (B2).
        Atomic = "atomic",
        /// Registers, and shuffles in a warp (B3, `simd`).
        Warp = "warp",
        /// Registers, and a tree in a block (B3, `work_efficient`).
        Block = "block",
        /// Registers, and sums of blocks that a second kernel reduces (B1).
        Passes = "passes",
    }
);

axis!(
    /// Who adds up rows of the same group before the table is updated: `operator/aggregate/ordered/segments`.
    SegmentSum, "segments", Plan, Paper, "who adds up rows of the same group before their table is updated",
    {
        /// Nobody: an atomic a row.
        Off = "off",
        /// The threads of a warp.
        Warp = "warp",
        /// The threads of a block.
        Block = "block",
    }
);

axis!(
    /// How a dense write finds its places where they are not counted by a kernel before: `operator/dense`.
    WritePlaces, "write_places", Chunk, Paper, "how a row finds its place in a result, a store or a sort",
    {
        /// An atomic a row (A2).
        Atomic = "atomic",
        /// A prefix sum in a warp, and an atomic for it (A3, `simd`).
        Warp = "warp",
        /// A prefix sum in a block, and an atomic for it (A3, `work_efficient`).
        Block = "block",
        /// A CPU's worker takes a thousand places by an atomic; the last rows fill up what it has left.
        Chunks = "chunks",
        /// A selection vector of a CPU's worker, and an atomic for it.
        Selection = "selection",
    }
);

axis!(
    /// In which order rows come to their groups: `pipeline/cut/groups`.
    GroupOrder, "group_order", Plan, Paper, "in which order rows come to an aggregation with keys",
    {
        /// As the source has them (C2, C3).
        Arrival = "arrival",
        /// Sorted, so that rows of a group come one after the other (C1).
        Sorted = "sorted",
        /// Sorted stride by stride; what strides are reduced to is merged: `pipeline/cut/strides`.
        Strided = "strided",
    }
);

numbers!(
    /// Rows of the source that are sorted, and reduced to groups, together: `pipeline/cut/strides`.
    StrideRows, "stride_rows", Plan, Knob, "rows of a stride of an aggregation that sorts stride by stride",
    [
        64 = "64", 1024 = "1024", 4096 = "4096", 65_536 = "65536", 262_144 = "262144", 1_048_576 = "1048576",
        8_388_608 = "8388608"
    ]
);

axis!(
    /// What the groups of several grouping sets are made of: `pipeline/cut/sets`.
    GroupingLevels, "grouping_levels", Plan, Rule, "what the groups of ROLLUP, CUBE and GROUPING SETS are made of",
    {
        /// Each set's of the rows.
        Direct = "direct",
        /// A coarser set's of a finer set's groups, where that has fewer of them than there are rows.
        Upwards = "upwards",
    }
);

axis!(
    /// How values that count once in their group are found: `pipeline/cut/distinct`.
    DistinctValues, "distinct_values", Plan, Rule, "how an aggregation finds the values that DISTINCT counts once in each group",
    {
        /// In a set of all pairs of group and value, beside the groups.
        Set = "set",
        /// They are the keys of finer groups, of which each brings its value once.
        Groups = "groups",
    }
);

axis!(
    /// How rows at ranks of groups are found: `pipeline/cut/ranked`.
    RankedRows, "ranked_rows", Plan, Rule, "how the rows at the ends of an order are found in groups",
    {
        /// All rows are sorted by keys and order, and every rank is a look into that.
        Sorted = "sorted",
        /// A group keeps the least or the greatest of its rows' numbers, whose upper bits are the order.
        Extremes = "extremes",
    }
);

axis!(
    /// Where columns of sorted groups are read: `pipeline/cut/ranked`.
    RankedColumns, "ranked_columns", Plan, Rule, "where columns of rows that are sorted for values at ranks are read",
    {
        /// Where they are stored.
        Stored = "stored",
        /// In the word that the rows are sorted by, where it has them.
        Word = "word",
    }
);

axis!(
    /// Who strings the texts of sorted groups together: `pipeline/cut/ranked`.
    GroupTexts, "group_texts", Plan, Rule, "who strings the texts of sorted groups together",
    {
        /// A thread those of a group, where they are wanted.
        Groups = "groups",
        /// Every row copies its own, to a place that a prefix sum gives.
        Rows = "rows",
    }
);

axis!(
    /// Whether the places of rows that are written densely are counted by a kernel of its own before (A1): `pipeline/cut`.
    CountPlaces, "count_places", Plan, Paper, "whether a kernel counts rows before another writes them",
    {
        /// They are not: `write_places` says how rows find their places.
        Off = "off",
        /// They are.
        On = "on",
    }
);

axis!(
    /// How keys become a hash: `lower/hashing`.
    HashFunction, "hash_function", Plan, Paper, "how keys become the hash by which a table has them",
    {
        /// The finalizer of MurmurHash3.
        Murmur3 = "murmur3",
        /// Fowler, Noll and Vo's, byte by byte.
        Fnv1a = "fnv1a",
        /// One multiplication, of whose product the upper bits are good ones.
        MultiplyShift = "multiply_shift",
    }
);

axis!(
    /// How a hash becomes the slot of a group where a search begins: `operator/aggregate/keys/input`.
    HashMapping, "hash_mapping", Plan, Paper, "how a hash becomes the slot where the search for a group begins",
    {
        /// The slot is the same share of all slots as the hash is of all hashes.
        MultiplyHigh = "multiply_high",
        /// The remainder.
        Modulo = "modulo",
    }
);

numbers!(
    /// How full a hash table may be: `operator/aggregate/keys/input`, `table/probing`.
    SlotFill, "slot_fill", Plan, Knob,
    "percent of a hash table's slots that may be taken; of groups' also: half, and a table that is never smaller than the last cache",
    [25 = "25", 50 = "50", 75 = "75", 83 = "83", 0 = "cache"]
);

impl SlotFill {
    /// Half of the slots may be taken, and there are no fewer than the last cache has room for (Karnagel et al., section 4, figure 7).
    pub const CACHE: SlotFill = SlotFill(0);
}

axis!(
    /// Where a hash table of groups has keys: `operator/aggregate/keys/input`.
    SlotLayout, "slot_layout", Plan, Rule, "whether a hash table of groups has keys that are no single word beside the sums",
    {
        /// In arrays of their own.
        Apart = "apart",
        /// In the slot: its entry, the keys, the group's sums.
        Beside = "beside",
    }
);

axis!(
    /// How a slot of a hash table of groups is claimed for keys that no single word has: `operator/aggregate/keys/{probes,word_keys}`.
    KeyClaims, "key_claims", Plan, Rule, "how a slot of a hash table of groups is claimed for keys that are too wide for a word",
    {
        /// Its entry is busy while one thread writes the keys: others look again.
        Latch = "latch",
        /// Word by word, so that nobody waits.
        Words = "words",
    }
);

axis!(
    /// How many groups are foreseen where nothing is known of their keys: `operator/aggregate/keys/sketch`.
    GroupEstimate, "group_estimate", Plan, Rule, "whether groups of unknown number are estimated by some of the rows before their table is filled",
    {
        /// By a sketch of the keys of some rows.
        Sketch = "sketch",
        /// They are not: a table that is too small grows, and is filled anew.
        None = "none",
    }
);

numbers!(
    /// Rows that a CPU's worker looks for in hash tables together: `operator/aggregate/local/prefetch_batch`.
    BatchRows, "batch_rows", Plan, Knob, "rows of an aggregation that a CPU's worker looks for in hash tables together",
    [0 = "0", 64 = "64", 256 = "256", 1024 = "1024"]
);

numbers!(
    /// Copies of a block's table of direct-addressed groups: `operator/aggregate/local/table_slices`.
    TableCopies, "table_copies", Plan, Knob, "copies of a block's table of groups, which its threads share out",
    [1 = "1", 2 = "2", 4 = "4", 8 = "8", 16 = "16", 32 = "32"]
);

numbers!(
    /// Slices of a table of direct-addressed groups, of which a block has one at a time: `operator/aggregate/local/table_slices`.
    TableSlices, "table_slices", Plan, Knob, "slices of a table of groups, of which a block has one at a time, each for a pass over the rows",
    [1 = "1", 2 = "2", 4 = "4", 8 = "8"]
);

axis!(
    /// How a block's table has sums that 4 bytes do not: `operator/aggregate/local/block_table`.
    BlockSums, "block_sums", Plan, Rule, "how a block's table of groups has sums of integers that 4 bytes do not",
    {
        /// In words of 8 bytes.
        Words = "words",
        /// Digit by digit, each with a sum in 4 bytes.
        Digits = "digits",
    }
);

numbers!(
    /// Bytes of a count of rows in a block's table: `operator/aggregate/local/block_counts`.
    CountBytes, "count_bytes", Plan, Rule, "bytes of a count of rows in a block's table of groups",
    [1 = "1", 2 = "2", 4 = "4"]
);

axis!(
    /// Whether several narrow cells of a group are fields of one word: `operator/aggregate/functions/packing`.
    CellPacking, "cell_packing", Plan, Rule, "whether counts and sums that are known to be narrow share a word, which a row adds to by one atomic",
    {
        /// Each has a word of its own.
        Off = "off",
        /// Those that fit a word together share it.
        Packed = "packed",
    }
);

numbers!(
    /// Groups of which a block keeps sums in its own memory: `operator/aggregate/local/preaggregation`.
    LocalPreaggregation, "local_preaggregation", Plan, Knob, "groups of a large table of which a block, or a CPU's worker, keeps sums near",
    [0 = "0", 256 = "256", 1024 = "1024", 4096 = "4096", 16_384 = "16384"]
);

axis!(
    /// Whether a thread keeps what rows add to one group: `operator/aggregate/local/run_accumulator`.
    RunAccumulator, "run_accumulator", Plan, Rule, "whether a thread adds up rows of one group before it adds them where all do",
    {
        /// Each row is added.
        Off = "off",
        /// In its registers, until a row of another group comes.
        On = "on",
        /// In its registers, until more rows of other groups have come; these are added each.
        Majority = "majority",
    }
);

axis!(
    /// How the near copy of a group is found: `operator/aggregate/local/preaggregation`.
    PreaggregationSearch, "preaggregation_search", Plan, Paper, "how a block, or a CPU's worker, finds the sums of a group that it keeps near",
    {
        /// By the group's slot in the table of all groups, which is found before.
        Slot = "slot",
        /// By its keys, before anyone looks into the table of all groups: only a group that has no copy is looked for there.
        Key = "key",
    }
);

numbers!(
    /// Rows that a thread prepares before it adds the first to its group: `pipeline/launches`.
    ThreadRows, "thread_rows", Chunk, Paper, "rows that a thread works on in one turn of the row loop",
    [1 = "1", 2 = "2", 4 = "4", 8 = "8"]
);

numbers!(
    /// Threads of a block: `pipeline/launches`.
    BlockThreads, "block_threads", Chunk, Paper, "threads of a block",
    [8 = "8", 16 = "16", 32 = "32", 64 = "64", 128 = "128", 256 = "256", 512 = "512", 1024 = "1024"]
);

numbers!(
    /// Blocks that are to be resident on a multiprocessor, for which the compiler leaves registers; 0: it is free to choose:
    /// `pipeline/launches`.
    ResidentBlocks, "resident_blocks", Chunk, Paper, "blocks of a multiprocessor that registers are left for",
    [0 = "0", 1 = "1", 2 = "2", 4 = "4", 8 = "8"]
);

axis!(
    /// How many blocks a launch over many rows has: `pipeline/launches`.
    Blocks, "blocks", Chunk, Paper, "blocks of a launch over many rows, beside those that fill the device",
    {
        /// A single one.
        One = "one",
        /// A 64th of them: on a GPU, where 64 warps fill a multiprocessor, one warp for each.
        SixtyFourth = "sixty_fourth",
        /// A 32nd of them: one block of 64 threads for each.
        ThirtySecond = "thirty_second",
        /// A sixteenth of them.
        Sixteenth = "sixteenth",
        /// An eighth of them.
        Eighth = "eighth",
        /// A quarter of them.
        Quarter = "quarter",
        /// Half of them.
        Half = "half",
        /// As many as fill the device, or a CPU's workers.
        Fill = "fill",
        /// Twice as many.
        Double = "double",
    }
);

/// Names that axes had before, for one release: sessions may still force them so.
pub(super) const FORMER: [(&str, &str); 7] = [
    ("index_form", "join"),
    ("sieves", "runtime_filters"),
    ("last_group", "run_accumulator"),
    ("placement", "accumulator_memory"),
    ("near_groups", "local_preaggregation"),
    ("near_search", "preaggregation_search"),
    ("carried", "live_columns"),
];

/// Every axis.
pub const ALL: &[Axis] = &[
    GroupForm::AXIS,
    TextKeys::AXIS,
    ComputedKeys::AXIS,
    UniqueRows::AXIS,
    DependentKeys::AXIS,
    GroupsBelow::AXIS,
    AccumulatorMemory::AXIS,
    TableCopies::AXIS,
    TableSlices::AXIS,
    BlockSums::AXIS,
    CountBytes::AXIS,
    CellPacking::AXIS,
    SingleSum::AXIS,
    SegmentSum::AXIS,
    LocalPreaggregation::AXIS,
    PreaggregationSearch::AXIS,
    RunAccumulator::AXIS,
    GroupEstimate::AXIS,
    BatchRows::AXIS,
    BuiltSide::AXIS,
    AskedRows::AXIS,
    TextJoin::AXIS,
    JoinForm::AXIS,
    IndexRows::AXIS,
    BucketEntries::AXIS,
    RowPlaces::AXIS,
    EmptySlots::AXIS,
    Pruning::AXIS,
    KeyFilter::AXIS,
    SortPlace::AXIS,
    TopBound::AXIS,
    WindowRows::AXIS,
    InitForm::AXIS,
    SortPasses::AXIS,
    Predication::AXIS,
    WritePlaces::AXIS,
    RowLoop::AXIS,
    TextSearch::AXIS,
    GroupOrder::AXIS,
    SortedGroups::AXIS,
    StrideRows::AXIS,
    GroupingLevels::AXIS,
    DistinctValues::AXIS,
    RankedRows::AXIS,
    RankedColumns::AXIS,
    GroupTexts::AXIS,
    GroupParts::AXIS,
    PartMemory::AXIS,
    PartDelivery::AXIS,
    JoinParts::AXIS,
    BuildParts::AXIS,
    CountPlaces::AXIS,
    KeyWindows::AXIS,
    RuntimeFilters::AXIS,
    RowArrangement::AXIS,
    FirstLookUps::AXIS,
    MatchLanes::AXIS,
    QueueMatches::AXIS,
    TextLanes::AXIS,
    KeyTextLanes::AXIS,
    MovedColumns::AXIS,
    LaneRefill::AXIS,
    RefillThreshold::AXIS,
    RefillBuffer::AXIS,
    HashFunction::AXIS,
    HashMapping::AXIS,
    SlotFill::AXIS,
    SlotLayout::AXIS,
    KeyClaims::AXIS,
    SelectionRows::AXIS,
    MorselRows::AXIS,
    ThreadRows::AXIS,
    BlockThreads::AXIS,
    ResidentBlocks::AXIS,
    Blocks::AXIS,
];
