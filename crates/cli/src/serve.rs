//! `kelpie serve`: clients of Arrow Flight SQL are answered until a signal ends the program.

use std::process::ExitCode;

use anyhow::Result;

use crate::args::ServeArguments;

/// Says how to get a server.
#[cfg(not(feature = "server"))]
pub async fn run(_: ServeArguments) -> Result<ExitCode> {
    anyhow::bail!(
        "this program was built without the server: cargo install --path crates/cli --features server"
    )
}

#[cfg(feature = "server")]
pub use with_server::run;

#[cfg(feature = "server")]
mod with_server {
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use anyhow::{Context, anyhow};
    use kelpie_server::{Credentials, Limits, Server, ServerOptions, Tls};
    use kelpie_session::{Engine, SessionOptions};

    use super::{ExitCode, Result, ServeArguments};
    use crate::{complain, signals};

    /// Serves until a signal comes. A second one ends the program at once.
    pub async fn run(arguments: ServeArguments) -> Result<ExitCode> {
        let mut signals = signals::listen()?;
        let has_tls = arguments.tls_certificate.is_some();
        let drain = arguments.drain;
        let server = Server::start(options(arguments)?).await?;
        for problem in server.problems() {
            complain(&format!("warning: {problem}"));
        }
        let scheme = if has_tls { "grpc+tls" } else { "grpc" };
        complain(&format!("listening on {scheme}://{}", server.address()));
        if let Some(address) = server.metrics_address() {
            complain(&format!("metrics on http://{address}/metrics"));
        }
        signals.recv().await;
        complain(&format!("ending: statements that run have {} s", drain.as_secs_f64()));
        tokio::select! {
            () = server.stop() => Ok(ExitCode::SUCCESS),
            _ = signals.recv() => Err(anyhow!("ended by a second signal: statements were cut off")),
        }
    }

    fn options(arguments: ServeArguments) -> Result<ServerOptions> {
        let mut credentials = Credentials::default();
        let in_file = |path: &Path, problem: String| anyhow!("{}: {problem}", path.display());
        if let Some(path) = &arguments.tokens {
            credentials.add_tokens(&text(path)?).map_err(|problem| in_file(path, problem))?;
        }
        if let Some(path) = &arguments.users {
            credentials.add_users(&text(path)?).map_err(|problem| in_file(path, problem))?;
        }
        let tls = match (&arguments.tls_certificate, &arguments.tls_key) {
            (Some(certificate), Some(key)) => Some(Tls {
                certificate: text(certificate)?.into_bytes(),
                key: text(key)?.into_bytes(),
                client_authority: arguments
                    .tls_client_authority
                    .as_deref()
                    .map(text)
                    .transpose()?
                    .map(String::into_bytes),
            }),
            _ => None,
        };
        // What was measured of this machine is for its users.
        let engine = Arc::new(Engine::calibrated());
        let sessions = SessionOptions::default().with_engine(Arc::clone(&engine));
        let sessions = arguments.session.cluster.joined(sessions)?;
        let some = |time: Duration| (!time.is_zero()).then_some(time);
        Ok(ServerOptions {
            listen: arguments.listen,
            metrics: arguments.metrics,
            settings: arguments.session.settings.settings(),
            data: arguments.session.data,
            credentials,
            tls,
            insecure: arguments.insecure,
            allow_writes: arguments.allow_writes,
            limits: Limits {
                statement_bytes: arguments.max_statement_bytes,
                sessions: arguments.max_sessions,
                statements: arguments.max_statements,
                time: some(arguments.max_time),
                stalled: arguments.max_stall,
                idle: arguments.max_idle,
                drain: arguments.drain,
            },
            sessions,
            engine,
            log: !arguments.quiet,
        })
    }

    fn text(path: &Path) -> Result<String> {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    }
}
