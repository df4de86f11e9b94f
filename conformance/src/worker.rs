//! The child: runs files and tells what came of them.

use std::io::{BufRead, Write};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use anyhow::{Result, anyhow};
use datafusion_sqllogictest::{DFColumnType, df_value_validator, setup_scratch_dir, value_normalizer};
use futures::FutureExt;
use kelpie_engine::Engine;
use sqllogictest::{Location, Record, Runner, parse_file, strict_column_validator};

use crate::answer::{Answer, Compiled};
use crate::compare::difference;
use crate::database::{Database, Last};
use crate::files::in_folder;
use crate::message::{Difference, FileReport, Message, Place};
use crate::session::Session;

/// Partitions of the sessions.
const PARTITIONS: [usize; 2] = [1, 4];

/// The label by which the files know their runner.
const LABEL: &str = "Datafusion";

/// A statement in one session.
struct Observed {
    place: Place,
    sql: String,
    /// Whether it gave what the file expects.
    passed: bool,
    answer: Answer,
    compiled: Compiled,
}

/// Runs the files whose paths come line by line, until no more come.
pub fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    for line in std::io::stdin().lock().lines() {
        let file = PathBuf::from(line?);
        let report = runtime.block_on(run(&file))?;
        tell(&Message::Done(report))?;
    }
    Ok(())
}

fn tell(message: &Message) -> Result<()> {
    let mut output = std::io::stdout().lock();
    serde_json::to_writer(&mut output, message)?;
    writeln!(output)?;
    Ok(output.flush()?)
}

/// One file with all numbers of partitions.
async fn run(file: &Path) -> Result<FileReport> {
    let mut report = FileReport::default();
    // One engine: what it keeps of one session must not show in another.
    let engine = Arc::new(Engine::new());
    for partitions in PARTITIONS {
        let start = Instant::now();
        let plain = observe(file, partitions, None).await?;
        report.seconds[0] += start.elapsed().as_secs_f64();
        let start = Instant::now();
        let kelpie = observe(file, partitions, Some(&engine)).await?;
        report.seconds[1] += start.elapsed().as_secs_f64();
        if plain.len() != kelpie.len() {
            return Err(anyhow!("{} statements and {} with Kelpie", plain.len(), kelpie.len()));
        }
        plain.into_iter().zip(kelpie).for_each(|(plain, kelpie)| add(&mut report, plain, kelpie));
    }
    Ok(report)
}

fn add(report: &mut FileReport, plain: Observed, kelpie: Observed) {
    report.counts.statements += 1;
    report.files.insert(plain.place.file.clone());
    if let (false, Answer::Failed(error) | Answer::Panicked(error)) = (plain.passed, &plain.answer) {
        report.counts.not_counted += 1;
        report.not_counted.push(Difference { place: plain.place, sql: plain.sql, how: error.clone() });
        return;
    }
    report.counts.compared += 1;
    let has_rows = matches!(&plain.answer, Answer::Rows { rows, .. } if !rows.is_empty());
    report.counts.with_rows += usize::from(has_rows);
    report.counts.compiled += usize::from(kelpie.compiled.any);
    report.counts.whole += usize::from(kelpie.compiled.whole);
    report.counts.fell_back += usize::from(kelpie.compiled.fell_back);
    let failed =
        kelpie.compiled.failed.map(|error| format!("fails in Kelpie, and not in DataFusion: {error}"));
    let how = difference(&kelpie.sql, &plain.answer, &kelpie.answer, kelpie.passed).or(failed);
    if let Some(how) = how {
        report.differences.push(Difference { place: kelpie.place, sql: kelpie.sql, how });
    }
}

/// The statements of a file in a session of its own. Those that fail do not end it.
async fn observe(file: &Path, partitions: usize, engine: Option<&Arc<Engine>>) -> Result<Vec<Observed>> {
    setup_scratch_dir(file)?;
    let Some(session) = Session::new(file, partitions, engine).await? else { return Ok(Vec::new()) };
    let last = Last::default();
    let mut runner = Runner::new(|| {
        let database = Database::new(session.context.clone(), file.to_path_buf(), Arc::clone(&last));
        async { Ok(database) }
    });
    runner.add_label(LABEL);
    runner.with_column_validator(strict_column_validator);
    runner.with_normalizer(value_normalizer);
    runner.with_validator(df_value_validator);
    let records = parse_file::<DFColumnType>(in_folder(file)).map_err(|error| anyhow!("{error}"))?;
    let mut observed = Vec::new();
    for record in records {
        if matches!(record, Record::Halt { .. }) {
            break;
        }
        let Some((location, sql)) = statement(&record) else {
            // Controls, sleeps, commands of the shell: no statement hangs on whether they succeed.
            let _ = runner.run_async(record).await;
            continue;
        };
        let (file, line) = (location.file().to_string(), location.line());
        let file = name_of(&file);
        let (sql, place) = (sql.clone(), Place { file, line, partitions, kelpie: engine.is_some() });
        tell(&Message::At(place.clone()))?;
        let ran = AssertUnwindSafe(runner.run_async(record)).catch_unwind().await;
        let passed = matches!(ran, Ok(Ok(_)));
        let taken = last.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (answer, compiled) = match (ran, taken) {
            (Err(panic), _) => (Answer::Panicked(text_of(panic.as_ref())), Compiled::default()),
            (Ok(_), Some(found)) => found,
            // Its condition leaves it out.
            (Ok(_), None) => continue,
        };
        observed.push(Observed { place, sql, passed, answer, compiled });
    }
    Ok(observed)
}

/// A file's path from the folder of test files; those that are included begin with where the including one is.
fn name_of(path: &str) -> String {
    let path = path.replace("/./", "/");
    path.strip_prefix("test_files/").unwrap_or(&path).to_string()
}

fn statement(record: &Record<DFColumnType>) -> Option<(Location, &String)> {
    match record {
        Record::Statement { loc, sql, .. }
        | Record::Query { loc, sql, .. }
        | Record::Let { loc, sql, .. } => Some((loc.clone(), sql)),
        _ => None,
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message").to_string()
}
