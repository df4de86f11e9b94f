//! What tests of people's files share.

use std::fs;
use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};
use tempfile::TempDir;

/// On both devices and on DataFusion's operators; large files are cut for several partitions.
pub fn sessions() -> Vec<KelpieSession> {
    [("cpu", "true"), ("simt", "true"), ("cpu", "false")]
        .map(|(device, enabled)| session(device, enabled))
        .into()
}

fn session(device: &str, enabled: &str) -> KelpieSession {
    let options = SessionOptions::default()
        .with("kelpie.device", device)
        .with("kelpie.enabled", enabled)
        .with("datafusion.execution.target_partitions", "3")
        .with("datafusion.optimizer.repartition_file_min_size", "1000");
    KelpieSession::new(options).unwrap()
}

pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), files);
    folder
}

pub fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The rows of an answer, each with its values side by side.
pub async fn rows(session: &KelpieSession, sql: &str) -> Vec<String> {
    let result = session.sql(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = pretty_format_batches(&result.batches).unwrap().to_string();
    let lines = text.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| line.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" "))
        .collect()
}

pub async fn error(session: &KelpieSession, sql: &str) -> String {
    match session.sql(sql).await {
        Ok(_) => panic!("{sql} must fail"),
        Err(error) => error.strip_backtrace(),
    }
}
