//! The headers of pages, held against the bytes of a column as these are read: of files that are too large to be gone through before.
//!
//! A reader makes room for what a header says. One that says more than can be in its bytes is an error that names the file, the column
//! and where the page stands; what is within a page a reader finds itself.
//!
//! Columns of local files are read here, too: into memory that nobody has cleared before, on huge pages.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileReaderFactory, ParquetSource};
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::object_store::local::LocalFileSystem;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder};
use futures::FutureExt;
use futures::future::BoxFuture;
use kelpie_engine::prefer_huge_pages;

use super::pages::check_sizes;

/// A source whose readers look at the headers of pages before these are read, of files in a store.
pub(crate) fn with_checked_pages(parquet: ParquetSource, store: &ObjectStoreUrl) -> ParquetSource {
    let is_local = *store == ObjectStoreUrl::local_filesystem();
    match parquet.parquet_file_reader_factory().cloned() {
        Some(inner) => {
            let checked = CheckedReaders { inner, is_local };
            parquet.with_parquet_file_reader_factory(Arc::new(checked))
        }
        None => parquet,
    }
}

#[derive(Debug)]
struct CheckedReaders {
    inner: Arc<dyn ParquetFileReaderFactory>,
    is_local: bool,
}

impl ParquetFileReaderFactory for CheckedReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let name = file.object_meta.location.to_string();
        let local = self.is_local.then(|| local_path(&file)).flatten().map(|path| LocalFile {
            path,
            scanned: MetricBuilder::new(metrics)
                .with_new_label("filename", name.clone())
                .counter("bytes_scanned", partition),
        });
        let inner = self.inner.create_reader(partition, file, hint, metrics)?;
        Ok(Box::new(CheckedReader { inner, name, metadata: None, local }))
    }
}

/// Where a file is, if it is one of this machine as its description says.
fn local_path(file: &PartitionedFile) -> Option<PathBuf> {
    let path = LocalFileSystem::new().path_to_filesystem(&file.object_meta.location).ok()?;
    let bytes = path.metadata().ok()?.len();
    (bytes == file.object_meta.size).then_some(path)
}

/// A file of this machine.
struct LocalFile {
    path: PathBuf,
    /// Bytes that were read, as DataFusion counts them.
    scanned: Count,
}

impl LocalFile {
    async fn read(&self, ranges: Vec<Range<u64>>) -> ParquetResult<Vec<Bytes>> {
        let path = self.path.clone();
        let reading = tokio::task::spawn_blocking(move || read_parts(&path, &ranges));
        let parts = reading.await.map_err(|error| ParquetError::External(error.into()))?;
        let parts =
            parts.map_err(|error| ParquetError::General(format!("{}: {error}", self.path.display())))?;
        self.scanned.add(parts.iter().map(Bytes::len).sum());
        Ok(parts)
    }
}

/// Parts of a file.
fn read_parts(path: &Path, ranges: &[Range<u64>]) -> io::Result<Vec<Bytes>> {
    let mut file = File::open(path)?;
    let parts = ranges.iter().map(|range| {
        let length = range.end.saturating_sub(range.start);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(length).map_err(io::Error::other)?)?;
        prefer_huge_pages(&mut bytes);
        file.seek(SeekFrom::Start(range.start))?;
        let read = (&mut file).take(length).read_to_end(&mut bytes)? as u64;
        match read < length {
            true => {
                let what = format!("{read} bytes from {} on where {length} are expected", range.start);
                Err(io::Error::new(ErrorKind::UnexpectedEof, what))
            }
            false => Ok(bytes.into()),
        }
    });
    parts.collect()
}

struct CheckedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    /// The file's.
    name: String,
    metadata: Option<Arc<ParquetMetaData>>,
    local: Option<LocalFile>,
}

/// The column whose bytes stand at a place.
fn column_at(metadata: Option<&ParquetMetaData>, at: u64) -> String {
    let groups = metadata.into_iter().flat_map(ParquetMetaData::row_groups);
    let found = groups.flat_map(|group| group.columns()).find(|column| {
        let (start, length) = column.byte_range();
        (start..start.saturating_add(length)).contains(&at)
    });
    found.map_or("unknown".into(), |column| column.column_path().string())
}

impl AsyncFileReader for CheckedReader {
    // Footers, indexes and Bloom filters.
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<Bytes>> {
        self.inner.get_bytes(range)
    }

    // Whole columns, or pages of them.
    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<Bytes>>> {
        let starts: Vec<u64> = ranges.iter().map(|range| range.start).collect();
        let read = match &self.local {
            Some(local) => local.read(ranges).boxed(),
            None => self.inner.get_byte_ranges(ranges),
        };
        let (name, metadata) = (self.name.as_str(), self.metadata.as_deref());
        async move {
            let parts = read.await?;
            for (part, start) in parts.iter().zip(starts) {
                check_sizes(part).map_err(|(at, what)| {
                    let at = start.saturating_add(at as u64);
                    let column = column_at(metadata, start);
                    ParquetError::General(format!(
                        "{name}: a damaged Parquet file: column {column}: a page at {at} {what}"
                    ))
                })?;
            }
            Ok(parts)
        }
        .boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        async move {
            let metadata = self.inner.get_metadata(options).await?;
            self.metadata = Some(Arc::clone(&metadata));
            Ok(metadata)
        }
        .boxed()
    }
}
