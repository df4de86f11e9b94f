//! An occasion for what the engine does around a kernel, and what comes of it.

use std::ops::Range;

use kelpie_compile::pipeline::{CompiledPipeline, PipelineVariant};

use super::blocks::Blocks;
use crate::metrics::PipelineMetrics;

/// The share of the rows that is looked at; no fewer rows than these, and no more.
const SHARE: u64 = 16;
const LEAST_ROWS: u64 = 1 << 18;
const MOST_ROWS: u64 = 1 << 22;
/// Pieces of the rows that are looked at, anywhere among all of them.
const PIECES: u64 = 8;

/// The pipeline for which actions are carried out, and what they find.
pub(super) struct Occasion<'o> {
    /// Its number in the program.
    pub index: usize,
    pub pipeline: &'o CompiledPipeline,
    /// Which of its variants has its turn.
    pub turn: usize,
    pub metrics: &'o mut PipelineMetrics,
    /// The rows of its source over which its kernels are launched.
    pub rows: Range<u64>,
    /// Where the sizes of its tables are to be estimated: the rows of its source.
    pub at_hand: AtHand,
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
        let (rows, at_hand) = (0..0, AtHand::default());
        Occasion {
            index,
            pipeline,
            turn: 0,
            metrics,
            rows,
            at_hand,
            is_partial: false,
            grown: false,
            until: None,
        }
    }

    /// The variant that has its turn.
    pub fn variant(&self) -> &'o PipelineVariant {
        let pipeline = self.pipeline;
        self.turn.checked_sub(1).and_then(|other| pipeline.others.get(other)).unwrap_or(&pipeline.variant)
    }
}

/// What a launch, or an action before it, asks for.
pub(super) enum Verdict {
    Done,
    /// Nothing is to be launched.
    Skip,
    /// More room.
    Grow,
    /// The stage is to be compiled again without this join's assumption.
    NotUnique(usize),
}

/// The rows of a pipeline's source that a sketch may look at.
#[derive(Debug, Default)]
pub(super) struct AtHand {
    /// Those whose columns can be read now.
    ranges: Vec<Range<u64>>,
    /// All of them.
    pub rows: u64,
}

impl AtHand {
    /// Those of blocks, the first of which can be read: all, where nothing is copied.
    pub fn of(blocks: &Blocks) -> AtHand {
        let (ranges, first) = (blocks.ranges(), usize::from(!blocks.ranges().is_empty()));
        let rows = ranges.iter().map(|range| range.end - range.start).sum();
        let at_hand = if blocks.is_free() { ranges } else { &ranges[..first] };
        AtHand { ranges: at_hand.to_vec(), rows }
    }

    /// The pieces that are looked at: in two halves, of which each is of rows anywhere. The last rows come first: memory for text is
    /// laid out by the number of the last row of the first launch.
    pub fn halves(&self) -> [Vec<Range<u64>>; 2] {
        let at_hand: u64 = self.ranges.iter().map(|range| range.end - range.start).sum();
        let sample = (self.rows / SHARE).clamp(LEAST_ROWS, MOST_ROWS).min(at_hand);
        let length = sample.div_ceil(PIECES);
        let mut halves = [Vec::new(), Vec::new()];
        for piece in (0..PIECES).rev() {
            // The pieces lie side by side where all rows are looked at.
            let first = match sample == at_hand {
                true => piece * length,
                false => (at_hand - length) / (PIECES - 1) * piece,
            };
            let end = (first + length).min(at_hand);
            halves[usize::from(piece % 2 == 0)].extend(self.part(first..end));
        }
        halves
    }

    /// A range of the rows at hand, counted from the first of them.
    fn part(&self, wanted: Range<u64>) -> Vec<Range<u64>> {
        let (mut before, mut part) = (0, Vec::new());
        for range in &self.ranges {
            let rows = range.end - range.start;
            let (from, to) = (wanted.start.max(before), wanted.end.min(before + rows));
            if from < to {
                part.push(range.start + from - before..range.start + to - before);
            }
            before += rows;
        }
        part
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One range at hand, of so many rows.
    fn one(range: Range<u64>, rows: u64) -> AtHand {
        AtHand { ranges: std::iter::once(range).collect(), rows }
    }

    fn rows(halves: &[Vec<Range<u64>>; 2]) -> Vec<u64> {
        let mut all: Vec<u64> = halves.iter().flatten().cloned().flatten().collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn few_rows_are_looked_at_once_each() {
        for count in [0, 1, 7, 8, 9, 100, 1_000] {
            let at_hand = one(0..count, count);
            assert_eq!(rows(&at_hand.halves()), (0..count).collect::<Vec<_>>(), "{count}");
        }
        let ranges = vec![10..20, 30..31, 40..90];
        let at_hand = AtHand { ranges: ranges.clone(), rows: 61 };
        assert_eq!(rows(&at_hand.halves()), ranges.into_iter().flatten().collect::<Vec<_>>());
    }

    #[test]
    fn of_many_rows_pieces_from_the_first_to_the_last() {
        let all = 1 << 24;
        let at_hand = one(0..all, all);
        let halves = at_hand.halves();
        let looked_at: u64 = halves.iter().flatten().map(|range| range.end - range.start).sum();
        assert_eq!(looked_at, all / SHARE);
        assert!(halves[0][0].end > all - PIECES && halves.iter().flatten().any(|range| range.start == 0));
        let mut pieces: Vec<_> = halves.iter().flatten().collect();
        pieces.sort_by_key(|range| range.start);
        assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start), "{pieces:?}");
        // A block of them, of which all are looked at where it is short.
        let block = one(100..1100, all);
        assert_eq!(rows(&block.halves()), (100..1100).collect::<Vec<_>>());
    }
}
