//! Kelpie's own reading of CSV, JSON and Arrow files: by the names of their columns, in the types of the table, and in whole rows
//! whatever stands in them.

mod arrow;
mod csv;
mod csv_types;
mod file_scan;
mod json;
mod json_types;
mod json_value;
mod rows;
mod text;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::Result;
use datafusion::object_store::local::LocalFileSystem;
use parking_lot::Mutex;

use kelpie_datafusion::{Batches, FileReader, WantedColumns};

use super::dialect::Dialect;
use super::format::{Format, Kind};
use super::misfit::{Misfit, Scan};
use super::options::ReadOptions;
use file_scan::FileScan;
pub(super) use file_scan::{Layout, Shape};
use rows::RowStarts;

/// Files whose columns are remembered.
const REMEMBERED_FILES: usize = 100_000;

/// Reads the files of a table.
#[derive(Debug)]
pub(super) struct LocalReader {
    pub format: Format,
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
        let scan = FileScan::new(path, Arc::clone(&shape), wanted, self.format);
        match &shape.layout {
            Layout::Json(_) => json::find_misfit(&scan),
            Layout::Arrow { .. } => None,
            Layout::Csv(dialect) => {
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
