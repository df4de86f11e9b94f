//! What a recursive query runs again and again.
//!
//! DataFusion executes the whole recursive term for each step: it reads its tables anew, and deals the few rows of the step out to all
//! threads. Here the rows of whatever does not depend on the step are kept after the first one, and the step's rows stay on their thread.

use std::fmt;
use std::sync::{Arc, Weak};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::config::ConfigOptions;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::{StreamExt, stream};
use parking_lot::Mutex;

use crate::kept_rules::computes_volatile;
use crate::node::{Node, partition_count};
use crate::node_methods::{one_input, rows_of_input};
use crate::options::KelpieOptions;
use crate::recursion_guard::with_room;

/// Makes the recursive terms of a plan ready to be run again.
#[derive(Debug)]
pub struct RecursiveTerms;

impl PhysicalOptimizerRule for RecursiveTerms {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let options = KelpieOptions::of(config);
        if !options.enabled || options.for_workers {
            return Ok(plan);
        }
        let made = || {
            let made = Arc::clone(&plan).transform_up(|node| {
                let Some(query) = node.downcast_ref::<RecursiveQueryExec>() else {
                    return Ok(Transformed::no(node));
                };
                let terms = vec![Arc::clone(query.static_term()), step(query.recursive_term())?];
                Ok(Transformed::yes(replace_children_if_necessary(node, terms)?))
            });
            made.map(|made| made.data)
        };
        with_room(&plan, made)
    }

    fn name(&self) -> &str {
        "kelpie_recursive_terms"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Whether a plan has recursive terms: what joins find out while they run a step says nothing about the next one.
pub(crate) fn is_recursive(plan: &Node) -> bool {
    plan.is::<RecursiveQueryExec>() || plan.children().into_iter().any(is_recursive)
}

/// A part of a recursive term, with what does not depend on the step kept.
fn step(node: &Node) -> Result<Node> {
    if !reads_step(node) {
        let kept = || Arc::new(KeptRowsExec::new(Arc::clone(node))) as Node;
        return Ok(if computes_volatile(node)? { Arc::clone(node) } else { kept() });
    }
    let children = node.children().into_iter().map(step).collect::<Result<Vec<_>>>()?;
    let deals_out = node.downcast_ref::<RepartitionExec>().is_some_and(|exchange| {
        matches!(exchange.partitioning(), Partitioning::RoundRobinBatch(_)) && !exchange.preserve_order()
    });
    match &children[..] {
        [input] if deals_out && partition_count(input) == 1 => Ok(Arc::clone(input)),
        _ => replace_children_if_necessary(Arc::clone(node), children),
    }
}

fn reads_step(node: &Node) -> bool {
    node.is::<WorkTableExec>() || node.children().into_iter().any(reads_step)
}

/// Rows that are the same in each step of a recursive query: each partition is computed once a query, where there is room for its rows.
#[derive(Debug)]
pub(crate) struct KeptRowsExec {
    input: Node,
    properties: Arc<PlanProperties>,
    /// One a partition.
    kept: Arc<Vec<Mutex<Option<Kept>>>>,
}

/// The rows of a partition in one execution of the query.
#[derive(Debug)]
struct Kept {
    context: Weak<TaskContext>,
    batches: Arc<[RecordBatch]>,
    _room: MemoryReservation,
}

impl KeptRowsExec {
    pub(crate) fn new(input: Node) -> KeptRowsExec {
        let kept = (0..partition_count(&input)).map(|_| Mutex::default()).collect();
        KeptRowsExec { properties: Arc::clone(input.properties()), input, kept: Arc::new(kept) }
    }

    /// For each step its input is made anew, and what is kept stays.
    fn with_input(&self, input: Node) -> KeptRowsExec {
        let mut same = KeptRowsExec::new(input);
        if same.kept.len() == self.kept.len() {
            same.kept = Arc::clone(&self.kept);
        }
        same
    }
}

impl DisplayAs for KeptRowsExec {
    fn fmt_as(&self, _format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptRowsExec")
    }
}

impl ExecutionPlan for KeptRowsExec {
    one_input!("KeptRowsExec");
    rows_of_input!();

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn reset_state(self: Arc<Self>) -> Result<Node> {
        Ok(self)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let Some(place) = self.kept.get(partition) else {
            return internal_err!("there is no partition {partition}");
        };
        let is_of_query = |kept: &&Kept| std::ptr::eq(kept.context.as_ptr(), Arc::as_ptr(&context));
        if let Some(kept) = place.lock().as_ref().filter(is_of_query) {
            let batches = Arc::clone(&kept.batches);
            let batches = (0..batches.len()).map(move |at| Ok(batches[at].clone()));
            return Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::iter(batches))));
        }
        let keeping = Keeping {
            rows: self.input.execute(partition, Arc::clone(&context))?,
            room: Some(MemoryConsumer::new("KeptRows").register(context.memory_pool())),
            batches: Vec::new(),
            kept: Arc::clone(&self.kept),
            partition,
            context,
        };
        let batches = stream::try_unfold(keeping, Keeping::next);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), batches)))
    }
}

/// A partition that is handed on, and kept once all of it has come.
struct Keeping {
    rows: SendableRecordBatchStream,
    /// None where there was not enough.
    room: Option<MemoryReservation>,
    batches: Vec<RecordBatch>,
    kept: Arc<Vec<Mutex<Option<Kept>>>>,
    partition: usize,
    context: Arc<TaskContext>,
}

impl Keeping {
    async fn next(mut self) -> Result<Option<(RecordBatch, Keeping)>> {
        let Some(batch) = self.rows.next().await.transpose()? else {
            if let (Some(room), Some(place)) = (self.room, self.kept.get(self.partition)) {
                let (context, batches) = (Arc::downgrade(&self.context), self.batches.into());
                *place.lock() = Some(Kept { context, batches, _room: room });
            }
            return Ok(None);
        };
        if let Some(room) = &mut self.room {
            match room.try_grow(batch.get_array_memory_size()) {
                Ok(()) => self.batches.push(batch.clone()),
                Err(_) => {
                    self.batches.clear();
                    self.room = None;
                }
            }
        }
        Ok(Some((batch, self)))
    }
}
