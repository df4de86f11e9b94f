//! Errors of files.

use std::path::Path;

use datafusion::error::DataFusionError;

/// An error that names its file.
pub(crate) fn at(path: &Path, error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("{}: {error}", path.display()))
}

/// An error of what a file says of itself as a whole.
pub(super) fn in_metadata(path: &Path, error: impl std::fmt::Display) -> DataFusionError {
    at(path, format!("its metadata cannot be read: {error}"))
}

/// An error without the words that say that it is one.
pub(crate) fn plain(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Execution(text) | DataFusionError::Plan(text) => text.clone(),
        error => error.strip_backtrace(),
    }
}
