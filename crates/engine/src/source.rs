//! Where columns come from.

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_device::CancelToken;

use crate::error::EngineError;

/// Takes the batches of a scan: the partition that a batch belongs to, and the batch. Called from several threads;
/// the batches of one partition come in order. Partitions in ascending order are the table's row order.
pub type BatchConsumer<'a> = dyn Fn(usize, RecordBatch) -> Result<(), EngineError> + Sync + 'a;

/// A table that the engine can read columns of. Implemented by the embedder (`kelpie-datafusion` reads files with
/// DataFusion's readers).
pub trait TableSource: Send + Sync + std::fmt::Debug {
    /// Name, for people.
    fn name(&self) -> String;
    /// The table's columns; all that `read` may be asked for.
    fn schema(&self) -> SchemaRef;
    /// What makes the data the same data in a later query (paths, sizes, modification times); `None` is never cached.
    fn identity(&self) -> Option<String>;
    /// Rows, where known exactly.
    fn exact_rows(&self) -> Option<u64>;
    /// Partitions that `read` delivers.
    fn partitions(&self) -> usize;
    /// Reads some columns of every row, in parallel; batches have exactly these columns in this order.
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError>;
}
