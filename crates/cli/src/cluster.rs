//! `kelpie worker`, which runs stages of others' queries until a signal ends it, and `kelpie workers`, which asks workers how they are.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::{WorkerArguments, WorkersArguments};

/// Says how to get a worker.
#[cfg(not(feature = "distributed"))]
pub async fn worker(_: WorkerArguments) -> Result<ExitCode> {
    anyhow::bail!(crate::args::NO_WORKERS)
}

/// Says how to get workers.
#[cfg(not(feature = "distributed"))]
pub async fn workers(_: WorkersArguments) -> Result<ExitCode> {
    anyhow::bail!(crate::args::NO_WORKERS)
}

#[cfg(feature = "distributed")]
pub use with_workers::{worker, workers};

#[cfg(feature = "distributed")]
mod with_workers {
    use std::io::Write;
    use std::sync::Arc;

    use anyhow::{Context, anyhow};
    use kelpie_distributed::{Worker, WorkerOptions};
    use kelpie_server::{Credentials, Tls};
    use kelpie_session::Engine;

    use super::{ExitCode, Result, WorkerArguments, WorkersArguments};
    use crate::args::{bytes, text};
    use crate::{complain, signals};

    /// Runs stages until a signal comes. A second one ends the program at once.
    pub async fn worker(arguments: WorkerArguments) -> Result<ExitCode> {
        let mut signals = signals::listen()?;
        let has_tls = arguments.tls_certificate.is_some();
        let worker = Worker::start(options(arguments)?).await?;
        let scheme = if has_tls { "https" } else { "http" };
        complain(&format!("worker on {scheme}://{}", worker.address()));
        signals.recv().await;
        tokio::select! {
            () = worker.stop() => Ok(ExitCode::SUCCESS),
            _ = signals.recv() => Err(anyhow!("ended by a second signal: stages were cut off")),
        }
    }

    fn options(arguments: WorkerArguments) -> Result<WorkerOptions> {
        let (mut credentials, mut first) = (Credentials::default(), None);
        if let Some(path) = &arguments.tokens {
            let text = text(path)?;
            credentials.add_tokens(&text).map_err(|problem| anyhow!("{}: {problem}", path.display()))?;
            let lines = text.lines().map(str::trim);
            first = lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(String::from).next();
        }
        let tls = match (&arguments.tls_certificate, &arguments.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls {
                certificate: bytes(certificate)?,
                key: bytes(key)?,
                client_authority: arguments.tls_client_authority.as_deref().map(bytes).transpose()?,
            }),
            _ => None,
        };
        Ok(WorkerOptions {
            listen: arguments.listen,
            settings: arguments.settings.settings(),
            credentials,
            tls,
            insecure: arguments.insecure,
            // Workers of a cluster have the same tokens.
            connections: arguments.connections.options(first)?,
            engine: Arc::new(Engine::calibrated()),
        })
    }

    /// A line for each worker; the program fails where one does not answer.
    pub async fn workers(arguments: WorkersArguments) -> Result<ExitCode> {
        let cluster = arguments.connections.cluster(&arguments.workers)?;
        let mut all_answer = true;
        let mut out = std::io::stdout().lock();
        for health in cluster.health().await? {
            all_answer &= health.answer.is_ok();
            let milliseconds = health.took.as_millis();
            let said = match health.answer {
                Ok(said) => format!("ok, {milliseconds} ms, {said}"),
                Err(problem) => format!("lost, {problem}"),
            };
            writeln!(out, "{} {said}", health.worker).context("cannot write")?;
        }
        Ok(if all_answer { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
