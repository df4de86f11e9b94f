//! One JSON object a row and line.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::{Array, AsArray, PrimitiveArray, RecordBatch};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, FieldRef, Float16Type, Float32Type, Float64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::json::LineDelimitedWriter;
use datafusion::arrow::json::WriterBuilder;
use datafusion::arrow::json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, Writer, make_encoder,
};

use kelpie_session::with_text_keys;

use super::{Out, RowWriter};

/// Numbers that JSON does not have are the texts `"NaN"`, `"Infinity"` and `"-Infinity"`, as in PostgreSQL.
pub struct JsonWriter {
    writer: Writer<Out, LineDelimited>,
}

impl JsonWriter {
    pub fn new(out: Out) -> JsonWriter {
        JsonWriter { writer: line_delimited(out) }
    }
}

fn line_delimited<W: Write>(out: W) -> LineDelimitedWriter<W> {
    WriterBuilder::new()
        .with_explicit_nulls(true)
        .with_encoder_factory(Arc::new(Floats))
        .build::<_, LineDelimited>(out)
}

impl RowWriter for JsonWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        Ok(self.writer.write(&with_text_keys(batch)?)?)
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.writer.finish()?;
        Ok(self.writer.into_inner().flush()?)
    }
}

/// Encodes arrays of floats that hold values beyond JSON's numbers; all else is encoded as usual.
#[derive(Debug)]
struct Floats;

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        match array.data_type() {
            DataType::Float16 => special::<Float16Type>(field, array),
            DataType::Float32 => special::<Float32Type>(field, array),
            DataType::Float64 => special::<Float64Type>(field, array),
            times if times.is_temporal() => can_be_written(field, array).map(|()| None),
            _ => Ok(None),
        }
    }
}

/// A time that no calendar reaches is an error: arrow's writer puts a text of its own in its place.
fn can_be_written(field: &FieldRef, array: &dyn Array) -> Result<(), ArrowError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let shown = cast_with_options(array, &DataType::Utf8, &strict);
    let failed = |error| ArrowError::CastError(format!("column {}: {error}", field.name()));
    shown.map(|_| ()).map_err(failed)
}

fn special<'a, T>(
    field: &'a FieldRef,
    array: &'a dyn Array,
) -> Result<Option<NullableEncoder<'a>>, ArrowError>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let values = array.as_primitive::<T>();
    if values.values().iter().all(|value| Into::<f64>::into(*value).is_finite()) {
        return Ok(None);
    }
    // Without this factory, or it would be asked again for the same array.
    static PLAIN: std::sync::LazyLock<EncoderOptions> = std::sync::LazyLock::new(EncoderOptions::default);
    let nulls = values.nulls().cloned();
    let usual = make_encoder(field, array, &PLAIN)?;
    Ok(Some(NullableEncoder::new(Box::new(SpecialFloats { values, usual }), nulls)))
}

struct SpecialFloats<'a, T: ArrowPrimitiveType> {
    values: &'a PrimitiveArray<T>,
    usual: NullableEncoder<'a>,
}

impl<T> Encoder for SpecialFloats<'_, T>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value: f64 = self.values.value(row).into();
        match value {
            value if value.is_nan() => out.extend_from_slice(b"\"NaN\""),
            f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
            f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
            _ => self.usual.encode(row, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Float32Array, Float64Array, ListArray};
    use datafusion::arrow::json::ReaderBuilder;

    #[test]
    fn numbers_that_json_has_not_are_texts_and_read_back() {
        let wide = Float64Array::from(vec![Some(f64::NAN), Some(1.5), None, Some(f64::INFINITY)]);
        let narrow = Float32Array::from(vec![f32::NEG_INFINITY, 0.25, -0.0, 3.0]);
        let list = ListArray::from_iter_primitive::<Float64Type, _, _>(vec![
            Some(vec![Some(f64::NAN), None]),
            None,
            Some(vec![]),
            Some(vec![Some(1.0)]),
        ]);
        let columns: [(&str, ArrayRef); 3] =
            [("w", Arc::new(wide)), ("n", Arc::new(narrow)), ("l", Arc::new(list))];
        let batch = RecordBatch::try_from_iter(columns).unwrap();
        let mut out = Vec::new();
        let mut writer = line_delimited(&mut out);
        writer.write(&batch).unwrap();
        writer.finish().unwrap();
        drop(writer);
        let expected = "{\"w\":\"NaN\",\"n\":\"-Infinity\",\"l\":[\"NaN\",null]}\n\
                        {\"w\":1.5,\"n\":0.25,\"l\":null}\n\
                        {\"w\":null,\"n\":-0.0,\"l\":[]}\n\
                        {\"w\":\"Infinity\",\"n\":3.0,\"l\":[1.0]}\n";
        assert_eq!(String::from_utf8(out.clone()).unwrap(), expected);
        let back = ReaderBuilder::new(batch.schema()).build(out.as_slice()).unwrap().next().unwrap().unwrap();
        assert_eq!(format!("{back:?}"), format!("{batch:?}"));
    }
}
