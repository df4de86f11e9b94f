//! Files that lie about places, sizes and counts: an answer, or an error that names the file; never a panic or the end of the process.

use std::sync::Arc;

use kelpie_engine::Engine;
use kelpie_session::testing::{damage_and_query, side_by_side};
use tempfile::TempDir;

/// `cargo run -p xtask -- damage` runs any number.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_give_answers_or_errors_that_name_them() {
    let cases: u64 = std::env::var("KELPIE_DAMAGED").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    let engine = Arc::new(Engine::default());
    let run = |first| {
        let engine = Arc::clone(&engine);
        async move {
            let folder = TempDir::new().unwrap();
            damage_and_query(first..(first + 20).min(cases), folder.path(), &engine, |_, _| {}).await.unwrap()
        }
    };
    let reports = side_by_side((0..cases).step_by(20).map(run)).await;
    let problems: Vec<String> = reports.iter().flat_map(|report| report.problems.clone()).collect();
    let answers: usize = reports.iter().map(|report| report.answers).sum();
    let errors: usize = reports.iter().map(|report| report.errors).sum();
    assert!(
        problems.is_empty(),
        "{} of {answers} answers and {errors} errors:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(answers > 0 && errors > 0);
}
