//! What Parquet files say of themselves, as tables: `parquet_metadata('x.parquet')` has a row for each column of a row group,
//! `parquet_schema('x.parquet')` one for each column of a file, and for what these are parts of.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::catalog::TableProvider;
use datafusion::datasource::MemTable;
use datafusion::error::Result;
use datafusion::parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use datafusion::parquet::arrow::parquet_to_arrow_schema;
use datafusion::parquet::basic::ConvertedType;
use datafusion::parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use datafusion::parquet::schema::types::Type;

use super::error::{at, in_metadata};
use super::source::{DataFile, Source};
use crate::checked_files::check_parquet;

/// What is shown of the footers of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Metadata,
    Schema,
}

/// A value of such a table.
enum Cell {
    Text(Option<String>),
    Number(Option<i64>),
}

const METADATA: [&str; 23] = [
    "file_name", "row_group_id", "row_group_num_rows", "row_group_num_columns", "row_group_bytes",
    "column_id", "file_offset", "num_values", "path_in_schema", "type", "stats_min", "stats_max",
    "stats_null_count", "stats_distinct_count", "stats_min_value", "stats_max_value", "compression",
    "encodings", "index_page_offset", "dictionary_page_offset", "data_page_offset", "total_compressed_size",
    "total_uncompressed_size",
];

const SCHEMA: [&str; 11] = [
    "file_name", "name", "type", "type_length", "repetition_type", "num_children", "converted_type", "scale",
    "precision", "field_id", "logical_type",
];

/// Those that are texts; others are numbers.
const TEXTS: [&str; 14] = [
    "file_name", "path_in_schema", "type", "stats_min", "stats_max", "stats_min_value", "stats_max_value",
    "compression", "encodings", "name", "type_length", "repetition_type", "converted_type", "logical_type",
];

/// The table of some files.
pub(super) fn table(source: &Source, shown: Shown) -> Result<Arc<dyn TableProvider>> {
    let files = source.files()?;
    check_parquet(files.iter().map(|file| file.path.as_path()))?;
    let mut rows = Vec::new();
    for file in &files {
        let metadata = metadata_of(&file.path)?;
        let name = name_of(source, file);
        match shown {
            Shown::Metadata => chunks(&name, &metadata, &mut rows),
            Shown::Schema => parts(&name, metadata.file_metadata().schema(), &mut rows),
        }
    }
    let names: &[&str] = if shown == Shown::Metadata { &METADATA } else { &SCHEMA };
    let schema = schema_of(names);
    let mut columns: Vec<Vec<Cell>> = names.iter().map(|_| Vec::with_capacity(rows.len())).collect();
    for row in rows {
        columns.iter_mut().zip(row).for_each(|(column, cell)| column.push(cell));
    }
    let columns = columns.into_iter().zip(names).map(|(cells, name)| array(cells, TEXTS.contains(name)));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.collect())?;
    Ok(Arc::new(MemTable::try_new(schema, vec![vec![batch]])?))
}

fn schema_of(names: &[&str]) -> SchemaRef {
    let field = |name: &&str| {
        let data_type = if TEXTS.contains(name) { DataType::Utf8 } else { DataType::Int64 };
        Field::new(*name, data_type, true)
    };
    Arc::new(Schema::new(names.iter().map(field).collect::<Vec<_>>()))
}

fn array(cells: Vec<Cell>, is_text: bool) -> ArrayRef {
    let text = |cell| match cell {
        Cell::Text(text) => text,
        Cell::Number(number) => number.map(|number| number.to_string()),
    };
    let number = |cell| match cell {
        Cell::Number(number) => number,
        Cell::Text(_) => None,
    };
    match is_text {
        true => Arc::new(cells.into_iter().map(text).collect::<StringArray>()),
        false => Arc::new(cells.into_iter().map(number).collect::<Int64Array>()),
    }
}

fn metadata_of(path: &Path) -> Result<ParquetMetaData> {
    let file = File::open(path).map_err(|error| at(path, error))?;
    ParquetMetaDataReader::new().parse_and_finish(&file).map_err(|error| in_metadata(path, error.to_string()))
}

fn name_of(source: &Source, file: &DataFile) -> String {
    match source {
        Source::Chosen(chosen) => chosen.name_of(file),
        _ => file.path.display().to_string(),
    }
}

fn text(text: impl ToString) -> Cell {
    Cell::Text(Some(text.to_string()))
}

fn number(number: impl TryInto<i64>) -> Cell {
    Cell::Number(number.try_into().ok())
}

/// A row for each column of a row group.
fn chunks(name: &str, metadata: &ParquetMetaData, rows: &mut Vec<Vec<Cell>>) {
    for (place, group) in metadata.row_groups().iter().enumerate() {
        for (column, chunk) in group.columns().iter().enumerate() {
            let bounds = bounds_of(metadata, place, chunk);
            let bound = |bound: &Option<String>| Cell::Text(bound.clone());
            let statistics = chunk.statistics();
            let count = |count: Option<u64>| Cell::Number(count.and_then(|count| i64::try_from(count).ok()));
            let encodings: Vec<String> = chunk.encodings().map(|encoding| encoding.to_string()).collect();
            rows.push(vec![
                text(name),
                number(place),
                number(group.num_rows()),
                number(group.num_columns()),
                number(group.total_byte_size()),
                number(column),
                number(chunk.file_offset()),
                number(chunk.num_values()),
                text(chunk.column_path().parts().join(", ")),
                text(chunk.column_type()),
                bound(&bounds.least),
                bound(&bounds.greatest),
                count(statistics.and_then(|known| known.null_count_opt())),
                count(statistics.and_then(|known| known.distinct_count_opt())),
                bound(&bounds.least),
                bound(&bounds.greatest),
                text(chunk.compression()),
                text(encodings.join(", ")),
                Cell::Number(chunk.index_page_offset()),
                Cell::Number(chunk.dictionary_page_offset()),
                number(chunk.data_page_offset()),
                number(chunk.compressed_size()),
                number(chunk.uncompressed_size()),
            ]);
        }
    }
}

/// The bounds that a file says of a column, for people.
#[derive(Default)]
struct Bounds {
    least: Option<String>,
    greatest: Option<String>,
}

/// Bounds are of columns that are no parts of others; what cannot be told is not shown.
fn bounds_of(metadata: &ParquetMetaData, group: usize, chunk: &ColumnChunkMetaData) -> Bounds {
    let [name] = chunk.column_path().parts() else { return Bounds::default() };
    let of_file = metadata.file_metadata();
    let Ok(schema) = parquet_to_arrow_schema(of_file.schema_descr(), of_file.key_value_metadata()) else {
        return Bounds::default();
    };
    let Ok(converter) = StatisticsConverter::try_new(name, &schema, of_file.schema_descr()) else {
        return Bounds::default();
    };
    let group = || std::iter::once(metadata.row_group(group));
    let shown = |array: ArrayRef| {
        (!array.is_empty() && array.is_valid(0)).then(|| array_value_to_string(&array, 0).ok()).flatten()
    };
    Bounds {
        least: converter.row_group_mins(group()).ok().and_then(shown),
        greatest: converter.row_group_maxes(group()).ok().and_then(shown),
    }
}

/// A row for a type, and for each of its parts.
fn parts(name: &str, part: &Type, rows: &mut Vec<Vec<Cell>>) {
    let info = part.get_basic_info();
    let missing = || Cell::Text(None);
    let (physical, length, scale, precision) = match part {
        Type::PrimitiveType { physical_type, type_length, scale, precision, .. } => {
            (text(physical_type), *type_length, *scale, *precision)
        }
        Type::GroupType { .. } => (missing(), -1, -1, -1),
    };
    let children = if part.is_group() { part.get_fields() } else { &[] };
    let converted = info.converted_type();
    let at_least = |value: i32, least: i32| Cell::Number((value >= least).then_some(i64::from(value)));
    rows.push(vec![
        text(name),
        text(info.name()),
        physical,
        if length > 0 { text(length) } else { missing() },
        if info.has_repetition() { text(info.repetition()) } else { missing() },
        Cell::Number(part.is_group().then_some(children.len() as i64)),
        if converted == ConvertedType::NONE { missing() } else { text(converted) },
        at_least(scale, i32::from(converted != ConvertedType::DECIMAL)),
        at_least(precision, 1),
        Cell::Number(info.has_id().then(|| i64::from(info.id()))),
        info.logical_type_ref().map_or_else(missing, |logical| text(format!("{logical:?}"))),
    ]);
    children.iter().for_each(|child| parts(name, child, rows));
}
