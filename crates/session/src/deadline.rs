//! How long a statement may take (`kelpie.timeout`).

use std::future::Future;
use std::time::{Duration, Instant};

use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchReceiverStream;
use futures::StreamExt;
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

    /// The same, that much later.
    pub(crate) fn after(self, time: Duration) -> Option<Deadline> {
        Some(Deadline { at: self.at.checked_add(time)?, ..self })
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

/// Rows that a task of their own makes: some operators do not give way for minutes, and whoever asks for the next rows could not
/// notice that the deadline has passed. Dropping it ends the task once it does give way.
pub(crate) fn on_a_task_of_its_own(mut stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let mut rows = RecordBatchReceiverStream::builder(stream.schema(), 1);
    let sender = rows.tx();
    rows.spawn(async move {
        while let Some(batch) = stream.next().await {
            // Nobody takes rows any more.
            if sender.send(batch).await.is_err() {
                break;
            }
        }
        Ok(())
    });
    rows.build()
}
