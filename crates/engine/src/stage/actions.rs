//! Carries out what stands in the plan of actions beside a kernel (`kelpie_compile::pipeline::HostAction`): the one place that
//! knows what each [`Task`] means to the engine. When an occasion comes is known to [`run`](super::run).

use std::ops::Range;
use std::time::Instant;

use kelpie_compile::pipeline::{Fitting, Sorting, Task, When, WordRanks};
use kelpie_device::Buffer;

use super::occasion::{Occasion, Verdict};
use super::run::Run;
use super::setting::Setting;
use crate::error::{EngineError, FallbackReason};
use crate::primitives::{Counted, Primitives, Rows};
use crate::sorting;
use crate::sorting::{
    HOST_ORDER_ROWS, KeyText, MOST_SELECTED, Picked, Places, RowOrder, SELECTED_ROWS, Selector,
};

/// Rows that are put in order on the device for each one that need not go to the host.
const SORTED_FOR_ONE: u64 = 32;

impl Run<'_> {
    /// Carries out a pipeline's actions of one kind of occasion. Where one says that the kernel is not to be launched, the
    /// later ones are left out.
    pub fn perform(&mut self, when: When, at: &mut Occasion<'_>) -> Result<Verdict, EngineError> {
        for task in at.variant().tasks(when) {
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
            Task::Rank(words) => at.metrics.run_ns += self.rank(words)?,
            Task::Fit(fitting) => self.fit(fitting)?,
            Task::Sort(sorting) if self.order_unseen(sorting)? => {}
            Task::Sort(sorting) => {
                at.metrics.run_ns += self.settled(|run| run.order(sorting))?;
            }
            Task::SkipIfEmpty(rows) if self.counted.get(rows) == Some(&0) => {
                self.store.page.rely_on(*rows, 0);
                return Ok(Verdict::Skip);
            }
            Task::SkipIfEmpty(_) => {}
            Task::Count(counting) => {
                self.settle()?;
                return self.count(counting, at);
            }
            Task::Sketch(sketching) => return self.sketch(sketching, at),
            Task::Compact(compaction) => self.compact(compaction)?,
            Task::Advance(total) => match at.until.take() {
                Some(until) => self.store.set_word(*total, until)?,
                None => return Err(EngineError::Internal("rows were written but not counted".into())),
            },
            Task::Stride(step, strides) => return self.stride(*step, strides, at),
            Task::Drain(queue) => return self.drain_queue(queue, at),
            Task::Grow(class) => at.grown |= self.store.grow(*class, at.is_partial)?,
            Task::GrowHeap => at.grown |= self.store.grow_heap()?,
            Task::DropAssumption(join) => return Ok(Verdict::NotUnique(*join)),
        }
        Ok(Verdict::Done)
    }

    /// Gives arrays the size that follows from a count, where nothing is known of what fits. What would be too much for a result that
    /// stays as a whole is left to what happens where it grows.
    fn fit(&mut self, fitting: &Fitting) -> Result<(), EngineError> {
        let Fitting { count, class, each, slack, drops } = *fitting;
        if !self.store.is_unfitted() || self.is_deferred() || self.drained.block_rows.is_some() {
            return Ok(());
        }
        let (rows, capacity) = (self.store.read_word(count)?, self.store.capacity(class));
        let wanted = rows.saturating_mul(each).saturating_add(slack).max(1);
        let wanted = if drops { wanted.min(capacity) } else { wanted };
        let bytes = wanted.saturating_mul(self.store.element_bytes(class));
        if wanted < capacity || bytes <= self.drained.most_bytes {
            self.store.resize(class, wanted);
        }
        Ok(())
    }

    /// The primitives, on this run's stream.
    pub fn primitives(&self) -> Primitives<'_> {
        let Setting { stream, cache, cancel, .. } = self.setting;
        Primitives::new(stream, cache, cancel).sharing(&self.prepared.primitives)
    }

    /// Replaces the elements of a state of `u32` by their exclusive prefix sum; the time on the device, in nanoseconds.
    fn sum_up(&mut self, state: usize) -> Result<u64, EngineError> {
        let (buffer, rows) = (self.store.buffer(state)?, self.store.capacity_of(state));
        let mut primitives = self.primitives();
        primitives.exclusive_scan(&buffer, rows)?;
        Ok(primitives.time_ns)
    }

    /// Gives the words of a bitmap their ranks; the time on the device, in nanoseconds.
    fn rank(&mut self, words: &WordRanks) -> Result<u64, EngineError> {
        let (bits, ranks) = (self.store.buffer(words.bits)?, self.store.buffer(words.ranks)?);
        let mut primitives = self.primitives();
        primitives.rank_words(&ranks, &bits, self.store.capacity_of(words.ranks))?;
        Ok(primitives.time_ns)
    }

    /// The ranks of a sort's rows that are wanted, of however many rows.
    fn wanted_ranks(&self, sorting: &Sorting) -> Range<u64> {
        let most = sorting.fetch.unwrap_or(u64::MAX);
        // What is not the result is wanted as a whole.
        let wanted = sorting.class.map_or(0..u64::MAX, |_| self.drained.wanted.clone());
        wanted.start.min(most)..wanted.end.min(most)
    }

    /// Where launches are deferred and the rows will be few, lets one block put them in order, by what the device has counted:
    /// nobody waits, and no words leave the device. Whether it does. If the rows are more than was foreseen, the stage runs again.
    ///
    /// It is for words that decide all of the order, wanted from its beginning: else the host has to know what came of the sort.
    fn order_unseen(&mut self, sorting: &Sorting) -> Result<bool, EngineError> {
        let wanted = self.wanted_ranks(sorting);
        let Some(most) = self.store.foreseen_most(sorting.rows).filter(|_| wanted.start == 0) else {
            return Ok(false);
        };
        if !sorting.is_exact || !self.primitives().fits_block(most, sorting.words.len()) {
            return Ok(false);
        }
        self.store.page.rely_on(sorting.rows, most);
        if let Some(class) = sorting.class {
            self.store.resize(class, most.min(wanted.end).max(self.store.capacity(class)));
        }
        let words = sorting.words.iter().map(|word| self.store.buffer(*word));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let order = self.store.buffer(sorting.order)?;
        let first = sorting.sorted_word.map(|state| self.store.buffer(state)).transpose()?;
        // Where more rows were stored than there is room for, the launch that did has failed.
        let most = most.min(self.store.capacity_of(sorting.order));
        let (rows, delivered) = (self.store.place(sorting.rows)?, self.store.place(sorting.delivered)?);
        self.store.page.changed(sorting.delivered);
        let counted = Counted { rows, most, wanted: wanted.end, delivered };
        self.primitives().sort_counted(&words, (&order, first.as_ref()), &counted)?;
        (self.drained.left_out, self.drained.is_decided) = (0, true);
        Ok(true)
    }

    /// Computes the order of a sort's rows, as far as it is wanted, and how many are delivered; the time on the device or
    /// host, in nanoseconds.
    fn order(&mut self, sorting: &Sorting) -> Result<u64, EngineError> {
        let start = Instant::now();
        let rows = self.store.read_word(sorting.rows)?;
        let wanted = self.wanted_ranks(sorting);
        let wanted = wanted.start.min(rows)..wanted.end.min(rows);
        let order = match wanted.is_empty() {
            true => RowOrder::empty(),
            false => self.order_of(sorting, rows, wanted)?,
        };
        let delivered = match order.places {
            Places::Host(places) => {
                let bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
                let buffer = self.store.buffer(sorting.order)?;
                self.setting.stream.upload(&buffer, 0, &bytes)?;
                places.len() as u64
            }
            Places::Device(places, count) => {
                self.store.replace(sorting.order, places);
                count
            }
        };
        if let Some(state) = sorting.sorted_word {
            self.keep_sorted_words(sorting, (state, delivered), order.first)?;
        }
        (self.drained.left_out, self.drained.is_decided) = (order.start, order.is_decided);
        self.store.set_word(sorting.delivered, delivered)?;
        if let Some(class) = sorting.class {
            self.store.resize(class, delivered.max(self.store.capacity(class)));
        }
        Ok(start.elapsed().as_nanos() as u64)
    }

    /// Fills a state with the first words of the delivered rows in order, which are those of the sort, if it has them.
    fn keep_sorted_words(
        &mut self,
        sorting: &Sorting,
        (state, delivered): (usize, u64),
        sorted: Option<Buffer>,
    ) -> Result<(), EngineError> {
        let Some(word) = sorting.words.first().filter(|_| delivered > 0) else { return Ok(()) };
        let sorted = match sorted {
            Some(sorted) => sorted,
            None => {
                let (words, order) = (self.store.buffer(*word)?, self.store.buffer(sorting.order)?);
                let rows = Rows { list: Some(order), count: delivered };
                self.primitives().words_of(&words, &rows)?
            }
        };
        self.store.replace(state, sorted);
        Ok(())
    }

    /// The rows of some ranks, of which there is one at least.
    fn order_of(
        &mut self,
        sorting: &Sorting,
        rows: u64,
        wanted: Range<u64>,
    ) -> Result<RowOrder, EngineError> {
        sorting::check_rows(rows)?;
        let words = sorting.words.iter().map(|word| self.store.buffer(*word));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let mut texts = Vec::new();
        for text in &sorting.texts {
            let stored = match text.stored {
                Some((addresses, lengths)) => {
                    Some((self.store.buffer(addresses)?, self.store.buffer(lengths)?))
                }
                None => None,
            };
            texts.push(KeyText { word: text.word, descending: text.descending, stored });
        }
        // Of few rows that are wanted, the others are not sorted.
        let selects = sorting.fetch.is_some();
        let few = wanted.end - wanted.start;
        let on_host = rows <= self.prepared.host_order_rows;
        // The host has to compare all texts that words do not tell apart: better few of them.
        let is_free = on_host && (sorting.is_exact || rows <= SELECTED_ROWS || !selects);
        let host_rows = SELECTED_ROWS.min(self.prepared.host_order_rows).max(few);
        let mut primitives = self.primitives().sorting_by(sorting.form);
        let mut selector =
            Selector { primitives: &mut primitives, words: &words, texts: &texts, host_rows, steps: 0 };
        let picked = match is_free {
            true => Some(selector.on_host(rows, wanted.clone())?),
            false if selects && few <= MOST_SELECTED => selector.select(rows, wanted.clone())?,
            false => None,
        };
        // Rows of which something is left to be compared go to the host, though they were to stay here: better they are put in order
        // as a whole, where that is not far more work.
        // Of what is not the result, nobody puts rows in order afterwards.
        let is_inside = sorting.class.is_none();
        let stays = |picked: &Picked| {
            let sorted_at_once = HOST_ORDER_ROWS.max(picked.places.len() as u64 * SORTED_FOR_ONE);
            picked.is_decided || !is_inside && (!self.setting.keeps_rows || rows > sorted_at_once)
        };
        if let Some(picked) = picked.filter(stays) {
            return Ok(picked.into());
        }
        if on_host && !self.setting.keeps_rows && !is_inside {
            return Ok(selector.on_host(rows, wanted)?.into());
        }
        let order = sorting::on_device(&texts, &mut primitives, &words, rows, wanted)?;
        match order.is_decided || !is_inside {
            true => Ok(order),
            false => Err(FallbackReason::Undecided.into()),
        }
    }
}
