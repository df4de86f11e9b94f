//! The `kelpie` program: SQL over Parquet, CSV and Arrow files, compiled for the device at hand.

mod args;
mod bench;
mod demo;
mod devices;
mod experiment;
mod explain;
mod generate;
mod interrupt;
mod kernels;
mod output;
mod progress;
mod run;
mod shell;
mod statements;
mod tuner;
mod variants;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, FromArgMatches};
use kelpie_session::Engine;

use args::{Arguments, Command};

fn main() -> ExitCode {
    let matches = Arguments::command().get_matches();
    let arguments = match Arguments::from_arg_matches(&matches) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    let scripts = args::scripts(&matches);
    if let Some(problem) = Engine::cache_problem() {
        complain(&format!("warning: {problem}"));
    }
    match start(arguments, scripts) {
        Ok(code) => code,
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("error: {}", message(&error)));
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments, scripts: Vec<args::Script>) -> Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let result = runtime.block_on(async {
        match arguments.command {
            None => run::run(arguments.query, scripts).await,
            Some(Command::Generate(options)) => generate::run(&options),
            Some(Command::Explain(options)) => explain::run(options).await,
            Some(Command::Variants(options)) => variants::run(options).await,
            Some(Command::Devices(options)) => devices::run(&options),
            Some(Command::Tuner(options)) => tuner::run(options).await,
            Some(Command::Kernels(options)) => kernels::run(options).await,
            Some(Command::Demo(options)) => demo::run(options).await,
            Some(Command::Bench(options)) => bench::run(options).await,
            Some(Command::Experiment(options)) => experiment::run(options).await,
        }
    });
    // A cancelled query may still be in the middle of a batch: it is not waited for.
    runtime.shutdown_background();
    result
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
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}
