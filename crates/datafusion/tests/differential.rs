//! Generated queries: Kelpie's answers are DataFusion's, on every device and under every micro model.

#![expect(clippy::unwrap_used, reason = "a test fails where its helpers do")]

use kelpie_datafusion::testing::fuzz;

/// Runs queries of a seed and fails with every query that differs.
async fn agree(queries: usize, seed: u64, settings: &[(&str, &str)]) {
    let report = fuzz(queries, seed, settings).await.unwrap();
    println!("seed {seed}, {settings:?}: {report}");
    assert!(report.different.is_empty(), "{report}");
    assert!(report.compiled * 10 >= report.equal * 6, "too few queries are compiled as a whole: {report}");
    assert!(report.only_plain_failed * 50 <= queries, "DataFusion alone fails too often: {report}");
    assert!(report.both_failed * 5 <= queries, "too many queries fail: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_resolution() {
    agree(220, 1, &[("kelpie.device", "cpu"), ("kelpie.micro_model", "resolution")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_pipelined() {
    agree(220, 2, &[("kelpie.device", "cpu"), ("kelpie.micro_model", "pipelined")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simt_resolution() {
    let device = [("kelpie.device", "simt"), ("kelpie.simt_lanes", "8")];
    agree(100, 3, &[device[0], device[1], ("kelpie.micro_model", "resolution")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simt_pipelined() {
    agree(100, 4, &[("kelpie.device", "simt"), ("kelpie.micro_model", "pipelined")]).await;
}

/// Many more, from the environment: `KELPIE_FUZZ_SEEDS=100..110 cargo test --test differential -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn more_seeds() {
    let seeds = std::env::var("KELPIE_FUZZ_SEEDS").unwrap_or("100..104".into());
    let (first, last) = seeds.split_once("..").expect("FIRST..LAST");
    for seed in first.parse().unwrap()..last.parse().unwrap() {
        agree(200, seed, &[("kelpie.device", "cpu")]).await;
    }
}
