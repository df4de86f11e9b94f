//! The rows of a statement on their way to a client: no more of them are made than the client takes.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_flight::FlightData;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use chrono::{DateTime, SecondsFormat, Utc};
use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use futures::{Stream, StreamExt, TryStreamExt};
use kelpie_session::RunningQuery;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tonic::Status;

use crate::errors::of_query;
use crate::metrics::{Metrics, Outcome, Taken};
use crate::wire;

/// Messages that wait for the client to take them.
const WAITING: usize = 2;
/// Bytes of a message, about: clients take 4 MB at least.
const MESSAGE_BYTES: usize = 2 << 20;
/// Bytes of a statement in the log.
const LOGGED_BYTES: usize = 1000;

/// What the client gets: rows, an error, or the end, without which the rows are not whole.
enum Event {
    Data(FlightData),
    Failed(Status),
    End,
}

/// A statement in the log and the metrics. It was cancelled where nothing else is said before it goes.
pub(crate) struct Report {
    /// How the log names its session and its client.
    pub of: String,
    pub sql: String,
    pub metrics: Arc<Metrics>,
    pub log: bool,
    pub start: Instant,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub outcome: Mutex<Option<Outcome>>,
    pub error: Mutex<Option<String>>,
    /// Whether it is told elsewhere.
    pub is_told: AtomicBool,
}

impl Report {
    pub fn note(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
    }

    pub fn fail(&self, status: &Status) {
        self.note(Outcome::Failed);
        *self.error.lock() = Some(status.message().to_string());
    }

    /// Leaves it out of the log and the metrics.
    pub fn forget(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }

    fn line(&self, outcome: Outcome, taken: Taken) -> String {
        let now = DateTime::<Utc>::from(std::time::SystemTime::now());
        let mut line = format!(
            "{} {} {} rows={} bytes={} ms={:.1} sql=",
            now.to_rfc3339_opts(SecondsFormat::Millis, true),
            self.of,
            outcome.name(),
            taken.rows,
            taken.bytes,
            taken.time.as_secs_f64() * 1e3,
        );
        quote(&mut line, &self.sql);
        if let Some(error) = self.error.lock().as_ref() {
            line.push_str(" error=");
            quote(&mut line, error);
        }
        line
    }
}

/// A text in one line, between quotes, cut where it is long.
fn quote(line: &mut String, text: &str) {
    line.push('"');
    for (place, letter) in text.char_indices() {
        if place >= LOGGED_BYTES {
            line.push('…');
            break;
        }
        match letter {
            '"' | '\\' => line.extend(['\\', letter]),
            letter if letter.is_control() => {
                // Writing to a text does not fail.
                let _ = write!(line, "{}", letter.escape_default());
            }
            letter => line.push(letter),
        }
    }
    line.push('"');
}

impl Drop for Report {
    fn drop(&mut self) {
        if self.is_told.load(Ordering::Relaxed) {
            return;
        }
        let outcome = self.outcome.lock().unwrap_or(Outcome::Cancelled);
        let taken = Taken {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            time: self.start.elapsed(),
        };
        self.metrics.count(outcome, taken);
        if self.log {
            use std::io::Write as _;
            // Where nobody reads the log, queries go on.
            let _ = writeln!(std::io::stderr().lock(), "{}", self.line(outcome, taken));
        }
    }
}

/// How a statement begins: in the task that sends its rows, so that it ends with it.
pub(crate) type Beginning = Pin<Box<dyn Future<Output = Result<RunningQuery, DataFusionError>> + Send>>;

/// A statement whose rows are to be sent.
pub(crate) struct Sending {
    pub begin: Beginning,
    pub report: Report,
    /// A place is taken while it runs.
    pub places: Arc<Semaphore>,
    /// How long the client may take no rows.
    pub stalled: Duration,
}

/// A place of a statement that runs.
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    metrics: Arc<Metrics>,
}

impl Place {
    /// Waits for one; nothing where the server ends.
    pub async fn of(places: Arc<Semaphore>, metrics: &Arc<Metrics>) -> Option<Place> {
        let permit = places.acquire_owned().await.ok()?;
        metrics.running.inc();
        Some(Place { _permit: permit, metrics: Arc::clone(metrics) })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.metrics.running.dec();
    }
}

/// The rows of a statement for a client, and the task that makes them. A client that goes away ends the task, and so does one that
/// takes no rows for too long.
pub(crate) fn rows(
    queries: &tokio::runtime::Handle,
    sending: Sending,
) -> (impl Stream<Item = Result<FlightData, Status>> + use<>, tokio::task::AbortHandle) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let task = queries.spawn(send(sending, sender));
    let stream = futures::stream::unfold(Some(receiver), async |receiver| {
        let mut receiver = receiver?;
        match receiver.recv().await {
            Some(Event::Data(data)) => Some((Ok(data), Some(receiver))),
            Some(Event::Failed(status)) => Some((Err(status), None)),
            Some(Event::End) => None,
            // The task was ended.
            None => Some((Err(Status::cancelled("the statement was cancelled")), None)),
        }
    });
    (stream, task.abort_handle())
}

async fn send(sending: Sending, sender: mpsc::Sender<Event>) {
    let Sending { begin, report, places, stalled } = sending;
    let report = Arc::new(report);
    let beginning = async {
        let place = Place::of(places, &report.metrics).await;
        (begin.await, place)
    };
    // The place is free when the rows have been sent.
    let (query, _place) = tokio::select! {
        biased;
        () = sender.closed() => return,
        begun = beginning => begun,
    };
    let query = match query {
        Ok(query) => query,
        Err(error) => {
            let status = of_query(&error);
            report.fail(&status);
            // A client that went away wants no error.
            let _ = sender.send(Event::Failed(status)).await;
            return;
        }
    };
    let schema = wire::schema(&query.schema());
    let encoder = FlightDataEncoderBuilder::new().with_schema(Arc::clone(&schema));
    let encoder = encoder.with_max_flight_data_size(MESSAGE_BYTES);
    let mut messages = encoder.build(batches(query, schema, Arc::clone(&report)).map_err(of_rows));
    loop {
        let message = tokio::select! {
            biased;
            () = sender.closed() => return,
            message = messages.next() => message,
        };
        let (event, is_last) = match message {
            Some(Ok(data)) => {
                report.bytes.fetch_add(data.data_body.len() as u64, Ordering::Relaxed);
                (Event::Data(data), false)
            }
            Some(Err(error)) => {
                let status = status(error);
                report.fail(&status);
                (Event::Failed(status), true)
            }
            None => {
                report.note(Outcome::Done);
                (Event::End, true)
            }
        };
        match timeout(stalled, sender.send(event)).await {
            Ok(Ok(())) if !is_last => {}
            Ok(_) => return,
            Err(_) => {
                *report.error.lock() = Some(format!("the client took no rows for {stalled:?}"));
                return;
            }
        }
    }
}

/// The batches of a query as a client sees them.
fn batches(
    query: RunningQuery,
    schema: datafusion::arrow::datatypes::SchemaRef,
    report: Arc<Report>,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
    let own = futures::stream::try_unfold(Some((query, report)), async |state| {
        let Some((mut query, report)) = state else { return Ok(None) };
        match query.next().await? {
            Some(batch) => {
                report.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
                Ok(Some((batch, Some((query, report)))))
            }
            None => {
                query.finish();
                Ok::<_, DataFusionError>(None)
            }
        }
    });
    own.map_ok(move |batch| {
        let parts = wire::parts(&batch, &schema).into_iter();
        futures::stream::iter(parts.map(|part| part.map_err(DataFusionError::from)))
    })
    .try_flatten()
}

fn of_rows(error: DataFusionError) -> FlightError {
    FlightError::Tonic(Box::new(of_query(&error)))
}

fn status(error: FlightError) -> Status {
    match error {
        FlightError::Tonic(status) => *status,
        other => Status::internal(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_one_line_of_the_log() {
        let mut line = String::new();
        quote(&mut line, "select 'a\n\"ä\"'\\\u{1b}[0m");
        assert_eq!(line, "\"select 'a\\n\\\"ä\\\"'\\\\\\u{1b}[0m\"");
        let mut long = String::new();
        quote(&mut long, &"ä".repeat(LOGGED_BYTES));
        assert!(long.ends_with("ä…\"") && long.len() < LOGGED_BYTES + 10);
    }
}
