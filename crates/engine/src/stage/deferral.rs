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

use super::run::Run;
use crate::error::EngineError;
use crate::metrics::PipelineMetrics;

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
