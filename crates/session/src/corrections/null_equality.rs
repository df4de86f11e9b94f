//! Joins in which NULL equals NULL stay such joins, and others do not become ones.
//!
//! `a JOIN b ON a.s IS NOT DISTINCT FROM b.s` becomes a join whose keys all take NULLs for equal. Two of DataFusion's rules then add keys
//! to it, or to a join beside it, for which NULL is not equal to NULL (`a.x = b.x` of a WHERE), and answers get rows too many or too few.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::{Expr, Join, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use kelpie_datafusion::KelpieOptions;

/// The rule that makes keys of the equalities of a join's condition.
const KEYS: &str = "extract_equijoin_predicate";

/// The rule that makes one list of tables and keys of nested inner joins.
const LIST: &str = "eliminate_cross_join";

/// Keeps these rules of a session from mixing keys.
pub(crate) fn keep_null_equality(builder: &mut SessionStateBuilder) {
    let optimizer = builder.optimizer().get_or_insert_with(Optimizer::new);
    for rule in &mut optimizer.rules {
        if [KEYS, LIST].contains(&rule.name()) {
            *rule = Arc::new(Unmixed(Arc::clone(rule)));
        }
    }
}

/// One of these rules.
#[derive(Debug)]
struct Unmixed(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for Unmixed {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        if !KelpieOptions::of(&config.options()).corrections {
            return self.0.rewrite(plan, config);
        }
        match &plan {
            // What is no key of it stays a condition.
            LogicalPlan::Join(join)
                if self.name() == KEYS && takes_nulls_for_equal(join) && !join.on.is_empty() =>
            {
                Ok(Transformed::no(plan))
            }
            plan if self.name() == LIST && plan.exists(|node| Ok(is_inner(node, true)))? => {
                let apart = plan.clone().transform_up(apart)?;
                let rewritten = self.0.rewrite(apart.data, config)?;
                Ok(Transformed::yes(rewritten.data))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn takes_nulls_for_equal(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
}

fn is_inner(plan: &LogicalPlan, nulls_are_equal: bool) -> bool {
    matches!(plan, LogicalPlan::Join(join)
        if join.join_type == JoinType::Inner && takes_nulls_for_equal(join) == nulls_are_equal)
}

/// Puts a projection above such a join, and between it and inner joins of the other kind: a list ends there.
fn apart(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    if !is_inner(&plan, true) {
        return Ok(Transformed::no(plan));
    }
    let plan = plan.map_children(|child| match is_inner(&child, false) {
        true => all_columns(child).map(Transformed::yes),
        false => Ok(Transformed::no(child)),
    })?;
    all_columns(plan.data).map(Transformed::yes)
}

fn all_columns(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::Column).collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}
