//! TPC-H and SSB give the same answers however data moves: every macro model under every micro model, block sizes from a
//! thousand rows on, and less device memory than data.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

mod common;

use common::{check, check_shapes, check_ssb, data, session};
use kelpie_workloads::Workload;
use tempfile::TempDir;

/// Both benchmarks compiled as a whole.
async fn check_both(tpch: &TempDir, ssb: &TempDir, scale: f64, settings: &[(&str, &str)]) {
    check_tpch(tpch, scale, settings).await;
    check_ssb(ssb, &with_deny(settings)).await;
}

async fn check_tpch(data: &TempDir, scale: f64, settings: &[(&str, &str)]) {
    let session = session(data, &with_deny(settings)).await;
    check(&session, scale, 1..=22, &format!("{settings:?}")).await;
}

fn with_deny<'a>(settings: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [("kelpie.fallback", "deny")].into_iter().chain(settings.iter().copied()).collect()
}

const MICRO_MODELS: [&str; 4] = ["operator_at_a_time", "multi_pass", "pipelined", "resolution"];
const MACRO_MODELS: [&str; 3] = ["run_to_finish", "kernel_at_a_time", "batch"];

#[tokio::test(flavor = "multi_thread")]
async fn every_micro_model_under_every_macro_model() {
    let (tpch, ssb) = (data(Workload::Tpch, 0.01), data(Workload::Ssb, 0.01));
    for micro_model in MICRO_MODELS {
        for macro_model in MACRO_MODELS {
            let settings = [
                ("kelpie.device", "cpu"),
                ("kelpie.micro_model", micro_model),
                ("kelpie.macro_model", macro_model),
                ("kelpie.block_bytes", "64KB"),
            ];
            check_both(&tpch, &ssb, 0.01, &settings).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_a_row_group_and_of_a_megabyte() {
    let (tpch, ssb) = (data(Workload::Tpch, 0.1), data(Workload::Ssb, 0.1));
    // A row group has about a million rows of at most eight bytes.
    for (transfer, block_bytes) in [("copy", "8MB"), ("copy", "1MB"), ("zero_copy", "1MB")] {
        let settings = [
            ("kelpie.device", "cpu"),
            ("kelpie.macro_model", "batch"),
            ("kelpie.transfer", transfer),
            ("kelpie.block_bytes", block_bytes),
        ];
        check_both(&tpch, &ssb, 0.1, &settings).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_under_other_micro_models() {
    let shapes = data(Workload::Shapes, 0.001);
    for model in ["operator_at_a_time", "multi_pass", "pipelined"] {
        check_shapes(&shapes, &[("kelpie.device", "cpu"), ("kelpie.micro_model", model)]).await;
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
