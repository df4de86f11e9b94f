//! Which file and column it is that cannot be read.
//!
//! Readers name neither. Where one has failed, the files of its scan are read once more, column by column, each by itself.

use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::{FileReader, StreamReader};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::object_store::local::LocalFileSystem;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use kelpie_datafusion::{check_decimals, panic_text, whole_files};

/// A column of a file that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    path: PathBuf,
    /// None where nothing of the file can be.
    column: Option<String>,
    what: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.column {
            Some(column) => write!(f, "column {column}: ")?,
            None => f.write_str("its metadata cannot be read: ")?,
        }
        f.write_str(&self.what)
    }
}

/// The first column, in the order of the files, that keeps a scan of Parquet or Arrow files from being read.
pub(crate) fn find(config: &FileScanConfig) -> Option<Unreadable> {
    let source = config.file_source();
    let read = match () {
        () if source.is::<ParquetSource>() => parquet_column,
        () if source.file_type().starts_with("arrow") => arrow_column,
        () => return None,
    };
    if config.object_store_url.as_str() != "file:///" {
        return None;
    }
    let schema = source.table_schema().file_schema();
    let all = || (0..schema.fields().len()).collect();
    let mut columns = source.projection().map_or_else(all, |projection| projection.column_indices());
    columns.retain(|column| *column < schema.fields().len());
    let names: Vec<&str> = columns.iter().map(|column| schema.field(*column).name().as_str()).collect();
    let store = LocalFileSystem::new();
    whole_files(&config.file_groups).iter().find_map(|file| {
        let path = store.path_to_filesystem(&file.object_meta.location).ok()?;
        let failure = |column: Option<&str>| {
            let read = catch_unwind(AssertUnwindSafe(|| read(&path, column)));
            let what = match read {
                Ok(Ok(())) => return None,
                Ok(Err(error)) => error.to_string(),
                Err(panic) => panic_text(panic.as_ref()).to_string(),
            };
            Some(Unreadable { path: path.clone(), column: column.map(Into::into), what })
        };
        failure(None).or_else(|| names.iter().find_map(|name| failure(Some(name))))
    })
}

/// The first column of an Arrow file that cannot be read.
pub(crate) fn of_arrow<'a>(path: &Path, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut names = names;
    names.find(|name| {
        let read = catch_unwind(AssertUnwindSafe(|| arrow_column(path, Some(name))));
        !matches!(read, Ok(Ok(())))
    })
}

/// Reads a column of a file, where it has it; or the schema alone.
fn parquet_column(path: &Path, column: Option<&str>) -> Result<(), ArrowError> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let Some(place) = column.and_then(|column| builder.schema().index_of(column).ok()) else { return Ok(()) };
    let rows: i64 = builder.metadata().row_groups().iter().map(|group| group.num_rows()).sum();
    let column = ProjectionMask::roots(builder.parquet_schema(), [place]);
    let mut read = 0;
    for batch in builder.with_projection(column).build()? {
        let batch = batch?;
        check_decimals(&batch).map_err(ArrowError::ParquetError)?;
        read += batch.num_rows() as i64;
    }
    match read == rows {
        true => Ok(()),
        false => Err(ArrowError::ParquetError(format!(
            "its pages have {read} rows, and the file says that there are {rows}"
        ))),
    }
}

fn arrow_column(path: &Path, column: Option<&str>) -> Result<(), ArrowError> {
    let place = |schema: SchemaRef| Some(vec![column.and_then(|column| schema.index_of(column).ok())?]);
    match FileReader::try_new(File::open(path)?, None) {
        Ok(file) => match place(file.schema()) {
            Some(place) => read_all(FileReader::try_new(File::open(path)?, Some(place))?),
            None => Ok(()),
        },
        Err(error) => match StreamReader::try_new(File::open(path)?, None) {
            Ok(stream) => match place(stream.schema()) {
                Some(place) => read_all(StreamReader::try_new(File::open(path)?, Some(place))?),
                None => Ok(()),
            },
            Err(_) => Err(error),
        },
    }
}

fn read_all(mut batches: impl Iterator<Item = Result<RecordBatch, ArrowError>>) -> Result<(), ArrowError> {
    batches.try_for_each(|batch| batch.map(drop))
}
