//! Aggregates of the query around, within a subquery: `SELECT (SELECT max(u.y) FROM u WHERE u.i < sum(t.x)) FROM t GROUP BY t.i`.
//!
//! SQL gives an aggregate whose columns are all of one query around to that query: here `sum(t.x)` adds up the rows of a group of `t`.
//! DataFusion takes it for one of the subquery, whose rows it would count once for each of the rows around, and refuses it in WHERE. Here
//! the planner keeps such a call as a function without arguments, and then the query around computes it among its own aggregates, where
//! the subquery finds it as a column.

use std::any::Any;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawAggregateExpr};
use datafusion::logical_expr::registry::FunctionRegistry;
use datafusion::logical_expr::{
    Aggregate, ColumnarValue, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{Expr as SqlExpr, ObjectNamePart, Query};
use kelpie_datafusion::map_named;

use super::expressions::{subquery_of, subquery_of_mut};
use crate::syntax::{Flow, Walk, normal, visit};

/// A state that keeps such calls apart, where a statement may have any: one with an aggregate within a query within another.
pub(crate) fn planned_apart(state: &SessionState, statement: &mut Statement) -> Result<Option<SessionState>> {
    let mut nested = Nested { state, queries: 0, found: false };
    let _ = visit(statement, &mut nested);
    if !nested.found {
        return Ok(None);
    }
    let mut state = state.clone();
    state.register_expr_planner(Arc::new(Apart))?;
    Ok(Some(state))
}

/// Looks for an aggregate in a query within another.
struct Nested<'a> {
    state: &'a SessionState,
    queries: usize,
    found: bool,
}

impl Walk for Nested<'_> {
    fn pre_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries += 1;
        Flow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.queries -= 1;
        Flow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut SqlExpr) -> Flow {
        let is_nested_aggregate = match &*expr {
            SqlExpr::Function(call) if self.queries > 1 && call.over.is_none() => {
                match call.name.0.as_slice() {
                    [ObjectNamePart::Identifier(name)] => {
                        self.state.aggregate_functions().contains_key(&normal(name))
                    }
                    _ => false,
                }
            }
            _ => false,
        };
        self.found |= is_nested_aggregate;
        if self.found { Flow::Break(None) } else { Flow::Continue(()) }
    }
}

/// Keeps aggregates of a query around apart from those of the query that they stand in.
#[derive(Debug)]
struct Apart;

impl ExprPlanner for Apart {
    fn plan_aggregate(&self, expr: RawAggregateExpr) -> Result<PlannerResult<RawAggregateExpr>> {
        let RawAggregateExpr { func, args, distinct, filter, order_by, null_treatment } = expr.clone();
        let call = AggregateFunction::new_udf(func, args, distinct, filter, order_by, null_treatment);
        let mut columns = Columns::default();
        columns.see(&Expr::AggregateFunction(call.clone()))?;
        if columns.outer.is_empty() || columns.has_own {
            return Ok(PlannerResult::Original(expr));
        }
        let signature = Signature::nullary(Volatility::Volatile);
        let function = ScalarUDF::from(OfQueryAround { call, signature });
        Ok(PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function), vec![]))))
    }
}

/// The columns that an expression refers to.
#[derive(Default)]
struct Columns {
    outer: Vec<Column>,
    has_own: bool,
}

impl Columns {
    fn see(&mut self, expr: &Expr) -> Result<()> {
        expr.apply(|expr| {
            match expr {
                Expr::OuterReferenceColumn(_, column) => self.outer.push(column.clone()),
                Expr::Column(_) | Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => {
                    self.has_own = true;
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(())
    }
}

/// An aggregate of a query around, until that query computes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct OfQueryAround {
    call: AggregateFunction,
    signature: Signature,
}

impl OfQueryAround {
    fn of(expr: &Expr) -> Option<&OfQueryAround> {
        match expr {
            Expr::ScalarFunction(call) => (call.func.inner().as_ref() as &dyn Any).downcast_ref(),
            _ => None,
        }
    }

    /// The call as the query around has it.
    fn there(&self) -> Result<Expr> {
        let call = Expr::AggregateFunction(self.call.clone()).transform(|expr| match expr {
            Expr::OuterReferenceColumn(_, column) => Ok(Transformed::yes(Expr::Column(column))),
            expr => Ok(Transformed::no(expr)),
        })?;
        Ok(call.data)
    }

    fn is_of(&self, schema: &DFSchema) -> Result<bool> {
        let mut columns = Columns::default();
        columns.see(&Expr::AggregateFunction(self.call.clone()))?;
        Ok(columns.outer.iter().all(|column| schema.has_column(column)))
    }
}

impl ScalarUDFImpl for OfQueryAround {
    fn name(&self) -> &str {
        self.call.func.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn schema_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.there()?.schema_name().to_string())
    }

    fn display_name(&self, _: &[Expr]) -> Result<String> {
        Ok(self.there()?.schema_name().to_string())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Expr::AggregateFunction(self.call.clone()).get_type(&DFSchema::empty())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Expr::AggregateFunction(self.call.clone()).to_field(&DFSchema::empty())?.1)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{} is computed by the query around", self.there()?)
    }
}

/// A plan whose queries compute what subqueries within them ask for.
pub(crate) fn computed_around(plan: LogicalPlan) -> Result<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(computed)?.data;
    if let Some(left) = calls_of(&plan)?.first() {
        return plan_err!(
            "{} is an aggregate of the query around, which has none in such a place, as in WHERE, FROM or ON",
            left.there()?
        );
    }
    Ok(plan)
}

/// The calls in a plan and all of its subqueries.
fn calls_of(plan: &LogicalPlan) -> Result<Vec<OfQueryAround>> {
    let mut calls: Vec<OfQueryAround> = Vec::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Some(call) = OfQueryAround::of(expr)
                    && !calls.contains(call)
                {
                    calls.push(call.clone());
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(calls)
}

/// The calls in the subqueries of a node.
fn calls_within(node: &LogicalPlan) -> Result<Vec<OfQueryAround>> {
    let mut calls = Vec::new();
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            if let Some(subquery) = subquery_of(expr) {
                calls.extend(calls_of(&subquery.subquery)?);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(calls)
}

/// A node whose input has the aggregates that its subqueries ask for, if that is the query that they are of.
fn computed(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let calls = calls_within(&node)?;
    if calls.is_empty() {
        return Ok(Transformed::no(node));
    }
    let [input] = node.inputs()[..] else { return Ok(Transformed::no(node)) };
    let mut found = Vec::new();
    let input = match with_aggregates(input, &calls, &mut found)? {
        Some(input) => input,
        // A query that groups nothing else is one of a single group, as with any other aggregate.
        None => match &node {
            LogicalPlan::Projection(_) => match of_all_rows(&node, &calls, &mut found)? {
                Some(input) => input,
                None => return Ok(Transformed::no(node)),
            },
            _ => return Ok(Transformed::no(node)),
        },
    };
    let columns = node.schema().columns();
    let names = NamePreserver::new(&node);
    let exprs = node.expressions().into_iter().map(|expr| {
        let name = names.save(&expr);
        Ok(name.restore(replaced(expr, &found)?))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let is_projection = matches!(node, LogicalPlan::Projection(_));
    let made = node.with_new_exprs(exprs, vec![input])?.recompute_schema()?;
    // What is above sees the columns that there were; a condition of groups has the others for what else asks for them.
    let keeps_all = is_projection || matches!(made, LogicalPlan::Filter(_));
    match keeps_all {
        true => Ok(Transformed::yes(made)),
        false => {
            let shown = LogicalPlanBuilder::from(made).project(columns.into_iter().map(Expr::Column))?;
            shown.build().map(Transformed::yes)
        }
    }
}

/// An aggregate of a query around, and the column that it has become.
struct Found {
    call: OfQueryAround,
    column: Column,
}

/// The rows of a query with the aggregates that are of it, where it has any groups.
fn with_aggregates(
    plan: &LogicalPlan,
    calls: &[OfQueryAround],
    found: &mut Vec<Found>,
) -> Result<Option<LogicalPlan>> {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregated(aggregate, calls, found),
        LogicalPlan::Projection(projection) => {
            let Some(input) = with_aggregates(&projection.input, calls, found)? else { return Ok(None) };
            let added = found.iter().map(|found| Expr::Column(found.column.clone()));
            let columns = projection.expr.iter().cloned().chain(added);
            LogicalPlanBuilder::from(input).project(columns)?.build().map(Some)
        }
        LogicalPlan::Filter(_) | LogicalPlan::Window(_) | LogicalPlan::Sort(_) => {
            let [input] = plan.inputs()[..] else { return Ok(None) };
            let Some(input) = with_aggregates(input, calls, found)? else { return Ok(None) };
            plan.with_new_exprs(plan.expressions(), vec![input])?.recompute_schema().map(Some)
        }
        _ => Ok(None),
    }
}

/// An aggregation that computes those of the calls, too, whose columns its rows have.
fn aggregated(
    aggregate: &Aggregate,
    calls: &[OfQueryAround],
    found: &mut Vec<Found>,
) -> Result<Option<LogicalPlan>> {
    let mut exprs = aggregate.aggr_expr.clone();
    for call in calls {
        if !call.is_of(aggregate.input.schema())? {
            continue;
        }
        let there = call.there()?;
        let column = Column::new_unqualified(there.schema_name().to_string());
        if !exprs.iter().any(|expr| expr.schema_name().to_string() == column.name) {
            exprs.push(there);
        }
        found.push(Found { call: call.clone(), column });
    }
    if found.is_empty() {
        return Ok(None);
    }
    let (input, keys) = (Arc::clone(&aggregate.input), aggregate.group_expr.clone());
    Ok(Some(LogicalPlan::Aggregate(Aggregate::try_new(input, keys, exprs)?)))
}

/// The one group of the rows below a list of SELECT that asks for aggregates in its subqueries only.
fn of_all_rows(
    node: &LogicalPlan,
    calls: &[OfQueryAround],
    found: &mut Vec<Found>,
) -> Result<Option<LogicalPlan>> {
    let [input] = node.inputs()[..] else { return Ok(None) };
    let all = Aggregate::try_new(
        Arc::new(input.clone()),
        vec![],
        calls
            .iter()
            .filter(|call| call.is_of(input.schema()).unwrap_or(false))
            .map(|call| call.there())
            .collect::<Result<_>>()?,
    );
    let Ok(all) = all else { return Ok(None) };
    let Some(rows) = aggregated(&all, calls, found)? else { return Ok(None) };
    let mut lone = None;
    node.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                Expr::Column(column) => lone = Some(column.clone()),
                expr => {
                    let refers = subquery_of(expr).map(|within| within.subquery.all_out_ref_exprs());
                    for outer in refers.into_iter().flatten() {
                        if let Expr::OuterReferenceColumn(_, column) = outer
                            && input.schema().has_column(&column)
                        {
                            lone = Some(column);
                        }
                    }
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    match (lone, found.first()) {
        (Some(column), Some(found)) => plan_err!(
            "the column {column} must be in GROUP BY or in an aggregate: {} in a subquery is an aggregate of the query around it",
            found.column.name
        ),
        _ => Ok(Some(rows)),
    }
}

/// An expression whose subqueries refer to the columns that aggregates of the query around have become.
fn replaced(expr: Expr, found: &[Found]) -> Result<Expr> {
    let replaced = expr.transform(|mut expr| {
        let Some(subquery) = subquery_of_mut(&mut expr) else { return Ok(Transformed::no(expr)) };
        if calls_of(&subquery.subquery)?.is_empty() {
            return Ok(Transformed::no(expr));
        }
        let plan = subquery.subquery.as_ref().clone().transform_up(|node| {
            let names = NamePreserver::new(&node);
            let mut within = |expr| Ok(Transformed::yes(replaced(as_outer_columns(expr, found)?, found)?));
            let node = node.map_expressions(|expr| map_named(expr, &names, &mut within))?;
            node.map_data(LogicalPlan::recompute_schema)
        })?;
        subquery.outer_ref_columns = plan.data.all_out_ref_exprs();
        subquery.subquery = Arc::new(plan.data);
        Ok(Transformed::yes(expr))
    })?;
    Ok(replaced.data)
}

fn as_outer_columns(expr: Expr, found: &[Found]) -> Result<Expr> {
    let replaced = expr.transform(|expr| {
        let Some(call) = OfQueryAround::of(&expr) else { return Ok(Transformed::no(expr)) };
        let Some(found) = found.iter().find(|found| found.call == *call) else {
            return Ok(Transformed::no(expr));
        };
        let field = Expr::AggregateFunction(call.call.clone()).to_field(&DFSchema::empty())?.1;
        Ok(Transformed::yes(Expr::OuterReferenceColumn(field, found.column.clone())))
    })?;
    Ok(replaced.data)
}
