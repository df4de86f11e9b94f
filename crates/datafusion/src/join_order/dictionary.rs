//! How many texts a Parquet column holds, from the length of its dictionaries.
//!
//! Parquet's statistics have no distinct counts, but a footer tells where a column chunk's dictionary page begins and ends:
//! its length divided by that of a text is about the number of texts. The footers are those that DataFusion has read for its
//! own statistics, so nothing is read again.

use std::sync::Arc;

use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// Row groups that are looked at.
const ROW_GROUPS: usize = 64;
/// Bytes of a page's header.
const HEADER_BYTES: f64 = 20.0;
/// A length stands before each text.
const LENGTH_BYTES: f64 = 4.0;
/// Bytes of a text where the footer does not tell.
const TEXT_BYTES: f64 = 12.0;
/// How much a compressed dictionary shrinks, and from how many bytes on.
const COMPRESSION: f64 = 2.0;
const COMPRESSIBLE_BYTES: f64 = 100.0;
/// A writer gives up a dictionary of about a megabyte: the texts are then as good as all distinct.
const FULL_BYTES: f64 = 500_000.0;

/// About how many texts a column of a scan's files holds; `None` where a footer is not at hand or has no dictionary.
pub(crate) fn distinct_texts(
    config: &FileScanConfig,
    cache: &FileMetadataCache,
    column: &str,
) -> Option<f64> {
    let (mut most, mut sum, mut row_groups, mut rows) = (0.0_f64, 0.0, 0, 0.0);
    for file in config.file_groups.iter().flat_map(FileGroup::iter) {
        let entry = cache.get(&file.object_meta.location)?;
        if !entry.is_valid_for(&file.object_meta) {
            return None;
        }
        let cached = entry.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>()?;
        let metadata: &Arc<ParquetMetaData> = cached.parquet_metadata();
        let columns = metadata.file_metadata().schema_descr().columns();
        let position = columns.iter().position(|c| c.path().parts() == [column])?;
        for row_group in metadata.row_groups() {
            let texts = texts_of(row_group.columns().get(position)?)?;
            most = most.max(texts);
            sum += texts;
            rows += row_group.num_rows() as f64;
            row_groups += 1;
            if row_groups == ROW_GROUPS {
                return Some(most);
            }
        }
    }
    // Row groups with few texts have the same ones; those with many have their own.
    let many = most * f64::from(row_groups as u32) > 0.5 * rows;
    (row_groups > 0).then_some(if many { sum } else { most })
}

fn texts_of(chunk: &ColumnChunkMetaData) -> Option<f64> {
    let values = chunk.num_values() as f64;
    let page_bytes = (chunk.data_page_offset() - chunk.dictionary_page_offset()?) as f64;
    if page_bytes >= FULL_BYTES {
        return Some(values);
    }
    let text_bytes = match chunk.unencoded_byte_array_data_bytes() {
        Some(bytes) => bytes as f64 / values.max(1.0),
        None => TEXT_BYTES,
    };
    let dictionary_bytes = (page_bytes - HEADER_BYTES).max(1.0);
    let plain = chunk.compression() == Compression::UNCOMPRESSED || dictionary_bytes < COMPRESSIBLE_BYTES;
    let shrunk = if plain { 1.0 } else { COMPRESSION };
    Some((shrunk * dictionary_bytes / (text_bytes + LENGTH_BYTES)).clamp(1.0, values.max(1.0)))
}
