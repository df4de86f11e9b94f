//! Queries that compile as a whole, before DataFusion makes their plans ready to run on its own operators.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::output_requirements::OutputRequirementExec;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::sorts::sort::SortExec;
use kelpie_engine::{Engine, Phase};

use super::leave;
use super::nodes::{bare_scan, is_trivial, is_worth, wrapped};
use super::reasons::note_reasons;
use crate::clock::timed;
use crate::exec::KelpieExec;
use crate::join_order::JoinOrderRule;
use crate::node::Node;
use crate::options::KelpieOptions;
use crate::original::{Original, Rest};
use crate::recursion_guard::{Shape, with_room};
use crate::translate::{refined, translate};

/// Replaces a query that compiles as a whole. What it leaves, for whatever reason, is [`KelpieRule`](super::KelpieRule)'s, which
/// comes after DataFusion's rules and gives the reasons.
#[derive(Debug)]
pub struct WholeQueryRule {
    engine: Arc<Engine>,
    /// The order of joins, which is a part of the plan that is compiled.
    order: Arc<JoinOrderRule>,
    rest: Rest,
}

impl WholeQueryRule {
    /// A rule before some others, among them the one that orders joins.
    pub fn new(engine: Arc<Engine>, order: Arc<JoinOrderRule>, rest: Rest) -> WholeQueryRule {
        WholeQueryRule { engine, order, rest }
    }

    /// The plan with its query replaced; `None` where that is not compiled as a whole.
    fn replaced(&self, plan: &Node, config: &ConfigOptions, options: &KelpieOptions) -> Result<Option<Node>> {
        if let Some(input) = around(plan) {
            let input = self.replaced(input, config, options)?;
            return input
                .map(|input| replace_children_if_necessary(Arc::clone(plan), vec![input]))
                .transpose();
        }
        let refusal = || Shape::of(plan).refusal().or_else(|| leave::whole(plan, options));
        if is_trivial(plan) || bare_scan(plan) || !is_ordered_as_asked(plan)? || refusal().is_some() {
            return Ok(None);
        }
        let ordered = self.order.optimize(Arc::clone(plan), config)?;
        if leave::parts(&ordered, &self.engine, options).0.contains(&ordered) {
            return Ok(None);
        }
        let Some(translated) = translate(&ordered).ok().filter(|found| is_worth(&found.plan)) else {
            return Ok(None);
        };
        let (translated, refused) = refined(&ordered, translated, &self.engine);
        if !refused.is_empty() {
            return Ok(None);
        }
        let original = Original::unfinished(Arc::clone(plan), self.rest.clone());
        let compiled = |original| KelpieExec::new(original, translated, Arc::clone(&self.engine), 0);
        Ok(Some(match options.explaining {
            true => Arc::new(compiled(original.explained(config)?).explained(options)),
            false => Arc::new(compiled(original)),
        }))
    }
}

impl PhysicalOptimizerRule for WholeQueryRule {
    fn name(&self) -> &str {
        "kelpie_whole_query"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        let options = KelpieOptions::of(config);
        if !options.enabled || options.for_workers {
            return Ok(plan);
        }
        timed(Phase::Rule, || {
            let replaced = with_room(&plan, || self.replaced(&plan, config, &options))?;
            if let Some(compiled) = &replaced {
                note_reasons(compiled, Vec::new());
            }
            Ok(replaced.unwrap_or(plan))
        })
    }
}

/// The input of a node that is around a query.
fn around(node: &Node) -> Option<&Node> {
    wrapped(node).or_else(|| match node.children()[..] {
        [input] if node.is::<OutputRequirementExec>() && wrapped(input).is_some() => Some(input),
        _ => None,
    })
}

/// Whether the query's rows have the order that it asks for, and no other. DataFusion drops sorts that nothing asks for,
/// and makes use of files that are sorted, later than this.
fn is_ordered_as_asked(plan: &Node) -> Result<bool> {
    let asks = |node: &Node| {
        node.is::<OutputRequirementExec>() && node.required_input_ordering().iter().any(Option::is_some)
    };
    let is_sort = |node: &Node| node.downcast_ref::<SortExec>().is_some_and(|sort| sort.fetch().is_none());
    let sorts_in_vain = plan.exists(|node| Ok(!asks(node) && node.children().into_iter().any(&is_sort)))?;
    Ok(!is_sort(plan)
        && !sorts_in_vain
        && (plan.output_ordering().is_none() || plan.exists(|node| Ok(asks(node)))?))
}
