//! Workers that are processes of their own: generated queries, and workers that die, hang and come back while queries run.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterProperties;
use kelpie_distributed::{Cluster, ClusterOptions, ConnectionOptions, Worker, WorkerOptions};
use kelpie_session::testing::{Generated, QueryGenerator, same, tables};
use kelpie_workloads::Workload;

use crate::common::{alone, data, session_of};

const VARIABLE: &str = "KELPIE_TEST_WORKER";

/// Not a test: what a worker process runs. It ends with its standard input, so that none is left when a test ends, however it does.
#[test]
fn as_worker() {
    let Ok(address) = std::env::var(VARIABLE) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let silence = Duration::from_secs(1);
    let connections = ConnectionOptions { silence, ..ConnectionOptions::default() };
    let options = WorkerOptions { listen: address.parse().unwrap(), connections, ..WorkerOptions::default() };
    let worker = runtime.block_on(Worker::start(options)).unwrap();
    eprintln!("worker on {}", worker.address());
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::exit(0);
}

/// A worker process. It is killed when it is dropped.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(address: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "processes::as_worker", "--nocapture"]).env(VARIABLE, address);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| line.unwrap().strip_prefix("worker on ").map(String::from));
        // What it says later is of no interest, but has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        Process { child, address: address.expect("the worker ended at once") }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn cluster_of(processes: &[Process]) -> Arc<Cluster> {
    let addresses: Vec<&str> = processes.iter().map(|process| process.address.as_str()).collect();
    let silence = Duration::from_secs(1);
    let connections = ConnectionOptions { silence, ..ConnectionOptions::default() };
    let workers = addresses.join(",").parse().unwrap();
    Cluster::new(ClusterOptions { workers, connections }).unwrap()
}

fn started(count: usize) -> Vec<Process> {
    (0..count).map(|_| Process::start("127.0.0.1:0")).collect()
}

/// The tables of generated queries, in row groups of a few rows.
fn write_tables(seed: u64, folder: &Path) {
    for (name, batches) in tables(seed).unwrap() {
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100)).build();
        let file = std::fs::File::create(folder.join(format!("{name}.parquet"))).unwrap();
        let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        writer.close().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generated_queries_give_the_answers_of_one_process() {
    const QUERIES: usize = 300;
    let (processes, folder) = (started(3), tempfile::tempdir().unwrap());
    write_tables(7, folder.path());
    let cluster = cluster_of(&processes);
    let (one, session) = (alone(folder.path()).await, session_of(&cluster, folder.path()).await);
    let mut generator = QueryGenerator::new(7);
    let (mut wrong, mut answered) = (Vec::new(), 0);
    for _ in 0..QUERIES {
        let Generated { sql, .. } = generator.query();
        match (one.sql(&sql).await, session.sql(&sql).await) {
            (Ok(expected), Ok(got)) => {
                answered += 1;
                if let Some(difference) = same(&expected.batches, &got.batches, false).unwrap() {
                    wrong.push(format!("{sql}\n  {difference}"));
                }
            }
            (Err(_), Err(_)) => {}
            (Ok(_), Err(error)) => wrong.push(format!("{sql}\n  fails on workers alone: {error}")),
            (Err(error), Ok(_)) => wrong.push(format!("{sql}\n  fails in one process alone: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {QUERIES}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(answered > QUERIES / 2, "{answered} queries have an answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_die_hang_and_come_back_while_queries_run() {
    const ROUNDS: usize = 24;
    let mut processes = started(3);
    let data = data(Workload::Tpch);
    let cluster = cluster_of(&processes);
    let (one, session) = (alone(data).await, session_of(&cluster, data).await);
    let queries = Workload::Tpch.queries();
    let mut failed = 0;
    for round in 0..ROUNDS {
        let (name, sql) = &queries[round * 5 % queries.len()];
        let expected = one.sql(sql).await.unwrap();
        let victim = round % processes.len();
        // In every third round nothing happens; else the worker dies or hangs while the query runs.
        let (signal, again) = match round % 3 {
            0 => (None, false),
            1 => (Some("-KILL"), true),
            _ => (Some("-STOP"), false),
        };
        let start = Instant::now();
        let running = tokio::time::timeout(Duration::from_secs(90), session.sql(sql));
        let harming = async {
            tokio::time::sleep(Duration::from_millis(7 * round as u64)).await;
            if let Some(signal) = signal {
                processes[victim].signal(signal);
            }
        };
        let (answer, ()) = tokio::join!(running, harming);
        let answer = answer.unwrap_or_else(|_| panic!("query {name} hangs in round {round}"));
        match answer {
            Ok(got) => {
                let difference = same(&expected.batches, &got.batches, false).unwrap();
                assert_eq!(difference, None, "query {name} in round {round}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("worker http://") && text.contains("was lost"), "query {name}: {text}");
                failed += 1;
            }
        }
        assert!(start.elapsed() < Duration::from_secs(60), "query {name} took {:?}", start.elapsed());
        match signal {
            Some("-STOP") => processes[victim].signal("-CONT"),
            Some(_) if again => {
                let address = processes[victim].address.clone();
                processes[victim] = Process::start(&address);
            }
            _ => {}
        }
    }
    assert!(failed <= ROUNDS / 3, "{failed} of {ROUNDS} queries failed");
}
