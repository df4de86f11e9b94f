//! A compiled query: kernels, the state they share, and where the result lies. What the engine runs.

mod actions;
mod argument;

pub use self::actions::{
    Compaction, Counting, Fitting, HostAction, PlacedGroups, RangeQueue, SketchStates, SketchedTable,
    Sketching, StrideStep, Strides, Task, When, WordRanks,
};
pub use self::argument::{Argument, ColumnPart, Constant, HeapPart, Status};

use kelpie_kir::{Module, Scalar};

use crate::layout::{ColumnFacts, ColumnLayout, Direction, Scattered};
use crate::shape::LaunchShape;
use crate::types::{DataType, Range};
use crate::variant::Genome;
use crate::variant::axes::{InitForm, SlotFill, SortPasses};

/// What the compiler must know of a scan's data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScanInfo {
    /// Rows.
    pub rows: u64,
    /// Of each column of the scan.
    pub columns: Vec<ColumnFacts>,
    /// What is known of the values that columns have together.
    pub multi_column_distinct: Vec<MultiColumnDistinct>,
}

impl ScanInfo {
    /// A scan of which no more is known.
    pub fn new(rows: u64, layouts: Vec<ColumnLayout>) -> ScanInfo {
        let columns = layouts.into_iter().map(ColumnFacts::from).collect();
        ScanInfo { rows, columns, multi_column_distinct: Vec::new() }
    }

    /// As it is, but that `known` is how a column's values are scattered.
    pub fn with_scattered(mut self, column: usize, known: Option<Scattered>) -> ScanInfo {
        if let Some(facts) = self.columns.get_mut(column) {
            facts.scattered = known;
        }
        self
    }
}

/// Many values that several columns of a scan have together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct MultiColumnDistinct {
    /// Numbers of the columns, ascending.
    pub columns: Vec<usize>,
    /// About how many combinations there are, few of which have many rows.
    pub values: u64,
}

/// A compiled query.
#[derive(Debug, Clone)]
pub struct Program {
    /// To be run one after the other.
    pub pipelines: Vec<CompiledPipeline>,
    /// Buffers that the kernels share.
    pub states: Vec<State>,
    /// Capacities of the buffers.
    pub classes: Vec<CapacityClass>,
    /// How its states become empty.
    pub init: InitStates,
    /// Where the result lies.
    pub output: OutputLayout,
    /// The rows of the result come in the order of the sort on top, though nobody sorts them.
    pub is_in_order: bool,
    /// The variants that were chosen.
    pub genome: Genome,
}

impl Program {
    /// Whether the rows of the result have places, by their order.
    pub fn is_ordered(&self) -> bool {
        self.is_in_order || self.sorting().is_some()
    }

    /// The sort on top, where there is one that is not left to the host.
    pub fn sorting(&self) -> Option<&Sorting> {
        // Rows of an inner sort may go to the result too.
        let sorting = self.pipelines.last().and_then(|pipeline| pipeline.variant.sorting());
        sorting.filter(|sorting| sorting.class.is_some())
    }
}

/// The states that are made empty before the first kernel (INIT), whichever pipeline asks for it: nothing writes them until then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InitStates {
    /// How.
    pub form: InitForm,
    /// Those that may be, in the order of their pipelines.
    pub states: Vec<usize>,
}

/// How the device's radix sort goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SortForm {
    /// How it comes from one digit to the next.
    pub passes: SortPasses,
}

impl SortForm {
    /// What every device can do.
    pub const PLAIN: SortForm = SortForm { passes: SortPasses::Tiles };
}

/// A sort whose rows are stored: what the engine does before the pipeline that delivers them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorting {
    /// State that counts the stored rows, one `u64`.
    pub rows: usize,
    /// States of one `u64` a row: the keys, most significant word first.
    pub words: Vec<usize>,
    /// Whether the words decide the order: else rows whose words are equal are to be compared by their columns.
    pub is_exact: bool,
    /// The texts among the keys, which the words may leave undecided, in the order of their words.
    pub texts: Vec<SortedText>,
    /// State of one `u32` a row: to be filled with the rows' places in order.
    pub order: usize,
    /// State of one `u64` a row, where one is wanted: to be filled with the first words in order.
    pub sorted_word: Option<usize>,
    /// State of one `u64`: to be set to the number of rows that are delivered.
    pub delivered: usize,
    /// Class of the delivered rows, where they are stored again.
    pub class: Option<usize>,
    /// At most this many rows are wanted; where they are few, they are selected by their rank, and the others are not sorted.
    pub fetch: Option<u64>,
    /// How they are sorted, where that is not left to one block or the host.
    pub form: SortForm,
}

/// A text among the keys of a sort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedText {
    /// The word (its number) that ends what the words have of it.
    pub word: usize,
    /// The later texts are the first.
    pub descending: bool,
    /// States of `u64` and `u32` a row: the address and the length in bytes. Not there where texts are stored as codes.
    pub stored: Option<(usize, usize)>,
}

/// A kernel, and what it is given.
#[derive(Debug, Clone)]
pub struct CompiledKernel {
    /// Holds just this kernel.
    pub module: Module,
    /// The kernel's name.
    pub name: String,
    /// One a parameter.
    pub arguments: Vec<Argument>,
    /// How it is launched.
    pub shape: LaunchShape,
    /// Rows of its source that one thread sees, at most, where sums were laid out for that: no launch may have more.
    pub thread_rows: u64,
}

impl CompiledKernel {
    /// Whether it makes text.
    pub fn makes_text(&self) -> bool {
        self.arguments.iter().any(|argument| matches!(argument, Argument::Heap(_)))
    }
}

/// One pipeline: rows of a source that are brought to a sink.
#[derive(Debug, Clone)]
pub struct CompiledPipeline {
    /// What it does, for people.
    pub name: String,
    /// What is known of its rows as a whole, a line for its source and one for the result, for people.
    pub known: Vec<String>,
    /// How that is done, by what was chosen.
    pub variant: PipelineVariant,
    /// Other ways to do it, which blocks of its rows may take in turn with that one ([`Choices::rotation`](crate::choices::Choices)).
    pub others: Vec<PipelineVariant>,
    /// Rows of its source.
    pub rows: RowCount,
    /// Pipelines of one group follow each other and fill the same states: where one reports `Status::Grow`, all of them
    /// run again.
    pub group: usize,
    /// It continues the pipeline before it: its source is what that one stores, and nobody else reads it. The two are a
    /// *chain*, which runs block by block where the first one's table streams.
    pub continues: bool,
    /// Rows of its source that it may be launched over at a time.
    pub blocks: BlockRows,
    /// Columns of the scan by which rows can be left out.
    pub prunes: Vec<Prune>,
    /// Counts what it produced: a state, if the pipeline counts.
    pub produced: Option<usize>,
    /// How many rows or groups were thought to be made, before it ran.
    pub foreseen: Option<u64>,
    /// What it makes has addresses of text in it: the text must outlive it.
    pub keeps_text: bool,
    /// What aggregates of its source are called, by the number that a sum beyond its type is reported with.
    pub sums: Vec<String>,
}

/// A way to run a pipeline, which stands by itself: whichever variant of a pipeline works on a block of its rows, the states have the same in
/// them afterwards.
#[derive(Debug, Clone)]
pub struct PipelineVariant {
    /// Does all of the pipeline, or, where places are counted, writes.
    pub kernel: CompiledKernel,
    /// What the engine does before and after launches, and where one reports that it could not go on; with the kernels that are
    /// launched before (counting, sketching).
    pub around: Vec<HostAction>,
    /// What was chosen for it beside what its program's genome says; nothing of the first variant.
    pub genome: Genome,
}

impl CompiledPipeline {
    /// The modules of the kernels of all its variants, those of one in the order in which they run.
    pub fn into_modules(self) -> impl Iterator<Item = Module> {
        [self.variant].into_iter().chain(self.others).flat_map(PipelineVariant::into_modules)
    }

    /// All variants, the one that was chosen first.
    pub fn variants(&self) -> impl Iterator<Item = &PipelineVariant> {
        [&self.variant].into_iter().chain(&self.others)
    }
}

impl PipelineVariant {
    /// Adds what the engine does, behind what it does on the same occasions.
    pub(crate) fn add(&mut self, actions: &[HostAction]) {
        self.around.extend(actions.iter().cloned());
        self.around.sort_by_key(|action| action.when);
    }

    /// What the engine does on an occasion, in order.
    pub fn tasks(&self, when: When) -> impl Iterator<Item = &Task> {
        self.around.iter().filter(move |action| action.when == when).map(|action| &action.task)
    }

    /// How its rows are counted before they are written, where they are.
    pub fn counting(&self) -> Option<&Counting> {
        self.around.iter().find_map(|action| match &action.task {
            Task::Count(counting) => Some(counting.as_ref()),
            _ => None,
        })
    }

    /// How the sizes of its hash tables are estimated before they are filled, where they are.
    pub fn sketching(&self) -> Option<&Sketching> {
        self.around.iter().find_map(|action| match &action.task {
            Task::Sketch(sketching) => Some(sketching.as_ref()),
            _ => None,
        })
    }

    /// The sort whose rows are its source.
    pub fn sorting(&self) -> Option<&Sorting> {
        self.around.iter().find_map(|action| match &action.task {
            Task::Sort(sorting) => Some(sorting),
            _ => None,
        })
    }

    /// The states that are cleared before each run of its group. Those of a group's pipelines stand with the first of them.
    pub fn cleared(&self) -> impl Iterator<Item = usize> {
        self.tasks(When::BeforeRun).filter_map(|task| match task {
            Task::Clear(state) => Some(*state),
            _ => None,
        })
    }

    /// The classes that it may find too small.
    pub fn grows(&self) -> impl Iterator<Item = usize> {
        self.tasks(When::OnGrow).filter_map(|task| match task {
            Task::Grow(class) => Some(*class),
            _ => None,
        })
    }

    /// Its kernels, in the order in which they run.
    pub fn kernels(&self) -> impl Iterator<Item = &CompiledKernel> {
        let sketch = self.sketching().map(|sketching| &sketching.kernel);
        let count = self.counting().and_then(|counting| counting.kernel.as_ref());
        sketch.into_iter().chain(count).chain([&self.kernel])
    }

    fn into_modules(self) -> impl Iterator<Item = Module> {
        let before = self.around.into_iter().filter_map(|action| match action.task {
            Task::Sketch(sketching) => Some(sketching.kernel),
            Task::Count(counting) => counting.kernel,
            _ => None,
        });
        before.chain([self.kernel]).map(|kernel| kernel.module)
    }

    /// What the kernels are given that work on all of its rows.
    pub fn all_arguments(&self) -> impl Iterator<Item = &Argument> {
        let count = self.counting().and_then(|counting| counting.kernel.as_ref());
        count.into_iter().chain([&self.kernel]).flat_map(|kernel| &kernel.arguments)
    }
}

/// A column of a pipeline's scan whose values outside the bounds of a finished build side have no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prune {
    /// Position of the column in the scan.
    pub column: usize,
    /// State of two `u64`: the greatest order key (the value with its sign bit flipped) and the greatest complement of
    /// one; both zero where there is no value at all.
    pub bounds: usize,
}

/// How many rows a pipeline's source has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowCount {
    /// Those of a scan.
    Scan(usize),
    /// Slots of a table: the capacity of a class.
    Class(usize),
    /// What a state (one `u64`) counted.
    Counted(usize),
}

/// Rows of a source that its pipeline, with those that continue it, is launched over at a time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BlockRows {
    /// As many as memory lets it, or fewer.
    #[default]
    Any,
    /// So many, or fewer.
    AtMost(u64),
    /// All of them.
    Whole,
}

/// A buffer of elements; its capacity is its class's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Name, for people.
    pub name: String,
    /// Bytes of one element.
    pub element_bytes: u32,
    /// Its capacity class.
    pub class: usize,
    /// What it is for.
    pub purpose: Purpose,
}

/// What memory of a query is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Rows that a kernel leaves for the next.
    #[default]
    Store,
    /// Hash tables with their indexes and rows, and groups.
    Table,
    /// The result.
    Output,
}

/// A capacity in elements that states share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapacityClass {
    /// At the first launch.
    pub initial: u64,
    /// What to do where a pipeline reports `Status::Grow`.
    pub growth: Growth,
}

/// How a class grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// Never too small.
    Fixed,
    /// A hash table: to four times the slots, where as many entries are counted as there may be.
    Table(TableGrowth),
    /// An output: the state (one `u64`) counted what was needed.
    Counted(usize),
    /// Never too small: the next power of two of slots for as many entries as the state (one `u64`) has counted. Where a slot has
    /// one of them at most, one stays empty.
    Sized(usize, Fill),
}

/// How a hash table grows, and what of it is kept for the next run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableGrowth {
    /// State that counts the entries, one `u64`.
    pub count: usize,
    /// How many of the slots may be taken.
    pub fill: Fill,
    /// Slots that are left to a table that was larger, at least, however few entries it had.
    pub least: u64,
}

impl TableGrowth {
    /// Slots of a table that had, or is thought to get, so many entries, with room for a quarter more of them where more are to be
    /// had than are needed: more would have to be cleared, and looked at for the result, each time.
    pub fn fitting(self, entries: u64) -> u64 {
        let needed = self.fill.slots(entries);
        needed.saturating_add(needed / 4).max(self.least)
    }
}

/// The share of a hash table's slots that may be taken: a number of quarters or halves. Or how many entries slots have that hold
/// several each: so many of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    /// So many
    pub taken: u64,
    /// of so many slots, a power of two.
    pub of: u64,
}

impl Fill {
    /// The share that percents of the axis `slot_fill` are.
    pub(crate) fn of(percent: SlotFill) -> Fill {
        match percent.0 {
            25 => Fill { taken: 1, of: 4 },
            75 => Fill { taken: 3, of: 4 },
            // 1.2 times as many slots (Karnagel et al., section 4).
            83 => Fill { taken: 5, of: 6 },
            _ => Fill { taken: 1, of: 2 },
        }
    }

    /// Whether a slot may have several entries.
    pub fn is_shared(self) -> bool {
        self.taken > self.of
    }

    /// Slots for so many entries; not rounded.
    pub fn slots(self, entries: u64) -> u64 {
        entries.saturating_mul(self.of).div_ceil(self.taken)
    }

    /// Entries that so many slots may have.
    pub fn entries(self, slots: u64) -> u64 {
        (slots / self.of).saturating_mul(self.taken)
    }
}

/// Where the result lies.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputLayout {
    /// State that counts the rows, one `u64`.
    pub count: usize,
    /// One a column of the plan.
    pub columns: Vec<OutputColumn>,
    /// There are no more rows than this, whatever `count` says.
    pub limit: Option<u64>,
}

/// A column of the result.
#[derive(Debug, Clone, PartialEq)]
pub struct OutputColumn {
    /// Name.
    pub name: String,
    /// SQL type.
    pub data_type: DataType,
    /// State of one byte a row: 1 = not NULL.
    pub validity: Option<usize>,
    /// The values.
    pub storage: OutputStorage,
    /// Bounds of the values, where they are integers inside and that is known at compile time.
    pub range: Option<Range>,
    /// As in [`ColumnInfo`](crate::layout::ColumnInfo).
    pub scattered: Option<Scattered>,
    /// The order of its values that are not NULL, where the rows are delivered in it.
    pub order: Option<Direction>,
}

/// Values of a column of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStorage {
    /// A state with one scalar a row; `bool` is a byte.
    Scalar(Scalar, usize),
    /// Text in a heap of bytes.
    Text {
        /// State of `u64`: offset in the heap.
        offsets: usize,
        /// State of `u32`: length in bytes.
        lengths: usize,
        /// State of bytes.
        heap: usize,
        /// State of one `u64`: how many of these are taken.
        used: usize,
    },
    /// Text by the codes of a scan's dictionary, where rows stay on the device ([`Choices::keeps_rows`](crate::choices::Choices)).
    Codes {
        /// `U8`, `U16` or `U32`.
        code: Scalar,
        /// State of one code a row; 0 where the text is NULL.
        state: usize,
        /// The scan of the query that has the dictionary.
        scan: usize,
        /// Position of the column in the scan.
        column: usize,
    },
    /// NULL in every row.
    Null,
}

/// States and classes while they are declared.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub states: Vec<State>,
    pub classes: Vec<CapacityClass>,
    /// Of the states that are declared next.
    purpose: Purpose,
}

impl States {
    /// For declaring states of a purpose.
    pub fn of(&mut self, purpose: Purpose) -> &mut States {
        self.purpose = purpose;
        self
    }

    /// Declares a capacity.
    pub fn class(&mut self, initial: u64, growth: Growth) -> usize {
        self.classes.push(CapacityClass { initial, growth });
        self.classes.len() - 1
    }

    /// Declares a buffer.
    pub fn state(&mut self, name: &str, element_bytes: u32, class: usize) -> usize {
        self.states.push(State { name: name.into(), element_bytes, class, purpose: self.purpose });
        self.states.len() - 1
    }

    /// Declares a buffer of one `u64`.
    pub fn counter(&mut self, name: &str) -> usize {
        let class = self.class(1, Growth::Fixed);
        self.state(name, 8, class)
    }
}
