//! What a pipeline did, and what its status means.

use kelpie_compile::context::{Argument, Status};
use kelpie_compile::pipeline::CompiledPipeline;

use super::arguments::part_of;
use super::run::Run;
use crate::error::{EngineError, FallbackReason, QueryError};
use crate::metrics::PipelineMetrics;

impl Run<'_> {
    /// Rows out and bytes: where they were not counted, what the kernel reads and writes at least once.
    pub fn account(
        &self,
        pipeline: &CompiledPipeline,
        metrics: &mut PipelineMetrics,
    ) -> Result<(), EngineError> {
        if let Some(traffic) = &metrics.traffic {
            let mut all = traffic.device();
            all += traffic.link;
            (metrics.bytes_read, metrics.bytes_written) = (all.read, all.written);
        }
        for argument in pipeline.variant.all_arguments().filter(|_| metrics.traffic.is_none()) {
            match argument {
                Argument::Column { scan, column, part } => {
                    let resident = self.setting.column(*scan, *column)?;
                    let buffer = part_of(resident, *part);
                    metrics.bytes_read += buffer.map_or(0, |buffer| buffer.bytes() as u64);
                }
                Argument::State(state) => {
                    let bytes = self.store.bytes(*state)? as u64;
                    let class = self.prepared.program.states[*state].class;
                    let own = pipeline.variant.cleared().any(|cleared| cleared == *state)
                        || pipeline.variant.grows().any(|grown| grown == class);
                    *(if own { &mut metrics.bytes_written } else { &mut metrics.bytes_read }) += bytes;
                }
                _ => {}
            }
        }
        metrics.rows_out = self.rows_out(pipeline)?;
        metrics.rows_foreseen = metrics.groups_estimated.or(pipeline.foreseen);
        Ok(())
    }

    /// Rows that a pipeline has made. Where nothing counts them it is one if there is room for one.
    pub fn rows_out(&self, pipeline: &CompiledPipeline) -> Result<Option<u64>, EngineError> {
        let Some(counter) = pipeline.produced else {
            let most = pipeline.variant.cleared().map(|state| self.store.capacity_of(state)).max();
            return Ok((most.unwrap_or(1) <= 1).then_some(1));
        };
        let is_result = counter == self.prepared.program.output.count;
        let drained = if is_result { self.drained.rows } else { 0 };
        Ok(Some(self.store.glance(counter)? + drained))
    }
}

/// The error of a status that is not success.
pub fn failure(status: Option<Status>, code: u32, sums: &[String]) -> EngineError {
    match status {
        Some(Status::Cancelled) => EngineError::Cancelled,
        Some(Status::Grow) => EngineError::Internal("a state buffer grew too often".into()),
        Some(Status::DivideByZero) => QueryError::DivideByZero.into(),
        Some(Status::Overflow) => QueryError::Overflow.into(),
        Some(Status::CastOutOfRange) => QueryError::CastOutOfRange.into(),
        Some(Status::CastParse) => QueryError::CastParse.into(),
        Some(Status::Fallback) => FallbackReason::Value.into(),
        Some(Status::NotUnique) => EngineError::Internal("keys that nobody assumed to be unique".into()),
        Some(Status::NegativeSubstringLength) => QueryError::NegativeSubstringLength.into(),
        Some(Status::SumOverflow) => match sums.get(Status::aggregate_of(code)) {
            Some(aggregate) => EngineError::SumOverflow { aggregate: aggregate.clone() },
            None => EngineError::Internal(format!("no sum has the number of status {code}")),
        },
        None => EngineError::Internal(format!("a kernel reported the unknown status {code}")),
    }
}
