//! The workers of a coordinator.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::common::exec_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion_distributed::{DistributedConfig, DistributedExt, SessionStateBuilderExt, WorkerResolver};
use kelpie_session::{Engine, SessionOptions};
use parking_lot::Mutex;
use url::Url;

use crate::connections::{ConnectionOptions, Connections};
use crate::errors::ClusterError;
use crate::planner::ClusterPlanner;
use crate::sending::OwnNodes;
use crate::stage::StageEngine;
use crate::worker::worker_state;
use crate::{routing, worker};

/// How long a worker that was lost gets no more stages.
const LOST_FOR: Duration = Duration::from_secs(30);

/// How long the workers that a file or the DNS named are taken for the workers.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// Where workers are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workers {
    /// By their addresses.
    Listed(Vec<Url>),
    /// By the lines of a file, an address each; empty lines and those that begin with `#` are none. It is read anew every few seconds.
    File(PathBuf),
    /// By a name of the DNS, `host:port`: every address that it has is a worker. It is asked anew every few seconds.
    Dns(String),
}

impl FromStr for Workers {
    type Err = ClusterError;

    /// `host:port,…`, a path of a file, or `dns:host:port`.
    fn from_str(text: &str) -> Result<Workers, ClusterError> {
        let text = text.trim();
        if let Some(name) = text.strip_prefix("dns:") {
            return match name.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Workers::Dns(name.to_string()))
                }
                _ => Err(ClusterError::Workers(format!("dns:{name}: wanted is dns:NAME:PORT"))),
            };
        }
        if !text.contains(',')
            && (text.contains('/') && !text.contains("://") || PathBuf::from(text).is_file())
        {
            return Ok(Workers::File(text.into()));
        }
        Ok(Workers::Listed(listed(text.split(','), "http")?))
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>, scheme: &str) -> Result<Vec<Url>, ClusterError> {
    let mut workers = names
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| address(name, scheme))
        .collect::<Result<Vec<_>, _>>()?;
    workers.sort();
    workers.dedup();
    match workers.is_empty() {
        true => Err(ClusterError::Workers("no worker is named: HOST:PORT,… is wanted".into())),
        false => Ok(workers),
    }
}

/// The address of a worker, which may be written with a scheme.
fn address(name: &str, scheme: &str) -> Result<Url, ClusterError> {
    let wrong = || ClusterError::Workers(format!("'{name}' is no address of a worker: HOST:PORT is wanted"));
    let written = if name.contains("://") { name.to_string() } else { format!("{scheme}://{name}") };
    // The port of a URL that is its scheme's is left out of it, so that it is looked for in the text.
    let port = written.trim_end_matches('/').rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    let url = Url::parse(&written).map_err(|_| wrong())?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.path() == "/" && url.query().is_none();
    match url.host_str().is_some() && is_plain && matches!(port, Some(Ok(_))) {
        true => Ok(url),
        false => Err(wrong()),
    }
}

/// How a coordinator reaches its workers.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Which they are.
    pub workers: Workers,
    /// How connections are made.
    pub connections: ConnectionOptions,
}

impl ClusterOptions {
    /// Workers as they are written on the command line: `host:port,…`, a file, or `dns:host:port`; without TLS and token.
    pub fn of(workers: &str) -> Result<ClusterOptions, ClusterError> {
        Ok(ClusterOptions { workers: workers.parse()?, connections: ConnectionOptions::default() })
    }
}

/// What is known of a worker.
#[derive(Debug, Clone)]
pub struct Health {
    /// Its address.
    pub worker: Url,
    /// What it says of itself: its version and its devices; or why it cannot be reached.
    pub answer: Result<String, String>,
    /// How long the answer took.
    pub took: Duration,
}

/// The workers of a coordinator. Sessions that [`Cluster::joined`] makes run their queries on them.
pub struct Cluster {
    options: ClusterOptions,
    connections: Connections,
    members: Mutex<Members>,
    /// A session as workers have it, by which is told what they understand.
    pub(crate) worker: SessionState,
}

#[derive(Debug, Default)]
struct Members {
    known: Vec<Url>,
    asked: Option<Instant>,
    lost: HashMap<Url, Instant>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("workers", &self.options.workers).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster; nobody is connected to before a query runs. An address or a certificate that is none is an error.
    pub fn new(mut options: ClusterOptions) -> Result<Arc<Cluster>, ClusterError> {
        let scheme = options.connections.scheme();
        if let Workers::Listed(workers) = &mut options.workers {
            for worker in workers.iter_mut().filter(|worker| worker.scheme() != scheme) {
                let _ = worker.set_scheme(scheme);
            }
        }
        // An address that the DNS gives is none that a certificate is for.
        if let (Workers::Dns(name), None) = (&options.workers, &options.connections.server_name) {
            options.connections.server_name = name.rsplit_once(':').map(|(host, _)| host.to_string());
        }
        let connections = Connections::new(options.connections.clone())?;
        let worker = worker_state(&Arc::new(Engine::new()))
            .map_err(|error| ClusterError::Workers(error.strip_backtrace()))?;
        Ok(Arc::new(Cluster { options, connections, members: Mutex::default(), worker }))
    }

    /// Options of a session whose queries run on the workers.
    pub fn joined(self: &Arc<Cluster>, options: SessionOptions) -> SessionOptions {
        let cluster = Arc::clone(self);
        let engine = options.engine.clone().unwrap_or_default();
        let for_stages = Arc::clone(&engine);
        options.with_engine(engine).with_beneath(move |builder| cluster.add_to(builder, &for_stages))
    }

    fn add_to(
        self: &Arc<Cluster>,
        builder: SessionStateBuilder,
        engine: &Arc<Engine>,
    ) -> SessionStateBuilder {
        let mut builder = builder
            .with_distributed_worker_resolver(Resolver(Arc::clone(self)))
            .with_distributed_channel_resolver(self.connections.clone())
            .with_distributed_user_codec(OwnNodes)
            .with_distributed_scale_up_leaf_node_handler(routing::deal_out)
            .with_distributed_route_tasks_handler(routing::route)
            .with_distributed_planner();
        let config = builder.config().get_or_insert_default();
        config.set_extension(Arc::new(StageEngine(Arc::clone(engine))));
        if let Ok(distributed) = DistributedConfig::from_config_options_mut(config.options_mut()) {
            // A stage with a UNION is compiled as a whole where every task has a part of every branch.
            distributed.children_isolator_unions = false;
        }
        worker::add_functions(&mut builder);
        // It is asked for by the planner, once that has a plan.
        builder.query_planner().take();
        builder.with_query_planner(Arc::new(ClusterPlanner::new(Arc::clone(self), Arc::clone(engine))))
    }

    /// Asks who the workers are, where that is to be asked anew.
    pub(crate) async fn refresh(&self) -> Result<()> {
        let is_known = |members: &Members| members.asked.is_some_and(|asked| asked.elapsed() < KNOWN_FOR);
        if is_known(&self.members.lock()) {
            return Ok(());
        }
        let scheme = self.options.connections.scheme();
        let known = match &self.options.workers {
            Workers::Listed(workers) => workers.clone(),
            Workers::File(path) => {
                let named = |error: &dyn fmt::Display| {
                    DataFusionError::Execution(format!("workers in {}: {error}", path.display()))
                };
                let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
                let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
                listed(lines, scheme).map_err(|error| named(&error))?
            }
            Workers::Dns(name) => {
                let found = tokio::net::lookup_host(name.as_str()).await;
                let found = match found {
                    Ok(found) => found.map(|address| address.to_string()).collect::<Vec<_>>(),
                    Err(error) => return exec_err!("workers of dns:{name}: {error}"),
                };
                listed(found.iter().map(String::as_str), scheme)
                    .map_err(|error| DataFusionError::Execution(format!("dns:{name}: {error}")))?
            }
        };
        let mut members = self.members.lock();
        (members.known, members.asked) = (known, Some(Instant::now()));
        Ok(())
    }

    /// The workers that are taken to be there, in an order that stays. Where all were lost, all are tried again.
    pub(crate) fn present(&self) -> Vec<Url> {
        let mut members = self.members.lock();
        members.lost.retain(|_, since| since.elapsed() < LOST_FOR);
        let present: Vec<Url> =
            members.known.iter().filter(|worker| !members.lost.contains_key(worker)).cloned().collect();
        if present.is_empty() { members.known.clone() } else { present }
    }

    /// Gives no more stages to a worker for a while; whether it had any until now, and others are left.
    pub(crate) fn leave_out(&self, worker: &str) -> bool {
        let Ok(worker) = Url::parse(worker) else { return false };
        let mut members = self.members.lock();
        if !members.known.contains(&worker) {
            return false;
        }
        let is_new = members.lost.insert(worker.clone(), Instant::now()).is_none();
        let others = members.known.iter().any(|other| !members.lost.contains_key(other));
        self.connections.forget(&worker);
        is_new && others
    }

    /// Asks every worker for what it is.
    pub async fn health(&self) -> Result<Vec<Health>> {
        self.refresh().await?;
        let known = self.members.lock().known.clone();
        let asked = known.into_iter().map(|worker| async move {
            let start = Instant::now();
            let answer = self.connections.ask(&worker).await;
            Health { worker, answer, took: start.elapsed() }
        });
        Ok(futures::future::join_all(asked).await)
    }
}

/// A cluster as the library asks for its workers.
struct Resolver(Arc<Cluster>);

impl WorkerResolver for Resolver {
    fn get_urls(&self) -> Result<Vec<Url>> {
        let present = self.0.present();
        match present.is_empty() {
            true => exec_err!("the cluster has no workers"),
            false => Ok(present),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_written_in_three_ways() {
        let urls = |text: &str| match text.parse::<Workers>() {
            Ok(Workers::Listed(workers)) => workers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!(urls("b:2, a:1,,a:1"), ["http://a:1/", "http://b:2/"]);
        assert_eq!(urls("https://a:1"), ["https://a:1/"]);
        assert_eq!(urls("[::1]:7"), ["http://[::1]:7/"]);
        assert_eq!("dns:w.local:80".parse::<Workers>().unwrap(), Workers::Dns("w.local:80".into()));
        assert_eq!("/etc/workers".parse::<Workers>().unwrap(), Workers::File("/etc/workers".into()));
        for text in ["", ",", "dns:w", "dns::80", "ftp://a:1", "http://a:1/x", "a", "a:99999", "http://"] {
            assert!(text.parse::<Workers>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_lost_worker_is_left_out_while_others_are_there() {
        let cluster = Cluster::new(ClusterOptions::of("a:1,b:2").unwrap()).unwrap();
        cluster.refresh().await.unwrap();
        assert_eq!(cluster.present().len(), 2);
        assert!(cluster.leave_out("http://a:1/"));
        assert_eq!(cluster.present(), [Url::parse("http://b:2").unwrap()]);
        assert!(!cluster.leave_out("http://a:1/"), "it is left out already");
        assert!(!cluster.leave_out("http://b:2/"), "nobody is left");
        assert_eq!(cluster.present().len(), 2, "all are tried again");
        assert!(!cluster.leave_out("http://c:3/"));
    }
}
