//! A compiled query: kernels, the state they share, and where the result lies. What the engine runs.

use kelpie_kir::{Module, Scalar};

use crate::context::Argument;
use crate::layout::ColumnLayout;
use crate::types::DataType;

/// What the compiler must know of a scan's data.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScanInfo {
    /// Rows.
    pub rows: u64,
    /// Layout of each column of the scan.
    pub layouts: Vec<ColumnLayout>,
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
    /// Where the result lies.
    pub output: OutputLayout,
}

impl Program {
    /// The sort on top, where there is one that is not left to the host.
    pub fn sorting(&self) -> Option<&Sorting> {
        self.pipelines.last().and_then(|last| last.sorted.as_ref())
    }
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
    /// State of one `u32` a row: to be filled with the rows' places in order.
    pub order: usize,
    /// State of one `u64`: to be set to the number of rows that are delivered.
    pub delivered: usize,
    /// Class of the delivered rows, where they are stored again.
    pub class: Option<usize>,
    /// At most this many rows are wanted.
    pub fetch: Option<u64>,
}

/// One pipeline: one kernel.
#[derive(Debug, Clone)]
pub struct CompiledPipeline {
    /// What it does, for people.
    pub name: String,
    /// Holds just this kernel.
    pub module: Module,
    /// The kernel's name.
    pub kernel: String,
    /// One a parameter.
    pub arguments: Vec<Argument>,
    /// Rows of its source.
    pub rows: Rows,
    /// States that must be zero before the group's first launch.
    pub zeroed: Vec<usize>,
    /// Classes that this pipeline may find too small.
    pub grows: Vec<usize>,
    /// Counts what it produced: a state, if the pipeline counts.
    pub produced: Option<usize>,
    /// Pipelines of one group follow each other and fill the same states: where one reports `Status::Grow`, all of them
    /// run again. States are cleared by the first (but for those in `restarted`).
    pub group: usize,
    /// States that must be zero before each launch of this very pipeline.
    pub restarted: Vec<usize>,
    /// Classes whose size follows from what ran before: set before the pipeline's first launch.
    pub sizes: Vec<usize>,
    /// States of `u32` that are replaced by their exclusive prefix sum, over the whole capacity, before the pipeline's first
    /// launch in a run of its group.
    pub prefix_sums: Vec<usize>,
    /// Columns of the scan by which rows can be left out.
    pub prunes: Vec<Prune>,
    /// States that count the rows of build sides (one `u64`): where one of them has none, nothing that the pipeline could
    /// deliver is wanted, and it is not launched, so that nothing in it fails.
    pub skipped_if_empty: Vec<usize>,
    /// The sort that makes the order in which its source delivers rows: to be carried out before it is launched.
    pub sorted: Option<Sorting>,
    /// The join whose promise of unique keys `Status::Duplicate` breaks.
    pub join: Option<usize>,
    /// It continues the pipeline before it: its source is what that one stores, and nobody else reads it. The two are a
    /// *chain*, which runs block by block where the first one's table streams.
    pub continues: bool,
    /// What it makes has addresses of text in it: the text must outlive it.
    pub keeps_text: bool,
    /// What aggregates of its source are called, by the number that a sum beyond its type is reported with.
    pub sums: Vec<String>,
    /// Counters of the rows that it stores for the pipeline that continues it: zero before each block of the chain.
    pub stores: Vec<usize>,
    /// Its dense write takes several kernels (HorseQC, Table 4, A1): this is what precedes `module`.
    pub counting: Option<Counting>,
}

impl CompiledPipeline {
    /// Its modules, in the order in which their kernels run.
    pub fn into_modules(self) -> impl Iterator<Item = Module> {
        let count = self.counting.and_then(|counting| counting.kernel).map(|kernel| kernel.module);
        count.into_iter().chain([self.module])
    }

    /// What its kernels are given.
    pub fn all_arguments(&self) -> impl Iterator<Item = &Argument> {
        let count = self.counting.iter().filter_map(|counting| counting.kernel.as_ref());
        count.flat_map(|kernel| &kernel.arguments).chain(&self.arguments)
    }
}

/// What precedes the kernel that writes rows to counted places, at each launch over some rows of the source: the count
/// kernel, the exclusive prefix sum of `counts`, and room for the rows in `class`. After the launch the rows are added to
/// `total`, where the next one goes on.
#[derive(Debug, Clone)]
pub struct Counting {
    /// Counts; `None`: each row of the source becomes one, and there are no counts.
    pub kernel: Option<CountKernel>,
    /// State of one `u32` a row of the launch, and one more for their sum.
    pub counts: Option<usize>,
    /// State of one `u64`: rows of the launch, where that may be more than a `u32` holds. Zero before the launch.
    pub rows: Option<usize>,
    /// State of one `u64`: rows that are written.
    pub total: usize,
    /// Class of the arrays that are written.
    pub class: usize,
    /// No more rows than this are written.
    pub limit: Option<u64>,
}

/// The kernel that counts the rows that each row of a pipeline's source becomes.
#[derive(Debug, Clone)]
pub struct CountKernel {
    /// Holds just this kernel.
    pub module: Module,
    /// The kernel's name.
    pub kernel: String,
    /// One a parameter.
    pub arguments: Vec<Argument>,
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
pub enum Rows {
    /// Those of a scan.
    Scan(usize),
    /// Slots of a table: the capacity of a class.
    Class(usize),
    /// What a state (one `u64`) counted.
    Counted(usize),
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
    /// A hash table: to four times the slots (always a power of two), where the state (one `u64`) counts entries in at
    /// least half of them.
    Table(usize),
    /// An output: the state (one `u64`) counted what was needed.
    Counted(usize),
    /// Never too small: the next power of two above twice what the state (one `u64`) has counted.
    Sized(usize),
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
