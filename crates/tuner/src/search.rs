//! How a pool is renewed between queries (Rosenfeld et al., section 3.4).

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::pool::{Arm, Pool};
use crate::space::{Genome, Space};

/// Variants that stay: the fastest.
const KEPT: usize = 2;
/// How often a value of a child is any other: one in so many. Low, as the paper says, which gives no number.
const MUTATION: u32 = 24;
/// How many children are made for one that is new and allowed, at most.
const TRIES: usize = 64;

/// How a pool is renewed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Search {
    /// It is not: the paper's baseline.
    None,
    /// The two fastest stay; the others are drawn at random.
    Greedy,
    /// The two fastest stay; the others are children of two parents each, which are drawn in proportion to their speed.
    #[default]
    Genetic,
}

impl Search {
    /// Replaces what was slow. `size`: variants of the pool afterwards, where the space has so many.
    pub fn renew(self, pool: &mut Pool, size: usize, space: &dyn Space, rng: &mut Rng) {
        if self == Search::None {
            return;
        }
        let parents: Vec<Arm> = pool.arms.iter().filter(|arm| arm.cost.is_some()).cloned().collect();
        let kept: Vec<usize> = pool.fastest().into_iter().take(KEPT.min(size)).collect();
        let mut number = 0;
        pool.arms.retain(|_| {
            number += 1;
            kept.contains(&(number - 1)) || (pool.is_seeded && number == 1)
        });
        if self == Search::Genetic && parents.len() > 1 {
            while pool.arms.len() < size {
                let mut children = (0..TRIES).map(|_| child(&parents, space, rng));
                let new = children.find(|genome| space.allows(genome) && !pool.has(genome));
                let Some(genome) = new else { break };
                pool.arms.push(Arm { genome, cost: None });
            }
        }
        pool.fill(space, size, rng);
    }
}

/// A child of two of the parents: each value is one of theirs, and now and then any.
fn child(parents: &[Arm], space: &dyn Space, rng: &mut Rng) -> Genome {
    let (one, other) = (parent(parents, rng), parent(parents, rng));
    let values = one.iter().zip(other).zip(space.counts());
    let inherited = values.map(|((one, other), count)| match rng.u32(0..MUTATION) {
        0 => rng.u16(0..(*count).max(1)),
        _ if rng.bool() => *one,
        _ => *other,
    });
    inherited.collect()
}

/// A parent, drawn in proportion to its speed.
fn parent<'p>(parents: &'p [Arm], rng: &mut Rng) -> &'p [u16] {
    let speed = |arm: &Arm| 1.0 / arm.cost.unwrap_or(f64::MAX).max(f64::MIN_POSITIVE);
    let mut left = rng.f64() * parents.iter().map(speed).sum::<f64>();
    let drawn = parents.iter().find(|arm| {
        left -= speed(arm);
        left <= 0.0
    });
    drawn.or(parents.last()).map_or(&[], |arm| &arm.genome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any of eight variables of eight values: a variant takes the longer the more of its values are not 3.
    struct Threes;

    impl Space for Threes {
        fn counts(&self) -> &[u16] {
            &[8; 8]
        }

        fn allows(&self, _: &[u16]) -> bool {
            true
        }
    }

    fn cost(genome: &[u16]) -> f64 {
        genome.iter().map(|value| 1.0 + f64::from(value.abs_diff(3))).sum()
    }

    /// The cost of the fastest in the pool after so many renewals of a pool of eight.
    fn after(search: Search, renewals: usize, seed: u64) -> f64 {
        let mut rng = Rng::with_seed(seed);
        let mut pool = Pool::random(&Threes, 8, &mut rng);
        let measure = |pool: &mut Pool| {
            pool.arms.iter_mut().for_each(|arm| arm.cost = Some(cost(&arm.genome)));
        };
        for _ in 0..renewals {
            measure(&mut pool);
            search.renew(&mut pool, 8, &Threes, &mut rng);
            assert_eq!(pool.arms.len(), 8);
        }
        measure(&mut pool);
        pool.fastest().first().and_then(|best| pool.arms[*best].cost).expect("all are measured")
    }

    /// The order that Rosenfeld et al. measured (figures 9 and 10), in medians.
    #[test]
    fn greedy_search_is_better_than_none_and_genetic_search_than_greedy() {
        let median = |search| {
            let mut costs: Vec<f64> = (0..41).map(|seed| after(search, 20, seed)).collect();
            costs.sort_by(f64::total_cmp);
            costs[20]
        };
        let (none, greedy, genetic) = (median(Search::None), median(Search::Greedy), median(Search::Genetic));
        assert!(genetic < greedy && greedy < none, "{genetic} {greedy} {none}");
    }

    #[test]
    fn the_fastest_and_the_rule_stay() {
        for search in [Search::Greedy, Search::Genetic] {
            let mut rng = Rng::with_seed(11);
            let mut pool = Pool::seeded(vec![7; 8], &Threes, 8, &mut rng);
            for (arm, cost) in pool.arms.iter_mut().zip([90.0, 8.0, 3.0, 2.0, 1.0, 5.0, 6.0, 7.0]) {
                arm.cost = Some(cost);
            }
            let before = pool.arms.clone();
            search.renew(&mut pool, 8, &Threes, &mut rng);
            assert_eq!(pool.arms[..3], [before[0].clone(), before[3].clone(), before[4].clone()]);
            assert!(pool.arms[3..].iter().all(|arm| arm.cost.is_none()));
        }
    }

    #[test]
    fn a_pool_of_which_nothing_was_measured_is_drawn_anew() {
        let mut rng = Rng::with_seed(1);
        let mut pool = Pool::default();
        Search::Genetic.renew(&mut pool, 3, &Threes, &mut rng);
        assert_eq!(pool.arms.len(), 3);
    }
}
