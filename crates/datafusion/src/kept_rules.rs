//! Physical rules of DataFusion that are kept from plans which they would give another meaning.
//!
//! `FilterPushdown`, of filters and of what joins, sorts and aggregates find out while they run:
//! - A filter is moved below `random() AS r`, and the function is then called once for each time that the filter names the column.
//! - On its way down a filter looks for its columns by their names. Where two columns of a node share one, as those of a join of tables
//!   with an `id` each, it takes the first: the filter gets to the wrong side of a join, or to another column.
//! - What a join finds out are the least and greatest of its keys. Lists and structs with NULL inside are not between them, as such a
//!   comparison is NULL, and neither is -0.0 between 0.0 and 0.0: joins with such keys find out nothing.
//!
//! `aggregate_statistics` answers an aggregate of all rows by statistics. It looks for the partial one below the final one, and where that
//! one has a FILTER it goes on to the next aggregate further down: `count(*) FILTER (…)` of `SELECT count(*)` is then the count below.
//!
//! `ProjectionPushdown` moves down what is computed of the few rows of a sort (`late_projections`). And it makes one projection of two, where
//! the parameters of a lambda keep the places that they had behind the columns of the first: over more columns these are other columns.
//!
//! `SanityCheckPlan` refuses plans that its own rules have made: a sort by columns that are constant by a filter below is left out, and then
//! rows are brought into partitions, after which nobody knows that they are constant. Such a plan gets the sort that is missing.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExprRef;
use datafusion::physical_expr::expressions::LambdaExpr;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;

use crate::late_projections::below_late;
use crate::node::Node;
use crate::options::KelpieOptions;
use crate::original::Rule;
use crate::recursion_guard::with_room;
use crate::recursive_terms::is_recursive;

/// The rule that moves filters down.
const FILTERS: &str = "FilterPushdown";

/// The rule that moves down what joins, sorts and aggregates find out while they run.
const DYNAMIC_FILTERS: &str = "FilterPushdown(Post)";

/// The rule that answers aggregates by statistics.
const STATISTICS: &str = "aggregate_statistics";

/// The rule that moves projections down.
const PROJECTIONS: &str = "ProjectionPushdown";

/// The rule that checks whether every node gets its rows as it needs them.
const CHECK: &str = "SanityCheckPlan";

/// Keeps these rules of a session from such plans.
pub fn keep_from_physical_rules(rules: &mut [Rule]) {
    let kept = [FILTERS, DYNAMIC_FILTERS, STATISTICS, PROJECTIONS, CHECK];
    for rule in rules.iter_mut().filter(|rule| kept.contains(&rule.name())) {
        *rule = Arc::new(Kept(Arc::clone(rule)));
    }
}

/// One of these rules.
pub(crate) struct Kept(pub Rule);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(&self.0.name()).finish()
    }
}

impl PhysicalOptimizerRule for Kept {
    fn optimize(&self, plan: Node, config: &ConfigOptions) -> Result<Node> {
        if self.name() == CHECK && KelpieOptions::of(config).corrections {
            return self.0.optimize(Arc::clone(&plan), config).or_else(|refused| {
                let mended = EnsureRequirements::new().optimize(plan, config)?;
                self.0.optimize(mended, config).map_err(|_| refused)
            });
        }
        if self.name() == PROJECTIONS {
            if KelpieOptions::of(config).enabled && with_room(&plan, || has_lambdas(&plan))? {
                return Ok(plan);
            }
            return match KelpieOptions::of(config).enabled {
                true => {
                    with_room(&plan, || below_late(Arc::clone(&plan), &|plan| self.0.optimize(plan, config)))
                }
                false => self.0.optimize(plan, config),
            };
        }
        // What is kept for the next step must not be what a filter of this one left.
        if self.name() == DYNAMIC_FILTERS && KelpieOptions::of(config).enabled && is_recursive(&plan) {
            return Ok(plan);
        }
        let is_kept = || -> Result<bool> {
            match self.name() {
                STATISTICS => Ok(counts_below(&plan, false)),
                name => Ok(computes_volatile(&plan)? || misleads(&plan, name == DYNAMIC_FILTERS, false)),
            }
        };
        if !KelpieOptions::of(config).corrections {
            return self.0.optimize(plan, config);
        }
        match with_room(&plan, is_kept)? {
            true => Ok(plan),
            false if self.name() == DYNAMIC_FILTERS => {
                without_bounds_of_odd_keys(self.0.optimize(plan, config)?)
            }
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

/// A plan whose joins find out nothing of keys that are not told apart by their order.
fn without_bounds_of_odd_keys(plan: Node) -> Result<Node> {
    let without = |node: Node| {
        let join = node.downcast_ref::<HashJoinExec>().filter(|join| has_odd_keys(join));
        match join.filter(|join| !join.dynamic_expressions_produced().is_empty()) {
            // What would be found out is always true then, wherever it got to.
            Some(join) => Ok(Transformed::yes(join.builder().reset_state().build_exec()?)),
            None => Ok(Transformed::no(node)),
        }
    };
    with_room(&plan, || Ok(Arc::clone(&plan).transform_up(without)?.data))
}

/// Whether keys of a join are nested or floats.
fn has_odd_keys(join: &HashJoinExec) -> bool {
    let is_odd = |key: &PhysicalExprRef, schema: SchemaRef| {
        let data_type = key.data_type(&schema);
        data_type.is_ok_and(|data_type| data_type.is_nested() || has_floats(&data_type))
    };
    join.on()
        .iter()
        .any(|(left, right)| is_odd(left, join.left().schema()) || is_odd(right, join.right().schema()))
}

fn has_floats(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, value) => has_floats(value),
        data_type => data_type.is_floating(),
    }
}

pub(crate) fn computes_volatile(plan: &Node) -> Result<bool> {
    plan.exists(|node| {
        let projection = node.downcast_ref::<ProjectionExec>();
        Ok(projection
            .is_some_and(|projection| projection.expr().iter().any(|column| is_volatile(&column.expr))))
    })
}

/// Whether a projection has a lambda.
fn has_lambdas(plan: &Node) -> Result<bool> {
    plan.exists(|node| {
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else { return Ok(false) };
        for column in projection.expr() {
            if column.expr.exists(|expr| Ok(expr.is::<LambdaExpr>()))? {
                return Ok(true);
            }
        }
        Ok(false)
    })
}

/// Whether an aggregate stands below one with a FILTER.
fn counts_below(node: &Node, is_below: bool) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    if is_below && aggregate.is_some() {
        return true;
    }
    let has_filter = aggregate.is_some_and(|aggregate| aggregate.filter_expr().iter().any(Option::is_some));
    node.children().into_iter().any(|child| counts_below(child, is_below || has_filter))
}

/// Whether a filter that is handed down comes to columns that share a name.
fn misleads(node: &Node, is_dynamic: bool, is_below: bool) -> bool {
    if is_below && shares_names(node) {
        return true;
    }
    let hands_down = node.is::<FilterExec>()
        || is_dynamic && (node.is::<HashJoinExec>() || node.is::<SortExec>() || node.is::<AggregateExec>());
    node.children().into_iter().any(|child| misleads(child, is_dynamic, is_below || hands_down))
}

fn shares_names(node: &Node) -> bool {
    let schema = node.schema();
    let mut names = HashSet::new();
    !schema.fields().iter().all(|field| names.insert(field.name().as_str()))
}
