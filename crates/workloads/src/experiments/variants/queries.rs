//! Queries over chunks: pools of several sizes (section 3.2), and searches between queries (section 3.5), replayed from what was measured
//! of each variant, and run as they are as often as is asked for.

use anyhow::{Context, Result, ensure};
use kelpie_session::spaces::{Genome, SelectionKernel, SumKernel};
use kelpie_tuner::{Pool, Rng, Search};

use super::super::algebra::{Settings, Shown, point};
use super::bench::Bench;
use super::replay::{CHUNKS, Choose, Replay, query};
use super::universe::Searched;

/// Pools of figure 7.
const SIZES: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The largest that is run.
const MOST_RUN: usize = 16;
/// How often a pool is drawn anew, and a search begun anew (figures 7, 9 and 10).
const POOLS: u64 = 300;
const SERIES: u64 = 100;
/// Variants of a pool, and queries one behind the other.
const POOL: usize = 8;
const QUERIES: usize = 10;
/// Chunks of a query that is run, where the scale factor is below 1: at 1 and above as many as the paper has.
const FEW_CHUNKS: u32 = 64;
const SHARES: [(f64, &str); 3] = [(0.25, "25 %"), (0.5, "median"), (0.75, "75 %")];

/// A kernel of either operator.
enum Arm {
    Selection(SelectionKernel),
    Sum(SumKernel),
}

impl Bench {
    fn arm(&self, genome: &Genome, selections: bool) -> Result<Arm> {
        Ok(if selections { Arm::Selection(self.selection(genome)?) } else { Arm::Sum(self.sum(genome)?) })
    }

    /// The time of a chunk.
    fn run_chunk(&self, arm: &Arm, number: u32) -> Result<u64> {
        Ok(match arm {
            Arm::Selection(kernel) => {
                let bound = Bench::bound(0.5).into();
                self.variants.select(kernel, (&self.column, self.chunk(number)), bound, &self.bitmap)?
            }
            Arm::Sum(kernel) => self.variants.sum(kernel, &self.column, self.chunk(number))?.1,
        })
    }

    /// Runs a query; the mean time of a chunk. Its kernels are there before.
    fn run_query(
        &self,
        pool: &mut Pool,
        (choose, selections): (Choose, bool),
        (settings, rng): (&Settings<'_>, &mut Rng),
    ) -> Result<f64> {
        let genomes: Vec<&Genome> = pool.arms.iter().map(|arm| &arm.genome).collect();
        let arms = self.compiled(&genomes, &|genome| self.arm(genome, selections))?;
        let chunks = if settings.scale >= 1.0 { CHUNKS } else { FEW_CHUNKS };
        query(pool, (choose, chunks), rng, |arm, number, _| {
            self.run_chunk(arms.get(arm).context("a pool without variants")?, number)
        })
    }
}

/// The value below which a share of those in order lie.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
}

/// The quantiles of times relative to the fastest.
fn show(name: &str, (x, position): (&str, f64), times: Vec<f64>, best: f64) -> impl Iterator<Item = Shown> {
    let mut sorted: Vec<f64> = times.into_iter().map(|time| time / best).collect();
    sorted.sort_by(f64::total_cmp);
    let shown = SHARES
        .map(|(share, of)| point(&format!("{name}, {of}"), x, Some(position), quantile(&sorted, share)));
    shown.into_iter()
}

/// Figure 7.
pub fn pools(bench: &mut Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let replay = Replay::new(bench.known(true, settings)?);
    let (bench, best) = (&*bench, replay.best());
    let space = Searched::new(&bench.selections, |genome| replay.has(genome));
    let mut shown = Vec::new();
    for size in SIZES.into_iter().filter(|size| *size <= space.count()) {
        (settings.step)(&format!("pools of {size}"));
        let (x, position) = (size.to_string(), size as f64);
        for choose in [Choose::Random, Choose::VwGreedy] {
            let times = (0..POOLS).map(|seed| {
                let mut rng = Rng::with_seed(seed);
                let mut pool = Pool::random(&space, size, &mut rng);
                replay.query(&mut pool, choose, &mut rng)
            });
            shown.extend(show(choose.name(), (&x, position), times.collect(), best));
        }
        if size > MOST_RUN {
            continue;
        }
        let times = (0..settings.runs as u64).map(|seed| {
            let mut rng = Rng::with_seed(seed);
            let mut pool = Pool::random(&space, size, &mut rng);
            bench.run_query(&mut pool, (Choose::VwGreedy, true), (settings, &mut rng))
        });
        let times = times.collect::<Result<Vec<f64>>>()?;
        shown.extend(show("vw-greedy as run", (&x, position), times, best).skip(1).take(1));
    }
    Ok(shown)
}

/// Figures 9 and 10: of each search the mean time of a chunk in each of ten queries.
pub fn search(bench: &mut Bench, settings: &Settings<'_>, selections: bool) -> Result<Vec<Shown>> {
    let replay = Replay::new(bench.known(selections, settings)?);
    ensure!(replay.best() > 0.0, "no variant was measured");
    let bench = &*bench;
    let is_known = |genome: &[u16]| replay.has(genome);
    if selections {
        searches(bench, &Searched::new(&bench.selections, is_known), (&replay, true), settings)
    } else {
        searches(bench, &Searched::new(&bench.sums, is_known), (&replay, false), settings)
    }
}

fn searches(
    bench: &Bench,
    space: &dyn kelpie_tuner::Space,
    (replay, selections): (&Replay, bool),
    settings: &Settings<'_>,
) -> Result<Vec<Shown>> {
    let best = replay.best();
    let mut shown = Vec::new();
    for (search, name) in [(Search::None, "none"), (Search::Greedy, "greedy"), (Search::Genetic, "genetic")] {
        (settings.step)(&format!("search: {name}"));
        let mut replayed = vec![Vec::new(); QUERIES];
        let mut run = vec![Vec::new(); QUERIES];
        for seed in 0..SERIES {
            let mut rng = Rng::with_seed(seed);
            let mut pool = Pool::random(space, POOL, &mut rng);
            for times in &mut replayed {
                times.push(replay.query(&mut pool, Choose::VwGreedy, &mut rng));
                search.renew(&mut pool, POOL, space, &mut rng);
            }
        }
        for seed in 0..settings.runs as u64 {
            let mut rng = Rng::with_seed(seed);
            let mut pool = Pool::random(space, POOL, &mut rng);
            for times in &mut run {
                let choose = (Choose::VwGreedy, selections);
                times.push(bench.run_query(&mut pool, choose, (settings, &mut rng))?);
                search.renew(&mut pool, POOL, space, &mut rng);
            }
        }
        for (number, (replayed, run)) in replayed.into_iter().zip(run).enumerate() {
            let (x, position) = ((number + 1).to_string(), (number + 1) as f64);
            shown.extend(show(name, (&x, position), replayed, best));
            shown.extend(show(&format!("{name} as run"), (&x, position), run, best).skip(1).take(1));
        }
    }
    Ok(shown)
}
