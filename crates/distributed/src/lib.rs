//! Kelpie on several machines.
//!
//! A *coordinator* plans a statement as it would for itself, and `datafusion-distributed` cuts the plan into *stages*, each of which
//! runs as several *tasks* on *workers*: it owns stages, exchanges of rows over the network and their scheduling. What a task does is
//! compiled by Kelpie on the worker that runs it, for the device that the worker has: a plan of DataFusion is sent, never code.
//!
//! | module | what it has |
//! |---|---|
//! | `cluster` | the workers, as a list, a file or a name of the DNS; which of them were lost |
//! | `connections` | connections to workers: tokens, TLS, time limits; errors that name worker, stage and task |
//! | `planner` | a statement's plan cut into stages, or why it stays in this process |
//! | `routing` | which files, or ranges of files, go to which worker: by a hash, so that a worker's cached columns are of use again |
//! | `query` | a query while it runs: once more without a worker that was lost, as long as no rows were delivered |
//! | `stage` | the node at the top of what a worker compiles |
//! | `sending` | what can be sent, and in which form |
//! | `settings` | the coordinator's settings on the workers |
//! | `worker` | a worker |
//!
//! ```no_run
//! use kelpie_distributed::{Cluster, ClusterOptions, Worker, WorkerOptions};
//! use kelpie_session::{KelpieSession, SessionOptions};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let worker = Worker::start(WorkerOptions::default()).await?;
//! let cluster = Cluster::new(ClusterOptions::of(&worker.address().to_string())?)?;
//! let session = KelpieSession::new(cluster.joined(SessionOptions::default()))?;
//! session.register_path("t", "/data/t.parquet").await?;
//! session.sql("SELECT k, count(*) FROM t GROUP BY k").await?;
//! # Ok(())
//! # }
//! ```

mod analyze;
mod cluster;
mod connections;
mod errors;
mod planner;
mod query;
mod routing;
mod sending;
mod settings;
mod stage;
mod worker;

pub use cluster::{Cluster, ClusterOptions, Health, Workers};
pub use connections::ConnectionOptions;
pub use errors::ClusterError;
pub use worker::{Worker, WorkerOptions};
