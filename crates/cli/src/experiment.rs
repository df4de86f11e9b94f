//! `kelpie experiment`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use kelpie_workloads::Progress as RowProgress;
use kelpie_workloads::experiments::{self, ExperimentOptions, Listener};

use crate::args::{ExperimentArguments, thread_count};
use crate::demo::cache_folder;
use crate::progress::Progress;

/// What is done, on a terminal.
struct Spinner(Progress);

impl Listener for Spinner {
    fn step(&self, step: &str) {
        self.0.set_message(step);
    }

    fn data(&self, progress: RowProgress) {
        self.0.set_message(&format!("data: {} of {} rows", progress.rows_done, progress.rows_expected));
    }
}

pub async fn run(arguments: ExperimentArguments) -> Result<ExitCode> {
    let data = match arguments.data {
        Some(folder) => folder,
        None => cache_folder()?,
    };
    let options = ExperimentOptions {
        experiments: arguments.experiment.0,
        data,
        scales: arguments.scale,
        only: arguments.only,
        runs: usize::from(arguments.runs),
        time_limit: Duration::from_secs(arguments.time_limit.into()),
        threads: thread_count(arguments.threads.map(usize::from)),
        against: arguments.against,
        settings: arguments.settings.settings(),
    };
    let folder = &arguments.output;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let spinner = Spinner(Progress::spinner("starting"));
    let all = experiments::run(&options, &spinner).await?;
    drop(spinner);
    for findings in all {
        write!(std::io::stdout(), "{}", findings.to_text())?;
        let json = serde_json::to_string_pretty(&findings)? + "\n";
        let lanes = findings.lanes_to_svg().map(|lanes| ("-lanes.svg", lanes));
        for (ending, content) in [(".json", json), (".svg", findings.to_svg())].into_iter().chain(lanes) {
            let path = folder.join(format!("{}{ending}", findings.experiment));
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
            writeln!(std::io::stdout(), "{}", path.display())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
