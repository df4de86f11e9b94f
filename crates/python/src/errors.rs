//! Errors of the engine as those of the Python package, which are named as DB-API 2.0 (PEP 249) names them.

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use pyo3::prelude::*;

/// A class of `kelpie._errors`.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// The package was used wrongly: a closed session, a forked process, an object that is no table.
    Interface,
    /// Values that do not fit: overflow, division by zero, a text that is no number.
    Data,
    /// What happened outside of the statement: files, memory.
    Operational,
    /// A fault of the engine.
    Internal,
    /// A wrong statement: syntax, names, types, settings.
    Programming,
    /// What is not there.
    NotSupported,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Interface => "InterfaceError",
            Kind::Data => "DataError",
            Kind::Operational => "OperationalError",
            Kind::Internal => "InternalError",
            Kind::Programming => "ProgrammingError",
            Kind::NotSupported => "NotSupportedError",
        }
    }

    fn of(error: &DataFusionError) -> Kind {
        match error.find_root() {
            DataFusionError::SQL(..)
            | DataFusionError::Plan(_)
            | DataFusionError::SchemaError(..)
            | DataFusionError::Configuration(_) => Kind::Programming,
            DataFusionError::NotImplemented(_) => Kind::NotSupported,
            DataFusionError::Internal(_) => Kind::Internal,
            DataFusionError::ArrowError(error, _) => match error.as_ref() {
                ArrowError::ParseError(_)
                | ArrowError::CastError(_)
                | ArrowError::ComputeError(_)
                | ArrowError::DivideByZero
                | ArrowError::ArithmeticOverflow(_)
                | ArrowError::InvalidArgumentError(_) => Kind::Data,
                ArrowError::NotYetImplemented(_) => Kind::NotSupported,
                _ => Kind::Operational,
            },
            // Errors of compiled parts are texts.
            DataFusionError::Execution(text) if is_of_values(text) => Kind::Data,
            _ => Kind::Operational,
        }
    }
}

fn is_of_values(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["overflow", "divide by zero", "division by zero", "cannot cast", "out of range"]
        .iter()
        .any(|words| text.contains(words))
}

/// An exception of a class.
pub fn raised(py: Python<'_>, kind: Kind, message: &str) -> PyErr {
    let class = py.import("kelpie._errors").and_then(|module| module.getattr(kind.class()));
    match class.and_then(|class| class.call1((message,))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// What became of an error of the engine. One that Python code raised within a query is raised again as it is.
pub fn of_query(py: Python<'_>, error: &DataFusionError) -> PyErr {
    if let Some(error) = of_python(error) {
        return error.clone_ref(py);
    }
    let text = error.strip_backtrace();
    raised(py, Kind::of(error), &text)
}

fn of_python(error: &DataFusionError) -> Option<&PyErr> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error.find_root());
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<PyErr>() {
            return Some(error);
        }
        if let Some(DataFusionError::External(inner)) = error.downcast_ref::<DataFusionError>()
            && let Some(error) = inner.downcast_ref::<PyErr>()
        {
            return Some(error);
        }
        source = error.source();
    }
    None
}

/// An error of Arrow's as one of the package.
pub fn of_arrow(py: Python<'_>, error: ArrowError) -> PyErr {
    of_query(py, &DataFusionError::from(error))
}
