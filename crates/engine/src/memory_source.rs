//! A table in host memory: the result of one stage that the next one scans.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_device::CancelToken;

use crate::error::EngineError;
use crate::source::{BatchConsumer, CommonFacts, TableSource};

/// Batches as a table of one partition; never cached.
#[derive(Debug)]
pub struct MemorySource {
    name: String,
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    common: Option<CommonFacts>,
}

impl MemorySource {
    /// A table of batches with this schema.
    pub fn new(name: &str, schema: SchemaRef, batches: Vec<RecordBatch>) -> MemorySource {
        MemorySource { name: name.into(), schema, batches, common: None }
    }

    /// The same as one of several tables, for all of which something holds.
    pub(crate) fn with_common(self, common: CommonFacts) -> MemorySource {
        MemorySource { common: Some(common), ..self }
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
    fn common(&self) -> Option<&CommonFacts> {
        self.common.as_ref()
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
