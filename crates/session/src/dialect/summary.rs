//! SUMMARIZE: a row for each column of a query, with what its values are like. Columns are aggregated at once, in one row, of which a list for
//! each column of the answer is made; these lists become rows. Of many columns so many are taken at a time: planning takes time that grows
//! with the square of the number of aggregates.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Column, ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{approx_distinct, avg, count, max, min, stddev};
use datafusion::functions_nested::expr_fn::make_array;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    AggregateUDF, Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, cast, lit, when,
};
use datafusion::sql::sqlparser::ast::TableFactor;
use kelpie_datafusion::PercentileCont;

use super::names_of_types::name_of_type;

/// The alias of a subquery that is summarized.
pub(super) const SUMMARY: &str = "kelpie: summary";

/// Plans the subqueries that SUMMARIZE is written as.
#[derive(Debug)]
pub(super) struct Summaries;

impl RelationPlanner for Summaries {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        match relation {
            TableFactor::Derived { lateral, subquery, alias: Some(alias), sample }
                if alias.name.value == SUMMARY =>
            {
                let plan = context.plan(TableFactor::Derived { lateral, subquery, alias: None, sample })?;
                let plan = summary(plan)?;
                Ok(RelationPlanning::Planned(Box::new(PlannedRelation { plan, alias: None })))
            }
            relation => Ok(RelationPlanning::Original(Box::new(relation))),
        }
    }
}

/// What is found out of a column, as the answer's columns have it.
const VALUES: [&str; 10] =
    ["min", "max", "approx_unique", "avg", "std", "q25", "q50", "q75", "count", "null_percentage"];

/// Columns that are aggregated at once.
const AT_ONCE: usize = 24;
/// The place of a column among all.
const PLACE: &str = "kelpie: place";

fn summary(plan: LogicalPlan) -> Result<LogicalPlan> {
    let columns = plan.schema().fields().len();
    if columns == 0 {
        return plan_err!("SUMMARIZE of a query without columns");
    }
    let first = of_columns(plan.clone(), 0..columns.min(AT_ONCE))?;
    let others = (AT_ONCE..columns).step_by(AT_ONCE);
    let all = others.map(|first| of_columns(plan.clone(), first..columns.min(first + AT_ONCE)));
    let mut all = all.collect::<Result<Vec<_>>>()?.into_iter();
    let mut rows = all.try_fold(LogicalPlanBuilder::from(first), |rows, other| rows.union(other))?;
    if columns > AT_ONCE {
        // An order within a subquery is left out. Rows that are numbered in it come in it.
        let by_place = Expr::Column(Column::new_unqualified(PLACE)).sort(true, false);
        let number = row_number().order_by(vec![by_place]).build()?;
        let name = number.schema_name().to_string();
        let is_numbered = Expr::Column(Column::new_unqualified(name)).gt(lit(0_u64));
        rows = rows.window([number])?.filter(is_numbered)?;
    }
    let shown = ["column_name", "column_type"].iter().chain(&VALUES);
    rows.project(shown.map(|name| Expr::Column(Column::new_unqualified(*name))))?.build()
}

/// The rows of some columns.
fn of_columns(plan: LogicalPlan, places: Range<usize>) -> Result<LogicalPlan> {
    let columns: Vec<Column> =
        plan.schema().columns().into_iter().skip(places.start).take(places.len()).collect();
    let fields: Vec<_> =
        plan.schema().fields().iter().skip(places.start).take(places.len()).cloned().collect();
    let rows = "rows".to_string();
    let mut aggregates = vec![count(lit(1_i64)).alias(rows.clone())];
    let mut found: Vec<Vec<Expr>> = vec![Vec::new(); VALUES.len()];
    for (place, (column, field)) in columns.iter().zip(&fields).enumerate() {
        let known = of_column(&Expr::Column(column.clone()), field.data_type());
        for (value, (list, known)) in VALUES.iter().zip(found.iter_mut().zip(known)) {
            let name = format!("{value} {place}");
            let list_type =
                if *value == "approx_unique" || *value == "count" { DataType::Int64 } else { DataType::Utf8 };
            match known {
                Some(aggregate) => {
                    aggregates.push(aggregate.alias(&name));
                    list.push(cast(Expr::Column(Column::new_unqualified(name)), list_type));
                }
                None => list.push(lit(ScalarValue::try_from(&list_type)?)),
            }
        }
    }
    let rows = || Expr::Column(Column::new_unqualified(rows.clone()));
    let present = std::mem::take(&mut found[VALUES.len() - 2]);
    // Rows and not values are counted in the answer; the values say how many of them are NULL.
    let percent = |values: &Expr| {
        let missing =
            cast(rows() - values.clone(), DataType::Float64) * lit(100.0) / cast(rows(), DataType::Float64);
        let percent = when(rows().gt(lit(0_i64)), missing).end()?;
        Ok(cast(percent, DataType::Decimal128(9, 2)))
    };
    found[VALUES.len() - 1] = present.iter().map(percent).collect::<Result<_>>()?;
    found[VALUES.len() - 2] = present.iter().map(|_| rows()).collect();
    let texts = |texts: Vec<String>| make_array(texts.into_iter().map(lit).collect());
    let mut lists = vec![
        texts(fields.iter().map(|field| field.name().clone()).collect()).alias("column_name"),
        texts(fields.iter().map(|field| name_of_type(field.data_type())).collect()).alias("column_type"),
    ];
    lists.push(make_array(places.map(|place| lit(place as i64)).collect()).alias(PLACE));
    lists.extend(VALUES.iter().zip(found).map(|(name, list)| make_array(list).alias(*name)));
    let names: Vec<Column> = ["column_name", "column_type", PLACE]
        .iter()
        .chain(&VALUES)
        .map(|name| Column::new_unqualified(*name))
        .collect();
    LogicalPlanBuilder::from(plan)
        .aggregate(Vec::<Expr>::new(), aggregates)?
        .project(lists)?
        .unnest_columns_with_options(names, datafusion::common::UnnestOptions::default())?
        .build()
}

/// What is found out of a column: the aggregates of [`VALUES`], the last but for one counts its values.
fn of_column(column: &Expr, data_type: &DataType) -> [Option<Expr>; 10] {
    let is_number = data_type.is_numeric();
    let is_time = matches!(data_type, DataType::Date32 | DataType::Timestamp(..));
    let is_ordered = is_number
        || is_time
        || matches!(
            data_type,
            DataType::Boolean
                | DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Date64
                | DataType::Time32(_)
                | DataType::Time64(_)
        );
    let text = |value: Expr| cast(value, DataType::Utf8);
    let number = || cast(column.clone(), DataType::Float64);
    let quantile = |fraction: f64| match () {
        () if is_number => Some(text(percentile(number(), fraction))),
        () if is_time => Some(text(quantile_of_time(column, data_type, fraction))),
        () => None,
    };
    [
        is_ordered.then(|| text(min(column.clone()))),
        is_ordered.then(|| text(max(column.clone()))),
        is_ordered.then(|| approx_distinct(column.clone())),
        is_number.then(|| text(avg(number()))),
        is_number.then(|| text(stddev(number()))),
        quantile(0.25),
        quantile(0.5),
        quantile(0.75),
        Some(count(column.clone())),
        None,
    ]
}

/// A quantile of times: of the numbers that they are.
fn quantile_of_time(column: &Expr, data_type: &DataType, fraction: f64) -> Expr {
    let whole = match data_type {
        DataType::Date32 => DataType::Int32,
        _ => DataType::Int64,
    };
    // Nanoseconds have more digits than a float; microseconds have not.
    let coarse = match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        other => other.clone(),
    };
    let number = cast(cast(cast(column.clone(), coarse.clone()), whole.clone()), DataType::Float64);
    cast(cast(percentile(number, fraction), whole), coarse)
}

fn percentile(value: Expr, fraction: f64) -> Expr {
    let function = Arc::new(AggregateUDF::new_from_impl(PercentileCont::default()));
    Expr::AggregateFunction(AggregateFunction::new_udf(
        function,
        vec![value, lit(fraction)],
        false,
        None,
        vec![],
        None,
    ))
}
