//! The node at the top of what a worker compiles.
//!
//! It stands right below what hands a stage's rows to other stages. The coordinator puts it there and sends it with its input, which is
//! a plan of DataFusion; whoever executes it applies Kelpie's rule to the input first. The input itself stays as it was: the
//! nodes of a stage are counted when what they did is told to the coordinator.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder, MetricsSet};
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, EmptyRecordBatchStream, ExecutionPlan,
    ExecutionPlanProperties, PlanProperties, ReplaceChildrenOptions, SendableRecordBatchStream, Statistics,
};
use datafusion_distributed::NetworkBoundaryExt;
use kelpie_datafusion::{KelpieExec, KelpieRule, ReceivedExec, for_each_compiled};
use kelpie_session::{Engine, KelpieOptions, with_checked_readers};
use parking_lot::Mutex;

pub(crate) type Node = Arc<dyn ExecutionPlan>;

/// The engine of a process, which compiles the stages that it runs: an extension of sessions.
pub(crate) struct StageEngine(pub Arc<Engine>);

/// A stage's plan, compiled where it runs.
pub(crate) struct StageExec {
    input: Node,
    compiled: Mutex<Option<Compiled>>,
    /// What EXPLAIN shows of it.
    foreseen: Option<String>,
    metrics: ExecutionPlanMetricsSet,
}

/// What a stage was compiled to.
#[derive(Clone)]
enum Compiled {
    /// All of it, into one partition, which is the stage's first; the others are empty.
    Whole(Node),
    /// Parts of it, or nothing.
    Parts(Node),
}

impl fmt::Debug for StageExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StageExec").field(&self.input).finish()
    }
}

impl StageExec {
    pub fn new(input: Node) -> StageExec {
        let metrics = ExecutionPlanMetricsSet::new();
        StageExec { input, compiled: Mutex::default(), foreseen: None, metrics }
    }

    /// With what a process with some engine would make of it.
    pub fn explained(
        input: Node,
        engine: &Arc<Engine>,
        options: &datafusion::common::config::ConfigOptions,
    ) -> Result<StageExec> {
        let (Compiled::Whole(plan) | Compiled::Parts(plan)) = compile(&input, engine, options)?;
        let foreseen = DisplayableExecutionPlan::new(plan.as_ref()).indent(false).to_string();
        Ok(StageExec { foreseen: Some(foreseen), ..StageExec::new(input) })
    }

    fn compiled(&self, context: &TaskContext) -> Result<Compiled> {
        let config = context.session_config();
        let Some(engine) = config.get_extension::<StageEngine>() else {
            return internal_err!("a stage is executed in a session without an engine");
        };
        let mut compiled = self.compiled.lock();
        match compiled.as_ref() {
            Some(compiled) => Ok(compiled.clone()),
            None => Ok(compiled.insert(compile(&self.input, &engine.0, config.options())?).clone()),
        }
    }
}

fn compile(
    input: &Node,
    engine: &Arc<Engine>,
    config: &datafusion::common::config::ConfigOptions,
) -> Result<Compiled> {
    if !KelpieOptions::of(config).enabled {
        return Ok(Compiled::Parts(Arc::clone(input)));
    }
    let rule = KelpieRule::new(Arc::clone(engine));
    let plan = with_checked_readers(received(input)?)?;
    let whole = rule.optimize(merged(&plan), config)?;
    match whole.is::<KelpieExec>() {
        true => Ok(Compiled::Whole(whole)),
        false => Ok(Compiled::Parts(rule.optimize(plan, config)?)),
    }
}

/// The plan with the rows of other stages as tables.
fn received(input: &Node) -> Result<Node> {
    let plan = Arc::clone(input).transform_down(|node| match node.is_network_boundary() {
        true => {
            let received = Arc::new(ReceivedExec::new(node)) as Node;
            Ok(Transformed::new(received, true, TreeNodeRecursion::Jump))
        }
        false => Ok(Transformed::no(node)),
    })?;
    Ok(plan.data)
}

/// The plan with all its rows in one partition. The first rows of each partition, where no more are asked for, become the first of all,
/// of which whoever takes them takes the first again.
fn merged(plan: &Node) -> Node {
    match (plan.output_partitioning().partition_count(), plan.output_ordering()) {
        (1, _) => Arc::clone(plan),
        (_, Some(order)) => {
            let merge = SortPreservingMergeExec::new(order.clone(), Arc::clone(plan));
            Arc::new(merge.with_fetch(plan.fetch()))
        }
        (_, None) => Arc::new(CoalescePartitionsExec::new(Arc::clone(plan))),
    }
}

impl DisplayAs for StageExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if format == DisplayFormatType::TreeRender {
            return write!(f, "compiled=by its worker");
        }
        write!(f, "StageExec: compiled by its worker")?;
        for line in self.foreseen.iter().flat_map(|text| text.lines()) {
            write!(f, "\n  > {line}")?;
        }
        Ok(())
    }
}

impl ExecutionPlan for StageExec {
    fn name(&self) -> &str {
        "StageExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Node> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(self: Arc<Self>, mut children: Vec<Node>, _: ReplaceChildrenOptions) -> Result<Node> {
        match (children.pop(), children.is_empty()) {
            (Some(input), true) => {
                Ok(Arc::new(StageExec { foreseen: self.foreseen.clone(), ..StageExec::new(input) }))
            }
            _ => internal_err!("StageExec has one child"),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Node>) -> Result<Node> {
        self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match inputs {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("StageExec has one child"),
        }
    }

    /// What the compiled parts did, in sum.
    fn metrics(&self) -> Option<MetricsSet> {
        let mut metrics = self.metrics.clone_inner();
        if let Some(Compiled::Whole(plan) | Compiled::Parts(plan)) = self.compiled.lock().as_ref() {
            for_each_compiled(plan, &mut |part| {
                part.metrics()
                    .iter()
                    .flat_map(MetricsSet::iter)
                    .for_each(|metric| metrics.push(Arc::clone(metric)));
            });
        }
        Some(metrics)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let compiled = self.compiled(&context)?;
        if partition == 0 {
            let (Compiled::Whole(plan) | Compiled::Parts(plan)) = &compiled;
            let mut parts = 0;
            for_each_compiled(plan, &mut |_| parts += 1);
            MetricBuilder::new(&self.metrics).counter("compiled_parts", 0).add(parts);
        }
        match compiled {
            Compiled::Whole(plan) if partition == 0 => plan.execute(0, context),
            Compiled::Whole(_) => Ok(Box::pin(EmptyRecordBatchStream::new(self.schema()))),
            Compiled::Parts(plan) => plan.execute(partition, context),
        }
    }
}
