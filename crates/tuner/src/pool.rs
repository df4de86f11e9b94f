//! The few variants that are in use.

use fastrand::Rng;

use crate::space::{Genome, Space};

/// How much slower than the fastest a variant may be to compete with it.
const COMPETITIVE: f64 = 1.5;
/// How likely a pool of random variants shall hold one that competes.
const LIKELY: f64 = 0.95;
/// Variants of a pool whose size follows from how many compete, at least and at most (Rosenfeld et al., section 3.2).
const SIZES: std::ops::RangeInclusive<usize> = 4..=16;
/// How often a variant is drawn that is not in the pool yet.
const DRAWS: usize = 64;

/// A variant of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Arm {
    /// Which one.
    pub genome: Genome,
    /// Nanoseconds a row, as far as they were measured.
    pub cost: Option<f64>,
}

/// The variants in use.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pool {
    /// The first of them is a rule's choice where [`Pool::is_seeded`].
    pub arms: Vec<Arm>,
    /// Whether the first one always stays.
    pub is_seeded: bool,
}

impl Pool {
    /// Variants drawn at random; fewer where the space has no more.
    pub fn random(space: &dyn Space, size: usize, rng: &mut Rng) -> Pool {
        let mut pool = Pool::default();
        pool.fill(space, size, rng);
        pool
    }

    /// A rule's choice, which stays, and variants drawn at random.
    pub fn seeded(rule: Genome, space: &dyn Space, size: usize, rng: &mut Rng) -> Pool {
        let mut pool = Pool { arms: vec![Arm { genome: rule, cost: None }], is_seeded: true };
        pool.fill(space, size, rng);
        pool
    }

    /// Adds variants drawn at random until there are so many.
    pub fn fill(&mut self, space: &dyn Space, size: usize, rng: &mut Rng) {
        for _ in self.arms.len()..size {
            let mut drawn = (0..DRAWS).map_while(|_| space.random(rng));
            let Some(genome) = drawn.find(|genome| !self.has(genome)) else { return };
            self.arms.push(Arm { genome, cost: None });
        }
    }

    /// Whether it has a variant.
    pub fn has(&self, genome: &[u16]) -> bool {
        self.arms.iter().any(|arm| arm.genome == genome)
    }

    /// The numbers of its variants that were measured, the fastest first.
    pub fn fastest(&self) -> Vec<usize> {
        let mut known: Vec<(usize, f64)> =
            self.arms.iter().enumerate().filter_map(|(number, arm)| Some((number, arm.cost?))).collect();
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        known.into_iter().map(|(number, _)| number).collect()
    }

    /// How large a pool of random variants has to be to hold one, most likely, that competes with the fastest: by how many of these do.
    /// The paper's authors ask for it in their outlook (section 5).
    pub fn fitting_size(&self) -> usize {
        let known: Vec<f64> = self.arms.iter().filter_map(|arm| arm.cost).collect();
        let Some(best) = known.iter().copied().reduce(f64::min) else { return *SIZES.start() };
        let competing = known.iter().filter(|cost| **cost <= best * COMPETITIVE).count();
        let share = competing as f64 / known.len() as f64;
        let size = (1.0 - LIKELY).ln() / (1.0 - share).max(f64::MIN_POSITIVE).ln();
        (size.ceil() as usize).clamp(*SIZES.start(), *SIZES.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::tests::Sums;

    #[test]
    fn a_pool_has_each_variant_once_and_no_more_than_there_are() {
        let (space, mut rng) = (Sums(vec![3, 3]), Rng::with_seed(2));
        for size in 0..12 {
            let pool = Pool::random(&space, size, &mut rng);
            let mut genomes: Vec<_> = pool.arms.iter().map(|arm| arm.genome.clone()).collect();
            genomes.sort();
            genomes.dedup();
            // Five of the nine combinations have an even sum.
            assert_eq!((genomes.len(), pool.arms.len()), (size.min(5), size.min(5)));
        }
        let pool = Pool::seeded(vec![0, 0], &space, 4, &mut rng);
        assert!(pool.is_seeded && pool.arms[0].genome == [0, 0] && pool.arms.len() == 4);
    }

    #[test]
    fn few_that_compete_want_a_larger_pool() {
        let of = |costs: &[f64]| {
            let arms = costs.iter().map(|cost| Arm { genome: vec![], cost: Some(*cost) }).collect();
            Pool { arms, is_seeded: false }.fitting_size()
        };
        assert_eq!(of(&[]), 4);
        assert_eq!(of(&[1.0, 1.1, 1.2, 1.4]), 4);
        assert_eq!(of(&[1.0, 1.1, 3.0, 9.0]), 5);
        assert_eq!(of(&[1.0, 4.0, 3.0, 9.0, 8.0, 8.0, 8.0, 8.0, 9.0]), 16);
    }
}
