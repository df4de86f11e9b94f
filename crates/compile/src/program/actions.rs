//! What the engine does around a pipeline's kernel: a list of actions beside the kernel, each with the occasion on which it
//! is due. The engine carries the list out without knowing which operators the kernel has (`engine/stage/actions`); what
//! an operator needs of the host is said here and nowhere else.

use super::{CompiledKernel, SortForm, Sorting};

/// Something that the engine does, and when.
#[derive(Debug, Clone)]
pub struct HostAction {
    /// The occasion.
    pub when: When,
    /// What is done.
    pub task: Task,
}

impl HostAction {
    /// An action for each of several states or classes.
    pub(crate) fn each(when: When, numbers: Vec<usize>, task: fn(usize) -> Task) -> Vec<HostAction> {
        numbers.into_iter().map(|number| HostAction { when, task: task(number) }).collect()
    }
}

/// An occasion for actions. Actions of one occasion are carried out in the order in which they stand, those of several
/// pipelines in the order of the pipelines.
///
/// A group of pipelines (`CompiledPipeline::group`) runs until none of them lacks room; each run goes through the group's chains
/// (`CompiledPipeline::continues`), each chain through the blocks of its source, and a block through the chain's pipelines, each
/// of which is launched until it comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum When {
    /// Once, before the group runs for the first time. All earlier groups are done.
    BeforeGroup,
    /// Before each run of the group, and whenever what it made so far was brought to the host or is to be made again: the
    /// actions of all its pipelines, before any of them is launched.
    BeforeRun,
    /// Before the first block of the pipeline's chain, in each run of the group.
    BeforeChain,
    /// Before the pipeline stores anew what the one that continues it reads: before each attempt at a block of their chain;
    /// where the two run one after the other over all rows, before the first block. Also where the chain is skipped, so
    /// that whoever reads finds nothing.
    BeforeBlock,
    /// Before each launch of the kernel, also when it is repeated.
    BeforeLaunch,
    /// After each launch of the kernel that came to its end.
    AfterLaunch,
    /// Where a kernel of the pipeline reported `Status::Grow`. At least one action has to find that there is too little of
    /// something, else the report is an internal error.
    OnGrow,
    /// Where a kernel of the pipeline reported `Status::NotUnique`.
    OnNotUnique,
}

/// What the engine is to do. States and classes are those of the [`Program`](super::Program).
#[derive(Debug, Clone)]
pub enum Task {
    /// Sets every byte of a state to zero.
    Clear(usize),
    /// Gives a class that has [`Growth::Sized`](super::Growth::Sized) the size that follows from what is counted.
    Size(usize),
    /// Replaces the elements of a state of `u32` by their exclusive prefix sum, over its whole capacity.
    PrefixSum(usize),
    /// Sets the elements of a state of `u32` to how many bits are set in the words of a bitmap before them, over its whole capacity.
    Rank(WordRanks),
    /// Gives the arrays that a pipeline is to write the size that follows from how many rows come to it, where it is not known what
    /// fits.
    Fit(Fitting),
    /// Computes the order of a sort's rows, and how many of them are delivered.
    Sort(Sorting),
    /// Launches nothing of the chain where a state that counts the rows of a build side (one `u64`) has counted none: nothing
    /// that the pipeline could deliver is wanted, and nothing in it may fail.
    SkipIfEmpty(usize),
    /// Finds the places of the rows that the kernel will write. Before a launch.
    Count(Box<Counting>),
    /// Where nothing is known of the sizes of hash tables, estimates them by a sketch of some of the rows, and makes room. Before
    /// the launch that puts the first entries in.
    Sketch(Box<Sketching>),
    /// Fills the places that a CPU's workers have taken and not used with the last rows. After a launch.
    Compact(Compaction),
    /// Adds the rows whose places [`Task::Count`] found to the state that counts those that are written. After a launch.
    Advance(usize),
    /// A step of a grouping that sorts stride by stride.
    Stride(StrideStep, Box<Strides>),
    /// Launches the kernel once more over the ranges that it has left in a queue, if there are any. After a launch.
    Drain(RangeQueue),
    /// Makes room in a class that the kernel may have found too small.
    Grow(usize),
    /// Makes room for the text that kernels make, where it was too little.
    GrowHeap,
    /// Ends the stage, to compile it again without the assumption that a join's keys are unique, which has this number.
    DropAssumption(usize),
}

/// The ranks of the words of a bitmap (`operator/join/methods/rank_index`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordRanks {
    /// State of one `u32` a word: the bitmap.
    pub bits: usize,
    /// State of as many `u32`: the bits in all words before.
    pub ranks: usize,
}

/// How many elements arrays are to have, of which a state has counted those of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitting {
    /// State of one `u64`: rows or groups that come to the pipeline, at most.
    pub count: usize,
    /// Class of the arrays.
    pub class: usize,
    /// Elements of each of them.
    pub each: u64,
    /// Elements beside these.
    pub slack: u64,
    /// Some of them may be dropped: no more room than the program says is made for all.
    pub drops: bool,
}

/// Places of an array that workers have left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compaction {
    /// State of one `u64`: the places that are taken, and behind it the rows.
    pub count: usize,
    /// Class of the array: an element of each of its states is a row's.
    pub class: usize,
    /// State of two `u64` a worker: the first place that it has left, and the one behind the last.
    pub left: usize,
}

/// A queue of long ranges, which one launch of a kernel leaves for the next, to be taken in pieces (`operator/queue`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeQueue {
    /// State that counts the ranges that a launch has left, above [`RangeQueue::PIECE_BITS`], and their pieces, below: one `u64`. Zero
    /// before the launch.
    pub pieces: usize,
    /// State that counts the words that all launches have asked for, one `u64`.
    pub asked: usize,
    /// State of one `u64` a word. What finds no room in it is done without the queue.
    pub words: usize,
}

impl RangeQueue {
    /// Bits of [`RangeQueue::pieces`] that count pieces.
    pub const PIECE_BITS: u64 = 40;

    /// The pieces that a word of [`RangeQueue::pieces`] counts.
    pub const fn pieces_of(word: u64) -> u64 {
        word & ((1 << RangeQueue::PIECE_BITS) - 1)
    }
}

/// How a dense write in several kernels (HorseQC, Table 4, A1) finds the places of its rows, at each launch over some rows of
/// the source: the count kernel, the exclusive prefix sum of `counts`, and room for the rows in `class`.
#[derive(Debug, Clone)]
pub struct Counting {
    /// Counts; `None`: each row of the source becomes one, and there are no counts.
    pub kernel: Option<CompiledKernel>,
    /// State of one `u32` a row of the launch, and one more for their sum.
    pub counts: Option<usize>,
    /// The kernel passes all rows of the launch. Where only the device knows how many there are, it is launched for as many as there may be;
    /// and of parts it may leave out places that no row has. The counts of what it does not pass must be 0.
    pub counts_every_row: bool,
    /// State of one `u64`: rows of the launch, where that may be more than a `u32` holds. Zero before the launch.
    pub rows: Option<usize>,
    /// State of one `u64`: rows that are written.
    pub total: usize,
    /// Class of the arrays that are written.
    pub class: usize,
    /// No more rows than this are written.
    pub limit: Option<u64>,
}

/// A sketch of the entries that hash tables will have (HyperLogLog: Flajolet et al. 2007): a kernel brings some of a pipeline's rows
/// to registers, as the pipeline's own kernel brings all of them to the tables.
#[derive(Debug, Clone)]
pub struct Sketching {
    /// Looks at rows.
    pub kernel: CompiledKernel,
    /// What it works on.
    pub states: SketchStates,
}

/// The states of a sketch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SketchStates {
    /// State of the kernel's morsel counter, on a CPU. Zero before each launch.
    pub morsels: Option<usize>,
    /// State that counts the rows that came to the tables, one `u64`. Zero before the first launch, as all of these.
    pub rows: usize,
    /// The tables.
    pub tables: Vec<SketchedTable>,
    /// Rows of the source from which on the sketch is made.
    pub least_rows: u64,
}

/// A hash table whose entries are sketched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SketchedTable {
    /// State of the registers, [`SketchedTable::REGISTERS`] of `u32`.
    pub registers: usize,
    /// The table's class.
    pub class: usize,
}

impl SketchedTable {
    /// Bits of a hash that say which register it goes to. Of 2¹² registers the standard error is 1.6 percent.
    pub const REGISTER_BITS: u32 = 12;
    /// Registers of a table. Each has the greatest rank of the hashes that went to it: the place of the first bit that is set among
    /// those below, counted from one; 0 where none did.
    pub const REGISTERS: u32 = 1 << SketchedTable::REGISTER_BITS;
}

/// Groups at places in the order of their keys, run by run: what strides of rows are reduced to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacedGroups {
    /// State of one `u64` that counts them.
    pub count: usize,
    /// Class of the states that follow.
    pub class: usize,
    /// State of one `u64` a group: the word of its keys, by which it is sorted.
    pub words: usize,
    /// State of each group's cells.
    pub cells: usize,
}

/// A grouping that sorts its rows stride by stride (`pipeline/cut/strides`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strides {
    /// How a stride is sorted.
    pub form: SortForm,
    /// State of one `u64` that counts the rows of a stride.
    pub rows: usize,
    /// State of one `u64` a row of a stride: the word of its keys.
    pub words: usize,
    /// State of one `u32` a row of a stride: to be filled with the rows' places in the order of their words.
    pub order: usize,
    /// State of one `u32` a row of a stride: to be filled with the places of the groups of the rows in that order.
    pub places: usize,
    /// The groups of all strides so far, a sorted run a stride, or of several that were merged.
    pub partial: PlacedGroups,
    /// The groups of several runs as one, and in the end those of all.
    pub merged: PlacedGroups,
    /// State of one `u32` a group of `partial`: to be filled with their places in the order of their words.
    pub merge_order: usize,
    /// State of one `u32` a group of `partial`: to be filled with the places in `merged` of the groups in that order.
    pub merge_places: usize,
    /// Rows at most, in all strides.
    pub row_bound: u64,
}

/// A step of such a grouping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrideStep {
    /// There are no groups yet. Before a run.
    Begin,
    /// Sorts the stride that was stored, and counts its groups. Where `partial` has no room for them, merges its runs, so that the
    /// kernel reduces them into `merged`; else nothing is to be launched. Before a launch.
    Sort,
    /// What was reduced into `merged` becomes the only run of `partial`. After a launch.
    Exchange,
    /// Gives the groups of the sorted stride their places in `partial`, into which the kernel reduces its rows. Before a launch.
    Place,
    /// Merges the runs of `partial`, so that the kernel reduces them into `merged`, once all strides are done. Where there is one run, it
    /// is what was to be made, and no groups are left to be reduced. Before the group.
    Merge,
}
