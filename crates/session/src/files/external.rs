//! CSV of CREATE EXTERNAL TABLE. DataFusion infers types from pieces that end at any line feed: where one stands within quotes, the
//! rest of the row counts as a row, and its values spoil the types of other columns.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::csv::reader::Format as ArrowFormat;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::Session;
use datafusion::common::config::CsvOptions;
use datafusion::common::{GetExt, Statistics};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::{DEFAULT_SCHEMA_INFER_MAX_RECORD, FileFormat, FileFormatFactory};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSinkConfig, FileSource};
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::object_store::{ObjectMeta, ObjectStore};
use datafusion::physical_expr::LexRequirement;
use datafusion::physical_plan::ExecutionPlan;

use kelpie_datafusion::KelpieOptions;

use super::dialect::Dialect;
use super::error::at;

/// Lets a session's CSV be read in whole rows where types are inferred; a format of somebody else's stays.
pub(crate) fn infer_from_whole_rows(builder: &mut SessionStateBuilder) {
    for factory in builder.file_formats().iter_mut().flatten() {
        if factory.is::<CsvFormatFactory>() {
            *factory = Arc::new(WholeCsvFactory(Arc::clone(factory)));
        }
    }
}

/// DataFusion's formats, wrapped.
#[derive(Debug)]
struct WholeCsvFactory(Arc<dyn FileFormatFactory>);

impl FileFormatFactory for WholeCsvFactory {
    fn create(&self, state: &dyn Session, options: &HashMap<String, String>) -> Result<Arc<dyn FileFormat>> {
        Ok(Arc::new(WholeCsv(self.0.create(state, options)?)))
    }

    fn default(&self) -> Arc<dyn FileFormat> {
        Arc::new(WholeCsv(self.0.default()))
    }
}

impl GetExt for WholeCsvFactory {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }
}

/// DataFusion's CSV, but for the inference of types.
struct WholeCsv(Arc<dyn FileFormat>);

impl fmt::Debug for WholeCsv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl FileFormat for WholeCsv {
    fn get_ext(&self) -> String {
        self.0.get_ext()
    }

    fn get_ext_with_compression(&self, compression: &FileCompressionType) -> Result<String> {
        self.0.get_ext_with_compression(compression)
    }

    fn compression_type(&self) -> Option<FileCompressionType> {
        self.0.compression_type()
    }

    async fn infer_schema(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        objects: &[ObjectMeta],
    ) -> Result<SchemaRef> {
        let is_local = store.to_string() == LocalFileSystem::new().to_string();
        let csv = self.0.downcast_ref::<CsvFormat>().map(CsvFormat::options);
        match csv {
            Some(csv) if is_local && KelpieOptions::of(state.config_options()).corrections => {
                let has_header = csv.has_header.unwrap_or(state.config_options().catalog.has_header);
                match infer(csv, has_header, objects)? {
                    Some(schema) => Ok(schema),
                    None => self.0.infer_schema(state, store, objects).await,
                }
            }
            _ => self.0.infer_schema(state, store, objects).await,
        }
    }

    async fn infer_stats(
        &self,
        state: &dyn Session,
        store: &Arc<dyn ObjectStore>,
        table_schema: SchemaRef,
        object: &ObjectMeta,
    ) -> Result<Statistics> {
        self.0.infer_stats(state, store, table_schema, object).await
    }

    async fn create_physical_plan(
        &self,
        state: &dyn Session,
        scan: FileScanConfig,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_physical_plan(state, scan).await
    }

    async fn create_writer_physical_plan(
        &self,
        rows: Arc<dyn ExecutionPlan>,
        state: &dyn Session,
        sink: FileSinkConfig,
        order: Option<LexRequirement>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.0.create_writer_physical_plan(rows, state, sink, order).await
    }

    fn file_source(&self, table_schema: TableSchema) -> Arc<dyn FileSource> {
        self.0.file_source(table_schema)
    }
}

/// The columns of files that have line feeds within values; nothing of others, which DataFusion reads right.
fn infer(csv: &CsvOptions, has_header: bool, objects: &[ObjectMeta]) -> Result<Option<SchemaRef>> {
    let dialect = Dialect {
        has_header,
        escape: csv.escape,
        comment: csv.comment,
        terminator: csv.terminator,
        truncated_rows: csv.truncated_rows.unwrap_or(false),
        ..Dialect::plain(csv.delimiter, csv.quote)
    };
    let mut rows = csv.schema_infer_max_rec.unwrap_or(DEFAULT_SCHEMA_INFER_MAX_RECORD);
    let compression = FileCompressionType::from(csv.compression);
    let store = LocalFileSystem::new();
    let mut schemas = Vec::new();
    let mut has_line_feeds = false;
    for object in objects.iter().filter(|_| csv.null_regex.is_none()) {
        let path = store.path_to_filesystem(&object.location)?;
        let file = |path: &Path| File::open(path).map_err(|error| at(path, error));
        has_line_feeds |= has_line_feed(&dialect, compression.convert_read(file(&path)?)?, rows);
        let text = compression.convert_read(file(&path)?)?;
        // What cannot be read is an error in DataFusion's own words.
        let Ok((schema, read)) = inference(&dialect).infer_schema(text, Some(rows)) else { return Ok(None) };
        schemas.push(schema);
        rows -= read.min(rows);
        if rows == 0 {
            break;
        }
    }
    if !has_line_feeds {
        return Ok(None);
    }
    Ok(Some(Arc::new(Schema::try_merge(schemas)?)))
}

/// Whether a line feed stands in a value of the first rows.
fn has_line_feed(dialect: &Dialect, text: impl std::io::Read, rows: usize) -> bool {
    let mut records = dialect.records(text, true);
    let mut record = csv::ByteRecord::new();
    (0..=rows).any(|_| {
        matches!(records.read_byte_record(&mut record), Ok(true)) && record.as_slice().contains(&b'\n')
    })
}

/// Arrow's inference of types from such lines.
fn inference(dialect: &Dialect) -> ArrowFormat {
    let mut format = ArrowFormat::default()
        .with_header(dialect.has_header)
        .with_delimiter(dialect.delimiter)
        .with_quote(dialect.quote)
        .with_truncated_rows(dialect.truncated_rows);
    if let Some(terminator) = dialect.terminator {
        format = format.with_terminator(terminator);
    }
    if let Some(escape) = dialect.escape {
        format = format.with_escape(escape);
    }
    if let Some(comment) = dialect.comment {
        format = format.with_comment(comment);
    }
    format
}
