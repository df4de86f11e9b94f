//! Quotients of whole numbers of which one is of 64 bits without a sign. DataFusion divides the two as decimals, since no type of 64 bits
//! holds both: `7::ubigint / 2` is 3.5000, where a quotient of any other whole numbers is one.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Operator, binary_expr};

use super::operands::cast_to;

/// Digits of the greatest number of 64 bits.
const DIGITS: u8 = 20;

/// Whether an expression, apart from those in it, is such a quotient.
pub(super) fn is_one(BinaryExpr { left, op, right }: &BinaryExpr, schema: &DFSchema) -> bool {
    if *op != Operator::Divide {
        return false;
    }
    match (left.get_type(schema), right.get_type(schema)) {
        (Ok(DataType::UInt64), Ok(other)) | (Ok(other), Ok(DataType::UInt64)) => other.is_signed_integer(),
        _ => false,
    }
}

/// Such a quotient as a whole number.
pub(super) fn whole(quotient: &BinaryExpr, schema: &DFSchema) -> Option<Expr> {
    let BinaryExpr { left, right, .. } = quotient;
    if !is_one(quotient, schema) || left.is_volatile() || right.is_volatile() {
        return None;
    }
    let unsigned = |side: &Expr| match side {
        Expr::Literal(value, _) => {
            let value = value.cast_to(&DataType::UInt64).ok()?;
            (!value.is_null()).then_some(Expr::Literal(value, None))
        }
        side => matches!(side.get_type(schema), Ok(DataType::UInt64)).then(|| side.clone()),
    };
    if let (Some(left), Some(right)) = (unsigned(left), unsigned(right)) {
        return Some(binary_expr(left, Operator::Divide, right));
    }
    let decimal = |side: Expr| cast_to(side, DataType::Decimal128(DIGITS, 0));
    // What is left of the dividend is divided without a rest, so that nothing is rounded.
    let (left, right) = (decimal(left.as_ref().clone()), decimal(right.as_ref().clone()));
    let rest = binary_expr(left.clone(), Operator::Modulo, right.clone());
    let divided = binary_expr(decimal(binary_expr(left, Operator::Minus, rest)), Operator::Divide, right);
    Some(decimal(divided))
}
