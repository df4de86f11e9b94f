//! The `kelpie` program: SQL over Parquet, CSV and Arrow files, compiled for the device at hand.

mod args;
#[cfg(feature = "workloads")]
mod bench;
mod cluster;
#[cfg(feature = "workloads")]
mod demo;
mod devices;
#[cfg(feature = "workloads")]
mod experiment;
mod explain;
#[cfg(feature = "workloads")]
mod generate;
mod interrupt;
mod kernels;
mod manual;
mod output;
mod plan;
mod progress;
mod report;
mod run;
mod script;
mod serve;
mod shell;
#[cfg(any(feature = "server", feature = "distributed"))]
mod signals;
mod statements;
mod trace;
mod tuner;
mod variants;
mod version;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use datafusion::error::DataFusionError;
use kelpie_session::Engine;

use args::{Arguments, Command};

/// The system's own allocator gives the pages of large pieces back and takes new ones all the time: a quarter of a first run went into
/// touching these. This one keeps them for a second, and they are huge ones where the system has any.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let given = match args::given(&matches) {
        Ok(given) => given,
        Err(error) => error.exit(),
    };
    if let Some(problem) = Engine::cache_problem() {
        complain(&format!("warning: {problem}"));
    }
    match start(arguments, given) {
        Ok(code) => code,
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {}", message(&error)));
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments, given: args::Given) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(async {
        match arguments.command {
            None if arguments.version => manual::version(),
            None => run::run(arguments.query, given).await,
            #[cfg(feature = "workloads")]
            Some(Command::Generate(options)) => generate::run(&options),
            Some(Command::Explain(options)) => explain::run(options).await,
            Some(Command::Plan(options)) => plan::run(options).await,
            Some(Command::Variants(options)) => variants::run(options).await,
            Some(Command::Devices(options)) => devices::run(&options),
            Some(Command::Tuner(options)) => tuner::run(options).await,
            Some(Command::Kernels(options)) => kernels::run(options).await,
            #[cfg(feature = "workloads")]
            Some(Command::Demo(options)) => demo::run(options).await,
            Some(Command::Serve(options)) => serve::run(options).await,
            Some(Command::Worker(options)) => cluster::worker(options).await,
            Some(Command::Workers(options)) => cluster::workers(options).await,
            #[cfg(feature = "workloads")]
            Some(Command::Bench(options)) => bench::run(options).await,
            #[cfg(feature = "workloads")]
            Some(Command::Experiment(options)) => experiment::run(options).await,
            Some(Command::Completions { shell }) => manual::completions(shell),
            Some(Command::Man { output }) => manual::pages(output.as_deref()),
        }
    });
    // What failed is shown too.
    let traced = trace::finish();
    // A cancelled query may still be in the middle of a batch: it is not waited for.
    runtime.shutdown_background();
    kelpie_session::remove_pipes();
    Engine::write_learned();
    result.and_then(|code| traced.map(|()| code))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// Writes a line to stderr; where that is closed, nobody is left to tell.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", output::escaped(text));
}

/// An error and its causes on one line; what a cause repeats of the one before is left out.
fn message(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        // One of DataFusion says itself what it was caused by.
        let cause = match cause.downcast_ref::<DataFusionError>() {
            Some(cause) => kelpie_session::message(cause),
            None => cause.to_string(),
        };
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
