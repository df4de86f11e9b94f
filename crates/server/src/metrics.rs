//! What the server counts, and how it is read: OpenMetrics over HTTP, as Prometheus takes it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Readers of metrics at once, and how long one may take.
const MOST_READERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);
/// Upper bounds of the histogram of times, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 1800.0];

type Labels = [(&'static str, &'static str); 1];

/// What the server counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    statements: Family<Labels, Counter>,
    seconds: Histogram,
    rows: Counter,
    bytes: Counter,
    refused: Family<Labels, Counter>,
    pub running: Gauge,
    pub sessions: Gauge,
    pub connections: Gauge,
}

/// What became of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Failed,
    Cancelled,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Done => "done",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// What a statement took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub rows: u64,
    pub bytes: u64,
    pub time: Duration,
}

impl Metrics {
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("kelpie");
        let metrics = Metrics {
            statements: Family::default(),
            seconds: Histogram::new(SECONDS),
            rows: Counter::default(),
            bytes: Counter::default(),
            refused: Family::default(),
            running: Gauge::default(),
            sessions: Gauge::default(),
            connections: Gauge::default(),
            registry: Registry::default(),
        };
        registry.register("statements", "Statements, by what became of them", metrics.statements.clone());
        registry.register("statement_seconds", "How long statements took", metrics.seconds.clone());
        registry.register("rows", "Rows sent to clients", metrics.rows.clone());
        registry.register("bytes", "Bytes of rows sent to clients", metrics.bytes.clone());
        registry.register("refused", "Requests refused, by the reason", metrics.refused.clone());
        registry.register("statements_running", "Statements that run now", metrics.running.clone());
        registry.register("sessions", "Sessions that are open", metrics.sessions.clone());
        registry.register("connections", "Connections that are open", metrics.connections.clone());
        Metrics { registry, ..metrics }
    }

    /// Counts a statement that is over.
    pub fn count(&self, outcome: Outcome, taken: Taken) {
        self.statements.get_or_create(&[("outcome", outcome.name())]).inc();
        self.seconds.observe(taken.time.as_secs_f64());
        self.rows.inc_by(taken.rows);
        self.bytes.inc_by(taken.bytes);
    }

    /// Counts a request that was refused.
    pub fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    /// All as text.
    fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

/// Answers readers until the task ends.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics>) {
    let readers = Arc::new(Semaphore::new(MOST_READERS));
    loop {
        let Ok(place) = Arc::clone(&readers).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let metrics = Arc::clone(&metrics);
        tokio::spawn(async move {
            let answering = service_fn(|request| {
                let answer = answer(&request, &metrics);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .serve_connection(TokioIo::new(stream), answering);
            // What goes wrong is the reader's.
            let _ = timeout(PATIENCE, connection).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/metrics") => (StatusCode::OK, metrics.text()),
        (&Method::GET, "/health") => (StatusCode::OK, "serving\n".to_string()),
        (&Method::GET, _) => (StatusCode::NOT_FOUND, "there are /metrics and /health\n".to_string()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n".to_string()),
    };
    let is_metrics = status == StatusCode::OK && request.uri().path() == "/metrics";
    let kind = match is_metrics {
        true => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        false => "text/plain; charset=utf-8",
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET"));
    }
    response
}
