//! What goes wrong between processes.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use datafusion::error::DataFusionError;

/// A cluster or a worker cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The workers are not written as they have to be.
    #[error("{0}")]
    Workers(String),
    /// The address is taken, or none of this machine's.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where it would listen.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Other machines could send plans without a secret, or would show it on the way.
    #[error(
        "a worker on {0} would run plans of anybody who can reach it: give it --tokens and --tls-certificate, or say --insecure"
    )]
    Exposed(SocketAddr),
    /// A certificate or key is none.
    #[error("TLS: {0}")]
    Tls(String),
}

/// What a connection was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskName {
    pub stage: usize,
    pub task: usize,
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {}, task {}", self.stage, self.task)
    }
}

/// A worker does not answer any more, or never did. The text is all that is left of it where another worker reports it, so that the
/// worker is found in it again.
#[derive(Debug)]
pub(crate) struct LostWorker {
    pub worker: String,
    pub task: Option<TaskName>,
    pub cause: String,
}

const LOST: &str = " was lost";

impl fmt::Display for LostWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}{LOST}", self.worker)?;
        if let Some(task) = self.task {
            write!(f, " ({task})")?;
        }
        write!(f, ": {}", self.cause)
    }
}

impl std::error::Error for LostWorker {}

impl LostWorker {
    pub fn error(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }
}

/// The worker that an error says was lost.
pub(crate) fn lost_worker(error: &DataFusionError) -> Option<String> {
    let text = error.to_string();
    let before = text.get(..text.find(LOST)?)?;
    let name = before.rsplit(' ').next()?;
    before.ends_with(&format!("worker {name}")).then(|| name.to_string())
}

/// An error and what caused it, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_worker_is_found_in_the_text_of_an_error() {
        let lost = LostWorker {
            worker: "http://h:1".into(),
            task: Some(TaskName { stage: 2, task: 1 }),
            cause: "connection reset".into(),
        };
        let error = lost.error();
        assert_eq!(lost_worker(&error).as_deref(), Some("http://h:1"));
        let reported = DataFusionError::Context("x".into(), Box::new(error));
        assert_eq!(lost_worker(&reported).as_deref(), Some("http://h:1"));
        assert!(
            reported.to_string().contains("worker http://h:1 was lost (stage 2, task 1): connection reset")
        );
        assert_eq!(lost_worker(&DataFusionError::Execution("the key was lost".into())), None);
    }
}
