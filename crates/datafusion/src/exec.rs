//! `KelpieExec`: a sub-plan that Kelpie runs.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Statistics, exec_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan,
    ExecutionPlanProperties, Partitioning, PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt, stream};
use kelpie_engine::{
    Batches, CancelToken, Engine, EngineError, FallbackReason, Query, QueryError, QueryMetrics,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};

use crate::clock::PlanClock;
use crate::deep::{protect, with_room};
use crate::kept::fresh;
use crate::options::{Fallback, KelpieOptions};
use crate::report;
use crate::rule::merged_properties;
use crate::translate::Translated;

/// Batches that are ready before anybody asks for them.
const BATCHES_IN_FLIGHT: usize = 4;

/// A sub-plan that Kelpie compiles and runs; one partition.
///
/// Its rows come as the engine makes them, a few batches ahead of whoever takes them. Until the first of them comes, the
/// original may run instead, where the data need it; after it the query can only go on or fail (`kelpie_engine::Engine::stream`
/// says how it comes that it hardly ever fails then).
pub struct KelpieExec {
    /// What it replaces: shown by EXPLAIN, and run where the data needs DataFusion's own operators.
    original: Arc<dyn ExecutionPlan>,
    translated: Arc<Translated>,
    engine: Arc<Engine>,
    properties: Arc<PlanProperties>,
    /// Levels of EXPLAIN's tree above, so that the lines below the first are indented like it.
    depth: usize,
    metrics: ExecutionPlanMetricsSet,
    run: Arc<Mutex<Option<Run>>>,
    /// Whether any copy of it ran on DataFusion's operators.
    fell_back: Arc<AtomicBool>,
    /// What EXPLAIN says of the variants, where the plan is explained.
    foreseen: Option<String>,
    /// What planning it took, where a session measures that.
    planning: Option<PlanClock>,
}

/// What an execution did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    /// What the engine reports; empty where DataFusion's own operators ran.
    pub metrics: QueryMetrics,
    /// Why DataFusion's own operators ran instead.
    pub fallback: Option<FellBack>,
}

/// Why a compiled plan ran on DataFusion's own operators in the end.
#[derive(Debug, Clone)]
pub(crate) enum FellBack {
    /// The engine met what only they handle.
    Needed(FallbackReason),
    /// It failed in Kelpie: they say how, in DataFusion's own words.
    Failed(QueryError),
}

impl fmt::Display for FellBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FellBack::Needed(reason) => reason.fmt(f),
            FellBack::Failed(error) => write!(f, "failed in Kelpie: {error}"),
        }
    }
}

impl KelpieExec {
    pub(crate) fn new(
        original: Arc<dyn ExecutionPlan>,
        translated: Translated,
        engine: Arc<Engine>,
        depth: usize,
    ) -> KelpieExec {
        // Orders and constants that the original promises hold for Kelpie's plan too: see `translate::ordered`.
        let properties = PlanProperties::new(
            merged_properties(&original),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        )
        .with_scheduling_type(SchedulingType::Cooperative);
        KelpieExec {
            original,
            translated: Arc::new(translated),
            engine,
            properties: Arc::new(properties),
            depth,
            metrics: ExecutionPlanMetricsSet::new(),
            run: Arc::default(),
            fell_back: Arc::default(),
            foreseen: None,
            planning: PlanClock::lent(),
        }
    }

    /// The same, with what will most likely be chosen for it; nothing of it is read.
    pub(crate) fn explained(self, options: &KelpieOptions) -> KelpieExec {
        // Only statistics are asked for, so that any context will do.
        let context = Arc::new(TaskContext::default());
        let query = self.query_with(&context, options);
        let foreseen = query.ok().and_then(|query| self.engine.foresee(&query).ok());
        KelpieExec { foreseen: foreseen.as_ref().map(report::foreseen_line), ..self }
    }

    /// The sub-plan that it replaces.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    /// Kelpie's plan.
    #[cfg(feature = "testing")]
    pub(crate) fn translated(&self) -> &Translated {
        &self.translated
    }

    /// The same, one level deeper in EXPLAIN's tree.
    pub(crate) fn deeper(&self) -> KelpieExec {
        KelpieExec { depth: self.depth + 1, ..self.copy() }
    }

    /// One that has not run.
    pub(crate) fn unused(&self) -> KelpieExec {
        self.copy()
    }

    /// Whether any copy of it ran on DataFusion's operators.
    pub(crate) fn fell_back(&self) -> &Arc<AtomicBool> {
        &self.fell_back
    }

    pub(crate) fn last_run(&self) -> Option<Run> {
        self.run.lock().clone()
    }

    /// The engine's query in a task context.
    pub(crate) fn query(&self, context: &Arc<TaskContext>) -> Result<Query> {
        self.query_with(context, &KelpieOptions::of(context.session_config().options()))
    }

    fn query_with(&self, context: &Arc<TaskContext>, options: &KelpieOptions) -> Result<Query> {
        let Ok(runtime) = Handle::try_current() else {
            return exec_err!("KelpieExec must be executed on a Tokio runtime");
        };
        let options = options.query.clone();
        let tables = self.translated.tables.iter();
        let sources = tables.map(|table| table.bind(Arc::clone(context), runtime.clone())).collect();
        Ok(Query { plan: self.translated.plan.clone(), sources, options })
    }

    /// The sub-plan on DataFusion's own operators.
    fn execute_original(&self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        // Other copies of this plan may run theirs. What cannot be copied is of a plan that is not kept, and runs once.
        let copy = with_room(&self.original, || fresh(&self.original));
        let plan = protect(copy.unwrap_or_else(|_| Arc::clone(&self.original)))?;
        match (plan.output_partitioning().partition_count(), plan.output_ordering().cloned()) {
            (1, _) => plan.execute(0, context),
            // The order is promised of the one partition, so theirs must not be lost.
            (_, Some(order)) => SortPreservingMergeExec::new(order, plan).execute(0, context),
            _ => CoalescePartitionsExec::new(plan).execute(0, context),
        }
    }

    fn fall_back(&self, reason: FellBack, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        MetricBuilder::new(&self.metrics).counter("fallbacks", 0).add(1);
        *self.run.lock() = Some(Run { fallback: Some(reason), ..Run::default() });
        self.fell_back.store(true, Ordering::Relaxed);
        self.execute_original(context)
    }

    fn copy(&self) -> KelpieExec {
        KelpieExec {
            original: Arc::clone(&self.original),
            translated: Arc::clone(&self.translated),
            engine: Arc::clone(&self.engine),
            properties: Arc::clone(&self.properties),
            depth: self.depth,
            metrics: ExecutionPlanMetricsSet::new(),
            run: Arc::default(),
            fell_back: Arc::clone(&self.fell_back),
            foreseen: self.foreseen.clone(),
            planning: self.planning.clone(),
        }
    }

    fn record(&self, metrics: QueryMetrics, rows: usize) {
        let set = &self.metrics;
        MetricBuilder::new(set).output_rows(0).add(rows);
        let times = [
            ("compile_time", metrics.compile_ns),
            ("transfer_time", metrics.transfer_ns),
            ("kernel_time", metrics.kernel_ns),
            ("result_time", metrics.result_ns),
        ];
        for (name, time_ns) in times {
            let time = MetricBuilder::new(set).subset_time(name, 0);
            time.add_duration(Duration::from_nanos(time_ns));
        }
        MetricBuilder::new(set).counter("transfer_bytes", 0).add(metrics.transfer_bytes as usize);
        *self.run.lock() = Some(Run { metrics, fallback: None });
    }

    /// Starts the engine, and waits for the first rows: until they come, DataFusion's own operators may still run instead.
    async fn start(
        self,
        query: Query,
        context: Arc<TaskContext>,
        guard: CancelOnDrop,
    ) -> Result<SendableRecordBatchStream> {
        let config = context.session_config();
        let deny = KelpieOptions::of(config.options()).fallback == Fallback::Deny;
        let batches = Batches { rows: config.batch_size().max(1), ..Batches::default() };
        let (sender, mut rows) = mpsc::channel(BATCHES_IN_FLIGHT);
        let (engine, schema, token) = (Arc::clone(&self.engine), self.schema(), guard.0.clone());
        let task = tokio::task::spawn_blocking(move || {
            let (start, mut waited) = (Instant::now(), Duration::ZERO);
            let outcome = engine.stream(&query, batches, &token, &mut |batch| {
                let batch = conform(&batch, &schema)?;
                let sending = Instant::now();
                let sent = sender.blocking_send(batch);
                waited += sending.elapsed();
                sent.map_err(|_| EngineError::Cancelled)
            });
            outcome.map(|metrics| (metrics, start.elapsed().saturating_sub(waited)))
        });
        let first = rows.recv().await;
        let mut running = Running { exec: self, rows, task, count: 0, _guard: guard };
        let Some(first) = first else {
            return match running.outcome().await {
                Ok(()) => Ok(Box::pin(EmptyRecordBatchStream::new(running.exec.schema()))),
                Err(EngineError::Fallback(reason)) if !deny => {
                    running.exec.fall_back(FellBack::Needed(reason), context)
                }
                // A query that fails is run again there too: the error is then DataFusion's own, to the letter.
                Err(EngineError::Query(error)) if !deny => {
                    running.exec.fall_back(FellBack::Failed(error), context)
                }
                Err(error) => Err(into_datafusion(error)),
            };
        };
        running.count = first.num_rows();
        let schema = running.exec.schema();
        let others = stream::try_unfold(running, |mut running| async move {
            match running.rows.recv().await {
                Some(batch) => {
                    running.count += batch.num_rows();
                    Ok(Some((batch, running)))
                }
                None => running.outcome().await.map(|()| None).map_err(into_datafusion),
            }
        });
        let batches = stream::once(async { Ok(first) }).chain(others);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }
}

impl fmt::Debug for KelpieExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KelpieExec").field("plan", &self.translated.plan).finish_non_exhaustive()
    }
}

impl DisplayAs for KelpieExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return write!(f, "compiled={}", self.original.name());
        }
        write!(f, "KelpieExec")?;
        let indent = "  ".repeat(self.depth + 1);
        for line in report::operator_lines(&self.original) {
            write!(f, "\n{indent}| {line}")?;
        }
        for line in report::derived_lines(&self.translated) {
            write!(f, "\n{indent}| {line}")?;
        }
        let run = self.last_run();
        if let (Some(line), None) = (&self.foreseen, &run) {
            write!(f, "\n{indent}* {line}")?;
        }
        if let Some(run) = run {
            let planning = self.planning.as_ref().map(PlanClock::split);
            for line in report::run_lines(&run, planning) {
                write!(f, "\n{indent}* {line}")?;
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for KelpieExec {
    fn name(&self) -> &str {
        "KelpieExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match children.is_empty() {
            true => Ok(self),
            false => internal_err!("KelpieExec has no children"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.copy()))
    }

    fn statistics_from_inputs(
        &self,
        _inputs: &[Arc<Statistics>],
        _arguments: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::new(Statistics::new_unknown(&self.schema())))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("KelpieExec has one partition, not {partition}");
        }
        let query = self.query(&context)?;
        let mut this = self.copy();
        this.metrics = self.metrics.clone();
        this.run = Arc::clone(&self.run);
        let answer = this.start(query, context, CancelOnDrop(CancelToken::default()));
        let batches = stream::once(answer).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// An engine at work for a stream: dropping it stops the engine.
struct Running {
    exec: KelpieExec,
    rows: mpsc::Receiver<RecordBatch>,
    task: JoinHandle<Result<(QueryMetrics, Duration), EngineError>>,
    /// Rows that came.
    count: usize,
    _guard: CancelOnDrop,
}

impl Running {
    /// How the engine ended, which is at the end of the rows; notes what it did.
    async fn outcome(&mut self) -> Result<(), EngineError> {
        let (metrics, elapsed) = match (&mut self.task).await {
            Ok(outcome) => outcome?,
            Err(error) => return Err(panicked(error)),
        };
        MetricBuilder::new(&self.exec.metrics).elapsed_compute(0).add_duration(elapsed);
        self.exec.record(metrics, self.count);
        Ok(())
    }
}

/// The error of an engine that panicked, or whose runtime ended.
fn panicked(error: JoinError) -> EngineError {
    let Ok(panic) = error.try_into_panic() else { return EngineError::Cancelled };
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    EngineError::Internal(format!("the engine panicked: {}", text.unwrap_or("without a message")))
}

struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Rows with exactly the schema of the plan that Kelpie replaces (its kinds of text, its metadata).
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, EngineError> {
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

/// The errors of a query are Arrow's, as DataFusion's own operators give them.
pub(crate) fn into_datafusion(error: EngineError) -> DataFusionError {
    let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
    match error {
        EngineError::Query(error) => match error {
            QueryError::DivideByZero => arrow(ArrowError::DivideByZero),
            QueryError::Overflow => {
                arrow(ArrowError::ArithmeticOverflow("the result does not fit its type".into()))
            }
            QueryError::CastOutOfRange => {
                arrow(ArrowError::CastError("a value does not fit the target type".into()))
            }
            QueryError::CastParse => {
                arrow(ArrowError::CastError("text is not a value of the target type".into()))
            }
            QueryError::NegativeSubstringLength | QueryError::SubqueryRows => {
                DataFusionError::Execution(error.to_string())
            }
        },
        EngineError::SumOverflow { aggregate } => {
            arrow(ArrowError::ArithmeticOverflow(format!("{aggregate} is beyond the range of its type")))
        }
        EngineError::Arrow(error) => arrow(error),
        EngineError::Interrupted { cause, .. }
            if matches!(*cause, EngineError::Query(_) | EngineError::SumOverflow { .. }) =>
        {
            into_datafusion(*cause)
        }
        error @ (EngineError::Source { .. } | EngineError::Cancelled | EngineError::Internal(_)) => {
            DataFusionError::Execution(error.to_string())
        }
        error => DataFusionError::Execution(format!("Kelpie: {error}")),
    }
}
