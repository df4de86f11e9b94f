//! Arrow files and streams.

use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::reader::{FileReader, StreamReader};
use datafusion::arrow::util::display::FormatOptions;
use datafusion::common::nested_struct::cast_column;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::error::{DataFusionError, Result};

use kelpie_datafusion::{Batches, with_null_fields};

use super::file_scan::{FileScan, Filling, Layout, Shape};
use super::header::told_apart;
use super::text::open as open_file;
use crate::checked_files::unreadable_of_arrow;
use crate::files::error::{at, in_metadata};

/// What an Arrow file begins with, and a stream does not.
const MAGIC: &[u8] = b"ARROW1";

pub(super) fn shape(path: &Path) -> Result<Shape> {
    let mut magic = Vec::new();
    let start = open_file(path)?.take(MAGIC.len() as u64).read_to_end(&mut magic);
    start.map_err(|error| at(path, error))?;
    let is_stream = magic != MAGIC;
    let file = BufReader::new(open_file(path)?);
    let schema = match is_stream {
        true => StreamReader::try_new(file, None).map(|reader| reader.schema()),
        false => FileReader::try_new(file, None).map(|reader| reader.schema()),
    };
    let schema = with_own_names(schema.map_err(|error| in_metadata(path, error))?);
    Ok(Shape { schema, layout: Layout::Arrow { is_stream }, is_complete: true, note: None })
}

/// Columns of which several had one name.
fn with_own_names(schema: SchemaRef) -> SchemaRef {
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let own = told_apart(&names);
    if own == names {
        return schema;
    }
    let fields = schema.fields().iter().zip(own).map(|(field, name)| field.as_ref().clone().with_name(name));
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The rows of a file, or of the batches that a range of it stands for.
pub(super) fn open(scan: &FileScan, is_stream: bool, file: &PartitionedFile) -> Result<Batches> {
    let (filling, wanted, path) = (Filling::new(scan), Arc::clone(&scan.wanted), scan.path.clone());
    let input = BufReader::new(open_file(&path)?);
    let columns = Some(scan.read());
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    let fill = move |batch: std::result::Result<_, _>| {
        let batch = batch.and_then(with_null_fields).map_err(|error| in_column(&path, &wanted, &error))?;
        filling.fill(&batch, |array, column| {
            let to = wanted.field(column);
            match to.data_type() {
                same if same == array.data_type() => Ok(Arc::clone(array)),
                nested if nested.is_nested() => cast_column(array, to.data_type(), &options),
                plain => Ok(cast_with_options(array, plain, &options)?),
            }
        })
    };
    if is_stream {
        let batches = StreamReader::try_new(input, columns).map_err(|error| at(&scan.path, error))?;
        return Ok(Box::new(batches.map(fill)));
    }
    let mut batches = FileReader::try_new(input, columns).map_err(|error| at(&scan.path, error))?;
    let count = batches.num_batches();
    let (first, end) = batches_of(file, count);
    if first < end {
        batches.set_index(first).map_err(|error| at(&scan.path, error))?;
    }
    Ok(Box::new(batches.take(end - first).map(fill)))
}

/// An error of a batch, with the column that cannot be read where there is one by itself.
fn in_column(path: &Path, columns: &Schema, error: &ArrowError) -> DataFusionError {
    let names = columns.fields().iter().map(|field| field.name().as_str());
    match unreadable_of_arrow(path, names) {
        Some(column) => at(path, format!("column {column}: {error}")),
        None => at(path, format!("a batch cannot be read: {error}")),
    }
}

/// Which of so many batches a range of bytes stands for: each is in one range, as they are taken to be equally long.
fn batches_of(file: &PartitionedFile, count: usize) -> (usize, usize) {
    let Some(range) = &file.range else { return (0, count) };
    let size = u128::from(file.object_meta.size.max(1));
    let batch_from = |byte: i64| {
        let first = (byte.max(0) as u128 * count as u128).div_ceil(size);
        usize::try_from(first).unwrap_or(count).min(count)
    };
    let (first, end) = (batch_from(range.start), batch_from(range.end));
    (first, end.max(first))
}
