//! One compiled stage: columns to the device or the host, kernels, launches, result.
//!
//! A stage is groups of pipelines that fill the same state; a group is *chains* of pipelines (`CompiledPipeline::continues`). A
//! chain runs at once over all rows of its source, or block by block where the source's columns lie on the host
//! ([`blocks`]; HorseQC, section 2).
//!
//! What the engine does around a kernel stands beside it as a list (`kelpie_compile::pipeline::HostAction`), and running a stage
//! is interpreting that list. Each part knows one thing:
//!
//! - [`run`]: the order of events: groups, chains, blocks, launches that are repeated, and so the occasions of actions;
//! - [`actions`]: what an action means ([`counting`]: those before a dense write in several kernels);
//! - [`store`]: the state: buffers, capacities, growth, the heap; [`capacities`]: where those begin; [`page`]: those parts of it that are small;
//! - [`deferral`]: launches that nobody waits for, where the stage has run before;
//! - [`init`]: small states that become empty together, before the first kernel;
//! - [`queue`]: the launch that takes what one has left in a queue;
//! - [`launcher`]: one launch: what a kernel is given ([`arguments`]), that it is submitted, and what it reports ([`traffic`]);
//! - [`sketching`]: sizes of tables that are estimated before they are filled for the first time;
//! - [`kernels`]: the kernels, of which a pipeline may have one a genome, compiled when they are wanted;
//! - [`blocks`]: the blocks of a source, and the copies that bring them;
//! - [`draining`]: a result that leaves the device before the stage has ended;
//! - [`keeping`]: a result that stays there, for a later stage;
//! - [`account`]: what a pipeline did, and what a status means.

mod account;
mod actions;
mod ahead;
mod arguments;
mod blocks;
mod capacities;
mod compaction;
mod counting;
mod deferral;
mod draining;
mod init;
mod keeping;
mod kernels;
mod launcher;
mod page;
mod queue;
mod run;
mod sketching;
mod store;
mod strides;
mod traffic;

use std::sync::{Arc, Weak};
use std::time::Instant;

use kelpie_compile::pipeline::{Program, ScanInfo};
use kelpie_compile::plan::{Plan, Scan};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{BlockShape, CancelToken, Device, QueryStream};
use parking_lot::Mutex;

pub use self::ahead::Ahead;
use self::capacities::Known;
use self::deferral::Foresight;
pub use self::kernels::{KernelVariants, PipelineKernels, compile_all};
use self::launcher::Constants;
use self::page::Layout;
use self::run::Run;
use crate::columns::{ColumnCache, Placement, ResidentColumn, Watch, Wish, expected_layouts};
use crate::delivery::RowReceiver;
use crate::error::EngineError;
use crate::identity;
use crate::intermediate::Input;
use crate::learned::{Fingerprint, Learned};
use crate::primitives::KernelsByName;
use crate::{Genome, PipelineMetrics, QueryMetrics, Transfer, sorting};

/// A program with its kernels on one device.
#[derive(Debug)]
pub struct Prepared {
    /// What it was compiled for.
    pub device: Weak<dyn Device>,
    pub program: Program,
    /// The variants that were chosen for it.
    pub genome: Arc<Genome>,
    /// One a pipeline.
    pub kernels: Vec<Arc<PipelineKernels>>,
    /// Rows of a sort up to which the host computes the order.
    host_order_rows: u64,
    /// Capacities that fit what the program held when it last ran: it starts with them the next time.
    learned: Mutex<Option<Vec<u64>>>,
    /// By what the engine has learned the same of the program that ran last of those that differ from this one in constants only: no
    /// less is begun with.
    alike: Fingerprint,
    /// Rows of a block of the source of a result that is too large to be made at once.
    block_rows: Mutex<Option<u64>>,
    /// Which states lie in the page.
    layout: Layout,
    /// What the kernels are given that never changes.
    constants: Constants,
    /// The kernels of prefix sums and sorts.
    primitives: Arc<KernelsByName>,
    /// What the stage comes to, as far as it is known.
    foresight: Foresight,
}

impl Prepared {
    /// Whether nothing is known yet of the capacities that fit.
    pub fn is_new(&self, known: &Learned) -> bool {
        self.learned.lock().is_none() && known.capacities(self.alike).is_none()
    }

    /// Lets tables, and what is counted, begin with so small a part of what was found to fit.
    #[cfg(feature = "testing")]
    pub fn shrink(&self, part: u64) {
        use kelpie_compile::pipeline::Growth;
        let mut learned = self.learned.lock();
        for (class, capacity) in self.program.classes.iter().zip(learned.iter_mut().flatten()) {
            let less = (*capacity / part.max(1)).max(1);
            *capacity = match class.growth {
                Growth::Table(_) | Growth::Counted(_) => less,
                Growth::Fixed | Growth::Sized(..) => *capacity,
            };
        }
    }
}

/// How a stage ended.
#[derive(Debug)]
pub enum Outcome {
    /// Its rows were handed over.
    Done,
    /// The build side of this join has a key twice: to be compiled again without the assumption that it has not.
    NotUnique(usize),
}

/// The data of a scan.
#[derive(Debug)]
pub struct Loaded {
    pub rows: u64,
    pub columns: Vec<Arc<ResidentColumn>>,
}

/// How data moves while a stage runs.
#[derive(Debug, Clone, Copy)]
pub struct Movement {
    /// Where columns are brought.
    pub placement: Placement,
    /// How kernels get at those on the host.
    pub transfer: Transfer,
    /// What a kernel hands to the next goes through the host.
    pub kernel_at_a_time: bool,
    /// Bytes of a column of a block, on average.
    pub block_bytes: u64,
    /// Rows of a block where nothing streams: all of them where absent.
    pub block_rows: Option<u64>,
    /// Bytes that a state may take at first, where it is not known how much it needs.
    pub initial_bytes: Option<u64>,
}

/// The scans of a plan, in the compiler's order.
pub fn scans(plan: &Plan) -> Vec<&Scan> {
    match plan {
        Plan::Scan(scan) => vec![scan],
        _ => plan.inputs().into_iter().flat_map(scans).collect(),
    }
}

/// Brings the columns of every scan to where they are wanted. Where that takes long, `foreseen` takes meanwhile what the
/// compiler will most likely know of all of them.
pub fn load(
    plan: &Plan,
    inputs: &[Input],
    device: &Arc<dyn Device>,
    (cache, wish): (&ColumnCache, Wish),
    (foreseen, cancel): (&(dyn Fn(Vec<ScanInfo>) + Sync), &CancelToken),
    metrics: &mut QueryMetrics,
) -> Result<Vec<Loaded>, EngineError> {
    let mut loaded = Vec::new();
    let scans = scans(plan);
    // Each scan that is read may tell; mostly the first one foresees all of it.
    let told = Mutex::new(Vec::new());
    for (number, scan) in (1..).zip(&scans) {
        let missing =
            || EngineError::Internal(format!("source {} of {} is missing", scan.source, scan.table));
        let source = match inputs.get(scan.source) {
            Some(Input::Table(source)) => source,
            Some(Input::Intermediate(kept, _)) => {
                let data = kept.load(scan).ok_or_else(missing)?;
                metrics.input_bytes += data.columns.iter().map(|column| column.stored_bytes()).sum::<u64>();
                loaded.push(data);
                continue;
            }
            Some(Input::Used) | None => return Err(missing()),
        };
        // A scan without columns only counts.
        if scan.columns.is_empty() {
            let start = Instant::now();
            let rows = cache.count_rows(source.as_ref(), cancel)?;
            metrics.transfer_ns += start.elapsed().as_nanos() as u64;
            loaded.push(Loaded { rows, columns: Vec::new() });
            continue;
        }
        let known = describe(&loaded);
        let seen = |layouts| {
            let this = source.exact_rows().map(|rows| ScanInfo::new(rows, layouts));
            let later = scans.iter().skip(number).map(|scan| expected(scan, inputs));
            let all = known.iter().cloned().map(Some).chain([this]).chain(later);
            let Some(infos) = all.collect::<Option<Vec<ScanInfo>>>() else { return };
            let mut told = told.lock();
            if *told != infos {
                told.clone_from(&infos);
                foreseen(infos);
            }
        };
        let watch = Watch { cancel, seen: &seen };
        let (resident, report) = cache.load(device, source.as_ref(), &scan.columns, wish, &watch)?;
        metrics.transfer_ns += report.time_ns;
        metrics.split += report.split;
        metrics.transfer_bytes += report.loaded_bytes;
        let rows = resident.first().map_or(0, |column| column.rows);
        metrics.input_bytes += resident.iter().map(|column| column.stored_bytes()).sum::<u64>();
        loaded.push(Loaded { rows, columns: resident });
    }
    Ok(loaded)
}

/// What the compiler will most likely know of a scan that was not read yet.
fn expected(scan: &Scan, inputs: &[Input]) -> Option<ScanInfo> {
    let source = match inputs.get(scan.source)? {
        Input::Table(source) => source.as_ref(),
        Input::Intermediate(kept, _) => return kept.info(scan),
        Input::Used => return None,
    };
    let layouts = expected_layouts(source, &scan.columns)?;
    Some(ScanInfo::new(source.exact_rows()?, layouts))
}

/// What the compiler must know of loaded data.
pub fn describe(loaded: &[Loaded]) -> Vec<ScanInfo> {
    let info = |data: &Loaded| {
        let scattered: Vec<_> = data.columns.iter().map(|column| column.scattered).collect();
        let clustered: Vec<_> = data.columns.iter().map(|column| column.is_clustered()).collect();
        let unique: Vec<_> = data.columns.iter().map(|column| column.is_unique).collect();
        let spacings: Vec<_> = data.columns.iter().map(|column| column.spacing).collect();
        let codes: Vec<_> = data.columns.iter().map(|column| Some(column.coded.as_ref()?.layout)).collect();
        ScanInfo {
            rows: data.rows,
            layouts: data.columns.iter().map(|column| column.layout.clone()).collect(),
            scattered: if scattered.iter().any(Option::is_some) { scattered } else { Vec::new() },
            clustered: if clustered.contains(&true) { clustered } else { Vec::new() },
            unique: if unique.contains(&true) { unique } else { Vec::new() },
            spacings: if spacings.iter().any(Option::is_some) { spacings } else { Vec::new() },
            codes: if codes.iter().any(Option::is_some) { codes } else { Vec::new() },
            multi_column_distinct: Vec::new(),
        }
    };
    loaded.iter().map(info).collect()
}

/// Validates the kernels of a program, which are compiled when they are wanted. `base`: the program before its variants were
/// chosen; `alike`: what the capacities that fit are kept by.
pub fn prepare(
    program: Program,
    device: &Arc<dyn Device>,
    host_sort_rows: Option<u64>,
    (variants, base): (&KernelVariants, Fingerprint),
    alike: Fingerprint,
) -> Result<Prepared, EngineError> {
    let numbered = program.pipelines.iter().enumerate();
    let kernels = numbered.map(|(index, pipeline)| {
        let variant = (base, index, identity::genome(&program.genome, index));
        variants.of(variant, pipeline, device)
    });
    let kernels = kernels.collect::<Result<Vec<_>, _>>()?;
    let by_rule = || sorting::host_order_rows(device.target().lanes);
    let host_order_rows = host_sort_rows.unwrap_or_else(by_rule);
    Ok(Prepared {
        device: Arc::downgrade(device),
        layout: Layout::of(&program),
        genome: Arc::new(program.genome.clone()),
        constants: Constants::default(),
        primitives: Arc::default(),
        foresight: Foresight::default(),
        program,
        kernels,
        host_order_rows,
        learned: Mutex::new(None),
        alike,
        block_rows: Mutex::new(None),
    })
}

/// What a device is told of a kernel's shape.
pub fn block_shape(shape: &LaunchShape) -> BlockShape {
    BlockShape { threads: shape.block_threads, resident: shape.resident }
}

/// What a stage runs over.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// What runs, copies and fills: in order.
    pub stream: &'a dyn QueryStream,
    /// Makes room for state by evicting columns.
    pub cache: &'a ColumnCache,
    /// What earlier runs have taught.
    pub learned: &'a Learned,
    pub loaded: &'a [Loaded],
    pub movement: Movement,
    /// Rows of the result are to stay on the device, where they can.
    pub keeps_rows: bool,
    pub cancel: &'a CancelToken,
}

/// Runs a prepared stage. Where it has run before, its launches are deferred; what comes of that is thrown away, and it runs
/// step by step, if it is not what came of it before.
pub fn run(
    prepared: &Prepared,
    plan: &Plan,
    setting: Setting<'_>,
    metrics: &mut QueryMetrics,
    out: &mut dyn RowReceiver,
) -> Result<Outcome, EngineError> {
    if let Some(foreseen) = prepared.foresight.of(&setting)
        && setting.stream.defer()?
    {
        let mut run = begin(prepared, plan, setting, out);
        run.store.page.foresee(foreseen);
        let outcome = finish(&mut run, metrics, out);
        if !run.is_deferred() {
            prepared.foresight.came();
            return outcome;
        }
        // Nothing has gone out. What still runs is over before its buffers are others'.
        setting.stream.settle(&mut [])?;
        if let Err(EngineError::Cancelled) = outcome {
            return outcome;
        }
        prepared.foresight.missed();
    }
    finish(&mut begin(prepared, plan, setting, out), metrics, out)
}

fn begin<'a>(prepared: &'a Prepared, plan: &Plan, setting: Setting<'a>, out: &dyn RowReceiver) -> Run<'a> {
    let own = prepared.learned.lock().clone();
    // Mostly the program itself has run before, and nobody is to be asked.
    let alike = if own.is_none() { setting.learned.capacities(prepared.alike) } else { None };
    let known = Known { own, alike };
    let (_, budget) = setting.stream.device().memory();
    let mut run = Run::new(prepared, setting, known, &plan.fields());
    // What the rows are made from, and the room before a result grew, take memory at the same time.
    run.drained.most_bytes = out.batches().device_bytes.min(budget / 4);
    run.drained.block_rows = *prepared.block_rows.lock();
    run.drained.wanted = out.wanted();
    run
}

fn finish(
    run: &mut Run<'_>,
    metrics: &mut QueryMetrics,
    out: &mut dyn RowReceiver,
) -> Result<Outcome, EngineError> {
    let prepared = run.prepared;
    let mut reports = Vec::new();
    for group in prepared.program.pipelines.chunk_by(|a, b| a.group == b.group) {
        let (of_group, duplicate) = run.group(reports.len(), group, out)?;
        if let Some(join) = duplicate {
            account(run, reports, metrics);
            return Ok(Outcome::NotUnique(join));
        }
        reports.extend(of_group);
    }
    let was_deferred = run.is_deferred();
    if !was_deferred {
        learn(run, &reports)?;
    }
    // The first copy of the result waits for what is deferred.
    let waited_ns = run.store.page.waited_ns();
    let mut reading = run.finish(out)?;
    let waited_ns = run.store.page.waited_ns() - waited_ns;
    reading.time_ns = reading.time_ns.saturating_sub(waited_ns);
    run.settle()?;
    if was_deferred {
        for (pipeline, report) in prepared.program.pipelines.iter().zip(&mut reports) {
            report.rows_out = run.rows_out(pipeline)?;
            report.queued = run.queued(pipeline)?;
        }
    }
    metrics.kept_rows += run.kept;
    metrics.clears += run.store.clears();
    account(run, reports, metrics);
    metrics.result_ns += reading.time_ns;
    metrics.output_bytes += reading.bytes;
    Ok(Outcome::Done)
}

/// Keeps what a run has found, for the next one.
fn learn(run: &Run<'_>, reports: &[PipelineMetrics]) -> Result<(), EngineError> {
    let prepared = run.prepared;
    if run.drained.block_rows.is_some() {
        *prepared.block_rows.lock() = run.drained.block_rows;
    }
    // Where the result came in parts, less than all is known.
    if run.drained.rows > 0 {
        return Ok(());
    }
    // What was learned before is still right unless something grew.
    let learned = prepared.learned.lock().clone();
    if learned.is_none_or(|learned| learned != run.store.capacities()) {
        let fitting = run.store.fitting()?;
        run.setting.learned.keep_capacities(prepared.alike, fitting.clone());
        *prepared.learned.lock() = Some(fitting);
    }
    if run.drained.block_rows.is_none() {
        let kernel_ns = reports.iter().map(|report| report.run_ns).sum();
        prepared.foresight.learn(run, kernel_ns)?;
    }
    Ok(())
}

/// Adds what the pipelines did.
fn account(run: &Run<'_>, mut reports: Vec<PipelineMetrics>, metrics: &mut QueryMetrics) {
    metrics.deferred += run.share_times(&mut reports);
    metrics.kernel_ns += reports.iter().map(|report| report.run_ns).sum::<u64>();
    metrics.pipelines.extend(reports);
}
