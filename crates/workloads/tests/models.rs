//! TPC-H and SSB give the same answers however data moves: every macro model under every micro model, block sizes from a
//! thousand rows on, and less device memory than data.

use kelpie_session::testing::Settings;
use kelpie_session::testing::sample::is_whole;
use kelpie_workloads::Workload;

use super::common::Matrix;

const CPU: (&str, &str) = ("kelpie.device", "cpu");
const MICRO_MODELS: [&str; 4] = ["operator_at_a_time", "multi_pass", "pipelined", "resolution"];
const MACRO_MODELS: [&str; 3] = ["run_to_finish", "kernel_at_a_time", "batch"];

fn micro_under_macro_models() -> Vec<Settings> {
    let under = |macro_model| {
        let settings = move |micro_model| {
            let models = [("kelpie.micro_model", micro_model), ("kelpie.macro_model", macro_model)];
            vec![CPU, models[0], models[1], ("kelpie.block_bytes", "64KB")]
        };
        MICRO_MODELS.map(settings)
    };
    MACRO_MODELS.into_iter().flat_map(under).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_under_every_macro_model() {
    Matrix::new("TPC-H under macro models", Workload::Tpch, 0.01, micro_under_macro_models()).check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_under_every_macro_model() {
    Matrix::new("SSB under macro models", Workload::Ssb, 0.01, micro_under_macro_models()).check().await;
}

/// A row group has about a million rows of at most eight bytes.
fn blocks_of_a_row_group_and_of_a_megabyte() -> Vec<Settings> {
    let settings = |(transfer, block_bytes)| {
        let moved = [("kelpie.transfer", transfer), ("kelpie.block_bytes", block_bytes)];
        vec![CPU, ("kelpie.macro_model", "batch"), moved[0], moved[1]]
    };
    [("copy", "8MB"), ("copy", "1MB"), ("zero_copy", "1MB")].map(settings).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_in_blocks_and_less_memory_than_data() {
    let mut all = blocks_of_a_row_group_and_of_a_megabyte();
    all.extend(["16MB", "6MB"].map(|limit| vec![CPU, ("kelpie.memory_limit", limit)]));
    Matrix::new("TPC-H in blocks", Workload::Tpch, 0.1, all).check().await;
    // The data take a minute to make.
    if is_whole() {
        let little = vec![vec![CPU, ("kelpie.memory_limit", "64MB")]];
        Matrix::new("TPC-H in 64 MB", Workload::Tpch, 1.0, little).check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_in_blocks() {
    Matrix::new("SSB in blocks", Workload::Ssb, 0.1, blocks_of_a_row_group_and_of_a_megabyte()).check().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_under_other_micro_models() {
    let all = MICRO_MODELS.into_iter().filter(|model| *model != "resolution");
    let all = all.map(|model| vec![CPU, ("kelpie.micro_model", model)]).collect();
    let mut matrix = Matrix::new("shapes under micro models", Workload::Shapes, 0.001, all);
    matrix.rounds = 2;
    matrix.check().await;
}
