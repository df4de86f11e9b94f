//! Arrow data that changes hands with other Python packages without being copied: the Arrow PyCapsule interface
//! (<https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>).
//!
//! The only file of this crate with `unsafe`: what comes in is a pointer in a capsule, and taking it for what the capsule's name says
//! is all that it does.

#![expect(unsafe_code, reason = "the Arrow PyCapsule interface hands over pointers")]

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::array::{ArrayRef, RecordBatch, RecordBatchReader, make_array};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::errors::{Kind, of_arrow, raised};

const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";
const STREAM: &CStr = c"arrow_array_stream";

/// A stream of batches from an object with `__arrow_c_stream__`.
pub fn stream_of(object: &Bound<'_, PyAny>) -> PyResult<ArrowArrayStreamReader> {
    let capsule = object.call_method0("__arrow_c_stream__")?.cast_into::<PyCapsule>()?;
    let stream = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds an initialised and aligned `ArrowArrayStream` for as long as it lives, and may be moved
    // out of, by the interface. Python's lock is held, so that nobody else moves it at the same time.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
    // What a broken producer leaves out makes the reader panic.
    match catch_unwind(AssertUnwindSafe(|| ArrowArrayStreamReader::try_new(stream))) {
        Ok(reader) => reader.map_err(|error| of_arrow(object.py(), error)),
        Err(_) => Err(broken(object.py())),
    }
}

/// An array from an object with `__arrow_c_array__`.
pub fn array_of(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let py = object.py();
    let pair = object.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let (schema, array) =
        (pair.get_item(0)?.cast_into::<PyCapsule>()?, pair.get_item(1)?.cast_into::<PyCapsule>()?);
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold an initialised and aligned `ArrowArray` that may be moved out of, and an `ArrowSchema`
    // that is read while its capsule, `pair`, lives; the array is of that schema, by the interface.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    data.map(make_array).map_err(|error| of_arrow(py, error))
}

/// The type of an object with `__arrow_c_schema__`.
pub fn type_of(object: &Bound<'_, PyAny>) -> PyResult<DataType> {
    type_in(&object.call_method0("__arrow_c_schema__")?)
}

/// The type in a capsule; that of a schema is a struct.
pub fn type_in(capsule: &Bound<'_, PyAny>) -> PyResult<DataType> {
    let capsule = capsule.cast::<PyCapsule>()?;
    let schema = capsule.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds an initialised and aligned `ArrowSchema`, which is read while the capsule lives.
    let schema = unsafe { schema.as_ref() };
    DataType::try_from(schema).map_err(|error| of_arrow(capsule.py(), error))
}

fn broken(py: Python<'_>) -> PyErr {
    raised(py, Kind::Interface, "the object's Arrow stream breaks the rules of the C stream interface")
}

/// The next batch of a stream; nothing after the last.
pub fn next_of(reader: &mut ArrowArrayStreamReader) -> Option<Result<RecordBatch, ArrowError>> {
    catch_unwind(AssertUnwindSafe(|| reader.next())).unwrap_or_else(|_| {
        Some(Err(ArrowError::CDataInterface("the stream gives an error without a message".into())))
    })
}

/// A capsule with a stream.
pub fn of_stream<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A capsule with a schema.
pub fn of_schema<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema.as_ref()).map_err(|error| of_arrow(py, error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

fn of_field<'py>(py: Python<'py>, field: &FieldRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(field.as_ref()).map_err(|error| of_arrow(py, error))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Structures of DataFusion's foreign interface that change hands in capsules, with the capsules' names.
#[cfg(feature = "datafusion-package")]
pub trait Foreign: Clone + Send + 'static {
    const NAME: &'static CStr;
}

#[cfg(feature = "datafusion-package")]
mod foreign {
    use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
    use datafusion_ffi::proto::physical_extension_codec::FFI_PhysicalExtensionCodec;
    use datafusion_ffi::query_planner::FFI_QueryPlanner;

    use super::{CStr, Foreign};

    impl Foreign for FFI_LogicalExtensionCodec {
        const NAME: &'static CStr = c"datafusion_logical_extension_codec";
    }

    impl Foreign for FFI_PhysicalExtensionCodec {
        const NAME: &'static CStr = c"datafusion_physical_extension_codec";
    }

    impl Foreign for FFI_QueryPlanner {
        const NAME: &'static CStr = c"datafusion_query_planner";
    }
}

/// A capsule with a structure of DataFusion's foreign interface.
#[cfg(feature = "datafusion-package")]
pub fn of_foreign<T: Foreign>(py: Python<'_>, value: T) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new_with_value(py, value, T::NAME)
}

/// A copy of the structure in a capsule.
#[cfg(feature = "datafusion-package")]
pub fn copy_of<T: Foreign>(capsule: &Bound<'_, PyAny>) -> PyResult<T> {
    let value = capsule.cast::<PyCapsule>()?.pointer_checked(Some(T::NAME))?.cast::<T>();
    // SAFETY: by DataFusion's foreign interface, a capsule of this name holds this structure, which is laid out alike in all libraries
    // of one major version, while the capsule lives. The caller has compared the versions.
    Ok(unsafe { value.as_ref() }.clone())
}

/// Arrow values: an argument of a function in Python.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Array {
    pub array: ArrayRef,
    pub field: FieldRef,
}

#[pymethods]
impl Array {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may give its own type where it cannot give another one.
        drop(requested_schema);
        let array = PyCapsule::new_with_value(py, FFI_ArrowArray::new(&self.array.to_data()), ARRAY)?;
        Ok((of_field(py, &self.field)?, array))
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }
}

/// A type of Arrow values.
#[pyclass(frozen, module = "kelpie._kelpie")]
pub struct Type {
    pub field: FieldRef,
}

#[pymethods]
impl Type {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        of_field(py, &self.field)
    }

    fn __repr__(&self) -> String {
        self.field.data_type().to_string()
    }
}
