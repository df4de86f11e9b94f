//! How many combinations of values several columns have, by the same rows of each. Columns that depend on each other have fewer than the
//! product of their values: of days of sending and arrival 75 thousand and not 6 million.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::spread::{LEAST_ROWS, thinned, without_frequent};

/// Values of a column that are kept, at most.
const OF_COLUMN: usize = 1 << 13;
/// Combinations with other columns whose number is kept, at most.
const KNOWN: usize = 32;

/// Values of some rows of a column, in the rows' order: the same rows as in the other columns of a table that are read in batches of the
/// same lengths. NULLs have any value, texts a hash.
#[derive(Debug)]
pub struct Sample {
    values: Vec<i64>,
    /// What was counted together with the samples of other columns: a query that runs again asks each time.
    known: Mutex<Vec<Counted>>,
}

/// The other columns, and the number of combinations, if it is known.
type Counted = (Vec<Weak<Sample>>, Option<u64>);

impl Sample {
    /// Of a column of so many rows, by samples of its chunks in order; of few rows none.
    pub(super) fn of<'s>(samples: impl Iterator<Item = &'s [i64]>, rows: u64) -> Option<Arc<Sample>> {
        (rows >= LEAST_ROWS).then(|| {
            let all: Vec<i64> = samples.flatten().copied().collect();
            Arc::new(Sample { values: thinned(&all, OF_COLUMN), known: Mutex::default() })
        })
    }

    /// About how many combinations of values this and other columns of so many rows have, where these are many and few of them have
    /// many rows; `None` too where it is not known. Whether equal ones are far from each other, the samples do not tell.
    pub(super) fn combinations(&self, others: &[&Arc<Sample>], rows: u64) -> Option<u64> {
        let is_same = |(known, _): &&Counted| {
            known.len() == others.len()
                && known.iter().zip(others).all(|(a, b)| std::ptr::eq(a.as_ptr(), Arc::as_ptr(b)))
        };
        if let Some((_, values)) = self.known.lock().iter().find(is_same) {
            return *values;
        }
        let values = self.count(others, rows);
        let mut known = self.known.lock();
        if known.len() == KNOWN {
            known.remove(0);
        }
        known.push((others.iter().map(|other| Arc::downgrade(other)).collect(), values));
        values
    }

    fn count(&self, others: &[&Arc<Sample>], rows: u64) -> Option<u64> {
        if self.values.is_empty() || others.iter().any(|other| other.values.len() != self.values.len()) {
            return None;
        }
        let mut combined: Vec<i64> = self.values.iter().map(|value| mixed(0, *value)).collect();
        for other in others {
            combined.iter_mut().zip(&other.values).for_each(|(all, value)| *all = mixed(*all, *value));
        }
        Some(without_frequent(combined, rows)?.values)
    }
}

/// A hash of a value and those before it.
fn mixed(all: i64, value: i64) -> i64 {
    let mixed = (all.rotate_left(25) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64);
    mixed ^ (mixed >> 29)
}

/// A text as a value of a sample.
pub(super) fn of_text(text: &[u8]) -> i64 {
    text.iter().fold(text.len() as i64, |all, byte| {
        (all ^ i64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(5)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: u64 = 2_000_000;

    /// Numbers without a pattern.
    fn scramble(number: u64) -> u64 {
        let mixed = (number ^ (number >> 31)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 8
    }

    fn sample(value: &dyn Fn(u64) -> i64) -> Arc<Sample> {
        let values: Vec<i64> = (0..ROWS).step_by(256).map(value).collect();
        Sample::of(std::iter::once(values.as_slice()), ROWS).expect("many rows")
    }

    #[test]
    fn combinations_of_columns_that_depend_on_each_other_are_fewer() {
        let sent = |row: u64| (scramble(row) % 2_500) as i64;
        let arrived = |row: u64| sent(row) + (scramble(row + 7) % 30) as i64;
        let other = |row: u64| (scramble(row + 9) % 2_500) as i64;
        let count = |a: &dyn Fn(u64) -> i64, b: &dyn Fn(u64) -> i64| {
            let (a, b) = (sample(a), sample(b));
            let counted = a.combinations(&[&b], ROWS);
            assert_eq!(a.combinations(&[&b], ROWS), counted, "once more");
            counted
        };
        // Of 75 thousand, rounded up.
        assert_eq!(count(&sent, &arrived), Some(1 << 17));
        let independent = count(&sent, &other).expect("many");
        assert!(independent >= 1 << 21, "{independent}");
        assert_eq!(count(&sent, &|row| sent(row) * 7), None);
        assert_eq!(count(&|_| 1, &|_| 2), None);
        // What is known of one column is not taken for another's.
        let (sent, arrived, other) = (sample(&sent), sample(&arrived), sample(&other));
        assert_eq!(sent.combinations(&[&arrived], ROWS), Some(1 << 17));
        assert!(sent.combinations(&[&other], ROWS) > Some(1 << 17));
        assert!(sent.combinations(&[&arrived, &other], ROWS) > Some(1 << 17));
    }

    #[test]
    fn samples_of_other_rows_say_nothing() {
        let of = |values: &[i64]| Sample::of(std::iter::once(values), ROWS).expect("many rows");
        assert_eq!(of(&[1, 2, 3]).combinations(&[&of(&[1, 2])], ROWS), None);
        assert_eq!(of(&[]).combinations(&[&of(&[])], ROWS), None);
        assert!(Sample::of(std::iter::once(&[1][..]), 10).is_none());
    }
}
