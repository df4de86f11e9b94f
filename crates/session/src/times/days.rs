//! A date and a number of days. DataFusion counts the days in nanoseconds, of which there are too many in 293 years.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::expr::BinaryExpr;
use datafusion::logical_expr::{Expr, ExprSchemable, Operator, cast};

/// `d + n` and `d - n` as the date so many days later or earlier; nothing of other operands.
pub(super) fn shifted(binary: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let BinaryExpr { left, op, right } = binary;
    let is_date = |expr: &Expr| matches!(expr.get_type(schema), Ok(DataType::Date32));
    let is_whole = |expr: &Expr| expr.get_type(schema).is_ok_and(|data_type| data_type.is_integer());
    let (date, days) = match op {
        Operator::Plus if is_date(left) && is_whole(right) => (left, right),
        Operator::Plus if is_whole(left) && is_date(right) => (right, left),
        Operator::Minus if is_date(left) && is_whole(right) => (left, right),
        _ => return None,
    };
    let number = |expr: &Expr| Box::new(cast(expr.clone(), DataType::Int64));
    // Between a date and a number of 64 bits there is no cast.
    let begin = Box::new(cast(cast(date.as_ref().clone(), DataType::Int32), DataType::Int64));
    let day = Expr::BinaryExpr(BinaryExpr::new(begin, *op, number(days)));
    Some(cast(cast(day, DataType::Int32), DataType::Date32))
}
