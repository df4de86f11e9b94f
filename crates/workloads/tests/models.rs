//! TPC-H and SSB give the same answers however data moves: every macro model under every micro model, block sizes from a
//! thousand rows on, and less device memory than data.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::{GenerateOptions, Workload, ssb, tpch};
use tempfile::TempDir;

fn data(workload: Workload, scale: f64) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        scale,
        output: folder.path(),
        tables: &[],
        threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    folder
}

async fn session(data: &TempDir, settings: &[(&str, &str)]) -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.fallback", "deny");
    let options = settings.iter().fold(options, |options, (name, value)| options.with(*name, *value));
    let session = KelpieSession::new(options).unwrap();
    session.register_dir(data.path()).await.unwrap();
    session
}

async fn check_tpch(data: &TempDir, scale: f64, settings: &[(&str, &str)]) {
    let session = session(data, settings).await;
    for (index, sql) in tpch::QUERIES.iter().enumerate() {
        let query = index + 1;
        let result = session.sql(sql).await;
        let result = result.unwrap_or_else(|error| panic!("query {query}, {settings:?}: {error}"));
        if let Err(difference) = tpch::check_answer(scale, query, &result.batches) {
            panic!("query {query}, {settings:?}: {difference}");
        }
    }
}

/// The answers to SSB, as text.
async fn ssb_answers(data: &TempDir, settings: &[(&str, &str)]) -> Vec<String> {
    let session = session(data, settings).await;
    let mut answers = Vec::new();
    for (name, sql) in ssb::QUERIES {
        let result = session.sql(sql).await;
        let result = result.unwrap_or_else(|error| panic!("{name}, {settings:?}: {error}"));
        answers.push(pretty_format_batches(&result.batches).unwrap().to_string());
    }
    answers
}

const MICRO_MODELS: [&str; 4] = ["operator_at_a_time", "multi_pass", "pipelined", "resolution"];
const MACRO_MODELS: [&str; 3] = ["run_to_finish", "kernel_at_a_time", "batch"];

#[tokio::test(flavor = "multi_thread")]
async fn every_micro_model_under_every_macro_model() {
    let (tpch, ssb) = (data(Workload::Tpch, 0.01), data(Workload::Ssb, 0.01));
    let expected = ssb_answers(&ssb, &[("kelpie.device", "cpu")]).await;
    for micro_model in MICRO_MODELS {
        for macro_model in MACRO_MODELS {
            let settings = [
                ("kelpie.device", "cpu"),
                ("kelpie.micro_model", micro_model),
                ("kelpie.macro_model", macro_model),
                ("kelpie.block_bytes", "64KB"),
            ];
            check_tpch(&tpch, 0.01, &settings).await;
            assert!(ssb_answers(&ssb, &settings).await == expected, "{settings:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_a_row_group_and_of_a_megabyte() {
    let (tpch, ssb) = (data(Workload::Tpch, 0.1), data(Workload::Ssb, 0.1));
    let expected = ssb_answers(&ssb, &[("kelpie.device", "cpu")]).await;
    // A row group has about a million rows of at most eight bytes.
    for (transfer, block_bytes) in [("copy", "8MB"), ("copy", "1MB"), ("zero_copy", "1MB")] {
        let settings = [
            ("kelpie.device", "cpu"),
            ("kelpie.macro_model", "batch"),
            ("kelpie.transfer", transfer),
            ("kelpie.block_bytes", block_bytes),
        ];
        check_tpch(&tpch, 0.1, &settings).await;
        assert!(ssb_answers(&ssb, &settings).await == expected, "{settings:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn less_device_memory_than_data() {
    let tpch = data(Workload::Tpch, 0.1);
    for limit in ["16MB", "6MB"] {
        check_tpch(&tpch, 0.1, &[("kelpie.device", "cpu"), ("kelpie.memory_limit", limit)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes 9 million rows, which takes a minute: .ci/run runs it"]
async fn scale_1_in_64_megabytes() {
    let tpch = data(Workload::Tpch, 1.0);
    check_tpch(&tpch, 1.0, &[("kelpie.device", "cpu"), ("kelpie.memory_limit", "64MB")]).await;
}
