//! Where columns come from.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use kelpie_compile::types::Range;
use kelpie_device::CancelToken;

use crate::error::EngineError;

/// Takes the batches of a scan: the partition that a batch belongs to, and the batch. Called from several threads;
/// the batches of one partition come in order. Partitions in ascending order are the table's row order.
pub type BatchConsumer<'a> = dyn Fn(usize, RecordBatch) -> Result<(), EngineError> + Sync + 'a;

/// What a column of a table's data is in the column cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKey {
    /// The column of the data at this position.
    Stored(usize),
    /// Computed from columns of the data; the embedder gives equal computations equal numbers, and no others.
    Computed(u64),
}

/// What a column will most likely be like, known before it is read. It may be wrong: it only decides what code is compiled and
/// where values are written while the column is read, and that is used where it fits what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// Bounds of the values that are not NULL, where they are integers inside.
    pub range: Option<Range>,
    /// Whether some are NULL.
    pub has_nulls: bool,
}

/// What holds for several tables that one program is to work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommonFacts {
    /// Rows of each, at most.
    pub rows: u64,
    /// Of each column. Unlike that of a file it is never wrong.
    pub columns: Vec<Expected>,
}

/// A column of a row group as a file has it: pages that a device can decode. What it says is held against its bytes before it is used, on
/// the device as well.
#[derive(Debug)]
pub struct EncodedChunk {
    /// Which of the table's rows it begins with.
    pub first_row: u64,
    /// What its values are.
    pub values: EncodedValues,
    /// What its pages stand in.
    pub bytes: Buffer,
    /// Those that have rows, in order.
    pub pages: Vec<EncodedPage>,
    /// Its dictionary, decompressed: integers, or the bits of floats.
    pub dictionary: Vec<i64>,
}

/// What values stand in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncodedValues {
    /// Integers of 32 bits.
    I32,
    /// Integers of 64 bits.
    I64,
    /// Floats of 32 bits.
    F32,
    /// Floats of 64 bits.
    F64,
}

/// A page of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedPage {
    /// Where it begins in its chunk, behind its header.
    pub start: usize,
    /// Bytes there.
    pub bytes: usize,
    /// Bytes that it has decompressed.
    pub decompressed: usize,
    /// Bytes at its beginning that are not compressed.
    pub plain_bytes: usize,
    /// Rows.
    pub rows: usize,
    /// How the others are compressed.
    pub codec: PageCodec,
    /// Whether its values are places in the dictionary, as runs of numbers; else they are as they are.
    pub is_dictionary: bool,
    /// Its definition levels, of one bit.
    pub levels: PageLevels,
}

/// How bytes of a page are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCodec {
    /// Not at all.
    Stored,
    /// Snappy's raw format.
    Snappy,
    /// A block of LZ4.
    Lz4,
}

/// Where the definition levels of a page are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLevels {
    /// There are none: each row has a value.
    None,
    /// Before the values, behind their length.
    BehindLength,
    /// They are what is not compressed.
    Plain,
}

/// Takes the column of a row group: which of the columns that were asked for. `None` where it is in no form that a device decodes.
pub type ChunkConsumer<'a> = dyn Fn(usize, Option<EncodedChunk>) -> Result<(), EngineError> + Sync + 'a;

/// Lives as long as the data of a table may be asked for again.
pub type Lease = Weak<dyn Any + Send + Sync>;

/// A table that the engine can read columns of. Implemented by the embedder (`kelpie-datafusion` reads files with
/// DataFusion's readers).
pub trait TableSource: Send + Sync + std::fmt::Debug {
    /// Name, for people.
    fn name(&self) -> String;
    /// The table's columns; all that `read` may be asked for.
    fn schema(&self) -> SchemaRef;
    /// What makes the data the same data in a later query (paths, sizes, modification times); `None` is never cached.
    fn identity(&self) -> Option<String>;
    /// What a column is kept under beside the identity of the data; `None` is read for each query.
    fn column_key(&self, column: usize) -> Option<ColumnKey> {
        Some(ColumnKey::Stored(column))
    }
    /// Cached columns are dropped once the lease is; they stay while there is room where there is none.
    fn lease(&self) -> Option<Lease> {
        None
    }
    /// What a column will be like, where something tells (statistics of files).
    fn expected(&self, _column: usize) -> Option<Expected> {
        None
    }
    /// What holds for this table and others that one program is to work on: its columns are stored as all of these tables can be, and no
    /// more is found out about them.
    fn common(&self) -> Option<&CommonFacts> {
        None
    }
    /// The same table without rows that the query's filters leave out anyway, where some of its columns cost less to read so. They
    /// are other data than this one's; which of both is read, the column cache decides.
    fn narrower(&self, _columns: &[usize]) -> Option<Arc<dyn TableSource>> {
        None
    }
    /// What it costs to read some columns, in rows of all of them; mostly as many as there are.
    fn rows_to_read(&self, _columns: &[usize]) -> Option<u64> {
        self.exact_rows()
    }
    /// Rows, where known exactly.
    fn exact_rows(&self) -> Option<u64>;
    /// Partitions that `read` delivers.
    fn partitions(&self) -> usize;
    /// Rows of each partition, where they are known before it is read: then columns of which enough is expected are written to
    /// their places while they are read. A partition that has others after all costs time, but no more.
    fn partition_rows(&self) -> Option<Vec<u64>> {
        None
    }
    /// Whether whoever runs the query may wait until another query has read columns; if not, the query is cancelled then.
    fn may_wait(&self) -> bool {
        true
    }
    /// Reads some columns of every row, in parallel; batches have exactly these columns in this order. Texts may come in any of
    /// Arrow's forms, dictionaries among them, decimals as `Decimal32` or `Decimal64` of the column's digits, and what is an integer
    /// inside (days, times, decimals, integers of other widths) as any type of integers that has the values.
    fn read(
        &self,
        columns: &[usize],
        consumer: &BatchConsumer<'_>,
        cancel: &CancelToken,
    ) -> Result<(), EngineError>;
    /// Whether columns can be read as pages that a device decodes ([`Self::read_encoded`]), each by itself.
    fn are_encoded(&self, columns: &[usize]) -> Vec<bool> {
        vec![false; columns.len()]
    }
    /// Reads some columns of every row, of which [`Self::are_encoded`] says that they can be read so, as their pages stand in files: each
    /// row group of each column once, in any order, from several threads. What is wrong with a file is told where it is read otherwise.
    fn read_encoded(
        &self,
        _columns: &[usize],
        _consumer: &ChunkConsumer<'_>,
        _cancel: &CancelToken,
    ) -> Result<(), EngineError> {
        Ok(())
    }
    /// Counts the rows by reading no column of them.
    fn count_rows(&self, cancel: &CancelToken) -> Result<u64, EngineError> {
        let rows = AtomicU64::new(0);
        let count = |_, batch: RecordBatch| {
            rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
            Ok(())
        };
        self.read(&[], &count, cancel)?;
        Ok(rows.into_inner())
    }
}
