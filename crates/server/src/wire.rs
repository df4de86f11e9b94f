//! Rows in the types that clients of Flight SQL take.
//!
//! Texts and bytes by views and dictionaries are plain ones here: few drivers know the former, and Arrow writes whole dictionaries and
//! the whole buffers of views with each part of a batch.

use std::sync::Arc;

use arrow_flight::{IpcMessage, SchemaAsIpc};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::ipc::writer::IpcWriteOptions;
use prost::bytes::Bytes;
use tonic::Status;

/// Rows that are cast at once: texts of a part have less than 2 GB.
const ROWS: usize = 1 << 16;

/// The columns that a client sees.
pub(crate) fn schema(own: &Schema) -> SchemaRef {
    let fields: Vec<FieldRef> = own.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, own.metadata().clone()))
}

fn plain(field: &FieldRef) -> FieldRef {
    match plain_type(field.data_type()) {
        Some(data_type) => Arc::new(field.as_ref().clone().with_data_type(data_type)),
        None => Arc::clone(field),
    }
}

/// The type in place of one; nothing where it stays.
fn plain_type(data_type: &DataType) -> Option<DataType> {
    let changed = match data_type {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::Dictionary(_, value) => plain_type(value).unwrap_or_else(|| value.as_ref().clone()),
        DataType::List(element) => DataType::List(plain(element)),
        DataType::LargeList(element) => DataType::LargeList(plain(element)),
        DataType::FixedSizeList(element, size) => DataType::FixedSizeList(plain(element), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        DataType::Map(entries, is_sorted) => DataType::Map(plain(entries), *is_sorted),
        _ => return None,
    };
    (changed != *data_type).then_some(changed)
}

/// A batch with the columns that a client sees, in parts.
pub(crate) fn parts(batch: &RecordBatch, schema: &SchemaRef) -> Vec<Result<RecordBatch, ArrowError>> {
    let is_same = |(column, field): (&Arc<dyn datafusion::arrow::array::Array>, &FieldRef)| {
        column.data_type() == field.data_type()
    };
    if batch.columns().iter().zip(schema.fields()).all(is_same) {
        return vec![with_schema(batch, schema)];
    }
    let starts = (0..batch.num_rows()).step_by(ROWS);
    starts.map(|start| cast(&batch.slice(start, ROWS.min(batch.num_rows() - start)), schema)).collect()
}

fn with_schema(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
}

fn cast(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_, _>>()?, &options)
}

/// Columns as the bytes of a schema.
pub(crate) fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let message = IpcMessage::try_from(SchemaAsIpc::new(schema, &IpcWriteOptions::default()));
    message
        .map(|message| message.0)
        .map_err(|error| Status::internal(format!("the columns cannot be sent: {error}")))
}

/// Columns without names of more than a place, for values.
pub(crate) fn parameter_schema(parameters: &[kelpie_session::Parameter]) -> Schema {
    let field = |parameter: &kelpie_session::Parameter| {
        let data_type = parameter.data_type.clone().unwrap_or(DataType::Null);
        Field::new(&parameter.name, plain_type(&data_type).unwrap_or(data_type), true)
    };
    Schema::new(parameters.iter().map(field).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{ArrayRef, AsArray, DictionaryArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn views_and_dictionaries_are_plain_texts_within_other_types_too() {
        let view = Field::new("element", DataType::Utf8View, true);
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8View));
        let own = Schema::new(vec![
            Field::new("a", DataType::Utf8View, false),
            Field::new("b", dictionary, true),
            Field::new("c", DataType::new_list(DataType::Utf8View, true), true),
            Field::new("d", DataType::Struct(vec![view].into()), true),
            Field::new("e", DataType::Int64, true),
        ]);
        let seen = schema(&own);
        let types: Vec<String> = seen.fields().iter().map(|field| field.data_type().to_string()).collect();
        assert!(types.iter().all(|name| !name.contains("View") && !name.contains("Dictionary")), "{types:?}");
        assert_eq!(types[4], "Int64");
        assert!(!seen.field(0).is_nullable());
    }

    #[test]
    fn rows_stay_as_they_are_in_parts() {
        let rows = ROWS + 3;
        let texts: Vec<Option<String>> =
            (0..rows).map(|row| (row % 3 > 0).then(|| format!("ä{row}"))).collect();
        let view: ArrayRef = Arc::new(StringViewArray::from_iter(texts.iter().map(Option::as_deref)));
        let dictionary: DictionaryArray<Int32Type> = texts.iter().map(Option::as_deref).collect();
        let batch = RecordBatch::try_from_iter_with_nullable([
            ("v", view, true),
            ("d", Arc::new(dictionary) as ArrayRef, true),
        ]);
        let batch = batch.unwrap();
        let schema = schema(&batch.schema());
        let parts: Vec<RecordBatch> = parts(&batch, &schema).into_iter().map(Result::unwrap).collect();
        assert_eq!(parts.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [ROWS, 3]);
        for column in 0..2 {
            let found: Vec<Option<String>> = parts
                .iter()
                .flat_map(|part| {
                    part.column(column)
                        .as_string::<i32>()
                        .iter()
                        .map(|text| text.map(String::from))
                        .collect::<Vec<_>>()
                })
                .collect();
            assert_eq!(found, texts);
        }
        let empty = batch.slice(0, 0);
        assert!(super::parts(&empty, &schema).is_empty());
        let plain =
            RecordBatch::try_from_iter([("x", Arc::new(StringArray::from(vec!["a"])) as ArrayRef)]).unwrap();
        let seen = super::schema(&plain.schema());
        assert_eq!(super::parts(&plain, &seen).len(), 1);
    }
}
