//! One compiled stage: columns to the device or the host, kernels, launches, result.
//!
//! A stage is groups of pipelines that fill the same state; a group is *chains* of pipelines (`CompiledPipeline::continues`). A
//! chain runs at once over all rows of its source, or block by block where the source's columns lie on the host
//! ([`blocks`]; HorseQC, section 2).
//!
//! What the engine does around a kernel stands beside it as a list (`kelpie_compile::pipeline::HostAction`), and running a stage
//! is interpreting that list. Each part knows one thing:
//!
//! - [`run`]: what the parts of a running stage share; [`schedule`]: the order of events: groups, chains, blocks, launches that are repeated,
//!   and so the [`occasion`]s of actions;
//! - [`actions`]: what an action means ([`counting`]: those before a dense write in several kernels);
//! - [`store`]: the state: buffers, capacities, growth, the heap; [`capacities`]: where those begin; [`page`]: those parts of it that are small;
//! - [`deferral`]: launches that nobody waits for, where the stage has run before and what it comes to has been seen ([`foresight`]);
//! - [`init`]: small states that become empty together, before the first kernel;
//! - [`queue`]: the launch that takes what one has left in a queue;
//! - [`launcher`]: one launch: what a kernel is given ([`arguments`]), that it is submitted, and what it reports ([`traffic`]);
//! - [`sketching`]: sizes of tables that are estimated before they are filled for the first time;
//! - [`prepared`]: a program with its [`kernels`], of which a pipeline may have one a genome, compiled when they are wanted;
//! - [`blueprint`]: what a program is made from; [`trial`]: a run by which something is learned of variants;
//! - [`blocks`]: the blocks of a source, and the copies that bring them;
//! - [`loading`]: columns of scans, brought to where they are wanted;
//! - [`draining`]: a result that leaves the device before the stage has ended;
//! - [`keeping`]: a result that stays there, for a later stage;
//! - [`account`]: what a pipeline did, and what a status means.

mod account;
mod actions;
mod ahead;
mod arguments;
mod blocks;
mod blueprint;
mod capacities;
mod compaction;
mod counting;
mod deferral;
mod drained;
mod draining;
mod foresight;
mod init;
mod keeping;
mod kernels;
mod launcher;
mod loaded;
mod loading;
mod occasion;
mod page;
mod prepared;
mod queue;
mod run;
mod schedule;
mod setting;
mod sketching;
mod store;
mod stride_runs;
mod strides;
mod traffic;
mod trial;

use std::sync::Arc;

use kelpie_compile::pipeline::CompiledPipeline;
use kelpie_compile::plan::Plan;

pub use self::ahead::Ahead;
pub use self::blueprint::Blueprint;
use self::capacities::Known;
pub use self::kernels::{KernelVariants, PipelineKernels, compile_all};
pub use self::loaded::{Loaded, describe};
pub use self::loading::{Loading, load, scans};
pub use self::prepared::Prepared;
use self::run::Run;
use self::schedule::Group;
pub use self::setting::Setting;
pub use self::trial::{Course, Trial, pretended_ns};
use crate::delivery::RowReceiver;
use crate::error::EngineError;
use crate::metrics::{PipelineMetrics, QueryMetrics};
use crate::progress;
use crate::trace::{self, Track};

/// How a stage ended.
#[derive(Debug)]
pub enum Outcome {
    /// Its rows were handed over.
    Done,
    /// The build side of this join has a key twice: to be compiled again without the assumption that it has not.
    NotUnique(usize),
    /// It was a trial that fell behind, of which nothing has gone out.
    GivenUp,
}

/// Whether places are counted before rows are written: who makes room for as many waits for the sums, and has nothing to foresee.
fn counts_places(prepared: &Prepared) -> bool {
    let mut variants = prepared.program.pipelines.iter().flat_map(CompiledPipeline::variants);
    variants.any(|variant| variant.counting().is_some())
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
    if setting.trial.is_none()
        && !counts_places(prepared)
        && let Some(foreseen) = prepared.foresight.of(&setting)
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
    progress::will_run(prepared.program.pipelines.len());
    for group in prepared.program.pipelines.chunk_by(|a, b| a.group == b.group) {
        match run.group(reports.len(), group, out)? {
            Group::Done(of_group) => {
                progress::has_run(of_group.len());
                reports.extend(of_group);
            }
            Group::NotUnique(join) => {
                account(run, reports, metrics);
                return Ok(Outcome::NotUnique(join));
            }
            Group::GivenUp => return Ok(Outcome::GivenUp),
        }
    }
    let was_deferred = run.is_deferred();
    if !was_deferred {
        learn(run, &reports)?;
    }
    // The first copy of the result waits for what is deferred.
    let waited_ns = run.store.page.waited_ns();
    let mut reading = trace::spanned(Track::Host, || "result to rows".into(), || run.finish(out))?;
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
        let kind = run.setting.stream.device().kind();
        prepared.foresight.learn(run.store.page.content()?, (kernel_ns, kind));
    }
    Ok(())
}

/// Adds what the pipelines did.
fn account(run: &Run<'_>, mut reports: Vec<PipelineMetrics>, metrics: &mut QueryMetrics) {
    metrics.deferred += run.share_times(&mut reports);
    for (report, inputs) in reports.iter_mut().zip(&run.prepared.inputs) {
        report.inputs = Arc::clone(inputs);
    }
    metrics.kernel_ns += reports.iter().map(|report| report.run_ns).sum::<u64>();
    metrics.pipelines.extend(reports);
}
