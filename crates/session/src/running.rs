//! A statement on its way: its rows as they come.

use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    EmptyRecordBatchStream, ExecutionPlan, SendableRecordBatchStream, execute_stream,
};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use futures::stream::try_unfold;
use kelpie_datafusion::clock::PlanClock;
use kelpie_datafusion::recursion_guard::with_room;
use kelpie_datafusion::{
    CannotRun, FellBack, KelpieExec, KelpieOptions, check_computed_decimals, for_each_compiled,
    uncompiled_reasons,
};
use kelpie_engine::trace::OpenSpan;
use kelpie_engine::{Engine, Phase, Split};
use parking_lot::Mutex;

use crate::checked_files::{caught, find_unreadable, is_panic};
use crate::deadline::{Deadline, on_a_task_of_its_own, within};
use crate::files::find_misfit;
use crate::messages::worded;
use crate::plan_cache::Planned;
use crate::planning::Planning;
use crate::threads::OnThreads;
use crate::timing::QueryTiming;

/// A statement that was planned and has not begun.
pub struct PlannedQuery {
    pub(crate) text: String,
    pub(crate) context: SessionContext,
    pub(crate) planned: Planned,
    /// What it runs in.
    pub(crate) task: Arc<TaskContext>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: KelpieOptions,
    pub(crate) last: Arc<Mutex<Option<QueryTiming>>>,
    pub(crate) start: Instant,
    pub(crate) planned_at: Instant,
    pub(crate) split: Split,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) again: Option<Planning>,
    /// Shows a trace how long it was there.
    pub(crate) _span: OpenSpan,
}

impl std::fmt::Debug for PlannedQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannedQuery").finish_non_exhaustive()
    }
}

impl PlannedQuery {
    /// The columns of its rows.
    pub fn schema(&self) -> SchemaRef {
        self.planned.plan.schema()
    }

    /// Starts it; its rows come as they are asked for. The time since it was planned does not count.
    pub fn start(self) -> Result<RunningQuery> {
        let waited = self.planned_at.elapsed();
        let deadline = self.deadline.and_then(|deadline| deadline.after(waited));
        // What ends it in time must not wait for threads that it keeps busy.
        let threads = deadline.map(|_| OnThreads::shared()).transpose()?;
        let stream = started(&self.planned.plan, self.task, threads.as_ref());
        let stream = stream.map_err(|error| worded(error, &self.text, &self.context.state()))?;
        Ok(RunningQuery {
            text: self.text,
            context: self.context,
            planned: self.planned,
            stream,
            engine: self.engine,
            options: self.options,
            last: self.last,
            start: self.start + waited,
            split: self.split,
            taking: Taking::default(),
            deadline,
            threads,
            again: self.again,
            _span: self._span,
        })
    }
}

/// A statement that was planned and runs. Dropping it cancels it.
pub struct RunningQuery {
    /// The statement, and the session that it runs in: errors are worded by them.
    pub(crate) text: String,
    pub(crate) context: SessionContext,
    pub(crate) planned: Planned,
    pub(crate) stream: SendableRecordBatchStream,
    pub(crate) engine: Arc<Engine>,
    /// The session's options when it was planned.
    pub(crate) options: KelpieOptions,
    /// Where the session keeps the timing of its last query.
    pub(crate) last: Arc<Mutex<Option<QueryTiming>>>,
    pub(crate) start: Instant,
    /// Where the time of planning went.
    pub(crate) split: Split,
    pub(crate) taking: Taking,
    /// When it is cancelled.
    pub(crate) deadline: Option<Deadline>,
    /// What it runs on, where that is not what its rows are asked for on.
    pub(crate) threads: Option<OnThreads>,
    /// Plans it with its values, where it runs by a generic plan and no rows have come.
    pub(crate) again: Option<Planning>,
    /// Shows a trace how long it was there.
    pub(crate) _span: OpenSpan,
}

/// How long whoever takes the rows was busy with them.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    /// Since when the last rows are out.
    since: Option<Instant>,
    time_ns: u64,
}

impl Taking {
    fn asked(&mut self) {
        self.time_ns += self.since.take().map_or(0, |since| since.elapsed().as_nanos() as u64);
    }
}

impl std::fmt::Debug for RunningQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningQuery").finish_non_exhaustive()
    }
}

impl RunningQuery {
    /// The columns of its rows.
    pub fn schema(&self) -> SchemaRef {
        self.stream.schema()
    }

    /// Its rows as DataFusion's own kind of stream. Dropping it cancels the query; after the last rows the session has its timing.
    pub fn into_stream(self) -> SendableRecordBatchStream {
        let schema = self.schema();
        let rows = try_unfold(self, |mut query| async move {
            let next = query.next().await?;
            match next {
                Some(rows) => Ok(Some((rows, query))),
                None => {
                    query.finish();
                    Ok(None)
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }

    /// The next rows; nothing after the last.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.taking.asked();
        let deadline = self.deadline;
        let next = within(deadline, self.next_rows()).await;
        if let (Err(_), Some(deadline)) = (&next, deadline)
            && deadline.is_over()
        {
            // Dropping what makes the rows stops it.
            self.stream = Box::pin(EmptyRecordBatchStream::new(self.stream.schema()));
        }
        next
    }

    async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        let mut next = caught(next_of(&mut self.stream)).await;
        // An internal error of a compiled plan is seen, as everywhere.
        let fails_as_generic =
            |error: &DataFusionError| !self.planned.plan.is::<KelpieExec>() || CannotRun::is(error);
        if let (Some(planning), Err(error)) = (self.again.take(), &next)
            && fails_as_generic(error)
        {
            self.plan_again(Planning { is_custom: true, ..planning }).await?;
            next = caught(next_of(&mut self.stream)).await;
        }
        self.taking.since = Some(Instant::now());
        if let (Ok(None), Some(threads)) = (&next, &mut self.threads) {
            threads.has_ended = true;
        }
        match next {
            Ok(Some(rows)) if self.options.corrections => match check_computed_decimals(&rows) {
                Ok(()) => Ok(Some(rows)),
                Err(what) => Err(DataFusionError::Execution(what)),
            },
            Ok(next) => Ok(next),
            Err(error) => Err(match place_in_files(&error, &self.planned.plan).await {
                Some(place) => DataFusionError::Execution(place),
                None => {
                    let error = with_room(&self.planned.plan, || name_files(error, &self.planned.plan));
                    worded(error, &self.text, &self.context.state())
                }
            }),
        }
    }

    /// A generic plan has failed: the query runs as if there were none, so that its rows or its error are the same.
    async fn plan_again(&mut self, planning: Planning) -> Result<()> {
        if let Some(learning) = self.planned.learning.take() {
            learning.note_failure(self.start.elapsed());
        }
        let (start, clock) = (Instant::now(), PlanClock::default());
        let (planned, task) = planning.on_its_stack(&clock).await?;
        self.split += clock.finish(start.elapsed(), Phase::Physical);
        self.stream = started(&planned.plan, task, self.threads.as_ref())?;
        self.planned = planned;
        Ok(())
    }

    /// What it took, once its last rows have come.
    pub fn finish(mut self) -> QueryTiming {
        self.taking.asked();
        let timing = with_room(&self.planned.plan, || self.timing());
        if let Some(learning) = &self.planned.learning {
            learning.note(&timing);
        }
        *self.last.lock() = Some(timing.clone());
        timing
    }

    fn timing(&self) -> QueryTiming {
        let total_ns = self.start.elapsed().as_nanos() as u64;
        let (plan_kept, plan_ns) = (self.planned.is_reused, self.split.total());
        let mut timing = QueryTiming { plan_ns, plan_kept, total_ns, ..QueryTiming::default() };
        let mut parts = Split::default();
        timing.reasons = match &self.planned.kept {
            Some(kept) => kept.reasons().to_vec(),
            None => uncompiled_reasons(&self.planned.plan, &self.engine, &self.options),
        };
        timing.compiled = timing.reasons.is_empty();
        let mut any = false;
        for_each_compiled(&self.planned.plan, &mut |exec| {
            any = true;
            let Some(run) = exec.last_run() else { return };
            let metrics = run.metrics;
            parts += metrics.split;
            timing.compile_ns += metrics.compile_ns;
            timing.transfer_ns += metrics.transfer_ns;
            timing.transfer_bytes += metrics.transfer_bytes;
            timing.kernel_ns += metrics.kernel_ns;
            timing.kernel_bytes_read += metrics.pipelines.iter().map(|p| p.bytes_read).sum::<u64>();
            timing.result_ns += metrics.result_ns;
            match run.fallback {
                Some(reason) => {
                    timing.reasons.push(reason.to_string());
                    timing.compiled = false;
                    if let FellBack::Failed(error) = reason {
                        timing.failures.push(error);
                    }
                }
                None => {
                    timing.device = Some(metrics.device.clone());
                    timing.parts.push(metrics);
                }
            }
        });
        timing.compiled &= any;
        timing.split = self.charged(parts, total_ns);
        timing
    }

    /// All of the query's time, where compiled parts took theirs. Parts that run at once share the time that there is.
    fn charged(&self, parts: Split, total_ns: u64) -> Split {
        let mut split = self.split;
        let running = total_ns.saturating_sub(split.total());
        split += if parts.total() > running { parts.scaled_to(running) } else { parts };
        let left = total_ns.saturating_sub(split.total());
        let taking = self.taking.time_ns.min(left);
        split.add(Phase::Taking, taking);
        // Where everything is compiled, nothing else happens but that rows go from thread to thread.
        let is_whole = self.planned.plan.is::<KelpieExec>();
        split.add(if is_whole { Phase::Host } else { Phase::Operators }, left - taking);
        split
    }
}

/// Starts a plan, on threads of its own or on those of whoever asks.
fn started(
    plan: &Arc<dyn ExecutionPlan>,
    task: Arc<TaskContext>,
    threads: Option<&OnThreads>,
) -> Result<SendableRecordBatchStream> {
    let Some(threads) = threads else { return execute_stream(Arc::clone(plan), task) };
    // Operators start tasks of theirs where they begin.
    let _inside = threads.handle()?.enter();
    Ok(on_a_task_of_its_own(execute_stream(Arc::clone(plan), task)?))
}

async fn next_of(stream: &mut SendableRecordBatchStream) -> Result<Option<RecordBatch>> {
    stream.next().await.transpose()
}

/// Whether an error is one of a reader.
fn is_of_reader(error: &DataFusionError) -> bool {
    match error.find_root() {
        DataFusionError::ParquetError(_) | DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => {
            true
        }
        DataFusionError::ArrowError(error, _) => {
            use datafusion::arrow::error::ArrowError::{
                CsvError, ExternalError, IoError, IpcError, ParquetError,
            };
            matches!(**error, CsvError(_) | ExternalError(_) | IoError(..) | IpcError(_) | ParquetError(_))
        }
        _ => is_panic(error),
    }
}

/// An error of a reader, with the tables that the plan reads: DataFusion's readers do not name them.
fn name_files(error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    let mut names = Vec::new();
    for_each_scan(plan, &mut |node| {
        let tables = kelpie_datafusion::scanned(node);
        names.extend(tables.iter().map(|table| table.name().to_string()));
    });
    match is_of_reader(&error) && !names.is_empty() {
        true => error.context(format!("while reading {}", names.join(", "))),
        false => error,
    }
}

/// Where it is in the files that a reader could not go on. What readers say of it holds within what they read.
async fn place_in_files(error: &DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let text = error.to_string();
    let says = |kinds: &[&str]| kinds.iter().any(|kind| text.contains(kind));
    let of_text = says(&["Parser error", "Csv error", "Json error", "Cast error"]);
    // Errors of compiled parts are texts.
    if !of_text && !is_of_reader(error) && !says(&["Parquet", "Arrow", "Ipc"]) {
        return None;
    }
    let mut scans = Vec::new();
    with_room(plan, || {
        for_each_scan(plan, &mut |node| {
            scans.extend(node.data_source().downcast_ref::<FileScanConfig>().cloned())
        })
    });
    // An error may be of something else all the same: then all files are read, and nothing is found.
    let found = tokio::task::spawn_blocking(move || {
        let misfit = || scans.iter().find_map(find_misfit).map(|misfit| misfit.to_string());
        let unreadable = || scans.iter().find_map(find_unreadable).map(|file| file.to_string());
        if of_text { misfit().or_else(unreadable) } else { unreadable() }
    });
    found.await.ok().flatten()
}

/// Visits the scans of a plan, those of compiled parts too.
fn for_each_scan(plan: &Arc<dyn ExecutionPlan>, visit: &mut dyn FnMut(&DataSourceExec)) {
    if let Some(compiled) = plan.downcast_ref::<KelpieExec>() {
        return for_each_scan(compiled.original(), visit);
    }
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        visit(scan);
    }
    for child in plan.children() {
        for_each_scan(child, visit);
    }
}
