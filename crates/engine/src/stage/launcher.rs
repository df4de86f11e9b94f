//! Launches of a stage's kernels: from what a kernel asks for to what it is given, one launch, and its status. Every kernel of
//! a compiled plan is launched here; what happens with its status is decided by [`run`](super::run).

use std::collections::HashMap;
use std::ops::Range;

use kelpie_compile::context::ColumnPart;
use kelpie_compile::pipeline::{CompiledKernel, Program};
use kelpie_device::{Buffer, Kernel, KernelArgument};

use super::Setting;
use super::store::StateStore;
use crate::PipelineMetrics;
use crate::error::EngineError;
use crate::launch::submit;

/// Rows that a block of a launch should have, at least, for its start to pay.
const ROWS_PER_CPU_BLOCK: u64 = 16 << 10;

/// A part of a column: scan, column, part.
pub(super) type PartName = (usize, usize, ColumnPart);

/// What launches of one execution of a stage share.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub(super) setting: Setting<'a>,
    pub(super) program: &'a Program,
    /// Bytes that were uploaded for kernels.
    pub(super) constants: HashMap<Vec<u8>, Buffer>,
    /// Where the columns of the block that runs are, if they stream.
    pub windows: HashMap<PartName, KernelArgument>,
}

impl<'a> Launcher<'a> {
    pub fn new(program: &'a Program, setting: Setting<'a>) -> Launcher<'a> {
        Launcher { setting, program, constants: HashMap::new(), windows: HashMap::new() }
    }

    /// Launches a kernel over rows of its pipeline's source, and waits for it; the code that it reported.
    pub fn launch(
        &mut self,
        (kernel, declared): (&dyn Kernel, &CompiledKernel),
        rows: &Range<u64>,
        store: &mut StateStore<'_>,
        metrics: &mut PipelineMetrics,
    ) -> Result<u32, EngineError> {
        let arguments = self.arguments(&declared.arguments, rows, store)?;
        let (blocks, cancel) = (self.grid(rows.end - rows.start), self.setting.cancel);
        let report = submit(self.setting.stream, kernel, blocks, &arguments, cancel)?;
        metrics.run_ns += report.time_ns;
        metrics.launches += 1;
        if !report.accessed.is_empty() {
            let traffic = self.traffic(&declared.arguments, &arguments, &report.accessed);
            *metrics.traffic.get_or_insert_default() += traffic;
        }
        if let Some(activity) = report.activity {
            let lanes = self.setting.stream.device().target().lanes;
            let possible = activity.warp_steps.saturating_mul(u64::from(lanes)).max(1);
            metrics.lane_activity = Some(activity.lane_steps as f64 / possible as f64);
        }
        Ok(report.status)
    }

    /// Blocks of a launch: enough to fill the device, no more than the rows can use. Generated code relies on it that
    /// there are `resident_blocks`, or at least one thread a row (`operator::aggregate::threads`).
    fn grid(&self, rows: u64) -> u32 {
        let target = self.setting.stream.device().target();
        let per_block =
            if target.block_threads == 1 { ROWS_PER_CPU_BLOCK } else { u64::from(target.block_threads) };
        let useful = rows.div_ceil(per_block).max(1);
        u32::try_from(useful).unwrap_or(u32::MAX).min(target.resident_blocks.max(1))
    }
}
