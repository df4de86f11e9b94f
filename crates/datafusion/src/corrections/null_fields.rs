//! A struct that is NULL has no fields: they are NULL, too, wherever they are asked for.
//!
//! Arrow keeps something in the fields of such a struct. What DataFusion computes and reads of Parquet files is NULL there; Arrow files and
//! tables that programs give have any values, and `get_field` gives them. So the NULLs of structs are put into their fields as these are
//! read.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StructArray, make_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::arrow::error::ArrowError;

/// Whether rows of a schema have structs, or values with some in them.
pub(crate) fn any_structs(schema: &SchemaRef) -> bool {
    schema.fields().iter().any(|field| has_structs(field.data_type()))
}

fn has_structs(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) => true,
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field)
        | DataType::FixedSizeList(field, _) => has_structs(field.data_type()),
        // A map is a list of structs of keys and values, none of which is NULL.
        DataType::Map(entry, _) => match entry.data_type() {
            DataType::Struct(fields) => fields.iter().any(|field| has_structs(field.data_type())),
            _ => false,
        },
        DataType::Dictionary(_, values) => has_structs(values),
        DataType::RunEndEncoded(_, values) => has_structs(values.data_type()),
        _ => false,
    }
}

/// A batch whose structs are NULL in their fields as well.
pub fn with_null_fields(batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
    if !any_structs(batch.schema_ref()) {
        return Ok(batch);
    }
    let columns = batch.columns().iter().map(mended).collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(batch.schema(), columns, &rows)
}

/// The array with the NULLs of structs in their fields; the same array where they are there.
fn mended(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if !has_structs(array.data_type()) {
        return Ok(Arc::clone(array));
    }
    if let DataType::Struct(fields) = array.data_type() {
        let whole = array.as_struct();
        let field = |column: &ArrayRef| mended(&covered(column, whole.nulls())?);
        let columns = whole.columns().iter().map(field).collect::<Result<Vec<_>, _>>()?;
        if whole.columns().iter().zip(&columns).all(|(old, new)| Arc::ptr_eq(old, new)) {
            return Ok(Arc::clone(array));
        }
        let nulls = whole.nulls().cloned();
        return Ok(Arc::new(StructArray::try_new_with_length(fields.clone(), columns, nulls, whole.len())?));
    }
    let data = array.to_data();
    let parts: Vec<ArrayRef> = data.child_data().iter().cloned().map(make_array).collect();
    let made = parts.iter().map(mended).collect::<Result<Vec<_>, _>>()?;
    if parts.iter().zip(&made).all(|(old, new)| Arc::ptr_eq(old, new)) {
        return Ok(Arc::clone(array));
    }
    let made = made.iter().map(|part| part.to_data()).collect();
    Ok(make_array(data.into_builder().child_data(made).build()?))
}

/// A field of a struct with the NULLs of the struct.
fn covered(field: &ArrayRef, of_struct: Option<&NullBuffer>) -> Result<ArrayRef, ArrowError> {
    // These have no NULLs of their own.
    let is_without =
        matches!(field.data_type(), DataType::Null | DataType::Union(..) | DataType::RunEndEncoded(..));
    let Some(of_struct) = of_struct.filter(|nulls| nulls.null_count() > 0 && !is_without) else {
        return Ok(Arc::clone(field));
    };
    let nulls = NullBuffer::union(Some(of_struct), field.nulls());
    if nulls.as_ref().map_or(0, NullBuffer::null_count) == field.null_count() {
        return Ok(Arc::clone(field));
    }
    Ok(make_array(field.to_data().into_builder().nulls(nulls).build()?))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, ListArray};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::datatypes::{Field, Int64Type};

    use super::*;

    /// Structs of a number, of which the second is NULL though its number is not.
    fn structs() -> ArrayRef {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), Some(2), None]));
        let fields = vec![Field::new("a", DataType::Int64, true)].into();
        let nulls = NullBuffer::from(vec![true, false, true]);
        Arc::new(StructArray::new(fields, vec![numbers], Some(nulls)))
    }

    fn numbers(structs: &ArrayRef) -> Vec<Option<i64>> {
        structs.as_struct().column(0).as_primitive::<Int64Type>().iter().collect()
    }

    #[test]
    fn fields_of_what_is_null_are_null() -> Result<(), ArrowError> {
        let made = mended(&structs())?;
        assert_eq!(numbers(&made), [Some(1), None, None]);
        assert_eq!(made.null_count(), 1);
        assert!(Arc::ptr_eq(&made, &mended(&made)?), "what is as it should be is not copied");
        Ok(())
    }

    #[test]
    fn structs_in_other_values_are_found() -> Result<(), ArrowError> {
        let fields = vec![Field::new("st", structs().data_type().clone(), true)].into();
        let nulls = NullBuffer::from(vec![false, true, true]);
        let around: ArrayRef = Arc::new(StructArray::new(fields, vec![structs()], Some(nulls)));
        assert_eq!(numbers(mended(&around)?.as_struct().column(0)), [None, None, None]);
        let element = Arc::new(Field::new("item", structs().data_type().clone(), true));
        let lists = ListArray::new(element, OffsetBuffer::from_lengths([2, 1]), structs(), None);
        let lists = mended(&(Arc::new(lists) as ArrayRef))?;
        assert_eq!(numbers(lists.as_list::<i32>().values()), [Some(1), None, None]);
        Ok(())
    }
}
