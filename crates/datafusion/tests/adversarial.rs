//! Generated queries over extremes, with expressions that fail as keys of everything: see `testing::adversarial` for the
//! rule by which answers are compared.
//!
//! `cargo run -p xtask -- fuzz --generator adversarial --queries N --seed S` runs any number of them, each few seeds in a
//! process of their own.

use std::ops::Range;
use std::sync::Arc;

use kelpie_datafusion::testing::{Conditions, FuzzReport, QUERIES_A_SEED, Size, fuzz_adversarial, has_cuda};
use kelpie_engine::Engine;

/// Half of all run as one partition and half as four, where exchanges stand between operators.
fn partitions(number: u64) -> (&'static str, &'static str) {
    ("datafusion.execution.target_partitions", if number.is_multiple_of(2) { "4" } else { "1" })
}

/// Runs the queries of some seeds and fails with every query that differs.
async fn agree(seeds: Range<u64>, size: Size, settings: &[(&str, &str)]) {
    agree_forced(seeds, size, settings, 0).await;
}

/// The same, each query also under so many random genomes.
async fn agree_forced(seeds: Range<u64>, size: Size, settings: &[(&str, &str)], genomes: usize) {
    let engine = Arc::new(Engine::default());
    let mut report = FuzzReport::default();
    for seed in seeds.clone() {
        let settings = [settings, &[partitions(seed)]].concat();
        let conditions = Conditions { settings: &settings, genomes };
        let found = fuzz_adversarial(seed, 0..QUERIES_A_SEED, size, conditions, &engine, &|_, _, _| {});
        report.merge(found.await.unwrap());
    }
    println!("seeds {seeds:?}, {settings:?}: {}", report.counts());
    assert!(report.different.is_empty(), "{report}");
    let run = report.run();
    assert!(report.compiled_percent() >= 50.0, "too few queries are compiled as a whole: {report}");
    assert!(report.both_failed * 4 <= run, "too many queries fail: {report}");
    assert!(report.only_plain_failed * 20 <= run, "DataFusion alone fails too often: {report}");
    assert!(report.only_reordered_failed * 100 <= run, "Kelpie's order of joins fails too often: {report}");
    assert!(report.answered_by_plain * 100 <= run, "kernels alone fail too often: {report}");
    assert!(report.contradictions * 100 <= run, "DataFusion contradicts itself too often: {report}");
    assert!(report.plain_panicked * 50 <= run, "DataFusion panics too often: {report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu() {
    agree(1..7, Size::Normal, &[("kelpie.device", "cpu")]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu_pipelined() {
    agree(7..10, Size::Normal, &[("kelpie.device", "cpu"), ("kelpie.micro_model", "pipelined")]).await;
}

/// The interpreter checks every access.
#[tokio::test(flavor = "multi_thread")]
async fn simt() {
    agree(10..12, Size::Small, &[("kelpie.device", "simt")]).await;
}

/// Whatever variants are forced.
#[tokio::test(flavor = "multi_thread")]
async fn forced() {
    agree_forced(20..22, Size::Small, &[("kelpie.device", "cpu")], 2).await;
    agree_forced(22..23, Size::Small, &[("kelpie.device", "simt")], 1).await;
}

/// Where there is a GPU; `KELPIE_REQUIRE=cuda` makes its absence an error.
#[tokio::test(flavor = "multi_thread")]
async fn cuda() {
    if has_cuda(&Engine::default()) {
        agree(12..16, Size::Normal, &[("kelpie.device", "cuda")]).await;
    }
}

/// Many more, from the environment: `KELPIE_FUZZ_SEEDS=100..110 cargo test --test sql adversarial -- --ignored`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: .ci/run runs it"]
async fn more_seeds() {
    let seeds = std::env::var("KELPIE_FUZZ_SEEDS").unwrap_or("100..120".into());
    let (first, last) = seeds.split_once("..").expect("FIRST..LAST");
    let seeds = first.parse().unwrap()..last.parse().unwrap();
    agree(seeds.clone(), Size::Normal, &[("kelpie.device", "cpu")]).await;
    agree(seeds, Size::Small, &[("kelpie.device", "simt")]).await;
}
