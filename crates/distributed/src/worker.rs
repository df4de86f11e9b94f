//! A worker: it is sent stages of plans, compiles them for the device that it has, and hands their rows to whoever is to have them.

use std::borrow::Cow;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_distributed::{DistributedExt, WorkerQueryContext, WorkerSessionBuilder};
use kelpie_datafusion::wire;
use kelpie_server::{Credentials, Tls};
use kelpie_session::{Engine, KelpieOptions, KelpieSession, install};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};
use tonic::{Request, Status};

use crate::connections::{ConnectionOptions, Connections};
use crate::errors::{ClusterError, with_causes};
use crate::sending::OwnNodes;
use crate::settings;
use crate::stage::StageEngine;

/// What processes of a cluster must have in common.
pub(crate) const VERSION: &str = concat!("kelpie ", env!("CARGO_PKG_VERSION"));

/// A connection that is silent is asked so often whether it is there, and has so long to answer.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How long a caller may take to agree on TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How long connections have to close when a worker stops.
const CLOSING: Duration = Duration::from_secs(3);

/// How a worker is set up. By default it listens on this machine alone, for everybody on it.
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// Where coordinators and other workers connect; port 0 takes one that is free.
    pub listen: SocketAddr,
    /// Settings of its own, which those of a coordinator go before.
    pub settings: Vec<(String, String)>,
    /// Who may send it stages.
    pub credentials: Credentials,
    /// How connections are encrypted; not at all where absent.
    pub tls: Option<Tls>,
    /// Whether other machines may connect without a token or without TLS.
    pub insecure: bool,
    /// How it connects to other workers, whose rows its stages take.
    pub connections: ConnectionOptions,
    /// What runs its stages.
    pub engine: Arc<Engine>,
}

impl Default for WorkerOptions {
    fn default() -> WorkerOptions {
        WorkerOptions {
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            settings: Vec::new(),
            credentials: Credentials::default(),
            tls: None,
            insecure: false,
            connections: ConnectionOptions::default(),
            engine: Arc::default(),
        }
    }
}

impl WorkerOptions {
    /// Whether others would send plans without a secret, or would show it on the way.
    fn is_exposed(&self) -> bool {
        let has_authority = self.tls.as_ref().is_some_and(|tls| tls.client_authority.is_some());
        let is_open = self.credentials.is_open() && !has_authority;
        !self.insecure && !self.listen.ip().is_loopback() && (is_open || self.tls.is_none())
    }
}

/// A worker that runs. It ends with [`Worker::stop`], or when it is dropped.
#[derive(Debug)]
pub struct Worker {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Worker {
    /// Starts a worker on the runtime that this is called on.
    pub async fn start(options: WorkerOptions) -> Result<Worker, ClusterError> {
        if options.is_exposed() {
            return Err(ClusterError::Exposed(options.listen));
        }
        let failed = |source| ClusterError::Listen { address: options.listen, source };
        let mut server = tonic::transport::Server::builder()
            .tcp_nodelay(true)
            .http2_keepalive_interval(Some(KEEP_ALIVE))
            .http2_keepalive_timeout(Some(KEEP_ALIVE));
        if let Some(tls) = &options.tls {
            server =
                server.tls_config(tls_config(tls)).map_err(|error| ClusterError::Tls(with_causes(&error)))?;
        }
        let sessions = Sessions {
            engine: Arc::clone(&options.engine),
            connections: Connections::new(options.connections.clone())?,
            settings: options.settings.clone(),
        };
        let library = datafusion_distributed::Worker::from_session_builder(sessions)
            .with_runtime_env(runtime().map_err(|error| ClusterError::Workers(error.strip_backtrace()))?)
            .with_version(said(&options.engine));
        let credentials = options.credentials.clone();
        let asks = move |request: Request<()>| admitted(&credentials, request);
        let router = server.add_service(InterceptedService::new(library.into_worker_server(), asks));
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (end, is_end) = oneshot::channel::<()>();
        let serving = router.serve_with_incoming_shutdown(TcpListenerStream::new(listener), async {
            // Also where the worker was dropped.
            let _ = is_end.await;
        });
        Ok(Worker { address, end: Some(end), serving: tokio::spawn(serving) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the worker. What it runs has a moment to end.
    pub async fn stop(mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        let _ = tokio::time::timeout(CLOSING, &mut self.serving).await;
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The files of workers are looked at anew for every query.
fn runtime() -> Result<Arc<RuntimeEnv>> {
    RuntimeEnvBuilder::new().with_object_list_cache_limit(0).build_arc()
}

/// What a worker says of itself: its version first, which is compared.
fn said(engine: &Engine) -> Cow<'static, str> {
    let usable = |(kind, device): &(_, std::result::Result<_, _>)| {
        device.is_ok().then(|| format!("{kind:?}").to_lowercase())
    };
    let devices: Vec<String> = engine.devices().iter().filter_map(usable).collect();
    format!("{VERSION}; devices: {}", devices.join(", ")).into()
}

fn admitted(credentials: &Credentials, request: Request<()>) -> Result<Request<()>, Status> {
    if credentials.is_open() {
        return Ok(request);
    }
    let header = request.metadata().get("authorization").and_then(|header| header.to_str().ok());
    match header.and_then(|header| header.strip_prefix("Bearer ")) {
        Some(token) if credentials.has_token(token) => Ok(request),
        Some(_) => Err(Status::unauthenticated("its token is none that this worker knows")),
        None => Err(Status::unauthenticated("a token is needed")),
    }
}

fn tls_config(tls: &Tls) -> ServerTlsConfig {
    let identity = Identity::from_pem(&tls.certificate, &tls.key);
    let config = ServerTlsConfig::new().identity(identity).timeout(HANDSHAKE);
    match &tls.client_authority {
        Some(authority) => config.client_ca_root(Certificate::from_pem(authority)),
        None => config,
    }
}

/// Adds the functions that only plans of other processes name.
pub(crate) fn add_functions(builder: &mut SessionStateBuilder) {
    let functions = wire::functions().into_iter().map(Arc::new);
    builder.scalar_functions().get_or_insert_default().extend(functions);
    builder.aggregate_functions().get_or_insert_default().extend(wire::aggregates());
    builder.window_functions().get_or_insert_default().extend(wire::window_functions());
}

/// A session as workers have it, over a configuration and a runtime that are there already.
fn session_state(mut builder: SessionStateBuilder, engine: &Arc<Engine>) -> Result<SessionState> {
    let config = builder.config().get_or_insert_default();
    config.set_extension(Arc::new(StageEngine(Arc::clone(engine))));
    if config.options().extensions.get::<KelpieOptions>().is_none() {
        config.options_mut().extensions.insert(KelpieOptions::default());
    }
    add_functions(&mut builder);
    let state = install(builder.with_distributed_user_codec(OwnNodes), Arc::clone(engine)).build();
    let session = KelpieSession::over(SessionContext::new_with_state(state))?;
    Ok(session.context().state())
}

/// A session of a worker that has been sent nothing.
pub(crate) fn worker_state(engine: &Arc<Engine>) -> Result<SessionState> {
    let builder = SessionStateBuilder::new().with_default_features().with_config(SessionConfig::new());
    session_state(builder.with_runtime_env(runtime()?), engine)
}

/// Makes the session of every stage that comes.
struct Sessions {
    engine: Arc<Engine>,
    connections: Connections,
    settings: Vec<(String, String)>,
}

impl Sessions {
    fn state(&self, context: WorkerQueryContext) -> Result<SessionState> {
        let WorkerQueryContext { mut builder, headers } = context;
        let config = builder.config().get_or_insert_default();
        config.options_mut().extensions.insert(KelpieOptions::default());
        for (name, value) in self.settings.iter().cloned().chain(settings::of_headers(&headers)) {
            let set = config.options_mut().set(&name, &value);
            set.map_err(|error| error.context(format!("the setting {name} of a coordinator")))?;
        }
        session_state(builder.with_distributed_channel_resolver(self.connections.clone()), &self.engine)
    }
}

#[async_trait]
impl WorkerSessionBuilder for Sessions {
    async fn build_session_state(
        &self,
        context: WorkerQueryContext,
    ) -> Result<SessionState, DataFusionError> {
        self.state(context)
    }
}
