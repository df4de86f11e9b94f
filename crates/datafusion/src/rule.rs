//! The optimizer rule: the largest sub-plans that compile become [`KelpieExec`].

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use kelpie_compile::expr::ExprKind;
use kelpie_compile::plan::Plan;
use kelpie_engine::Engine;

use crate::exec::KelpieExec;
use crate::options::{Fallback, KelpieOptions};
use crate::report::KelpieReport;
use crate::translate::{Reasons, translate};

/// Replaces the largest sub-plans that Kelpie compiles. To be registered after DataFusion's own rules.
#[derive(Debug)]
pub struct KelpieRule {
    engine: Arc<Engine>,
}

impl KelpieRule {
    /// Its name in lists of rules.
    pub(crate) const NAME: &str = "kelpie";

    /// A rule whose sub-plans run on an engine.
    pub fn new(engine: Arc<Engine>) -> KelpieRule {
        KelpieRule { engine }
    }
}

type Node = Arc<dyn ExecutionPlan>;

impl PhysicalOptimizerRule for KelpieRule {
    fn name(&self) -> &str {
        KelpieRule::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let options = KelpieOptions::of(config);
        match options.enabled {
            true => self.optimize_query(plan, &options),
            false => Ok(plan),
        }
    }
}

impl KelpieRule {
    fn optimize_query(&self, plan: Node, options: &KelpieOptions) -> Result<Node> {
        if is_wrapper(&plan) {
            let children = plan.children().into_iter().cloned();
            let children = children.map(|child| self.optimize_query(child, options));
            let children = children.collect::<Result<Vec<_>>>()?;
            return replace_children_if_necessary(plan, children);
        }
        if is_trivial(&plan) || bare_scan(&plan) {
            return Ok(plan);
        }
        let mut reasons = Reasons::default();
        if let Err(found) = translate(&plan) {
            found.into_iter().for_each(|reason| reasons.push(reason));
        }
        let replaced = replace(&self.engine, &plan, 0, true, &mut reasons)?;
        let reasons = reasons.into_vec();
        if options.fallback == Fallback::Deny && !reasons.is_empty() && !options.explaining {
            return plan_err!("kelpie.fallback is 'deny', and not compiled is:\n  {}", reasons.join("\n  "));
        }
        if !options.explaining || reasons.is_empty() {
            return Ok(replaced);
        }
        let below = replace(&self.engine, &plan, 1, true, &mut Reasons::default())?;
        Ok(Arc::new(KelpieReport::new(below, reasons)))
    }
}

/// Every reason why parts of a planned query are DataFusion's.
pub fn uncompiled_reasons(plan: &Node, engine: &Engine) -> Vec<String> {
    if is_wrapper(plan) {
        return plan.children().into_iter().flat_map(|child| uncompiled_reasons(child, engine)).collect();
    }
    if plan.is::<KelpieExec>() || is_trivial(plan) || bare_scan(plan) {
        return Vec::new();
    }
    match translate(plan) {
        Err(reasons) => reasons,
        Ok(translated) => engine.check(&translated.plan),
    }
}

/// The plan with its largest compilable parts replaced; `reasons` gets what code generation refuses. `any_partitions`:
/// how many partitions the node has does not matter to what is above it.
fn replace(
    engine: &Arc<Engine>,
    node: &Node,
    depth: usize,
    any_partitions: bool,
    reasons: &mut Reasons,
) -> Result<Node> {
    let one_partition = node.output_partitioning().partition_count() == 1;
    if !bare_scan(node)
        && (one_partition || any_partitions)
        && let Ok(translated) = translate(node)
        && is_worth(&translated.plan)
    {
        let refused = engine.check(&translated.plan);
        if refused.is_empty() {
            let original = Arc::clone(node);
            return Ok(Arc::new(KelpieExec::new(original, translated, Arc::clone(engine), depth)));
        }
        refused.into_iter().for_each(|reason| reasons.push(reason));
    }
    let redistributes = redistributes(node);
    let children = node.children().into_iter();
    let children = children.map(|child| replace(engine, child, depth + 1, redistributes, reasons));
    replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)
}

/// Whether a node deals the rows of its input out anew, whatever partition they come in.
fn redistributes(node: &Node) -> bool {
    node.is::<CoalescePartitionsExec>()
        || node.downcast_ref::<RepartitionExec>().is_some_and(|node| !node.preserve_order())
}

/// Nodes around a query that compute nothing themselves.
fn is_wrapper(node: &Node) -> bool {
    node.is::<AnalyzeExec>() || node.is::<DataSinkExec>() || node.is::<KelpieReport>()
}

/// A plan that reads no data: constants, SHOW, the information schema.
fn is_trivial(node: &Node) -> bool {
    !node.is::<DataSourceExec>() && !node.is::<KelpieExec>() && node.children().into_iter().all(is_trivial)
}

/// A scan with a limit at most: DataFusion can do nothing slower than Kelpie there.
fn bare_scan(node: &Node) -> bool {
    use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
    let limit = node.is::<GlobalLimitExec>() || node.is::<LocalLimitExec>();
    match node.children().as_slice() {
        [] => node.is::<DataSourceExec>() && translate(node).map_or(true, |t| !is_worth(&t.plan)),
        [input] => (limit || crate::translate::pass_through(node).is_some()) && bare_scan(input),
        _ => false,
    }
}

/// Whether a plan does more than hand rows on.
fn is_worth(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(_) => false,
        Plan::Limit { input, .. } | Plan::Scalars { input, .. } => is_worth(input),
        Plan::Union { inputs, .. } => inputs.iter().any(is_worth),
        Plan::Project { input, exprs, .. } => {
            exprs.iter().any(|e| !matches!(e.kind, ExprKind::Column(_))) || is_worth(input)
        }
        Plan::Filter { .. } | Plan::Aggregate { .. } | Plan::Join(_) | Plan::Sort { .. } => true,
    }
}
