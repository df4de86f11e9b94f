//! What the rule asks of nodes.

use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::analyze::AnalyzeExec;
use kelpie_compile::expr::ExprKind;
use kelpie_compile::plan::Plan;

use crate::exec::KelpieExec;
use crate::node::{Node, pass_through};
use crate::received::ReceivedExec;
use crate::report::KelpieReport;
use crate::translate::translate;

/// The name of the node that shows what the pipelines of an EXPLAIN ANALYZE did, which a session puts around it.
pub const ANALYZED: &str = "AnalyzedExec";

/// What a node is around that computes nothing itself.
pub(super) fn wrapped(node: &Node) -> Option<&Node> {
    let explains = node.is::<AnalyzeExec>() || node.is::<KelpieReport>() || node.name() == ANALYZED;
    match node.children().as_slice() {
        [input] if explains || node.is::<DataSinkExec>() => Some(input),
        _ => None,
    }
}

/// A plan that reads no data: constants, SHOW, the information schema.
pub(super) fn is_trivial(node: &Node) -> bool {
    let reads = node.is::<DataSourceExec>() || node.is::<KelpieExec>() || node.is::<ReceivedExec>();
    !reads && node.children().into_iter().all(is_trivial)
}

/// A scan with a limit at most: DataFusion can do nothing slower than Kelpie there.
pub(super) fn bare_scan(node: &Node) -> bool {
    use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
    let limit = node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>();
    match node.children().as_slice() {
        [] => {
            let reads = node.is::<DataSourceExec>() || node.is::<ReceivedExec>();
            reads && translate(node).map_or(true, |t| !is_worth(&t.plan))
        }
        [input] => (limit || pass_through(node).is_some()) && bare_scan(input),
        _ => false,
    }
}

/// Whether a plan does more than hand rows on.
pub(super) fn is_worth(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(_) => false,
        Plan::Limit { input, .. } | Plan::Scalars { input, .. } => is_worth(input),
        Plan::Union { inputs, .. } => inputs.iter().any(is_worth),
        Plan::Project { input, exprs, .. } => {
            exprs.iter().any(|e| !matches!(e.kind, ExprKind::Column(_))) || is_worth(input)
        }
        Plan::Filter { .. }
        | Plan::Aggregate { .. }
        | Plan::GroupingSets(_)
        | Plan::Ranked(_)
        | Plan::Window(_)
        | Plan::Join(_)
        | Plan::Sort { .. } => true,
    }
}
