//! Ranges of CSV files moved to where rows begin.

use std::path::Path;
use std::sync::LazyLock;

use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{CsvSource, FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::object_store::local::LocalFileSystem;

use crate::file_version::version_of;
use crate::row_starts::{ByteRange, Quoting, RowStarts};

/// Files that were looked through, by any session.
static ROWS: LazyLock<RowStarts> = LazyLock::new(RowStarts::default);

/// A scan whose ranges are of whole rows; nothing where they are, or cannot be.
pub(crate) fn of_whole_rows(config: &FileScanConfig) -> Option<FileScanConfig> {
    let csv = config.file_source().downcast_ref::<CsvSource>()?;
    let is_plain = csv.escape().is_none() && csv.comment().is_none() && csv.terminator().is_none();
    let is_local = config.object_store_url.as_str() == "file:///";
    let has_ranges = || config.file_groups.iter().flat_map(FileGroup::iter).any(|file| file.range.is_some());
    if !is_plain || !is_local || config.file_compression_type.is_compressed() || !has_ranges() {
        return None;
    }
    let quoting = Quoting { delimiter: csv.delimiter(), quote: csv.quote() };
    let store = LocalFileSystem::new();
    let mut groups = Vec::with_capacity(config.file_groups.len());
    for group in &config.file_groups {
        let mut files = Vec::with_capacity(group.len());
        for file in group.iter() {
            let path = store.path_to_filesystem(&file.object_meta.location).ok()?;
            files.extend(whole_rows(config, file, &path, quoting)?);
        }
        groups.push(FileGroup::new(files));
    }
    Some(FileScanConfigBuilder::from(config.clone()).with_file_groups(groups).build())
}

/// A file with the range of the rows that begin in its range, if any do. A file that cannot be read is an error when it is.
fn whole_rows(
    config: &FileScanConfig,
    file: &PartitionedFile,
    path: &Path,
    quoting: Quoting,
) -> Option<Option<PartitionedFile>> {
    let Some(range) = &file.range else { return Some(Some(file.clone())) };
    let meta = &file.object_meta;
    let state = format!("{} {}", meta.size, version_of(config, meta).unwrap_or_default());
    let (start, end) = (range.start.max(0) as u64, (range.end.max(0) as u64).min(meta.size));
    let range = ByteRange { size: meta.size, start, end };
    let (start, end) = ROWS.between(path, &state, range, Some(quoting)).ok()?;
    let range = FileRange { start: i64::try_from(start).ok()?, end: i64::try_from(end).ok()? };
    Some((start < end).then(|| PartitionedFile { range: Some(range), ..file.clone() }))
}
