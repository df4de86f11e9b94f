//! Rules of DataFusion's optimizer that are kept from plans which they would give another meaning.
//!
//! - `a JOIN b ON a.s IS NOT DISTINCT FROM b.s` becomes a join whose keys all take NULLs for equal. Two rules then add keys to it, or to a
//!   join beside it, for which NULL is not equal to NULL (`a.x = b.x` of a WHERE), and answers get rows too many or too few.
//! - A condition without columns, such as `'x' > 'x'`, is pushed below an aggregate of all rows, which has a row whatever it holds.
//! - `2 = a` that is moved to where `a = 2` stands is taken for another value, so that no row is left, and of `a >= 5` and `5 < a` the first
//!   is kept: conditions are compared as they are written. Here a constant is always on the right.
//! - Groups by keys of a join's side and more are taken for told apart by these keys, and grouped again, by DISTINCT within an aggregate or
//!   by a query around them, lose the other keys; sorts by such groups lose keys, and joins with them are dropped (`known_keys`).
//! - DISTINCT is dropped where the rows below are grouped by a key of theirs and something else: the key is then taken for unique.

use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder, Operator,
};
use datafusion::optimizer::optimizer::Optimizer;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use kelpie_datafusion::KelpieOptions;

use super::known_keys::{of_keys_that_tell_nothing, with_true_keys};

/// The rule that makes keys of the equalities of a join's condition.
const KEYS: &str = "extract_equijoin_predicate";

/// The rule that makes one list of tables and keys of nested inner joins.
const LIST: &str = "eliminate_cross_join";

/// The rule that moves conditions down.
const CONDITIONS: &str = "push_down_filter";

/// The rule that makes groups of DISTINCT.
const DISTINCT: &str = "replace_distinct_aggregate";

/// The rule that drops columns that nobody needs, and keys of groups that follow from others.
const COLUMNS: &str = "optimize_projections";

/// The rule that drops keys of a sort that follow from others.
const SORTS: &str = "eliminate_duplicated_expr";

/// The rule that drops joins that neither add columns nor repeat rows.
const JOINS: &str = "eliminate_join";

/// Keeps these rules of a session from such plans.
pub(crate) fn keep_from_rules(builder: &mut SessionStateBuilder) {
    let optimizer = builder.optimizer().get_or_insert_with(Optimizer::new);
    for rule in &mut optimizer.rules {
        if [KEYS, LIST, CONDITIONS, DISTINCT, COLUMNS, SORTS, JOINS].contains(&rule.name()) {
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
            (CONDITIONS, LogicalPlan::Filter(filter)) => {
                let turned = filter.predicate.transform_up(|expr| Ok(constant_on_the_right(expr)))?;
                let filter = Filter::try_new(turned.data, filter.input)?;
                self.0.rewrite(LogicalPlan::Filter(filter), config)
            }
            (SORTS, plan @ LogicalPlan::Sort(_)) | (JOINS, plan) => {
                let known = with_true_keys(plan)?;
                let rewritten = self.0.rewrite(known.data, config)?;
                Ok(Transformed { transformed: rewritten.transformed | known.transformed, ..rewritten })
            }
            (COLUMNS, plan) => {
                let grouped = plan.transform_up_with_subqueries(of_keys_that_tell_nothing)?;
                self.0.rewrite(grouped.data, config)
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

/// A comparison of a constant with something else the other way round.
fn constant_on_the_right(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(*left, Expr::Literal(..)) && !matches!(*right, Expr::Literal(..)) =>
        {
            match op.swap().filter(|_| compares(op)) {
                Some(swapped) => {
                    Transformed::yes(Expr::BinaryExpr(BinaryExpr { left: right, op: swapped, right: left }))
                }
                None => Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })),
            }
        }
        expr => Transformed::no(expr),
    }
}

fn compares(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
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
