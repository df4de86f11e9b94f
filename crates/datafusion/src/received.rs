//! Rows that come once, from elsewhere: what a stage of a distributed plan takes from another one, and what a query makes of constants.
//!
//! A stage reads the rows of other stages as streams, each of which can be taken a single time. What is compiled may read a table more
//! than once (when a state was too small, or where DataFusion's operators take over), so such rows are kept until the query ends. They
//! are kept as they came, counted against the memory of the session.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Statistics, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    SendableRecordBatchStream,
};
use futures::{StreamExt, TryStreamExt, stream};
use tokio::sync::OnceCell;

use crate::node_methods::no_input;

/// The rows of a node, kept from when they are first asked for as a whole.
pub(crate) struct Received {
    input: Arc<dyn ExecutionPlan>,
    rows: OnceCell<Result<Kept, Arc<DataFusionError>>>,
}

/// Rows by partition, and the memory that they take.
struct Kept {
    partitions: Vec<Vec<RecordBatch>>,
    _memory: MemoryReservation,
}

impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Received").field(&self.input.name()).finish()
    }
}

impl Received {
    /// What makes the rows.
    pub fn input(&self) -> &Arc<dyn ExecutionPlan> {
        &self.input
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    /// Waits until all rows are here. All partitions are read side by side: they share connections, and one that nobody reads holds up
    /// the others.
    pub async fn receive(&self, context: &Arc<TaskContext>) -> Result<()> {
        let received = self.rows.get_or_init(|| async { self.read(context).await.map_err(Arc::new) }).await;
        match received {
            Ok(_) => Ok(()),
            Err(error) => Err(DataFusionError::Shared(Arc::clone(error))),
        }
    }

    async fn read(&self, context: &Arc<TaskContext>) -> Result<Kept> {
        let count = self.input.output_partitioning().partition_count();
        let memory = MemoryConsumer::new("rows of another stage").register(context.memory_pool());
        let mut partitions = vec![Vec::new(); count];
        let streams = (0..count).map(|partition| {
            let rows = self.input.execute(partition, Arc::clone(context))?;
            Ok(rows.map_ok(move |batch| (partition, batch)))
        });
        let mut rows = stream::select_all(streams.collect::<Result<Vec<_>>>()?);
        while let Some((partition, batch)) = rows.try_next().await? {
            memory.try_grow(batch.get_array_memory_size())?;
            if let Some(batches) = partitions.get_mut(partition) {
                batches.push(batch);
            }
        }
        Ok(Kept { partitions, _memory: memory })
    }

    /// The rows by partition, once they are here.
    pub fn partitions(&self) -> Option<&[Vec<RecordBatch>]> {
        self.rows.get()?.as_ref().ok().map(|kept| kept.partitions.as_slice())
    }
}

/// A leaf of a plan in the place of a node whose rows come once.
///
/// DataFusion's operators take the rows from the node itself. Where a compiled part has taken them before, they are what was kept.
#[derive(Debug)]
pub struct ReceivedExec {
    received: Arc<Received>,
    /// Whether its rows are the same for each query that has the plan.
    is_constant: bool,
}

impl ReceivedExec {
    /// In the place of a node.
    pub fn new(input: Arc<dyn ExecutionPlan>) -> ReceivedExec {
        ReceivedExec { received: Arc::new(Received { input, rows: OnceCell::new() }), is_constant: false }
    }

    /// In the place of a node whose rows are the same each time.
    pub(crate) fn of_constants(input: Arc<dyn ExecutionPlan>) -> ReceivedExec {
        ReceivedExec { is_constant: true, ..ReceivedExec::new(input) }
    }

    /// Whether copies of a plan may share it.
    pub(crate) fn is_constant(&self) -> bool {
        self.is_constant
    }

    pub(crate) fn received(&self) -> &Arc<Received> {
        &self.received
    }
}

impl DisplayAs for ReceivedExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReceivedExec: ")?;
        self.received.input.fmt_as(format, f)
    }
}

impl ExecutionPlan for ReceivedExec {
    no_input!("ReceivedExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        self.received.input.properties()
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match self.is_constant {
            // Its input is no child that the caller would have asked.
            true => StatisticsContext::new().compute(self.received.input.as_ref(), args),
            false => Ok(Arc::new(Statistics::new_unknown(&self.schema()))),
        }
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(kept) = self.received.partitions() else {
            return self.received.input.execute(partition, context);
        };
        let Some(batches) = kept.get(partition) else {
            return internal_err!("ReceivedExec has {} partitions, not {partition}", kept.len());
        };
        let rows = stream::iter(batches.clone().into_iter().map(Ok));
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows.boxed())))
    }
}
