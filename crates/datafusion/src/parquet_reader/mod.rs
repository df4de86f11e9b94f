//! Rows of Parquet files, in the forms from which the engine stores columns most cheaply.
//!
//! DataFusion's reader hands on what a table's types say: each row has its text, and a decimal has 128 bits. The engine makes
//! codes of texts and narrow integers of decimals, so that much of what is decoded is undone. Read here, texts whose pages refer to a
//! dictionary come as that dictionary and the places of its rows in it, and what is an integer inside comes as integers that are as narrow
//! as a row group's dictionary allows (`pages`). Where a file's columns must be adapted to the table's, DataFusion's reader does that.
//!
//! Bytes that were read of a file, and those that were decompressed, lie in memory that was used for others before (`recycled`).

mod chunks;
mod compressed;
mod encoded;
mod forms;
mod integers;
mod opened;
mod packed;
mod pages;
mod recycled;
mod row_group;
mod texts;

use std::collections::HashSet;
use std::io;
use std::slice;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileSource, ParquetFileReaderFactory, ParquetSource};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use tokio::runtime::Handle;

use self::chunks::LocalFile;
pub(crate) use self::encoded::EncodedFiles;
use self::forms::FileColumns;
use self::opened::OpenedFile;
use self::recycled::Recycled;
use crate::parts::footer_of;

/// Columns of a table's Parquet files that are read in the cheapest form.
#[derive(Debug)]
pub(crate) struct ParquetRows {
    readers: Arc<dyn ParquetFileReaderFactory>,
    metrics: ExecutionPlanMetricsSet,
    /// In the order in which they are wanted.
    columns: Vec<Origin>,
    /// Those that stand in files.
    in_files: Vec<FieldRef>,
    /// Whether the files are on this machine.
    are_local: bool,
}

/// Where a column comes from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    /// From files: which of those that do.
    File(usize),
    /// From the names of their folders: which of their values.
    Folder(usize),
}

impl ParquetRows {
    /// Some columns of a scan's files; `None` where DataFusion's reader has to adapt them, or a footer is not at hand.
    pub(crate) fn new(
        source: &ParquetSource,
        groups: &[FileGroup],
        columns: &[usize],
        (footers, are_local): (&FileMetadataCache, bool),
    ) -> Option<ParquetRows> {
        let readers = Arc::clone(source.parquet_file_reader_factory()?);
        let fields = source.table_schema().file_schema().fields();
        let mut in_files = Vec::new();
        let mut origin = |column: usize| match fields.get(column) {
            Some(field) => {
                in_files.push(Arc::clone(field));
                Origin::File(in_files.len() - 1)
            }
            None => Origin::Folder(column - fields.len()),
        };
        let columns: Vec<_> = columns.iter().map(|column| origin(*column)).collect();
        // Without a column there is nothing to decode.
        if in_files.is_empty() {
            return None;
        }
        let mut seen = HashSet::new();
        for file in groups.iter().flat_map(FileGroup::iter) {
            if file.range.is_some() {
                return None;
            }
            if seen.insert(&file.object_meta.location) {
                FileColumns::find(&*footer_of(file, footers)?, &in_files)?;
            }
        }
        Some(ParquetRows { readers, metrics: ExecutionPlanMetricsSet::new(), columns, in_files, are_local })
    }

    /// The rows of some files in order, read on a runtime.
    pub(crate) fn read<'a>(
        &'a self,
        partition: usize,
        files: &'a FileGroup,
        runtime: &'a Handle,
    ) -> PartitionRows<'a> {
        let (files, memory) = (files.files().iter(), Recycled::default());
        PartitionRows { rows: self, partition, files, runtime, memory, opened: None }
    }
}

/// The rows of a partition, or why they cannot be read.
pub(crate) struct PartitionRows<'a> {
    rows: &'a ParquetRows,
    partition: usize,
    files: slice::Iter<'a, PartitionedFile>,
    runtime: &'a Handle,
    memory: Recycled,
    opened: Option<OpenedFile<'a>>,
}

impl Iterator for PartitionRows<'_> {
    type Item = Result<RecordBatch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(file) = &mut self.opened {
                match file.next_batch(&self.rows.columns, self.runtime) {
                    Ok(None) => self.opened = None,
                    batch => return batch.transpose(),
                }
            }
            let file = self.files.next()?;
            match self.open(file) {
                Ok(file) => self.opened = Some(file),
                Err(what) => return Some(Err(what)),
            }
        }
    }
}

impl<'a> PartitionRows<'a> {
    fn open(&self, file: &'a PartitionedFile) -> Result<OpenedFile<'a>, String> {
        let ParquetRows { readers, metrics, in_files, are_local, .. } = self.rows;
        let reader = readers
            .create_reader(self.partition, file.clone(), None, metrics)
            .map_err(|error| error.strip_backtrace())?;
        let local = match are_local {
            true => Some(self.local(file).map_err(|error| error.to_string())?),
            false => None,
        };
        OpenedFile::new(file, reader, (local, self.memory.clone()), in_files, self.runtime)
    }

    fn local(&self, file: &PartitionedFile) -> io::Result<LocalFile> {
        let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location)?;
        LocalFile::open(&path, self.memory.clone())
    }
}
