//! The tables of the paper's joins (section 5.1): primary keys that are dense, and foreign keys of four distributions.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::catalog::TableProvider;

use crate::experiments::memory::{self, below, random};

/// Names of the tables: foreign keys; as many primary keys; and a 32nd of them.
pub const TABLES: [&str; 3] = ["fk", "pk", "pk32"];
/// Rows of the paper's foreign keys, and its n.
const PAPER_ROWS: f64 = 1e7;
/// Rows of each key of the regular distribution with several.
const MATCHES: u64 = 32;
/// Zipf's exponent.
const EXPONENT: f64 = 0.75;
/// Zipf's distributions in one column.
const DISTRIBUTIONS: u64 = 4;
/// Columns beside the keys.
pub const ATTRIBUTES: u64 = 4;
/// Values of these: 0 … 999,999.
const VALUES: u64 = 1_000_000;
/// A prime above all numbers of rows: a number times this, modulo the rows, is a permutation of them.
const SCATTER: u64 = 2_654_435_761;
/// Ranks whose weights are added up one by one; the sum of the others is taken for an integral.
const HEAD: u64 = 1024;

const FOREIGN: [&str; 8] = ["each", "each32", "zipf", "zipf4", "v1", "v2", "v3", "v4"];
const PRIMARY: [&str; 5] = ["k", "a1", "a2", "a3", "a4"];

/// Rows of foreign keys at a scale: a multiple of the matches of the regular distribution.
pub fn rows(scale: f64) -> u64 {
    let rows = (PAPER_ROWS * scale).min(f64::from(i32::MAX)) as u64;
    (rows / MATCHES).max(1) * MATCHES
}

/// The tables for so many rows of foreign keys, with their names.
pub fn tables(rows: u64, threads: usize) -> Result<Vec<(&'static str, Arc<dyn TableProvider>)>> {
    let law = Zipf::new(rows);
    let foreign = memory::table(&memory::integers(&FOREIGN), rows, threads, &|part| foreign(part, &law))?;
    let primary = |rows| memory::table(&memory::integers(&PRIMARY), rows, threads, &primary);
    Ok(TABLES.into_iter().zip([foreign, primary(rows)?, primary(rows / MATCHES)?]).collect())
}

fn column(part: &Range<u64>, value: impl Fn(u64) -> u64) -> ArrayRef {
    Arc::new(part.clone().map(|row| value(row) as i32).collect::<Int32Array>())
}

fn attributes(part: &Range<u64>, first: u64) -> impl Iterator<Item = ArrayRef> {
    (first..first + ATTRIBUTES).map(|index| column(part, |row| below(VALUES, random(index, row))))
}

/// Foreign keys: every key once, in random order; every key 32 times; by Zipf's law; by four such laws, whose most frequent
/// keys lie apart. The most frequent key is the first one, as in a sample of ranks.
fn foreign(part: Range<u64>, law: &Zipf) -> Vec<ArrayRef> {
    let rows = law.ranks;
    let scattered = |row: u64| (u128::from(row) * u128::from(SCATTER) % u128::from(rows)) as u64;
    let keys = [
        column(&part, scattered),
        column(&part, |row| scattered(row) / MATCHES),
        column(&part, |row| law.rank(random(1, row))),
        column(&part, |row| {
            let first = row % DISTRIBUTIONS * rows / DISTRIBUTIONS;
            (law.rank(random(2, row)) + first) % rows
        }),
    ];
    keys.into_iter().chain(attributes(&part, 3)).collect()
}

/// Primary keys, in order.
fn primary(part: Range<u64>) -> Vec<ArrayRef> {
    std::iter::once(column(&part, |row| row)).chain(attributes(&part, 3 + ATTRIBUTES)).collect()
}

/// Zipf's law: rank r of n, from one on, has the weight r^-z.
struct Zipf {
    ranks: u64,
    /// Weights of the first ranks, each with those before it.
    head: Vec<f64>,
    /// All weights.
    all: f64,
}

impl Zipf {
    fn new(ranks: u64) -> Zipf {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64).powf(-EXPONENT);
            sum
        };
        let head: Vec<f64> = (1..=HEAD.min(ranks)).map(weight).collect();
        let known = head.len() as f64 + 0.5;
        Zipf { ranks, head, all: sum + (integral(ranks as f64 + 0.5) - integral(known)) }
    }

    /// The rank, from 0 on, of random bits.
    fn rank(&self, bits: u64) -> u64 {
        let weight = bits as f64 / u64::MAX as f64 * self.all;
        let sum = self.head.last().copied().unwrap_or_default();
        if weight < sum {
            return self.head.partition_point(|up_to| *up_to <= weight) as u64;
        }
        let known = self.head.len() as f64 + 0.5;
        let place = ((weight - sum + integral(known)) * (1.0 - EXPONENT)).powf(1.0 / (1.0 - EXPONENT));
        ((place + 0.5) as u64).saturating_sub(1).min(self.ranks - 1)
    }
}

/// An antiderivative of x^-z.
fn integral(x: f64) -> f64 {
    x.powf(1.0 - EXPONENT) / (1.0 - EXPONENT)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Array;

    use super::*;

    #[test]
    fn keys_have_their_distributions() {
        let rows = rows(0.01);
        assert_eq!(rows, 100_000);
        let columns = foreign(0..rows, &Zipf::new(rows));
        let counts = |column: usize| -> Vec<u64> {
            let keys = columns[column].as_any().downcast_ref::<Int32Array>().unwrap();
            let mut counts = vec![0; rows as usize];
            keys.values().iter().for_each(|key| counts[*key as usize] += 1);
            counts
        };
        assert!(counts(0).iter().all(|count| *count == 1));
        assert!(counts(1)[..3125].iter().all(|count| *count == 32));
        assert_eq!(counts(1)[3125..].iter().sum::<u64>(), 0);
        // The sum of r^-0.75 over 100,000 ranks is 67.7: the first key has 1,476 rows.
        let zipf = counts(2);
        assert!((1350..1600).contains(&zipf[0]), "{}", zipf[0]);
        assert!((780..980).contains(&zipf[1]), "{}", zipf[1]);
        let tail: u64 = zipf[50_000..].iter().sum();
        assert!((15_000..19_000).contains(&tail), "{tail}");
        let four = counts(3);
        for first in [0, 25_000, 50_000, 75_000] {
            assert!((300..450).contains(&four[first]), "{}: {}", first, four[first]);
        }
    }

    #[test]
    fn the_paper_has_45_thousand_matches_of_the_most_frequent_key() {
        let law = Zipf::new(10_000_000);
        assert!((45_000.0..45_300.0).contains(&(1e7 / law.all)), "{}", law.all);
        assert_eq!((law.rank(0), law.rank(u64::MAX)), (0, 9_999_999));
        // Where the exact sums end, ranks go on without a gap.
        let share = law.head.last().unwrap() / law.all;
        assert!(law.rank((share * u64::MAX as f64) as u64).abs_diff(HEAD) <= 1);
        for scale in [1e-9, 1e-6, 0.001, 1000.0] {
            assert!(rows(scale) >= MATCHES && rows(scale).is_multiple_of(MATCHES), "{scale}");
            let law = Zipf::new(rows(scale));
            assert!(law.rank(u64::MAX) < rows(scale));
        }
    }
}
