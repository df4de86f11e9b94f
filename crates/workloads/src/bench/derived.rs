//! `kelpie bench derived`: group-bys on expressions that DataFusion evaluates for Kelpie, beside DataFusion's evaluation of the
//! expression alone and beside the same group-by on a plain column of the same values.
//!
//! What runs for the first time runs in a process of its own, which this program starts from itself: with a folder for kernels
//! that is empty, and once more with the kernels that the first run left there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use kelpie_session::{KelpieSession, SessionOptions};
use serde::{Deserialize, Serialize};

use super::Machine;
use super::report::Split;

/// The name of the table.
const TABLE: &str = "derived";
/// Every row of the table is made of a number from 0 on. The factor shuffles the values, so that they repeat everywhere.
const COLUMNS: &str = "
    'https://www.site' || (value * 7919 % 5000) || '.example.org/page/' || value as few_url,
    'http://shop' || (value * 7919 % 200000) || '.example.net/item?id=' || value as many_url,
    'site' || (value * 7919 % 5000) || '.example.org' as few_plain,
    'shop' || (value * 7919 % 200000) || '.example.net' as many_plain,
    1700000000 + value * 7919 % 2592000 as seconds,
    date_trunc('minute', to_timestamp_seconds(1700000000 + value * 7919 % 2592000)) as minute_plain,
    date_bin(interval '7 minutes', to_timestamp_seconds(1700000000 + value * 7919 % 2592000)) as bin_plain";

/// Hot runs at least: they take milliseconds, and differ by more than what is looked for.
const HOT_RUNS: usize = 21;

/// A group-by to measure.
#[derive(Debug, Clone, Copy)]
pub struct DerivedCase {
    /// Its name.
    pub name: &'static str,
    /// What it groups by.
    pub expression: &'static str,
    /// A column of the same values.
    pub plain: &'static str,
    /// What makes one value of all those of the expression, `{}`.
    fold: &'static str,
}

/// Every case.
pub const CASES: [DerivedCase; 4] = [
    DerivedCase {
        name: "few",
        expression: r"regexp_replace(few_url, '^https?://(?:www\.)?([^/]+)/.*$', '\1')",
        plain: "few_plain",
        fold: "max(length({}))",
    },
    DerivedCase {
        name: "many",
        expression: r"regexp_replace(many_url, '^https?://(?:www\.)?([^/]+)/.*$', '\1')",
        plain: "many_plain",
        fold: "max(length({}))",
    },
    DerivedCase {
        name: "minute",
        expression: "date_trunc('minute', to_timestamp_seconds(seconds))",
        plain: "minute_plain",
        fold: "max({})",
    },
    DerivedCase {
        name: "bin",
        expression: "date_bin(interval '7 minutes', to_timestamp_seconds(seconds))",
        plain: "bin_plain",
        fold: "max({})",
    },
];

impl DerivedCase {
    /// The case called `name`.
    pub fn named(name: &str) -> Result<DerivedCase> {
        let names = CASES.map(|case| case.name).join(", ");
        let found = CASES.into_iter().find(|case| case.name == name);
        found.with_context(|| format!("derived has no case `{name}`: its cases are {names}"))
    }

    /// The group-by on a key.
    fn grouped(key: &str) -> String {
        format!("select {key} as k, count(*) as c from {TABLE} group by 1 order by c desc, k limit 10")
    }

    /// The evaluation of the expression alone.
    fn evaluated(&self) -> String {
        format!("select {} from {TABLE}", self.fold.replace("{}", self.expression))
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct DerivedOptions {
    /// The folder that the table is made in where it is not there yet.
    pub data: PathBuf,
    /// Rows of the table.
    pub rows: u64,
    /// Names of cases; all where empty.
    pub cases: Vec<String>,
    /// Measured runs of everything; those that run for the first time have a process each. Hot ones are 21 at least.
    pub runs: usize,
    /// Threads and partitions; as many as there are cores where absent.
    pub threads: Option<usize>,
    /// Settings of Kelpie's session.
    pub settings: Vec<(String, String)>,
    /// The program to start, with the arguments that make it call [`first`] with these options and write the outcome to its
    /// standard output as JSON; the case and what it runs follow.
    pub program: (PathBuf, Vec<String>),
}

/// What a process runs once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Once {
    /// The group-by with Kelpie.
    Kelpie,
    /// DataFusion's evaluation of the expression.
    Evaluation,
}

impl Once {
    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Once::Kelpie => "kelpie",
            Once::Evaluation => "evaluation",
        }
    }
}

impl std::str::FromStr for Once {
    type Err = String;

    fn from_str(name: &str) -> Result<Once, String> {
        let known = [Once::Kelpie, Once::Evaluation].into_iter().find(|once| once.name() == name);
        known.ok_or_else(|| format!("unknown run `{name}`"))
    }
}

/// What came of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FirstRun {
    /// Where its time went.
    pub split: Split,
    /// Whether all of it was compiled.
    pub compiled: bool,
    /// The device.
    pub device: Option<String>,
    /// Its rows as text.
    pub rows: String,
}

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct DerivedReport {
    /// What it ran on.
    pub machine: Machine,
    /// The device that Kelpie's queries ran on.
    pub device: Option<String>,
    /// Rows of the table.
    pub rows: u64,
    /// Threads and partitions.
    pub threads: usize,
    /// Measured runs of each.
    pub runs: usize,
    /// Every case.
    pub cases: Vec<DerivedTime>,
}

/// A case's times, medians of the runs.
#[derive(Debug, Clone, Serialize)]
pub struct DerivedTime {
    /// Its name.
    pub name: &'static str,
    /// What it groups by.
    pub expression: &'static str,
    /// DataFusion's evaluation of the expression, first in a process.
    pub evaluation_ms: f64,
    /// The same in a process in which it ran before.
    pub evaluation_hot_ms: f64,
    /// The group-by, first in a process, without any compiled kernel.
    pub first: Split,
    /// The same with the kernels on disk.
    pub on_disk: Split,
    /// The group-by where it ran before.
    pub derived: Split,
    /// That on the plain column.
    pub plain: Split,
    /// `first` by `evaluation_ms`.
    pub first_ratio: f64,
    /// `on_disk` by `evaluation_ms`.
    pub on_disk_ratio: f64,
    /// `derived` by `plain`.
    pub hot_ratio: f64,
    /// Whether all runs were compiled as a whole.
    pub compiled: bool,
    /// How answers differ.
    pub difference: Option<String>,
}

/// Runs all cases; `progress` hears of every step.
pub async fn run(options: &DerivedOptions, progress: &(dyn Fn(&str) + Sync)) -> Result<DerivedReport> {
    let cases = match options.cases.as_slice() {
        [] => CASES.to_vec(),
        names => names.iter().map(|name| DerivedCase::named(name)).collect::<Result<Vec<_>>>()?,
    };
    if !table_path(options).is_file() {
        progress("making the table");
        make_table(options).await?;
    }
    let mut report = DerivedReport {
        machine: Machine::here(),
        device: None,
        rows: options.rows,
        threads: threads(options),
        runs: options.runs,
        cases: Vec::new(),
    };
    for case in cases {
        progress(case.name);
        let time = measure(options, case, &mut report.device).await;
        report.cases.push(time.with_context(|| format!("case `{}`", case.name))?);
    }
    Ok(report)
}

/// Runs one case once in this process, which has run nothing before.
pub async fn first(options: &DerivedOptions, case: DerivedCase, once: Once) -> Result<FirstRun> {
    let session = session(options).await?;
    let sql = match once {
        Once::Kelpie => {
            // Opening a GPU takes longer than all that is measured here, and happens once in a process.
            session.engine().devices();
            DerivedCase::grouped(case.expression)
        }
        Once::Evaluation => {
            session.set("kelpie.enabled", "false")?;
            case.evaluated()
        }
    };
    timed(&session, &sql).await
}

fn threads(options: &DerivedOptions) -> usize {
    options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

fn table_path(options: &DerivedOptions) -> PathBuf {
    options.data.join(format!("{TABLE}_{}.parquet", options.rows))
}

async fn session(options: &DerivedOptions) -> Result<KelpieSession> {
    let threads = threads(options).to_string();
    let mut settings = SessionOptions::default()
        .with("kelpie.threads", &threads)
        .with("datafusion.execution.target_partitions", &threads);
    settings.settings.extend(options.settings.iter().cloned());
    let session = KelpieSession::new(settings)?;
    session.register_path(TABLE, table_path(options)).await?;
    Ok(session)
}

async fn make_table(options: &DerivedOptions) -> Result<()> {
    std::fs::create_dir_all(&options.data).with_context(|| options.data.display().to_string())?;
    let path = table_path(options);
    let path = path.to_str().context("the path of the data is not UTF-8")?.replace('\'', "''");
    let last = options.rows.checked_sub(1).context("a table without rows tells nothing")?;
    let session = KelpieSession::new(SessionOptions::default().with("kelpie.enabled", "false"))?;
    let rows = format!("select {COLUMNS} from generate_series(0, {last}) as numbers(value)");
    session.sql(&format!("copy ({rows}) to '{path}' stored as parquet")).await?;
    Ok(())
}

async fn timed(session: &KelpieSession, sql: &str) -> Result<FirstRun> {
    let start = Instant::now();
    let result = session.sql(sql).await?;
    let mut timing = result.timing;
    timing.end_at(start.elapsed());
    let rows = shown(&result.batches)?;
    Ok(FirstRun { split: Split::of(&timing), compiled: timing.compiled, device: timing.device, rows })
}

fn shown(batches: &[RecordBatch]) -> Result<String> {
    Ok(pretty_format_batches(batches)?.to_string())
}

async fn measure(
    options: &DerivedOptions,
    case: DerivedCase,
    device: &mut Option<String>,
) -> Result<DerivedTime> {
    let session = session(options).await?;
    session.set("kelpie.enabled", "false")?;
    let expected = timed(&session, &DerivedCase::grouped(case.plain)).await?.rows;
    let mut hot_evaluations = Vec::new();
    // The first one brings the file into memory, for the processes below too.
    for _ in 0..=options.runs {
        hot_evaluations.push(timed(&session, &case.evaluated()).await?);
    }
    let (mut evaluations, mut firsts, mut on_disk) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let kernels = tempfile::tempdir().context("a folder for kernels")?;
        evaluations.push(in_a_process(options, case, Once::Evaluation, kernels.path())?);
        firsts.push(in_a_process(options, case, Once::Kelpie, kernels.path())?);
        on_disk.push(in_a_process(options, case, Once::Kelpie, kernels.path())?);
    }
    session.set("kelpie.enabled", "true")?;
    let (mut derived, mut plain) = (Vec::new(), Vec::new());
    // Two rounds warm up: the second is the first with capacities that fit.
    for _ in 0..options.runs.max(HOT_RUNS) + 2 {
        derived.push(timed(&session, &DerivedCase::grouped(case.expression)).await?);
        plain.push(timed(&session, &DerivedCase::grouped(case.plain)).await?);
    }
    let of_kelpie = || firsts.iter().chain(&on_disk).chain(&derived).chain(&plain);
    *device = of_kelpie().find_map(|run| run.device.clone()).or(device.take());
    let compiled = of_kelpie().all(|run| run.compiled);
    let differing = of_kelpie().find(|run| run.rows != expected);
    let difference = differing.map(|run| format!("{}\nand not\n{expected}", run.rows));
    let (first, on_disk) = (median(&firsts), median(&on_disk));
    let (derived, plain) = (median(&derived[2..]), median(&plain[2..]));
    let evaluation_ms = median(&evaluations).total_ms;
    Ok(DerivedTime {
        name: case.name,
        expression: case.expression,
        evaluation_ms,
        evaluation_hot_ms: median(&hot_evaluations[1..]).total_ms,
        first_ratio: first.total_ms / evaluation_ms,
        on_disk_ratio: on_disk.total_ms / evaluation_ms,
        hot_ratio: derived.total_ms / plain.total_ms,
        first,
        on_disk,
        derived,
        plain,
        compiled,
        difference,
    })
}

/// The run with the median time.
fn median(runs: &[FirstRun]) -> Split {
    let mut splits: Vec<Split> = runs.iter().map(|run| run.split.clone()).collect();
    splits.sort_by(|a, b| a.total_ms.total_cmp(&b.total_ms));
    splits.get(splits.len().saturating_sub(1) / 2).cloned().unwrap_or_default()
}

/// Runs a case once in a new process that keeps its kernels in a folder.
fn in_a_process(options: &DerivedOptions, case: DerivedCase, once: Once, kernels: &Path) -> Result<FirstRun> {
    let (program, arguments) = &options.program;
    let output = Command::new(program)
        .args(arguments)
        .args(["--queries", case.name, "--once", once.name()])
        .env("KELPIE_CACHE_DIR", kernels)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{} in a new process: {}", once.name(), String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{} gave no JSON", program.display()))
}
