//! The table of the paper: integers that are independent, uniform and random in [0, 10⁹); and columns of other distributions.

use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{ArrayRef, Int32Array};
use datafusion::catalog::TableProvider;

use crate::experiments::memory::{self, below, random};

/// Its name.
pub const TABLE: &str = "atable";
/// Values of its columns: 0 … KEYS − 1.
pub const KEYS: u32 = 1_000_000_000;
/// Rows of the paper's.
const PAPER_ROWS: f64 = 335e6;
/// Its columns: the paper's four, one that ascends, and one of which a few values are frequent.
const COLUMNS: [&str; 6] = ["col1", "col2", "col3", "col4", "ascending", "zipf"];

/// Rows of the table at a scale.
pub fn rows(scale: f64) -> u64 {
    (PAPER_ROWS * scale).max(1.0) as u64
}

/// The table, of so many rows.
pub fn table(rows: u64, threads: usize) -> Result<Arc<dyn TableProvider>> {
    memory::table(&memory::integers(&COLUMNS), rows, threads, &|part| columns(part, rows))
}

/// The columns of a range of the table's rows.
fn columns(part: Range<u64>, rows: u64) -> Vec<ArrayRef> {
    let column = |index: u64| -> ArrayRef {
        let value = |row: u64| match index {
            4 => (u128::from(row) * u128::from(KEYS) / u128::from(rows)) as i32,
            5 => zipf(random(index, row)),
            _ => below(KEYS.into(), random(index, row)) as i32,
        };
        Arc::new(part.clone().map(value).collect::<Int32Array>())
    };
    (0..COLUMNS.len() as u64).map(column).collect()
}

/// Zipf's distribution with exponent 1 over the values, 0 the most frequent: the inverse of its distribution function, where the
/// harmonic numbers are taken for logarithms.
fn zipf(bits: u64) -> i32 {
    let share = bits as f64 / u64::MAX as f64;
    (f64::from(KEYS).powf(share) as i32 - 1).clamp(0, KEYS as i32 - 1)
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Array;

    use super::*;

    #[test]
    fn columns_have_their_distributions() {
        let rows = memory::BATCH_ROWS + 1000;
        let columns = columns(memory::BATCH_ROWS..rows, rows);
        let values = |column: usize| -> Vec<i32> {
            let array = columns[column].as_any().downcast_ref::<Int32Array>().unwrap();
            assert_eq!(array.len(), 1000);
            array.values().to_vec()
        };
        for column in 0..4 {
            let mean = values(column).iter().map(|v| f64::from(*v)).sum::<f64>() / 1000.0;
            assert!((mean / f64::from(KEYS) - 0.5).abs() < 0.05, "{column}: {mean}");
        }
        assert!(values(4).is_sorted() && *values(4).last().unwrap() < KEYS as i32);
        let most = values(5).iter().filter(|value| **value == 0).count();
        assert!((20..60).contains(&most), "a thirtieth of the rows has the first value: {most}");
        assert_ne!(values(0), values(1));
    }
}
