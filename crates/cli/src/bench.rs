//! `kelpie bench`.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kelpie_workloads::bench::{
    self, BenchOptions, CrowdOptions, DerivedCase, DerivedOptions, FallbackOptions, QueryReport, Subject,
};

use crate::args::{BenchArguments, thread_count};
use crate::progress::Progress;

pub async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    let workload = match arguments.subject {
        Subject::Queries(workload) => workload,
        Subject::Fallback => return run_fallback(&arguments).await,
        Subject::Derived => return run_derived(&arguments).await,
        Subject::Crowd => return run_crowd(&arguments).await,
    };
    let options = BenchOptions {
        workload,
        data: arguments.data,
        queries: arguments.queries,
        runs: usize::from(arguments.runs),
        cold: arguments.cold,
        against: arguments.against,
        threads: thread_count(arguments.threads.map(usize::from)),
        settings: arguments.settings.settings(),
    };
    let spinner = Progress::spinner("starting");
    let report = bench::run(&options, &|step| spinner.set_message(step)).await?;
    drop(spinner);
    show(&report.to_text(), serde_json::to_string_pretty(&report)?, arguments.json.as_deref())?;
    let failed = |q: &QueryReport| {
        q.error.is_some() || q.answer_is_right == Some(false) || !q.peer_differences.is_empty()
    };
    if report.queries.iter().any(failed) {
        bail!("some queries failed");
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows a report, and writes it as JSON where that is wanted.
fn show(text: &str, json: String, path: Option<&Path>) -> Result<()> {
    write!(std::io::stdout(), "{text}")?;
    match path {
        Some(path) => {
            std::fs::write(path, json + "\n").with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(()),
    }
}

async fn run_fallback(arguments: &BenchArguments) -> Result<ExitCode> {
    if arguments.cold || !arguments.against.is_empty() {
        bail!(
            "bench fallback reads files each time and runs beside plain DataFusion: --cold and --against do not apply"
        );
    }
    let options = FallbackOptions {
        data: &arguments.data,
        queries: &arguments.queries,
        runs: usize::from(arguments.runs),
        threads: thread_count(arguments.threads.map(usize::from)),
        settings: &arguments.settings.settings(),
    };
    let spinner = Progress::spinner("starting");
    let report = bench::run_fallback(&options, &|step| spinner.set_message(step)).await?;
    drop(spinner);
    show(&report.to_text(), serde_json::to_string_pretty(&report)?, arguments.json.as_deref())?;
    match report.is_right() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("some answers are not DataFusion's"),
    }
}

async fn run_crowd(arguments: &BenchArguments) -> Result<ExitCode> {
    if arguments.cold || !arguments.against.is_empty() {
        bail!("bench crowd runs hot, and beside itself alone: --cold and --against do not apply");
    }
    let threads = thread_count(arguments.threads.map(usize::from)).to_string();
    let mut settings = vec![
        ("kelpie.threads".into(), threads.clone()),
        ("datafusion.execution.target_partitions".into(), threads),
    ];
    settings.extend(arguments.settings.settings());
    let options = CrowdOptions {
        data: &arguments.data,
        queries: &arguments.queries,
        clients: &arguments.clients,
        time: Duration::from_secs(arguments.seconds),
        settings: &settings,
    };
    let spinner = Progress::spinner("starting");
    let report = bench::run_crowd(&options, &|step| spinner.set_message(step)).await?;
    drop(spinner);
    show(&report.to_text(), serde_json::to_string_pretty(&report)?, arguments.json.as_deref())?;
    match report.is_right() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("some answers are not those of one client"),
    }
}

async fn run_derived(arguments: &BenchArguments) -> Result<ExitCode> {
    if arguments.cold || !arguments.against.is_empty() {
        bail!("bench derived has first runs and DataFusion beside them: --cold and --against do not apply");
    }
    let program = std::env::current_exe().context("the program's own file")?;
    let options = DerivedOptions {
        data: arguments.data.clone(),
        rows: arguments.rows,
        cases: arguments.queries.clone(),
        runs: usize::from(arguments.runs),
        threads: arguments.threads.map(usize::from),
        settings: arguments.settings.settings(),
        program: (program, of_a_process(arguments)?),
    };
    if let Some(once) = arguments.once {
        let [case] = arguments.queries.as_slice() else { bail!("--once runs one of --queries") };
        let run = bench::run_derived_once(&options, DerivedCase::named(case)?, once).await?;
        write!(std::io::stdout(), "{}", serde_json::to_string(&run)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let spinner = Progress::spinner("starting");
    let report = bench::run_derived(&options, &|step| spinner.set_message(step)).await?;
    drop(spinner);
    show(&report.to_text(), serde_json::to_string_pretty(&report)?, arguments.json.as_deref())?;
    match report.is_right() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("some answers are not DataFusion's"),
    }
}

/// What a process that runs one case once is given, beside the case.
fn of_a_process(arguments: &BenchArguments) -> Result<Vec<String>> {
    let data = arguments.data.to_str().context("the path of the data is not UTF-8")?;
    let mut given: Vec<String> =
        ["bench", "derived", "--data", data, "--rows", &arguments.rows.to_string()].map(Into::into).to_vec();
    if let Some(threads) = arguments.threads {
        given.extend(["--threads".into(), threads.to_string()]);
    }
    for (name, value) in arguments.settings.settings() {
        given.extend(["--set".into(), format!("{name}={value}")]);
    }
    Ok(given)
}
