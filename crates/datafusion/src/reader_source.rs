//! Files of formats that Kelpie reads itself, as a source of DataFusion's scans.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileOpenFuture, FileOpener, FileScanConfig, FileSource};
use datafusion::datasource::projection::{ProjectionOpener, SplitProjection};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::object_store::ObjectStore;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_plan::apply_expression_roots;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::StreamExt;

/// The rows of a file, or of a part of one.
pub type Batches = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// What a scan wants of its files.
#[derive(Debug, Clone)]
pub struct WantedColumns {
    /// The table's columns that stand in files.
    pub table: SchemaRef,
    /// Which of them, in order.
    pub columns: Vec<usize>,
    /// Rows of a batch.
    pub batch_size: usize,
}

/// Reads the files of a format.
pub trait FileReader: Any + fmt::Debug + Send + Sync {
    /// The format, as DataFusion calls it.
    fn file_type(&self) -> &'static str;

    /// What besides the file decides the values that are read.
    fn identity(&self) -> String;

    /// Whether ranges of a file's bytes can be read: each gives the rows that begin in it.
    fn reads_ranges(&self) -> bool;

    /// Opens a file, or the range of it that it names.
    fn open(&self, file: &PartitionedFile, wanted: &WantedColumns) -> Result<Batches>;
}

/// A scan's files, read by a [`FileReader`].
#[derive(Debug, Clone)]
pub struct ReaderSource {
    reader: Arc<dyn FileReader>,
    table_schema: TableSchema,
    projection: SplitProjection,
    batch_size: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
}

impl ReaderSource {
    /// All columns of a table, which a reader reads.
    pub fn new(reader: Arc<dyn FileReader>, table_schema: TableSchema) -> ReaderSource {
        let projection = SplitProjection::unprojected(&table_schema);
        let metrics = ExecutionPlanMetricsSet::new();
        ReaderSource { reader, table_schema, projection, batch_size: None, metrics }
    }

    /// What reads the files.
    pub fn reader(&self) -> &Arc<dyn FileReader> {
        &self.reader
    }

    /// The columns that are read of files, by their places in the table.
    pub fn columns(&self) -> &[usize] {
        &self.projection.file_indices
    }
}

impl FileSource for ReaderSource {
    fn create_file_opener(
        &self,
        _: Arc<dyn ObjectStore>,
        config: &FileScanConfig,
        _: usize,
    ) -> Result<Arc<dyn FileOpener>> {
        let file_schema = self.table_schema.file_schema();
        let wanted = WantedColumns {
            table: Arc::clone(file_schema),
            columns: self.projection.file_indices.clone(),
            batch_size: self.batch_size.or(config.batch_size).unwrap_or(DEFAULT_BATCH_ROWS),
        };
        let opener = Arc::new(ReaderOpener { reader: Arc::clone(&self.reader), wanted });
        ProjectionOpener::try_new(self.projection.clone(), opener, file_schema)
    }

    fn table_schema(&self) -> &TableSchema {
        &self.table_schema
    }

    fn with_batch_size(&self, batch_size: usize) -> Arc<dyn FileSource> {
        Arc::new(ReaderSource { batch_size: Some(batch_size), ..self.clone() })
    }

    fn projection(&self) -> Option<&ProjectionExprs> {
        Some(&self.projection.source)
    }

    fn try_pushdown_projection(&self, projection: &ProjectionExprs) -> Result<Option<Arc<dyn FileSource>>> {
        let merged = self.projection.source.try_merge(projection)?;
        let projection = SplitProjection::new(self.table_schema.file_schema(), &merged);
        Ok(Some(Arc::new(ReaderSource { projection, ..self.clone() })))
    }

    fn metrics(&self) -> &ExecutionPlanMetricsSet {
        &self.metrics
    }

    fn file_type(&self) -> &str {
        self.reader.file_type()
    }

    fn supports_repartitioning(&self) -> bool {
        self.reader.reads_ranges()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        apply_expression_roots(self.projection.source.iter(), f)
    }
}

/// Rows of a batch where the session says nothing.
const DEFAULT_BATCH_ROWS: usize = 8192;

struct ReaderOpener {
    reader: Arc<dyn FileReader>,
    wanted: WantedColumns,
}

impl FileOpener for ReaderOpener {
    fn open(&self, file: PartitionedFile) -> Result<FileOpenFuture> {
        let (reader, wanted) = (Arc::clone(&self.reader), self.wanted.clone());
        // As DataFusion does with local files: reading them is short, and there is nothing to wait for.
        Ok(Box::pin(async move { Ok(futures::stream::iter(reader.open(&file, &wanted)?).boxed()) }))
    }
}
