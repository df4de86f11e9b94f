//! First runs on the CPU, while the GPU is opened and gets its code.
//!
//! Code for a GPU takes its driver's compiler longer than a CPU needs for many a query, and the driver itself takes a while to start. So
//! the first run of such a query is the CPU's. Once it has ended, the same query runs on the GPU behind whatever else runs, and
//! nobody gets its rows: then its code is there, and its columns, and later runs are the GPU's. A query of the same form with other
//! constants has the same code.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use kelpie_compile::{MicroModel, Resolution};
use kelpie_device::behind::Behind;
use kelpie_device::{CancelToken, Device, Tier};
use parking_lot::{Condvar, Mutex};

use crate::delivery::Batches;
use crate::learned::Fingerprint;
use crate::options::{DeviceChoice, MacroModel, Query, QueryOptions, Transfer, TunerMode};
use crate::profile::Profile;
use crate::query::Engine;
use crate::stage;

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

/// How long after its first run a query is made ready.
const PAUSE: Duration = Duration::from_millis(200);
/// How long until a wait looks whether it is over.
const CANCEL_CHECK: Duration = Duration::from_millis(5);

/// Prepares queries; not an engine's own, as what it does holds the engine, and may be the last to do so.
static BEHIND: LazyLock<Behind> = LazyLock::new(Behind::default);

/// Which queries can run on the GPU at once.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    queries: Mutex<HashMap<Fingerprint, State>>,
    /// Told when a query is ready.
    settled: Condvar,
}

/// How far a query is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Its first run is the CPU's, or was just now.
    First,
    /// It runs on the GPU behind.
    Preparing,
    Ready,
}

/// What a first run leaves to do for the next ones.
#[derive(Debug)]
pub struct FirstRun {
    /// The query on the CPU.
    pub query: Query,
    form: Fingerprint,
}

impl FirstRun {
    /// What EXPLAIN ANALYZE says of it.
    pub const STEP: &str = "the first run is the CPU's: the GPU gets its code after it (kelpie.handover)";
}

/// Bytes that a query reads of columns, by the widths of their types: all, and those that are not in memory yet.
#[derive(Debug, Default)]
struct Bytes {
    all: u64,
    missing_on_cpu: u64,
    missing_on_gpu: u64,
}

impl Engine {
    /// The query for the CPU, where this is its first run and the GPU would take longer to get ready for it. Of a query that is being
    /// made ready, the end of that is waited for.
    pub fn first_run(&self, query: &Query, cancel: &CancelToken) -> Option<FirstRun> {
        if !may_hand_over(&query.options) || !self.devices.may_have_gpu() {
            return None;
        }
        let form = form(query)?;
        let mut queries = self.handover.queries.lock();
        while queries.get(&form) == Some(&State::Preparing) && !cancel.is_cancelled() {
            self.handover.settled.wait_for(&mut queries, CANCEL_CHECK);
        }
        if let Some(state) = queries.get_mut(&form) {
            *state = State::Ready;
            return None;
        }
        if queries.len() >= MOST_QUERIES {
            return None;
        }
        drop(queries);
        let on_cpu = self.is_sooner_on_cpu(query)?;
        let state = if on_cpu { State::First } else { State::Ready };
        self.handover.queries.lock().insert(form, state);
        on_cpu.then(|| {
            let options = QueryOptions { device: DeviceChoice::Cpu, ..query.options.clone() };
            FirstRun { query: Query { options, ..query.clone() }, form }
        })
    }

    /// Makes a query ready for its next runs, behind others: after its first run.
    pub fn hand_over(engine: &Arc<Engine>, query: Query, first: &FirstRun) {
        let (engine, form) = (Arc::downgrade(engine), first.form);
        BEHIND.begin(Box::new(move |ends| {
            // A program that runs one query ends now, and shall not have to wait for a driver that starts, nor for this engine's end.
            let since = Instant::now();
            while since.elapsed() < PAUSE {
                thread::sleep(CANCEL_CHECK);
                if ends.is_cancelled() {
                    return;
                }
            }
            let Some(engine) = engine.upgrade() else { return };
            let state = engine.handover.queries.lock().insert(form, State::Preparing);
            // Else its next run has come meanwhile, and is the GPU's.
            if state == Some(State::First) {
                let mut nobody = |_| Ok(());
                let run = AssertUnwindSafe(|| engine.stream(&query, Batches::default(), ends, &mut nobody));
                // Whatever is wrong with it, the next run tells.
                let _ = catch_unwind(run);
            }
            engine.handover.queries.lock().insert(form, State::Ready);
            engine.handover.settled.notify_all();
        }));
    }

    /// Waits until no query is being made ready.
    pub(crate) fn wait_for_handover() {
        BEHIND.wait();
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

/// What has the same code on a device: a plan but for its constants, over the same data.
fn form(query: &Query) -> Option<Fingerprint> {
    let identities = query.sources.iter().map(|source| source.identity());
    let identities = identities.collect::<Option<Vec<String>>>()?;
    Some(Fingerprint::of(&(query.plan.without_constants(), identities)))
}
