//! What a file is like, and how it is read for a table.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::error::Result;
use kelpie_datafusion::WantedColumns;

use crate::files::dialect::Dialect;
use crate::files::format::Format;
use crate::files::unite::places;

/// What a file is like, as far as it was looked at.
#[derive(Debug)]
pub(in crate::files) struct Shape {
    /// Its own columns.
    pub schema: SchemaRef,
    pub layout: Layout,
    /// Whether all of it was looked at.
    pub is_complete: bool,
    /// What somebody may not expect of how it was taken.
    pub note: Option<String>,
}

#[derive(Debug)]
pub(in crate::files) enum Layout {
    Csv(Dialect),
    Json(JsonLayout),
    Arrow { is_stream: bool },
}

impl Layout {
    /// Whether rows can be found from anywhere in a file.
    pub fn has_ranges(&self) -> bool {
        match self {
            Layout::Csv(dialect) => dialect.is_plain(),
            Layout::Json(layout) => layout.is_lines,
            Layout::Arrow { is_stream } => !is_stream,
        }
    }
}

/// How the values of a file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::files) struct JsonLayout {
    /// The values are the elements of one array.
    pub is_array: bool,
    /// Every value is on a line of its own.
    pub is_lines: bool,
    /// Lists or objects are among values of a column that only text holds.
    pub has_nested_text: bool,
}

/// The reading of one file.
#[derive(Debug, Clone)]
pub(super) struct FileScan {
    pub path: PathBuf,
    pub shape: Arc<Shape>,
    pub format: Format,
    /// The columns that stand in files.
    pub table: SchemaRef,
    /// The columns of the batches.
    pub wanted: SchemaRef,
    /// Where each of them stands in the file.
    pub places: Vec<Option<usize>>,
    pub batch_size: usize,
}

impl FileScan {
    pub fn new(shape: Arc<Shape>, wanted: &WantedColumns, format: Format, path: PathBuf) -> FileScan {
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
    pub fn read(&self) -> Vec<usize> {
        let mut read: Vec<usize> = self.places.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        read
    }
}

/// Batches of the wanted columns, from those that stand in the file; the others are NULL.
#[derive(Debug, Clone)]
pub(super) struct Filling {
    pub wanted: SchemaRef,
    /// Of each wanted column, which of those that were read.
    pub from: Vec<Option<usize>>,
}

impl Filling {
    pub fn new(scan: &FileScan) -> Filling {
        let read = scan.read();
        let from = scan.places.iter();
        let from = from.map(|place| place.and_then(|place| read.iter().position(|known| *known == place)));
        Filling { wanted: Arc::clone(&scan.wanted), from: from.collect() }
    }

    pub fn fill(
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
