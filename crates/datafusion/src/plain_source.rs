//! A scan's source as tables are read: without what the plan's scan leaves out.

use std::sync::Arc;

use datafusion::common::config::CsvOptions;
use datafusion::datasource::physical_plan::{ArrowSource, CsvSource, FileSource, ParquetSource};
use datafusion::physical_expr::utils::conjunction_opt;

use crate::derived::Derived;
use crate::reader_source::ReaderSource;
use crate::row_group_pruning::conditions_on_bounds;
use crate::source::ScanTable;

/// The source without projection and predicate, and what of its format decides the values read.
pub(crate) fn plain_source(source: &Arc<dyn FileSource>) -> Result<(Arc<dyn FileSource>, String), String> {
    let schema = source.table_schema().clone();
    if let Some(parquet) = source.downcast_ref::<ParquetSource>() {
        let mut options = parquet.table_parquet_options().clone();
        options.global.pushdown_filters = false;
        let mut plain = ParquetSource::new(schema);
        if let Some(hint) = options.global.metadata_size_hint {
            plain = plain.with_metadata_size_hint(hint);
        }
        plain = plain.with_table_parquet_options(options);
        if let Some(factory) = parquet.parquet_file_reader_factory() {
            plain = plain.with_parquet_file_reader_factory(Arc::clone(factory));
        }
        Ok((Arc::new(plain), "parquet".into()))
    } else if let Some(csv) = source.downcast_ref::<CsvSource>() {
        let options = CsvOptions {
            has_header: Some(csv.has_header()),
            delimiter: csv.delimiter(),
            quote: csv.quote(),
            terminator: csv.terminator(),
            escape: csv.escape(),
            comment: csv.comment(),
            newlines_in_values: Some(csv.newlines_in_values()),
            truncated_rows: Some(csv.truncate_rows()),
            ..CsvOptions::default()
        };
        let format = format!("csv {options:?}");
        Ok((Arc::new(CsvSource::new(schema).with_csv_options(options)), format))
    } else if source.is::<ArrowSource>() {
        let plain = match source.file_type() {
            "arrow_stream" => ArrowSource::new_stream_file_source(schema),
            _ => ArrowSource::new_file_source(schema),
        };
        Ok((Arc::new(plain), source.file_type().into()))
    } else if let Some(own) = source.downcast_ref::<ReaderSource>() {
        let reader = own.reader();
        let format = format!("{} {}", reader.file_type(), reader.identity());
        Ok((Arc::new(ReaderSource::new(Arc::clone(reader), schema)), format))
    } else {
        Err(format!("files of format {} are not compiled", source.file_type()))
    }
}

/// The source, leaving out what a narrowed table has no row of as far as its format tells. Where few rows are left, columns that the
/// conditions do not look at are decoded for these alone.
pub(crate) fn pruned_source(source: &Arc<dyn FileSource>, table: &ScanTable) -> Arc<dyn FileSource> {
    let Some(parquet) = source.downcast_ref::<ParquetSource>() else { return Arc::clone(source) };
    let on_bounds = conditions_on_bounds(table.conditions().iter().map(Derived::expr), table.stored());
    let mut parquet = parquet.clone();
    let float = table.selection().and_then(|selection| selection.float_bound());
    if float.is_some() {
        // NaN hides behind the bounds of floats: they leave out nothing.
        let mut options = parquet.table_parquet_options().clone();
        (options.global.pruning, options.global.enable_page_index) = (false, false);
        parquet = parquet.with_table_parquet_options(options);
    }
    match conjunction_opt(on_bounds.into_iter().chain(float.cloned())) {
        Some(condition) => {
            let parquet = parquet.with_predicate(condition);
            Arc::new(parquet.with_pushdown_filters(table.selection().is_some()))
        }
        None => Arc::clone(source),
    }
}
