//! Python objects as tables in memory.

use std::sync::Arc;

use arrow::array::{Array, AsArray, RecordBatch, RecordBatchOptions, RecordBatchReader};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::datasource::MemTable;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::capsules;
use crate::errors::{Kind, of_arrow, of_query, raised};
use crate::rows::reader_of;

/// Rows in memory that queries read as a table: those of another package, with nothing copied that Arrow lays out as the engine
/// wants it.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
    /// What queries scan. Nothing is ever added to it.
    pub provider: Arc<MemTable>,
}

impl Table {
    fn new(py: Python<'_>, schema: SchemaRef, batches: Vec<RecordBatch>) -> PyResult<Table> {
        let provider = provider_of(py, &schema, &batches)?;
        Ok(Table { schema, batches, provider })
    }

    /// The same rows as another table, which may be added to.
    pub fn own_provider(&self, py: Python<'_>) -> PyResult<Arc<MemTable>> {
        provider_of(py, &self.schema, &self.batches)
    }

    /// Whether both are the same values at the same addresses. The older keeps its memory, which therefore is no other's.
    fn is_same(&self, other: &Table) -> bool {
        let same = |(one, other): (&RecordBatch, &RecordBatch)| {
            one.num_rows() == other.num_rows()
                && one
                    .columns()
                    .iter()
                    .zip(other.columns())
                    .all(|(one, other)| one.to_data().ptr_eq(&other.to_data()))
        };
        self.schema == other.schema
            && self.batches.len() == other.batches.len()
            && self.batches.iter().zip(&other.batches).all(same)
    }
}

fn provider_of(py: Python<'_>, schema: &SchemaRef, batches: &[RecordBatch]) -> PyResult<Arc<MemTable>> {
    let table = MemTable::try_new(Arc::clone(schema), vec![batches.to_vec()]);
    table.map(Arc::new).map_err(|error| of_query(py, &error))
}

#[pymethods]
impl Table {
    /// Takes an object with `__arrow_c_stream__` or `__arrow_c_array__`; a stream is read to its end.
    #[new]
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Table> {
        let py = object.py();
        if object.hasattr("__arrow_c_stream__")? {
            return Table::read(py, capsules::stream_of(object)?);
        }
        let batch = batch_of(object)?;
        Table::new(py, without_metadata(&batch.schema()), vec![batch])
    }

    /// This table where another one is the same, else the other.
    fn or_changed(slf: Bound<'_, Self>, other: Bound<'_, Self>) -> Py<Table> {
        if slf.get().is_same(other.get()) { slf.unbind() } else { other.unbind() }
    }

    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema.fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        capsules::of_stream(py, reader_of(&self.schema, self.batches.clone()))
    }
}

impl Table {
    fn read(py: Python<'_>, mut reader: arrow::ffi_stream::ArrowArrayStreamReader) -> PyResult<Table> {
        let schema = without_metadata(&reader.schema());
        let mut batches = Vec::new();
        loop {
            // Streams of other packages may run Python code, on any thread.
            let next = py.detach(|| capsules::next_of(&mut reader));
            py.check_signals()?;
            let Some(batch) = next.transpose().map_err(|error| of_arrow(py, error))? else { break };
            if batch.num_rows() > 0 {
                batches.push(with_schema(py, &batch, &schema)?);
            }
        }
        Table::new(py, schema, batches)
    }
}

/// What packages note of a whole table, such as Pandas of its index, says nothing of what a query makes of it.
fn without_metadata(schema: &SchemaRef) -> SchemaRef {
    Arc::new(Schema::new(schema.fields().clone()))
}

fn with_schema(py: Python<'_>, batch: &RecordBatch, schema: &SchemaRef) -> PyResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), batch.columns().to_vec(), &options)
        .map_err(|error| of_arrow(py, error))
}

fn batch_of(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let py = object.py();
    let array = capsules::array_of(object)?;
    let DataType::Struct(fields) = array.data_type() else {
        let message = format!("an array of {} is no table: one of structs is", array.data_type());
        return Err(raised(py, Kind::Interface, &message));
    };
    if array.null_count() > 0 {
        return Err(raised(py, Kind::Interface, "an array with rows that are NULL is no table"));
    }
    let schema = Arc::new(Schema::new(fields.clone()));
    let options = RecordBatchOptions::new().with_row_count(Some(array.len()));
    RecordBatch::try_new_with_options(schema, array.as_struct().columns().to_vec(), &options)
        .map_err(|error| of_arrow(py, error))
}
