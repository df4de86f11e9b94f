//! A server from its start to its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_flight::flight_service_server::FlightServiceServer;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use crate::connection::incoming;
use crate::errors::ServerError;
use crate::metrics::{self, Metrics};
use crate::options::{ServerOptions, Tls};
use crate::service::Service;
use crate::sessions::{Sessions, tried};
use crate::state::State;

/// Threads that only read and write connections.
const THREADS: usize = 2;
/// A message holds a statement or values; more bytes than these are refused unread.
const MESSAGE_BYTES: usize = 16 << 20;
const HEADER_BYTES: u32 = 64 << 10;
/// Requests of a connection at once.
const REQUESTS: u32 = 256;
/// A connection that is silent is asked so often whether it is there, and has so long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
const ANSWER: Duration = Duration::from_secs(20);
/// How long a client may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often sessions that are over are forgotten.
const SWEEP: Duration = Duration::from_secs(2);
/// How often a server that drains looks whether it is done, and how long connections have to close.
const LOOK: Duration = Duration::from_millis(50);
const CLOSING: Duration = Duration::from_secs(3);

/// A server that runs. It ends with [`Server::stop`], or at once when it is dropped.
pub struct Server {
    address: SocketAddr,
    metrics_address: Option<SocketAddr>,
    problems: Vec<String>,
    state: Arc<State>,
    /// Ends what listens.
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
    _connections: Connections,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server. Statements run on the runtime that this is called on, which needs its timers.
    pub async fn start(options: ServerOptions) -> Result<Server, ServerError> {
        if options.is_exposed() {
            return Err(ServerError::Exposed(options.listen));
        }
        let tls = options.tls.as_ref().map(tls_config);
        let problems = tried(&options).await?;
        let metrics = Arc::new(Metrics::new());
        let (draining, is_draining) = watch::channel(false);
        let state = Arc::new(State {
            sessions: Sessions::new(&options, Arc::clone(&metrics)),
            metrics: Arc::clone(&metrics),
            queries: Handle::current(),
            places: Arc::new(Semaphore::new(options.limits.statements.clamp(1, Semaphore::MAX_PERMITS))),
            draining,
            options,
        });
        let mut builder = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(ANSWER))
            .http2_max_header_list_size(HEADER_BYTES)
            .max_concurrent_streams(REQUESTS);
        if let Some(tls) = tls {
            builder = builder.tls_config(tls).map_err(|error| ServerError::Tls(causes(&error)))?;
        }
        let service = FlightServiceServer::new(Service(Arc::clone(&state)));
        let router = builder.add_service(service.max_decoding_message_size(MESSAGE_BYTES));

        let mut threads = Builder::new_multi_thread();
        threads.worker_threads(THREADS).thread_name("connections").enable_all();
        let runtime = threads.build().map_err(ServerError::Threads)?;
        let on = &runtime.handle().clone();
        let connections = Connections(Some(runtime));
        let (listener, address) = listen(on, state.options.listen).await?;
        let mut metrics_address = None;
        if let Some(address) = state.options.metrics {
            let (listener, address) = listen(on, address).await?;
            metrics_address = Some(address);
            on.spawn(metrics::serve(listener, Arc::clone(&metrics)));
        }
        let (end, is_end) = oneshot::channel();
        let coming = incoming(listener, metrics, is_draining);
        let serving = on.spawn(router.serve_with_incoming_shutdown(coming, async {
            // Also where the server was dropped.
            let _ = is_end.await;
        }));
        let sweeping = Arc::downgrade(&state);
        on.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(state) = sweeping.upgrade() else { return };
                state.sessions.sweep(state.options.limits.idle);
            }
        });
        Ok(Server {
            address,
            metrics_address,
            problems,
            state,
            end: Some(end),
            serving,
            _connections: connections,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where metrics are read.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics_address
    }

    /// What of the data cannot be read.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Ends the server: new statements are refused at once, those that run may go on for as long as the limits say.
    pub async fn stop(mut self) {
        let _ = self.state.draining.send(true);
        let start = Instant::now();
        while start.elapsed() < self.state.options.limits.drain && self.is_busy() {
            tokio::time::sleep(LOOK).await;
        }
        self.state.sessions.cancel_all();
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        // A client may keep its connection open all the same.
        let _ = tokio::time::timeout(CLOSING, &mut self.serving).await;
    }

    fn is_busy(&self) -> bool {
        let places = self.state.options.limits.statements.clamp(1, Semaphore::MAX_PERMITS);
        self.state.places.available_permits() < places || self.state.sessions.are_busy()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.sessions.cancel_all();
    }
}

/// The threads that read and write connections. They are not waited for: this is dropped where waiting is not allowed.
struct Connections(Option<Runtime>);

impl Drop for Connections {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

async fn listen(on: &Handle, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServerError> {
    let failed = |source| ServerError::Listen { address, source };
    // A listener belongs to the runtime that it is made on.
    let listener =
        on.spawn(TcpListener::bind(address)).await.map_err(|error| failed(std::io::Error::other(error)))?;
    let listener = listener.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn tls_config(tls: &Tls) -> ServerTlsConfig {
    let identity = Identity::from_pem(&tls.certificate, &tls.key);
    let config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    match &tls.client_authority {
        Some(authority) => config.client_ca_root(Certificate::from_pem(authority)),
        None => config,
    }
}

/// An error and what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
