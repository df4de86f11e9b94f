//! `KelpieExec`: a sub-plan that Kelpie runs.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

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
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt, stream};
use kelpie_engine::{
    CancelToken, Engine, EngineError, FallbackReason, Query, QueryError, QueryMetrics, QueryOutput,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::deep::protect;
use crate::options::{Fallback, KelpieOptions};
use crate::report;
use crate::rule::merged_properties;
use crate::translate::Translated;

/// A sub-plan that Kelpie compiles and runs; one partition.
pub struct KelpieExec {
    /// What it replaces: shown by EXPLAIN, and run where the data needs DataFusion's own operators.
    original: Arc<dyn ExecutionPlan>,
    translated: Translated,
    engine: Arc<Engine>,
    properties: Arc<PlanProperties>,
    /// Levels of EXPLAIN's tree above, so that the lines below the first are indented like it.
    depth: usize,
    metrics: ExecutionPlanMetricsSet,
    run: Arc<Mutex<Option<Run>>>,
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
            translated,
            engine,
            properties: Arc::new(properties),
            depth,
            metrics: ExecutionPlanMetricsSet::new(),
            run: Arc::default(),
        }
    }

    /// The sub-plan that it replaces.
    pub fn original(&self) -> &Arc<dyn ExecutionPlan> {
        &self.original
    }

    /// Kelpie's plan.
    pub fn translated(&self) -> &Translated {
        &self.translated
    }

    /// The same, one level deeper in EXPLAIN's tree.
    pub(crate) fn deeper(&self) -> KelpieExec {
        KelpieExec { depth: self.depth + 1, ..self.copy() }
    }

    pub(crate) fn last_run(&self) -> Option<Run> {
        self.run.lock().clone()
    }

    /// The engine's query in a task context.
    pub(crate) fn query(&self, context: &Arc<TaskContext>) -> Result<Query> {
        let Ok(runtime) = Handle::try_current() else {
            return exec_err!("KelpieExec must be executed on a Tokio runtime");
        };
        let options = KelpieOptions::of(context.session_config().options()).query;
        let tables = self.translated.tables.iter();
        let sources = tables.map(|table| table.bind(Arc::clone(context), runtime.clone())).collect();
        Ok(Query { plan: self.translated.plan.clone(), sources, options })
    }

    /// The sub-plan on DataFusion's own operators.
    fn execute_original(&self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let plan = protect(Arc::clone(&self.original))?;
        match plan.output_partitioning().partition_count() {
            1 => plan.execute(0, context),
            _ => CoalescePartitionsExec::new(plan).execute(0, context),
        }
    }

    fn fall_back(&self, reason: FellBack, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        MetricBuilder::new(&self.metrics).counter("fallbacks", 0).add(1);
        *self.run.lock() = Some(Run { fallback: Some(reason), ..Run::default() });
        self.execute_original(context)
    }

    fn copy(&self) -> KelpieExec {
        KelpieExec {
            original: Arc::clone(&self.original),
            translated: self.translated.clone(),
            engine: Arc::clone(&self.engine),
            properties: Arc::clone(&self.properties),
            depth: self.depth,
            metrics: ExecutionPlanMetricsSet::new(),
            run: Arc::default(),
        }
    }

    fn record(&self, output: &QueryOutput) {
        let metrics = &output.metrics;
        let set = &self.metrics;
        MetricBuilder::new(set).output_rows(0).add(output.batch.num_rows());
        let times = [
            ("compile_time", metrics.compile_ns),
            ("transfer_time", metrics.transfer_ns),
            ("kernel_time", metrics.kernel_ns),
            ("result_time", metrics.result_ns),
        ];
        for (name, time_ns) in times {
            let time = MetricBuilder::new(set).subset_time(name, 0);
            time.add_duration(std::time::Duration::from_nanos(time_ns));
        }
        MetricBuilder::new(set).counter("transfer_bytes", 0).add(metrics.transfer_bytes as usize);
        *self.run.lock() = Some(Run { metrics: metrics.clone(), fallback: None });
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
        if let Some(run) = self.last_run() {
            for line in report::run_lines(&run) {
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
        let deny = KelpieOptions::of(context.session_config().options()).fallback == Fallback::Deny;
        let batch_size = context.session_config().batch_size().max(1);
        let mut this = self.copy();
        this.metrics = self.metrics.clone();
        this.run = Arc::clone(&self.run);
        let schema = self.schema();
        let guard = CancelOnDrop(CancelToken::default());
        let token = guard.0.clone();
        let answer = async move {
            let engine = Arc::clone(&this.engine);
            let start = Instant::now();
            let task = tokio::task::spawn_blocking(move || engine.execute(&query, &token));
            let output = task.await.map_err(|error| DataFusionError::External(Box::new(error)))?;
            let elapsed = MetricBuilder::new(&this.metrics).elapsed_compute(0);
            elapsed.add_duration(start.elapsed());
            match output {
                Ok(output) => {
                    this.record(&output);
                    let batch = conform(&output.batch, &this.schema())?;
                    Ok::<_, DataFusionError>(slices(batch, batch_size))
                }
                Err(EngineError::Fallback(reason)) if !deny => {
                    this.fall_back(FellBack::Needed(reason), context)
                }
                // A query that fails is run again there too: the error is then DataFusion's own, to the letter.
                Err(EngineError::Query(error)) if !deny => this.fall_back(FellBack::Failed(error), context),
                Err(error) => Err(into_datafusion(error)),
            }
        };
        let batches = stream::once(answer).try_flatten().inspect(move |_| {
            // The stream owns the guard: dropping it cancels the query.
            let _ = &guard;
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches.boxed())))
    }
}

struct CancelOnDrop(CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// The answer with exactly the schema of the plan that Kelpie replaces (its kinds of text, its metadata).
fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.num_columns() != schema.fields().len() {
        return internal_err!("Kelpie gave {} columns, not {}", batch.num_columns(), schema.fields().len());
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

/// The rows in batches of the session's size.
fn slices(batch: RecordBatch, rows: usize) -> SendableRecordBatchStream {
    let schema = batch.schema();
    let total = batch.num_rows();
    let parts = (0..total).step_by(rows).map(move |start| Ok(batch.slice(start, rows.min(total - start))));
    Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(parts)))
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
        EngineError::Arrow(error) => arrow(error),
        EngineError::Interrupted { cause, .. } if matches!(*cause, EngineError::Query(_)) => {
            into_datafusion(*cause)
        }
        error @ (EngineError::Source { .. } | EngineError::Cancelled | EngineError::Internal(_)) => {
            DataFusionError::Execution(error.to_string())
        }
        error => DataFusionError::Execution(format!("Kelpie: {error}")),
    }
}
