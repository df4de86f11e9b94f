//! The rows of a subquery for each row around it, as one plan (Neumann and Kemper, "Unnesting Arbitrary Queries", BTW 2015): the distinct
//! values that the subquery refers to are joined with its innermost rows, and every operator above works for each of them.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, NullEquality, ScalarValue};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::{Sort as SortExpr, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Distinct, Expr, ExprFunctionExt, ExprSchemable, FetchType, Join, JoinType, Limit,
    LogicalPlan, LogicalPlanBuilder, Operator, Projection, SkipType, SubqueryAlias, Union, Values, Window,
    WindowFunctionDefinition, lit, when,
};

use super::super::expressions::subquery_of;
use super::plain::is_correlated;

/// The distinct values of the columns around a subquery that it refers to.
#[derive(Debug)]
pub(super) struct OuterValues {
    /// The rows that have them.
    rows: Arc<LogicalPlan>,
    /// What they are called there.
    columns: Vec<Column>,
    /// What the columns of the values are qualified with.
    pub qualifier: String,
}

impl OuterValues {
    /// The values that a subquery refers to of rows around it; nothing where a subquery within it, that is left as it is, refers to them.
    /// What it refers to further out stays as it is: with the rows here it becomes part of the query around, which is looked at next.
    pub fn of(
        rows: &Arc<LogicalPlan>,
        subquery: &LogicalPlan,
        qualifier: String,
    ) -> Result<Option<OuterValues>> {
        let mut columns: Vec<Column> = Vec::new();
        let mut is_known = true;
        subquery.apply(|node| {
            let schema = rows.schema();
            node.apply_expressions(|expr| {
                expr.apply(|expr| {
                    match expr {
                        Expr::OuterReferenceColumn(_, column) if schema.has_column(column) => {
                            if !columns.contains(column) {
                                columns.push(column.clone());
                            }
                        }
                        expr => is_known &= !reaches_out(expr, node),
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        let rows = Arc::clone(rows);
        Ok(is_known.then_some(OuterValues { rows, columns, qualifier }))
    }

    /// What the columns are called in the rows around the subquery.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// A value's column, in the plan of the subquery.
    pub fn value(&self, place: usize) -> Column {
        value_of(&self.qualifier, place)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Expr> {
        (0..self.columns.len()).map(|place| Expr::Column(self.value(place)))
    }

    /// The rows that have the values.
    pub(super) fn rows(&self) -> &LogicalPlan {
        &self.rows
    }

    /// The same values of other rows, which have these columns too.
    pub(super) fn of_rows(self, rows: &Arc<LogicalPlan>) -> OuterValues {
        OuterValues { rows: Arc::clone(rows), ..self }
    }

    /// The same values under another qualifier.
    pub(super) fn called(&self, qualifier: String) -> OuterValues {
        OuterValues { rows: Arc::clone(&self.rows), columns: self.columns.clone(), qualifier }
    }

    pub(super) fn plan(&self, qualifier: &str) -> Result<LogicalPlan> {
        let columns = self.columns.iter().enumerate();
        let columns = columns.map(|(place, column)| {
            let value = value_of(qualifier, place);
            Expr::Column(column.clone()).alias_qualified(value.relation, value.name)
        });
        LogicalPlanBuilder::new_from_arc(Arc::clone(&self.rows)).project(columns)?.distinct()?.build()
    }

    /// An expression of the subquery that refers to the values instead of the rows around it.
    pub(super) fn inside(&self, expr: Expr) -> Result<Expr> {
        let inside = expr.transform(|expr| match &expr {
            Expr::OuterReferenceColumn(_, column) => {
                match self.columns.iter().position(|known| known == column) {
                    Some(place) => Ok(Transformed::yes(Expr::Column(self.value(place)))),
                    None => Ok(Transformed::no(expr)),
                }
            }
            _ => Ok(Transformed::no(expr)),
        })?;
        Ok(inside.data)
    }

    /// The same, under the name that it had.
    pub(super) fn inside_as_before(&self, expr: &Expr) -> Result<Expr> {
        let inside = self.inside(expr.clone())?;
        let (qualifier, name) = expr.qualified_name();
        Ok(if inside == *expr { inside } else { inside.alias_qualified(qualifier, name) })
    }

    /// The rows of a plan within the subquery for each of the values, which come along as columns of their own; nothing where that
    /// cannot be said here.
    pub fn rows_of(&self, plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
        if self.columns.is_empty() {
            return Ok(Some(plan.clone()));
        }
        if !is_correlated(plan)? {
            let values = LogicalPlanBuilder::from(self.plan(&self.qualifier)?);
            return values.cross_join(plan.clone())?.build().map(Some);
        }
        match plan {
            LogicalPlan::Filter(filter) => {
                let Some(input) = self.rows_of(&filter.input)? else { return Ok(None) };
                let condition = self.inside(filter.predicate.clone())?;
                LogicalPlanBuilder::from(input).filter(condition)?.build().map(Some)
            }
            LogicalPlan::Projection(projection) => {
                let Some(input) = self.rows_of(&projection.input)? else { return Ok(None) };
                let columns = projection.expr.iter().map(|expr| self.inside_as_before(expr));
                let columns: Vec<Expr> = columns.chain(self.values().map(Ok)).collect::<Result<_>>()?;
                LogicalPlanBuilder::from(input).project(columns)?.build().map(Some)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let Some(input) = self.rows_of(&alias.input)? else { return Ok(None) };
                let columns = alias.input.schema().columns().into_iter().zip(alias.schema.columns());
                let columns = columns
                    .map(|(inner, outer)| Expr::Column(inner).alias_qualified(outer.relation, outer.name))
                    .chain(self.values());
                LogicalPlanBuilder::from(input).project(columns)?.build().map(Some)
            }
            // LATERAL.
            LogicalPlan::Subquery(subquery) => self.rows_of(&subquery.subquery),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let Some(input) = self.rows_of(input)? else { return Ok(None) };
                LogicalPlanBuilder::from(input).distinct()?.build().map(Some)
            }
            // Nobody sees the order of a subquery's rows; where it decides which rows there are, it is looked at with the limit.
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.rows_of(&sort.input),
            LogicalPlan::Limit(limit) => self.limited(limit),
            LogicalPlan::Aggregate(aggregate) => self.aggregated(aggregate),
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Window(window) => self.windowed(window),
            LogicalPlan::Union(union) => self.united(union),
            LogicalPlan::Values(values) => self.written(values),
            LogicalPlan::Unnest(unnest) => {
                let Some(input) = self.rows_of(&unnest.input)? else { return Ok(None) };
                let (lists, options) = (unnest.exec_columns.clone(), unnest.options.clone());
                LogicalPlanBuilder::from(input).unnest_columns_with_options(lists, options)?.build().map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The first rows for each of the values.
    fn limited(&self, limit: &Limit) -> Result<Option<LogicalPlan>> {
        // The order that decides which rows are first may be by columns that are not shown: it is below what shows the others.
        let below = |input: &Arc<LogicalPlan>| {
            let limit = Limit { input: Arc::clone(input), ..limit.clone() };
            Arc::new(LogicalPlan::Limit(limit))
        };
        match limit.input.as_ref() {
            LogicalPlan::Projection(shown) => {
                let (exprs, schema) = (shown.expr.clone(), Arc::clone(&shown.schema));
                let shown = Projection::try_new_with_schema(exprs, below(&shown.input), schema)?;
                return self.rows_of(&LogicalPlan::Projection(shown));
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let alias = SubqueryAlias::try_new(below(&alias.input), alias.alias.clone())?;
                return self.rows_of(&LogicalPlan::SubqueryAlias(alias));
            }
            _ => {}
        }
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Ok(None);
        };
        let (order, base): (Vec<SortExpr>, &LogicalPlan) = match limit.input.as_ref() {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (sort.expr.clone(), &sort.input),
            plan => (Vec::new(), plan),
        };
        let Some(input) = self.rows_of(base)? else { return Ok(None) };
        let order = order.into_iter().map(|key| Ok(SortExpr { expr: self.inside(key.expr)?, ..key }));
        let function = WindowFunctionDefinition::WindowUDF(row_number_udwf());
        let number = Expr::from(WindowFunction::new(function, vec![]))
            .partition_by(self.values().collect())
            .order_by(order.collect::<Result<_>>()?)
            .build()?;
        let place = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
        let columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut condition = place.clone().gt(lit(skip as u64));
        if let Some(fetch) = fetch {
            condition = condition.and(place.lt_eq(lit(skip.saturating_add(fetch) as u64)));
        }
        LogicalPlanBuilder::from(input)
            .window([number])?
            .filter(condition)?
            .project(columns)?
            .build()
            .map(Some)
    }

    fn aggregated(&self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
        if let [Expr::GroupingSet(sets)] = aggregate.group_expr.as_slice() {
            return self.grouped_by_sets(aggregate, sets);
        }
        if aggregate.group_expr.is_empty()
            && let Some(running) = self.running(aggregate)?
        {
            return Ok(Some(running));
        }
        let Some(input) = self.rows_of(&aggregate.input)? else { return Ok(None) };
        let keys = aggregate.group_expr.iter().map(|expr| self.inside_as_before(expr));
        let keys: Vec<Expr> = keys.chain(self.values().map(Ok)).collect::<Result<_>>()?;
        let calls = aggregate.aggr_expr.iter().map(|expr| self.inside_as_before(expr));
        let calls: Vec<Expr> = calls.collect::<Result<_>>()?;
        let grouped = LogicalPlanBuilder::from(input).aggregate(keys, calls)?.build()?;
        match aggregate.group_expr.is_empty() {
            true => self.with_empty_ones(aggregate, grouped).map(Some),
            false => Ok(Some(grouped)),
        }
    }

    /// An aggregate without keys has a row for every value, also for one without rows.
    pub(super) fn with_empty_ones(&self, aggregate: &Aggregate, grouped: LogicalPlan) -> Result<LogicalPlan> {
        let all = format!("{}_all", self.qualifier);
        let keys: (Vec<Column>, Vec<Column>) =
            (0..self.columns.len()).map(|place| (value_of(&all, place), self.value(place))).unzip();
        let joined = LogicalPlanBuilder::from(self.plan(&all)?).join_detailed(
            grouped,
            JoinType::Left,
            keys,
            None,
            NullEquality::NullEqualsNull,
        )?;
        let calls = aggregate.aggr_expr.iter().map(|call| {
            let (qualifier, name) = call.qualified_name();
            let value = Expr::Column(Column::new(qualifier.clone(), name.clone()));
            Ok(match value_of_nothing(call, aggregate.input.schema())? {
                nothing if nothing.is_null() => value,
                nothing => when(value.clone().is_null(), lit(nothing)).otherwise(value)?,
            }
            .alias_qualified(qualifier, name))
        });
        let calls = calls.collect::<Result<Vec<Expr>>>()?;
        let values = (0..self.columns.len()).map(|place| {
            let value = self.value(place);
            Expr::Column(value_of(&all, place)).alias_qualified(value.relation, value.name)
        });
        joined.project(calls.into_iter().chain(values))?.build()
    }

    /// A join that refers to the values. Where only the side refers to them whose rows it keeps, and not the condition of one that
    /// keeps those of both, the other side needs none; else both have them, and meet by them too.
    fn joined(&self, join: &Join) -> Result<Option<LogicalPlan>> {
        let (of_left, of_right) = (is_correlated(&join.left)?, is_correlated(&join.right)?);
        let kind = join.join_type;
        let left_alone =
            matches!(kind, JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti);
        let right_alone =
            matches!(kind, JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti);
        let other = self.called(format!("{}_other", self.qualifier));
        let (left, right) = match (of_left, of_right) {
            (_, false) if left_alone => (self.rows_of(&join.left)?, Some(join.right.as_ref().clone())),
            (false, _) if right_alone => (Some(join.left.as_ref().clone()), self.rows_of(&join.right)?),
            _ if left_alone || kind == JoinType::Full => {
                (self.rows_of(&join.left)?, other.rows_of(&join.right)?)
            }
            _ if right_alone => (other.rows_of(&join.left)?, self.rows_of(&join.right)?),
            _ => return Ok(None),
        };
        let (Some(left), Some(right)) = (left, right) else { return Ok(None) };
        let meets = left.schema().has_column(&other.value(0)) || right.schema().has_column(&other.value(0));
        let on = join.on.iter().map(|(a, b)| Ok((self.inside(a.clone())?, self.inside(b.clone())?)));
        let on = on.collect::<Result<Vec<_>>>()?;
        let mut filter = join.filter.clone().map(|filter| self.inside(filter)).transpose()?;
        if meets {
            let equal = self.values().zip(other.values()).map(|(own, other)| is_not_distinct(own, other));
            filter = filter.into_iter().chain(equal).reduce(Expr::and);
        }
        let (left, right, constraint) = (Arc::new(left), Arc::new(right), join.join_constraint);
        let joined = LogicalPlan::Join(Join::try_new(
            left, right, on, filter, kind, constraint, join.null_equality, join.null_aware,
        )?);
        if !meets {
            return Ok(Some(joined));
        }
        // Of a row that met none, the values stand on one side only.
        let values = (0..self.columns.len()).map(|place| {
            let (own, other) = (Expr::Column(self.value(place)), Expr::Column(other.value(place)));
            let value = match kind {
                JoinType::Full => when(own.clone().is_null(), other).otherwise(own)?,
                _ => own,
            };
            let name = self.value(place);
            Ok(value.alias_qualified(name.relation, name.name))
        });
        let shown = join.schema.columns().into_iter().map(|column| Ok(Expr::Column(column)));
        let shown = shown.chain(values).collect::<Result<Vec<Expr>>>()?;
        LogicalPlanBuilder::from(joined).project(shown)?.build().map(Some)
    }

    fn windowed(&self, window: &Window) -> Result<Option<LogicalPlan>> {
        let Some(input) = self.rows_of(&window.input)? else { return Ok(None) };
        let mut columns: Vec<Expr> = input.schema().columns().into_iter().map(Expr::Column).collect();
        let mut calls = Vec::new();
        for call in &window.window_expr {
            let (qualifier, name) = call.qualified_name();
            let Expr::WindowFunction(mut function) = self.inside(call.clone().unalias())? else {
                return Ok(None);
            };
            function.params.partition_by.extend(self.values());
            let call = Expr::WindowFunction(function);
            let place = Column::new_unqualified(call.schema_name().to_string());
            columns.push(Expr::Column(place).alias_qualified(qualifier, name));
            calls.push(call);
        }
        LogicalPlanBuilder::from(input).window(calls)?.project(columns)?.build().map(Some)
    }

    /// Rows that are written out, of which each is one for each of the values.
    fn written(&self, written: &Values) -> Result<Option<LogicalPlan>> {
        let names = written.schema.columns();
        let mut inputs = Vec::new();
        for row in &written.values {
            let cells = row.iter().zip(&names).map(|(cell, name)| {
                Ok(self.inside(cell.clone())?.alias_qualified(name.relation.clone(), name.name.clone()))
            });
            let cells = cells.chain(self.values().map(Ok)).collect::<Result<Vec<Expr>>>()?;
            let values = LogicalPlanBuilder::from(self.plan(&self.qualifier)?);
            inputs.push(values.project(cells)?.build()?);
        }
        let Some(first) = inputs.first() else { return Ok(None) };
        let names = first.schema().columns();
        all_of(inputs, names).map(Some)
    }

    fn united(&self, union: &Union) -> Result<Option<LogicalPlan>> {
        let mut inputs = Vec::new();
        for input in &union.inputs {
            let Some(rows) = self.rows_of(input)? else { return Ok(None) };
            let columns = input.schema().columns().into_iter().map(Expr::Column).chain(self.values());
            inputs.push(LogicalPlanBuilder::from(rows).project(columns)?.build()?);
        }
        let names = union.schema.columns().into_iter();
        let names = names.chain((0..self.columns.len()).map(|place| self.value(place)));
        all_of(inputs, names.collect()).map(Some)
    }
}

/// The rows of several plans, with such names for their columns.
pub(super) fn all_of(mut inputs: Vec<LogicalPlan>, names: Vec<Column>) -> Result<LogicalPlan> {
    if inputs.len() == 1
        && let Some(only) = inputs.pop()
    {
        return Ok(only);
    }
    // A union's columns have no qualifiers. DataFusion moves conditions on them into its inputs by their names, so that these have
    // the same ones, which nothing within the inputs has.
    let bare = inputs.into_iter().map(|input| {
        let columns = input.schema().columns().into_iter().enumerate();
        let columns =
            columns.map(|(place, column)| Expr::Column(column).alias(format!("__kelpie_column_{place}")));
        let columns: Vec<Expr> = columns.collect();
        LogicalPlanBuilder::from(input).project(columns)?.build().map(Arc::new)
    });
    let all = LogicalPlan::Union(Union::try_new_with_loose_types(bare.collect::<Result<_>>()?)?);
    let columns = all.schema().columns().into_iter().zip(names);
    let columns: Vec<Expr> = columns
        .map(|(column, name)| Expr::Column(column).alias_qualified(name.relation, name.name))
        .collect();
    LogicalPlanBuilder::from(all).project(columns)?.build()
}

fn value_of(qualifier: &str, place: usize) -> Column {
    // With the qualifier in its name, it is told from others also where names alone count, as in a union.
    Column::new(Some(qualifier.to_string()), format!("{qualifier}_v{place}"))
}

pub(super) fn is_not_distinct(left: Expr, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), Operator::IsNotDistinctFrom, Box::new(right)))
}

/// Whether a subquery within an expression of a plan refers to what is not in that plan's rows.
fn reaches_out(expr: &Expr, plan: &LogicalPlan) -> bool {
    let Some(subquery) = subquery_of(expr) else { return false };
    subquery.outer_ref_columns.iter().any(|expr| match expr {
        Expr::OuterReferenceColumn(_, column) => {
            !plan.inputs().iter().any(|input| input.schema().has_column(column))
        }
        _ => true,
    })
}

/// What an aggregate gives for no rows.
fn value_of_nothing(call: &Expr, schema: &DFSchema) -> Result<ScalarValue> {
    let data_type = call.get_type(schema)?;
    match call.clone().unalias() {
        Expr::AggregateFunction(function) => function.func.default_value(&data_type),
        _ => ScalarValue::try_from(&data_type),
    }
}
