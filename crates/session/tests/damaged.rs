//! Files that lie about places, sizes and counts: an answer, or an error that names the file; never a panic or the end of the process.

use std::fs;
use std::sync::Arc;

use kelpie_engine::Engine;
use kelpie_session::testing::{
    damage_and_query, footer_of, integers, replace_integer, side_by_side, sound_files,
};
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// `cargo run -p xtask -- damage` runs any number.
const CASES: u64 = 120;

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_give_answers_or_errors_that_name_them() {
    let engine = Arc::new(Engine::default());
    let run = |first| {
        let engine = Arc::clone(&engine);
        async move {
            let folder = TempDir::new().unwrap();
            damage_and_query(first..(first + 20).min(CASES), folder.path(), &engine, |_, _| {}).await.unwrap()
        }
    };
    let reports = side_by_side((0..CASES).step_by(20).map(run)).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_file_is_called_so() {
    let folder = TempDir::new().unwrap();
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    let path = folder.path().join("t.parquet");
    fs::write(&path, b"PAREwhat nobody can read\x08\0\0\0PARE").unwrap();
    let error = session.sql(&format!("select * from '{}'", path.display())).await.unwrap_err().to_string();
    assert!(error.contains("t.parquet: an encrypted Parquet file, which is not read"), "{error}");
}

/// Tables that statements create are those of files too.
#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_are_no_external_tables() {
    let folder = TempDir::new().unwrap();
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.device", "cpu")).unwrap();
    for file in sound_files().unwrap().iter().filter(|file| file.extension == "parquet") {
        let footer = footer_of(file);
        let places = integers(&file.bytes[footer.clone()]);
        // The last integers of a footer are of its last columns.
        for place in places.iter().rev().step_by(7).take(12) {
            let mut bytes = file.bytes.clone();
            replace_integer(&mut bytes, &footer, place, 1 << 62);
            let path = folder.path().join("damaged.parquet");
            fs::write(&path, bytes).unwrap();
            for location in [path.as_path(), folder.path()] {
                let sql =
                    format!("create external table t stored as parquet location '{}'", location.display());
                match session.sql(&sql).await {
                    Ok(_) => drop(session.sql("drop table t").await.unwrap()),
                    Err(error) => assert!(error.to_string().contains("damaged.parquet"), "{sql}: {error}"),
                }
            }
        }
    }
}
