//! The optimizer rule: the largest sub-plans that compile become [`KelpieExec`].

mod leave;
mod partitions;
mod replace;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use kelpie_compile::expr::ExprKind;
use kelpie_compile::plan::Plan;
use kelpie_engine::Engine;

use crate::deep::{Shape, protect, with_room};
use crate::exec::KelpieExec;
use crate::options::{Fallback, KelpieOptions};
use crate::report::KelpieReport;
use crate::translate::translate;
pub(crate) use partitions::merged_properties;

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

    /// A rule of a session, where it is this one.
    pub(crate) fn of(rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>) -> Option<&KelpieRule> {
        let rule: &dyn Any = rule.as_ref();
        rule.downcast_ref()
    }

    /// The engine of its sub-plans.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
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
        let plan = match options.enabled {
            true => with_room(&plan, || self.optimize_query(Arc::clone(&plan), &options))?,
            false => plan,
        };
        protect(plan)
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
        let left = Shape::of(&plan).refusal().or_else(|| leave::whole(&plan, options));
        let (replaced, reasons) = match left {
            Some(reason) => (plan, vec![reason]),
            None => replace::replaced(&plan, &self.engine, options)?,
        };
        if options.fallback == Fallback::Deny && !reasons.is_empty() && !options.explaining {
            return plan_err!("kelpie.fallback is 'deny', and not compiled is:\n  {}", reasons.join("\n  "));
        }
        match options.explaining && !reasons.is_empty() {
            true => Ok(Arc::new(KelpieReport::new(deeper(&replaced)?, reasons))),
            false => Ok(replaced),
        }
    }
}

/// The plan one level deeper in EXPLAIN's tree.
fn deeper(node: &Node) -> Result<Node> {
    if let Some(compiled) = node.downcast_ref::<KelpieExec>() {
        return Ok(Arc::new(compiled.deeper()));
    }
    let children = node.children().into_iter().map(deeper);
    replace_children_if_necessary(Arc::clone(node), children.collect::<Result<Vec<_>>>()?)
}

/// Every reason why parts of a query that was planned with some options are DataFusion's.
pub fn uncompiled_reasons(plan: &Node, engine: &Engine, options: &KelpieOptions) -> Vec<String> {
    with_room(plan, || reasons_of(plan, engine, options))
}

fn reasons_of(plan: &Node, engine: &Engine, options: &KelpieOptions) -> Vec<String> {
    if is_wrapper(plan) {
        let children = plan.children().into_iter();
        return children.flat_map(|child| reasons_of(child, engine, options)).collect();
    }
    if plan.is::<KelpieExec>() || !options.enabled || is_trivial(plan) || bare_scan(plan) {
        return Vec::new();
    }
    if let Some(reason) = Shape::of(plan).refusal().or_else(|| leave::whole(plan, options)) {
        return vec![reason];
    }
    let (_, mut reasons) = leave::parts(plan, engine, options);
    match translate(plan) {
        Err(found) => reasons.extend(found),
        Ok(translated) if reasons.is_empty() => reasons = engine.check(&translated.plan),
        Ok(_) => {}
    }
    reasons
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
