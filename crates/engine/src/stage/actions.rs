//! Carries out what stands in the plan of actions beside a kernel (`kelpie_compile::pipeline::HostAction`): the one place that
//! knows what each [`Task`] means to the engine. When an occasion comes is known to [`run`](super::run).

use std::ops::Range;
use std::time::Instant;

use kelpie_compile::pipeline::{CompiledPipeline, Sorting, Task, When};

use super::Setting;
use super::run::{Run, Verdict};
use crate::error::EngineError;
use crate::primitives::Primitives;
use crate::sorting::RowOrder;
use crate::{PipelineMetrics, sorting};

/// The pipeline for which actions are carried out, and what they find.
pub(super) struct Occasion<'o> {
    /// Its number in the program.
    pub index: usize,
    pub pipeline: &'o CompiledPipeline,
    pub metrics: &'o mut PipelineMetrics,
    /// The rows of its source over which its kernels are launched.
    pub rows: Range<u64>,
    /// Where a launch lacked room: more may be wanted than it could tell.
    pub is_partial: bool,
    /// Some action has made room.
    pub grown: bool,
    /// Rows that will have been written after the launch, where their places were counted before it.
    pub until: Option<u64>,
}

impl<'o> Occasion<'o> {
    pub fn new(
        index: usize,
        pipeline: &'o CompiledPipeline,
        metrics: &'o mut PipelineMetrics,
    ) -> Occasion<'o> {
        Occasion { index, pipeline, metrics, rows: 0..0, is_partial: false, grown: false, until: None }
    }
}

impl Run<'_> {
    /// Carries out a pipeline's actions of one kind of occasion. Where one says that the kernel is not to be launched, the
    /// later ones are left out.
    pub fn perform(&mut self, when: When, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        for task in at.pipeline.tasks(when) {
            match self.task(task, at)? {
                Verdict::Done => {}
                other => return Ok(other),
            }
        }
        Ok(Verdict::Done)
    }

    fn task(&mut self, task: &Task, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        match task {
            Task::Clear(state) => self.store.clear(*state)?,
            Task::Size(class) => self.store.size(*class)?,
            Task::PrefixSum(state) => at.metrics.run_ns += self.sum_up(*state)?,
            Task::Sort(sorting) => at.metrics.run_ns += self.order(sorting)?,
            Task::SkipIfEmpty(rows) if self.counted.get(rows) == Some(&0) => return Ok(Verdict::Skip),
            Task::SkipIfEmpty(_) => {}
            Task::Count(counting) => return self.count(counting, at),
            Task::Advance(total) => match at.until.take() {
                Some(until) => self.store.set_word(*total, until)?,
                None => return Err(EngineError::Internal("rows were written but not counted".into())),
            },
            Task::Grow(class) => at.grown |= self.store.grow(*class, at.is_partial)?,
            Task::GrowHeap => at.grown |= self.store.grow_heap()?,
            Task::BreakPromise(join) => return Ok(Verdict::Duplicate(*join)),
        }
        Ok(Verdict::Done)
    }

    /// The primitives, on this run's stream.
    pub fn primitives(&self) -> Result<Primitives<'_>, EngineError> {
        let Setting { stream, cache, cancel, .. } = self.setting;
        Primitives::new(stream, cache, cancel)
    }

    /// Replaces the elements of a state of `u32` by their exclusive prefix sum; the time on the device, in nanoseconds.
    fn sum_up(&mut self, state: usize) -> Result<u64, EngineError> {
        let (buffer, rows) = (self.store.buffer(state)?, self.store.capacity_of(state));
        let mut primitives = self.primitives()?;
        primitives.exclusive_scan(&buffer, rows)?;
        Ok(primitives.time_ns)
    }

    /// Computes the order of a sort's rows, and how many are delivered; the time on the device or host, in nanoseconds.
    fn order(&mut self, sorting: &Sorting) -> Result<u64, EngineError> {
        let start = Instant::now();
        let rows = self.store.read_word(sorting.rows)?;
        let order = if rows <= self.prepared.host_order_rows {
            let parts: Vec<_> = sorting.words.iter().map(|word| (*word, rows as usize * 8)).collect();
            sorting::on_host(sorting, &self.store.read(&parts)?, rows as usize)
        } else {
            let words = sorting.words.iter().map(|word| self.store.buffer(*word));
            let words = words.collect::<Result<Vec<_>, _>>()?;
            sorting::on_device(sorting, &mut self.primitives()?, &words, rows)?
        };
        let delivered = match order {
            RowOrder::Host(order) => {
                let bytes: Vec<u8> = order.iter().flat_map(|place| place.to_le_bytes()).collect();
                let buffer = self.store.buffer(sorting.order)?;
                self.setting.stream.upload(&buffer, 0, &bytes)?;
                order.len() as u64
            }
            RowOrder::Device(order, delivered) => {
                self.store.replace(sorting.order, order);
                delivered
            }
        };
        self.store.set_word(sorting.delivered, delivered)?;
        if let Some(class) = sorting.class {
            self.store.resize(class, delivered.max(self.store.capacity(class)));
        }
        Ok(start.elapsed().as_nanos() as u64)
    }
}
