//! Lists of which a query looks at the first elements alone: `list(x ORDER BY y)[1:3]`, `max(x, 3)`, `arg_max(x, y, 3)`. Such a list is made of
//! the first rows of its group, which are found without a sort of all, as `row_number() <= 3` finds them.

use std::sync::Arc;

use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction, Sort, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Projection, WindowFunctionDefinition,
    lit,
};
use datafusion::scalar::ScalarValue;
use kelpie_datafusion::LogicalRule;

use super::expressions::has_expr;
use super::orders::{Groups, is_volatile, joined};

/// Of lists of more elements all rows are put in order.
const MOST_ELEMENTS: i64 = 1000;

/// Makes lists of the rows whose elements are looked at.
pub(crate) const FIRST_ELEMENTS: LogicalRule = LogicalRule {
    name: "kelpie_first_elements",
    applies: |options| options.enabled,
    rewrite: |plan| {
        if !has_expr(&plan, |expr| ordered_list(expr).is_some())? {
            return Ok(plan);
        }
        let bounded = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Projection(projection) => bounded(projection),
            node => Ok(Transformed::no(node)),
        })?;
        Ok(bounded.data)
    },
};

/// The call that makes a list in an order.
fn ordered_list(call: &Expr) -> Option<&AggregateFunction> {
    match call {
        Expr::Alias(alias) => ordered_list(&alias.expr),
        Expr::AggregateFunction(function) => {
            let params = &function.params;
            let is_list = function.func.name() == "array_agg" && params.null_treatment.is_none();
            let is_ordered = !params.order_by.is_empty() && !params.distinct;
            (is_list && is_ordered && !call.is_volatile()).then_some(function)
        }
        _ => None,
    }
}

/// Calls whose lists begin with the same rows.
struct First<'a> {
    order: &'a [Sort],
    filter: Option<&'a Expr>,
    /// Elements that are looked at.
    rows: i64,
    calls: Vec<Expr>,
}

fn bounded(projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let unchanged = |projection| Ok(Transformed::no(LogicalPlan::Projection(projection)));
    let LogicalPlan::Aggregate(aggregate) = projection.input.as_ref() else { return unchanged(projection) };
    let keys = &aggregate.group_expr;
    if matches!(&keys[..], [Expr::GroupingSet(_)]) || keys.iter().any(Expr::is_volatile) {
        return unchanged(projection);
    }
    let columns = aggregate.schema.columns();
    let (mut firsts, mut others) = (Vec::<First<'_>>::new(), Vec::new());
    for (call, column) in aggregate.aggr_expr.iter().zip(columns.iter().skip(keys.len())) {
        let rows = elements(&projection.expr, column)?;
        let (Some(list), Some(rows)) = (ordered_list(call), rows) else {
            others.push(call.clone());
            continue;
        };
        let (order, filter) = (&list.params.order_by[..], list.params.filter.as_deref());
        match firsts.iter_mut().find(|first| first.order == order && first.filter == filter) {
            Some(first) => {
                first.rows = first.rows.max(rows);
                first.calls.push(call.clone());
            }
            None => firsts.push(First { order, filter, rows, calls: vec![call.clone()] }),
        }
    }
    let is_several = !others.is_empty() || firsts.len() > 1;
    if firsts.is_empty() || is_several && is_volatile(aggregate)? {
        return unchanged(projection);
    }
    let others = (!others.is_empty()).then(|| Groups { input: Arc::clone(&aggregate.input), calls: others });
    let firsts = firsts
        .into_iter()
        .map(|first| Ok(Groups { input: Arc::new(first_rows(aggregate, &first)?), calls: first.calls }));
    let parts = others.into_iter().map(Ok).chain(firsts).collect::<Result<Vec<_>>>()?;
    let groups = joined(aggregate, parts)?;
    match groups.schema().has_equivalent_names_and_types(&aggregate.schema) {
        Ok(()) => {
            let exprs = projection.expr.clone();
            LogicalPlanBuilder::from(groups).project(exprs)?.build().map(Transformed::yes)
        }
        Err(_) => unchanged(projection),
    }
}

/// How many of a list's first elements some expressions look at; `None` where they want more of it than can be told, or nothing.
fn elements(exprs: &[Expr], list: &Column) -> Result<Option<i64>> {
    let mut most = Some(0);
    for expr in exprs {
        expr.apply(|part| {
            let wanted = match part {
                Expr::Column(column) if column == list => None,
                Expr::ScalarFunction(call) if is_of(call, list) => last_element(call),
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            most = most.zip(wanted).map(|(most, wanted)| most.max(wanted));
            Ok(if most.is_some() { TreeNodeRecursion::Jump } else { TreeNodeRecursion::Stop })
        })?;
    }
    Ok(most.filter(|most| (1..=MOST_ELEMENTS).contains(most)))
}

fn is_of(call: &ScalarFunction, list: &Column) -> bool {
    matches!(call.args.first(), Some(Expr::Column(column)) if column == list)
}

/// The last element of its list that a call looks at, where it begins to count at the first one.
fn last_element(call: &ScalarFunction) -> Option<i64> {
    let number = |place: usize| match call.args.get(place)? {
        Expr::Literal(ScalarValue::Int64(number), _) => *number,
        _ => None,
    };
    match (call.name(), call.args.len()) {
        ("array_element", 2) => number(1).filter(|place| *place > 0),
        ("array_slice", 3) => number(1).filter(|from| *from > 0).and(number(2)).filter(|to| *to > 0),
        ("array_slice", 4) if number(3) == Some(1) => {
            number(1).filter(|from| *from > 0).and(number(2)).filter(|to| *to > 0)
        }
        _ => None,
    }
}

/// The rows of which lists are made, and one at least of each group: those that a filter leaves out come last.
fn first_rows(aggregate: &Aggregate, first: &First<'_>) -> Result<LogicalPlan> {
    let kept = first.filter.map(|filter| filter.clone().is_not_true().sort(true, false));
    let order = kept.into_iter().chain(first.order.iter().cloned()).collect();
    let number = WindowFunction::new(WindowFunctionDefinition::WindowUDF(row_number_udwf()), vec![]);
    let number = Expr::from(number).partition_by(aggregate.group_expr.clone()).order_by(order).build()?;
    let numbered = LogicalPlanBuilder::new_from_arc(Arc::clone(&aggregate.input)).window([number])?;
    let number = numbered.schema().columns().pop().map(Expr::Column).unwrap_or_else(|| lit(true));
    let kept = number.lt_eq(lit(first.rows as u64));
    let columns: Vec<Expr> = aggregate.input.schema().columns().into_iter().map(Expr::Column).collect();
    numbered.filter(kept)?.project(columns)?.build()
}
