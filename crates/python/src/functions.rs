//! Scalar functions in Python.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::Array as _;
use arrow::datatypes::{DataType, Field};
use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};
use pyo3::prelude::*;

use crate::capsules::{self, Array};
use crate::runtime::attached;

/// A function in Python over Arrow arrays.
pub struct PythonFunction {
    name: String,
    /// Takes a list of arrays and the number of rows; gives an object with `__arrow_c_array__`.
    call: Py<PyAny>,
    signature: Signature,
    returns: DataType,
    /// Columns that it has computed are kept, and another function of the same name is another one.
    number: u64,
}

impl PythonFunction {
    /// A function that always gives the same for the same arguments, or one that does not.
    pub fn new(
        name: &str,
        call: Py<PyAny>,
        types: (Vec<DataType>, DataType),
        is_volatile: bool,
    ) -> PythonFunction {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (arguments, returns) = types;
        let volatility = if is_volatile { Volatility::Volatile } else { Volatility::Immutable };
        let arguments = match arguments.is_empty() {
            true => TypeSignature::Nullary,
            false => TypeSignature::Exact(arguments),
        };
        let signature = Signature::new(arguments, volatility);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        PythonFunction { name: name.to_string(), call, signature, returns, number }
    }

    fn called(&self, py: Python<'_>, arguments: ScalarFunctionArgs) -> PyResult<arrow::array::ArrayRef> {
        let (rows, fields) = (arguments.number_rows, arguments.arg_fields);
        let mut arrays = Vec::new();
        for (argument, field) in arguments.args.into_iter().zip(fields) {
            let array = argument.into_array(rows).map_err(|error| crate::errors::of_query(py, &error))?;
            let field = Arc::new(Field::new(field.name(), array.data_type().clone(), true));
            arrays.push(Bound::new(py, Array { array, field })?);
        }
        capsules::array_of(self.call.bind(py).call1((arrays, rows))?.as_any())
    }
}

impl std::fmt::Debug for PythonFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PythonFunction")
            .field("name", &self.name)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl PartialEq for PythonFunction {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for PythonFunction {}

impl Hash for PythonFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl ScalarUDFImpl for PythonFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.returns.clone())
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = arguments.number_rows;
        let called = attached(|py| self.called(py, arguments));
        let array = match called {
            Some(called) => called.map_err(|error| DataFusionError::External(Box::new(error)))?,
            None => return exec_err!("Python is ending"),
        };
        if array.len() != rows {
            return exec_err!("the function {} gave {} values for {rows} rows", self.name, array.len());
        }
        Ok(ColumnarValue::Array(arrow::compute::cast(&array, &self.returns)?))
    }
}
