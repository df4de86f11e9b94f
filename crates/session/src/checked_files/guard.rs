//! The boundary at which a panic becomes an error.

use std::future::Future;
use std::panic::AssertUnwindSafe;

use datafusion::error::{DataFusionError, Result};
use futures::FutureExt;
use kelpie_datafusion::panic_text;

/// What the error of a panic begins with.
const PANIC: &str = "a reader or an operator panicked";

/// What a future gives; where it panics, an error.
pub(crate) async fn caught<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    // What the future worked on is not used again: the query has failed.
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(DataFusionError::Execution(format!("{PANIC}: {}", panic_text(panic.as_ref())))),
    }
}

/// Whether an error is that of a panic: one that was caught here, or in a task of DataFusion's.
pub(crate) fn is_panic(error: &DataFusionError) -> bool {
    const OF_TASK: &str = "panicked with message";
    match error.find_root() {
        DataFusionError::Execution(text) => text.contains("panicked"),
        DataFusionError::External(error) => error.to_string().contains(OF_TASK),
        error => error.to_string().contains(OF_TASK),
    }
}
