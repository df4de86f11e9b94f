//! A format that Kelpie reads itself and DataFusion writes.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::{Statistics, not_impl_err};
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::physical_plan::{
    FileScanConfig, FileScanConfigBuilder, FileSinkConfig, FileSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;

use kelpie_datafusion::ReaderSource;

use super::reader::LocalReader;

/// The files of a table that are read by a [`LocalReader`].
pub(super) struct LocalFormat {
    pub reader: Arc<LocalReader>,
    /// What writes such files.
    pub writer: Arc<dyn FileFormat>,
}

impl fmt::Debug for LocalFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalFormat").field(&self.reader.format).finish()
    }
}

#[async_trait]
impl FileFormat for LocalFormat {
    fn get_ext(&self) -> String {
        self.writer.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.writer.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        Some(self.reader.format.compression)
    }

    async fn infer_schema(
        &self,
        _: &dyn Session,
        _: &Arc<dyn ObjectStore>,
        _: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        not_impl_err!("the columns of local files are known before")
    }

    async fn infer_stats(
        &self,
        _: &dyn Session,
        _: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        _: &ObjectMeta,
    ) -> Result<Statistics> {
        Ok(Statistics::new_unknown(&table_schema))
    }

    async fn create_physical_plan(
        &self,
        _: &dyn Session,
        scan: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let scan =
            FileScanConfigBuilder::from(scan).with_file_compression_type(self.reader.format.compression);
        Ok(DataSourceExec::from_data_source(scan.build()))
    }

    async fn create_writer_physical_plan(
        &self,
        rows: Arc<dyn ExecutionPlan>,
        session: &dyn Session,
        sink: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.writer.create_writer_physical_plan(rows, session, sink, order).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        Arc::new(ReaderSource::new(Arc::clone(&self.reader) as _, table_schema))
    }
}
