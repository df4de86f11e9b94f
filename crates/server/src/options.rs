//! What a server is told when it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kelpie_session::{Engine, SessionOptions};

use crate::credentials::Credentials;

/// How a server is set up. By default it listens on this machine alone, for everybody on it, and only reads.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where clients connect; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// Where metrics are read, over HTTP.
    pub metrics: Option<SocketAddr>,
    /// Files and folders that are tables, as with `kelpie --data`.
    pub data: Vec<PathBuf>,
    /// Settings that every session begins with.
    pub settings: Vec<(String, String)>,
    /// Who may connect.
    pub credentials: Credentials,
    /// How connections are encrypted; not at all where absent.
    pub tls: Option<Tls>,
    /// Whether other machines may connect without secrets or without TLS.
    pub insecure: bool,
    /// Whether clients may write, make tables, and name any file that the server can read.
    pub allow_writes: bool,
    /// What clients may take.
    pub limits: Limits,
    /// What every session begins with, below all else that is said here: workers, for one.
    pub sessions: SessionOptions,
    /// What runs the queries of all sessions.
    pub engine: Arc<Engine>,
    /// Whether each statement is a line on the standard error.
    pub log: bool,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub struct Tls {
    /// The certificate, with those between it and its authority.
    pub certificate: Vec<u8>,
    /// Its private key.
    pub key: Vec<u8>,
    /// The authority of the clients' certificates, where clients must have one.
    pub client_authority: Option<Vec<u8>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// What clients may take of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a statement.
    pub statement_bytes: usize,
    /// Sessions that are open at once.
    pub sessions: usize,
    /// Statements that run at once; others wait for them.
    pub statements: usize,
    /// The longest that a statement may take, also where a client's `kelpie.timeout` is longer.
    pub time: Option<Duration>,
    /// How long a client may leave rows untaken before its query is cancelled.
    pub stalled: Duration,
    /// How long a session without a connection is kept.
    pub idle: Duration,
    /// How long statements may go on once the server is told to stop.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            statement_bytes: 1 << 20,
            sessions: 256,
            statements: 64,
            time: None,
            stalled: Duration::from_secs(300),
            idle: Duration::from_secs(1800),
            drain: Duration::from_secs(30),
        }
    }
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            listen: (Ipv4Addr::LOCALHOST, 32010).into(),
            metrics: None,
            data: Vec::new(),
            settings: Vec::new(),
            credentials: Credentials::default(),
            tls: None,
            insecure: false,
            allow_writes: false,
            limits: Limits::default(),
            sessions: SessionOptions::default(),
            engine: Arc::default(),
            log: true,
        }
    }
}

impl ServerOptions {
    /// Whether clients of other machines would come in without a secret, or would show it on the way.
    pub(crate) fn is_exposed(&self) -> bool {
        let is_open =
            self.credentials.is_open() && self.tls.as_ref().is_none_or(|tls| tls.client_authority.is_none());
        !self.insecure && !self.listen.ip().is_loopback() && (is_open || self.tls.is_none())
    }
}
