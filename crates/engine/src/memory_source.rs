//! A table in host memory: the result of one stage that the next one scans.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_device::CancelToken;

use crate::error::EngineError;
use crate::source::{BatchConsumer, TableSource};

/// Batches as a table of one partition; never cached.
#[derive(Debug)]
pub struct MemorySource {
    name: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl MemorySource {
    /// A table of batches with this schema.
    pub fn new(name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> MemorySource {
        MemorySource { name: name.into(), schema, batches }
    }
}

impl TableSource for MemorySource {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn schema(&self) -> SchemaRef {
        SchemaRef::clone(&self.schema)
    }
    fn identity(&self) -> Option<String> {
        None
    }
    fn exact_rows(&self) -> Option<u64> {
        Some(self.batches.iter().map(|batch| batch.num_rows() as u64).sum())
    }
    fn partitions(&self) -> usize {
        1
    }
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        for batch in &self.batches {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            consumer(0, batch.project(columns)?)?;
        }
        Ok(())
    }
}
