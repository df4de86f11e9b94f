//! Floats beside decimals. DataFusion makes them decimals of 30 digits, into which NaN, infinity and numbers from 10^15 on do not fit; in
//! other engines the decimals become floats, as they do in arithmetic. A number that is written with a point is a decimal beside decimals.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result;
use datafusion::logical_expr::expr_schema::cast_subquery;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator, Subquery};

use super::operands::cast;

/// Makes decimals floats where they stand beside some; whether there were any. Each operand is an expression over a schema of its own.
pub(super) fn bring_together<'a>(operands: &mut [&mut Expr], schema: impl Fn(usize) -> &'a DFSchema) -> bool {
    let types = operands.iter().enumerate().map(|(place, operand)| operand.get_type(schema(place)).ok());
    let types: Vec<Option<DataType>> = types.collect();
    if !types.iter().flatten().any(DataType::is_decimal) {
        return false;
    }
    let floats = operands.iter().zip(&types).filter(|(operand, _)| !is_written(operand));
    let floats = floats.filter_map(|(_, data_type)| data_type.as_ref().filter(|of| of.is_floating()));
    let Some(widest) = floats.max_by_key(|data_type| data_type.primitive_width()).cloned() else {
        return false;
    };
    for (operand, data_type) in operands.iter_mut().zip(types) {
        if data_type.is_some_and(|data_type| data_type.is_decimal()) {
            cast(operand, widest.clone());
        }
    }
    true
}

/// Makes what is looked for among the rows of a subquery a float, or those rows floats, where the other side is one; whether it has.
pub(super) fn beside_rows(expr: &mut Expr, subquery: &mut Subquery, schema: &DFSchema) -> Result<bool> {
    let Some(column) = subquery.subquery.schema().fields().first() else { return Ok(false) };
    let (Ok(own), rows) = (expr.get_type(schema), column.data_type().clone()) else { return Ok(false) };
    if own.is_decimal() && rows.is_floating() && !gives_written(&subquery.subquery)? {
        cast(expr, rows);
        return Ok(true);
    }
    if own.is_floating() && rows.is_decimal() && !is_written(expr) {
        *subquery = cast_subquery(subquery.clone(), &own)?;
        return Ok(true);
    }
    Ok(false)
}

fn gives_written(plan: &LogicalPlan) -> Result<bool> {
    Ok(plan.head_output_expr()?.is_some_and(|expr| is_written(&expr)))
}

/// The float of a row that a value of VALUES was before it was made a decimal, or the value; and whether it was one.
pub(super) fn before_decimal(value: &Expr) -> (&Expr, bool) {
    match value {
        Expr::Cast(Cast { expr, field }) if field.data_type().is_decimal() => {
            let is_float = expr.get_type(&DFSchema::empty()).is_ok_and(|data_type| data_type.is_floating());
            if is_float && !is_written(expr) { (expr, true) } else { (value, false) }
        }
        value => (value, false),
    }
}

/// Whether a number is one that is written with a point, or computed of such ones.
fn is_written(expr: &Expr) -> bool {
    use Operator::{Divide, Minus, Modulo, Multiply, Plus};
    match expr {
        Expr::Literal(..) => true,
        Expr::Alias(alias) => is_written(&alias.expr),
        Expr::Negative(of) => is_written(of),
        Expr::BinaryExpr(BinaryExpr { left, op: Plus | Minus | Multiply | Divide | Modulo, right }) => {
            is_written(left) && is_written(right)
        }
        _ => false,
    }
}
