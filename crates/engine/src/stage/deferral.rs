//! Launches that nobody waits for. A stage whose program has run before is taken to come to the same: rows that stores have,
//! sizes of tables, bounds by which blocks are left out. So its kernels are launched one after the other without a look at
//! what they counted, and what they counted is compared in the end, with one wait. Should it be something else, or should one
//! of them have failed, nothing has gone out, and the stage runs again, step by step: that way alone knows what a failure means, makes
//! room, and learns.
//!
//! A sort needs no wait either where its rows are few (`Run::order_unseen`); other sorts wait for what comes before them.
//!
//! Kernels that were told of too many rows keep to those that there are (`compile/pipeline/body`), and those after one that
//! failed do nothing (`kelpie_device::QueryStream::defer`): so nothing is read that was not written, whatever is foreseen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use kelpie_compile::shape::LaunchShape;
use kelpie_device::DeviceKind;
use parking_lot::Mutex;

use super::Setting;
use super::run::Run;
use crate::PipelineMetrics;
use crate::error::EngineError;

/// Time of a stage's kernels up to which they are deferred, in nanoseconds: a cancelled query waits for what was launched, and
/// those that take longer do not notice the host.
const MOST_NS: u64 = 20_000_000;
/// How often a stage may come to something else than was foreseen until nothing more is foreseen.
const MISSES: u32 = 3;

/// What is known of what a program comes to.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// The page when it last ended, where its kernels took little time.
    page: Mutex<Option<Arc<Vec<u8>>>>,
    /// How often it came to something else, since it last came to what was foreseen.
    missed: AtomicU32,
}

impl Foresight {
    /// What the page will hold in the end, where launches may be deferred.
    pub fn of(&self, setting: &Setting<'_>) -> Option<Arc<Vec<u8>>> {
        let movement = &setting.movement;
        let is_plain = !movement.kernel_at_a_time && movement.initial_bytes.is_none();
        let mut columns = setting.loaded.iter().flat_map(|data| &data.columns);
        let may = is_plain
            && self.missed.load(Ordering::Relaxed) < MISSES
            && !LaunchShape::of(setting.stream.device().target()).is_serial()
            && columns.all(|column| !column.on_host);
        if may { self.page.lock().clone() } else { None }
    }

    /// The stage came to what was foreseen.
    pub fn came(&self) {
        self.missed.store(0, Ordering::Relaxed);
    }

    /// It came to something else.
    pub fn missed(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
        *self.page.lock() = None;
    }

    /// Keeps what a run has come to, whose kernels took so long.
    pub fn learn(&self, run: &Run<'_>, kernel_ns: u64) -> Result<(), EngineError> {
        let content = run.store.page.content()?;
        let mut page = self.page.lock();
        // The interpreter looks at every launch by itself, and is slow.
        let interprets = run.setting.stream.device().kind() == DeviceKind::Simt;
        if kernel_ns > MOST_NS && !interprets {
            *page = None;
        } else if page.as_ref().is_none_or(|page| **page != content) {
            *page = Some(Arc::new(content));
        }
        Ok(())
    }
}

/// The launches of a run that are deferred: up to which number they belong to which pipeline.
#[derive(Debug, Default)]
pub(super) struct Deferral(Vec<(usize, usize)>);

impl Run<'_> {
    /// Whether launches are deferred, or were and did not come to what was foreseen.
    pub fn is_deferred(&self) -> bool {
        self.store.page.is_in_doubt()
    }

    /// Waits for what was deferred: from now on the host knows what kernels have counted, and waits for each of them. An
    /// error where something else came of them than was foreseen.
    pub fn settle(&mut self) -> Result<(), EngineError> {
        match self.store.page.is_foreseen() {
            true => self.store.page.download(Vec::new()),
            false => Ok(()),
        }
    }

    /// Does something that needs what kernels have counted, and defers later launches again if they were deferred before.
    pub fn settled<T>(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let Some(foreseen) = self.store.page.foreseen() else { return body(self) };
        self.settle()?;
        let outcome = body(self)?;
        if self.setting.stream.defer()? {
            self.store.page.foresee(foreseen);
        }
        Ok(outcome)
    }

    /// All launches up to now that are of no pipeline yet were made for this one.
    pub fn launched(&mut self, pipeline: usize) {
        let until = self.store.page.times_ns().len() + self.setting.stream.deferred();
        if until > 0 {
            self.deferral.0.push((pipeline, until));
        }
    }

    /// Adds the time of each deferred launch to what its pipeline did; how many there are.
    pub fn share_times(&self, reports: &mut [PipelineMetrics]) -> u64 {
        let all = self.store.page.times_ns();
        let mut times = all.iter().enumerate().peekable();
        for (pipeline, until) in &self.deferral.0 {
            while let Some((_, time_ns)) = times.next_if(|(number, _)| number < until) {
                if let Some(report) = reports.get_mut(*pipeline) {
                    report.run_ns += time_ns;
                }
            }
        }
        all.len() as u64
    }
}
