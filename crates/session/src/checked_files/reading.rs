//! The headers of pages, held against the bytes of a column as these are read: of files that are too large to be gone through before.
//!
//! A reader makes room for what a header says. One that says more than can be in its bytes is an error that names the file, the column
//! and where the page stands; what is within a page a reader finds itself.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{ParquetFileReaderFactory, ParquetSource};
use datafusion::error::Result;
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::ParquetMetaData;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::pages::check_sizes;

/// A source whose readers look at the headers of pages before these are read.
pub(crate) fn with_checked_pages(parquet: ParquetSource) -> ParquetSource {
    match parquet.parquet_file_reader_factory().cloned() {
        Some(inner) => parquet.with_parquet_file_reader_factory(Arc::new(CheckedReaders(inner))),
        None => parquet,
    }
}

#[derive(Debug)]
struct CheckedReaders(Arc<dyn ParquetFileReaderFactory>);

impl ParquetFileReaderFactory for CheckedReaders {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let name = file.object_meta.location.to_string();
        let inner = self.0.create_reader(partition, file, hint, metrics)?;
        Ok(Box::new(CheckedReader { inner, name, metadata: None }))
    }
}

struct CheckedReader {
    inner: Box<dyn AsyncFileReader + Send>,
    /// The file's.
    name: String,
    metadata: Option<Arc<ParquetMetaData>>,
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
        let read = self.inner.get_byte_ranges(ranges);
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
