//! A subquery that is a value has at most one row. Where that cannot be told beforehand, it is checked as the query runs.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Column, ExprSchema, ScalarValue, exec_err};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::functions::expr_fn::nullif;
use datafusion::functions_aggregate::expr_fn::{count, first_value, max};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};

use kelpie_datafusion::parameters::is_parameters;

use super::dependent::OuterValues;
use super::plain::has_one_row;
use super::without_limit;

/// One row for each of the values that a subquery refers to, and its value there, which is an error of several rows.
pub(super) fn checked(
    rows: LogicalPlan,
    values: &OuterValues,
    column: Column,
) -> Result<(LogicalPlan, Expr)> {
    let is_nested = rows.schema().data_type(&column)?.is_nested();
    let value = Expr::Column(column);
    let value = if is_nested { first_value(value, vec![]) } else { max(value) };
    let keys = (0..values.columns().len()).map(|place| Expr::Column(values.value(place)));
    let calls = [value.alias("__kelpie_value"), count(lit(1_i64)).alias("__kelpie_rows")];
    let rows = LogicalPlanBuilder::from(rows).aggregate(keys, calls)?.build()?;
    Ok((rows, single()))
}

/// A subquery that refers to no row around it, as one that says of its column that it may be NULL: without rows it is, and DataFusion
/// takes a subquery for never NULL where its column is never NULL. Nothing where it has a row whatever its tables hold.
pub(super) fn or_null(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let Some(field) = plan.schema().fields().first().filter(|field| !field.is_nullable()) else {
        return Ok(None);
    };
    let Some(column) = plan.schema().columns().into_iter().next() else { return Ok(None) };
    if always_has_a_row(plan)? {
        return Ok(None);
    }
    let rows = LogicalPlanBuilder::from(plan.clone());
    if !field.data_type().is_nested() && !is_constant(plan, 0) {
        // The value itself, of which nobody says that it is never NULL.
        let null = Expr::Literal(ScalarValue::try_from(field.data_type())?, None);
        let value = nullif(Expr::Column(column.clone()), null).alias_qualified(column.relation, column.name);
        return rows.project([value])?.build().map(Some);
    }
    let value = match field.data_type().is_nested() {
        true => first_value(Expr::Column(column), vec![]),
        false => max(Expr::Column(column)),
    };
    if has_one_row(plan) {
        return rows.aggregate(Vec::<Expr>::new(), [value])?.build().map(Some);
    }
    let calls = [value.alias("__kelpie_value"), count(lit(1_i64)).alias("__kelpie_rows")];
    rows.aggregate(Vec::<Expr>::new(), calls)?.project([single()])?.build().map(Some)
}

/// Whether a column of a plan is the same for all rows, which the optimizer then writes in its place.
fn is_constant(plan: &LogicalPlan, place: usize) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => {
            let Some(expr) = projection.expr.get(place) else { return false };
            let expr = expr.clone().unalias_nested().data;
            match &expr {
                Expr::Column(column) => {
                    let inner = projection.input.schema().maybe_index_of_column(column);
                    inner.is_some_and(|inner| is_constant(&projection.input, inner))
                }
                expr => expr.column_refs().is_empty(),
            }
        }
        LogicalPlan::SubqueryAlias(alias) => is_constant(&alias.input, place),
        LogicalPlan::Filter(filter) => is_constant(&filter.input, place),
        LogicalPlan::Sort(sort) => is_constant(&sort.input, place),
        LogicalPlan::Limit(limit) => is_constant(&limit.input, place),
        _ => false,
    }
}

/// Whether a plan has at least a row, whatever its tables hold.
fn always_has_a_row(plan: &LogicalPlan) -> Result<bool> {
    match without_limit(plan)? {
        LogicalPlan::Aggregate(aggregate) => Ok(aggregate.group_expr.is_empty()),
        LogicalPlan::EmptyRelation(rows) => Ok(rows.produce_one_row),
        LogicalPlan::Values(rows) => Ok(!rows.values.is_empty()),
        LogicalPlan::Projection(projection) => always_has_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_has_a_row(&alias.input),
        LogicalPlan::Sort(sort) => Ok(sort.fetch != Some(0) && always_has_a_row(&sort.input)?),
        LogicalPlan::Window(window) => always_has_a_row(&window.input),
        LogicalPlan::TableScan(scan) => {
            Ok(source_as_provider(&scan.source).is_ok_and(|table| is_parameters(table.as_ref())))
        }
        _ => Ok(false),
    }
}

/// The value of the columns that hold it and how many rows there are.
fn single() -> Expr {
    let arguments =
        ["__kelpie_value", "__kelpie_rows"].map(|name| Expr::Column(Column::new_unqualified(name)));
    ScalarUDF::from(Single::new()).call(arguments.to_vec())
}

/// `single(value, rows)`: the value of so many rows.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Single(Signature);

impl Single {
    fn new() -> Single {
        Single(Signature::any(2, Volatility::Immutable))
    }
}

impl ScalarUDFImpl for Single {
    fn name(&self) -> &str {
        "kelpie_single"
    }

    fn signature(&self) -> &Signature {
        &self.0
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        Ok(arguments.first().cloned().unwrap_or(DataType::Null))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value, rows] = args.args.as_slice() else {
            return exec_err!("kelpie_single takes a value and a number of rows");
        };
        let rows = rows.to_array(args.number_rows)?;
        let most = rows.as_primitive_opt::<Int64Type>().and_then(datafusion::arrow::compute::max);
        match most {
            Some(most) if most > 1 => exec_err!(
                "a subquery that stands for a value has {most} rows, and may have one at most: LIMIT 1 or an aggregate makes it one"
            ),
            _ => Ok(value.clone()),
        }
    }
}
