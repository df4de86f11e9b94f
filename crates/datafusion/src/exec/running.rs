//! An engine at work for a stream of rows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::error::{DataFusionError, Result};
use kelpie_engine::{
    Batches, CancelToken, Engine, EngineError, FIRST_RUN, Place, Query, QueryMetrics, QueryOutput,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use super::KelpieExec;
use super::errors::{into_datafusion, panicked};
use crate::join_bounds::JoinBounds;
use crate::top_rows::{Bounded, TopRows};

/// Batches that are ready before anybody asks for them.
pub(super) const BATCHES_IN_FLIGHT: usize = 4;

/// How an engine ended: what it did, and how long it was busy.
type End = Result<(QueryMetrics, Duration), EngineError>;

/// A query for a thread of the engine's.
pub(super) struct EngineJob {
    pub engine: Arc<Engine>,
    pub query: Query,
    /// The sort that it ends with, where that keeps few rows of a wide table.
    pub top_rows: Option<TopRows>,
    /// What its joins say of the rows that its tables need.
    pub join_bounds: Option<JoinBounds>,
    pub batches: Batches,
    /// Of the rows that it gives.
    pub schema: SchemaRef,
    /// Whether this may be the query's first run.
    pub may_be_first: bool,
}

impl EngineJob {
    /// Starts it: its rows as they come, and how it ended after them.
    pub fn start(self, cancel: CancelToken) -> Result<(mpsc::Receiver<RecordBatch>, oneshot::Receiver<End>)> {
        let (sender, rows) = mpsc::channel(BATCHES_IN_FLIGHT);
        let (done, end) = oneshot::channel();
        let (engine, runtime) = (Arc::clone(&self.engine), Handle::try_current());
        let job = move |place: &mut Place| {
            // Functions of the user may ask for the runtime.
            let _entered = runtime.as_ref().map(Handle::enter);
            let run = AssertUnwindSafe(|| self.run(&sender, &cancel, place));
            let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
            // The rows end before the outcome is asked for, by whoever has not left; and who has it finds no table held any more.
            drop(sender);
            drop(self);
            let _ = done.send(outcome);
        };
        engine.threads().run(job).map_err(no_thread)?;
        Ok((rows, end))
    }

    fn run(&self, sender: &mpsc::Sender<RecordBatch>, cancel: &CancelToken, place: &mut Place) -> End {
        let (start, mut waited) = (Instant::now(), Duration::ZERO);
        let mut send = |batch| {
            let batch = match sender.try_send(batch) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(EngineError::Cancelled),
                Err(TrySendError::Full(batch)) => batch,
            };
            // Whoever takes the rows may first want those of a query that has not begun.
            place.leave();
            let sending = Instant::now();
            let sent = sender.blocking_send(batch);
            waited += sending.elapsed();
            sent.map_err(|_| EngineError::Cancelled)
        };
        let mut take = |batch| conform(&batch, &self.schema, &mut send);
        let first = self.may_be_first.then(|| self.engine.first_run(&self.query)).flatten();
        let query = first.as_ref().unwrap_or(&self.query);
        let top_rows = self.top_rows.as_ref();
        let found =
            top_rows.map(|top_rows| top_rows.of_first_groups(&self.engine, query, cancel)).transpose()?;
        if let Some(QueryOutput { batch, mut metrics }) = found.flatten() {
            take(batch)?;
            metrics.steps.push("the first row groups have all rows that are wanted".into());
            return Ok((metrics, start.elapsed().saturating_sub(waited)));
        }
        let bounded = top_rows.map(|top_rows| top_rows.bounded(&self.engine, query, cancel)).transpose()?;
        let bounded = match bounded.flatten() {
            Some(Bounded::Nothing(mut metrics)) => {
                metrics.steps.push("the first rows in order have no keys: there are none".into());
                return Ok((*metrics, start.elapsed().saturating_sub(waited)));
            }
            Some(Bounded::Query(bounded)) => Some(*bounded),
            None => match &self.join_bounds {
                Some(bounds) => bounds.bounded(&self.engine, query, cancel)?,
                None => None,
            },
        };
        let query = bounded.as_ref().map_or(query, |bounded| &bounded.query);
        let mut metrics = self.engine.stream(query, self.batches, cancel, &mut take)?;
        if let Some(bounded) = &bounded {
            metrics.precede(&bounded.metrics);
            metrics.steps.push(bounded.step.clone());
        }
        if first.is_some() {
            metrics.steps.push(FIRST_RUN.into());
        }
        Ok((metrics, start.elapsed().saturating_sub(waited)))
    }
}

/// An engine at work for a stream: dropping it stops the engine.
pub(super) struct Running {
    pub exec: KelpieExec,
    pub rows: mpsc::Receiver<RecordBatch>,
    pub end: oneshot::Receiver<End>,
    /// Rows that came.
    pub count: usize,
    /// In so many batches.
    pub batches: usize,
    pub _guard: CancelOnDrop,
}

impl Running {
    /// How the engine ended, which is at the end of the rows; notes what it did.
    pub async fn outcome(&mut self) -> Result<(), EngineError> {
        let (metrics, elapsed) = match (&mut self.end).await {
            Ok(outcome) => outcome?,
            // It was given up with the thread that it waited for.
            Err(_) => return Err(EngineError::Cancelled),
        };
        self.exec.note_run(metrics, elapsed, self.count, self.batches);
        Ok(())
    }
}

/// Stops an engine when it is dropped.
pub(super) struct CancelOnDrop(pub CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Hands on rows with exactly the schema of the plan that Kelpie replaces (its kinds of text, its metadata): in several batches where
/// its keys of dictionaries tell fewer values apart than there are. Each batch has a dictionary of its own.
pub(super) fn conform(
    batch: &RecordBatch,
    schema: &SchemaRef,
    take: &mut dyn FnMut(RecordBatch) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let rows = batch.num_rows();
    match conformed(batch, schema) {
        Err(EngineError::Arrow(ArrowError::DictionaryKeyOverflowError)) if rows > 1 => {
            let half = rows / 2;
            conform(&batch.slice(0, half), schema, take)?;
            conform(&batch.slice(half, rows - half), schema, take)
        }
        conformed => take(conformed?),
    }
}

fn conformed(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, EngineError> {
    if batch.num_columns() != schema.fields().len() {
        let (columns, fields) = (batch.num_columns(), schema.fields().len());
        return Err(EngineError::Internal(format!("Kelpie gave {columns} columns, not {fields}")));
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let columns = batch
        .columns()
        .iter()
        .zip(schema.fields())
        .map(|(column, field)| match column.data_type() == field.data_type() {
            true => Ok(Arc::clone(column)),
            false => cast_with_options(column, field.data_type(), &options),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let rows = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &rows)?)
}

/// Lets an engine do something that waits for its readers, on a thread of its own.
pub async fn on_engine<T: Send + 'static>(
    engine: &Arc<Engine>,
    work: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
) -> Result<T> {
    let (done, outcome) = oneshot::channel();
    let its_own = Arc::clone(engine);
    let job = move |_: &mut Place| {
        let run = AssertUnwindSafe(|| work(&its_own));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        let _ = done.send(outcome);
    };
    engine.threads().run(job).map_err(no_thread)?;
    outcome.await.unwrap_or(Err(EngineError::Cancelled)).map_err(into_datafusion)
}

fn no_thread(error: std::io::Error) -> DataFusionError {
    DataFusionError::IoError(error).context("starting a thread for a query")
}
