//! The command line of what concerns several machines.

use kelpie_session::SessionOptions;

#[cfg(feature = "distributed")]
pub use with_workers::{ClusterArguments, WorkerArguments, WorkersArguments};
#[cfg(not(feature = "distributed"))]
pub use without_workers::{ClusterArguments, WorkerArguments, WorkersArguments};

#[cfg(not(feature = "distributed"))]
mod without_workers {
    use clap::Args;

    use super::SessionOptions;

    /// What is said where this program has no workers.
    pub const MISSING: &str =
        "this program was built without workers: cargo install --path crates/cli --features distributed";

    #[derive(Debug, Args)]
    pub struct ClusterArguments {
        /// The workers that run queries: this program has none.
        #[arg(long, hide = true, value_name = "WORKERS")]
        pub workers: Option<String>,
    }

    impl ClusterArguments {
        /// The options of a session as they were; an error where workers are named.
        pub fn joined(&self, options: SessionOptions) -> anyhow::Result<SessionOptions> {
            match self.workers {
                Some(_) => anyhow::bail!(MISSING),
                None => Ok(options),
            }
        }
    }

    /// Whatever was said: this program has no workers to say it to.
    #[derive(Debug, Args)]
    pub struct WorkerArguments {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        pub ignored: Vec<String>,
    }

    /// The same.
    #[derive(Debug, Args)]
    pub struct WorkersArguments {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        pub ignored: Vec<String>,
    }
}

#[cfg(not(feature = "distributed"))]
pub use without_workers::MISSING;

#[cfg(feature = "distributed")]
mod with_workers {
    use std::net::SocketAddr;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use anyhow::Context;
    use clap::Args;
    use kelpie_distributed::{Cluster, ClusterOptions, ConnectionOptions};

    use super::SessionOptions;
    use crate::args::SettingArguments;

    /// How other processes of a cluster are connected to.
    #[derive(Debug, Args)]
    pub struct ConnectionArguments {
        /// A file with the token that workers ask for, in its first line.
        #[arg(long, value_name = "FILE")]
        pub worker_token: Option<PathBuf>,
        /// The authority of the workers' certificates, in PEM: connections to them are encrypted.
        #[arg(long, value_name = "FILE")]
        pub worker_authority: Option<PathBuf>,
        /// The name that the workers' certificates are for, where that is not the host of their addresses, nor NAME of dns:NAME:PORT.
        #[arg(long, value_name = "NAME", requires = "worker_authority")]
        pub worker_name: Option<String>,
        /// A certificate to show to workers that ask for one, in PEM.
        #[arg(long, value_name = "FILE", requires = "worker_key")]
        pub worker_certificate: Option<PathBuf>,
        /// The private key of that certificate, in PEM.
        #[arg(long, value_name = "FILE", requires = "worker_certificate")]
        pub worker_key: Option<PathBuf>,
    }

    #[derive(Debug, Args)]
    pub struct ClusterArguments {
        /// The workers that queries of large tables run on: HOST:PORT,…; a file with an address a line; or dns:NAME:PORT, every
        /// address of a name. They read the same files under the same paths.
        #[arg(long, value_name = "WORKERS")]
        pub workers: Option<String>,
        #[command(flatten)]
        pub connections: ConnectionArguments,
    }

    #[derive(Debug, Args)]
    pub struct WorkerArguments {
        /// Where coordinators and other workers connect. An address that other machines reach needs --tokens and --tls-certificate.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:32020")]
        pub listen: SocketAddr,
        /// A file of tokens, one a line: who sends stages has to know one.
        #[arg(long, value_name = "FILE")]
        pub tokens: Option<PathBuf>,
        /// The certificate of the worker, in PEM, with those between it and its authority: connections are encrypted.
        #[arg(long, value_name = "FILE", requires = "tls_key")]
        pub tls_certificate: Option<PathBuf>,
        /// The private key of the certificate, in PEM.
        #[arg(long, value_name = "FILE", requires = "tls_certificate")]
        pub tls_key: Option<PathBuf>,
        /// The authority whose certificates callers must have, in PEM.
        #[arg(long, value_name = "FILE", requires = "tls_certificate")]
        pub tls_client_authority: Option<PathBuf>,
        /// Let other machines connect without tokens or TLS.
        #[arg(long)]
        pub insecure: bool,
        #[command(flatten)]
        pub connections: ConnectionArguments,
        #[command(flatten)]
        pub settings: SettingArguments,
    }

    #[derive(Debug, Args)]
    pub struct WorkersArguments {
        /// The workers: HOST:PORT,…; a file with an address a line; or dns:NAME:PORT.
        #[arg(value_name = "WORKERS")]
        pub workers: String,
        #[command(flatten)]
        pub connections: ConnectionArguments,
    }

    /// The bytes of a file.
    pub fn bytes(path: &Path) -> anyhow::Result<Vec<u8>> {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// The text of a file.
    pub fn text(path: &Path) -> anyhow::Result<String> {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    }

    impl ConnectionArguments {
        /// How connections are made; with some token where none is given.
        pub fn options(&self, token: Option<String>) -> anyhow::Result<ConnectionOptions> {
            let given = self.worker_token.as_deref().map(text).transpose()?;
            let given = given.map(|text| text.lines().next().unwrap_or_default().trim().to_string());
            let identity = match (&self.worker_certificate, &self.worker_key) {
                (Some(certificate), Some(key)) => Some((bytes(certificate)?, bytes(key)?)),
                _ => None,
            };
            Ok(ConnectionOptions {
                token: given.or(token),
                authority: self.worker_authority.as_deref().map(bytes).transpose()?,
                server_name: self.worker_name.clone(),
                identity,
                ..ConnectionOptions::default()
            })
        }

        /// The cluster of some workers.
        pub fn cluster(&self, workers: &str) -> anyhow::Result<Arc<Cluster>> {
            let options = ClusterOptions { connections: self.options(None)?, ..ClusterOptions::of(workers)? };
            Ok(Cluster::new(options)?)
        }
    }

    impl ClusterArguments {
        /// The options of a session whose queries run on the workers, where there are some.
        pub fn joined(&self, options: SessionOptions) -> anyhow::Result<SessionOptions> {
            match &self.workers {
                Some(workers) => Ok(self.connections.cluster(workers)?.joined(options)),
                None => Ok(options),
            }
        }
    }
}

#[cfg(feature = "distributed")]
pub use with_workers::{bytes, text};
