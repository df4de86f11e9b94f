//! Tables in memory: columns that are computed from the numbers of their rows, by several threads.

use std::ops::Range;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, anyhow};
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;

/// Rows of a batch.
pub const BATCH_ROWS: u64 = 1 << 20;

/// The schema of columns of 32-bit integers without NULLs.
pub fn integers(names: &[&str]) -> SchemaRef {
    let fields = names.iter().map(|name| Field::new(*name, DataType::Int32, false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A table of so many rows; `columns` makes those of a range of them.
pub fn table(
    schema: &SchemaRef,
    rows: u64,
    threads: usize,
    columns: &(dyn Fn(Range<u64>) -> Vec<ArrayRef> + Sync),
) -> Result<Arc<dyn TableProvider>> {
    let threads = threads.max(1);
    let batches = rows.div_ceil(BATCH_ROWS);
    let batch = |number: u64| -> Result<RecordBatch> {
        let begin = number * BATCH_ROWS;
        let columns = columns(begin..(begin + BATCH_ROWS).min(rows));
        Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
    };
    let of_thread = |thread: usize| -> Result<Vec<RecordBatch>> {
        // Each has a range, so that a column that ascends does so from part to part.
        let share = |thread: usize| batches * thread as u64 / threads as u64;
        (share(thread)..share(thread + 1)).map(batch).collect()
    };
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || of_thread(thread))).collect();
        let join = |worker: thread::ScopedJoinHandle<'_, Result<Vec<RecordBatch>>>| {
            worker.join().map_err(|_| anyhow!("a thread that makes data died"))?
        };
        workers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let table = MemTable::try_new(Arc::clone(schema), parts).context("a table in memory")?;
    Ok(Arc::new(table))
}

/// A random number of a column and row: SplitMix64 (Steele, Lea and Flood, 2014), which needs no state between rows.
pub fn random(column: u64, row: u64) -> u64 {
    let mut bits = (column << 56 ^ row).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

/// A random number below `count`, of random bits.
pub fn below(count: u64, bits: u64) -> u64 {
    ((u128::from(bits) * u128::from(count)) >> 64) as u64
}
