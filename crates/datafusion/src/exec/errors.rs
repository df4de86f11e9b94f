//! Errors of a compiled part of a plan.

use std::any::Any;

use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use kelpie_engine::{EngineError, QueryError};

/// The error of an engine that panicked.
pub(super) fn panicked(panic: &(dyn Any + Send)) -> EngineError {
    EngineError::Internal(format!("the engine panicked: {}", panic_text(panic)))
}

/// What a panic says.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// The errors of a query are Arrow's, as DataFusion's own operators give them.
pub fn into_datafusion(error: EngineError) -> DataFusionError {
    let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
    match error {
        EngineError::Query(error) => match error {
            QueryError::DivideByZero => arrow(ArrowError::DivideByZero),
            QueryError::Overflow => {
                arrow(ArrowError::ArithmeticOverflow("the result of an operation is beyond its type".into()))
            }
            QueryError::CastOutOfRange => {
                arrow(ArrowError::CastError("a value does not fit the target type".into()))
            }
            QueryError::CastParse => {
                arrow(ArrowError::CastError("text is not a value of the target type".into()))
            }
            QueryError::NegativeSubstringLength | QueryError::SubqueryRows => {
                DataFusionError::Execution(error.to_string())
            }
        },
        EngineError::SumOverflow { aggregate } => {
            arrow(ArrowError::ArithmeticOverflow(format!("{aggregate} is beyond the range of its type")))
        }
        EngineError::Arrow(error) => arrow(error),
        EngineError::Interrupted { cause, .. }
            if matches!(*cause, EngineError::Query(_) | EngineError::SumOverflow { .. }) =>
        {
            into_datafusion(*cause)
        }
        error @ (EngineError::Source { .. } | EngineError::Cancelled | EngineError::Internal(_)) => {
            DataFusionError::Execution(error.to_string())
        }
        error => DataFusionError::Execution(format!("Kelpie: {error}")),
    }
}
