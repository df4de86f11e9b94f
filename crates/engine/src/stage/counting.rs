//! Dense writes in several kernels (HorseQC, Table 4, A1): count what each row of the source becomes, sum the counts up
//! before each, make room for exactly the rows that there are; then the pipeline's own kernel writes.

use kelpie_compile::pipeline::{Counting, Task, When};

use super::occasion::{Occasion, Verdict};
use super::run::Run;
use crate::error::{EngineError, FallbackReason};
use crate::metrics::PipelineMetrics;

impl Run<'_> {
    /// Counts what the rows of a launch become, and makes room for it. Other than done: the kernel that counts did not come to
    /// its end, or there is no room beside the rows of earlier launches.
    pub fn count(&mut self, counting: &Counting, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        let before = self.store.read_word(counting.total)?;
        let rows = at.rows.end - at.rows.start;
        let kernel = self.prepared.kernels[at.index][at.turn].count.as_ref();
        let kernel = kernel.map(|kernel| kernel.get(self.setting.stream)).transpose()?;
        let more = match (&counting.kernel, kernel, counting.counts) {
            (Some(declared), Some(kernel), Some(counts)) => {
                self.counts_for(counts, rows);
                if !counting.counts_every_row {
                    let bytes = usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(4);
                    self.setting.stream.fill(&self.store.buffer(counts)?, 0, bytes, 0)?;
                }
                match self.launch_kernel((kernel.as_ref(), declared), at)? {
                    Verdict::Done => {}
                    other => return Ok(other),
                }
                self.sum_counts(counting, counts, rows, &at.pipeline.name, at.metrics)?
            }
            _ => rows,
        };
        let all = before.saturating_add(more);
        let needed = counting.limit.map_or(all, |limit| all.min(limit));
        if needed > self.store.capacity(counting.class) {
            if before > 0 {
                // Rows of earlier launches lie in what would be replaced: the group runs again.
                self.store.set_word(counting.total, needed)?;
                return Ok(Verdict::Grow);
            }
            self.store.resize(counting.class, needed);
            self.clear_again(counting.class)?;
        }
        at.until = Some(all);
        Ok(Verdict::Done)
    }

    /// Room for the counts of `rows` rows, and one more for their sum.
    fn counts_for(&mut self, counts: usize, rows: u64) {
        let class = self.prepared.program.states[counts].class;
        if self.store.capacity(class) <= rows {
            self.store.resize(class, (rows + 1).next_power_of_two());
        }
    }

    /// Replaces each count by the sum of those before it; the sum of all.
    fn sum_counts(
        &mut self,
        counting: &Counting,
        counts: usize,
        rows: u64,
        name: &str,
        metrics: &mut PipelineMetrics,
    ) -> Result<u64, EngineError> {
        if let Some(counter) = counting.rows {
            let counted = self.store.read_word(counter)?;
            if counted > u64::from(u32::MAX) {
                let most = u32::MAX.into();
                return Err(FallbackReason::Rows { what: name.into(), rows: counted, most }.into());
            }
        }
        let buffer = self.store.buffer(counts)?;
        let offset = usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(4);
        self.setting.stream.fill(&buffer, offset, 4, 0)?;
        let mut primitives = self.primitives();
        primitives.exclusive_scan(&buffer, rows + 1)?;
        metrics.run_ns += primitives.time_ns;
        let mut sum = [0; 4];
        self.setting.stream.download(&buffer, offset, &mut sum)?;
        Ok(u32::from_le_bytes(sum).into())
    }

    /// Clears the states of a class that the group has cleared and that have become others.
    pub(super) fn clear_again(&mut self, class: usize) -> Result<(), EngineError> {
        let states = &self.prepared.program.states;
        for task in self.group.iter().flat_map(|pipeline| pipeline.variant.tasks(When::BeforeRun)) {
            match task {
                Task::Clear(state) if states[*state].class == class => self.store.clear(*state)?,
                _ => {}
            }
        }
        Ok(())
    }
}
