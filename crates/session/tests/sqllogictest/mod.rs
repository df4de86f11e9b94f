//! The statements of `tests/slt`: what DataFusion answers, Kelpie answers on every device.
//!
//! The files are written by `scripts` and DataFusion: `KELPIE_SLT_WRITE=1 cargo test --test sql sqllogictest` writes them again; without
//! the variable a file that is not what would be written is an error.
//!
//! The statements of `tests/corrections` are those that DataFusion answers otherwise than SQL: Kelpie gives SQL's answer on every device.
//! Those of `tests/dialect` are SQL of other engines, with DuckDB's answers.

mod database;
mod scripts;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelpie_engine::Engine;
use kelpie_session::testing::sample::{covering, is_whole};
use kelpie_session::testing::{Settings, side_by_side};
use sqllogictest::{DefaultColumnType, Record, Runner, parse_file, strict_column_validator};

use database::{Database, Statistics};
use scripts::{Script, Step};

/// Statements of the folder at least, and its bytes at most.
const STATEMENTS: usize = 1500;
const BYTES: usize = 1 << 20;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/slt")
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|e| e == "slt")).collect();
    files.sort();
    files
}

/// A script with DataFusion's answers, as the text of its file, and the statements that fail.
async fn rendered(script: &Script) -> (String, Vec<String>) {
    let mut plain = Database::plain();
    let mut text =
        format!("# {}\n# Written by tests/sqllogictest; the answers are DataFusion's.\n", script.about);
    let mut failures = Vec::new();
    for step in &script.steps {
        let (sql, ordered) = match step {
            Step::Comment(comment) => {
                write!(text, "\n# {comment}\n").unwrap();
                continue;
            }
            Step::Statement(sql) => (sql, None),
            Step::Query { sql, ordered } => (sql, Some(*ordered)),
        };
        let mut answer = match plain.answer(sql).await {
            Ok(answer) => answer,
            Err(error) => {
                failures.push(format!("{}: {sql}\n{error}", script.name));
                continue;
            }
        };
        let Some(ordered) = ordered else {
            write!(text, "\nstatement ok\n{sql}\n").unwrap();
            continue;
        };
        if !ordered {
            answer.rows.sort_unstable();
        }
        let types: String = answer.types.iter().map(sqllogictest::ColumnType::to_char).collect();
        let sort = if ordered { "nosort" } else { "rowsort" };
        write!(text, "\nquery {types} {sort}\n{sql}\n----\n").unwrap();
        answer.rows.iter().for_each(|row| writeln!(text, "{}", row.join(" ")).unwrap());
    }
    (text, failures)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_files_hold_what_datafusion_answers() {
    let write = std::env::var_os("KELPIE_SLT_WRITE").is_some();
    let (mut statements, mut bytes, mut failures) = (0, 0, Vec::new());
    let rendered = |script: Script| async move {
        let (text, failing) = rendered(&script).await;
        (script, text, failing)
    };
    for (script, text, failing) in side_by_side(scripts::all().into_iter().map(rendered)).await {
        let path = folder().join(format!("{}.slt", script.name));
        failures.extend(failing);
        statements += script.steps.iter().filter(|step| !matches!(step, Step::Comment(_))).count();
        bytes += text.len();
        if write {
            std::fs::write(&path, text).unwrap();
        } else {
            let known = std::fs::read_to_string(&path).unwrap_or_default();
            let differs = known.lines().zip(text.lines()).find(|(a, b)| a != b);
            assert!(known == text, "{}: written differently now: {differs:?}", path.display());
        }
    }
    assert!(failures.is_empty(), "DataFusion fails:\n{}", failures.join("\n"));
    println!("{statements} statements, {bytes} bytes");
    assert!(statements >= STATEMENTS && bytes <= BYTES, "{statements} statements, {bytes} bytes");
}

/// A query, and where it stands.
struct Query {
    file: PathBuf,
    record: usize,
}

/// Runs at most so many queries of all files on a device (and every other statement); where the whole matrix runs, every `step`-th.
async fn holds(name: &str, settings: &[(&'static str, &'static str)], step: usize, most: usize) {
    let files = files_of(&folder());
    let mut queries = Vec::new();
    for file in &files {
        let records = parse_file::<DefaultColumnType>(file).unwrap().into_iter().enumerate();
        let found = records.filter(|(_, record)| matches!(record, Record::Query { .. }));
        queries.extend(found.map(|(record, _)| Query { file: file.clone(), record }));
    }
    let queries = queries.into_iter().enumerate().filter(|(number, _)| (number + 1) % step == 0);
    let queries = covering(name, queries.map(|(_, query)| query), most, |query| vec![query.file.clone()]);
    let (engine, statistics) = (Arc::new(Engine::default()), Arc::new(Statistics::default()));
    let files = files.into_iter().zip(["1", "4"].into_iter().cycle()).map(|(file, partitions)| {
        let records = queries.iter().filter(|query| query.file == file).map(|query| query.record).collect();
        let as_datafusion =
            [("datafusion.execution.target_partitions", partitions), ("kelpie.corrections", "off")];
        let settings = [settings, &as_datafusion].concat();
        failures(file, records, settings, Arc::clone(&engine), Arc::clone(&statistics))
    });
    let failures: Vec<String> = side_by_side(files).await.into_iter().flatten().collect();
    println!("{settings:?}: {statistics}");
    let shown: Vec<&String> = failures.iter().take(10).collect();
    assert!(failures.is_empty(), "{} differ; the first:\n{shown:#?}", failures.len());
    let percent = statistics.compiled_percent();
    assert!(!is_whole() || percent >= 50.0, "too few queries are compiled as a whole: {statistics}");
}

/// What of some queries of a file differs.
async fn failures(
    file: PathBuf,
    queries: Vec<usize>,
    settings: Settings,
    engine: Arc<Engine>,
    statistics: Arc<Statistics>,
) -> Vec<String> {
    let mut runner = Runner::new(|| {
        let database = Database::kelpie(&settings, Arc::clone(&engine), Arc::clone(&statistics));
        async { Ok::<_, database::Failure>(database) }
    });
    runner.with_column_validator(strict_column_validator);
    let mut failures = Vec::new();
    for (number, record) in parse_file::<DefaultColumnType>(&file).unwrap().into_iter().enumerate() {
        if matches!(record, Record::Query { .. }) && !queries.contains(&number) {
            continue;
        }
        if let Err(error) = runner.run_async(record).await {
            failures.push(error.to_string());
        }
    }
    failures
}

#[tokio::test(flavor = "multi_thread")]
async fn cpu() {
    holds("statements on the CPU", &[("kelpie.device", "cpu")], 1, 400).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simt() {
    holds("statements on the interpreter", &[("kelpie.device", "simt")], 4, 100).await;
}

/// Runs all of a folder on a device.
async fn all_of(folder: &str, device: &'static str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let (engine, statistics) = (Arc::new(Engine::default()), Arc::new(Statistics::default()));
    let files = files_of(&folder).into_iter().map(|file| {
        let records = (0..parse_file::<DefaultColumnType>(&file).unwrap().len()).collect();
        failures(file, records, vec![("kelpie.device", device)], Arc::clone(&engine), Arc::clone(&statistics))
    });
    let failures: Vec<String> = side_by_side(files).await.into_iter().flatten().collect();
    println!("{device}: {statistics}");
    assert!(failures.is_empty(), "{} differ:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn corrections_on_the_cpu() {
    all_of("corrections", "cpu").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn corrections_on_the_interpreter() {
    all_of("corrections", "simt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dialect_on_the_cpu() {
    all_of("dialect", "cpu").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dialect_on_the_interpreter() {
    all_of("dialect", "simt").await;
}
