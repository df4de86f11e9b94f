//! Parquet and Arrow files, written batch by batch.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::parquet::arrow::ArrowWriter;

use super::{Out, RowWriter};

/// A row group that has grown to this many bytes is written, however few rows it has.
const ROW_GROUP_BYTES: usize = 128 << 20;

pub struct ParquetWriter {
    writer: ArrowWriter<Out>,
}

impl ParquetWriter {
    pub fn new(out: Out, schema: &SchemaRef) -> Result<ParquetWriter> {
        Ok(ParquetWriter { writer: ArrowWriter::try_new(out, Arc::clone(schema), None)? })
    }
}

impl RowWriter for ParquetWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.writer.write(batch)?;
        if self.writer.in_progress_size() >= ROW_GROUP_BYTES {
            self.writer.flush()?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.into_inner()?.flush()?)
    }
}

/// A file has one dictionary a column, and batches bring different ones: such columns are written plain.
pub struct ArrowFileWriter {
    writer: FileWriter<Out>,
    schema: SchemaRef,
}

impl ArrowFileWriter {
    pub fn new(out: Out, schema: &SchemaRef) -> Result<ArrowFileWriter> {
        let fields = schema.fields().iter().map(|field| match field.data_type() {
            DataType::Dictionary(_, values) => {
                Arc::new(Field::clone(field).with_data_type(values.as_ref().clone()))
            }
            _ => Arc::clone(field),
        });
        let schema =
            Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()));
        Ok(ArrowFileWriter { writer: FileWriter::try_new(out, &schema)?, schema })
    }
}

impl RowWriter for ArrowFileWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let columns = batch.columns().iter().zip(self.schema.fields());
        let columns = columns.map(|(column, field)| match column.data_type() {
            DataType::Dictionary(..) => cast(column, field.data_type()),
            _ => Ok(Arc::clone(column)),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        Ok(self.writer.write(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(self.writer.into_inner()?.flush()?)
    }
}
