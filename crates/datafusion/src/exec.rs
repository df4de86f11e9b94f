//! `KelpieExec`: a sub-plan that Kelpie runs.

mod compiled;
mod errors;
mod generic;
mod running;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::{Statistics, exec_err, internal_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType, SchedulingType};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan, ExecutionPlanProperties,
    Partitioning, PlanProperties, SendableRecordBatchStream,
};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use kelpie_engine::{
    Batches, CancelToken, DeviceKind, Engine, EngineError, Foreseen, Profile, Query, QueryMetrics,
};
use tokio::runtime::Handle;

pub use self::compiled::{FellBack, KelpieExec, Run};
use crate::clock::PlanClock;
use crate::corrections::nan::plan::with_one_nan;
use crate::join_bounds::JoinBounds;
use crate::node_methods::no_input;
use crate::options::{Fallback, KelpieOptions};
use crate::original::Original;
use crate::recursion_guard::{protect, with_room};
use crate::rule::merged_properties;
use crate::source::ScanTable;
use crate::top_rows::TopRows;
use crate::translate::Translated;
use crate::{report, window_report};
use errors::panicked;
pub use errors::{into_datafusion, panic_text};
pub use generic::CannotRun;
pub use running::on_engine;
use running::{BATCHES_IN_FLIGHT, CancelOnDrop, EngineJob, Running, conform};

/// A query that took less may run on the thread that asks for its rows: DataFusion's own operators take as long for a batch.
const QUICK: Duration = Duration::from_millis(10);

impl KelpieExec {
    pub(crate) fn new(
        original: Original,
        translated: Translated,
        engine: Arc<Engine>,
        depth: usize,
    ) -> KelpieExec {
        // Orders and constants that the original promises hold for Kelpie's plan too: see `translate::ordered`.
        let properties = PlanProperties::new(
            merged_properties(original.plan()),
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
            quick: Arc::default(),
            join_bounds: Arc::default(),
            foreseen: None,
            counts_lanes: false,
            planning: PlanClock::lent(),
        }
    }

    /// The same, with what EXPLAIN needs: what will most likely be chosen for it, for which nothing is read, and the counters of VERBOSE.
    pub fn explained(self, options: &KelpieOptions) -> KelpieExec {
        // Only statistics are asked for, so that any context will do.
        let context = Arc::new(TaskContext::default());
        let query = self.query_with(&context, options, None);
        let foreseen = query.ok().and_then(|query| self.engine.foresee(&query).ok());
        KelpieExec { foreseen, counts_lanes: options.counts_lanes, ..self }
    }

    /// The engine's query in a task context.
    pub fn query(&self, context: &Arc<TaskContext>) -> Result<Query> {
        let options = KelpieOptions::of(context.session_config().options());
        self.query_with(context, &options, None)
    }

    fn query_with(
        &self,
        context: &Arc<TaskContext>,
        options: &KelpieOptions,
        refused: Option<&Arc<AtomicBool>>,
    ) -> Result<Query> {
        let Ok(runtime) = Handle::try_current() else {
            return exec_err!("KelpieExec must be executed on a Tokio runtime");
        };
        let mut options = options.query.clone();
        if self.counts_lanes {
            options.profile = Profile::Lanes;
        }
        let narrowed = self.join_bounds.known_of(&self.translated.plan).unwrap_or_default();
        let bind = |(source, table): (usize, &Arc<ScanTable>)| {
            let narrowed = narrowed.iter().find(|narrowed| narrowed.source == source);
            let table = narrowed.map_or(table, |narrowed| &narrowed.table);
            table.bind(Arc::clone(context), runtime.clone(), refused.cloned())
        };
        let sources = self.translated.tables.iter().enumerate().map(bind).collect();
        Ok(Query { plan: self.translated.plan.clone(), sources, options })
    }

    /// The sub-plan on DataFusion's own operators.
    fn execute_original(&self, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let config = context.session_config().options();
        let plan = self.original.runnable(config)?;
        let plan = match KelpieOptions::of(config).corrections {
            true => with_room(&plan, || with_one_nan(Arc::clone(&plan)))?,
            false => plan,
        };
        let plan = protect(plan)?;
        match (plan.output_partitioning().partition_count(), plan.output_ordering().cloned()) {
            (1, _) => plan.execute(0, context),
            // The order is promised of the one partition, so theirs must not be lost.
            (_, Some(order)) => SortPreservingMergeExec::new(order, plan).execute(0, context),
            _ => CoalescePartitionsExec::new(plan).execute(0, context),
        }
    }

    fn fall_back(&self, reason: FellBack, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        if self.is_generic() {
            return Err(CannotRun::for_reason(&reason));
        }
        MetricBuilder::new(&self.metrics).counter("fallbacks", 0).add(1);
        *self.run.lock() = Some(Run { fallback: Some(reason), ..Run::default() });
        self.fell_back.store(true, Ordering::Relaxed);
        self.execute_original(context)
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

    /// Runs on this thread what took no time the last time: another thread would have to be woken, and this one by it, which takes
    /// longer than many a query. `None` where it needs to read after all.
    fn run_here(
        &self,
        query: &Query,
        batches: Batches,
        context: &Arc<TaskContext>,
        guard: &CancelOnDrop,
    ) -> Option<Result<SendableRecordBatchStream>> {
        let (start, schema) = (Instant::now(), self.schema());
        let mut rows = Vec::new();
        let mut keep = |batch| {
            rows.push(batch);
            Ok(())
        };
        let mut take = |batch| conform(&batch, &schema, &mut keep);
        let run = AssertUnwindSafe(|| self.engine.stream(query, batches, &guard.0, &mut take));
        let outcome = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        match outcome {
            _ if self.quick.reads.load(Ordering::Relaxed) => None,
            Ok(metrics) => {
                let count = rows.iter().map(RecordBatch::num_rows).sum();
                self.note_run(metrics, start.elapsed(), count, rows.len());
                let rows = stream::iter(rows.into_iter().map(Ok));
                Some(Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows))))
            }
            Err(error) => Some(self.failed(error, Arc::clone(context))),
        }
    }

    /// What a run that has ended did.
    fn note_run(&self, metrics: QueryMetrics, elapsed: Duration, rows: usize, batches: usize) {
        MetricBuilder::new(&self.metrics).elapsed_compute(0).add_duration(elapsed);
        // A CPU's workers would wait for this thread to make room for them.
        let is_cpu = metrics.kind == Some(DeviceKind::Cpu);
        let was_quick = !is_cpu && elapsed < QUICK && batches <= BATCHES_IN_FLIGHT;
        self.quick.was_quick.store(was_quick, Ordering::Relaxed);
        self.quick.was_on_gpu.store(metrics.kind == Some(DeviceKind::Cuda), Ordering::Relaxed);
        self.record(metrics, rows);
    }

    /// The engine has failed before it gave any rows.
    fn failed(&self, error: EngineError, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let deny = KelpieOptions::of(context.session_config().options()).fallback == Fallback::Deny;
        match error {
            EngineError::Fallback(reason) if !deny => self.fall_back(FellBack::Needed(reason), context),
            // A query that fails is run again there too: the error is then DataFusion's own, to the letter.
            EngineError::Query(error) if !deny => self.fall_back(FellBack::Failed(error), context),
            error => Err(into_datafusion(error)),
        }
    }

    /// Starts the engine, and waits for the first rows: until they come, DataFusion's own operators may still run instead.
    async fn start(
        self,
        context: Arc<TaskContext>,
        guard: CancelOnDrop,
    ) -> Result<SendableRecordBatchStream> {
        let received = self.translated.tables.iter().filter_map(|table| table.received());
        // Side by side: one stage may wait until the rows of another one are taken.
        try_join_all(received.map(|received| received.receive(&context))).await?;
        let batches = Batches { rows: context.session_config().batch_size().max(1), ..Batches::default() };
        if self.quick.was_quick.load(Ordering::Relaxed) && !self.quick.reads.load(Ordering::Relaxed) {
            let options = KelpieOptions::of(context.session_config().options());
            let query = self.query_with(&context, &options, Some(&self.quick.reads))?;
            if let Some(rows) = self.run_here(&query, batches, &context, &guard) {
                return rows;
            }
        }
        let query = self.query(&context)?;
        let may_be_first = !self.quick.was_on_gpu.load(Ordering::Relaxed);
        let (engine, schema) = (Arc::clone(&self.engine), self.schema());
        let top_rows = TopRows::of(&query, &self.translated.tables, &context);
        let join_bounds = JoinBounds::of(&self.translated.tables, &self.join_bounds, &context);
        let job = EngineJob { engine, query, top_rows, join_bounds, batches, schema, may_be_first };
        let (mut rows, end) = job.start(guard.0.clone())?;
        let first = rows.recv().await;
        let mut running = Running { exec: self, rows, end, count: 0, batches: 0, _guard: guard };
        let Some(first) = first else {
            return match running.outcome().await {
                Ok(()) => Ok(Box::pin(EmptyRecordBatchStream::new(running.exec.schema()))),
                Err(error) => running.exec.failed(error, context),
            };
        };
        (running.count, running.batches) = (first.num_rows(), 1);
        let schema = running.exec.schema();
        let others = stream::try_unfold(running, |mut running| async move {
            match running.rows.recv().await {
                Some(batch) => {
                    running.count += batch.num_rows();
                    running.batches += 1;
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
            return write!(f, "compiled={}", self.original().name());
        }
        write!(f, "KelpieExec")?;
        let indent = "  ".repeat(self.depth + 1);
        for line in report::operator_lines(self.original.shown()) {
            write!(f, "\n{indent}| {line}")?;
        }
        for line in report::derived_lines(&self.translated) {
            write!(f, "\n{indent}| {line}")?;
        }
        let run = self.last_run();
        let foreseen = match (&run, &self.foreseen) {
            (None, Some(Foreseen::Genome(genome))) => Some(&genome.0),
            _ => None,
        };
        let made = run.iter().flat_map(|run| run.metrics.choices());
        for line in window_report::lines(&self.translated.plan, made.chain(foreseen.into_iter().flatten())) {
            write!(f, "\n{indent}| {line}")?;
        }
        if let (Some(foreseen), None) = (&self.foreseen, &run) {
            write!(f, "\n{indent}* {}", report::foreseen_line(foreseen))?;
            if let (Foreseen::Genome(genome), DisplayFormatType::Verbose) = (foreseen, format) {
                for line in report::reason_lines(genome.0.iter()) {
                    write!(f, "\n{indent}* {line}")?;
                }
            }
        }
        if let Some(run) = run {
            let planning = self.planning.as_ref().map(PlanClock::split);
            for line in report::run_lines(&run, planning) {
                write!(f, "\n{indent}* {line}")?;
            }
            if format == DisplayFormatType::Verbose {
                for line in report::reason_lines(run.metrics.choices()) {
                    write!(f, "\n{indent}* {line}")?;
                }
            }
        }
        Ok(())
    }
}

impl ExecutionPlan for KelpieExec {
    no_input!("KelpieExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
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
        let mut this = self.copy();
        this.metrics = self.metrics.clone();
        this.run = Arc::clone(&self.run);
        let answer = this.start(context, CancelOnDrop(CancelToken::default()));
        let batches = stream::once(answer).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// Visits the compiled parts of a plan.
pub fn for_each_compiled(plan: &Arc<dyn ExecutionPlan>, visit: &mut dyn FnMut(&KelpieExec)) {
    if let Some(exec) = plan.downcast_ref::<KelpieExec>() {
        visit(exec);
    }
    for child in plan.children() {
        for_each_compiled(child, visit);
    }
}
