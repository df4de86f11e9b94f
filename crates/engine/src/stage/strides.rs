//! Groupings that sort stride by stride (`compile/pipeline/cut/strides`): each stride is sorted and becomes a run of groups; where
//! there is no room for another run, and in the end, all runs are merged into one.

use kelpie_compile::pipeline::{PlacedGroups, StrideStep, Strides};

use super::occasion::{Occasion, Verdict};
use super::run::{MOST_STORED_ROWS, Run};
use super::stride_runs::{Runs, SortedStride};
use crate::error::{EngineError, FallbackReason};
use crate::sorting;

impl Run<'_> {
    /// Carries out a step. The host goes by numbers that the device has counted: nothing is deferred from here on.
    pub fn stride(
        &mut self,
        step: StrideStep,
        strides: &Strides,
        at: &mut Occasion<'_>,
    ) -> Result<Verdict, EngineError> {
        self.settle()?;
        let mut runs = self.strides.remove(&strides.partial.count).unwrap_or_default();
        let outcome = match step {
            StrideStep::Begin => self.begin_runs(strides, &mut runs),
            StrideStep::Sort => self.sort_stride(strides, &mut runs, at),
            StrideStep::Exchange => self.exchange_runs(strides, &mut runs),
            StrideStep::Place => self.place_stride(strides, &mut runs, at),
            StrideStep::Merge => self.merge_all(strides, &mut runs, at),
        };
        self.strides.insert(strides.partial.count, runs);
        outcome
    }

    fn begin_runs(&mut self, strides: &Strides, runs: &mut Runs) -> Result<Verdict, EngineError> {
        *runs = Runs::default();
        self.store.set_word(strides.partial.count, 0)?;
        self.store.set_word(strides.merged.count, 0)?;
        Ok(Verdict::Done)
    }

    fn sort_stride(
        &mut self,
        strides: &Strides,
        runs: &mut Runs,
        at: &mut Occasion<'_>,
    ) -> Result<Verdict, EngineError> {
        let rows = self.store.read_word(strides.rows)?;
        sorting::check_rows(rows)?;
        (runs.sorted, runs.most_rows) = (None, runs.most_rows.max(rows));
        if rows == 0 {
            return Ok(Verdict::Skip);
        }
        let words = self.store.buffer(strides.words)?;
        let mut primitives = self.primitives().sorting_by(strides.form);
        let sorted = primitives.sort(std::slice::from_ref(&words), rows)?;
        // Where all words are equal, they are in order as they are.
        let words = sorted.first.unwrap_or(words);
        let (numbers, groups) = primitives.number_runs(&words, rows)?;
        at.metrics.run_ns += primitives.time_ns;
        self.store.replace(strides.order, sorted.order);
        runs.sorted = Some(SortedStride { words, numbers, rows, groups });
        let (held, capacity) = (runs.groups(), self.store.capacity(strides.partial.class));
        match held.saturating_add(groups) {
            needed if needed <= capacity => Ok(Verdict::Skip),
            needed if held == 0 => {
                self.store.resize(strides.partial.class, room(needed, strides)?);
                Ok(Verdict::Skip)
            }
            _ => {
                runs.reduced = Some(self.merge(strides, (runs, groups), at)?);
                Ok(Verdict::Done)
            }
        }
    }

    fn exchange_runs(&mut self, strides: &Strides, runs: &mut Runs) -> Result<Verdict, EngineError> {
        let Some(groups) = runs.reduced.take() else {
            return Err(EngineError::Internal("runs that were not merged".into()));
        };
        self.exchange_groups(strides);
        runs.ends = vec![groups];
        self.store.set_word(strides.partial.count, groups)?;
        Ok(Verdict::Done)
    }

    /// What is reduced takes the place of what it was made of, whose memory is what is reduced into the next time.
    fn exchange_groups(&mut self, Strides { partial, merged, .. }: &Strides) {
        let states = [(partial.words, merged.words), (partial.cells, merged.cells)];
        self.store.exchange((partial.class, merged.class), &states);
    }

    fn place_stride(
        &mut self,
        strides: &Strides,
        runs: &mut Runs,
        at: &mut Occasion<'_>,
    ) -> Result<Verdict, EngineError> {
        // A stride without rows has no groups.
        let Some(stride) = runs.sorted.take() else { return Ok(Verdict::Done) };
        let first = runs.groups();
        let end = first.saturating_add(stride.groups);
        self.clear_groups(&strides.partial, (first, end))?;
        let words = self.store.buffer(strides.partial.words)?;
        let mut primitives = self.primitives();
        primitives.place_runs((&stride.words, &stride.numbers), stride.rows, first, &words)?;
        at.metrics.run_ns += primitives.time_ns;
        self.store.replace(strides.places, stride.numbers);
        self.store.set_word(strides.partial.count, end)?;
        runs.ends.push(end);
        Ok(Verdict::Done)
    }

    fn merge_all(
        &mut self,
        strides: &Strides,
        runs: &mut Runs,
        at: &mut Occasion<'_>,
    ) -> Result<Verdict, EngineError> {
        let groups = match runs.ends.len() {
            0 | 1 => {
                self.exchange_groups(strides);
                self.store.set_word(strides.partial.count, 0)?;
                runs.groups()
            }
            _ => self.merge(strides, (runs, 0), at)?,
        };
        self.store.set_word(strides.merged.count, groups)?;
        // By this the room for a stride is what it should have been from the beginning, when the stage runs again.
        self.store.set_word(strides.rows, runs.most_rows)?;
        Ok(Verdict::Done)
    }

    /// Merges all runs, and makes room for what they are reduced to and `more` groups; how many groups that will be. The kernel reduces
    /// them.
    fn merge(
        &mut self,
        strides: &Strides,
        (runs, more): (&Runs, u64),
        at: &mut Occasion<'_>,
    ) -> Result<u64, EngineError> {
        let rows = runs.groups();
        let words = self.store.buffer(strides.partial.words)?;
        let mut primitives = self.primitives();
        let sorted = primitives.merge_runs(&words, &runs.bounds())?;
        let Some(words) = sorted.first else {
            return Err(EngineError::Internal("runs without groups are merged".into()));
        };
        let (numbers, groups) = primitives.number_runs(&words, rows)?;
        at.metrics.run_ns += primitives.time_ns;
        // After the last stride nothing more comes.
        let capacity = if more == 0 { groups } else { room(groups.saturating_add(more), strides)? };
        self.store.resize(strides.merged.class, capacity);
        self.clear_groups(&strides.merged, (0, groups))?;
        let merged_words = self.store.buffer(strides.merged.words)?;
        let mut primitives = self.primitives();
        primitives.place_runs((&words, &numbers), rows, 0, &merged_words)?;
        at.metrics.run_ns += primitives.time_ns;
        self.store.replace(strides.merge_order, sorted.order);
        self.store.replace(strides.merge_places, numbers);
        Ok(groups)
    }

    /// Clears the cells of groups from one place up to another.
    fn clear_groups(&mut self, groups: &PlacedGroups, (first, end): (u64, u64)) -> Result<(), EngineError> {
        let state = self.prepared.program.states.get(groups.cells);
        let bytes = state.map_or(0, |state| u64::from(state.element_bytes));
        let buffer = self.store.buffer(groups.cells)?;
        let place = |group: u64| usize::try_from(group.saturating_mul(bytes)).unwrap_or(usize::MAX);
        let (first, end) = (place(first), place(end));
        if first < end {
            self.setting.stream.fill(&buffer, first, end - first, 0)?;
        }
        Ok(())
    }
}

/// Room for so many groups and as many more, so that merges stay rare; but not for more than there are rows.
fn room(groups: u64, strides: &Strides) -> Result<u64, EngineError> {
    if groups > MOST_STORED_ROWS {
        let what = "a grouping by strides".into();
        return Err(FallbackReason::Rows { what, rows: groups, most: MOST_STORED_ROWS }.into());
    }
    let most = strides.row_bound.min(MOST_STORED_ROWS).max(groups);
    Ok(groups.saturating_mul(2).min(most))
}
