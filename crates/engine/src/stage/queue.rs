//! Long ranges of matches, which a launch leaves in a queue for all warps of the next one (`compile/operator/queue`).

use kelpie_compile::pipeline::{CompiledPipeline, RangeQueue, Task, When};

use super::occasion::{Occasion, Verdict};
use super::run::Run;
use crate::error::EngineError;
use crate::metrics::LaneProfile;

/// Words that a queue may come to have as more was asked for: 8 MiB.
const MOST_WORDS: u64 = 1 << 20;

impl Run<'_> {
    /// Launches a pipeline's kernel once more over what it has left in its queue, if it has left anything.
    ///
    /// The kernel knows how many pieces there are: their number here decides about the blocks that it has. Where launches are deferred it
    /// follows from the last run; where nothing was asked of the queue in all of that, nothing is launched, and it is noticed in
    /// the end if something is there this time.
    pub fn drain_queue(&mut self, queue: &RangeQueue, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        let foreseen = self.store.page.foreseen_word(queue.asked);
        let counted = RangeQueue::pieces_of(self.store.glance(queue.pieces)?);
        let pieces = match foreseen {
            Some(0) => {
                self.store.page.rely_on(queue.asked, 0);
                0
            }
            // The last one of several launches may have left nothing, or there is more room now: blocks without work cost little.
            Some(words) => counted.max(words),
            None => counted,
        };
        if pieces == 0 {
            return Ok(Verdict::Done);
        }
        at.metrics.queued += counted;
        let lanes = u64::from(at.variant().kernel.shape.lanes);
        let lanes_before = std::mem::take(&mut at.metrics.lanes);
        let rows = std::mem::replace(&mut at.rows, 0..pieces.saturating_mul(lanes));
        self.launcher.drains = true;
        let kernel = self.prepared.kernels[at.index][at.turn].main.get(self.setting.stream);
        let verdict = match kernel {
            Ok(kernel) => self.launch_kernel((kernel.as_ref(), &at.variant().kernel), at),
            Err(error) => Err(error),
        };
        self.launcher.drains = false;
        at.rows = rows;
        let launch = std::mem::replace(&mut at.metrics.lanes, lanes_before);
        add_lanes(&mut at.metrics.lanes, launch);
        self.launched(at.index);
        if foreseen.is_none() {
            self.make_room(queue)?;
        }
        verdict
    }

    /// What the last launch of a pipeline over its rows has left in its queue, in pieces, where it has one.
    pub fn queued(&self, pipeline: &CompiledPipeline) -> Result<u64, EngineError> {
        for task in pipeline.variants().flat_map(|variant| variant.tasks(When::AfterLaunch)) {
            if let Task::Drain(queue) = task {
                return Ok(RangeQueue::pieces_of(self.store.read_word(queue.pieces)?));
            }
        }
        Ok(0)
    }

    /// What a queue had no room for, it has room for the next time.
    fn make_room(&mut self, queue: &RangeQueue) -> Result<(), EngineError> {
        let class = self.prepared.program.states[queue.words].class;
        let asked = self.store.read_word(queue.asked)?.min(MOST_WORDS);
        if asked > self.store.capacity(class) {
            self.store.resize(class, asked);
        }
        Ok(())
    }
}

/// Adds the lanes of a launch to those of the launch of the kernel before it: steps that no row came to before are the last ones.
fn add_lanes(lanes: &mut Vec<LaneProfile>, launch: Vec<LaneProfile>) {
    let mut from = 0;
    for more in launch {
        let known =
            lanes.iter().skip(from).position(|known| known.step == more.step).map(|index| from + index);
        match known.and_then(|index| lanes.get_mut(index).map(|known| (index, known))) {
            Some((index, known)) => {
                known.by_lanes.resize(known.by_lanes.len().max(more.by_lanes.len()), 0);
                known.by_lanes.iter_mut().zip(more.by_lanes).for_each(|(sum, warps)| *sum += warps);
                from = index + 1;
            }
            None => lanes.push(more),
        }
    }
}
