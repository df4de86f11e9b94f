//! Threads for what a statement computes. Operators may be busy for minutes without giving way, and all threads of a runtime with
//! them: then no timer of it goes off, and nothing else that it has to do is done. What watches a statement, and takes the next
//! one, has threads of its own therefore, and those of a statement that was cancelled and did not end are left to it.

use std::sync::Arc;

use datafusion::error::{DataFusionError, Result};
use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime for statements. Whoever drops it waits for nothing.
#[derive(Debug)]
pub struct StatementThreads {
    runtime: Option<Runtime>,
    /// The process that has them: one that is forked has none.
    process: u32,
}

impl StatementThreads {
    /// New threads, as many as the machine has cores.
    pub fn new() -> Result<StatementThreads> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.enable_all().thread_name("statements").build();
        let runtime = runtime.map_err(|error| {
            DataFusionError::Execution(format!("cannot start threads for the statement: {error}"))
        })?;
        Ok(StatementThreads { runtime: Some(runtime), process: std::process::id() })
    }

    /// Where tasks are started.
    pub fn handle(&self) -> Result<&Handle> {
        match &self.runtime {
            Some(runtime) => Ok(runtime.handle()),
            None => Err(DataFusionError::Execution("the threads of the statement are gone".into())),
        }
    }
}

impl Drop for StatementThreads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What all statements with a limit of time run on, until one has exceeded it.
static SHARED: Mutex<Option<Arc<StatementThreads>>> = Mutex::new(None);

/// A statement's hold of threads that it shares with others. Where it is dropped before the statement has ended, later ones get
/// new threads, since this one may stay busy.
#[derive(Debug)]
pub(crate) struct OnThreads {
    threads: Arc<StatementThreads>,
    pub(crate) has_ended: bool,
}

impl OnThreads {
    /// The threads that statements share now.
    pub(crate) fn shared() -> Result<OnThreads> {
        let mut shared = SHARED.lock();
        let known = shared.as_ref().filter(|threads| threads.process == std::process::id());
        let threads = match known {
            Some(threads) => Arc::clone(threads),
            None => Arc::clone(shared.insert(Arc::new(StatementThreads::new()?))),
        };
        Ok(OnThreads { threads, has_ended: false })
    }

    pub(crate) fn handle(&self) -> Result<&Handle> {
        self.threads.handle()
    }
}

impl Drop for OnThreads {
    fn drop(&mut self) {
        let mut shared = SHARED.lock();
        if !self.has_ended && shared.as_ref().is_some_and(|shared| Arc::ptr_eq(shared, &self.threads)) {
            *shared = None;
        }
    }
}
