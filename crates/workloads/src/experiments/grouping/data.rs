//! The table of the paper: integers that are independent, uniform and random in [0, 10⁹); and columns of other distributions.

use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::{ArrayRef, Int32Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;

/// Its name.
pub const TABLE: &str = "atable";
/// Values of its columns: 0 … KEYS − 1.
pub const KEYS: u32 = 1_000_000_000;
/// Rows of the paper's.
const PAPER_ROWS: f64 = 335e6;
/// Rows of a batch.
const BATCH_ROWS: u64 = 1 << 20;
/// Its columns: the paper's four, one that ascends, and one of which a few values are frequent.
const COLUMNS: [&str; 6] = ["col1", "col2", "col3", "col4", "ascending", "zipf"];

/// Rows of the table at a scale.
pub fn rows(scale: f64) -> u64 {
    (PAPER_ROWS * scale).max(1.0) as u64
}

/// The table, of so many rows.
pub fn table(rows: u64, threads: usize) -> Result<Arc<dyn TableProvider>> {
    let fields = COLUMNS.map(|name| Field::new(name, DataType::Int32, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    let threads = threads.max(1);
    let batches = rows.div_ceil(BATCH_ROWS);
    let of_thread = |thread: usize| -> Result<Vec<RecordBatch>> {
        // Each has a range, so that the column that ascends does so from part to part.
        let share = |thread: usize| batches * thread as u64 / threads as u64;
        (share(thread)..share(thread + 1)).map(|number| batch(&schema, number, rows)).collect()
    };
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<Vec<RecordBatch>>>| {
            worker.join().map_err(|_| anyhow!("a thread that makes data died"))?
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let table = MemTable::try_new(Arc::clone(&schema), parts).context("a table in memory")?;
    Ok(Arc::new(table))
}

/// The batch of a number.
fn batch(schema: &SchemaRef, number: u64, rows: u64) -> Result<RecordBatch> {
    let begin = number * BATCH_ROWS;
    let end = (begin + BATCH_ROWS).min(rows);
    let column = |index: u64| -> ArrayRef {
        let value = |row: u64| match index {
            4 => (u128::from(row) * u128::from(KEYS) / u128::from(rows)) as i32,
            5 => zipf(random(index, row)),
            _ => ((u128::from(random(index, row)) * u128::from(KEYS)) >> 64) as i32,
        };
        Arc::new((begin..end).map(value).collect::<Int32Array>())
    };
    Ok(RecordBatch::try_new(Arc::clone(schema), (0..COLUMNS.len() as u64).map(column).collect())?)
}

/// A random number of a column and row: SplitMix64 (Steele, Lea and Flood, 2014), which needs no state between rows.
fn random(column: u64, row: u64) -> u64 {
    let mut bits = (column << 56 ^ row).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// Zipf's distribution with exponent 1 over the values, 0 the most frequent: the inverse of its distribution function, where the
/// harmonic numbers are taken for logarithms.
fn zipf(bits: u64) -> i32 {
    let share = bits as f64 / u64::MAX as f64;
    (f64::from(KEYS).powf(share) as i32 - 1).clamp(0, KEYS as i32 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_distributions() {
        let schema = Arc::new(Schema::new(COLUMNS.map(|n| Field::new(n, DataType::Int32, false)).to_vec()));
        let rows = BATCH_ROWS + 1000;
        let batch = batch(&schema, 1, rows).unwrap();
        assert_eq!(batch.num_rows(), 1000);
        let values = |column: usize| -> Vec<i32> {
            let array = batch.column(column).as_any().downcast_ref::<Int32Array>().unwrap();
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
