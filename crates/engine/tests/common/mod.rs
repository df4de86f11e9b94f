//! What the tests of the engine share.

pub mod cases;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_engine::source::BatchConsumer;
use kelpie_engine::{CancelToken, EngineError, TableSource};

/// Batches in memory, one a partition; at least one.
#[derive(Debug)]
pub struct Table(pub Vec<RecordBatch>);

impl TableSource for Table {
    fn name(&self) -> String {
        "t".into()
    }
    fn schema(&self) -> SchemaRef {
        self.0[0].schema()
    }
    fn identity(&self) -> Option<String> {
        None
    }
    fn exact_rows(&self) -> Option<u64> {
        None
    }
    fn partitions(&self) -> usize {
        self.0.len()
    }
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        _: &CancelToken,
    ) -> Result<(), EngineError> {
        for (partition, batch) in self.0.iter().enumerate() {
            consumer(partition, batch.project(columns)?)?;
        }
        Ok(())
    }
}
