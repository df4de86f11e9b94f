//! How long a statement may take (`kelpie.timeout`).

use std::future::Future;
use std::time::{Duration, Instant};

use datafusion::error::{DataFusionError, Result};
use tokio::time::timeout_at;

/// When a statement is cancelled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    limit: Duration,
}

impl Deadline {
    /// Of a statement that began at some time; `None` where there is no limit, or one beyond all times.
    pub(crate) fn new(start: Instant, limit: Option<Duration>) -> Option<Deadline> {
        let limit = limit?;
        Some(Deadline { at: start.checked_add(limit)?, limit })
    }

    /// Whether it has passed.
    pub(crate) fn is_over(self) -> bool {
        Instant::now() >= self.at
    }
}

/// What a future gives, or an error once the deadline has passed: then the future is dropped.
///
/// Without a deadline no timer is asked for, which a runtime of the embedder's need not have.
pub(crate) async fn within<T>(
    deadline: Option<Deadline>,
    future: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(Deadline { at, limit }) = deadline else { return future.await };
    match timeout_at(at.into(), future).await {
        Ok(result) => result,
        Err(_) => Err(DataFusionError::Execution(format!(
            "the statement was cancelled: it took longer than kelpie.timeout allows, which is {limit:?}"
        ))),
    }
}
