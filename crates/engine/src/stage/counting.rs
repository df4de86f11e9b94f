//! Dense writes in several kernels (HorseQC, Table 4, A1): count what each row of the source becomes, sum the counts up
//! before each, make room for exactly the rows that there are; then the pipeline's own kernel writes.

use std::ops::Range;

use kelpie_compile::pipeline::{CompiledPipeline, Counting};

use super::Setting;
use super::run::{Run, Verdict};
use crate::PipelineMetrics;
use crate::error::{EngineError, FallbackReason};
use crate::primitives::Primitives;

/// What precedes a launch that writes to counted places.
pub enum Counted {
    /// The places are known: afterwards there are so many rows in all.
    Until(u64),
    /// The kernel that counts did not come to its end, or there is no room beside the rows of earlier launches.
    Not(Verdict),
}

impl Run<'_> {
    /// Counts the rows that `rows` of the source become, and makes room for them.
    pub fn count(
        &mut self,
        (index, pipeline): (usize, &CompiledPipeline),
        counting: &Counting,
        rows: &Range<u64>,
        metrics: &mut PipelineMetrics,
    ) -> Result<Counted, EngineError> {
        let before = self.read_word(counting.total)?;
        let prepared = self.prepared;
        let kernel = prepared.counted.get(&index);
        let more = match (&counting.kernel, kernel, counting.counts) {
            (Some(declared), Some((_, kernel)), Some(counts)) => {
                let count = rows.end - rows.start;
                self.counts_for(counts, count);
                let kernel = (kernel.as_ref(), declared.arguments.as_slice());
                let verdict = self.launch_kernel(kernel, pipeline, rows, metrics)?;
                if !matches!(verdict, Verdict::Done) {
                    return Ok(Counted::Not(verdict));
                }
                self.sum_counts(counting, counts, count, &pipeline.name, metrics)?
            }
            _ => rows.end - rows.start,
        };
        let all = before.saturating_add(more);
        let needed = counting.limit.map_or(all, |limit| all.min(limit));
        if needed > self.capacities[counting.class] {
            if before > 0 {
                // Rows of earlier launches lie in what would be replaced: the group runs again.
                self.set_word(counting.total, needed)?;
                return Ok(Counted::Not(Verdict::Grow));
            }
            self.resize(counting.class, needed);
            self.clear_again(counting.class)?;
        }
        Ok(Counted::Until(all))
    }

    /// Room for the counts of `rows` rows, and one more for their sum.
    fn counts_for(&mut self, counts: usize, rows: u64) {
        let class = self.prepared.program.states[counts].class;
        if self.capacities[class] <= rows {
            self.resize(class, (rows + 1).next_power_of_two());
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
            let counted = self.read_word(counter)?;
            if counted > u64::from(u32::MAX) {
                let most = u32::MAX.into();
                return Err(FallbackReason::Rows { what: name.into(), rows: counted, most }.into());
            }
        }
        let buffer = self.buffer(counts)?;
        let offset = usize::try_from(rows).unwrap_or(usize::MAX).saturating_mul(4);
        self.setting.stream.fill(&buffer, offset, 4, 0)?;
        let Setting { stream, cache, cancel, .. } = self.setting;
        let mut primitives = Primitives::new(stream, cache, cancel)?;
        primitives.exclusive_scan(&buffer, rows + 1)?;
        metrics.run_ns += primitives.time_ns;
        let mut sum = [0; 4];
        self.setting.stream.download(&buffer, offset, &mut sum)?;
        Ok(u32::from_le_bytes(sum).into())
    }

    /// Clears the states of a class that the group has cleared and that have become others.
    fn clear_again(&mut self, class: usize) -> Result<(), EngineError> {
        let states = &self.prepared.program.states;
        let cleared: Vec<usize> =
            self.cleared.iter().copied().filter(|state| states[*state].class == class).collect();
        self.clear(&cleared)
    }

    /// Sets a state of one `u64`.
    pub fn set_word(&mut self, state: usize, value: u64) -> Result<(), EngineError> {
        let buffer = self.buffer(state)?;
        Ok(self.setting.stream.upload(&buffer, 0, &value.to_le_bytes())?)
    }
}
