//! What the tests share: data with many row groups, workers in this process, sessions with and without them.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_distributed::{Cluster, ClusterOptions, ConnectionOptions, Worker, WorkerOptions, Workers};
use kelpie_session::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload};
use tempfile::TempDir;

/// Settings under which everything is compiled for the CPU and shared out, however small it is.
pub const SETTINGS: [(&str, &str); 3] = [
    ("kelpie.device", "cpu"),
    ("datafusion.execution.target_partitions", "3"),
    ("distributed.file_scan_config_bytes_per_partition", "1000"),
];

pub fn options() -> SessionOptions {
    // A session without workers has no such settings.
    let own = SETTINGS.iter().filter(|(name, _)| !name.starts_with("distributed."));
    own.fold(SessionOptions::default(), |options, (name, value)| options.with(*name, *value))
}

/// A session in one process.
pub async fn alone(data: &Path) -> KelpieSession {
    let session = KelpieSession::new(options()).unwrap();
    session.register_dir(data).await.unwrap();
    session
}

/// Workers, and a cluster of them.
pub struct Team {
    pub workers: Vec<Worker>,
    pub cluster: Arc<Cluster>,
}

impl Team {
    pub async fn of(count: usize) -> Team {
        let mut workers = Vec::new();
        for _ in 0..count {
            workers.push(Worker::start(WorkerOptions::default()).await.unwrap());
        }
        let cluster = cluster_of(&workers, ConnectionOptions::default());
        Team { workers, cluster }
    }

    pub async fn session(&self, data: &Path) -> KelpieSession {
        session_of(&self.cluster, data).await
    }
}

pub fn cluster_of(workers: &[Worker], connections: ConnectionOptions) -> Arc<Cluster> {
    let addresses: Vec<String> = workers.iter().map(|worker| worker.address().to_string()).collect();
    let workers: Workers = addresses.join(",").parse().unwrap();
    Cluster::new(ClusterOptions { workers, connections }).unwrap()
}

/// A session whose queries run on a cluster.
pub async fn session_of(cluster: &Arc<Cluster>, data: &Path) -> KelpieSession {
    let options = cluster.joined(options()).with(SETTINGS[2].0, SETTINGS[2].1);
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(data).await.unwrap();
    session
}

/// The data of a workload at scale 0.01, in row groups of so few rows that every task has some.
pub fn data(workload: Workload) -> &'static Path {
    static TPCH: OnceLock<TempDir> = OnceLock::new();
    static SSB: OnceLock<TempDir> = OnceLock::new();
    let made = match workload {
        Workload::Ssb => &SSB,
        _ => &TPCH,
    };
    made.get_or_init(|| cut(workload)).path()
}

const ROWS_OF_GROUP: usize = 2000;

fn cut(workload: Workload) -> TempDir {
    let (generated, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = GenerateOptions {
        scale: 0.01,
        output: generated.path(),
        tables: &[],
        threads: 2,
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    for file in std::fs::read_dir(generated.path()).unwrap() {
        let path = file.unwrap().path();
        let reader = datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(
            File::open(&path).unwrap(),
        );
        let reader = reader.unwrap().build().unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(ROWS_OF_GROUP)).build();
        let to = File::create(made.path().join(path.file_name().unwrap())).unwrap();
        let mut writer = ArrowWriter::try_new(to, reader_schema(&path), Some(properties)).unwrap();
        reader.for_each(|batch| writer.write(&batch.unwrap()).unwrap());
        writer.close().unwrap();
    }
    made
}

fn reader_schema(path: &Path) -> datafusion::arrow::datatypes::SchemaRef {
    let file = File::open(path).unwrap();
    let builder = datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file);
    Arc::clone(builder.unwrap().schema())
}
