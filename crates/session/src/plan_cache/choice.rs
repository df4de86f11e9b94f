//! Whether a prepared statement is planned with its values or run by its generic plan: by what either took.
//!
//! A generic plan costs no planning, but was made without knowing the values: which files to leave out, which join comes first. So
//! the first sets of values are planned for, and what they took, planning included, is what the generic plan may take. What a
//! run reads and compiles for the first time counts for neither, as the next run has it.

use std::collections::VecDeque;

/// So many different sets of values are planned for before there is a generic plan.
const CUSTOM: usize = 2;
/// So many runs of the generic plan are judged together at first: one may be slow by chance.
const TRIALS: usize = 3;
/// Only the last so many runs of it are judged, so that it is given up when it becomes slow.
const WINDOW: usize = 8;

/// What the runs of a statement took, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Choice {
    custom: Vec<u64>,
    generic: VecDeque<u64>,
}

/// How a statement is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Planned with its values.
    Custom,
    /// By the generic plan.
    Generic,
    /// Planned with its values, from now on.
    CustomForGood,
}

impl Choice {
    /// Notes what planning with a set of values that was not seen before, and running that, took.
    pub fn add_custom(&mut self, time_ns: u64) {
        if self.custom.len() < CUSTOM {
            self.custom.push(time_ns);
        }
    }

    /// Notes what a run of the generic plan took.
    pub fn add_generic(&mut self, time_ns: u64) {
        if self.generic.len() == WINDOW {
            self.generic.pop_front();
        }
        self.generic.push_back(time_ns);
    }

    /// What planning with the values and running takes on average.
    pub fn custom_ns(&self) -> u64 {
        self.custom.iter().sum::<u64>() / self.custom.len().max(1) as u64
    }

    /// How to run the next set of values: by the generic plan as long as its runs together took no longer than as many that
    /// were planned for, and than three of those while it has had fewer.
    pub fn next(&self) -> Way {
        if self.custom.len() < CUSTOM {
            return Way::Custom;
        }
        let allowed = self.custom_ns().saturating_mul(self.generic.len().max(TRIALS) as u64);
        match self.generic.iter().sum::<u64>() <= allowed {
            true => Way::Generic,
            false => Way::CustomForGood,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(custom: &[u64], generic: &[u64]) -> Way {
        let mut choice = Choice::default();
        custom.iter().for_each(|time| choice.add_custom(*time));
        generic.iter().for_each(|time| choice.add_generic(*time));
        choice.next()
    }

    #[test]
    fn two_sets_of_values_are_planned_for() {
        assert_eq!(choice(&[], &[]), Way::Custom);
        assert_eq!(choice(&[100], &[]), Way::Custom);
        assert_eq!(choice(&[100, 200], &[]), Way::Generic);
        // Later ones say nothing of the first two.
        assert_eq!(choice(&[100, 200, 9000], &[150, 150, 151]), Way::CustomForGood);
    }

    #[test]
    fn the_generic_plan_is_used_while_it_takes_no_longer() {
        assert_eq!(choice(&[100, 200], &[150, 150, 150]), Way::Generic);
        assert_eq!(choice(&[100, 200], &[150, 150, 151]), Way::CustomForGood);
        // One slow run is chance, but not one that takes longer than three with planning.
        assert_eq!(choice(&[100, 200], &[450]), Way::Generic);
        assert_eq!(choice(&[100, 200], &[451]), Way::CustomForGood);
        assert_eq!(choice(&[100, 200], &[440, 5, 5]), Way::Generic);
    }

    #[test]
    fn a_generic_plan_that_becomes_slow_is_given_up() {
        let fast = [10; 100];
        assert_eq!(choice(&[100, 100], &fast), Way::Generic);
        let slow = [101; 8];
        assert_eq!(choice(&[100, 100], &[fast.as_slice(), &slow].concat()), Way::CustomForGood);
        assert_eq!(choice(&[100, 100], &[fast.as_slice(), &slow[1..]].concat()), Way::Generic);
        assert_eq!(choice(&[0, 0], &[u64::MAX]), Way::CustomForGood);
    }
}
