//! What can be sent to workers, and in which form.
//!
//! A plan is sent as DataFusion writes plans for other processes. That form leaves out without a word what it does not know (readers of
//! the embedder, how columns are matched with those of files), and names functions by their names alone. So a plan is looked over
//! before: one that a worker would understand otherwise is not sent, and its query runs in this process.

use std::fmt;
use std::sync::Arc;

use datafusion::common::internal_datafusion_err;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::datasource::physical_plan::{FileScanConfig, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, WindowExpr,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use datafusion_distributed::DistributedCodec;
use datafusion_proto::bytes::{
    physical_plan_from_bytes_with_proto_converter, physical_plan_to_bytes_with_proto_converter,
};
use datafusion_proto::physical_plan::{
    DeduplicatingProtoConverter, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use kelpie_datafusion::wire::OwnNode;

use crate::stage::{Node, StageExec};

/// How Kelpie's own nodes are written: by a letter, as their inputs say all else.
#[derive(Debug)]
pub(crate) struct OwnNodes;

const STAGE: &[u8] = b"s";
const OUTER_ROWS: &[u8] = b"o";

impl PhysicalExtensionCodec for OwnNodes {
    fn try_decode(
        &self,
        letter: &[u8],
        inputs: &[Node],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Node> {
        let [input] = inputs else {
            return Err(internal_datafusion_err!("a node of Kelpie came with {} inputs", inputs.len()));
        };
        match letter {
            STAGE => Ok(Arc::new(StageExec::new(Arc::clone(input)))),
            OUTER_ROWS => Ok(OwnNode::OuterRows.over(Arc::clone(input))),
            other => Err(internal_datafusion_err!("a node came that this version does not know: {other:?}")),
        }
    }

    fn try_encode(
        &self,
        node: Node,
        letter: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match OwnNode::of(node.as_ref()) {
            Some(OwnNode::OuterRows) => letter.extend(OUTER_ROWS),
            None if node.is::<StageExec>() => letter.extend(STAGE),
            None => return Err(internal_datafusion_err!("{} cannot be sent", node.name())),
        }
        Ok(())
    }
}

/// Why a plan is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsendable(pub String);

impl fmt::Display for Unsendable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Looks for what a worker would not understand, or otherwise than it is meant.
pub(crate) struct Inspector<'a> {
    /// A session as workers have it.
    worker: &'a SessionState,
}

impl Inspector<'_> {
    pub fn of(worker: &SessionState) -> Inspector<'_> {
        Inspector { worker }
    }

    /// Why some node of a plan cannot be sent.
    pub fn refusal(&self, plan: &Node) -> Option<Unsendable> {
        let mut refusal = None;
        let walked = plan.apply(|node| {
            refusal = self.refusal_of(node);
            Ok(if refusal.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        });
        match walked {
            Ok(_) => refusal,
            Err(error) => Some(Unsendable(error.strip_backtrace())),
        }
    }

    fn refusal_of(&self, node: &Node) -> Option<Unsendable> {
        if let Some(scan) = node.downcast_ref::<DataSourceExec>()
            && let Some(reason) = source_refusal(scan)
        {
            return Some(Unsendable(reason));
        }
        let mut unknown = self.unknown_aggregate(node).or_else(|| self.unknown_window(node));
        let walked = node.apply_expressions(&mut |expr| {
            expr.apply(|part| {
                unknown = unknown.take().or_else(|| self.unknown_scalar(part));
                Ok(TreeNodeRecursion::Continue)
            })
        });
        match (walked, unknown) {
            (Err(error), _) => Some(Unsendable(error.strip_backtrace())),
            (Ok(_), Some(name)) => Some(Unsendable(format!("workers do not have the function {name}"))),
            (Ok(_), None) => None,
        }
    }

    fn unknown_scalar(&self, expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
        let function = expr.downcast_ref::<ScalarFunctionExpr>()?.fun();
        (!self.knows_scalar(function)).then(|| function.name().to_string())
    }

    fn knows_scalar(&self, function: &ScalarUDF) -> bool {
        self.worker.scalar_functions().get(function.name()).is_some_and(|known| known.as_ref() == function)
    }

    fn knows_aggregate(&self, function: &AggregateUDF) -> bool {
        self.worker.aggregate_functions().get(function.name()).is_some_and(|known| known.as_ref() == function)
    }

    fn knows_window(&self, function: &WindowUDF) -> bool {
        self.worker.window_functions().get(function.name()).is_some_and(|known| known.as_ref() == function)
    }

    fn unknown_aggregate(&self, node: &Node) -> Option<String> {
        let calls = node.downcast_ref::<AggregateExec>()?.aggr_expr();
        let unknown = calls.iter().find(|call| !self.knows_aggregate(call.fun()));
        unknown.map(|call| call.fun().name().to_string())
    }

    fn unknown_window(&self, node: &Node) -> Option<String> {
        let exprs = match (node.downcast_ref::<BoundedWindowAggExec>(), node.downcast_ref::<WindowAggExec>())
        {
            (Some(window), _) => window.window_expr(),
            (None, Some(window)) => window.window_expr(),
            (None, None) => return None,
        };
        exprs.iter().find(|expr| !self.knows_window_expr(expr)).map(|expr| expr.name().to_string())
    }

    fn knows_window_expr(&self, expr: &Arc<dyn WindowExpr>) -> bool {
        let expr = expr.as_any();
        let aggregate = (expr
            .downcast_ref::<PlainAggregateWindowExpr>()
            .map(PlainAggregateWindowExpr::get_aggregate_expr))
        .or_else(|| {
            expr.downcast_ref::<SlidingAggregateWindowExpr>()
                .map(SlidingAggregateWindowExpr::get_aggregate_expr)
        });
        if let Some(call) = aggregate {
            return self.knows_aggregate(call.fun());
        }
        let function = expr.downcast_ref::<StandardWindowExpr>();
        let function = function.map(|standard| standard.get_standard_func_expr().as_any());
        function
            .and_then(|function| function.downcast_ref::<WindowUDFExpr>())
            .is_some_and(|function| self.knows_window(function.fun()))
    }
}

/// Why a source of rows is not read by workers.
fn source_refusal(scan: &DataSourceExec) -> Option<String> {
    let source = scan.data_source();
    let Some(files) = source.downcast_ref::<FileScanConfig>() else {
        return (!source.is::<MemorySourceConfig>())
            .then(|| "a table is of no kind that workers read".into());
    };
    if !files.file_source().is::<ParquetSource>() {
        return Some(format!("files of format {} are read by one process", files.file_source().file_type()));
    }
    files
        .expr_adapter_factory
        .is_some()
        .then(|| "the columns of a table's files have other names than the table's".into())
}

/// An error where a plan, written for workers, is not read again.
pub(crate) fn check_written(plan: &Node, worker: &SessionState) -> Result<()> {
    let codec = DistributedCodec::new_combined_with_user(worker.config());
    let context = TaskContext::from(worker);
    let bytes = physical_plan_to_bytes_with_proto_converter(
        Arc::clone(plan),
        &codec,
        &DeduplicatingProtoConverter::default(),
    )?;
    physical_plan_from_bytes_with_proto_converter(
        &bytes,
        &context,
        &codec,
        &DeduplicatingProtoConverter::default(),
    )
    .map(|_: Arc<dyn ExecutionPlan>| ())
}
