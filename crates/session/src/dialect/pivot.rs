//! PIVOT makes a column of each value of an expression, UNPIVOT makes rows of columns. A pivot is an aggregation whose aggregates have a
//! filter each, so it compiles where that does. UNPIVOT makes a list of the columns of a row, which becomes rows.
//!
//! The values of a pivot that names none are looked up before it is planned ([`look_up_values`]).

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::common::{Column, DFSchema, UnnestOptions, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, lit};
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{
    Expr as SqlExpr, ExprWithAlias, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, NullInclusion,
    PivotValueSource, Query, SelectItem, SetExpr, TableFactor, TableWithJoins, Value, With,
};

use super::words::has;
use crate::access::Access;
use crate::corrections::with_needed;
use crate::syntax::{
    Flow, Walk, as_alias, call, ended, name_of, plain_query, quoted, select_all, select_from, statement_of,
    visit,
};

/// A call among the aggregates of a pivot: its arguments are what is grouped by.
pub(super) const GROUP: &str = "kelpie: group";
/// A call among the columns of UNPIVOT: all columns but its arguments.
pub(super) const ALL_BUT: &str = "kelpie: all but";
/// Columns that a pivot makes, at most.
const MOST_COLUMNS: usize = 10_000;

/// Plans such relations.
#[derive(Debug)]
pub(super) struct Pivots;

impl RelationPlanner for Pivots {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let (plan, alias) = match relation {
            TableFactor::Pivot {
                table,
                aggregate_functions,
                value_column,
                value_source,
                default_on_null: None,
                alias,
            } => {
                let asked = Pivot { aggregates: aggregate_functions, of: value_column, values: value_source };
                (asked.plan(context.plan(*table)?, context)?, alias)
            }
            TableFactor::Unpivot { table, value, null_inclusion, name, columns, alias } => {
                let asked =
                    Unpivot { value, name, columns, keeps_nulls: keeps_nulls(null_inclusion.as_ref()) };
                (asked.plan(context.plan(*table)?, context)?, alias)
            }
            relation => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation { plan, alias })))
    }
}

fn keeps_nulls(inclusion: Option<&NullInclusion>) -> bool {
    matches!(inclusion, Some(NullInclusion::IncludeNulls))
}

/// The arguments of a call that only this module makes and knows.
fn marked(expr: &SqlExpr, name: &str) -> Option<Vec<SqlExpr>> {
    let SqlExpr::Function(function) = expr else { return None };
    if name_of(function).as_deref() != Some(name) {
        return None;
    }
    let FunctionArguments::List(list) = &function.args else { return Some(vec![]) };
    let arguments = list.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    });
    Some(arguments.collect())
}

/// Expressions that are written as a list in parentheses, or one that is not.
fn listed(expr: SqlExpr) -> Vec<SqlExpr> {
    match expr {
        SqlExpr::Tuple(all) => all,
        SqlExpr::Nested(one) => vec![*one],
        one => vec![one],
    }
}

struct Pivot {
    aggregates: Vec<ExprWithAlias>,
    of: Vec<SqlExpr>,
    values: PivotValueSource,
}

/// A value of what is pivoted: the rows that have it, and the name of its columns.
struct Rows {
    have_it: Expr,
    name: String,
}

impl Pivot {
    fn plan(self, input: LogicalPlan, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let schema = Arc::clone(input.schema());
        let mut groups = None;
        let mut aggregates: Vec<(Expr, Option<String>)> = Vec::new();
        let last = self.aggregates.iter().filter(|own| marked(&own.expr, GROUP).is_none()).count();
        for own in self.aggregates {
            if let Some(keys) = marked(&own.expr, GROUP) {
                let keys = keys.into_iter().map(|key| context.sql_to_expr(key, &schema));
                groups = Some(keys.collect::<Result<Vec<_>>>()?);
                continue;
            }
            let name = match &own.alias {
                Some(alias) => Some(context.normalize_ident(alias.clone())),
                None if last > 1 => Some(name_of_aggregate(&own.expr)),
                None => None,
            };
            let written = own.expr.to_string();
            match context.sql_to_expr(own.expr, &schema)?.unalias() {
                aggregate @ Expr::AggregateFunction(_) => aggregates.push((aggregate, name)),
                _ => return plan_err!("PIVOT takes aggregates such as sum(x), not {written}"),
            }
        }
        let of =
            self.of.into_iter().map(|expr| context.sql_to_expr(expr, &schema)).collect::<Result<Vec<_>>>()?;
        let groups = match groups {
            Some(groups) => groups,
            None => {
                let used: Vec<&Column> =
                    aggregates.iter().map(|(own, _)| own).chain(&of).flat_map(Expr::column_refs).collect();
                let others = schema.columns().into_iter().filter(|column| !used.contains(&column));
                others.map(Expr::Column).collect()
            }
        };
        let PivotValueSource::List(values) = self.values else {
            return plan_err!("PIVOT … IN (ANY) or of a subquery is not supported here: list the values");
        };
        if values.len().saturating_mul(aggregates.len()) > MOST_COLUMNS {
            return plan_err!("PIVOT would make more than {MOST_COLUMNS} columns");
        }
        let mut made = Vec::new();
        for value in values {
            let rows = rows_of(value, &of, &schema, context)?;
            for (aggregate, name) in &aggregates {
                let name = match name {
                    Some(name) => format!("{}_{name}", rows.name),
                    None => rows.name.clone(),
                };
                made.push(filtered(aggregate.clone(), &rows.have_it).alias(name));
            }
        }
        LogicalPlanBuilder::from(input).aggregate(groups, made)?.build()
    }
}

/// What an aggregate is called behind a value.
fn name_of_aggregate(expr: &SqlExpr) -> String {
    match expr.to_string().to_lowercase() {
        name if name == "count(*)" => "count_star()".into(),
        name => name,
    }
}

fn rows_of(
    value: ExprWithAlias,
    of: &[Expr],
    schema: &DFSchema,
    context: &mut dyn RelationPlannerContext,
) -> Result<Rows> {
    let ExprWithAlias { expr, alias } = value;
    let parts = if of.len() > 1 { listed(expr) } else { vec![expr] };
    if parts.len() != of.len() {
        return plan_err!("PIVOT of {} expressions needs as many values in parentheses each", of.len());
    }
    let names: Vec<String> = parts.iter().map(name_of_value).collect();
    let mut have_it: Option<Expr> = None;
    for (part, of) in parts.into_iter().zip(of) {
        let is_null = matches!(&part, SqlExpr::Value(value) if value.value == Value::Null);
        let one = match is_null {
            true => of.clone().is_null(),
            false => of.clone().eq(context.sql_to_expr(part, schema)?),
        };
        have_it = Some(match have_it {
            Some(all) => all.and(one),
            None => one,
        });
    }
    let name = match alias {
        Some(alias) => context.normalize_ident(alias),
        None => names.join("_"),
    };
    Ok(Rows { have_it: have_it.unwrap_or_else(|| lit(true)), name })
}

/// The name of a value's column: its text, whatever its type.
fn name_of_value(value: &SqlExpr) -> String {
    match value {
        SqlExpr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        SqlExpr::Function(_) => {
            // As `look_up_values` writes it: `arrow_cast('text', 'type')`.
            let text = marked(value, "arrow_cast").and_then(|arguments| arguments.into_iter().next());
            text.as_ref().map_or_else(|| value.to_string(), name_of_value)
        }
        SqlExpr::TypedString(typed) => name_of_value(&SqlExpr::Value(typed.value.clone())),
        SqlExpr::Nested(inner) => name_of_value(inner),
        other => other.to_string(),
    }
}

/// An aggregate of those rows only.
fn filtered(aggregate: Expr, rows: &Expr) -> Expr {
    match aggregate {
        Expr::AggregateFunction(mut own) => {
            let filter = match own.params.filter.take() {
                Some(filter) => filter.and(rows.clone()),
                None => rows.clone(),
            };
            own.params.filter = Some(Box::new(filter));
            Expr::AggregateFunction(own)
        }
        other => other,
    }
}

struct Unpivot {
    value: SqlExpr,
    name: Ident,
    columns: Vec<ExprWithAlias>,
    keeps_nulls: bool,
}

impl Unpivot {
    fn plan(self, input: LogicalPlan, context: &mut dyn RelationPlannerContext) -> Result<LogicalPlan> {
        let schema = Arc::clone(input.schema());
        let mut values = Vec::new();
        for value in listed(self.value) {
            match value {
                SqlExpr::Identifier(value) => values.push(context.normalize_ident(value)),
                other => return plan_err!("UNPIVOT makes columns of values, whose name is no `{other}`"),
            }
        }
        let name = context.normalize_ident(self.name);
        let mut columns: Vec<(String, Vec<Expr>)> = Vec::new();
        for ExprWithAlias { expr, alias } in self.columns {
            if let Some(but) = marked(&expr, ALL_BUT).filter(|_| values.len() == 1) {
                let but = but.into_iter().map(|own| column_of(own, &schema, context));
                let but = but.collect::<Result<Vec<_>>>()?;
                let all = schema.columns().into_iter().filter(|column| !but.contains(column));
                columns.extend(all.map(|column| (column.name.clone(), vec![Expr::Column(column)])));
                continue;
            }
            let written = expr.to_string();
            let row = listed(expr).into_iter().map(|own| column_of(own, &schema, context));
            let row = row.collect::<Result<Vec<Column>>>()?;
            if row.len() != values.len() {
                return plan_err!("UNPIVOT makes {} columns of values, and not of {written}", values.len());
            }
            let names: Vec<&str> = row.iter().map(|column| column.name.as_str()).collect();
            let name = alias.map_or_else(|| names.join("_"), |alias| context.normalize_ident(alias));
            columns.push((name, row.into_iter().map(Expr::Column).collect()));
        }
        if columns.is_empty() {
            return plan_err!("UNPIVOT of no columns");
        }
        let is_taken =
            |column: &Column| columns.iter().any(|(_, own)| own.contains(&Expr::Column(column.clone())));
        let others = schema.columns().into_iter().filter(|column| !is_taken(column)).map(Expr::Column);
        let mut lists = vec![make_array(columns.iter().map(|(name, _)| lit(name)).collect()).alias(&name)];
        lists.extend(values.iter().enumerate().map(|(place, value)| {
            let of_value = columns.iter().filter_map(|(_, row)| row.get(place).cloned());
            make_array(of_value.collect()).alias(value)
        }));
        let made = std::iter::once(&name).chain(&values).map(Column::new_unqualified).collect();
        let rows = LogicalPlanBuilder::from(input)
            .project(others.chain(lists).collect::<Vec<_>>())?
            .unnest_columns_with_options(made, UnnestOptions::default())?;
        let has_value = |value: &String| Expr::Column(Column::new_unqualified(value)).is_not_null();
        match values.iter().map(has_value).reduce(Expr::and) {
            Some(has_values) if !self.keeps_nulls => rows.filter(has_values)?.build(),
            _ => rows.build(),
        }
    }
}

fn column_of(expr: SqlExpr, schema: &DFSchema, context: &mut dyn RelationPlannerContext) -> Result<Column> {
    let written = expr.to_string();
    match context.sql_to_expr(expr, schema)? {
        Expr::Column(column) => Ok(column),
        _ => plan_err!("UNPIVOT takes columns, and {written} is none"),
    }
}

/// Writes the values of pivots that list none into a statement: those that there are now but NULL, in order.
pub(crate) async fn look_up_values(state: &SessionState, sql: &str, statement: &mut Statement) -> Result<()> {
    if !has(sql, "pivot") {
        return Ok(());
    }
    loop {
        let mut seek = Seek::default();
        ended(visit(statement, &mut seek))?;
        // The last one that was seen has no other within it.
        let Some(queries) = seek.found.pop() else { return Ok(()) };
        let mut each = Vec::new();
        for query in queries {
            each.push(values_of(query, state).await?);
        }
        let values = combinations(each)?;
        let mut write = Write { place: seek.found.len(), seen: 0, values: Some(values) };
        let _ = visit(statement, &mut write);
    }
}

/// Looks for pivots that list no values.
#[derive(Default)]
struct Seek {
    named: Vec<Option<With>>,
    /// Queries of the values of each expression of a pivot.
    found: Vec<Vec<Query>>,
}

impl Walk for Seek {
    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.named.push(query.with.clone());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        self.named.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        let TableFactor::Pivot { table, value_column, value_source, .. } = factor else {
            return ControlFlow::Continue(());
        };
        let values: Vec<Query> = match value_source {
            PivotValueSource::List(_) => return ControlFlow::Continue(()),
            PivotValueSource::Any(_) => {
                value_column.iter().map(|of| distinct(of, (**table).clone())).collect()
            }
            PivotValueSource::Subquery(_) if value_column.len() > 1 => {
                let error = DataFusionError::Plan("PIVOT of several expressions takes no subquery".into());
                return ControlFlow::Break(Some(error));
            }
            PivotValueSource::Subquery(query) => vec![of_subquery(query)],
        };
        let named: Vec<&With> = self.named.iter().flatten().collect();
        let with_named = |mut query: Query| {
            query.with = with_needed(&named, &mut query);
            query
        };
        self.found.push(values.into_iter().map(with_named).collect());
        ControlFlow::Continue(())
    }
}

/// The column of the queries that look values up.
const VALUE: &str = "kelpie: value";

/// Selects the values of an expression over a relation.
fn distinct(of: &SqlExpr, table: TableFactor) -> Query {
    let mut select = select_all(vec![TableWithJoins { relation: table, joins: vec![] }]);
    select.projection = vec![SelectItem::ExprWithAlias { expr: of.clone(), alias: quoted(VALUE) }];
    let values = plain_query(SetExpr::Select(Box::new(select)));
    of_subquery(&values)
}

/// Selects the values that a query gives, as its only column.
fn of_subquery(query: &Query) -> Query {
    let alias = Some(as_alias(quoted("kelpie: values")));
    let subquery = Box::new(query.clone());
    let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
    select_from(vec![TableWithJoins { relation, joins: vec![] }])
}

/// The different values of a query's column but NULL, in order, as they are written.
async fn values_of(query: Query, state: &SessionState) -> Result<Vec<SqlExpr>> {
    let plan = state.statement_to_plan(statement_of(query)).await?;
    let columns = plan.schema().columns();
    let [column] = columns.as_slice() else {
        return plan_err!("the values of a PIVOT are one column, not {}", columns.len());
    };
    let column = Expr::Column(column.clone());
    let plan = LogicalPlanBuilder::from(plan)
        .filter(column.clone().is_not_null())?
        .distinct()?
        .sort([column.sort(true, false)])?
        .limit(0, Some(MOST_COLUMNS + 1))?
        .build()?;
    // It runs before the statement that it is of is looked at.
    Access::of(state).check_plan(&plan)?;
    let plan = state.create_physical_plan(&plan).await?;
    let batches = collect(plan, Arc::new(TaskContext::from(state))).await?;
    let mut values = Vec::new();
    for batch in batches {
        let column = batch.column(0);
        for row in 0..column.len() {
            let text = array_value_to_string(column, row)?;
            values.push(written(text, column.data_type()));
        }
    }
    match values.len() > MOST_COLUMNS {
        true => plan_err!("PIVOT would make more than {MOST_COLUMNS} columns"),
        false => Ok(values),
    }
}

/// A value as it is written: a text, or one that is cast to its type.
fn written(text: String, data_type: &DataType) -> SqlExpr {
    let quoted = |text: String| SqlExpr::Value(Value::SingleQuotedString(text).into());
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => quoted(text),
        _ => call("arrow_cast", vec![quoted(text), quoted(data_type.to_string())]),
    }
}

/// Every combination of the values of several expressions, in order.
fn combinations(each: Vec<Vec<SqlExpr>>) -> Result<Vec<ExprWithAlias>> {
    let number = each.iter().map(Vec::len).try_fold(1_usize, usize::checked_mul);
    if number.is_none_or(|number| number > MOST_COLUMNS) {
        return plan_err!("PIVOT would make more than {MOST_COLUMNS} columns");
    }
    let mut all: Vec<Vec<SqlExpr>> = vec![vec![]];
    for values in each {
        let longer = |front: &Vec<SqlExpr>| {
            let front = front.clone();
            values.iter().map(move |value| [&front[..], std::slice::from_ref(value)].concat()).collect()
        };
        all = all.iter().flat_map(|front| -> Vec<Vec<SqlExpr>> { longer(front) }).collect();
    }
    let one = |mut parts: Vec<SqlExpr>| match (parts.len(), parts.pop()) {
        (1, Some(only)) => only,
        (_, last) => SqlExpr::Tuple(parts.into_iter().chain(last).collect()),
    };
    Ok(all.into_iter().map(|parts| ExprWithAlias { expr: one(parts), alias: None }).collect())
}

/// Writes the values of the pivot at a place among those that list none.
struct Write {
    place: usize,
    seen: usize,
    values: Option<Vec<ExprWithAlias>>,
}

impl Walk for Write {
    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        let TableFactor::Pivot { value_source, .. } = factor else { return ControlFlow::Continue(()) };
        if let PivotValueSource::List(_) = value_source {
            return ControlFlow::Continue(());
        }
        if self.seen == self.place
            && let Some(values) = self.values.take()
        {
            *value_source = PivotValueSource::List(values);
            return ControlFlow::Break(None);
        }
        self.seen += 1;
        ControlFlow::Continue(())
    }
}
