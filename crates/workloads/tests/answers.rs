//! TPC-H through Kelpie gives the reference answers, on every device that is there and under every micro model.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, tpch};
use tempfile::TempDir;

/// Queries that are compiled as a whole.
const COMPILED: [usize; 2] = [1, 6];

fn data(scale: f64, tables: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
    let options = GenerateOptions {
        scale,
        output: folder.path(),
        tables: &tables,
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        replace: false,
        progress: &|_| {},
    };
    Workload::Tpch.generate(&options).unwrap();
    folder
}

async fn session(data: &TempDir, settings: &[(&str, &str)]) -> KelpieSession {
    let options = settings.iter().fold(SessionOptions::default(), |o, (name, value)| o.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(data.path()).await.unwrap();
    session
}

/// Runs queries and compares their answers.
async fn check(session: &KelpieSession, scale: f64, queries: impl IntoIterator<Item = usize>, what: &str) {
    for query in queries {
        let result = session.sql(tpch::QUERIES[query - 1]).await;
        let result = result.unwrap_or_else(|error| panic!("query {query}, {what}: {error}"));
        if let Err(difference) = tpch::check_answer(scale, query, &result.batches) {
            panic!("query {query}, {what}: {difference}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_at_scale_0_01_on_the_cpu() {
    let data = data(0.01, &[]);
    let session = session(&data, &[("kelpie.device", "cpu")]).await;
    check(&session, 0.01, 1..=22, "cpu").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_queries_at_scale_0_01_everywhere() {
    let data = data(0.01, &["lineitem"]);
    let mut devices = vec![("cpu", "32"), ("simt", "32"), ("simt", "4")];
    let devices_here = KelpieSession::new(SessionOptions::default()).unwrap().engine().devices();
    if devices_here.iter().any(|(kind, device)| format!("{kind:?}") == "Cuda" && device.is_ok()) {
        devices.push(("cuda", "32"));
    }
    for (device, lanes) in devices {
        for model in ["pipelined", "resolution"] {
            let settings = [
                ("kelpie.device", device),
                ("kelpie.simt_lanes", lanes),
                ("kelpie.micro_model", model),
                ("kelpie.fallback", "deny"),
            ];
            let session = session(&data, &settings).await;
            check(&session, 0.01, COMPILED, &format!("{device}, {lanes} lanes, {model}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn compiled_queries_at_scale_0_1_on_the_cpu() {
    let data = data(0.1, &["lineitem"]);
    let session = session(&data, &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")]).await;
    check(&session, 0.1, COMPILED, "cpu").await;
    // The columns are cached now.
    check(&session, 0.1, COMPILED, "cpu, again").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes 6 million rows, which takes half a minute: .ci/run runs it"]
async fn compiled_queries_at_scale_1_on_the_cpu() {
    let data = data(1.0, &["lineitem"]);
    let session = session(&data, &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")]).await;
    check(&session, 1.0, COMPILED, "cpu").await;
}
