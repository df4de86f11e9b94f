//! A table in host memory: the result of one stage that the next one scans.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_device::CancelToken;

use crate::error::EngineError;
use crate::source::{BatchConsumer, TableSource};

/// One batch as a table; never cached.
#[derive(Debug)]
pub struct MemorySource {
    name: String,
    batch: RecordBatch,
}

impl MemorySource {
    /// A table of one batch.
    pub fn new(name: &str, batch: RecordBatch) -> MemorySource {
        MemorySource { name: name.into(), batch }
    }
}

impl TableSource for MemorySource {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn schema(&self) -> SchemaRef {
        self.batch.schema()
    }
    fn identity(&self) -> Option<String> {
        None
    }
    fn exact_rows(&self) -> Option<u64> {
        Some(self.batch.num_rows() as u64)
    }
    fn partitions(&self) -> usize {
        1
    }
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        _: &CancelToken,
    ) -> Result<(), EngineError> {
        consumer(0, self.batch.project(columns)?)
    }
}
