//! A subquery that is a value has at most one row. Where that cannot be told beforehand, it is checked as the query runs.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::common::{Column, ExprSchema, exec_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::expr_fn::{count, first_value, max};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, LogicalPlanBuilder, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility, lit,
};

use super::dependent::OuterValues;

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
    let arguments =
        ["__kelpie_value", "__kelpie_rows"].map(|name| Expr::Column(Column::new_unqualified(name)));
    Ok((rows, ScalarUDF::from(Single::new()).call(arguments.to_vec())))
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
