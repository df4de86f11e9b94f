//! The nodes of a plan that may hold subqueries.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::error::Result;
use datafusion::functions::expr_fn::coalesce;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, Join, JoinType, Limit, LogicalPlan, LogicalPlanBuilder, Projection, Union,
    WindowFunctionDefinition, cast, lit,
};

use super::dependent::{OuterValues, is_not_distinct};
use super::plain::{is_correlated, refers_to_some};
use super::row_by_row::made_of_each_row;
use super::{Around, Place, is_subquery, outer_joins};

/// A node with columns in place of its subqueries.
pub(super) fn rewritten(node: LogicalPlan, made: &mut usize) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node
        && is_lateral(join)?
    {
        let joined = lateral(join, made)?;
        return Ok(joined.map_or(Transformed::no(node), Transformed::yes));
    }
    let mut has_any = false;
    node.apply_expressions(|expr| {
        has_any |= expr.exists(|expr| Ok(is_subquery(expr)))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !has_any {
        return Ok(Transformed::no(node));
    }
    let names = NamePreserver::new(&node);
    match node {
        LogicalPlan::Filter(filter) => {
            let mut around = Around::new(&filter.input, made);
            let conditions = split_conjunction_owned(filter.predicate.clone()).into_iter();
            let conditions = conditions.map(|condition| around.replace(condition, Place::Condition));
            let conditions = conditions.collect::<Result<Vec<_>>>()?;
            if !around.changed {
                return Ok(Transformed::no(LogicalPlan::Filter(filter)));
            }
            let columns = filter.input.schema().columns().into_iter().map(Expr::Column);
            let condition = conjunction(conditions).unwrap_or_else(|| lit(true));
            let plan =
                LogicalPlanBuilder::new_from_arc(around.rows).filter(condition)?.project(columns)?.build()?;
            Ok(Transformed::yes(plan))
        }
        LogicalPlan::Projection(projection) => {
            let mut around = Around::new(&projection.input, made);
            let columns = around.replace_all(&projection.expr, &names)?;
            if !around.changed {
                return Ok(Transformed::no(LogicalPlan::Projection(projection)));
            }
            LogicalPlanBuilder::new_from_arc(around.rows).project(columns)?.build().map(Transformed::yes)
        }
        LogicalPlan::Aggregate(aggregate) => {
            let mut around = Around::without_scalars(&aggregate.input, made);
            let keys = around.replace_all(&aggregate.group_expr, &names)?;
            let calls = around.replace_all(&aggregate.aggr_expr, &names)?;
            if !around.changed {
                return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
            }
            LogicalPlanBuilder::new_from_arc(around.rows)
                .aggregate(keys, calls)?
                .build()
                .map(Transformed::yes)
        }
        LogicalPlan::Sort(mut sort) => {
            let mut around = Around::without_scalars(&sort.input, made);
            for key in &mut sort.expr {
                key.expr = around.replace(std::mem::take(&mut key.expr), Place::Value)?;
            }
            if !around.changed {
                return Ok(Transformed::no(LogicalPlan::Sort(sort)));
            }
            let columns = sort.input.schema().columns().into_iter().map(Expr::Column);
            let sorted =
                LogicalPlanBuilder::new_from_arc(around.rows).sort_with_limit(sort.expr, sort.fetch)?;
            sorted.project(columns)?.build().map(Transformed::yes)
        }
        LogicalPlan::Window(window) => {
            let mut around = Around::without_scalars(&window.input, made);
            let calls = around.replace_all(&window.window_expr, &names)?;
            if !around.changed {
                return Ok(Transformed::no(LogicalPlan::Window(window)));
            }
            let columns = window.schema.columns().into_iter().map(Expr::Column);
            let plan = LogicalPlanBuilder::new_from_arc(around.rows).window(calls)?;
            plan.project(columns)?.build().map(Transformed::yes)
        }
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
            // Conditions of an inner join are as well conditions of its rows.
            let Some(condition) = join.filter.clone() else {
                return Ok(Transformed::no(LogicalPlan::Join(join)));
            };
            let rows = LogicalPlan::Join(Join { filter: None, ..join });
            rewritten(LogicalPlanBuilder::from(rows).filter(condition)?.build()?, made)
        }
        LogicalPlan::Join(join)
            if matches!(join.join_type, JoinType::Left | JoinType::Right | JoinType::Full) =>
        {
            outer_joins::rewritten(join, made)
        }
        LogicalPlan::Limit(limit) => rewritten(counted(limit)?, made),
        node => Ok(Transformed::no(node)),
    }
}

/// A limit by what subqueries give, as a condition of the rows' numbers in their order.
fn counted(limit: Limit) -> Result<LogicalPlan> {
    // The order may be by columns that are not shown.
    if let LogicalPlan::Projection(shown) = limit.input.as_ref() {
        let below = Limit { input: Arc::clone(&shown.input), ..limit };
        let (exprs, schema) = (shown.expr.clone(), Arc::clone(&shown.schema));
        let shown = Projection::try_new_with_schema(exprs, Arc::new(counted(below)?), schema)?;
        return Ok(LogicalPlan::Projection(shown));
    }
    let order = match limit.input.as_ref() {
        LogicalPlan::Sort(sort) if sort.fetch.is_none() => sort.expr.clone(),
        _ => Vec::new(),
    };
    let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
    let number = Expr::from(WindowFunction::new(function, vec![])).order_by(order).build()?;
    let place = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
    let columns: Vec<Expr> = limit.input.schema().columns().into_iter().map(Expr::Column).collect();
    let (own, number_of) = (cast(place.clone(), DataType::Int64), |expr: Expr| cast(expr, DataType::Int64));
    let skip = limit.skip.as_deref().cloned().map(|skip| coalesce(vec![number_of(skip), lit(0_i64)]));
    // NULL is no limit.
    let fetch = limit.fetch.as_deref().cloned();
    let fetch = fetch.map(|fetch| coalesce(vec![number_of(fetch), lit(i64::MAX)]));
    let from = skip.clone().map(|skip| own.clone().gt(skip));
    let behind = match &skip {
        Some(skip) => own.clone() - skip.clone(),
        None => own,
    };
    let to = fetch.map(|fetch| behind.lt_eq(fetch));
    let condition = from.into_iter().chain(to).reduce(Expr::and).unwrap_or_else(|| lit(true));
    LogicalPlanBuilder::new_from_arc(limit.input)
        .window([number])?
        .filter(condition)?
        .sort([place.sort(true, false)])?
        .project(columns)?
        .build()
}

/// A node whose columns may be NULL where those of its inputs may be.
pub(super) fn with_own_schema(node: LogicalPlan) -> Result<LogicalPlan> {
    let LogicalPlan::Union(union) = node else { return node.recompute_schema() };
    let is_nullable = |place: usize| {
        union
            .inputs
            .iter()
            .any(|input| input.schema().fields().get(place).is_none_or(|field| field.is_nullable()))
    };
    let fields = union.schema.iter().enumerate().map(|(place, (qualifier, field))| {
        let field = field.as_ref().clone().with_nullable(is_nullable(place));
        (qualifier.cloned(), Arc::new(field))
    });
    let schema = DFSchema::new_with_metadata(fields.collect(), union.schema.metadata().clone())?;
    Ok(LogicalPlan::Union(Union { inputs: union.inputs, schema: Arc::new(schema) }))
}

/// Whether the right side of a join refers to its left side: LATERAL, whether it is said or not.
fn is_lateral(join: &Join) -> Result<bool> {
    let is_known = matches!(join.join_type, JoinType::Inner | JoinType::Left);
    Ok(is_known && is_correlated(&join.right)? && refers_to_some(&join.right, &join.left)?)
}

/// The rows of the right side for each row of the left side.
fn lateral(join: &Join, made: &mut usize) -> Result<Option<LogicalPlan>> {
    if let Some(rows) = made_of_each_row(join, made)? {
        return Ok(Some(rows));
    }
    let mut around = Around::new(&join.left, made);
    around.share_rows()?;
    let inner = around.qualifier("outer");
    let Some(values) = OuterValues::of(&around.rows, &join.right, inner)? else { return Ok(None) };
    let Some(rows) = values.rows_of(&join.right)? else { return Ok(None) };
    let equal = values.columns().iter().enumerate().map(|(place, column)| {
        is_not_distinct(Expr::Column(column.clone()), Expr::Column(values.value(place)))
    });
    let on = join.on.iter().map(|(left, right)| left.clone().eq(right.clone()));
    let conditions = equal.chain(on).chain(join.filter.clone());
    let columns = join.schema.columns().into_iter().map(Expr::Column);
    let joined = LogicalPlanBuilder::new_from_arc(around.rows).join_on(rows, join.join_type, conditions)?;
    joined.project(columns)?.build().map(Some)
}
