//! What can go wrong in the engine.

use kelpie_compile::context::Unsupported;
use kelpie_device::DeviceError;

/// An error of a query.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The plan cannot be compiled.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A source could not be read.
    #[error("{table}: {message}")]
    Source {
        /// The table.
        table: String,
        /// What happened.
        message: String,
    },
    /// The query itself fails, as it does in DataFusion: division by zero, overflow, a cast.
    #[error("{0}")]
    Query(String),
    /// The query met data that only DataFusion's own operators handle: run it there.
    #[error("the data needs DataFusion's own operators: {0}")]
    Fallback(String),
    /// Cancelled.
    #[error("the query was cancelled")]
    Cancelled,
    /// An Arrow error.
    #[error(transparent)]
    Arrow(#[from] arrow::error::ArrowError),
    /// A broken invariant of Kelpie: please report it.
    #[error("internal error: {0}")]
    Internal(String),
}
