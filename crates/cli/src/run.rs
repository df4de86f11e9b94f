//! Runs statements: those of `-c` and `-f`, or those typed into the shell.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use kelpie_datafusion::{KelpieSession, QueryResult, QueryTiming};

use crate::args::{QueryArguments, Script};
use crate::output::Output;
use crate::progress::{DELAY, Progress};
use crate::{shell, statements};

/// Exit code of a program that an interrupt ended: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// A session with its output.
pub struct Runner {
    pub session: Arc<KelpieSession>,
    pub output: Output,
    pub timing: bool,
}

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Its result is written.
    Done,
    /// The user cancelled it.
    Cancelled,
}

pub async fn run(arguments: QueryArguments, scripts: Vec<Script>) -> Result<ExitCode> {
    let session = Arc::new(arguments.session.open().await?);
    let output = Output::new(arguments.format, arguments.output);
    let mut runner = Runner { session, output, timing: arguments.timing };
    if scripts.is_empty() {
        return shell::run(runner).await;
    }
    for script in scripts {
        let text = match script {
            Script::Sql(sql) => sql,
            Script::File(path) => {
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?
            }
        };
        for statement in statements::all(&text) {
            if runner.run(&statement).await? == Outcome::Cancelled {
                return Ok(ExitCode::from(INTERRUPTED));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Runner {
    /// Runs a statement and writes its result; Ctrl-C cancels it.
    pub async fn run(&mut self, statement: &str) -> Result<Outcome> {
        let Some(result) = cancellable(&self.session, statement).await? else {
            // Where stderr is closed, nobody is left to tell.
            let _ = writeln!(std::io::stderr(), "cancelled");
            return Ok(Outcome::Cancelled);
        };
        self.output.write(&result.schema, &result.batches)?;
        if self.timing {
            let _ = writeln!(std::io::stderr(), "{}", timing_text(&result.timing));
        }
        Ok(Outcome::Done)
    }
}

/// The answer of a statement, or nothing where Ctrl-C came first.
async fn cancellable(session: &Arc<KelpieSession>, statement: &str) -> Result<Option<QueryResult>> {
    let (session, sql) = (Arc::clone(session), statement.to_string());
    // A task of its own: between two batches the query does not look at signals, and need not.
    let mut query = tokio::spawn(async move { session.sql(&sql).await });
    let spinner = Progress::spinner("running");
    let mut due = std::pin::pin!(tokio::time::sleep(DELAY));
    let mut shown = false;
    loop {
        tokio::select! {
            joined = &mut query => {
                drop(spinner);
                let result = joined.map_err(|error| anyhow!("the query broke down: {error}"))?;
                return Ok(Some(result.map_err(|error| anyhow!("{}", error.strip_backtrace()))?));
            }
            signal = tokio::signal::ctrl_c() => {
                signal.context("cannot listen for Ctrl-C")?;
                query.abort();
                return Ok(None);
            }
            () = &mut due, if !shown => {
                shown = true;
                spinner.show_when_due();
            }
        }
    }
}

/// `12.3 ms: plan 1.0, compile 0.0, transfer 0.0, kernel 11.0, result 0.1 on …`, and what was not compiled.
pub fn timing_text(timing: &QueryTiming) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut text = format!("time: {:.2} ms (plan {:.2}", ms(timing.total_ns), ms(timing.plan_ns));
    if let Some(device) = &timing.device {
        text.push_str(&format!(
            ", compile {:.2}, transfer {:.2}, kernel {:.3}, result {:.2}) on {device}",
            ms(timing.compile_ns),
            ms(timing.transfer_ns),
            ms(timing.kernel_ns),
            ms(timing.result_ns),
        ));
    } else {
        text.push(')');
    }
    for reason in &timing.reasons {
        text.push_str("\nnot compiled: ");
        text.push_str(reason);
    }
    text
}
