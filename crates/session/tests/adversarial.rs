//! Generated queries over extremes, with expressions that fail as keys of everything: see `testing::adversarial` for the
//! rule by which answers are compared.
//!
//! `cargo run -p xtask -- fuzz --generator adversarial --queries N --seed S` runs any number of them, each few seeds in a
//! process of their own.

use kelpie_engine::Engine;
use kelpie_session::testing::sample::is_whole;
use kelpie_session::testing::{Generator, Piece, Scale, has_cuda};

use super::differential::{agree, seeds};

const NORMAL: Generator = Generator::Adversarial(Scale::Normal);
const SMALL: Generator = Generator::Adversarial(Scale::Small);
const CPU: (&str, &str) = ("kelpie.device", "cpu");
const SIMT: (&str, &str) = ("kelpie.device", "simt");

/// Runs at most so many of the pieces, and fails with every query that differs; of all together more may be said.
async fn adversarial_agree(name: &str, pieces: Vec<Piece>, most: usize) {
    let report = agree(name, pieces, most).await;
    if !is_whole() {
        return;
    }
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
async fn on_the_cpu() {
    let mut pieces = seeds(NORMAL, 1..7, &[CPU]);
    pieces.extend(seeds(NORMAL, 7..10, &[CPU, ("kelpie.micro_model", "pipelined")]));
    pieces.extend(seeds(NORMAL, 100..120, &[CPU]));
    adversarial_agree("adversarial on the CPU", pieces, 4).await;
}

/// The interpreter checks every access.
#[tokio::test(flavor = "multi_thread")]
async fn on_the_interpreter() {
    let mut pieces = seeds(SMALL, 10..12, &[SIMT]);
    pieces.extend(seeds(SMALL, 100..120, &[SIMT]));
    adversarial_agree("adversarial on the interpreter", pieces, 4).await;
}

/// Whatever variants are forced.
#[tokio::test(flavor = "multi_thread")]
async fn forced() {
    let mut pieces = seeds(SMALL, 20..22, &[CPU]);
    pieces.iter_mut().for_each(|piece| piece.genomes = 2);
    let simt = seeds(SMALL, 22..23, &[SIMT]);
    pieces.extend(simt.into_iter().map(|piece| Piece { genomes: 1, ..piece }));
    adversarial_agree("adversarial with variants forced", pieces, 3).await;
}

/// Where there is a GPU; `KELPIE_REQUIRE=cuda` makes its absence an error.
#[tokio::test(flavor = "multi_thread")]
async fn cuda() {
    if has_cuda(&Engine::default()) {
        let pieces = seeds(NORMAL, 12..16, &[("kelpie.device", "cuda"), ("kelpie.handover", "off")]);
        adversarial_agree("adversarial on a GPU", pieces, 4).await;
    }
}
