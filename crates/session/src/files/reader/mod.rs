//! Kelpie's own reading of CSV, JSON and Arrow files: by the names of their columns, in the types of the table, and in whole rows
//! whatever stands in them.

mod arrow;
pub(super) mod csv;
mod format;
mod json;
mod json_types;
mod json_value;
mod rows;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::Result;
use datafusion::object_store::local::LocalFileSystem;
use parking_lot::Mutex;

use kelpie_datafusion::{Batches, FileReader, WantedColumns};

use self::csv::Dialect;
use super::at;
use super::format::{Format, Kind};
use super::misfit::{Misfit, Scan};
use super::options::ReadOptions;
use super::unite::places;
pub(super) use format::LocalFormat;
use rows::RowStarts;

/// Files whose columns are remembered.
const REMEMBERED_FILES: usize = 100_000;

/// What a file is like, as far as it was looked at.
#[derive(Debug)]
pub(super) struct Shape {
    /// Its own columns.
    pub schema: SchemaRef,
    pub layout: Layout,
    /// Whether all of it was looked at.
    pub is_complete: bool,
}

#[derive(Debug)]
pub(super) enum Layout {
    Csv(Dialect),
    Json(json::JsonLayout),
    Arrow { is_stream: bool },
}

/// Reads the files of a table.
#[derive(Debug)]
pub(super) struct LocalReader {
    format: Format,
    options: ReadOptions,
    /// By path and state.
    shapes: Mutex<HashMap<(PathBuf, String), Arc<Shape>>>,
    rows: RowStarts,
}

impl LocalReader {
    pub fn new(format: Format, options: ReadOptions) -> LocalReader {
        LocalReader { format, options, shapes: Mutex::default(), rows: RowStarts::default() }
    }

    /// What a file is like; `state` tells it from others that were there under its name.
    pub fn shape(&self, path: &Path, state: &str) -> Result<Arc<Shape>> {
        let key = (path.to_path_buf(), state.to_string());
        if let Some(known) = self.shapes.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let shape = Arc::new(match self.format.kind {
            Kind::Json => json::shape(path, self.format.compression, &self.options)?,
            Kind::Arrow => arrow::shape(path)?,
            _ => csv::shape(path, self.format, &self.options)?,
        });
        let mut shapes = self.shapes.lock();
        if shapes.len() >= REMEMBERED_FILES {
            shapes.clear();
        }
        shapes.insert(key, Arc::clone(&shape));
        Ok(shape)
    }

    /// What a file of a scan is like.
    pub fn shape_of(&self, file: &PartitionedFile) -> Result<(PathBuf, Arc<Shape>)> {
        let path = path_of(file)?;
        let shape = self.shape(&path, &state_of(file))?;
        Ok((path, shape))
    }

    /// The first row of a file that its table cannot hold.
    pub fn misfit(&self, file: &PartitionedFile, wanted: &WantedColumns) -> Option<Misfit> {
        let (path, shape) = self.shape_of(file).ok()?;
        match &shape.layout {
            Layout::Json(_) => json::find_misfit(self, file, wanted),
            Layout::Arrow { .. } => None,
            Layout::Csv(dialect) => {
                let scan = FileScan::new(path, Arc::clone(&shape), wanted, self.format);
                let (schema, columns) = (Arc::new(csv::schema_of(&scan)), scan.read());
                let open = || text::whole(&scan.path, self.format.compression).ok();
                Scan { dialect, schema: &schema, columns: &columns }.find(&scan.path, open)
            }
        }
    }

    /// The bytes of a file's rows, or of those that begin in its range.
    fn piece(&self, path: &Path, file: &PartitionedFile, dialect: Option<&Dialect>) -> Result<text::Piece> {
        let size = file.object_meta.size;
        let (start, end) = match &file.range {
            None => (0, size),
            Some(range) => {
                let wanted = (range.start.max(0) as u64, (range.end.max(0) as u64).min(size));
                self.rows.between(path, &state_of(file), (size, wanted), dialect)?
            }
        };
        Ok(text::Piece { start, end })
    }
}

/// The path of a file of a scan.
pub(super) fn path_of(file: &PartitionedFile) -> Result<PathBuf> {
    Ok(LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?)
}

/// What tells a file of a scan from others that were there under its name.
fn state_of(file: &PartitionedFile) -> String {
    let meta = &file.object_meta;
    state(meta.size, meta.version.as_deref())
}

/// The same of a file that was looked at.
pub(super) fn state(size: u64, version: Option<&str>) -> String {
    format!("{size} {}", version.unwrap_or_default())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| at(path, error))
}

impl FileReader for LocalReader {
    fn file_type(&self) -> &'static str {
        match self.format.kind {
            Kind::Json => "json",
            Kind::Arrow => "arrow",
            _ => "csv",
        }
    }

    fn identity(&self) -> String {
        let ReadOptions { infer_rows, has_header, csv, .. } = &self.options;
        format!("{:?} {infer_rows:?} {has_header} {csv:?}", self.format)
    }

    fn reads_ranges(&self) -> bool {
        let cannot = |layout: &Layout| match layout {
            Layout::Csv(dialect) => !dialect.is_plain(),
            Layout::Json(layout) => !layout.is_lines,
            Layout::Arrow { is_stream } => *is_stream,
        };
        !self.format.compression.is_compressed()
            && !self.shapes.lock().values().any(|shape| cannot(&shape.layout))
    }

    fn open(&self, file: &PartitionedFile, wanted: &WantedColumns) -> Result<Batches> {
        let (path, shape) = self.shape_of(file)?;
        let scan = FileScan::new(path, shape, wanted, self.format);
        match &scan.shape.layout {
            Layout::Csv(dialect) => {
                let piece = self.piece(&scan.path, file, Some(dialect))?;
                csv::open(&scan, dialect, piece)
            }
            Layout::Json(_) => {
                let piece = self.piece(&scan.path, file, None)?;
                json::open(&scan, piece)
            }
            Layout::Arrow { is_stream } => arrow::open(&scan, *is_stream, file),
        }
    }
}

/// The reading of one file.
#[derive(Debug)]
struct FileScan {
    path: PathBuf,
    shape: Arc<Shape>,
    format: Format,
    /// The columns that stand in files.
    table: SchemaRef,
    /// The columns of the batches.
    wanted: SchemaRef,
    /// Where each of them stands in the file.
    places: Vec<Option<usize>>,
    batch_size: usize,
}

impl FileScan {
    fn new(path: PathBuf, shape: Arc<Shape>, wanted: &WantedColumns, format: Format) -> FileScan {
        let of_table = places(&wanted.table, &shape.schema);
        let places = wanted.columns.iter().map(|column| of_table.get(*column).copied().flatten()).collect();
        let fields = wanted.columns.iter().filter_map(|column| wanted.table.fields().get(*column));
        FileScan {
            wanted: Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>())),
            table: Arc::clone(&wanted.table),
            path,
            shape,
            format,
            places,
            batch_size: wanted.batch_size.max(1),
        }
    }

    /// The places in the file that are read, in order.
    fn read(&self) -> Vec<usize> {
        let mut read: Vec<usize> = self.places.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        read
    }
}

/// Batches of the wanted columns, from those that stand in the file; the others are NULL.
#[derive(Debug, Clone)]
struct Filling {
    wanted: SchemaRef,
    /// Of each wanted column, which of those that were read.
    from: Vec<Option<usize>>,
}

impl Filling {
    fn new(scan: &FileScan) -> Filling {
        let read = scan.read();
        let from = scan.places.iter();
        let from = from.map(|place| place.and_then(|place| read.iter().position(|known| *known == place)));
        Filling { wanted: Arc::clone(&scan.wanted), from: from.collect() }
    }

    fn fill(
        &self,
        batch: &RecordBatch,
        to_type: impl Fn(&ArrayRef, usize) -> Result<ArrayRef>,
    ) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let columns = self.from.iter().enumerate().map(|(column, from)| match from {
            Some(from) => to_type(batch.column(*from), column),
            None => Ok(new_null_array(self.wanted.field(column).data_type(), rows)),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.wanted), columns, &options)?)
    }
}
