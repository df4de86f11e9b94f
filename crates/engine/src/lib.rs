//! Runs Kelpie's compiled plans: stages, memory budget, column cache, cancellation and metrics.

mod bandwidth;
pub mod calibration;
mod columns;
mod delivery;
mod devices;
pub mod error;
mod execution;
mod explain;
mod foresee;
mod heap;
mod host;
mod identity;
mod intermediate;
mod launch;
mod learned;
mod memory_fallback;
mod memory_source;
mod meter;
mod multi_column_distinct;
mod parts;
mod primitives;
mod profile;
mod prune;
mod query;
mod result;
mod sketch;
mod sorting;
pub mod source;
mod split;
mod stack;
mod stage;
#[cfg(feature = "testing")]
pub mod testing;

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
pub use bandwidth::Rates;
pub use calibration::{Calibrated, Measured};
pub use delivery::Batches;
pub use error::{EngineError, FallbackReason, QueryError};
pub use foresee::Foreseen;
pub use kelpie_compile::plan::Plan;
pub use kelpie_compile::shape::ShapeChoices;
pub use kelpie_compile::variant::{self, Choice, Forced, Genome};
pub use kelpie_compile::{MicroModel, Resolution};
pub use kelpie_device::{Accessed, CancelToken, Device, DeviceKind};
pub use meter::Traffic;
pub use profile::Profile;
pub use source::TableSource;
pub use split::{Group, Phase, Split};

/// `kelpie.device`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// A GPU where one is usable, else the CPU.
    #[default]
    Auto,
    /// This machine's processor.
    Cpu,
    /// An NVIDIA GPU, or an error.
    Cuda,
    /// The SIMT interpreter.
    Simt,
}

/// `kelpie.macro_model`: how data moves between host and device while a query runs (HorseQC, section 2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum MacroModel {
    /// Run to finish where everything fits the device, else what does.
    #[default]
    Auto,
    /// All input is brought to the device first, and stays.
    RunToFinish,
    /// Each kernel takes its input from the host and gives its rows back to it; tables stay on the device.
    KernelAtATime,
    /// Blocks of a table stream through the device; what kernels hand each other stays there.
    Batch,
}

/// `kelpie.transfer`: how a kernel gets at data that lies on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Where the device's memory is the host's, in place; else by copies.
    #[default]
    Auto,
    /// Blocks are copied to the device, the next beside the kernel of this one.
    Copy,
    /// Kernels read host memory over the link, and write results there.
    ZeroCopy,
}

impl Transfer {
    /// Whether blocks are copied to a device of this kind.
    pub(crate) fn copies(self, kind: DeviceKind) -> bool {
        match self {
            Transfer::Copy => true,
            Transfer::ZeroCopy => false,
            Transfer::Auto => kind == DeviceKind::Cuda,
        }
    }
}

/// `kelpie.dictionaries`: whether texts of a column become codes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Dictionaries {
    /// Where the column has few of them.
    #[default]
    Auto,
    /// Never: all are stored one behind the other.
    Off,
}

/// Options of one query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryOptions {
    /// Where it runs.
    pub device: DeviceChoice,
    /// How reductions are carried out.
    pub micro_model: MicroModel,
    /// How they are resolved locally.
    pub resolution: Resolution,
    /// How data moves between host and device.
    pub macro_model: MacroModel,
    /// How kernels get at data on the host.
    pub transfer: Transfer,
    /// Whether texts of a column become codes of a dictionary.
    pub dictionaries: Dictionaries,
    /// Bytes of a column of a block that streams through the device, on average; some megabytes where absent.
    pub block_bytes: Option<u64>,
    /// Budget of device memory in bytes; the device's default where absent.
    pub memory_limit: Option<u64>,
    /// Workers of the CPU device; one a core where absent.
    pub threads: Option<usize>,
    /// Lanes of the SIMT interpreter, 1..=32.
    pub simt_lanes: u32,
    /// Sorts of no more rows are the host's; where absent, some ten thousand rows that are there, or a few thousand that
    /// there could be. A stage that has run before leaves few rows to a block of a GPU all the same, as nobody has to wait then.
    pub host_sort_rows: Option<u64>,
    /// Whether kernels count the bytes that they access; they are slower then.
    pub meter: bool,
    /// What else they count; they are slower for that too.
    pub profile: Profile,
    /// Variants that are forced; the rules choose the others.
    pub variants: Forced,
    /// Further choices of how rows are gone through: those of each make another variant of each pipeline, and the blocks of its rows take
    /// its variants in turn.
    pub rotation: Vec<Forced>,
    /// Rows of a block of a table that is on the device; all of them where absent.
    pub block_rows: Option<u64>,
    /// What is asked of the shape of launches: threads of a block, blocks of a launch. A device that has no such launches
    /// does not run the query.
    pub shape: ShapeChoices,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            device: DeviceChoice::Auto,
            micro_model: MicroModel::default(),
            resolution: Resolution::default(),
            macro_model: MacroModel::default(),
            transfer: Transfer::default(),
            dictionaries: Dictionaries::default(),
            block_bytes: None,
            memory_limit: None,
            threads: None,
            simt_lanes: 32,
            host_sort_rows: None,
            meter: false,
            profile: Profile::Off,
            variants: Forced::default(),
            rotation: Vec::new(),
            block_rows: None,
            shape: ShapeChoices::default(),
        }
    }
}

/// A query: a plan over sources.
#[derive(Debug, Clone)]
pub struct Query {
    /// What to compute.
    pub plan: Plan,
    /// What `Scan::source` numbers.
    pub sources: Vec<Arc<dyn TableSource>>,
    /// How.
    pub options: QueryOptions,
}

/// What one pipeline did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineMetrics {
    /// `scan lineitem → filter → aggregate`.
    pub name: String,
    /// Rows of its source.
    pub rows_in: u64,
    /// Those that each of its variants was launched over, repeated launches included.
    pub variant_rows: Vec<u64>,
    /// Rows or groups that it produced; `None` where nothing counts them.
    pub rows_out: Option<u64>,
    /// How many were foreseen when it was compiled, or estimated before it was launched; `None` where nothing was known.
    pub rows_foreseen: Option<u64>,
    /// How many groups were estimated by a sketch of some of its rows, where that was done: before its first launch in the first
    /// run of such a query.
    pub groups_estimated: Option<u64>,
    /// How many of its launches were of that sketch.
    pub sketches: u32,
    /// Time to compile its kernel in nanoseconds; 0 where it was cached.
    pub compile_ns: u64,
    /// Time of its launches in nanoseconds.
    pub run_ns: u64,
    /// Bytes of memory that it reads: with the meter counted, else the size of what it is given to read.
    pub bytes_read: u64,
    /// Bytes of memory that it writes, likewise.
    pub bytes_written: u64,
    /// With the meter: the bytes that it really accesses, in all launches.
    pub traffic: Option<Traffic>,
    /// Launches: more than one a block where a state buffer had to grow, where long ranges of matches went through a queue, or where the
    /// number of groups was estimated before.
    pub launches: u32,
    /// Pieces of long ranges of matches that were to be taken from a queue by all warps; where nobody waited for launches, of its last
    /// block.
    pub queued: u64,
    /// Blocks in which its rows came: one where all of them were at hand.
    pub blocks: u64,
    /// Bytes that came from the host while it ran.
    pub link_bytes: u64,
    /// Time from its first block to the end of its last, what came from the host included, in nanoseconds: of the first
    /// pipeline of a chain.
    pub wall_ns: u64,
    /// Share of active lanes, where the device counts it.
    pub lane_activity: Option<f64>,
    /// Statements of the warp that executed most in one launch, where the device counts them.
    pub most_warp_steps: Option<u64>,
    /// Atomic updates, where the device counts them (the interpreter).
    pub atomics: Option<Atomics>,
    /// How many lanes of warps had rows at its steps and its sink, in its last launch, where the device or its kernel counts
    /// them.
    pub lanes: Vec<LaneProfile>,
}

/// Atomic updates of memory, one a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Atomics {
    /// Of the memory of blocks.
    pub block: u64,
    /// Of the device's memory.
    pub device: u64,
}

/// The lanes that had rows where a step, or the sink, of a pipeline begins, or a step of the loop in which lanes match texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaneProfile {
    /// The step: `filter`, the sink, or `matching`, `hashing keys` or `comparing keys`, which come behind it.
    pub step: String,
    /// Of each number of lanes, from one on, the warps that came with rows in so many.
    pub by_lanes: Vec<u64>,
}

impl LaneProfile {
    /// How often a warp came with rows.
    pub fn warps(&self) -> u64 {
        self.by_lanes.iter().sum()
    }

    /// Rows that came.
    pub fn rows(&self) -> u64 {
        (1..).zip(&self.by_lanes).map(|(lanes, warps)| lanes * warps).sum()
    }

    /// The lanes that had rows, on average.
    pub fn mean(&self) -> f64 {
        self.rows() as f64 / self.warps().max(1) as f64
    }
}

/// What a query did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueryMetrics {
    /// Name of the device.
    pub device: String,
    /// What the device is.
    pub kind: Option<DeviceKind>,
    /// Time to generate and compile kernels, in nanoseconds.
    pub compile_ns: u64,
    /// Time to read columns and move them to the device, in nanoseconds.
    pub transfer_ns: u64,
    /// Bytes that were read from sources (as stored on the device); 0 where all columns were cached.
    pub transfer_bytes: u64,
    /// Time of all launches, in nanoseconds.
    pub kernel_ns: u64,
    /// Time to bring the result to the host, in nanoseconds (sort and limit included).
    pub result_ns: u64,
    /// Where all of its time went.
    pub split: Split,
    /// Bytes of the columns that it reads, as stored, wherever they were.
    pub input_bytes: u64,
    /// Bytes of its result, as Arrow holds it.
    pub output_bytes: u64,
    /// Rows of inner sorts and limits that stayed on the device; others, and the result, are among `output_bytes`.
    pub kept_rows: u64,
    /// With the meter: the bytes that all of its launches really access.
    pub traffic: Option<Traffic>,
    /// With the meter: what the device's memory and link can do.
    pub rates: Option<Rates>,
    /// What its kernels counted.
    pub profile: Profile,
    /// What was done because memory was too small, and why, in order.
    pub steps: Vec<String>,
    /// Launches that were not waited for one by one, as their stages had run before.
    pub deferred: u64,
    /// Fills, and launches, that set states of its stages to their empty values.
    pub clears: u64,
    /// One a pipeline, in order.
    pub pipelines: Vec<PipelineMetrics>,
    /// The variants that were chosen, stage by stage: sites of two stages may have one name.
    pub variants: Vec<Arc<Genome>>,
}

impl QueryMetrics {
    /// The variants that were chosen, of all stages.
    pub fn choices(&self) -> impl Iterator<Item = &Choice> {
        self.variants.iter().flat_map(|genome| &genome.0)
    }

    /// Charges all of a query's time: until now, the split only had what phases took in their threads.
    pub(crate) fn charge(&mut self, elapsed: Duration) {
        let taken = std::mem::take(&mut self.split);
        self.split.share(self.compile_ns, &taken.only(Group::Compile), Phase::Generate);
        self.split.share(self.transfer_ns, &taken.only(Group::Read), Phase::Open);
        self.split.add(Phase::Kernels, self.kernel_ns);
        self.split.add(Phase::Result, self.result_ns);
        let elapsed_ns = elapsed.as_nanos() as u64;
        self.split.add(Phase::Host, elapsed_ns.saturating_sub(self.split.total()));
    }

    /// Bytes accessed in the device's memory, which may be the host's. With the meter only.
    pub fn memory_bytes(&self) -> Option<u64> {
        let (traffic, rates) = (self.traffic?, self.rates?);
        let link = if rates.link_is_memory { traffic.link.bytes() } else { 0 };
        Some(traffic.device().bytes().saturating_add(link))
    }

    /// How often the device's memory is passed over: bytes accessed there to bytes that go over the link for input and
    /// output (HorseQC, Table 1). With the meter only.
    pub fn passes(&self) -> Option<f64> {
        let link = self.input_bytes.saturating_add(self.output_bytes);
        self.memory_bytes().filter(|_| link > 0).map(|bytes| bytes as f64 / link as f64)
    }

    /// The time in which input and output go over the link, in nanoseconds. With the meter only.
    pub fn link_time_ns(&self) -> Option<f64> {
        self.rates.map(|rates| (self.input_bytes.saturating_add(self.output_bytes)) as f64 / rates.link)
    }

    /// The time in which the device's memory is read once for input and output, in nanoseconds: no kernel is faster. With
    /// the meter only.
    pub fn memory_time_ns(&self) -> Option<f64> {
        self.rates.map(|rates| (self.input_bytes.saturating_add(self.output_bytes)) as f64 / rates.memory)
    }
}

/// A query's answer.
#[derive(Debug, Clone)]
pub struct QueryOutput {
    /// The rows; text as `Utf8`, everything else of the plan's types.
    pub batch: RecordBatch,
    /// What it took.
    pub metrics: QueryMetrics,
}

/// A stage of compilation to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainStage {
    /// The variants: what was chosen, why, and what else is possible.
    Variants,
    /// The pipelines: source, steps, sink, state.
    Pipelines,
    /// Their kernel IR.
    Kir,
    /// CUDA C or CLIF.
    Code,
}

pub use query::Engine;
pub use stack::with_stack;
