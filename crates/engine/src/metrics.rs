//! What a query did, and its rows.

use std::sync::Arc;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use kelpie_compile::variant::{Choice, Genome};
use kelpie_device::DeviceKind;

use crate::bandwidth::Rates;
use crate::meter::Traffic;
use crate::profile::Profile;
use crate::split::{Group, Phase, Split};

/// What one pipeline did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PipelineMetrics {
    /// `scan lineitem → filter → aggregate`.
    pub name: String,
    /// What fills the states that it reads: pipelines of its stage, each by how many places before this one it is.
    pub inputs: Arc<[usize]>,
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
    /// What was done that no plan says, in order: what is run once though it is there several times, and what memory was too small for.
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

    /// Adds what a query took that was run for this one's sake, before it.
    pub fn precede(&mut self, before: &QueryMetrics) {
        self.compile_ns += before.compile_ns;
        self.transfer_ns += before.transfer_ns;
        self.transfer_bytes += before.transfer_bytes;
        self.kernel_ns += before.kernel_ns;
        self.result_ns += before.result_ns;
        self.input_bytes += before.input_bytes;
        self.deferred += before.deferred;
        self.clears += before.clears;
        self.split += before.split;
        self.pipelines.splice(..0, before.pipelines.iter().cloned());
        self.variants.splice(..0, before.variants.iter().cloned());
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
