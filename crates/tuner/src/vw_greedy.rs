//! vw-greedy (Raducanu et al., "Micro Adaptivity in Vectorwise", section 3; Rosenfeld et al., section 3.1): which of a few variants
//! the next chunk of rows takes.

use fastrand::Rng;

/// How much of what was known of a variant is left beside the time of its newest chunk, where it has been measured often.
const DECAY: f64 = 0.75;

/// When it explores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Chunks that each variant takes before anything is decided.
    pub first: u32,
    /// Chunks that the fastest takes before another is tried again.
    pub exploit: u32,
    /// Chunks that one takes which is tried again.
    pub explore: u32,
}

impl Default for Schedule {
    /// Two chunks each at first, as the paper has it; later two of 32.
    fn default() -> Schedule {
        Schedule { first: 2, exploit: 30, explore: 2 }
    }
}

/// What is known of a variant's time.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// Nanoseconds a row.
    mean: f64,
    chunks: u32,
}

impl Cost {
    fn add(&mut self, sample: f64) {
        // The mean of the first ones, in which later ones push out the older.
        let kept = (f64::from(self.chunks) / (f64::from(self.chunks) + 1.0)).min(DECAY);
        self.mean = self.mean * kept + sample * (1.0 - kept);
        self.chunks += 1;
    }
}

/// Chooses among variants that are numbered.
#[derive(Debug, Clone)]
pub struct VwGreedy {
    schedule: Schedule,
    costs: Vec<Cost>,
    /// Variants that are not to be chosen any more.
    barred: Vec<bool>,
    /// The one that is tried again, and for how many chunks still.
    explored: Option<(usize, u32)>,
    /// Chunks since one was last tried.
    exploited: u32,
    rng: Rng,
}

impl VwGreedy {
    /// Nothing is known of any of `arms` variants.
    pub fn new(arms: usize, schedule: Schedule, seed: u64) -> VwGreedy {
        VwGreedy {
            schedule,
            costs: vec![Cost::default(); arms],
            barred: vec![false; arms],
            explored: None,
            exploited: 0,
            rng: Rng::with_seed(seed),
        }
    }

    /// The variant for the next chunk. Before it is asked again, [`VwGreedy::measured`] should tell what that took.
    pub fn turn(&mut self) -> usize {
        if let Some(new) = self.unknown() {
            return new;
        }
        if let Some((arm, left)) = self.explored.take() {
            self.explored = left.checked_sub(1).filter(|left| *left > 0).map(|left| (arm, left));
            return arm;
        }
        if self.exploited >= self.schedule.exploit {
            self.exploited = 0;
            let others: Vec<usize> = (0..self.costs.len()).filter(|arm| self.may(*arm)).collect();
            if let Some(arm) = self.rng.choice(others) {
                self.explored = (self.schedule.explore > 1).then(|| (arm, self.schedule.explore - 1));
                return arm;
            }
        }
        self.exploited += 1;
        self.best()
    }

    /// Tells what a chunk of some rows took, in nanoseconds.
    pub fn measured(&mut self, arm: usize, rows: u64, time_ns: u64) {
        if let Some(cost) = self.costs.get_mut(arm).filter(|_| rows > 0) {
            cost.add(time_ns as f64 / rows as f64);
        }
    }

    /// Leaves a variant out from now on: it is hopeless, or cannot be had. The first one stays.
    pub fn bar(&mut self, arm: usize) {
        if let Some(barred) = self.barred.get_mut(arm).filter(|_| arm > 0) {
            *barred = true;
        }
        self.explored = self.explored.filter(|(explored, _)| *explored != arm);
    }

    /// The fastest as far as it is known; the first where nothing is.
    pub fn best(&self) -> usize {
        let known = (0..self.costs.len()).filter(|arm| self.may(*arm) && self.costs[*arm].chunks > 0);
        known.min_by(|a, b| self.costs[*a].mean.total_cmp(&self.costs[*b].mean)).unwrap_or(0)
    }

    /// Nanoseconds a row, where a variant was measured.
    pub fn cost(&self, arm: usize) -> Option<f64> {
        self.costs.get(arm).filter(|cost| cost.chunks > 0).map(|cost| cost.mean)
    }

    /// Chunks that a variant was measured over.
    pub fn chunks(&self, arm: usize) -> u32 {
        self.costs.get(arm).map_or(0, |cost| cost.chunks)
    }

    /// Whether some variant has not had its first chunks yet.
    pub fn begins(&self) -> bool {
        self.unknown().is_some()
    }

    fn may(&self, arm: usize) -> bool {
        self.barred.get(arm).is_some_and(|barred| !barred)
    }

    /// One that has not had its first chunks: each in turn takes one, so that drift of the machine meets all of them.
    fn unknown(&self) -> Option<usize> {
        let new = (0..self.costs.len())
            .filter(|arm| self.may(*arm) && self.costs[*arm].chunks < self.schedule.first);
        new.min_by_key(|arm| (self.costs[*arm].chunks, *arm))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The total time of some chunks of 100 rows, where variants take such times a row at each chunk.
    fn run(chooser: &mut VwGreedy, chunks: u32, time: impl Fn(usize, u32) -> f64) -> f64 {
        (0..chunks).fold(0.0, |total, chunk| {
            let arm = chooser.turn();
            let time = time(arm, chunk);
            chooser.measured(arm, 100, (time * 100.0) as u64);
            total + time
        })
    }

    #[test]
    fn each_has_two_chunks_before_the_fastest_has_the_others() {
        let times = [5.0, 2.0, 9.0, 3.0];
        let mut chooser = VwGreedy::new(4, Schedule::default(), 7);
        let first: Vec<usize> = (0..8)
            .map(|_| {
                let arm = chooser.turn();
                chooser.measured(arm, 10, (times[arm] * 10.0) as u64);
                arm
            })
            .collect();
        assert_eq!(first, [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!((chooser.turn(), chooser.best(), chooser.cost(2)), (1, 1, Some(9.0)));
    }

    /// Rosenfeld et al., section 3.2: with 1024 chunks and 8 variants the mean approaches that of the fastest.
    #[test]
    fn many_chunks_take_hardly_more_than_the_fastest_would() {
        let mut chooser = VwGreedy::new(8, Schedule::default(), 3);
        let total = run(&mut chooser, 1024, |arm, _| 1.0 + arm as f64);
        assert!(total < 1024.0 * 1.3, "{total}");
    }

    #[test]
    fn another_is_found_when_data_change() {
        let mut chooser = VwGreedy::new(3, Schedule::default(), 5);
        let time = |arm: usize, chunk: u32| match (arm, chunk < 200) {
            (0, true) | (2, false) => 1.0,
            _ => 4.0,
        };
        run(&mut chooser, 600, time);
        assert_eq!(chooser.best(), 2);
    }

    #[test]
    fn what_is_barred_is_never_chosen_and_the_first_cannot_be() {
        let mut chooser = VwGreedy::new(3, Schedule { first: 1, exploit: 1, explore: 3 }, 1);
        chooser.bar(0);
        chooser.bar(1);
        let chosen: Vec<usize> = (0..50)
            .map(|_| {
                let arm = chooser.turn();
                chooser.measured(arm, 1, 10 - arm as u64);
                arm
            })
            .collect();
        assert!(chosen.contains(&0) && chosen.contains(&2) && !chosen.contains(&1), "{chosen:?}");
    }

    #[test]
    fn chunks_without_rows_tell_nothing() {
        let mut chooser = VwGreedy::new(2, Schedule::default(), 1);
        chooser.measured(0, 0, 100);
        assert_eq!((chooser.chunks(0), chooser.cost(0), chooser.best()), (0, None, 0));
    }
}
