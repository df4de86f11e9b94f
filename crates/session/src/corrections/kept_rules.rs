//! Rules of DataFusion's optimizer that are kept from plans which they would give another meaning.
//!
//! - `a JOIN b ON a.s IS NOT DISTINCT FROM b.s` becomes a join whose keys all take NULLs for equal. Two rules then add keys to it, or to a
//!   join beside it, for which NULL is not equal to NULL (`a.x = b.x` of a WHERE), and answers get rows too many or too few.
//! - A condition without columns, such as `'x' > 'x'`, is pushed below an aggregate of all rows, which has a row whatever it holds.
//! - DISTINCT is dropped where the rows below are grouped by a key of theirs and something else: the key is then taken for unique.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use kelpie_datafusion::KelpieOptions;

/// The rule that makes keys of the equalities of a join's condition.
const KEYS: &str = "extract_equijoin_predicate";

/// The rule that makes one list of tables and keys of nested inner joins.
const LIST: &str = "eliminate_cross_join";

/// The rule that moves conditions down.
const CONDITIONS: &str = "push_down_filter";

/// The rule that makes groups of DISTINCT.
const DISTINCT: &str = "replace_distinct_aggregate";

/// Keeps these rules of a session from such plans.
pub(crate) fn keep_from_rules(builder: &mut SessionStateBuilder) {
    let optimizer = builder.optimizer().get_or_insert_with(Optimizer::new);
    for rule in &mut optimizer.rules {
        if [KEYS, LIST, CONDITIONS, DISTINCT].contains(&rule.name()) {
            *rule = Arc::new(Kept(Arc::clone(rule)));
        }
    }
}

/// One of these rules.
#[derive(Debug)]
struct Kept(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for Kept {
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
        match (self.name(), plan) {
            // What is no key of it stays a condition.
            (KEYS, LogicalPlan::Join(join)) if takes_nulls_for_equal(&join) && !join.on.is_empty() => {
                Ok(Transformed::no(LogicalPlan::Join(join)))
            }
            (LIST, plan) if plan.exists(|node| Ok(is_inner(node, true)))? => {
                let apart = plan.transform_up(apart)?;
                let rewritten = self.0.rewrite(apart.data, config)?;
                Ok(Transformed::yes(rewritten.data))
            }
            (CONDITIONS, LogicalPlan::Filter(filter)) if is_of_no_rows(&filter) => {
                Ok(Transformed::no(LogicalPlan::Filter(filter)))
            }
            (DISTINCT, LogicalPlan::Distinct(Distinct::All(input)))
                if !input.schema().fields().is_empty() =>
            {
                let keys = input.schema().columns().into_iter().map(Expr::Column).collect();
                Ok(Transformed::yes(LogicalPlan::Aggregate(Aggregate::try_new(input, keys, vec![])?)))
            }
            (_, plan) => self.0.rewrite(plan, config),
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

/// Whether a condition without columns stands on an aggregate that has a row even of no rows.
fn is_of_no_rows(filter: &Filter) -> bool {
    let is_constant = |filter: &Filter| {
        split_conjunction(&filter.predicate).iter().any(|condition| condition.column_refs().is_empty())
    };
    // Filters one on the other become one.
    let (mut has_constant, mut input) = (is_constant(filter), &filter.input);
    while let LogicalPlan::Filter(below) = input.as_ref() {
        (has_constant, input) = (has_constant || is_constant(below), &below.input);
    }
    let LogicalPlan::Aggregate(aggregate) = input.as_ref() else { return false };
    has_constant && matches!(aggregate.group_expr.as_slice(), [] | [Expr::GroupingSet(_)])
}
