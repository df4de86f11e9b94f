//! What looking for something faster may cost.

use serde::{Deserialize, Serialize};

/// Runs of which a part may be lost.
const RUNS: f64 = 20.0;
/// That part.
const PART: f64 = 0.05;
/// Of what a faster variant has saved, the part that may be spent on looking further.
const SPENT_AGAIN: f64 = 0.1;

/// The time that was lost to variants that turned out slower, and what was saved by those that are faster. All of it is in runs of the
/// rule's choice. No more is lost than 5 % of the first 20 runs and a tenth of what was saved before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    // In single precision, which comes back from text as it was.
    lost: f32,
    saved: f32,
}

impl Regret {
    /// A run took this part of the rule's time.
    pub fn ran(&mut self, part: f64) {
        match part {
            slower if slower > 1.0 => self.lost += (slower - 1.0) as f32,
            faster => self.saved += (1.0 - faster.max(0.0)) as f32,
        }
    }

    /// So much time was spent on what came to nothing.
    pub fn wasted(&mut self, part: f64) {
        self.lost += part.max(0.0) as f32;
    }

    /// How much may still be lost.
    pub fn left(&self) -> f64 {
        (RUNS * PART + self.saved() * SPENT_AGAIN - self.lost()).max(0.0)
    }

    /// What was lost so far.
    pub fn lost(&self) -> f64 {
        f64::from(self.lost)
    }

    /// What was saved.
    pub fn saved(&self) -> f64 {
        f64::from(self.saved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_of_twenty_may_be_lost_and_a_tenth_of_what_was_saved() {
        let mut regret = Regret::default();
        assert!((regret.left() - 1.0).abs() < 1e-4);
        regret.ran(1.4);
        regret.wasted(0.5);
        assert!((regret.left() - 0.1).abs() < 1e-4);
        regret.wasted(3.0);
        assert!(regret.left() <= 0.0);
        (0..200).for_each(|_| regret.ran(0.5));
        assert!((regret.left() - (1.0 + 10.0 - 3.9)).abs() < 1e-4);
    }
}
