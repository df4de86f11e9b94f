//! Maps as JSON has them.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields, Schema};
use datafusion::arrow::error::ArrowError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

/// The same of all rows of a stream.
pub(crate) fn stream_with_text_keys(rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let fields: Fields = rows.schema().fields().iter().map(text_keys).collect();
    if fields == *rows.schema().fields() {
        return rows;
    }
    let rows = rows.map(|batch| Ok(with_text_keys(&batch?)?));
    Box::pin(RecordBatchStreamAdapter::new(Arc::new(Schema::new(fields)), rows))
}

/// Rows whose maps have texts as keys, since objects of JSON have no others.
pub fn with_text_keys(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let schema = batch.schema();
    let fields: Vec<FieldRef> = schema.fields().iter().map(text_keys).collect();
    let columns = batch.columns().iter().zip(&fields);
    let columns = columns.map(|(column, field)| match column.data_type() == field.data_type() {
        true => Ok(Arc::clone(column)),
        false => cast_with_options(column, field.data_type(), &strict),
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
}

/// A column with texts as keys of its maps, wherever these are.
fn text_keys(field: &FieldRef) -> FieldRef {
    let all = |fields: &Fields| fields.iter().map(text_keys).collect::<Fields>();
    let data_type = match field.data_type() {
        DataType::Map(entries, is_sorted) => {
            let DataType::Struct(fields) = entries.data_type() else { return Arc::clone(field) };
            let of_entries = fields.iter().enumerate().map(|(place, part)| match part.data_type() {
                DataType::Utf8 | DataType::LargeUtf8 => text_keys(part),
                _ if place == 0 => Arc::new(part.as_ref().clone().with_data_type(DataType::Utf8)),
                _ => text_keys(part),
            });
            let entries = entries.as_ref().clone().with_data_type(DataType::Struct(of_entries.collect()));
            DataType::Map(Arc::new(entries), *is_sorted)
        }
        DataType::Struct(fields) => DataType::Struct(all(fields)),
        DataType::List(element) => DataType::List(text_keys(element)),
        DataType::LargeList(element) => DataType::LargeList(text_keys(element)),
        DataType::FixedSizeList(element, length) => DataType::FixedSizeList(text_keys(element), *length),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float64Builder, Int64Builder, MapBuilder, StructArray};
    use datafusion::arrow::datatypes::Field;
    use datafusion::arrow::util::display::array_value_to_string;

    #[test]
    fn keys_of_maps_become_texts_wherever_they_are() {
        let mut maps = MapBuilder::new(None, Int64Builder::new(), Float64Builder::new());
        maps.keys().append_slice(&[1, -2]);
        maps.values().append_value(0.5);
        maps.values().append_null();
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        maps.append(true).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        let fields = vec![(Arc::new(Field::new("m", maps.data_type().clone(), true)), Arc::clone(&maps))];
        let nested: ArrayRef = Arc::new(StructArray::from(fields));
        let batch = RecordBatch::try_from_iter([("m", Arc::clone(&maps)), ("s", nested)]).unwrap();
        let texts = with_text_keys(&batch).unwrap();
        for (column, field) in texts.columns().iter().zip(texts.schema().fields()) {
            assert_eq!(*text_keys(field), **field);
            let before = batch.column_by_name(field.name()).unwrap();
            for row in 0..3 {
                let shown = |array: &ArrayRef| array_value_to_string(array, row).unwrap();
                assert_eq!(shown(column), shown(before));
            }
        }
        assert_ne!(texts.column(0).data_type(), maps.data_type());
        assert_eq!(with_text_keys(&texts).unwrap(), texts);
    }
}
