//! Connections between the processes of a cluster.
//!
//! A connection that is silent is asked whether it is still there: a worker that hangs, or a network that drops what it is given, ends
//! a query with an error within seconds. Errors of connections name the worker and what it was asked for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest, GetWorkerInfoResponse,
    SetPlanRequest, TaskKey, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tower::ServiceExt;
use url::Url;

use crate::errors::{ClusterError, LostWorker, TaskName, with_causes};
use crate::worker::VERSION;

/// How connections to workers are made.
#[derive(Clone)]
pub struct ConnectionOptions {
    /// The secret that workers ask for.
    pub token: Option<String>,
    /// The authority of the workers' certificates, in PEM: connections are encrypted. Without it they are not.
    pub authority: Option<Vec<u8>>,
    /// The name that the workers' certificates are for, where that is not the host of their addresses.
    pub server_name: Option<String>,
    /// A certificate and its key of the caller's own, in PEM, where workers ask for one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// How long a worker may take to be connected to.
    pub connect: Duration,
    /// How long a worker may be silent until it is asked whether it is there, and how long it then has to answer.
    pub silence: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> ConnectionOptions {
        let (connect, silence) = (Duration::from_secs(5), Duration::from_secs(5));
        let (token, authority, server_name, identity) = (None, None, None, None);
        ConnectionOptions { token, authority, server_name, identity, connect, silence }
    }
}

impl fmt::Debug for ConnectionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionOptions")
            .field("token", &self.token.is_some())
            .field("tls", &self.authority.is_some())
            .field("connect", &self.connect)
            .field("silence", &self.silence)
            .finish_non_exhaustive()
    }
}

impl ConnectionOptions {
    /// That of the addresses.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.authority.is_some() { "https" } else { "http" }
    }
}

/// Connections that are open, and how others are made.
#[derive(Clone)]
pub(crate) struct Connections(Arc<Shared>);

struct Shared {
    options: ConnectionOptions,
    authorization: Option<HeaderValue>,
    open: Mutex<HashMap<Url, Channel>>,
}

impl Connections {
    pub fn new(options: ConnectionOptions) -> Result<Connections, ClusterError> {
        let header = |token: &String| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| ClusterError::Workers("the token has characters that no header has".into()))?;
            value.set_sensitive(true);
            Ok(value)
        };
        let authorization = options.token.as_ref().map(header).transpose()?;
        Ok(Connections(Arc::new(Shared { options, authorization, open: Mutex::default() })))
    }

    /// Closes the connection to a worker, so that the next one is a new one.
    pub fn forget(&self, worker: &Url) {
        self.0.open.lock().remove(worker);
    }

    /// What a worker says of itself, or why it does not.
    pub async fn ask(&self, worker: &Url) -> Result<String, String> {
        self.forget(worker);
        let asked = async {
            let channel = self.connected(worker).await.map_err(|lost| lost.cause)?;
            let answer = self.client(channel).get_worker_info(GetWorkerInfoRequest {}).await;
            answer.map(|answer| answer.version).map_err(|error| error.strip_backtrace())
        };
        match timeout(self.0.options.connect + self.0.options.silence, asked).await {
            Ok(answer) => answer,
            Err(_) => Err("it does not answer".into()),
        }
    }

    async fn channel(&self, worker: &Url) -> Result<Channel> {
        if let Some(channel) = self.0.open.lock().get(worker) {
            return Ok(channel.clone());
        }
        let channel = self.connected(worker).await.map_err(LostWorker::error)?;
        self.check_version(worker, channel.clone()).await?;
        self.0.open.lock().insert(worker.clone(), channel.clone());
        Ok(channel)
    }

    async fn connected(&self, worker: &Url) -> Result<Channel, LostWorker> {
        let lost = |error: &dyn std::error::Error| LostWorker {
            worker: worker.to_string(),
            task: None,
            cause: with_causes(error),
        };
        let options = &self.0.options;
        let mut endpoint = Endpoint::from_shared(worker.to_string())
            .map_err(|error| lost(&error))?
            .connect_timeout(options.connect)
            .http2_keep_alive_interval(options.silence)
            .keep_alive_timeout(options.silence)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        if let Some(authority) = &options.authority {
            let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
            if let Some(name) = &options.server_name {
                tls = tls.domain_name(name);
            }
            if let Some((certificate, key)) = &options.identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| lost(&error))?;
        }
        endpoint.connect().await.map_err(|error| lost(&error))
    }

    /// An error where a worker is of another version: plans and their meaning may differ.
    async fn check_version(&self, worker: &Url, channel: Channel) -> Result<()> {
        let mut client = self.client(channel);
        let asked = client.get_worker_info(GetWorkerInfoRequest {});
        let lost = |cause: String| LostWorker { worker: worker.to_string(), task: None, cause }.error();
        let answer = match timeout(self.0.options.silence * 2, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(Named { worker, task: None }.error(error)),
            Err(_) => return Err(lost("it does not answer".into())),
        };
        let version = answer.version.split(';').next().unwrap_or_default();
        match version == VERSION {
            true => Ok(()),
            false => Err(DataFusionError::Execution(format!(
                "worker {worker} is of version '{version}', and this process of '{VERSION}': all processes of a cluster must be of one"
            ))),
        }
    }

    fn client(&self, channel: Channel) -> Box<dyn WorkerChannel> {
        let authorization = self.0.authorization.clone();
        create_worker_client(BoxCloneSyncChannel::new(channel.map_request(
            move |mut request: http::Request<tonic::body::Body>| {
                if let Some(authorization) = &authorization {
                    request.headers_mut().insert(AUTHORIZATION, authorization.clone());
                }
                request
            },
        )))
    }
}

#[async_trait]
impl ChannelResolver for Connections {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let inner = self.client(self.channel(url).await?);
        Ok(Box::new(NamingChannel { inner, worker: url.clone() }))
    }
}

/// A connection whose errors name its worker.
struct NamingChannel {
    inner: Box<dyn WorkerChannel>,
    worker: Url,
}

/// Whom an error is of.
struct Named<'a> {
    worker: &'a Url,
    task: Option<TaskName>,
}

/// What a worker says that waited for a plan which never came: its coordinator could not reach it.
const NO_PLAN: &str = "timed-out while waiting for the plan";

impl Named<'_> {
    fn error(&self, error: DataFusionError) -> DataFusionError {
        let lost =
            |cause: String| LostWorker { worker: self.worker.to_string(), task: self.task, cause }.error();
        if let DataFusionError::External(external) = error.find_root()
            && let Some(status) = external.downcast_ref::<tonic::Status>()
        {
            return match status.code() {
                tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => DataFusionError::Execution(
                    format!("worker {} refuses this process: {}", self.worker, status.message()),
                ),
                _ => lost(with_causes(status)),
            };
        }
        match error.find_root() {
            DataFusionError::ResourcesExhausted(_) => {
                let task = self.task.map(|task| format!(" ({task})")).unwrap_or_default();
                error.context(format!("worker {}{task} is out of memory", self.worker))
            }
            DataFusionError::Execution(text) if text.contains(NO_PLAN) => lost("its plan never came".into()),
            _ => error,
        }
    }
}

impl From<TaskKey> for TaskName {
    fn from(key: TaskKey) -> TaskName {
        TaskName { stage: key.stage_id, task: key.task_number }
    }
}

/// A stream whose errors name a worker.
fn naming<T: Send + 'static>(
    stream: BoxStream<'static, Result<T>>,
    worker: &Url,
    task: TaskName,
) -> BoxStream<'static, Result<T>> {
    let worker = worker.clone();
    stream
        .map(move |item| item.map_err(|error| Named { worker: &worker, task: Some(task) }.error(error)))
        .boxed()
}

#[async_trait]
impl WorkerChannel for NamingChannel {
    async fn coordinator_channel(
        &mut self,
        headers: HeaderMap,
        set_plan_request: SetPlanRequest,
        c2w_stream: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        let task = TaskName::from(set_plan_request.task_key);
        let answer =
            self.inner.coordinator_channel(headers, set_plan_request, c2w_stream, metrics, task_ctx).await;
        let named = Named { worker: &self.worker, task: Some(task) };
        Ok(naming(answer.map_err(|error| named.error(error))?, &self.worker, task))
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        task_ctx: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let task = TaskName::from(request.task_key);
        let rows = self.inner.execute_task(headers, request, metrics, task_ctx).await;
        let named = Named { worker: &self.worker, task: Some(task) };
        let rows = rows.map_err(|error| named.error(error))?;
        Ok(rows.into_iter().map(|stream| naming(stream, &self.worker, task)).collect())
    }

    async fn get_worker_info(&mut self, request: GetWorkerInfoRequest) -> Result<GetWorkerInfoResponse> {
        let named = Named { worker: &self.worker, task: None };
        self.inner.get_worker_info(request).await.map_err(|error| named.error(error))
    }
}
