//! The operator that computes shared rows, for whoever reads them first.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{LogicalPlan, UserDefinedLogicalNode};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt, stream};
use kelpie_datafusion::one_input;
use tokio::sync::OnceCell;

use super::SharedRows;

type Node = Arc<dyn ExecutionPlan>;

/// The rows, once they are there, and what accounts for their memory.
type Cell = Arc<OnceCell<(Vec<RecordBatch>, MemoryReservation)>>;

/// Plans the shared rows of one statement.
#[derive(Debug, Default)]
pub(crate) struct SharedPlanner(Mutex<HashMap<usize, Cell>>);

impl SharedPlanner {
    fn planned(&self, node: &dyn UserDefinedLogicalNode, inputs: &[Node]) -> Option<Node> {
        let node: &dyn Any = node.as_any();
        let shared: &SharedRows = node.downcast_ref()?;
        let input = Arc::clone(inputs.first()?);
        let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(cells.entry(shared.number).or_default());
        Some(Arc::new(SharedExec::new(shared.number, input, cell)))
    }
}

type Planned<'a> = Pin<Box<dyn Future<Output = Result<Option<Node>>> + Send + 'a>>;

// As `async_trait` writes methods.
impl ExtensionPlanner for SharedPlanner {
    fn plan_extension<'a, 'b, 'c, 'd, 'e, 'f, 'g, 'h, 'r>(
        &'a self,
        _planner: &'b dyn PhysicalPlanner,
        node: &'c dyn UserDefinedLogicalNode,
        _logical: &'d [&'e LogicalPlan],
        inputs: &'f [Node],
        _session: &'g dyn Session,
        _context: &'h PhysicalPlanningContext,
    ) -> Planned<'r>
    where
        'a: 'r,
        'b: 'r,
        'c: 'r,
        'd: 'r,
        'e: 'r,
        'f: 'r,
        'g: 'r,
        'h: 'r,
        Self: 'r,
    {
        let planned = self.planned(node, inputs);
        Box::pin(async move { Ok(planned) })
    }
}

/// Rows that several operators of a plan read.
#[derive(Debug)]
struct SharedExec {
    number: usize,
    input: Node,
    cell: Cell,
    properties: Arc<PlanProperties>,
}

impl SharedExec {
    fn new(number: usize, input: Node, cell: Cell) -> SharedExec {
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        ));
        SharedExec { number, input, cell, properties }
    }

    fn with_input(&self, input: Node) -> SharedExec {
        SharedExec::new(self.number, input, Arc::clone(&self.cell))
    }
}

impl DisplayAs for SharedExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedExec: {}", self.number)
    }
}

impl ExecutionPlan for SharedExec {
    one_input!("SharedExec");

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn execute(&self, _: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let (input, cell, number) = (Arc::clone(&self.input), Arc::clone(&self.cell), self.number);
        let rows = async move {
            let (batches, _) = cell.get_or_try_init(|| computed(input, number, context)).await?;
            Ok::<_, DataFusionError>(stream::iter(batches.clone().into_iter().map(Ok)))
        };
        let rows = stream::once(rows).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

async fn computed(
    input: Node,
    number: usize,
    context: Arc<TaskContext>,
) -> Result<(Vec<RecordBatch>, MemoryReservation)> {
    let reservation = MemoryConsumer::new(format!("SharedExec {number}")).register(context.memory_pool());
    let mut batches = Vec::new();
    let partitions = 0..input.output_partitioning().partition_count();
    let streams = partitions.map(|partition| input.execute(partition, Arc::clone(&context)));
    let mut rows = stream::select_all(streams.collect::<Result<Vec<_>>>()?);
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        reservation.try_grow(batch.get_array_memory_size())?;
        batches.push(batch);
    }
    Ok((batches, reservation))
}
