//! TPC-H, SSB and the shapes through Kelpie, compiled as a whole: TPC-H gives the reference answers, the others those of DataFusion's
//! own operators, on every device that is there and under every micro model; the shapes not on the interpreter, whose dimensions are
//! too large for it.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

mod common;

use common::{check, check_shapes, check_ssb, data, session};
use kelpie_datafusion::{KelpieSession, SessionOptions};
use kelpie_workloads::Workload;

fn has_gpu() -> bool {
    let session = KelpieSession::new(SessionOptions::default()).unwrap();
    kelpie_datafusion::testing::has_cuda(session.engine())
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_at_scale_0_01_everywhere() {
    let data = data(Workload::Tpch, 0.01);
    let mut devices = vec![("cpu", "resolution"), ("cpu", "pipelined"), ("simt", "resolution")];
    if has_gpu() {
        devices.extend([("cuda", "resolution"), ("cuda", "pipelined")]);
    }
    for (device, model) in devices {
        let settings =
            [("kelpie.device", device), ("kelpie.micro_model", model), ("kelpie.fallback", "deny")];
        let session = session(&data, &settings).await;
        check(&session, 0.01, 1..=22, &format!("{device}, {model}")).await;
    }
}

/// Every micro model; `resolution` in both of its forms.
const MODELS: [(&str, &str); 5] = [
    ("operator_at_a_time", "simd"),
    ("multi_pass", "simd"),
    ("pipelined", "simd"),
    ("resolution", "simd"),
    ("resolution", "work_efficient"),
];

async fn check_models(device: &str) {
    let (tpch, ssb) = (data(Workload::Tpch, 0.01), data(Workload::Ssb, 0.01));
    for (model, resolution) in MODELS {
        let settings = [
            ("kelpie.device", device),
            ("kelpie.micro_model", model),
            ("kelpie.resolution", resolution),
            ("kelpie.fallback", "deny"),
        ];
        let session = session(&tpch, &settings).await;
        check(&session, 0.01, 1..=22, &format!("{device}, {model}, {resolution}")).await;
        check_ssb(&ssb, &settings).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_under_every_micro_model_on_the_cpu() {
    check_models("cpu").await;
    if has_gpu() {
        check_models("cuda").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the interpreter takes minutes: .ci/run runs it"]
async fn both_under_every_micro_model_on_the_interpreter() {
    check_models("simt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_table_queries_on_four_lanes() {
    let data = data(Workload::Tpch, 0.01);
    for (model, resolution) in MODELS {
        let settings = [
            ("kelpie.device", "simt"),
            ("kelpie.simt_lanes", "4"),
            ("kelpie.micro_model", model),
            ("kelpie.resolution", resolution),
            ("kelpie.fallback", "deny"),
        ];
        let session = session(&data, &settings).await;
        check(&session, 0.01, [1, 6], &format!("4 lanes, {model}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_at_scale_0_1_on_the_cpu() {
    let data = data(Workload::Tpch, 0.1);
    let session = session(&data, &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")]).await;
    check(&session, 0.1, 1..=22, "cpu").await;
    // The columns are cached now, and states have the size that fits.
    check(&session, 0.1, 1..=22, "cpu, again").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_on_datafusion_s_operators() {
    let data = data(Workload::Tpch, 0.01);
    let session = session(&data, &[("kelpie.enabled", "false")]).await;
    check(&session, 0.01, 1..=22, "DataFusion").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_at_scale_0_01_everywhere() {
    let data = data(Workload::Ssb, 0.01);
    check_ssb(&data, &[("kelpie.device", "simt"), ("kelpie.fallback", "deny")]).await;
    if has_gpu() {
        check_ssb(&data, &[("kelpie.device", "cuda"), ("kelpie.fallback", "deny")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ssb_at_scale_0_1_on_the_cpu() {
    let data = data(Workload::Ssb, 0.1);
    for model in ["resolution", "pipelined"] {
        let settings = [("kelpie.device", "cpu"), ("kelpie.micro_model", model), ("kelpie.fallback", "deny")];
        check_ssb(&data, &settings).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_on_cpu_and_gpu() {
    let data = data(Workload::Shapes, 0.002);
    check_shapes(&data, &[("kelpie.device", "cpu"), ("kelpie.fallback", "deny")]).await;
    if has_gpu() {
        check_shapes(&data, &[("kelpie.device", "cuda"), ("kelpie.fallback", "deny")]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes 15 million rows, which takes a minute: .ci/run runs it"]
async fn both_at_scale_1_on_the_cpu() {
    let settings = [("kelpie.device", "cpu"), ("kelpie.fallback", "deny")];
    let tpch = data(Workload::Tpch, 1.0);
    let session = session(&tpch, &settings).await;
    check(&session, 1.0, 1..=22, "cpu").await;
    check_ssb(&data(Workload::Ssb, 1.0), &settings).await;
}
