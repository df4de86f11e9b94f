//! What a compiled part of a plan replaces.
//!
//! A query that compiles as a whole is compiled before DataFusion pushes filters into its scans, and gives its operators partitions,
//! sorts, smaller projections and filters that tighten while they run: none of that is for Kelpie, and it is the larger half of
//! making a physical plan. Only where such a query falls back, or where EXPLAIN shows it, do the rules that were left out go over it.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::combine_partial_final_agg::CombinePartialFinalAggregate;
use datafusion::physical_optimizer::ensure_coop::EnsureCooperative;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_optimizer::hash_join_buffering::HashJoinBuffering;
use datafusion::physical_optimizer::limit_pushdown::LimitPushdown;
use datafusion::physical_optimizer::limit_pushdown_past_window::LimitPushPastWindows;
use datafusion::physical_optimizer::output_requirements::OutputRequirements;
use datafusion::physical_optimizer::projection_pushdown::ProjectionPushdown;
use datafusion::physical_optimizer::pushdown_sort::PushdownSort;
use datafusion::physical_optimizer::sanity_checker::SanityCheckPlan;
use datafusion::physical_optimizer::topk_aggregation::TopKAggregation;
use datafusion::physical_optimizer::topk_repartition::TopKRepartition;
use datafusion::physical_optimizer::update_aggr_exprs::OptimizeAggregateOrder;
use datafusion::physical_optimizer::window_topn::WindowTopN;
use datafusion::physical_optimizer::{ConfigOnlyContext, PhysicalOptimizerRule};

use crate::csv_ranges::CsvRanges;
use crate::join_order::JoinOrderRule;
use crate::kept_rules::Kept;
use crate::node::Node;
use crate::original::{Original, Rest, Rule};
use crate::outer_constants::OuterConstants;
use crate::plan_copy::copy;
use crate::recursion_guard::with_room;
use crate::skipped_rows::SkippedRows;

impl Rest {
    /// Some rules, where each is known to change how a plan runs and never what it gives: a rule of somebody else must see every
    /// plan.
    pub fn of(rules: &[Rule]) -> Option<Rest> {
        rules.iter().all(is_known).then(|| Rest(rules.into()))
    }

    /// A plan as it is after the rules.
    fn finished(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        // The query may stand below what writes its rows or measures it: its order is then to be asked for here.
        let plan = OutputRequirements::new_add_mode().optimize(plan, config)?;
        let context = ConfigOnlyContext::new(config);
        self.0.iter().try_fold(plan, |plan, rule| rule.optimize_with_context(plan, &context))
    }
}

fn is_known(rule: &Rule) -> bool {
    let rule: &dyn Any = rule.as_ref();
    if let Some(Kept(rule)) = rule.downcast_ref() {
        return is_known(rule);
    }
    rule.is::<JoinOrderRule>()
        || rule.is::<CsvRanges>()
        || rule.is::<SkippedRows>()
        || rule.is::<OuterConstants>()
        || rule.is::<WindowTopN>()
        || rule.is::<EnsureRequirements>()
        || rule.is::<CombinePartialFinalAggregate>()
        || rule.is::<OptimizeAggregateOrder>()
        || rule.is::<ProjectionPushdown>()
        || rule.is::<OutputRequirements>()
        || rule.is::<TopKAggregation>()
        || rule.is::<LimitPushPastWindows>()
        || rule.is::<HashJoinBuffering>()
        || rule.is::<LimitPushdown>()
        || rule.is::<TopKRepartition>()
        || rule.is::<PushdownSort>()
        || rule.is::<EnsureCooperative>()
        || rule.is::<FilterPushdown>()
        || rule.is::<SanityCheckPlan>()
}

impl Original {
    /// The same, to be explained.
    pub fn explained(self, config: &ConfigOptions) -> Result<Original> {
        let shown = match &self.rest {
            Some(_) => Some(self.runnable(config)?),
            None => None,
        };
        Ok(Original { shown, ..self })
    }

    /// A copy of the sub-plan that can run; other copies may run at the same time.
    pub fn runnable(&self, config: &ConfigOptions) -> Result<Node> {
        with_room(&self.plan, || {
            // What cannot be copied is of a plan that is not kept, and runs once.
            let copy = copy(&self.plan).unwrap_or_else(|_| Arc::clone(&self.plan));
            match &self.rest {
                Some(rest) => rest.finished(copy, config),
                None => Ok(copy),
            }
        })
    }
}
