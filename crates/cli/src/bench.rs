//! `kelpie bench`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use kelpie_workloads::bench::{self, BenchOptions};

use crate::args::{BenchArguments, thread_count};
use crate::progress::Progress;

pub async fn run(arguments: BenchArguments) -> Result<ExitCode> {
    let options = BenchOptions {
        workload: arguments.workload,
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
    if report.queries.iter().any(|q| q.error.is_some() || q.answer_is_right == Some(false)) {
        bail!("some queries failed");
    }
    Ok(ExitCode::SUCCESS)
}
