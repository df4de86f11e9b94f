//! Minima and maxima of floats are not taken from statistics, which leave NaN out.
//!
//! DataFusion's rule `aggregate_statistics` answers `max(x)` from the footers of Parquet files where these are exact. Parquet's
//! bounds of floats say nothing of NaN, which is the greatest value there is: the answer is wrong where there is one. So plans
//! with such an aggregate are kept from the rule.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use kelpie_datafusion::KelpieOptions;
use kelpie_datafusion::recursion_guard::with_room;

/// The name of DataFusion's rule.
const RULE: &str = "aggregate_statistics";

type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Keeps floats from DataFusion's rule, where it is among these.
pub(crate) fn keep_floats_from_statistics(rules: &mut [Rule]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == RULE) {
        *rule = Arc::new(WithoutFloats(Arc::clone(rule)));
    }
}

/// DataFusion's rule for plans without an aggregate of floats over all rows.
struct WithoutFloats(Rule);

impl std::fmt::Debug for WithoutFloats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WithoutFloats").field(&self.0.name()).finish()
    }
}

impl PhysicalOptimizerRule for WithoutFloats {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_floats = || plan.exists(|node| Ok(aggregates_floats(node)));
        let options = KelpieOptions::of(config);
        match (options.enabled || options.corrections) && with_room(&plan, has_floats)? {
            true => Ok(plan),
            false => self.0.optimize(plan, config),
        }
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }
}

fn aggregates_floats(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.downcast_ref::<AggregateExec>().is_some_and(|aggregate| {
        let mut calls = aggregate.aggr_expr().iter();
        aggregate.group_expr().is_empty() && calls.any(|call| call.field().data_type().is_floating())
    })
}
