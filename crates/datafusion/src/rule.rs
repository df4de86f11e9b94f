//! The optimizer rule: the largest sub-plans that compile become [`KelpieExec`].

mod leave;
mod nodes;
mod partitions;
mod reasons;
mod replace;
mod whole;

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use kelpie_engine::{Engine, Phase};

pub(crate) use self::leave::has_endless_pairs;
pub use self::nodes::ANALYZED;
use self::nodes::{bare_scan, is_trivial, wrapped};
pub(crate) use self::partitions::merged_properties;
pub use self::reasons::{note_reasons, noted_reasons};
use self::reasons::{query_of, reasons_of};
use crate::clock::timed;
use crate::corrections::nan::plan::with_one_nan;
use crate::exec::KelpieExec;
use crate::late_projections::above_late;
use crate::narrow_filters::narrow_filters;
use crate::node::Node;
use crate::options::{Fallback, KelpieOptions};
use crate::recursion_guard::{Shape, protect, with_room};
use crate::report::KelpieReport;
use crate::translate::translate;
pub use whole::WholeQueryRule;

/// Replaces the largest sub-plans that Kelpie compiles. To be registered after DataFusion's own rules.
#[derive(Debug)]
pub struct KelpieRule {
    engine: Arc<Engine>,
}

impl KelpieRule {
    /// Its name in lists of rules.
    pub const NAME: &str = "kelpie";

    /// A rule whose sub-plans run on an engine.
    pub fn new(engine: Arc<Engine>) -> KelpieRule {
        KelpieRule { engine }
    }

    /// A rule of a session, where it is this one.
    pub fn of(rule: &Arc<dyn PhysicalOptimizerRule + Send + Sync>) -> Option<&KelpieRule> {
        let rule: &dyn Any = rule.as_ref();
        rule.downcast_ref()
    }

    /// The engine of its sub-plans.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}

impl PhysicalOptimizerRule for KelpieRule {
    fn name(&self) -> &str {
        KelpieRule::NAME
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let options = KelpieOptions::of(config);
        match options.for_workers {
            true => Ok(plan),
            false => timed(Phase::Rule, || self.replaced(plan, &options)),
        }
    }
}

impl KelpieRule {
    fn replaced(&self, plan: Node, options: &KelpieOptions) -> Result<Node> {
        let ready = |plan: Node| match options.corrections {
            true => protect(with_room(&plan, || with_one_nan(Arc::clone(&plan)))?),
            false => protect(plan),
        };
        if !options.enabled {
            return ready(plan);
        }
        let (plan, reasons) = with_room(&plan, || self.optimize_query(Arc::clone(&plan), options))?;
        let plan = narrow_filters(ready(plan)?)?;
        note_reasons(&plan, reasons);
        Ok(plan)
    }

    /// The plan with what compiles replaced, and every reason why the rest is not.
    fn optimize_query(&self, plan: Node, options: &KelpieOptions) -> Result<(Node, Vec<String>)> {
        if let Some(input) = wrapped(&plan) {
            let (input, reasons) = self.optimize_query(Arc::clone(input), options)?;
            return Ok((replace_children_if_necessary(plan, vec![input])?, reasons));
        }
        // What is computed of a few rows is as well computed by DataFusion.
        if let Some(input) = above_late(&plan).filter(|_| translate(&plan).is_err()) {
            let (input, reasons) = self.optimize_query(Arc::clone(input), options)?;
            return Ok((replace_children_if_necessary(plan, vec![input])?, reasons));
        }
        let (replaced, reasons) = replaced_query(&plan, &self.engine, options)?;
        if options.fallback == Fallback::Deny && !reasons.is_empty() && !options.explaining {
            return plan_err!("kelpie.fallback is 'deny', and not compiled is:\n  {}", reasons.join("\n  "));
        }
        match options.explaining && !reasons.is_empty() {
            true => Ok((Arc::new(KelpieReport::new(deeper(&replaced)?, reasons.clone())), reasons)),
            false => Ok((replaced, reasons)),
        }
    }
}

/// A query's plan with what compiles replaced, and every reason why the rest is not.
fn replaced_query(plan: &Node, engine: &Arc<Engine>, options: &KelpieOptions) -> Result<(Node, Vec<String>)> {
    if is_trivial(plan) || bare_scan(plan) || plan.is::<KelpieExec>() {
        return Ok((Arc::clone(plan), Vec::new()));
    }
    match Shape::of(plan).refusal().or_else(|| leave::whole(plan, options)) {
        Some(reason) => Ok((Arc::clone(plan), vec![reason])),
        None => replace::replaced(plan, engine, options),
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

/// Every reason why parts of a query that was planned with some options are DataFusion's: what the rule found when it made
/// the plan, or would find.
pub fn uncompiled_reasons(plan: &Node, engine: &Arc<Engine>, options: &KelpieOptions) -> Vec<String> {
    let query = query_of(plan);
    if query.is::<KelpieExec>() || !options.enabled {
        return Vec::new();
    }
    if let Some(reasons) = reasons_of(query) {
        return reasons;
    }
    match with_room(query, || replaced_query(query, engine, options)) {
        Ok((_, reasons)) => reasons,
        Err(error) => vec![error.strip_backtrace()],
    }
}
