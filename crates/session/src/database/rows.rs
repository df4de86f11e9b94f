//! Rows of a database on their way into a file.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::common::{exec_err, not_impl_err};
use datafusion::datasource::sink::{DataSink, DataSinkExec};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::catalogue::sync_folder;
use super::steps::{Step, reached};
use super::{Database, KeptTable};
use crate::files::error::at;

/// Batches that wait for the writer, at most.
const WAITING: usize = 4;

/// A file of rows that belongs to no table yet. Dropped so, it leaves nothing.
pub(super) struct NewRows {
    path: PathBuf,
    rows: u64,
    is_kept: bool,
}

impl NewRows {
    /// Gives it to whoever names it, and its name in the folder.
    fn name(&self) -> Result<String> {
        match self.path.file_name() {
            Some(name) => Ok(name.to_string_lossy().into_owned()),
            None => exec_err!("{}: no name of a file", self.path.display()),
        }
    }

    /// Lets a change of the catalogue name it; where that fails, it is removed.
    pub fn keep(mut self, change: impl FnOnce(String) -> Result<()>) -> Result<u64> {
        change(self.name()?)?;
        self.is_kept = true;
        Ok(self.rows)
    }
}

impl Drop for NewRows {
    fn drop(&mut self) {
        if !self.is_kept {
            // Where it cannot be removed, it is when the database is opened again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes rows to a new file, which is on the disk in the end.
pub(super) async fn write(
    database: &Database,
    schema: &SchemaRef,
    rows: &mut SendableRecordBatchStream,
) -> Result<NewRows> {
    let mut new = NewRows { path: database.new_file(), rows: 0, is_kept: false };
    let (to_writer, batches) = mpsc::channel(WAITING);
    let (path, of_file) = (new.path.clone(), Arc::clone(schema));
    let writing = tokio::task::spawn_blocking(move || write_file(&path, &of_file, batches));
    let sent = async {
        while let Some(batch) = rows.next().await.transpose()? {
            // A writer that has stopped says why in the end.
            if to_writer.send(as_in_table(&batch, schema)?).await.is_err() {
                break;
            }
        }
        Ok::<_, DataFusionError>(())
    };
    let sent = sent.await;
    drop(to_writer);
    // Also where the rows have failed: a file is removed when nobody writes to it any more.
    let written = writing.await.map_err(|error| DataFusionError::Execution(error.to_string()))?;
    sent?;
    new.rows = written?;
    Ok(new)
}

/// Writes what comes, until nothing more does; the number of rows.
fn write_file(path: &Path, schema: &SchemaRef, mut batches: mpsc::Receiver<RecordBatch>) -> Result<u64> {
    let failed = |error: &dyn fmt::Display| at(path, format!("rows cannot be written: {error}"));
    let file = File::create_new(path).map_err(|error| failed(&error))?;
    reached(Step::RowsBegun);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let writer = ArrowWriter::try_new(file, Arc::clone(schema), Some(properties));
    let mut writer = writer.map_err(|error| failed(&error))?;
    let mut rows = 0;
    while let Some(batch) = batches.blocking_recv() {
        rows += batch.num_rows() as u64;
        writer.write(&batch).map_err(|error| failed(&error))?;
    }
    let file = writer.into_inner().map_err(|error| failed(&error))?;
    let synced = file.sync_all().and_then(|()| path.parent().map_or(Ok(()), sync_folder));
    synced.map_err(|error| failed(&error))?;
    reached(Step::RowsWritten);
    Ok(rows)
}

/// Rows in the types of a table. A NULL in a column that has none is an error that names it.
fn as_in_table(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| {
        match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => Ok(cast(column, field.data_type())?),
        }
    });
    Ok(RecordBatch::try_new(Arc::clone(schema), columns.collect::<Result<Vec<_>>>()?)?)
}

/// INSERT into a table of a database.
pub(crate) fn insert(
    table: &KeptTable,
    schema: SchemaRef,
    rows: Arc<dyn ExecutionPlan>,
    mode: InsertOp,
) -> Result<Arc<dyn ExecutionPlan>> {
    if mode == InsertOp::Replace {
        return not_impl_err!("{mode} of a table of a database: INSERT INTO and INSERT OVERWRITE");
    }
    let sink = RowsSink { table: table.clone(), schema, replaces: mode == InsertOp::Overwrite };
    Ok(Arc::new(DataSinkExec::new(rows, Arc::new(sink), None)))
}

/// Takes the rows of an INSERT.
#[derive(Debug)]
struct RowsSink {
    table: KeptTable,
    schema: SchemaRef,
    /// Whether they take the place of those that there are.
    replaces: bool,
}

impl DisplayAs for RowsSink {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} of {}", self.table.name, self.table.database.folder().display())
    }
}

#[async_trait]
impl DataSink for RowsSink {
    fn metrics(&self) -> Option<MetricsSet> {
        None
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    async fn write_all(&self, mut data: SendableRecordBatchStream, _: &Arc<TaskContext>) -> Result<u64> {
        let KeptTable { database, name } = &self.table;
        // The stream is let go of when its rows are in their place: until then nobody else writes rows that were compared with what there is.
        let new = write(database, &self.schema, &mut data).await?;
        match (self.replaces, new.rows) {
            (true, _) => new.keep(|file| database.put_table(name, file, None)),
            // Nothing changes.
            (false, 0) => Ok(0),
            (false, _) => new.keep(|file| database.add_rows(name, file)),
        }
    }
}
