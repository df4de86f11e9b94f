//! What a query is, and how it is to run.

use std::sync::Arc;

use kelpie_compile::plan::Plan;
use kelpie_compile::shape::ShapeChoices;
use kelpie_compile::variant::Forced;
use kelpie_compile::{MicroModel, Resolution};
use kelpie_device::DeviceKind;
pub use kelpie_device::Tier;
use kelpie_tuner::Search;

use crate::profile::Profile;
use crate::source::TableSource;

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

/// `kelpie.decoding`: who decodes the pages of Parquet files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Decoding {
    /// A GPU where a table is large, else the host.
    #[default]
    Auto,
    /// The host.
    Host,
    /// The device where it is no CPU.
    Device,
}

/// `kelpie.tuner`: whether stages that run again are tried in other variants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TunerMode {
    /// No, and nothing that was learned is used.
    #[default]
    Off,
    /// No, but the times of the rules' choices are kept.
    Rules,
    /// Variants that were slow are replaced by such drawn at random (Rosenfeld et al., section 3.4).
    Greedy,
    /// They are replaced by children of those that were fast.
    Genetic,
}

impl TunerMode {
    pub(crate) fn search(self) -> Option<Search> {
        match self {
            TunerMode::Off | TunerMode::Rules => None,
            TunerMode::Greedy => Some(Search::Greedy),
            TunerMode::Genetic => Some(Search::Genetic),
        }
    }
}

/// `kelpie.cache`: what of a table is read and kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// The part of a table that a query's filters may find rows in, where that is less than half of it, until such parts
    /// together would have cost as much as all of it; then, and where nothing tells of such a part, all rows.
    #[default]
    Auto,
    /// All rows of a column that is asked for.
    All,
    /// As little as a query needs, and nothing is kept once it has ended.
    None,
}

/// How stages are tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TunerOptions {
    /// `tuner`.
    pub mode: TunerMode,
    /// `tuner.pool`: variants that are tried before slow ones are replaced; the chosen one is among them. Absent: by how many of them compete.
    pub pool: Option<usize>,
    /// `tuner.deterministic`: times are made of the names of variants, stages of any length are tuned, and variants are compiled at once:
    /// what is tried, and chosen, is the same in every run. For tests.
    pub deterministic: bool,
}

impl Default for TunerOptions {
    /// A pool of 8, as in Rosenfeld et al., section 3.5.
    fn default() -> TunerOptions {
        TunerOptions { mode: TunerMode::Off, pool: Some(8), deterministic: false }
    }
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
    /// Which code kernels get.
    pub compile: Tier,
    /// Whether the first run of a query may be the CPU's while a GPU gets ready, where whoever runs it asks for that
    /// ([`Engine::first_run`](crate::Engine::first_run)).
    pub handover: bool,
    /// Whether texts of a column become codes of a dictionary.
    pub dictionaries: Dictionaries,
    /// Who decodes the pages of Parquet files.
    pub decoding: Decoding,
    /// What of a table is read and kept.
    pub cache: CacheMode,
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
    /// Whether what a plan has several times is run once.
    pub shared_plans: bool,
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
    /// How stages are tuned that run again.
    pub tuner: TunerOptions,
}

impl Default for QueryOptions {
    fn default() -> Self {
        QueryOptions {
            device: DeviceChoice::Auto,
            micro_model: MicroModel::default(),
            resolution: Resolution::default(),
            macro_model: MacroModel::default(),
            transfer: Transfer::default(),
            compile: Tier::default(),
            handover: true,
            dictionaries: Dictionaries::default(),
            decoding: Decoding::default(),
            cache: CacheMode::default(),
            block_bytes: None,
            memory_limit: None,
            threads: None,
            simt_lanes: 32,
            host_sort_rows: None,
            shared_plans: true,
            meter: false,
            profile: Profile::Off,
            variants: Forced::default(),
            rotation: Vec::new(),
            block_rows: None,
            shape: ShapeChoices::default(),
            tuner: TunerOptions::default(),
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
