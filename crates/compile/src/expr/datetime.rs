//! Dates and timestamps.
use super::value::unsupported;
use crate::context::{Context, Lowered, Unsupported};
use crate::expr::{ArithmeticOp, Expr};
use crate::types::DataType;

/// A date or timestamp ± an interval literal.
pub(super) fn add_interval(
    _cx: &mut Context<'_>,
    _op: ArithmeticOp,
    _left: &Expr,
    _right: &Expr,
    _data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    unsupported("interval arithmetic is not compiled yet")
}

/// Casts between dates and timestamps.
pub(super) fn convert(
    _cx: &mut Context<'_>,
    _value: super::value::Int,
    from: &DataType,
    to: &DataType,
) -> Result<super::cast::Converted, Unsupported> {
    unsupported(format!("cast from {from} to {to}"))
}
