//! Kelpie's own reading of CSV, JSON and Arrow files: by the names of their columns, in the types of the table, and in whole rows
//! whatever stands in them.

mod arrow;
mod csv;
mod csv_columns;
mod csv_rows;
mod csv_types;
mod encoding;
mod file_scan;
mod header;
mod iso_times;
mod json;
mod json_keys;
mod json_types;
mod json_value;
mod rewritten;
mod sniffed;
mod text;
mod tolerant;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::Result;
use datafusion::object_store::local::LocalFileSystem;
use parking_lot::Mutex;

use kelpie_datafusion::{Batches, ByteRange, FileReader, Quoting, RowStarts, WantedColumns};

use super::dialect::Dialect;
use super::error::at;
use super::format::{Format, Kind};
use super::misfit::{Misfit, Scan, What};
use super::options::ReadOptions;
pub(super) use csv_types::{is_cut_off, wider_type};
pub(super) use encoding::{Encoding, NamedEncoding};
use file_scan::FileScan;
pub(super) use file_scan::{Layout, Shape};
use header::FirstFile;
pub(super) use rewritten::Rewriting;

/// Files whose columns are remembered.
const REMEMBERED_FILES: usize = 100_000;

/// Reads the files of a table.
#[derive(Debug)]
pub(super) struct LocalReader {
    pub format: Format,
    options: ReadOptions,
    /// By path and state.
    shapes: Mutex<HashMap<(PathBuf, String), Arc<Shape>>>,
    /// What the header of the first CSV file says of others that may have none.
    first: OnceLock<FirstFile>,
    rows: RowStarts,
}

impl LocalReader {
    pub fn new(format: Format, options: ReadOptions) -> LocalReader {
        LocalReader {
            format,
            options,
            shapes: Mutex::default(),
            first: OnceLock::new(),
            rows: RowStarts::default(),
        }
    }

    /// What a file is like; `state` tells it from others that were there under its name.
    pub fn shape(&self, path: &Path, state: &str) -> Result<Arc<Shape>> {
        let key = (path.to_path_buf(), state.to_string());
        if let Some(known) = self.shapes.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let shape = Arc::new(match self.format.kind {
            Kind::Json => json::shape(path, self.format_of(path).compression, &self.options)?,
            Kind::Arrow => arrow::shape(path)?,
            _ => csv::shape(&self.csv_file(path), self.first.get())?,
        });
        if let Layout::Csv(dialect) = &shape.layout
            && !shape.schema.fields().is_empty()
        {
            self.first.get_or_init(|| FirstFile::of(dialect, &shape.schema));
        }
        let mut shapes = self.shapes.lock();
        if shapes.len() >= REMEMBERED_FILES {
            shapes.clear();
        }
        shapes.insert(key, Arc::clone(&shape));
        Ok(shape)
    }

    /// How a file of the table is read: some may be compressed, and others not.
    fn format_of(&self, path: &Path) -> Format {
        match self.options.given.kind {
            Some(kind) => Format::read_as(path, kind).unwrap_or(self.format),
            None => Format::of(path).unwrap_or(self.format),
        }
    }

    fn csv_file<'a>(&'a self, path: &'a Path) -> csv::CsvFile<'a> {
        csv::CsvFile { path, format: self.format_of(path), options: &self.options }
    }

    /// Whether parts of a file can be read by themselves.
    fn has_ranges(&self, path: &Path, shape: &Shape) -> bool {
        let is_whole = self.format_of(path).compression.is_compressed() || self.options.given.ignores_errors;
        !is_whole && shape.layout.has_ranges()
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
        let scan = FileScan::new(Arc::clone(&shape), wanted, self.format_of(&path), path);
        match &shape.layout {
            Layout::Json(_) => json::find_misfit(&scan),
            Layout::Arrow { .. } => None,
            Layout::Csv(dialect) => {
                let (schema, columns) = (Arc::new(csv::schema_of(&scan)), scan.read());
                let open = || csv::whole(&scan.path, scan.format.compression, dialect).ok();
                let mut misfit =
                    Scan { dialect, schema: &schema, columns: &columns }.find(&scan.path, open)?;
                if let What::Value { column, is_given, .. } = &mut misfit.what {
                    *is_given = schema
                        .index_of(column)
                        .is_ok_and(|place| self.options.given.has_type_of(place, column));
                }
                Some(misfit)
            }
        }
    }

    /// The bytes of a file's rows, or of those that begin in its range.
    fn piece(&self, path: &Path, file: &PartitionedFile, dialect: Option<&Dialect>) -> Result<text::Piece> {
        let size = file.object_meta.size;
        let (start, end) = match &file.range {
            None => (0, size),
            Some(range) => {
                let (start, end) = (range.start.max(0) as u64, (range.end.max(0) as u64).min(size));
                let quoting = dialect
                    .map(|Dialect { delimiter, quote, .. }| Quoting { delimiter: *delimiter, quote: *quote });
                let rows = self.rows.between(path, &state_of(file), ByteRange { size, start, end }, quoting);
                rows.map_err(|error| at(path, error))?
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
        let ReadOptions { infer_rows, has_header, csv, given, .. } = &self.options;
        format!("{:?} {infer_rows:?} {has_header:?} {csv:?} {given:?}", self.format)
    }

    fn reads_ranges(&self) -> bool {
        self.shapes.lock().iter().all(|((path, _), shape)| self.has_ranges(path, shape))
    }

    fn open(&self, file: &PartitionedFile, wanted: &WantedColumns) -> Result<Batches> {
        let (path, shape) = self.shape_of(file)?;
        let scan = FileScan::new(shape, wanted, self.format_of(&path), path);
        let whole = PartitionedFile { range: None, ..file.clone() };
        let has_ranges = self.has_ranges(&scan.path, &scan.shape);
        // A file that was another one when the table was made may not be read in parts: its first one is all of it.
        let file = match &file.range {
            Some(range) if !has_ranges && range.start > 0 => {
                return Ok(Box::new(std::iter::empty()));
            }
            Some(_) if !has_ranges => &whole,
            _ => file,
        };
        match &scan.shape.layout {
            Layout::Csv(dialect) => {
                let piece = self.piece(&scan.path, file, Some(dialect))?;
                match self.options.given.ignores_errors {
                    true => tolerant::open(&scan, dialect),
                    false => csv::open(&scan, dialect, piece),
                }
            }
            Layout::Json(_) => {
                let piece = self.piece(&scan.path, file, None)?;
                json::open(&scan, piece)
            }
            Layout::Arrow { is_stream } => arrow::open(&scan, *is_stream, file),
        }
    }
}
