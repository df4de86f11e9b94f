//! `kelpie bench`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kelpie_workloads::bench::{self, BenchOptions, FallbackOptions, QueryReport, Subject};

use crate::args::{BenchArguments, thread_count};
use crate::progress::Progress;

pub async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    let workload = match arguments.subject {
        Subject::Queries(workload) => workload,
        Subject::Fallback => return run_fallback(&arguments).await,
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
    write!(std::io::stdout(), "{}", report.to_text())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    let failed = |q: &QueryReport| {
        q.error.is_some() || q.answer_is_right == Some(false) || !q.peer_differences.is_empty()
    };
    if report.queries.iter().any(failed) {
        bail!("some queries failed");
    }
    Ok(ExitCode::SUCCESS)
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
    write!(std::io::stdout(), "{}", report.to_text())?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    match report.is_right() {
        true => Ok(ExitCode::SUCCESS),
        false => bail!("some answers are not DataFusion's"),
    }
}
