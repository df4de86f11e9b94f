//! A coordinator and three workers, each a process of the program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use kelpie_workloads::{GenerateOptions, Workload};
use tempfile::TempDir;

use crate::program::{Run, kelpie, program};

/// A worker; it ends when it is dropped.
struct Worker {
    child: Child,
    address: String,
}

impl Worker {
    fn start(arguments: &[&str]) -> Worker {
        let all = [&["worker", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = program(&all).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().strip_prefix("worker on http://").map(String::from));
        std::thread::spawn(move || lines.for_each(drop));
        Worker { child, address: address.unwrap() }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn started(count: usize, arguments: &[&str]) -> (Vec<Worker>, String) {
    let workers: Vec<Worker> = (0..count).map(|_| Worker::start(arguments)).collect();
    let addresses: Vec<&str> = workers.iter().map(|worker| worker.address.as_str()).collect();
    let addresses = addresses.join(",");
    (workers, addresses)
}

/// What makes small tables large enough to be shared out.
const SHARED_OUT: &str = "distributed.file_scan_config_bytes_per_partition=100000";

/// The data of a workload at scale 0.1, in row groups of so few rows that each worker has some.
fn data(workload: Workload) -> TempDir {
    let (generated, made) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = GenerateOptions {
        scale: 0.1,
        output: generated.path(),
        tables: &[],
        threads: 2,
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    let copies = workload.tables().iter().map(|table| {
        let to = made.path().join(format!("{table}.parquet"));
        format!(
            "COPY (SELECT * FROM {table}) TO '{}' OPTIONS ('format.max_row_group_size' '20000');",
            to.display()
        )
    });
    let run = kelpie(&["--data", path(generated.path()), "-c", &copies.collect::<String>()]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    made
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The answers of queries, each as its sorted lines.
fn answers(run: &Run) -> Vec<Vec<String>> {
    assert_eq!(run.code, Some(0), "{}", run.err);
    let parts = run.out.split("mark\n--\n").skip(1);
    let sorted = |part: &str| {
        let mut lines: Vec<String> = part.lines().map(String::from).collect();
        lines.sort_unstable();
        lines
    };
    parts.map(sorted).collect()
}

fn assert_same(workload: Workload) {
    let (data, (_workers, addresses)) = (data(workload), started(3, &["--device", "cpu"]));
    let queries = workload.queries();
    let script: Vec<String> = queries
        .iter()
        .map(|(_, sql)| format!("SELECT '--' AS mark; {};", sql.trim_end().trim_end_matches(';')))
        .collect();
    let file = data.path().join("queries.sql");
    std::fs::write(&file, script.join("\n")).unwrap();
    // Among the data it would be a table.
    let script = tempfile::tempdir().unwrap();
    let moved = script.path().join("queries.sql");
    std::fs::rename(&file, &moved).unwrap();
    let common = ["--data", path(data.path()), "--device", "cpu", "--format", "csv", "-f", path(&moved)];
    let one = answers(&kelpie(&common));
    let many = answers(&kelpie(&[&common[..], &["--workers", &addresses, "--set", SHARED_OUT]].concat()));
    assert_eq!((one.len(), many.len()), (queries.len(), queries.len()));
    for (((name, _), one), many) in queries.iter().zip(one).zip(many) {
        assert_eq!(one, many, "query {name}");
    }
}

#[test]
fn tpch_by_processes() {
    assert_same(Workload::Tpch);
}

#[test]
fn ssb_by_processes() {
    assert_same(Workload::Ssb);
}

#[test]
fn workers_say_how_they_are() {
    let (mut workers, addresses) = started(2, &[]);
    let run = kelpie(&["workers", &addresses]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert_eq!(
        run.out.lines().filter(|line| line.contains(" ok, ") && line.contains("devices: ")).count(),
        2
    );
    workers.pop();
    let run = kelpie(&["workers", &addresses]);
    assert_eq!(
        (run.code, run.out.lines().filter(|line| line.contains(" lost, ")).count()),
        (Some(1), 1),
        "{}",
        run.out
    );
}

#[test]
fn what_is_wrong_is_said() {
    for (arguments, part) in [
        (&["--workers", "a", "-c", "SELECT 1"][..], "'a' is no address of a worker"),
        (&["--workers", "dns:a", "-c", "SELECT 1"], "dns:NAME:PORT"),
        (&["worker", "--listen", "0.0.0.0:0"], "--insecure"),
        (&["workers", "127.0.0.1:1"], ""),
    ] {
        let run = kelpie(arguments);
        assert!(run.code == Some(1) && run.err.contains(part), "{arguments:?}: {}", run.err);
    }
}

#[test]
fn explain_shows_stages_and_what_they_did() {
    let (data, (_workers, addresses)) = (data(Workload::Ssb), started(2, &["--device", "cpu"]));
    let (_, sql) = Workload::Ssb.queries().remove(3);
    let session =
        ["--data", path(data.path()), "--device", "cpu", "--workers", &addresses, "--set", SHARED_OUT];
    let explained = |how: &str| {
        let run = kelpie(&[&session[..], &["-c", &format!("{how} {sql}")]].concat());
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.out
    };
    let plan = explained("EXPLAIN");
    for part in ["ClusterExec: workers=2", "[Stage 1]", "StageExec: compiled by its worker", "KelpieExec"] {
        assert!(plan.contains(part), "{part}:\n{plan}");
    }
    let plan = explained("EXPLAIN ANALYZE");
    for part in ["Stage 1", "tasks=2", "compiled_parts=", "bytes_transferred=", "output_rows="] {
        assert!(plan.contains(part), "{part}:\n{plan}");
    }
    let run = kelpie(&[
        "--data",
        path(data.path()),
        "--workers",
        &addresses,
        "-c",
        "EXPLAIN SELECT s_region, count(*) FROM supplier GROUP BY 1",
    ]);
    assert!(run.out.contains("not distributed: its tables are too small"), "{}{}", run.out, run.err);
}
