//! The command line of `kelpie serve`.

#[cfg(not(feature = "server"))]
#[derive(Debug, clap::Args)]
pub struct ServeArguments {
    /// Whatever was said: this program has no server to say it to.
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub ignored: Vec<String>,
}

#[cfg(feature = "server")]
pub use with_server::ServeArguments;

#[cfg(feature = "server")]
mod with_server {
    use std::net::SocketAddr;
    use std::path::PathBuf;
    use std::time::Duration;

    use clap::Args;
    use datafusion::config::ExtensionOptions;
    use kelpie_session::KelpieOptions;

    use crate::args::SessionArguments;

    #[derive(Debug, Args)]
    pub struct ServeArguments {
        #[command(flatten)]
        pub session: SessionArguments,
        /// The address that clients connect to. One that other machines reach needs --tokens or --users, and --tls-certificate.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:32010")]
        pub listen: SocketAddr,
        /// Where /metrics is read over HTTP, as Prometheus does; /health says whether the server is there.
        #[arg(long, value_name = "ADDR")]
        pub metrics: Option<SocketAddr>,
        /// A file of tokens, one a line: clients send one as `authorization: Bearer …`.
        #[arg(long, value_name = "FILE")]
        pub tokens: Option<PathBuf>,
        /// A file of users with their passwords, `name:password` a line.
        #[arg(long, value_name = "FILE")]
        pub users: Option<PathBuf>,
        /// The certificate of the server, in PEM, with those between it and its authority: connections are encrypted.
        #[arg(long, value_name = "FILE", requires = "tls_key")]
        pub tls_certificate: Option<PathBuf>,
        /// The private key of the certificate, in PEM.
        #[arg(long, value_name = "FILE", requires = "tls_certificate")]
        pub tls_key: Option<PathBuf>,
        /// The authority whose certificates clients must have, in PEM.
        #[arg(long, value_name = "FILE", requires = "tls_certificate")]
        pub tls_client_authority: Option<PathBuf>,
        /// Let other machines connect without tokens, passwords or TLS.
        #[arg(long)]
        pub insecure: bool,
        /// Let clients do all that statements can: write and read any file that this program can, and make tables in their sessions.
        /// Without it they only query the tables of --data.
        #[arg(long)]
        pub allow_writes: bool,
        /// Bytes that a statement may have.
        #[arg(long, value_name = "N", default_value_t = 1 << 20)]
        pub max_statement_bytes: usize,
        /// Sessions that may be open at once.
        #[arg(long, value_name = "N", default_value_t = 256)]
        pub max_sessions: usize,
        /// Statements that may run at once; others wait for them.
        #[arg(long, value_name = "N", default_value_t = 64)]
        pub max_statements: usize,
        /// The longest that a statement may take, such as 30s or 5min, whatever a client's kelpie.timeout says; 0 is no limit.
        #[arg(long, value_name = "TIME", default_value = "0", value_parser = time)]
        pub max_time: Duration,
        /// A client that takes no rows for so long loses its query.
        #[arg(long, value_name = "TIME", default_value = "5min", value_parser = time)]
        pub max_stall: Duration,
        /// How long a session is kept that has no connection and is not used.
        #[arg(long, value_name = "TIME", default_value = "30min", value_parser = time)]
        pub max_idle: Duration,
        /// How long statements may go on after SIGTERM or Ctrl-C.
        #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time)]
        pub drain: Duration,
        /// Do not write a line to stderr for each statement.
        #[arg(long)]
        pub quiet: bool,
    }

    /// A time as `kelpie.timeout` takes it.
    fn time(text: &str) -> Result<Duration, String> {
        let mut options = KelpieOptions::default();
        options.set("timeout", text).map_err(|_| "a time has a unit: 500ms, 30s, 5min, 2h".to_string())?;
        Ok(options.timeout.unwrap_or_default())
    }
}
