//! Filters stay above the projection that calls a volatile function. DataFusion's physical rule `FilterPushdown` moves a filter below
//! `random() AS r`, and then calls the function once for each time that the filter names the column.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::options::KelpieOptions;
use crate::original::Rule;
use crate::recursion_guard::with_room;

/// The name of DataFusion's rule.
const RULE: &str = "FilterPushdown";

/// Keeps plans with such projections from DataFusion's rule, where it is among these.
pub fn keep_volatile_filters(rules: &mut [Rule]) {
    for rule in rules.iter_mut().filter(|rule| rule.name() == RULE) {
        *rule = Arc::new(WithoutVolatile(Arc::clone(rule)));
    }
}

/// DataFusion's rule for plans without a projection that calls a volatile function.
pub(crate) struct WithoutVolatile(pub Rule);

impl std::fmt::Debug for WithoutVolatile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WithoutVolatile").field(&self.0.name()).finish()
    }
}

impl PhysicalOptimizerRule for WithoutVolatile {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let has_volatile = || plan.exists(|node| Ok(computes_volatile(node)));
        match KelpieOptions::of(config).corrections && with_room(&plan, has_volatile)? {
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

fn computes_volatile(node: &Arc<dyn ExecutionPlan>) -> bool {
    let projection = node.downcast_ref::<ProjectionExec>();
    projection.is_some_and(|projection| projection.expr().iter().any(|column| is_volatile(&column.expr)))
}
