//! What the types of an expression's parts tell of an integer.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable};

use super::ExactOp;

/// The least and the greatest value.
pub(super) type Bounds = (i128, i128);

/// The values of an integer type.
pub(super) fn of_type(data_type: &DataType) -> Option<Bounds> {
    Some(match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DataType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => return None,
    })
}

/// Bounds of an integer expression, by constants, casts of narrower integers and arithmetic of these.
pub(super) fn of(expr: &Expr, schema: &DFSchema) -> Option<Bounds> {
    /// How deep is looked.
    const DEPTH: usize = 8;
    within(expr, schema, DEPTH)
}

fn within(expr: &Expr, schema: &DFSchema, depth: usize) -> Option<Bounds> {
    let full = of_type(&expr.get_type(schema).ok()?)?;
    let Some(depth) = depth.checked_sub(1) else { return Some(full) };
    let known = match expr {
        Expr::Literal(value, _) => constant(value),
        Expr::Cast(cast) => within(&cast.expr, schema, depth),
        Expr::Alias(alias) => within(&alias.expr, schema, depth),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => ExactOp::of(*op).and_then(|op| {
            let (a, b) = (within(left, schema, depth)?, within(right, schema, depth)?);
            op.bounds(a, b)
        }),
        Expr::ScalarFunction(call) => {
            match (call.func.inner().as_ref().downcast_ref::<super::Exact>(), call.args.as_slice()) {
                (Some(exact), [left, right]) => {
                    let (a, b) = (within(left, schema, depth)?, within(right, schema, depth)?);
                    exact.op().bounds(a, b)
                }
                _ => None,
            }
        }
        _ => None,
    };
    // What is beyond the type has been an error.
    Some(known.map_or(full, |(least, most)| (least.clamp(full.0, full.1), most.clamp(full.0, full.1))))
}

fn constant(value: &ScalarValue) -> Option<Bounds> {
    let value: i128 = match value {
        ScalarValue::Int8(Some(value)) => (*value).into(),
        ScalarValue::Int16(Some(value)) => (*value).into(),
        ScalarValue::Int32(Some(value)) => (*value).into(),
        ScalarValue::Int64(Some(value)) => (*value).into(),
        ScalarValue::UInt8(Some(value)) => (*value).into(),
        ScalarValue::UInt16(Some(value)) => (*value).into(),
        ScalarValue::UInt32(Some(value)) => (*value).into(),
        ScalarValue::UInt64(Some(value)) => (*value).into(),
        other if other.is_null() => 0,
        _ => return None,
    };
    Some((value, value))
}
