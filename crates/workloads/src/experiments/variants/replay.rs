//! Queries whose chunks take what was measured of their variants: as many as the paper has, which would take days to run.

use std::collections::HashMap;

use kelpie_session::spaces::Genome;
use kelpie_tuner::{Pool, Rng, Schedule, VwGreedy};

use super::bench::{Times, middle};

/// Chunks of a query (section 3.2).
pub const CHUNKS: u32 = 1024;

/// How a chunk's variant is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choose {
    /// Any of the pool.
    Random,
    /// By what the chunks before have taken.
    VwGreedy,
}

impl Choose {
    pub fn name(self) -> &'static str {
        match self {
            Choose::Random => "random",
            Choose::VwGreedy => "vw-greedy",
        }
    }
}

/// Runs a query over so many chunks; the mean time of one. `chunk` gives what a chunk takes in a variant of the pool. What vw-greedy has
/// learned of the variants is noted in the pool.
pub fn query<E>(
    pool: &mut Pool,
    (choose, chunks): (Choose, u32),
    rng: &mut Rng,
    mut chunk: impl FnMut(usize, u32, &mut Rng) -> Result<u64, E>,
) -> Result<f64, E> {
    let arms = pool.arms.len().max(1);
    let mut greedy = VwGreedy::new(arms, Schedule::default(), rng.u64(..));
    let mut total = 0.0;
    for number in 0..chunks {
        let arm = match choose {
            Choose::Random => rng.usize(0..arms),
            Choose::VwGreedy => greedy.turn(),
        };
        let time = chunk(arm, number, rng)?;
        greedy.measured(arm, 1, time);
        total += time as f64;
    }
    for (number, arm) in pool.arms.iter_mut().enumerate() {
        arm.cost = greedy.cost(number).or(arm.cost);
    }
    Ok(total / f64::from(chunks.max(1)))
}

/// What variants take, as it was measured.
pub struct Replay(HashMap<Genome, Times>);

impl Replay {
    pub fn new(times: HashMap<Genome, Times>) -> Replay {
        Replay(times)
    }

    /// The time of the fastest.
    pub fn best(&self) -> f64 {
        self.0.values().map(|times| middle(times)).min().unwrap_or(1) as f64
    }

    /// Whether a variant was measured.
    pub fn has(&self, genome: &[u16]) -> bool {
        self.0.contains_key(genome)
    }

    /// A query; the mean time of a chunk.
    pub fn query(&self, pool: &mut Pool, choose: Choose, rng: &mut Rng) -> f64 {
        let none = Vec::new();
        let of_arm: Vec<&Times> =
            pool.arms.iter().map(|arm| self.0.get(&arm.genome).unwrap_or(&none)).collect();
        let chunk = |arm: usize, _, rng: &mut Rng| {
            let times = of_arm.get(arm).and_then(|times| rng.choice(times.iter()));
            Ok::<u64, std::convert::Infallible>(times.copied().unwrap_or(u64::MAX))
        };
        match query(pool, (choose, CHUNKS), rng, chunk) {
            Ok(mean) => mean,
            Err(never) => match never {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten variants, of which each takes a hundred more than the one before.
    fn ten() -> (Replay, Pool) {
        let genomes: Vec<Genome> = (0..10).map(|number| vec![number]).collect();
        let times = genomes.iter().map(|genome| (genome.clone(), vec![100 + 100 * u64::from(genome[0])]));
        let arms = genomes.iter().map(|genome| kelpie_tuner::Arm { genome: genome.clone(), cost: None });
        (Replay::new(times.collect()), Pool { arms: arms.collect(), is_seeded: false })
    }

    #[test]
    fn vw_greedy_comes_near_the_fastest_and_random_to_the_mean() {
        let (replay, mut pool) = ten();
        let mut rng = Rng::with_seed(5);
        assert_eq!(replay.best(), 100.0);
        let random = replay.query(&mut pool, Choose::Random, &mut rng);
        assert!((450.0..650.0).contains(&random), "{random}");
        let greedy = replay.query(&mut pool, Choose::VwGreedy, &mut rng);
        assert!((100.0..150.0).contains(&greedy), "{greedy}");
        assert_eq!(pool.fastest().first(), Some(&0));
        assert!(replay.has(&[3]) && !replay.has(&[10]));
    }
}
