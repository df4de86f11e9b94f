//! Every variant's answer, over columns of several types with NULLs and without.

use anyhow::{Context, Result, ensure};
use kelpie_session::DeviceKind;
use kelpie_session::spaces::{
    Column, CompareOp, Comparison, Genome, Scalar, SelectionKernel, Space, SumKernel,
};
use kelpie_tuner::Rng;

use super::super::algebra::{Settings, Shown, point};
use super::super::memory::random;
use super::bench::{BATCH, Bench};

/// More than two rounds of the largest selections.
const ROWS: u32 = 2 * (1024 * 64) + 77;
/// Variants of each space that a device is given which interprets kernels, or takes long to compile them.
const SOME: usize = 1000;
/// Values are below; a quarter of them is selected.
const MOST_VALUE: u64 = 1000;
const BOUND: i64 = 250;

/// A column, and what is expected of its first rows.
struct Data {
    scalar: Scalar,
    values: Vec<i64>,
    valid: Option<Vec<bool>>,
    column: Column,
}

impl Data {
    fn new(bench: &Bench, scalar: Scalar, nullable: bool) -> Result<Data> {
        let values: Vec<i64> = (0..u64::from(ROWS)).map(|row| (random(3, row) % MOST_VALUE) as i64).collect();
        let valid: Option<Vec<bool>> =
            nullable.then(|| (0..u64::from(ROWS)).map(|row| !random(4, row).is_multiple_of(4)).collect());
        let width = scalar.bytes() as usize;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| bits_of(scalar, *value).to_le_bytes().into_iter().take(width))
            .collect();
        let bits = valid.as_ref().map(|valid| packed(valid.iter().copied()));
        let column = bench.variants.upload(scalar, &bytes, bits.as_deref())?;
        Ok(Data { scalar, values, valid, column })
    }

    fn rows(&self, rows: u32) -> impl Iterator<Item = (i64, bool)> + '_ {
        let valid =
            |row: usize| self.valid.as_ref().is_none_or(|valid| valid.get(row).copied().unwrap_or(true));
        self.values.iter().enumerate().take(rows as usize).map(move |(row, value)| (*value, valid(row)))
    }
}

fn bits_of(scalar: Scalar, value: i64) -> i128 {
    if scalar == Scalar::F64 { i128::from((value as f64).to_bits()) } else { i128::from(value) }
}

/// A bit each, the first one lowest.
fn packed(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, bit) in bits.enumerate() {
        if number % 8 == 0 {
            bytes.push(0);
        }
        if let Some(last) = bytes.last_mut() {
            *last |= u8::from(bit) << (number % 8);
        }
    }
    bytes
}

/// Those that a device is given: all, or some that a seed picks.
fn picked(bench: &Bench, mut genomes: Vec<Genome>) -> Vec<Genome> {
    if bench.variants.device().kind() != DeviceKind::Cpu {
        Rng::with_seed(39).shuffle(&mut genomes);
        genomes.truncate(SOME);
    }
    genomes
}

/// Sums that a device is given: a GPU's compiler takes ten seconds for a thousand additions.
fn picked_sums(bench: &Bench) -> Vec<Genome> {
    let is_gpu = bench.variants.device().kind() == DeviceKind::Cuda;
    let is_short = |genome: &Genome| {
        !is_gpu || bench.sums.variant(genome).is_some_and(|sum| sum.unroll * sum.vector <= 256)
    };
    picked(bench, bench.sums.genomes().into_iter().filter(is_short).collect())
}

/// A number of rows whose last round is not full, for rounds of so many.
fn rows_of(round: u32, number: usize) -> u32 {
    match number % 16 {
        0 => (number as u32 / 16) % 70,
        _ => (round.saturating_mul(2) + (number as u32).wrapping_mul(31) % 67).min(ROWS),
    }
}

/// Compares the answers; of each operator how many variants were compared.
pub fn all(bench: &Bench, settings: &Settings<'_>) -> Result<Vec<Shown>> {
    let mut data = Vec::new();
    for scalar in [Scalar::I32, Scalar::I64, Scalar::F64] {
        for nullable in [false, true] {
            data.push(Data::new(bench, scalar, nullable)?);
        }
    }
    let of = |number: usize| data.get(number % data.len().max(1)).context("no columns");
    let mut counts = [0.0, 0.0];
    let cases: Vec<(usize, Genome)> =
        picked(bench, bench.selections.genomes()).into_iter().enumerate().collect();
    for batch in cases.chunks(BATCH) {
        (settings.step)(&format!("selections: {}", counts[0]));
        let compile = |(number, genome): &(usize, Genome)| {
            let (variant, data) =
                (bench.selections.variant(genome).context("no such variant")?, of(*number)?);
            let comparison = Comparison { scalar: data.scalar, op: CompareOp::Lt };
            let kernel = bench.variants.selection(&variant, comparison, data.valid.is_some());
            Ok((rows_of(variant.round_rows(), *number), kernel.context(bench.selections.describe(genome))?))
        };
        for ((number, genome), (rows, kernel)) in batch.iter().zip(bench.compiled(batch, &compile)?) {
            selection(bench, &kernel, (of(*number)?, rows))
                .with_context(|| bench.selections.describe(genome))?;
            counts[0] += 1.0;
        }
    }
    let cases: Vec<(usize, Genome)> = picked_sums(bench).into_iter().enumerate().collect();
    for batch in cases.chunks(BATCH) {
        (settings.step)(&format!("sums: {}", counts[1]));
        // The kernels of all numbers of blocks are the same.
        let compile = |(number, genome): &(usize, Genome)| {
            let (variant, data) = (bench.sums.variant(genome).context("no such variant")?, of(*number / 5)?);
            let kernel = bench.variants.aggregation(&variant, data.scalar, data.valid.is_some());
            let turn = variant.unroll * variant.vector * variant.threads;
            Ok((rows_of(turn, *number), kernel.context(bench.sums.describe(genome))?))
        };
        for ((number, genome), (rows, kernel)) in batch.iter().zip(bench.compiled(batch, &compile)?) {
            sum(bench, &kernel, (of(*number / 5)?, rows)).with_context(|| bench.sums.describe(genome))?;
            counts[1] += 1.0;
        }
    }
    let names = ["selections", "sums"];
    Ok(names.iter().zip(counts).map(|(name, count)| point("equal", name, None, count)).collect())
}

fn selection(bench: &Bench, kernel: &SelectionKernel, (data, rows): (&Data, u32)) -> Result<()> {
    let bitmap = bench.variants.bitmap(&data.column)?;
    bench.variants.spoil(&bitmap)?;
    bench.variants.select(kernel, (&data.column, 0..rows), bits_of(data.scalar, BOUND), &bitmap)?;
    let expected = packed(data.rows(rows).map(|(value, valid)| valid && value < BOUND));
    ensure!(bench.variants.bits(&bitmap, rows)? == expected, "another answer over {rows} rows");
    Ok(())
}

fn sum(bench: &Bench, kernel: &SumKernel, (data, rows): (&Data, u32)) -> Result<()> {
    let (sum, _) = bench.variants.sum(kernel, &data.column, 0..rows)?;
    let expected: i64 = data.rows(rows).filter(|(_, valid)| *valid).map(|(value, _)| value).sum();
    // Sums of these floats are exact.
    ensure!(i128::from(sum) == bits_of(data.scalar, expected), "another sum of {rows} rows");
    Ok(())
}
