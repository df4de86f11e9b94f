//! Errors of files.

use std::path::Path;

use datafusion::error::DataFusionError;

/// An error that names its file.
pub(super) fn at(path: &Path, error: impl std::fmt::Display) -> DataFusionError {
    DataFusionError::Execution(format!("{}: {error}", path.display()))
}

/// An error without the words that say that it is one.
pub(crate) fn plain(error: &DataFusionError) -> String {
    match error {
        DataFusionError::Execution(text) | DataFusionError::Plan(text) => text.clone(),
        error => error.strip_backtrace(),
    }
}
