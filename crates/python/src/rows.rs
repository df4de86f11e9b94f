//! Rows of a query, as they come or collected.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch, RecordBatchIterator, RecordBatchOptions, RecordBatchReader};
use arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use kelpie_session::RunningQuery;
use parking_lot::Mutex;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyTuple};

use crate::capsules::{self, Type};
use crate::errors::{Kind, of_arrow, of_query, raised};
use crate::runtime::{attached, wait};
use crate::values::Reading;

/// A stream of batches in memory.
pub fn reader_of(schema: &SchemaRef, batches: Vec<RecordBatch>) -> Box<dyn RecordBatchReader + Send> {
    Box::new(RecordBatchIterator::new(batches.into_iter().map(Ok), Arc::clone(schema)))
}

/// The rows of a query as they come. One thread at a time takes them.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Rows(Arc<Running>);

struct Running {
    schema: SchemaRef,
    /// Nothing after the last row, an error, or `close`.
    query: Mutex<Option<RunningQuery>>,
    progress: Option<Py<PyAny>>,
}

impl Rows {
    pub fn new(query: RunningQuery, progress: Option<Py<PyAny>>) -> Rows {
        Rows(Arc::new(Running { schema: query.schema(), query: Mutex::new(Some(query)), progress }))
    }
}

impl Running {
    fn next(&self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        let Some(mut place) = self.query.try_lock() else {
            return Err(raised(py, Kind::Interface, "another thread is taking the rows of this query"));
        };
        let Some(query) = place.as_mut() else { return Ok(None) };
        let next = match wait(py, self.progress.as_ref(), query.next()) {
            Ok(Ok(Some(batch))) => return Ok(Some(batch)),
            Ok(Ok(None)) => Ok(None),
            Ok(Err(error)) => Err(of_query(py, &error)),
            Err(error) => Err(error),
        };
        let over = place.take();
        // Whoever runs for it may want Python's lock before it ends.
        py.detach(|| match next {
            Ok(_) => drop(over.map(RunningQuery::finish)),
            Err(_) => drop(over),
        });
        next
    }

    fn close(&self, py: Python<'_>) {
        // A query whose rows another thread is taking ends with it.
        let query = self.query.try_lock().and_then(|mut place| place.take());
        py.detach(|| drop(query));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let query = self.query.get_mut().take();
        if query.is_none() {
            return;
        }
        let mut query = Some(query);
        // Without an interpreter nobody holds its lock.
        Python::try_attach(|py| {
            let query = query.take();
            py.detach(|| drop(query));
        });
    }
}

#[pymethods]
impl Rows {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        names(&self.0.schema)
    }

    /// The types of the columns.
    #[getter]
    fn types(&self) -> Vec<Type> {
        types(&self.0.schema)
    }

    /// The next batch; `None` after the last.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Batches>> {
        let batch = self.0.next(py)?;
        Ok(batch.map(|batch| Batches { schema: Arc::clone(&self.0.schema), batches: vec![batch] }))
    }

    /// All batches, or those with the first rows.
    #[pyo3(signature = (rows = None))]
    fn collect(&self, py: Python<'_>, rows: Option<usize>) -> PyResult<Batches> {
        let (mut batches, mut left) = (Vec::new(), rows.unwrap_or(usize::MAX));
        while left > 0 {
            let Some(batch) = self.0.next(py)? else { break };
            let taken = batch.num_rows().min(left);
            left -= taken;
            batches.push(batch.slice(0, taken));
        }
        Ok(Batches { schema: Arc::clone(&self.0.schema), batches })
    }

    /// Cancels the query.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsules::of_schema(py, &self.0.schema)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = requested(&self.0.schema, requested_schema)?;
        capsules::of_stream(py, Box::new(Reader { rows: Arc::clone(&self.0), schema }))
    }
}

/// The rows for another package, which may or may not hold Python's lock while it takes them.
struct Reader {
    rows: Arc<Running>,
    /// Theirs, or what the other package has asked for.
    schema: SchemaRef,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = attached(|py| self.rows.next(py).map_err(|error| as_text(py, &error)));
        let gone = || Err(ArrowError::CDataInterface("Python is ending".into()));
        let next = next.unwrap_or_else(gone).transpose()?;
        Some(next.and_then(|batch| cast(&batch, &self.schema)))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

/// The C stream interface carries texts. Ctrl-C is pressed again for whoever gets this one.
fn as_text(py: Python<'_>, error: &PyErr) -> ArrowError {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let pressed = py.import("_thread").and_then(|threads| threads.call_method0("interrupt_main"));
        let text = if pressed.is_ok() { "interrupted" } else { "interrupted, and not told to Python" };
        return ArrowError::CDataInterface(text.into());
    }
    // A text of C ends at a NUL.
    ArrowError::CDataInterface(error.value(py).to_string().replace('\0', "\\0"))
}

/// Rows in memory.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Batches {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Batches {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        names(&self.schema)
    }

    /// The types of the columns.
    #[getter]
    fn types(&self) -> Vec<Type> {
        types(&self.schema)
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// A tuple a row.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let reading = Reading::new(py);
        for batch in &self.batches {
            let columns =
                batch.columns().iter().map(|column| reading.column(column)).collect::<PyResult<Vec<_>>>()?;
            for row in 0..batch.num_rows() {
                let values = columns.iter().map(|column| column.value(row)).collect::<PyResult<Vec<_>>>()?;
                rows.append(PyTuple::new(py, values)?)?;
            }
            py.check_signals()?;
        }
        Ok(rows)
    }

    /// The first rows as texts, NULL as `None`.
    fn cells(&self, py: Python<'_>, rows: usize) -> PyResult<Vec<Vec<Option<String>>>> {
        let options = FormatOptions::new().with_display_error(true);
        let mut cells = Vec::new();
        for batch in &self.batches {
            let formatters = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
            let formatters =
                formatters.collect::<Result<Vec<_>, _>>().map_err(|error| of_arrow(py, error))?;
            for row in 0..batch.num_rows().min(rows - cells.len()) {
                let columns = batch.columns().iter().zip(&formatters);
                let texts =
                    columns.map(|(column, text)| (!column.is_null(row)).then(|| text.value(row).to_string()));
                cells.push(texts.collect());
            }
        }
        Ok(cells)
    }

    /// The same with views of texts and bytes copied to where other packages' functions look for them.
    fn without_views(&self, py: Python<'_>) -> PyResult<Batches> {
        let fields: Vec<FieldRef> = self.schema.fields().iter().map(without_views).collect();
        let schema = Arc::new(Schema::new_with_metadata(fields, self.schema.metadata().clone()));
        if schema == self.schema {
            return Ok(Batches { schema, batches: self.batches.clone() });
        }
        let batches =
            py.detach(|| self.batches.iter().map(|batch| cast(batch, &schema)).collect::<Result<_, _>>());
        Ok(Batches { schema, batches: batches.map_err(|error| of_arrow(py, error))? })
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        capsules::of_schema(py, &self.schema)
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = requested(&self.schema, requested_schema)?;
        let (target, batches) = (Arc::clone(&schema), self.batches.clone());
        let batches = batches.into_iter().map(move |batch| cast(&batch, &target));
        capsules::of_stream(py, Box::new(RecordBatchIterator::new(batches, schema)))
    }
}

fn names(schema: &Schema) -> Vec<String> {
    schema.fields().iter().map(|field| field.name().clone()).collect()
}

fn types(schema: &Schema) -> Vec<Type> {
    schema.fields().iter().map(|field| Type { field: Arc::clone(field) }).collect()
}

/// The schema that another package asks for, where values can be cast to it; else the rows' own, which it has to look at anyway.
fn requested(own: &SchemaRef, requested: Option<Bound<'_, PyAny>>) -> PyResult<SchemaRef> {
    let Some(requested) = requested.filter(|requested| !requested.is_none()) else {
        return Ok(Arc::clone(own));
    };
    let DataType::Struct(fields) = capsules::type_in(&requested)? else { return Ok(Arc::clone(own)) };
    let fits = |(own, wanted): (&FieldRef, &FieldRef)| {
        own.name() == wanted.name()
            && (wanted.is_nullable() || !own.is_nullable())
            && can_cast_types(own.data_type(), wanted.data_type())
    };
    match fields.len() == own.fields().len() && own.fields().iter().zip(&fields).all(fits) {
        true => Ok(Arc::new(Schema::new(fields))),
        false => Ok(Arc::clone(own)),
    }
}

fn cast(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let columns = batch.columns().iter().zip(schema.fields());
    // What does not fit is an error, not NULL.
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = columns.map(|(column, field)| cast_with_options(column, field.data_type(), &options));
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.collect::<Result<_, _>>()?, &options)
}

/// A field whose type, or that of its elements, is no view.
fn without_views(field: &FieldRef) -> FieldRef {
    let plain = match field.data_type() {
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        DataType::List(element) => DataType::List(without_views(element)),
        DataType::LargeList(element) => DataType::LargeList(without_views(element)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(without_views).collect()),
        DataType::Dictionary(key, value) => {
            let value = without_views(&Arc::new(Field::new("", value.as_ref().clone(), true)));
            DataType::Dictionary(key.clone(), Box::new(value.data_type().clone()))
        }
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(plain))
}
