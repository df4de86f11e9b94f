//! A Parquet file that is being read, one row group after the other.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Field, FieldRef, Schema};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::ParquetRowSelection;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
    RowSelection,
};
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::file::metadata::{PageIndexPolicy, ParquetMetaData};
use datafusion::parquet::file::page_index::offset_index::PageLocation;
use tokio::runtime::Handle;

use super::Origin;
use super::chunks::{Chunks, FileParts, LocalFile};
use super::compressed::{Pages, makes_checked_room};
use super::forms::{FileColumn, FileColumns, Read};
use super::pages::PageColumn;
use super::recycled::Recycled;
use super::row_group::{BATCH_ROWS, ColumnReader, RowGroup};

/// Rows of a row group that are wanted.
#[derive(Debug)]
struct Part {
    group: usize,
    /// `None`: all.
    rows: Option<RowSelection>,
}

/// A file, open.
pub(super) struct OpenedFile<'a> {
    file: &'a PartitionedFile,
    bytes: Box<dyn AsyncFileReader + Send>,
    /// The file where it is on this machine.
    local: Option<Arc<Chunks>>,
    memory: Recycled,
    metadata: Arc<ParquetMetaData>,
    columns: FileColumns,
    parts: VecDeque<Part>,
    /// Of the columns that Arrow's reader reads.
    forms: Option<ArrowReaderMetadata>,
    reading: Option<RowGroup>,
}

impl<'a> OpenedFile<'a> {
    /// Opens a file for some of a table's columns, on a runtime.
    pub(super) fn new(
        file: &'a PartitionedFile,
        mut bytes: Box<dyn AsyncFileReader + Send>,
        (local, memory): (Option<LocalFile>, Recycled),
        wanted: &[FieldRef],
        runtime: &Handle,
    ) -> Result<OpenedFile<'a>, String> {
        let selection = file.extension::<ParquetRowSelection>().map(ParquetRowSelection::selection);
        let mut metadata = |policy| {
            let options = ArrowReaderOptions::new().with_page_index_policy(policy);
            runtime.block_on(bytes.get_metadata(Some(&options))).map_err(|error| error.to_string())
        };
        let mut footer = metadata(PageIndexPolicy::Skip)?;
        let parts = parts(&footer, selection.cloned())?;
        // Where rows within a row group are left out, the index tells which pages need not be read.
        if parts.iter().any(|part| part.rows.is_some()) {
            footer = metadata(PageIndexPolicy::Optional)?;
        }
        let metadata = footer;
        let columns =
            FileColumns::find(&metadata, wanted).ok_or("the file was replaced while it was read")?;
        let (forms, reading) = (None, None);
        let local = local.map(|file| Arc::new(Chunks::Local(file)));
        Ok(OpenedFile { file, bytes, local, memory, metadata, columns, parts, forms, reading })
    }

    /// The next rows; `None` behind the last.
    pub(super) fn next_batch(
        &mut self,
        columns: &[Origin],
        runtime: &Handle,
    ) -> Result<Option<RecordBatch>, String> {
        loop {
            if let Some(group) = &mut self.reading
                && let Some((rows, arrays)) = group.next_batch(&self.columns.wanted)?
            {
                return self.with_all_columns(rows, &arrays, columns).map(Some);
            }
            let Some(part) = self.parts.pop_front() else { return Ok(None) };
            self.reading = Some(self.read(part, runtime)?);
        }
    }

    /// Opens a row group's columns.
    fn read(&mut self, part: Part, runtime: &Handle) -> Result<RowGroup, String> {
        let metadata = Arc::clone(&self.metadata);
        let group = metadata.row_group(part.group);
        let rows = usize::try_from(group.num_rows()).map_err(|error| error.to_string())?;
        let readers = self.columns.readers();
        let local = self.local.clone();
        // Pages that others decompress are read through the reader of the session, which looks at their headers before.
        let local_of = |column: &FileColumn, read: &Read| {
            let compression = group.column(column.leaf).compression();
            let is_checked = matches!(read, Read::Pages(_)) && makes_checked_room(compression);
            local.as_ref().filter(|_| is_checked)
        };
        let columns = self.columns.wanted.iter().zip(&readers);
        let others =
            columns.filter(|(column, read)| local_of(column, read).is_none()).map(|(column, _)| column);
        let others: Vec<FileColumn> = others.cloned().collect();
        let chunks = self.parts_of(&part, &others, runtime)?;
        let projection = self.columns.projection(&metadata, &readers);
        let arrow = projection.map(|projection| self.arrow_reader(&part, projection, &chunks)).transpose()?;
        let chunks = Arc::new(chunks);
        let descriptions = metadata.file_metadata().schema_descr();
        let columns = self.columns.wanted.iter().zip(readers).map(|(column, read)| match read {
            Read::Pages(values) => {
                let described = descriptions.column(column.leaf);
                let locations = pages_of(&metadata, &part, column).cloned();
                let memory = self.memory.clone();
                let from = local_of(column, &read).unwrap_or(&chunks);
                Pages::new((group, column.leaf), Arc::clone(from), locations, memory)
                    .map(|pages| PageColumn::new(described, values, pages, rows))
                    .map(|pages| ColumnReader::Pages(Box::new(pages)))
                    .map_err(|what| format!("a damaged file: column {}: {what}", column.name))
            }
            Read::Arrow(place) => Ok(ColumnReader::Arrow(place)),
        });
        let columns = columns.collect::<Result<_, String>>()?;
        Ok(RowGroup::new(arrow, columns, (rows, part.rows)))
    }

    /// Reads the bytes of some columns of a row group at once.
    fn parts_of(&mut self, part: &Part, columns: &[FileColumn], runtime: &Handle) -> Result<Chunks, String> {
        let group = self.metadata.row_group(part.group);
        let mut ranges = Vec::new();
        for column in columns {
            let (start, length) = group.column(column.leaf).byte_range();
            match (&part.rows, pages_of(&self.metadata, part, column)) {
                (Some(rows), Some(pages)) => {
                    let first = pages.first().and_then(|page| u64::try_from(page.offset).ok());
                    // What comes before the first page is the dictionary.
                    ranges.extend(first.filter(|first| *first > start).map(|first| start..first));
                    ranges.extend(rows.scan_ranges(pages));
                }
                _ => ranges.push(start..start.saturating_add(length)),
            }
        }
        if ranges.is_empty() {
            return Ok(Chunks::Parts(FileParts::new(self.file.object_meta.size, &[], Vec::new())));
        }
        let parts = runtime
            .block_on(self.bytes.get_byte_ranges(ranges.clone()))
            .map_err(|error| error.to_string())?;
        Ok(Chunks::Parts(FileParts::new(self.file.object_meta.size, &ranges, parts)))
    }

    /// Arrow's reader of some columns of a row group.
    fn arrow_reader(
        &mut self,
        part: &Part,
        projection: ProjectionMask,
        chunks: &Chunks,
    ) -> Result<ParquetRecordBatchReader, String> {
        let forms = match self.forms.take() {
            Some(forms) => forms,
            None => {
                let options = ArrowReaderOptions::new().with_schema(self.columns.schema());
                ArrowReaderMetadata::try_new(Arc::clone(&self.metadata), options)
                    .map_err(|error| error.to_string())?
            }
        };
        self.forms = Some(forms.clone());
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(chunks.clone(), forms)
            .with_batch_size(BATCH_ROWS)
            .with_row_groups(vec![part.group])
            .with_projection(projection);
        if let Some(rows) = &part.rows {
            builder = builder.with_row_selection(rows.clone());
        }
        builder.build().map_err(|error| error.to_string())
    }

    /// The columns that are wanted, with the values of the file's folders.
    fn with_all_columns(
        &self,
        rows: usize,
        read: &[ArrayRef],
        columns: &[Origin],
    ) -> Result<RecordBatch, String> {
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for origin in columns {
            let (name, array) = match origin {
                Origin::File(at) => self.column(read, *at)?,
                Origin::Folder(at) => {
                    let value = self.file.partition_values.get(*at).ok_or("a folder has no value")?;
                    let array = value.to_array_of_size(rows);
                    (String::new(), array.map_err(|error| error.strip_backtrace())?)
                }
            };
            fields.push(Field::new(name, array.data_type().clone(), true));
            arrays.push(array);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
            .map_err(|error| error.to_string())
    }

    /// One of the columns that stand in the file, with its name.
    fn column(&self, read: &[ArrayRef], at: usize) -> Result<(String, ArrayRef), String> {
        let missing = || "a column was not read".to_string();
        let name = self.columns.wanted.get(at).ok_or_else(missing)?.name.clone();
        let array = Arc::clone(read.get(at).ok_or_else(missing)?);
        Ok((name, array))
    }
}

/// Where the pages of a column stand. It is of use only where some are left out.
fn pages_of<'m>(
    metadata: &'m ParquetMetaData,
    part: &Part,
    column: &FileColumn,
) -> Option<&'m Vec<PageLocation>> {
    let index = metadata.offset_index()?.get(part.group).filter(|_| part.rows.is_some())?;
    Some(index.get(column.leaf)?.page_locations()).filter(|pages| !pages.is_empty())
}

/// The rows that are wanted of each row group that has any.
fn parts(metadata: &ParquetMetaData, mut selection: Option<RowSelection>) -> Result<VecDeque<Part>, String> {
    let mut parts = VecDeque::new();
    for (group, about) in metadata.row_groups().iter().enumerate() {
        let all = usize::try_from(about.num_rows()).map_err(|_| "a row group has fewer than no rows")?;
        let rows = selection.as_mut().map(|rest| rest.split_off(all));
        if all > 0 && rows.as_ref().is_none_or(RowSelection::selects_any) {
            parts.push_back(Part { group, rows: rows.filter(|rows| rows.row_count() < all) });
        }
    }
    Ok(parts)
}
