//! What registers of a sketch tell (HyperLogLog: Flajolet et al. 2007): how many different keys some rows had, and so how many all rows
//! may have.

use std::f64::consts::LN_2;

use kelpie_compile::pipeline::SketchedTable;

use crate::columns::distinct;

/// The standard error of an estimate: 1.04 divided by the root of the number of registers.
const ERROR: f64 = 1.04 / 64.0;
/// How much more keys the whole sample speaks for than its first half does, at least, where they do not speak for the same number.
const GROWS: f64 = 1.1;
/// Standard errors that are added to that.
const ERRORS: f64 = 3.0;

/// Rows that were looked at, and the keys that they had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Seen {
    /// Rows that came to the table.
    pub rows: u64,
    /// Their different keys, about.
    pub keys: f64,
}

/// How many keys all rows may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Estimate {
    /// About so many.
    pub keys: u64,
    /// So many, if the sketch has seen as many more as its standard error is: a table for them is seldom too small.
    pub at_most: u64,
}

/// How many different keys went to registers, by the estimator of Ertl (“New cardinality estimation algorithms for HyperLogLog
/// sketches”, 2017), which needs no tables and no cases for few and many keys.
pub(crate) fn keys(registers: &[u32]) -> f64 {
    let most = (u64::BITS - SketchedTable::REGISTER_BITS) as usize;
    let count = registers.len() as f64;
    let mut ranks = vec![0.0; most + 2];
    for rank in registers {
        ranks[(*rank as usize).min(most + 1)] += 1.0;
    }
    let (empty, full) = (ranks[0], ranks[most + 1]);
    let mut sum = count * tau(1.0 - full / count);
    for of_rank in ranks[1..=most].iter().rev() {
        sum = 0.5 * (sum + of_rank);
    }
    sum += count * sigma(empty / count);
    count * count / (2.0 * LN_2 * sum)
}

/// Ertl's σ: of the share of registers that no key went to.
fn sigma(share: f64) -> f64 {
    if share >= 1.0 {
        return f64::INFINITY;
    }
    let (mut power, mut weight, mut sum) = (share, 1.0, share);
    loop {
        power *= power;
        let next = sum + power * weight;
        weight += weight;
        if next <= sum {
            return sum;
        }
        sum = next;
    }
}

/// Ertl's τ: of the share of registers that are not at their greatest rank.
fn tau(share: f64) -> f64 {
    if share <= 0.0 || share >= 1.0 {
        return 0.0;
    }
    let (mut root, mut weight, mut sum) = (share, 1.0, 1.0 - share);
    loop {
        root = root.sqrt();
        weight *= 0.5;
        let next = sum - (1.0 - root) * (1.0 - root) * weight;
        if next >= sum {
            return sum / 3.0;
        }
        sum = next;
    }
}

/// The keys of `rows` rows by a sample of them, and by the first half of the sample, whose rows lie anywhere among those of the
/// other half.
///
/// Each key is thought to be as often as any other, anywhere. Then both samples speak for the same number. Where the whole speaks for
/// more, further rows bring further keys, as where rows lie in the order of their keys, or some keys are frequent: it is thought to go
/// on like that, by the same factor for each doubling of the rows.
pub(crate) fn estimate(half: Seen, whole: Seen, rows: u64) -> Estimate {
    let by = |error: f64| {
        let all = spoken_for(Seen { keys: whole.keys * error, ..whole }, rows);
        let of_half = spoken_for(half, rows).max(1.0);
        let factor = (spoken_for(whole, rows) / of_half).min(2.0);
        let doublings = (rows as f64 / whole.rows.max(1) as f64).max(1.0).log2();
        // Few equal keys in many rows say little of how many there are: by the derivative of what is expected to be seen.
        let keys_a_row = of_half / half.rows.max(1) as f64;
        let least = GROWS + ERRORS * ERROR * (1.0 + 2.0 * keys_a_row);
        let more = if factor < least { 1.0 } else { factor.powf(doublings) };
        (all * more).min(rows as f64).max(whole.keys) as u64
    };
    let (keys, at_most) = (by(1.0), by(1.0 + ERROR));
    Estimate { keys, at_most: at_most.max(keys) }
}

/// How many keys there are by a sample, if each is as often as any other.
fn spoken_for(seen: Seen, rows: u64) -> f64 {
    let keys = seen.keys.min(seen.rows as f64).round() as u64;
    if seen.rows >= rows { keys as f64 } else { distinct(seen.rows, keys, rows) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The finalizer of MurmurHash3, as kernels have it.
    fn mix(value: u64) -> u64 {
        let value = (value ^ (value >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let value = (value ^ (value >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        value ^ (value >> 33)
    }

    struct Sketch(Vec<u32>);

    impl Sketch {
        fn of(keys: impl Iterator<Item = u64>) -> Sketch {
            let mut sketch = Sketch(vec![0; SketchedTable::REGISTERS as usize]);
            keys.for_each(|key| sketch.add(key));
            sketch
        }

        fn add(&mut self, key: u64) {
            let (hash, bits) = (mix(mix(key)), SketchedTable::REGISTER_BITS);
            let register = &mut self.0[(hash >> (u64::BITS - bits)) as usize];
            *register = (*register).max((hash << bits | 1 << (bits - 1)).leading_zeros() + 1);
        }
    }

    #[test]
    fn keys_are_counted_within_the_error() {
        assert_eq!(keys(&vec![0; SketchedTable::REGISTERS as usize]), 0.0);
        for count in [1, 2, 10, 100, 1_000, 5_000, 10_000, 20_000, 100_000, 1_000_000] {
            for seed in 0..4_u64 {
                let counted = keys(&Sketch::of((0..count).map(|key| key + (seed << 40))).0);
                let error = (counted - count as f64).abs() / count as f64;
                assert!(error < 4.0 * ERROR, "{counted} of {count}");
            }
        }
        // Of few keys it is nearly exact.
        assert!((keys(&Sketch::of(0..100).0) - 100.0).abs() < 3.0);
    }

    #[test]
    fn registers_of_any_content_count_something() {
        let registers = SketchedTable::REGISTERS as usize;
        for rank in [0, 1, 52, 53, 54, u32::MAX] {
            let counted = keys(&vec![rank; registers]);
            assert!(counted >= 0.0, "{rank}: {counted}");
        }
    }

    /// The estimate for `rows` rows whose keys are given by their numbers, by a sample of `looked_at` in eight pieces.
    fn of(rows: u64, looked_at: u64, key: impl Fn(u64) -> u64) -> Estimate {
        let piece = looked_at / 8;
        let of_piece = |number: u64| {
            let first = number * (rows - piece) / 7;
            (first..first + piece).map(&key).collect::<Vec<_>>()
        };
        let mut sketch = Sketch::of(std::iter::empty());
        let mut seen = [Seen { rows: 0, keys: 0.0 }; 2];
        for (half, pieces) in [[0, 2, 4, 6], [1, 3, 5, 7]].into_iter().enumerate() {
            pieces.into_iter().flat_map(of_piece).for_each(|key| sketch.add(key));
            seen[half] = Seen { rows: (half as u64 + 1) * piece * 4, keys: keys(&sketch.0) };
        }
        estimate(seen[0], seen[1], rows)
    }

    fn assert_near(estimate: Estimate, keys: u64, factor: f64) {
        let near = |own: u64| own as f64 <= keys as f64 * factor && own as f64 * factor >= keys as f64;
        assert!(near(estimate.keys), "{estimate:?} for {keys}");
        assert!(estimate.at_most >= estimate.keys, "{estimate:?}");
    }

    #[test]
    fn scattered_keys_are_extrapolated() {
        let rows = 4 << 20;
        for keys in [1, 100, 10_000, 100_000, 300_000] {
            assert_near(of(rows, rows / 16, |row| mix(row) % keys), keys, 1.15);
        }
        assert_near(of(rows, rows / 16, |row| mix(row) % 1_000_000), 1_000_000, 1.6);
        assert_near(of(rows, rows / 16, mix), rows, 1.6);
    }

    #[test]
    fn keys_in_order_are_extrapolated() {
        let rows = 4 << 20;
        for of_key in [1, 4, 100] {
            assert_near(of(rows, rows / 16, |row| row / of_key), rows / of_key, 1.6);
        }
    }

    #[test]
    fn rows_beyond_a_frequent_key_count() {
        let rows = 4 << 20;
        // Half of the rows have one key, the others each its own, or one of many.
        let unique = of(rows, rows / 16, |row| if mix(row).is_multiple_of(2) { 7 } else { row });
        assert!(unique.keys >= rows / 8 && unique.keys <= rows, "{unique:?}");
        let many = of(rows, rows / 16, |row| if mix(row).is_multiple_of(2) { 7 } else { mix(row) % 100_000 });
        assert_near(many, 100_000, 1.8);
    }

    #[test]
    fn a_sample_of_all_rows_speaks_for_itself() {
        let (half, whole) = (Seen { rows: 500, keys: 400.0 }, Seen { rows: 1_000, keys: 800.0 });
        assert_eq!(estimate(half, whole, 1_000).keys, 800);
        let nothing = Seen { rows: 0, keys: 0.0 };
        assert_eq!(estimate(nothing, nothing, 0), Estimate { keys: 0, at_most: 0 });
        // None came, and more may come.
        assert!(estimate(nothing, nothing, 1_000).keys <= 1_000);
    }
}
