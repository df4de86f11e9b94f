//! A device with a column, and what variants take over it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use kelpie_session::spaces::{
    AggregationSpace, Bitmap, Column, CompareOp, Comparison, Genome, Scalar, SelectionKernel, SelectionSpace,
    Space, SumKernel, Variants,
};
use kelpie_session::{DeviceKind, Engine, QueryOptions};

use super::super::algebra::Settings;
use super::super::memory::random;
use super::universe::Breadth;

/// Rows at scale factor 1.
const ROWS: f64 = (32 << 20) as f64;
/// Rows at which all variants are measured on a CPU, at least.
const ROWS_OF_ALL: u32 = 1 << 20;
/// Rows with which few variants are measured, at most.
const ROWS_OF_FEW: u32 = 1 << 17;
/// Bytes of a chunk (section 3.2).
const CHUNK_BYTES: u32 = 16 << 20;
/// Values are below.
pub const MOST_VALUE: u64 = 1_000_000;
/// How much longer than the fastest so far a variant may take to be run again.
const WORTH: u64 = 3;
/// Kernels that are compiled side by side, and there at a time.
pub const BATCH: usize = 128;

/// The integers with which a column is selected from.
pub const COMPARISON: Comparison = Comparison { scalar: Scalar::I32, op: CompareOp::Lt };

/// The times of a variant, in nanoseconds; not none.
pub type Times = Vec<u64>;

/// A device with a column.
pub struct Bench {
    pub variants: Variants,
    pub device: (String, f64, f64),
    pub selections: SelectionSpace,
    pub sums: AggregationSpace,
    pub column: Column,
    pub bitmap: Bitmap,
    values: Vec<i32>,
    threads: usize,
    is_cpu: bool,
    /// Kernels of a device whose compiler is slow.
    kernels: Mutex<Kernels>,
    /// Of selections that half of the rows fulfil, and of sums, over a chunk.
    known: [Option<HashMap<Genome, Times>>; 2],
    /// The same over the whole column: of selections at each selectivity.
    pub whole: Whole,
}

/// Kernels that were compiled.
#[derive(Default)]
struct Kernels {
    selections: HashMap<Genome, SelectionKernel>,
    sums: HashMap<Genome, SumKernel>,
}

/// Times over the whole column, of selections at each selectivity, and of sums.
#[derive(Default)]
pub struct Whole {
    pub selections: Option<Vec<(Genome, Vec<Times>)>>,
    pub sums: Option<Vec<(Genome, Times)>>,
}

impl Bench {
    /// On a device.
    pub fn new(engine: &Engine, options: &QueryOptions, settings: &Settings<'_>) -> Result<Bench> {
        let variants = Variants::of(engine, options)?;
        let device = variants.device_rates()?;
        let rows = (ROWS * settings.scale).clamp(1000.0, ROWS * 16.0) as u64;
        let values: Vec<i32> = (0..rows).map(|row| (random(7, row) % MOST_VALUE) as i32).collect();
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let column = variants.upload(Scalar::I32, &bytes, None)?;
        let bitmap = variants.bitmap(&column)?;
        let target = variants.device().target();
        let (selections, sums) = (SelectionSpace::new(target), AggregationSpace::new(target));
        let is_cpu = variants.device().kind() == DeviceKind::Cpu;
        let threads = settings.threads;
        let (known, whole) = ([None, None], Whole::default());
        Ok(Bench {
            variants,
            device,
            selections,
            sums,
            column,
            bitmap,
            values,
            threads,
            is_cpu,
            kernels: Mutex::default(),
            known,
            whole,
        })
    }

    /// How many variants are measured: `once` where each is measured once, not at each selectivity.
    pub fn breadth(&self, once: bool) -> Breadth {
        match self.column.rows() {
            rows if rows <= ROWS_OF_FEW => Breadth::Few,
            rows if self.is_cpu && once && rows >= ROWS_OF_ALL => Breadth::All,
            _ => Breadth::Some,
        }
    }

    /// All rows.
    pub fn all(&self) -> Range<u32> {
        0..self.column.rows()
    }

    /// The rows of a chunk: 16 MB of the column.
    pub fn chunk(&self, number: u32) -> Range<u32> {
        let rows = CHUNK_BYTES / Scalar::I32.bytes();
        let chunks = (self.column.rows() / rows).max(1);
        let first = number % chunks * rows;
        first..self.column.rows().min(first + rows)
    }

    /// The bits of a range of rows whose values are below a bound, from the first on.
    fn expected(&self, rows: &Range<u32>, bound: i32) -> Vec<u8> {
        let values = self.values.get(rows.start as usize..rows.end as usize).unwrap_or_default();
        let byte = |values: &[i32]| {
            let bit = |byte, (number, value): (usize, &i32)| byte | u8::from(*value < bound) << number;
            values.iter().enumerate().fold(0, bit)
        };
        values.chunks(8).map(byte).collect()
    }

    /// The bound below which a share of the values is.
    pub fn bound(selectivity: f64) -> i32 {
        (MOST_VALUE as f64 * selectivity).round() as i32
    }

    /// Compiles side by side.
    pub fn compiled<T: Sync, K: Send>(
        &self,
        genomes: &[T],
        make: &(dyn Fn(&T) -> Result<K> + Sync),
    ) -> Result<Vec<K>> {
        let share = genomes.len().div_ceil(self.threads.max(1)).max(1);
        let parts = thread::scope(|scope| {
            let workers: Vec<_> = genomes
                .chunks(share)
                .map(|part| scope.spawn(move || part.iter().map(make).collect::<Result<Vec<K>>>()))
                .collect();
            let joined = workers
                .into_iter()
                .map(|worker| worker.join().map_err(|_| anyhow!("a thread that compiles died"))?);
            joined.collect::<Result<Vec<_>>>()
        })?;
        Ok(parts.into_iter().flatten().collect())
    }

    fn kernels(&self) -> MutexGuard<'_, Kernels> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel of a selection over the column.
    pub fn selection(&self, genome: &Genome) -> Result<SelectionKernel> {
        if let Some(kernel) = self.kernels().selections.get(genome) {
            return Ok(kernel.clone());
        }
        let what = || self.selections.describe(genome);
        let variant = self.selections.variant(genome).with_context(what)?;
        let kernel = self.variants.selection(&variant, COMPARISON, false).with_context(what)?;
        if !self.is_cpu {
            self.kernels().selections.insert(genome.clone(), kernel.clone());
        }
        Ok(kernel)
    }

    /// The kernel of a sum of the column.
    pub fn sum(&self, genome: &Genome) -> Result<SumKernel> {
        if let Some(kernel) = self.kernels().sums.get(genome) {
            return Ok(kernel.clone());
        }
        let what = || self.sums.describe(genome);
        let variant = self.sums.variant(genome).with_context(what)?;
        let kernel = self.variants.aggregation(&variant, Scalar::I32, false).with_context(what)?;
        if !self.is_cpu {
            self.kernels().sums.insert(genome.clone(), kernel.clone());
        }
        Ok(kernel)
    }

    /// Of each selection the times at each selectivity, over these parts in turn. The first answers are compared.
    pub fn time_selections(
        &self,
        genomes: &[Genome],
        (selectivities, parts): (&[f64], &[Range<u32>]),
        settings: &Settings<'_>,
    ) -> Result<Vec<Vec<Times>>> {
        let rows = parts.first().context("no rows")?;
        let expected: Vec<Vec<u8>> =
            selectivities.iter().map(|share| self.expected(rows, Bench::bound(*share))).collect();
        let mut best = vec![u64::MAX; selectivities.len()];
        let mut all = Vec::with_capacity(genomes.len());
        for batch in genomes.chunks(BATCH) {
            (settings.step)(&format!("selections: {} of {}", all.len(), genomes.len()));
            let kernels = self.compiled(batch, &|genome| self.selection(genome))?;
            for (genome, kernel) in batch.iter().zip(&kernels) {
                let mut of_variant = Vec::with_capacity(selectivities.len());
                for ((share, expected), best) in selectivities.iter().zip(&expected).zip(&mut best) {
                    let bound = Bench::bound(*share).into();
                    let run = |rows: &Range<u32>| {
                        let part = (&self.column, rows.clone());
                        self.variants.select(kernel, part, bound, &self.bitmap)
                    };
                    self.variants.spoil(&self.bitmap)?;
                    let first = run(rows).with_context(|| self.selections.describe(genome))?;
                    let before = rows.start as usize / 8;
                    let bits = self.variants.bits(&self.bitmap, rows.end)?;
                    let is_equal = bits.get(before..).is_some_and(|bits| bits == expected);
                    ensure!(is_equal, "another answer: {}", self.selections.describe(genome));
                    of_variant.push(again(first, best, (settings.runs, parts), |rows| Ok(run(rows)?))?);
                }
                all.push(of_variant);
            }
        }
        Ok(all)
    }

    /// Of each sum the times over these parts in turn. The first answers are compared.
    pub fn time_sums(
        &self,
        genomes: &[Genome],
        parts: &[Range<u32>],
        settings: &Settings<'_>,
    ) -> Result<Vec<Times>> {
        let rows = parts.first().context("no rows")?;
        let values = self.values.get(rows.start as usize..rows.end as usize).unwrap_or_default();
        let expected: i64 = values.iter().map(|value| i64::from(*value)).sum();
        let (mut best, mut all) = (u64::MAX, Vec::with_capacity(genomes.len()));
        for batch in genomes.chunks(BATCH) {
            (settings.step)(&format!("sums: {} of {}", all.len(), genomes.len()));
            let kernels = self.compiled(batch, &|genome| self.sum(genome))?;
            for (genome, kernel) in batch.iter().zip(&kernels) {
                let run = |rows: &Range<u32>| self.variants.sum(kernel, &self.column, rows.clone());
                let (sum, first) = run(rows).with_context(|| self.sums.describe(genome))?;
                ensure!(sum == expected as u64, "another answer: {}", self.sums.describe(genome));
                all.push(again(first, &mut best, (settings.runs, parts), |rows| Ok(run(rows)?.1))?);
            }
        }
        Ok(all)
    }

    /// The times of measured variants over a chunk: of selections that half of the rows fulfil, or of sums.
    pub fn known(&mut self, selections: bool, settings: &Settings<'_>) -> Result<HashMap<Genome, Times>> {
        let place = usize::from(!selections);
        if let Some(Some(known)) = self.known.get(place) {
            return Ok(known.clone());
        }
        let genomes = self.measured(selections);
        let chunks: Vec<_> = (0..settings.runs.max(1) as u32).map(|number| self.chunk(number)).collect();
        let times = if selections {
            let times = self.time_selections(&genomes, (&[0.5], &chunks), settings)?;
            times.into_iter().flatten().collect()
        } else {
            self.time_sums(&genomes, &chunks, settings)?
        };
        let known: HashMap<Genome, Times> = genomes.into_iter().zip(times).collect();
        if let Some(place) = self.known.get_mut(place) {
            *place = Some(known.clone());
        }
        Ok(known)
    }

    /// The variants that are measured once, in order.
    pub fn measured(&self, selections: bool) -> Vec<Genome> {
        let breadth = self.breadth(true);
        let mut all = if selections { self.selections.genomes() } else { self.sums.genomes() };
        all.retain(|genome| match selections {
            true => breadth.has_selection(genome),
            false => breadth.has_sum(genome),
        });
        all
    }
}

/// Runs a variant again as often as it is asked for, unless its first run, which warms up, tells that it is slow.
fn again(
    first: u64,
    best: &mut u64,
    (runs, parts): (usize, &[Range<u32>]),
    run: impl Fn(&Range<u32>) -> Result<u64>,
) -> Result<Times> {
    if first > best.saturating_mul(WORTH) {
        return Ok(vec![first]);
    }
    let times = parts.iter().cycle().take(runs.max(1)).map(run).collect::<Result<Times>>()?;
    *best = (*best).min(middle(&times));
    Ok(times)
}

/// The median of times.
pub fn middle(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(u64::MAX).max(1)
}
