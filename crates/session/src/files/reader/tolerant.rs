//! CSV of which rows that do not fit the table are left out.

use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use kelpie_datafusion::Batches;

use super::csv::{schema_as_read, typed, whole};
use super::file_scan::{FileScan, Filling};
use super::text::Text;
use crate::files::dialect::Dialect;
use crate::files::error::at;

/// The rows of a file, but for those that do not fit.
pub(super) fn open(scan: &FileScan, dialect: &Dialect) -> Result<Batches> {
    if scan.shape.schema.fields().is_empty() {
        return Ok(Box::new(std::iter::empty()));
    }
    let text = whole(&scan.path, scan.format.compression, dialect)?;
    let fitting = Fitting {
        schema: schema_as_read(scan, &dialect.forms),
        projection: scan.read(),
        batch_size: scan.batch_size,
        filling: Filling::new(scan),
        dialect: dialect.clone(),
    };
    let mut records = dialect.records(text, false);
    let path = scan.path.clone();
    let some = move || match fitting.some(&mut records) {
        Ok(None) => None,
        Ok(Some(batches)) => Some(Ok(batches)),
        Err(error) => Some(Err(at(&path, error))),
    };
    Ok(Box::new(std::iter::from_fn(some).flat_map(|batches| match batches {
        Ok(batches) => batches.into_iter().map(Ok).collect::<Vec<_>>(),
        Err(error) => vec![Err(error)],
    })))
}

/// Values that are tried at once.
const TRIED_VALUES: usize = 1 << 16;

/// How rows are tried.
struct Fitting {
    /// All columns of the file, as they are read.
    schema: Schema,
    projection: Vec<usize>,
    batch_size: usize,
    filling: Filling,
    dialect: Dialect,
}

impl Fitting {
    /// What fits of the next rows; nothing where there are none.
    fn some(&self, records: &mut csv::Reader<Text>) -> csv::Result<Option<Vec<RecordBatch>>> {
        let columns = self.schema.fields().len();
        let most = (TRIED_VALUES / columns.max(1)).max(1);
        let mut rows = Vec::new();
        let mut record = csv::ByteRecord::new();
        while rows.len() < most {
            if !records.read_byte_record(&mut record)? {
                break;
            }
            let found = record.len();
            if found > columns || (found < columns && !self.dialect.truncated_rows) {
                continue;
            }
            (found..columns).for_each(|_| record.push_field(b""));
            rows.push(record.clone());
        }
        if rows.is_empty() && records.is_done() {
            return Ok(None);
        }
        let mut batches = Vec::new();
        self.add_fitting(&rows, &mut batches)?;
        Ok(Some(batches))
    }

    /// Adds rows that fit: all at once, else those of each half.
    fn add_fitting(&self, rows: &[csv::ByteRecord], batches: &mut Vec<RecordBatch>) -> csv::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut text = csv::Writer::from_writer(Vec::new());
        rows.iter().try_for_each(|row| text.write_byte_record(row))?;
        let text = text.into_inner().map_err(|error| error.into_error())?;
        match self.batches(&text) {
            Ok(mut all) => batches.append(&mut all),
            Err(_) => {
                let (first, second) = rows.split_at(rows.len() / 2);
                // A row that is alone is left out.
                if !first.is_empty() {
                    self.add_fitting(first, batches)?;
                    self.add_fitting(second, batches)?;
                }
            }
        }
        Ok(())
    }

    fn batches(&self, text: &[u8]) -> Result<Vec<RecordBatch>> {
        // Rows as they are written anew have nothing of the dialect but what NULL is.
        let nulls = self.dialect.nulls.clone();
        let plain = Dialect { has_header: false, nulls, ..Dialect::plain(b',', b'"') };
        let builder = plain.reader(self.schema.clone()).with_projection(self.projection.clone());
        let wanted = Arc::clone(&self.filling.wanted);
        let batches = builder.with_batch_size(self.batch_size).build_buffered(text)?;
        let typed = batches.map(|batch| {
            let to_type = |array: &_, column: usize| {
                typed(array, wanted.field(column).data_type(), &self.dialect.forms)
            };
            self.filling.fill(&batch?, to_type)
        });
        typed.collect()
    }
}
