//! Whether one variant is faster than another, by runs side by side.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Pairs that are kept: what was measured before no longer counts.
const KEPT: usize = 9;
/// Pairs without which nothing is decided; fewer do where the difference is great.
const LEAST: usize = 3;
const LEAST_IF_GREAT: usize = 2;
/// A great difference: a ratio of no more than this, or of no less than its reciprocal.
const GREAT: f64 = 0.8;
/// The ratio of times from which a variant counts as faster, and from which as slower.
const FASTER: f64 = 0.96;
const SLOWER: f64 = 1.02;

/// What pairs of runs tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// It takes this part of the other's time.
    Faster(f64),
    /// It takes longer.
    Slower(f64),
    /// Nothing yet, or there is no difference worth a change.
    Open,
}

/// Times of a variant beside another's in the same minute, as ratios: another load on the machine meets both, and so is no evidence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pairs(VecDeque<f32>);

impl Pairs {
    /// Adds a variant's time and that of the other, next to it.
    pub fn add(&mut self, time_ns: u64, other_ns: u64) {
        if time_ns > 0 && other_ns > 0 {
            self.0.push_back((time_ns as f64 / other_ns as f64) as f32);
            if self.0.len() > KEPT {
                self.0.pop_front();
            }
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ratio in the middle; `None` where there are no pairs.
    pub fn median(&self) -> Option<f64> {
        let mut sorted: Vec<f32> = self.0.iter().copied().collect();
        sorted.sort_by(f32::total_cmp);
        sorted.get(sorted.len() / 2).map(|ratio| f64::from(*ratio))
    }

    /// What they tell: the one in the middle decides, where nearly all of them agree with it on who is faster.
    pub fn verdict(&self) -> Verdict {
        let is_great = |ratio: f32| f64::from(ratio) <= GREAT || f64::from(ratio) >= 1.0 / GREAT;
        let least = if self.0.iter().all(|ratio| is_great(*ratio)) { LEAST_IF_GREAT } else { LEAST };
        let Some(median) = self.median().filter(|_| self.len() >= least) else { return Verdict::Open };
        let agreeing = self.0.iter().filter(|ratio| (f64::from(**ratio) < 1.0) == (median < 1.0)).count();
        // Of three all, of six all but one, of nine all but two.
        let agree = agreeing + self.len() / 3 > self.len() || agreeing == self.len();
        match median {
            faster if faster <= FASTER && agree => Verdict::Faster(faster),
            slower if slower >= SLOWER && agree => Verdict::Slower(slower),
            _ => Verdict::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ratios: &[f64]) -> Pairs {
        let mut pairs = Pairs::default();
        ratios.iter().for_each(|ratio| pairs.add((ratio * 1e6) as u64, 1_000_000));
        pairs
    }

    #[test]
    fn a_verdict_takes_several_pairs_that_agree() {
        assert_eq!(of(&[]).verdict(), Verdict::Open);
        assert_eq!(of(&[0.5]).verdict(), Verdict::Open);
        assert_eq!(of(&[0.9, 0.9]).verdict(), Verdict::Open);
        assert_eq!(of(&[0.5, 0.5]).verdict(), Verdict::Faster(0.5));
        assert_eq!(of(&[0.5, 2.0]).verdict(), Verdict::Open);
        assert!(
            matches!(of(&[0.5, 0.6, 0.7]).verdict(), Verdict::Faster(ratio) if (ratio - 0.6).abs() < 1e-6)
        );
        assert_eq!(of(&[0.5, 0.6, 1.1]).verdict(), Verdict::Open);
        assert!(matches!(of(&[0.5, 0.6, 1.1, 0.6, 0.6, 0.7]).verdict(), Verdict::Faster(_)));
        assert!(matches!(of(&[1.5, 1.1, 1.3]).verdict(), Verdict::Slower(_)));
        assert_eq!(of(&[0.99, 0.98, 1.0]).verdict(), Verdict::Open);
    }

    #[test]
    fn old_pairs_are_forgotten() {
        let ratios: Vec<f64> = [0.5; 9].into_iter().chain([1.4; 9]).collect();
        assert!(matches!(of(&ratios).verdict(), Verdict::Slower(_)));
    }

    /// Half of the runs are slowed by something else: the one that is slower by itself is told apart all the same.
    #[test]
    fn load_that_comes_and_goes_is_no_verdict() {
        let mut pairs = Pairs::default();
        for run in 0..9_u64 {
            let load = 1 + run % 2 * 2;
            pairs.add(1_010_000 * load, 1_000_000 * load);
        }
        assert_eq!(pairs.verdict(), Verdict::Open);
    }
}
