//! Constants of the query: kernel parameters, so that another constant reuses the kernel.

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::value::{boolean, float, integer, unsupported};
use crate::context::{Case, Constant, Context, Lowered, Repr, Text, Unsupported, register_of};
use crate::expr::range::literal_class;
use crate::types::{DataType, Literal, Range};

/// Lowers a literal.
pub(super) fn lower(
    cx: &mut Context<'_>,
    literal: &Literal,
    data_type: &DataType,
) -> Result<Lowered, Unsupported> {
    match literal {
        Literal::Null => null(cx, data_type),
        Literal::Boolean(value) => Ok(boolean(cx.constant(Constant::Bool(*value)), None)),
        Literal::Int(value) => {
            let range = literal_class(*value);
            let value = cx.constant(Constant::Int(register_of(range), *value));
            Ok(integer(cx, value, None, range))
        }
        Literal::Float(value) if *data_type == DataType::Float32 => {
            Ok(float(cx.constant(Constant::F32(*value as f32)), None))
        }
        Literal::Float(value) => Ok(float(cx.constant(Constant::F64(*value)), None)),
        Literal::Utf8(value) => Ok(text(cx, value)),
        Literal::Interval(_) => unsupported("an interval can only be added to a date or timestamp"),
    }
}

/// NULL of a type.
pub(super) fn null(cx: &mut Context<'_>, data_type: &DataType) -> Result<Lowered, Unsupported> {
    let valid = Some(cx.builder.bool(false));
    let zero = Range { min: 0, max: 0 };
    Ok(match data_type {
        DataType::Boolean | DataType::Null => boolean(cx.builder.bool(false), valid),
        DataType::Float32 => float(cx.builder.zero(Scalar::F32), valid),
        DataType::Float64 => float(cx.builder.zero(Scalar::F64), valid),
        DataType::Utf8 => Lowered { valid, ..text(cx, "") },
        DataType::Interval => return unsupported("an interval that is NULL"),
        _ => {
            let value = cx.builder.zero(Scalar::I32);
            integer(cx, value, valid, zero)
        }
    })
}

/// An integer literal in a given register type, which holds its class.
pub(super) fn in_register(cx: &mut Context<'_>, value: i128, register: Scalar) -> V {
    cx.constant(Constant::Int(register, value))
}

/// The bytes of a text and their number.
pub(super) fn text(cx: &mut Context<'_>, value: &str) -> Lowered {
    let text = text_of_bytes(cx, value.as_bytes());
    Lowered { repr: Repr::Text(text), valid: None, range: None }
}

/// Bytes in device memory; at least one, so that no buffer is empty.
pub(super) fn text_of_bytes(cx: &mut Context<'_>, bytes: &[u8]) -> Text {
    let data = cx.bytes(if bytes.is_empty() { &[0] } else { bytes });
    let length = cx.constant(Constant::Int(Scalar::U32, bytes.len() as i128));
    Text { data, length, case: Case::Keep, code: None }
}
