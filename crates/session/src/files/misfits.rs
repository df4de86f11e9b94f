//! Finds the row that keeps a scan from being read.

use std::any::Any;
use std::fs::File;
use std::sync::Arc;

use datafusion::datasource::physical_plan::{CsvSource, FileScanConfig, FileSource};
use datafusion::object_store::local::LocalFileSystem;
use kelpie_datafusion::{ReaderSource, WantedColumns, whole_files};

use super::dialect::Dialect;
use super::misfit::{Misfit, ROWS_AT_ONCE, Scan};
use super::reader::LocalReader;

/// The first row, in the order of the files, that keeps a scan of text files from being read.
pub(crate) fn find(config: &FileScanConfig) -> Option<Misfit> {
    let source = config.file_source();
    if config.object_store_url.as_str() != "file:///" {
        return None;
    }
    let files = whole_files(&config.file_groups);
    if let Some(own) = source.downcast_ref::<ReaderSource>() {
        let reader: &dyn Any = own.reader().as_ref();
        let reader = reader.downcast_ref::<LocalReader>()?;
        let table = Arc::clone(FileSource::table_schema(own).file_schema());
        let wanted = WantedColumns { table, columns: own.columns().to_vec(), batch_size: ROWS_AT_ONCE };
        return files.iter().find_map(|file| reader.misfit(file, &wanted));
    }
    let csv = source.downcast_ref::<CsvSource>()?;
    let schema = Arc::clone(FileSource::table_schema(csv).file_schema());
    let all = || (0..schema.fields().len()).collect();
    let mut columns = source.projection().map_or_else(all, |projection| projection.column_indices());
    columns.retain(|column| *column < schema.fields().len());
    let dialect = Dialect {
        has_header: csv.has_header(),
        escape: csv.escape(),
        comment: csv.comment(),
        terminator: csv.terminator(),
        truncated_rows: csv.truncate_rows(),
        ..Dialect::plain(csv.delimiter(), csv.quote())
    };
    let scan = Scan { dialect: &dialect, schema: &schema, columns: &columns };
    let store = LocalFileSystem::new();
    files.iter().find_map(|file| {
        let path = store.path_to_filesystem(&file.object_meta.location).ok()?;
        let open = || config.file_compression_type.convert_read(File::open(&path).ok()?).ok();
        scan.find(&path, open)
    })
}
