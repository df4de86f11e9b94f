//! IN lists: a chain of comparisons, with SQL's NULLs. Floats are compared by their bits, as DataFusion does here.

use kelpie_kir::builder::V;
use kelpie_kir::{CompareOp, Scalar};

use super::value::{boolean, both, either, scalar, unsupported};
use super::{compare, text};
use crate::context::{Context, Lowered, Repr, Unsupported};
use crate::expr::{Expr, ExprKind, lower as lower_expr};
use crate::types::{DataType, Literal};

/// Longer lists go to DataFusion, which hashes them.
const LIST_LIMIT: usize = 256;

/// Lowers `input [NOT] IN (list)`.
pub(super) fn lower(
    cx: &mut Context<'_>,
    input: &Expr,
    list: &[Expr],
    negated: bool,
) -> Result<Lowered, Unsupported> {
    if list.len() > LIST_LIMIT {
        return unsupported(format!("IN list with more than {LIST_LIMIT} elements"));
    }
    let value = lower_expr(cx, input)?;
    let mut found: Option<V> = None;
    let mut all_valid: Option<V> = None;
    for element in list {
        let (equal, valid) = matches(cx, &value, element, &input.data_type)?;
        let equal = match valid {
            Some(valid) => cx.builder.and(equal, valid),
            None => equal,
        };
        found = either(cx, found, Some(equal));
        all_valid = both(cx, all_valid, valid);
    }
    let found = match found {
        Some(found) => found,
        None => cx.builder.bool(false),
    };
    // Not found is only known where no element is NULL.
    let known = all_valid.map(|valid| cx.builder.or(valid, found));
    let valid = both(cx, value.valid, known);
    Ok(boolean(if negated { cx.builder.not(found) } else { found }, valid))
}

/// Whether the value equals an element, and the element's validity.
fn matches(
    cx: &mut Context<'_>,
    value: &Lowered,
    element: &Expr,
    data_type: &DataType,
) -> Result<(V, Option<V>), Unsupported> {
    if let (ExprKind::Literal(Literal::Int(literal)), Repr::Scalar(value)) = (&element.kind, &value.repr) {
        let (a, b) = compare::with_literal(cx, *value, *literal);
        return Ok((cx.builder.eq(a, b), None));
    }
    let element = lower_expr(cx, element)?;
    let equal = match data_type {
        DataType::Utf8 => text::compare(cx, CompareOp::Eq, value, &element)?,
        DataType::Float32 | DataType::Float64 => {
            let bits = if *data_type == DataType::Float32 { Scalar::I32 } else { Scalar::I64 };
            let (a, b) = (scalar(value)?, scalar(&element)?);
            let (a, b) = (cx.builder.bitcast(a, bits), cx.builder.bitcast(b, bits));
            cx.builder.eq(a, b)
        }
        _ => compare::equal(cx, value, &element, data_type)?,
    };
    Ok((equal, element.valid))
}
