//! Rows as files can have them: what they are partitioned by as the names of folders say it, and what CSV has no form for as text.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::exec_err;
use datafusion::datasource::file_format::csv::CsvSink;
use datafusion::datasource::file_format::json::JsonSink;
use datafusion::datasource::file_format::parquet::ParquetSink;
use datafusion::datasource::physical_plan::{FileSink, FileSinkConfig};
use datafusion::datasource::sink::DataSink;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use crate::files::FOLDER_OF_NULL;
use crate::text_keys::stream_with_text_keys;

/// What becomes of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    AsItIs,
    /// What a folder is named by. DataFusion names it by whatever an array has where it is NULL: 0, or an empty text.
    Folder,
    /// A nested value.
    Text,
}

/// The rows that a sink gets.
pub(super) fn as_written(sink: &dyn DataSink, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let rows = if sink.is::<JsonSink>() { stream_with_text_keys(rows) } else { rows };
    let schema = rows.schema();
    let forms: Vec<Form> = schema.fields().iter().map(|field| form(sink, field)).collect();
    if forms.iter().all(|form| *form == Form::AsItIs) {
        return rows;
    }
    let fields = schema.fields().iter().zip(&forms).map(|(field, form)| match form {
        Form::AsItIs => Arc::clone(field),
        _ => text(field),
    });
    let changed: SchemaRef = Arc::new(Schema::new(fields.collect::<Fields>()));
    let of_batches = Arc::clone(&changed);
    let rows = rows.map(move |batch| {
        let batch = batch?;
        let columns = batch.columns().iter().zip(&forms).map(|(column, form)| match form {
            Form::AsItIs => Ok(Arc::clone(column)),
            Form::Folder => folders(column),
            Form::Text => texts(column),
        });
        let columns = columns.collect::<std::result::Result<Vec<_>, ArrowError>>()?;
        Ok(RecordBatch::try_new(Arc::clone(&of_batches), columns)?)
    });
    Box::pin(RecordBatchStreamAdapter::new(changed, rows))
}

/// A sink of CSV whose files have text where rows are nested: by its columns it writes the header of a file without rows.
pub(super) fn sink_of_texts(sink: &dyn DataSink) -> Option<CsvSink> {
    let csv = sink.downcast_ref::<CsvSink>()?;
    let mut config = csv.config().clone();
    let fields = config.output_schema.fields();
    if !fields.iter().any(|field| field.data_type().is_nested()) {
        return None;
    }
    let fields = fields.iter().map(|field| match field.data_type().is_nested() {
        true => text(field),
        false => Arc::clone(field),
    });
    config.output_schema = Arc::new(Schema::new(fields.collect::<Fields>()));
    Some(CsvSink::new(config, csv.writer_options().clone()))
}

fn form(sink: &dyn DataSink, field: &Field) -> Form {
    let is_folder = |config: &FileSinkConfig| {
        !config.keep_partition_by_columns
            && config.table_partition_cols.iter().any(|(name, _)| name == field.name())
    };
    match config(sink).is_some_and(is_folder) {
        true => Form::Folder,
        false if sink.is::<CsvSink>() && field.data_type().is_nested() => Form::Text,
        false => Form::AsItIs,
    }
}

/// Where a sink writes. That of Arrow files does not say.
fn config(sink: &dyn DataSink) -> Option<&FileSinkConfig> {
    let parquet = sink.downcast_ref::<ParquetSink>().map(FileSink::config);
    let csv = || sink.downcast_ref::<CsvSink>().map(FileSink::config);
    let json = || sink.downcast_ref::<JsonSink>().map(FileSink::config);
    parquet.or_else(csv).or_else(json)
}

/// The files that a sink's folder has and that are called as its own; nothing where it writes one file.
pub(super) fn files_there(sink: &dyn DataSink) -> Result<Vec<PathBuf>> {
    let Some(config) = config(sink) else { return Ok(vec![]) };
    let folder = config.table_paths.first().and_then(|url| url.get_url().to_file_path().ok());
    let Some(folder) = folder else {
        return exec_err!(
            "OVERWRITE replaces the files of a local folder, and {} is none",
            config.original_url
        );
    };
    let mut found = Vec::new();
    if folder.is_dir() {
        let ending = format!(".{}", config.file_extension.trim_start_matches('.'));
        add_files(&folder, &ending, &mut found)
            .map_err(|error| DataFusionError::Execution(format!("{}: {error}", folder.display())))?;
    }
    Ok(found)
}

fn add_files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // What a link leads to is not the folder's.
        let kind = entry.file_type()?;
        if kind.is_dir() {
            add_files(&entry.path(), ending, found)?;
        } else if kind.is_file() && entry.file_name().to_string_lossy().ends_with(ending) {
            found.push(entry.path());
        }
    }
    Ok(())
}

fn text(field: &FieldRef) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8))
}

/// Values as the names of folders have them.
fn folders(column: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let written = cast_with_options(column, &DataType::Utf8, &strict)?;
    if written.null_count() == 0 {
        return Ok(written);
    }
    let names = written.as_string::<i32>().iter().map(|name| Some(name.unwrap_or(FOLDER_OF_NULL)));
    Ok(Arc::new(names.collect::<StringArray>()))
}

/// Nested values as they are shown.
fn texts(column: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let options = FormatOptions::default().with_null("NULL");
    let shown = ArrayFormatter::try_new(column.as_ref(), &options)?;
    let texts = (0..column.len()).map(|row| match column.is_null(row) {
        true => Ok(None),
        false => shown.value(row).try_to_string().map(Some),
    });
    Ok(Arc::new(texts.collect::<std::result::Result<StringArray, ArrowError>>()?))
}
