//! What pipelines need to know of each other before any kernel is emitted: which states later ones read, so that nothing is
//! stored that nobody reads, and the counters that their kernels share with the engine.

use std::collections::BTreeSet;

use super::Pipeline;
use crate::program::{Growth, Purpose, RangeQueue, States};
use crate::shape::LaunchShape;

/// What a pipeline's kernels are given beside its operators' states.
#[derive(Debug)]
pub(crate) struct Memory {
    /// States that later pipelines read.
    pub needed: BTreeSet<usize>,
    /// State of the morsel counter of its kernel, where there is one.
    pub morsels: Option<usize>,
    /// Where a kernel counts the rows before.
    pub count: Option<CountMemory>,
    /// Where long ranges may wait for all warps.
    pub queue: Option<RangeQueue>,
}

/// Words of a queue for each warp of a full grid, at first: some six ranges. What was asked for in vain is there the next time.
const QUEUE_WORDS: u64 = 32;

/// What a kernel that counts is given.
#[derive(Debug)]
pub(crate) struct CountMemory {
    /// State of one `u32` a row of the source.
    pub counts: usize,
    /// State of one `u64` that counts all of them, where that may be too many for a `u32`.
    pub rows: Option<usize>,
    /// State of its morsel counter, where there is one.
    pub morsels: Option<usize>,
}

/// Goes from the last pipeline to the first, and declares the counters.
pub(crate) fn plan(pipelines: &[Pipeline], shape: &LaunchShape, states: &mut States) -> Vec<Memory> {
    states.of(Purpose::Store);
    let mut read = BTreeSet::new();
    let mut planned: Vec<Memory> = Vec::new();
    for pipeline in pipelines.iter().rev() {
        let needed = read.clone();
        pipeline.read(&mut read);
        let takes_morsels = shape.is_serial() && pipeline.sink.own_rows().is_none();
        let morsels = takes_morsels.then(|| states.counter("morsels"));
        let counts =
            pipeline.counts.filter(|_| pipeline.sink.target().is_some() && !pipeline.is_one_to_one());
        let count = counts.map(|counts| {
            let rows = (pipeline.bound >= u64::from(u32::MAX)).then(|| states.counter("launch_rows"));
            let morsels = shape.is_serial().then(|| states.counter("morsels"));
            CountMemory { counts, rows, morsels }
        });
        let expands = pipeline.steps.iter().any(|step| step.expands() && step.expansion().is_ok());
        let queue = (expands && !shape.is_serial()).then(|| {
            let warps = u64::from(shape.most_blocks) * u64::from(shape.warps());
            let asked = states.counter("queue_asked");
            let class = states.class(warps * QUEUE_WORDS, Growth::Counted(asked));
            RangeQueue {
                pieces: states.counter("queue_pieces"),
                asked,
                words: states.state("queue", 8, class),
            }
        });
        planned.push(Memory { needed, morsels, count, queue });
    }
    planned.reverse();
    planned
}

impl Pipeline {
    /// Adds the states whose rows it reads, if later pipelines read `states`.
    fn read(&self, states: &mut BTreeSet<usize>) {
        let mut columns = self.sink.read(states);
        for step in self.steps.iter().rev() {
            columns = step.read(&columns, states);
        }
        self.source.read(&columns, states);
    }

    /// Whether every row of a table comes to the sink.
    pub(crate) fn keeps_all(&self) -> bool {
        self.source.is_scan()
            && self.prunes.is_empty()
            && self.steps.iter().all(|step| step.projection().is_some())
    }

    /// Whether each row of the source becomes exactly one.
    pub(crate) fn is_one_to_one(&self) -> bool {
        self.source.has_every_row() && self.steps.iter().all(|step| step.projection().is_some())
    }
}
