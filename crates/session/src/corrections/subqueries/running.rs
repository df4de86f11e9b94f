//! Aggregates over the rows of a subquery that lie before or behind a row around it, such as
//! `(SELECT count(*) FROM t b WHERE b.k = a.k AND b.x < a.x)`. A join with the values of the rows around would have a row for each pair.
//! Here both stand in one order, each of the values behind the inner rows that it meets, and a window's running aggregate goes along: what it
//! has come to at one of the values is the answer.
//!
//! Where the rows around look to be few, such as one that is found by its key, the join has few pairs, and stays.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    Aggregate, AggregateUDF, BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, JoinType, LogicalPlan,
    LogicalPlanBuilder, Operator, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
    cast, lit, when,
};
use kelpie_datafusion::skips_nulls;

use super::dependent::OuterValues;
use super::plain::is_correlated;

/// Two expressions that are compared: one of the rows within the subquery, one of those around it.
struct Compared {
    inner: Expr,
    outer: Expr,
    operator: Operator,
}

/// The conditions of a subquery.
#[derive(Default)]
struct Conditions {
    /// Equal for rows that meet.
    keys: Vec<Compared>,
    /// The one by which an inner row lies before or behind.
    order: Option<Compared>,
    of_inner: Vec<Expr>,
    of_outer: Vec<Expr>,
}

/// An aggregate of the subquery.
struct Call {
    function: Arc<AggregateUDF>,
    arguments: Vec<Expr>,
    /// What the result is made, where the window's is wider.
    narrowed: Option<DataType>,
}

/// The columns that the values and the inner rows have in common, by their places.
struct Places {
    keys: Vec<Expr>,
    order: Expr,
    is_inner: Expr,
    arguments: Vec<Vec<Expr>>,
    values: Vec<Expr>,
}

impl OuterValues {
    /// An aggregate without keys for each of the values, also for those that meet no row; nothing where its conditions are others.
    pub(super) fn running(&self, aggregate: &Aggregate) -> Result<Option<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = aggregate.input.as_ref() else { return Ok(None) };
        if is_correlated(&filter.input)? || may_be_few(self.rows())? {
            return Ok(None);
        }
        let schema = filter.input.schema();
        let Some(conditions) = self.conditions(&filter.predicate, schema)? else { return Ok(None) };
        let Some(order) = &conditions.order else { return Ok(None) };
        let calls = aggregate.aggr_expr.iter().map(|call| Call::of(call, schema));
        let Some(calls) = calls.collect::<Result<Option<Vec<Call>>>>()? else { return Ok(None) };
        let outer = self.outer_side(&conditions, order, &calls, schema)?;
        let inner = self.inner_side(&conditions, order, &calls, &filter.input, outer.schema())?;
        let both = LogicalPlanBuilder::from(outer).union(inner)?.build()?;
        let places = places_of(&both, conditions.keys.len(), &calls);
        let windows = calls.iter().zip(&places.arguments).map(|(call, arguments)| {
            let function = WindowFunctionDefinition::AggregateUDF(Arc::clone(&call.function));
            // A value comes before the inner rows that equal it, unless it meets these.
            let meets_equal = matches!(order.operator, Operator::LtEq | Operator::GtEq);
            let ascends = matches!(order.operator, Operator::Lt | Operator::LtEq);
            Expr::from(WindowFunction::new(function, arguments.clone()))
                .partition_by(places.keys.clone())
                .order_by(vec![
                    places.order.clone().sort(ascends, true),
                    places.is_inner.clone().sort(!meets_equal, false),
                ])
                .window_frame(WindowFrame::new_bounds(
                    WindowFrameUnits::Rows,
                    WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
                    WindowFrameBound::CurrentRow,
                ))
                .build()
        });
        let windows = windows.collect::<Result<Vec<Expr>>>()?;
        let shown = aggregate.aggr_expr.iter().zip(&calls).zip(&windows).map(|((shown, call), window)| {
            let column = Expr::Column(Column::new_unqualified(window.schema_name().to_string()));
            let (qualifier, name) = shown.qualified_name();
            let column = match &call.narrowed {
                Some(narrow) => cast(column, narrow.clone()),
                None => column,
            };
            column.alias_qualified(qualifier, name)
        });
        let values = places.values.iter().enumerate().map(|(place, column)| {
            let value = self.value(place);
            column.clone().alias_qualified(value.relation, value.name)
        });
        let shown: Vec<Expr> = shown.chain(values).collect();
        LogicalPlanBuilder::from(both)
            .window(windows)?
            .filter(places.is_inner.eq(lit(false)))?
            .project(shown)?
            .build()
            .map(Some)
    }

    /// Conditions of one comparison, any equalities, and others of one side each.
    fn conditions(&self, predicate: &Expr, schema: &DFSchema) -> Result<Option<Conditions>> {
        let mut conditions = Conditions::default();
        for condition in split_conjunction(predicate) {
            if condition.is_volatile() || has_subquery(condition)? {
                return Ok(None);
            }
            if !condition.contains_outer() {
                conditions.of_inner.push(condition.clone());
                continue;
            }
            if self.is_of_outer(condition)? {
                conditions.of_outer.push(condition.clone());
                continue;
            }
            let Some(compared) = self.compared(condition, schema)? else { return Ok(None) };
            match compared.operator {
                Operator::Eq | Operator::IsNotDistinctFrom => conditions.keys.push(compared),
                _ if conditions.order.is_none() => conditions.order = Some(compared),
                _ => return Ok(None),
            }
        }
        Ok(Some(conditions))
    }

    /// A comparison of something of the inner rows with something of the rows around, the inner one first.
    fn compared(&self, condition: &Expr, schema: &DFSchema) -> Result<Option<Compared>> {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else { return Ok(None) };
        let compares = matches!(
            op,
            Operator::Eq
                | Operator::IsNotDistinctFrom
                | Operator::Lt
                | Operator::LtEq
                | Operator::Gt
                | Operator::GtEq
        );
        let (inner, outer, operator) = match (left.contains_outer(), right.contains_outer()) {
            (false, true) => (left, right, Some(*op)),
            (true, false) => (right, left, op.swap()),
            _ => return Ok(None),
        };
        let Some(operator) = operator.filter(|_| compares && !inner.column_refs().is_empty()) else {
            return Ok(None);
        };
        if !self.is_of_outer(outer)? {
            return Ok(None);
        }
        let data_type = inner.get_type(schema)?;
        let of_outer = self.inside(outer.as_ref().clone())?.get_type(self.plan(&self.qualifier)?.schema())?;
        let (inner, outer) = (inner.as_ref().clone(), outer.as_ref().clone());
        let is_same = data_type == of_outer && has_order(&data_type);
        Ok(is_same.then_some(Compared { inner, outer, operator }))
    }

    /// Whether an expression is one of the values alone.
    fn is_of_outer(&self, expr: &Expr) -> Result<bool> {
        Ok(expr.column_refs().is_empty() && !self.inside(expr.clone())?.contains_outer())
    }

    /// The values, with nothing to add to an aggregate.
    fn outer_side(
        &self,
        conditions: &Conditions,
        order: &Compared,
        calls: &[Call],
        schema: &DFSchema,
    ) -> Result<LogicalPlan> {
        let mut columns = Vec::new();
        for key in &conditions.keys {
            columns.push(self.inside(key.outer.clone())?);
        }
        // What is NULL comes before all rows, and meets none.
        let place = self.inside(order.outer.clone())?;
        columns.push(match conditions.of_outer.iter().cloned().reduce(Expr::and) {
            Some(holds) => when(self.inside(holds)?, place).end()?,
            None => place,
        });
        columns.push(lit(false));
        for argument in calls.iter().flat_map(|call| &call.arguments) {
            columns.push(lit(ScalarValue::try_from(&argument.get_type(schema)?)?));
        }
        let columns = named(&self.qualifier, columns).chain(self.values());
        LogicalPlanBuilder::from(self.plan(&self.qualifier)?).project(columns)?.build()
    }

    /// The inner rows that may meet one of the values, with NULL for these.
    fn inner_side(
        &self,
        conditions: &Conditions,
        order: &Compared,
        calls: &[Call],
        rows: &LogicalPlan,
        outer: &DFSchema,
    ) -> Result<LogicalPlan> {
        let equal = conditions.keys.iter().filter(|key| key.operator == Operator::Eq);
        let there = equal.map(|key| &key.inner).chain([&order.inner]);
        let filters =
            conditions.of_inner.iter().cloned().chain(there.map(|there| there.clone().is_not_null()));
        let mut inner = LogicalPlanBuilder::from(rows.clone());
        if let Some(filter) = filters.reduce(Expr::and) {
            inner = inner.filter(filter)?;
        }
        if let Some((met, on)) = self.met(conditions, rows)? {
            inner = inner.join_on(met, JoinType::LeftSemi, on)?;
        }
        let mut columns: Vec<Expr> = conditions.keys.iter().map(|key| key.inner.clone()).collect();
        columns.push(order.inner.clone());
        columns.push(lit(true));
        columns.extend(calls.iter().flat_map(|call| call.arguments.iter().cloned()));
        // Under the names of the values, which a union has of both.
        let values = outer.fields().iter().skip(columns.len()).enumerate().map(|(place, field)| {
            let value = self.value(place);
            Ok(lit(ScalarValue::try_from(field.data_type())?).alias_qualified(value.relation, value.name))
        });
        let values = values.collect::<Result<Vec<Expr>>>()?;
        inner.project(named(&self.qualifier, columns).chain(values))?.build()
    }

    /// The values' keys and the conditions by which inner rows have one of them, where these are not the keys of all rows anyway.
    fn met(&self, conditions: &Conditions, rows: &LogicalPlan) -> Result<Option<(LogicalPlan, Vec<Expr>)>> {
        let keys: Vec<&Compared> =
            conditions.keys.iter().filter(|key| key.operator == Operator::Eq).collect();
        let (around, within) = (tables_of(self.rows())?, tables_of(rows)?);
        let has_all = within.is_subset(&around) && !has_filters(self.rows())? && around.len() == 1;
        if keys.is_empty() || has_all {
            return Ok(None);
        }
        let met = self.called(format!("{}_met", self.qualifier));
        let columns = keys.iter().map(|key| met.inside(key.outer.clone()));
        let columns = named(&met.qualifier, columns.collect::<Result<Vec<_>>>()?);
        let values = LogicalPlanBuilder::from(met.plan(&met.qualifier)?).project(columns)?.build()?;
        let columns = values.schema().columns().into_iter().map(Expr::Column);
        let on = keys.iter().zip(columns).map(|(key, column)| key.inner.clone().eq(column)).collect();
        Ok(Some((values, on)))
    }
}

impl Call {
    /// A call whose rows may come with others that are NULL.
    fn of(call: &Expr, schema: &DFSchema) -> Result<Option<Call>> {
        let data_type = call.get_type(schema)?;
        let Expr::AggregateFunction(AggregateFunction { func, params }) = call.clone().unalias() else {
            return Ok(None);
        };
        let is_plain = !params.distinct && params.order_by.is_empty() && params.null_treatment.is_none();
        let read = || params.args.iter().chain(params.filter.as_deref());
        let is_known = read().all(|expr| !expr.contains_outer() && !expr.is_volatile());
        if !is_plain || !is_known || params.args.is_empty() || !skips_nulls(&func) {
            return Ok(None);
        }
        for expr in read() {
            if has_subquery(expr)? {
                return Ok(None);
            }
        }
        let mut arguments = params.args;
        if let Some(filter) = params.filter {
            let taken = arguments.into_iter().map(|argument| when(filter.as_ref().clone(), argument).end());
            arguments = taken.collect::<Result<_>>()?;
        }
        // A sum goes on behind the last of the values, where it may be beyond its type though no answer is.
        let is_sum = func.name() == "sum" && matches!(data_type, DataType::Int64 | DataType::UInt64);
        let mut narrowed = None;
        if let ([argument], true) = (arguments.as_mut_slice(), is_sum)
            && !is_narrow(argument, schema)?
        {
            *argument = cast(argument.clone(), DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0));
            narrowed = Some(data_type);
        }
        Ok(Some(Call { function: func, arguments, narrowed }))
    }
}

/// Whether a number of 64 bits is one of fewer, of which a sum has no end.
fn is_narrow(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    let Expr::Cast(cast) = expr else { return Ok(false) };
    Ok(matches!(
        cast.expr.get_type(schema)?,
        DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::UInt8
            | DataType::UInt16
            | DataType::UInt32
    ))
}

/// Columns under names of their own, which are those of both sides.
fn named(qualifier: &str, columns: Vec<Expr>) -> impl Iterator<Item = Expr> {
    let name = move |place: usize| format!("{qualifier}_c{place}");
    columns.into_iter().enumerate().map(move |(place, column)| column.alias(name(place)))
}

fn places_of(both: &LogicalPlan, keys: usize, calls: &[Call]) -> Places {
    let mut columns = both.schema().columns().into_iter().map(Expr::Column);
    let keys = columns.by_ref().take(keys).collect();
    let mut next = || columns.next().unwrap_or_else(|| lit(ScalarValue::Null));
    let (order, is_inner) = (next(), next());
    let arguments = calls.iter().map(|call| call.arguments.iter().map(|_| next()).collect()).collect();
    Places { keys, order, is_inner, arguments, values: columns.collect() }
}

/// Whether `<` of values is their place in an order.
fn has_order(data_type: &DataType) -> bool {
    data_type.is_numeric()
        || data_type.is_string()
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Date32
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
                | DataType::Timestamp(..)
        )
}

fn has_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|expr| {
        Ok(matches!(
            expr,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_)
        ))
    })
}

/// Whether rows look to be few: what is found by a value, the first ones, or those that are written out.
fn may_be_few(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| {
        Ok(match node {
            LogicalPlan::Limit(_) | LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => true,
            LogicalPlan::Sort(sort) => sort.fetch.is_some(),
            LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
            LogicalPlan::Filter(filter) => split_conjunction(&filter.predicate).into_iter().any(is_a_value),
            _ => false,
        })
    })
}

fn is_a_value(condition: &Expr) -> bool {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
            left.column_refs().is_empty() || right.column_refs().is_empty()
        }
        Expr::InList(list) => !list.negated,
        _ => false,
    }
}

fn has_filters(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| Ok(matches!(node, LogicalPlan::Filter(_) | LogicalPlan::Join(_))))
}

fn tables_of(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut tables = HashSet::new();
    plan.apply(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            tables.insert(scan.table_name.to_string());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}
