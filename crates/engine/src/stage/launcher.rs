//! Launches of a stage's kernels: from what a kernel asks for to what it is given, one launch, and its status. Every kernel of
//! a compiled plan is launched here; what happens with its status is decided by [`run`](super::run).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::context::ColumnPart;
use kelpie_compile::pipeline::{CompiledKernel, Program};
use kelpie_device::{Buffer, Kernel, KernelArgument};
use parking_lot::Mutex;

use super::setting::Setting;
use super::store::StateStore;
use crate::error::EngineError;
use crate::launch::submit;
use crate::metrics::{LaneProfile, PipelineMetrics};
use crate::trace;

/// A part of a column: scan, column, part.
pub(super) type PartName = (usize, usize, ColumnPart);

/// Constants of a program on its device, by their bytes.
pub type Constants = Mutex<HashMap<Arc<[u8]>, Buffer>>;

/// What launches of one execution of a stage share.
#[derive(Debug)]
pub(super) struct Launcher<'a> {
    pub(super) setting: Setting<'a>,
    pub(super) program: &'a Program,
    /// Bytes that were uploaded for the program's kernels.
    pub(super) constants: &'a Constants,
    /// Where the columns of the block that runs are, if they stream.
    pub windows: HashMap<PartName, KernelArgument>,
    /// The launch drains a queue.
    pub drains: bool,
}

impl<'a> Launcher<'a> {
    pub fn new(program: &'a Program, constants: &'a Constants, setting: Setting<'a>) -> Launcher<'a> {
        Launcher { setting, program, constants, windows: HashMap::new(), drains: false }
    }

    /// Launches a kernel over rows of its pipeline's source, and waits for it; the code that it reported. Where launches are
    /// deferred nobody waits, and the code is 0.
    pub fn launch(
        &mut self,
        (kernel, declared): (&dyn Kernel, &CompiledKernel),
        rows: &Range<u64>,
        store: &mut StateStore<'_>,
        metrics: &mut PipelineMetrics,
    ) -> Result<u32, EngineError> {
        let arguments = self.arguments(&declared.arguments, rows, store)?;
        let (blocks, cancel) = (grid(declared, rows.end - rows.start)?, self.setting.cancel);
        let launch = || submit(self.setting.stream, kernel, blocks, &arguments, cancel);
        let report = trace::for_purpose(&metrics.name, launch)?;
        metrics.run_ns += report.time_ns;
        metrics.launches += 1;
        if !report.accessed.is_empty() {
            let traffic = self.traffic(&declared.arguments, &arguments, &report.accessed);
            *metrics.traffic.get_or_insert_default() += traffic;
        }
        if let Some(activity) = report.activity {
            let possible = activity.warp_steps.saturating_mul(u64::from(declared.shape.lanes));
            metrics.lane_activity = (possible > 0).then(|| activity.lane_steps as f64 / possible as f64);
            metrics.most_warp_steps = metrics.most_warp_steps.max(Some(activity.most_warp_steps));
            if possible > 0 {
                let atomics = metrics.atomics.get_or_insert_default();
                atomics.block += activity.block_atomics;
                atomics.device += activity.device_atomics;
            }
            metrics.lanes = profile(&metrics.name, activity.marks);
        }
        Ok(report.status)
    }
}

/// Who came by the marks of a pipeline's kernel, which are numbered as what stands behind the arrows of its name.
fn profile(name: &str, marks: BTreeMap<u32, Vec<u64>>) -> Vec<LaneProfile> {
    let steps: Vec<&str> = name.split(" → ").skip(1).collect();
    let of = |(number, by_lanes): (u32, Vec<u64>)| {
        // Behind the sink comes the loop in which lanes match texts, and those in which they share the texts of keys.
        let behind = (number as usize).checked_sub(steps.len());
        let in_loop = ["matching", "hashing keys", "comparing keys"];
        let step = match behind {
            Some(place) => in_loop.get(place).copied().unwrap_or("matching"),
            None => steps.get(number as usize).copied().unwrap_or_default(),
        };
        let step = step.to_string();
        LaneProfile { step, by_lanes }
    };
    marks.into_iter().map(of).collect()
}

/// Blocks of a launch over so many rows, by the kernel's shape. What its code relies on is looked at here once more: sums that
/// are too narrow for the rows that a thread sees would be wrong without a sign.
fn grid(kernel: &CompiledKernel, rows: u64) -> Result<u32, EngineError> {
    let blocks = kernel.shape.blocks(rows);
    let (seen, most) = (kernel.shape.rows_seen(rows, blocks), kernel.thread_rows);
    match seen <= most {
        true => Ok(blocks),
        false => Err(EngineError::Internal(format!(
            "kernel {}: a thread would see {seen} rows of {rows}, and {most} are promised",
            kernel.name
        ))),
    }
}

#[cfg(test)]
mod tests {
    use kelpie_compile::shape::LaunchShape;
    use kelpie_kir::{Module, Target};

    use super::*;

    #[test]
    fn a_launch_keeps_what_its_kernel_was_promised() {
        // 2 blocks of 8 threads, 4 rows each: 64 rows a turn.
        let shape = LaunchShape::of(&Target::simt(4, 8, 1 << 10, 2));
        let thread_rows = shape.rows_of_thread(640);
        let (module, name, arguments) = (Module::default(), "sums".into(), Vec::new());
        let kernel = CompiledKernel { module, name, arguments, shape, thread_rows };
        assert_eq!(grid(&kernel, 0).expect("no rows"), 1);
        assert_eq!(grid(&kernel, 9).expect("two blocks' rows"), 2);
        assert_eq!(grid(&kernel, 640).expect("as many as are promised"), 2);
        let error = grid(&kernel, 641).expect_err("a row too many").to_string();
        assert!(error.contains("sums: a thread would see 44 rows of 641, and 40 are promised"), "{error}");
    }
}
