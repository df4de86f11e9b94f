//! Sessions with tables, and statements that become plans and come back.

use std::path::{Path, PathBuf};

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ParamValues;
use datafusion::error::{DataFusionError, Result};
use kelpie_session::{AddedPlan, KelpieSession, QueryResult, SessionOptions, Stage, message};
use kelpie_substrait::Form;
use kelpie_workloads::{GenerateOptions, Workload};
use tempfile::TempDir;

pub fn session() -> KelpieSession {
    let options = SessionOptions::default().with("kelpie.device", "cpu").with("kelpie.min_rows", "0");
    KelpieSession::new(options).unwrap()
}

/// A session with the tables `t` (k, x, name) and `d` (k, label).
pub async fn with_tables() -> KelpieSession {
    let session = session();
    for sql in [
        "CREATE TABLE t AS SELECT * FROM (VALUES (1, 1.5, 'ä'), (2, 2.5, NULL), (3, NULL, 'b'), (1, 4.0, 'b'), \
         (NULL, 0.5, 'c')) AS v(k, x, name)",
        "CREATE TABLE d AS SELECT * FROM (VALUES (1, 'one'), (2, 'two'), (4, 'four')) AS v(k, label)",
    ] {
        session.sql(sql).await.unwrap();
    }
    session
}

/// The data of a workload at scale 0.01, and a session over it.
pub async fn with_workload(workload: Workload) -> (TempDir, KelpieSession) {
    let folder = tempfile::tempdir().unwrap();
    let options = GenerateOptions {
        scale: 0.01,
        output: folder.path(),
        tables: &[],
        threads: 2,
        replace: false,
        progress: &|_| {},
    };
    workload.generate(&options).unwrap();
    let session = session();
    session.register_data(folder.path()).await.unwrap();
    (folder, session)
}

/// Names of columns and rows.
pub fn text(result: &QueryResult) -> String {
    let names = result.schema.fields().iter().map(|field| field.name().as_str());
    let rows = pretty_format_batches(&result.batches).unwrap();
    format!("{}\n{rows}", names.collect::<Vec<_>>().join("|"))
}

/// A file with a plan in it, and the folder that it is in.
pub struct PlanFile {
    _folder: TempDir,
    pub path: PathBuf,
}

pub fn file(name: &str, bytes: &[u8]) -> PlanFile {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    PlanFile { _folder: folder, path }
}

/// What a plan answers; an error names the file, as the program's do.
pub async fn answer(session: &KelpieSession, path: &Path) -> Result<String> {
    let added = kelpie_substrait::add_file(session, path).await?;
    let answer = session.sql(&added.statement()).await.map(|result| text(&result));
    session.remove_plan(added).await.unwrap();
    answer.map_err(|error| error.context(path.display().to_string()))
}

/// What plans in either form answer that a statement is written as.
pub async fn there_and_back(session: &KelpieSession, sql: &str) -> Result<String> {
    let mut answers = Vec::new();
    for (form, name) in [(Form::Binary, "plan.bin"), (Form::Json, "plan.json")] {
        assert_eq!(Form::of(Path::new(name)), form);
        let file = file(name, &kelpie_substrait::write(session, sql, form).await?);
        answers.push(answer(session, &file.path).await?);
    }
    assert_eq!(answers[0], answers[1], "{sql}");
    Ok(answers.remove(0))
}

/// Whether a statement is compiled as a whole.
pub async fn is_compiled(session: &KelpieSession, sql: &str) -> bool {
    session.explain(sql, Stage::Plan).await.unwrap().starts_with("KelpieExec")
}

pub async fn add(session: &KelpieSession, path: &Path) -> AddedPlan {
    kelpie_substrait::add_file(session, path).await.unwrap()
}

/// The message of what must be an error.
pub fn error<T: std::fmt::Debug>(result: Result<T, DataFusionError>) -> String {
    message(&result.unwrap_err())
}

/// The rows of a plan that came as bytes.
pub async fn rows_of(
    session: &KelpieSession,
    bytes: Vec<u8>,
    parameters: Option<ParamValues>,
) -> Result<String> {
    let mut query = kelpie_substrait::plan(session, bytes, parameters).await?.start()?;
    let mut batches = Vec::new();
    while let Some(batch) = query.next().await? {
        batches.push(batch);
    }
    Ok(pretty_format_batches(&batches)?.to_string())
}
