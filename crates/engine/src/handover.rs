//! First runs on the CPU, instead of a GPU that is not ready for them.
//!
//! Code for a GPU takes its driver's compiler longer than a CPU needs for many a query, and the driver itself takes a while to start. So
//! the first run of such a query is the CPU's. Who asks a second time will ask more often: from then on its runs are the GPU's, whose code
//! is made then, and whose columns are copied from the CPU's. A query of the same form with other constants has the same code.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

use kelpie_compile::{MicroModel, Resolution};
use kelpie_device::{Device, Tier};
use parking_lot::Mutex;

use crate::learned::Fingerprint;
use crate::options::{DeviceChoice, MacroModel, Query, QueryOptions, Transfer, TunerMode};
use crate::profile::Profile;
use crate::query::Engine;
use crate::stage;
use crate::worker_times::form;

/// Queries that are remembered; others are the GPU's from the first run on.
const MOST_QUERIES: usize = 4096;
/// What the first code of a query on a GPU takes, in ns (`docs/compiling.md`).
const CODE_NS: u64 = 150_000_000;
/// What opening a GPU takes, in ns.
const OPEN_NS: u64 = 300_000_000;
/// How long a core takes for a byte of a column in kernels, in ns.
const KERNEL_NS: u64 = 1;
/// How long a core takes to read and store a byte of a column, in ns.
const READ_NS: u64 = 10;

/// Queries whose first run is over, or has begun.
#[derive(Debug, Default)]
pub(crate) struct Handover(Mutex<HashSet<Fingerprint>>);

/// What EXPLAIN ANALYZE says of a first run.
pub const FIRST_RUN: &str = "the first run is the CPU's: the GPU is not ready for it (kelpie.handover)";

/// Bytes that a query reads of columns, by the widths of their types: all, and those that are not in memory yet.
#[derive(Debug, Default)]
struct Bytes {
    all: u64,
    missing_on_cpu: u64,
    missing_on_gpu: u64,
}

impl Engine {
    /// The query for the CPU, where this is its first run and the GPU would take longer to get ready for it.
    pub fn first_run(&self, query: &Query) -> Option<Query> {
        if !may_hand_over(&query.options) || !self.devices.may_have_gpu() {
            return None;
        }
        let form = form(query)?;
        let mut begun = self.handover.0.lock();
        if begun.len() >= MOST_QUERIES || !begun.insert(form) {
            return None;
        }
        drop(begun);
        let options = QueryOptions { device: DeviceChoice::Cpu, ..query.options.clone() };
        self.is_sooner_on_cpu(query)?.then(|| Query { options, ..query.clone() })
    }

    /// Whether the CPU would have the rows before the GPU is ready; `None` where nobody knows how many rows it reads.
    fn is_sooner_on_cpu(&self, query: &Query) -> Option<bool> {
        let options = QueryOptions { device: DeviceChoice::Cpu, ..query.options.clone() };
        let (cpu, gpu) = (self.devices.find(&options).ok()?, self.devices.opened_gpu());
        let bytes = self.bytes_of(query, &cpu, gpu.as_ref())?;
        let cores = options.threads.or(thread::available_parallelism().ok().map(usize::from))?;
        let on_cores = |ns: u64| ns / cores.max(1) as u64;
        let open_ns = if gpu.is_some() { 0 } else { OPEN_NS };
        let on_cpu = on_cores(bytes.all * KERNEL_NS + bytes.missing_on_cpu * READ_NS);
        Some(on_cpu <= open_ns + CODE_NS + on_cores(bytes.missing_on_gpu * READ_NS))
    }

    fn bytes_of(&self, query: &Query, cpu: &Arc<dyn Device>, gpu: Option<&Arc<dyn Device>>) -> Option<Bytes> {
        const TEXT_BYTES: u64 = 8;
        let mut bytes = Bytes::default();
        for scan in stage::scans(&query.plan) {
            let source = query.sources.get(scan.source)?;
            let part = source.narrower(&scan.columns);
            let rows = part.as_ref().unwrap_or(source).rows_to_read(&scan.columns)?;
            let schema = source.schema();
            let there = |device: &Arc<dyn Device>| {
                let columns =
                    self.columns.there(device, source.as_ref(), &scan.columns, query.options.dictionaries);
                columns.into_iter()
            };
            let on_gpu: Vec<bool> =
                gpu.map_or_else(|| vec![false; scan.columns.len()], |gpu| there(gpu).collect());
            for ((column, on_cpu), on_gpu) in scan.columns.iter().zip(there(cpu)).zip(on_gpu) {
                let width = schema.fields().get(*column)?.data_type().primitive_width();
                // Most integers are narrower on a device than their types.
                let column_bytes = rows * width.map_or(TEXT_BYTES, |width| (width as u64).min(4));
                bytes.all += column_bytes;
                bytes.missing_on_cpu += if on_cpu { 0 } else { column_bytes };
                bytes.missing_on_gpu += if on_gpu { 0 } else { column_bytes };
            }
        }
        Some(bytes)
    }
}

/// Whether a query asks for a GPU, and for nothing that tells how it is to run there.
fn may_hand_over(options: &QueryOptions) -> bool {
    let asks = matches!(options.device, DeviceChoice::Auto | DeviceChoice::Cuda);
    let is_usual = options.compile == Tier::Auto
        && options.micro_model == MicroModel::default()
        && options.resolution == Resolution::default()
        && options.macro_model == MacroModel::Auto
        && options.transfer == Transfer::Auto
        && options.profile == Profile::Off
        && options.tuner.mode == TunerMode::Off
        && options.variants == Default::default()
        && options.shape == Default::default()
        && options.rotation.is_empty()
        && options.memory_limit.is_none()
        && !options.meter;
    options.handover && asks && is_usual
}
