//! Conditions on one dictionary column are computed once an entry.
//!
//! A kernel has one word an entry and condition, which is 0 until a row needs the entry: that row computes the
//! condition and puts the result there. So no kernel has to run before, entries that no live row has are not looked
//! at (and cannot fail), and threads that come at the same time compute the same. One more word is for NULL.

use kelpie_kir::{AtomicOp, Scalar, Scope, Type};

use super::lower_node;
use super::value::{boolean, scalar};
use crate::context::{Argument, Constant, Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read};
use crate::lower::is_cheap;
use crate::types::DataType;

const FALSE: u32 = 1;
const TRUE: u32 = 2;
const NULL: u32 = 3;

/// Lowers a condition on one dictionary column that is worth it; `None` for other expressions.
pub(super) fn lower(cx: &mut Context<'_>, expr: &Expr) -> Result<Option<Lowered>, Unsupported> {
    if cx.dry_run || cx.in_memo || cx.wide().is_some() || expr.data_type != DataType::Boolean {
        return Ok(None);
    }
    if let ExprKind::Column(_) | ExprKind::Literal(_) = expr.kind {
        return Ok(None);
    }
    let [column] = columns_read(expr)[..] else { return Ok(None) };
    if !cx.is_dictionary(column) || is_cheap(expr, &|_| None) {
        return Ok(None);
    }
    let Some((code, column_valid)) = cx.dictionary_code(column) else { return Ok(None) };
    let id = cx.memo((code.scan, code.column), expr);
    let scratch = Argument::Scratch { id, words: code.entries.saturating_add(1) };
    let memo = cx.argument("memo", Type::global(Scalar::U32), scratch);
    let slot = match column_valid {
        Some(valid) => {
            let null = cx.constant(Constant::Int(Scalar::U32, code.entries.into()));
            cx.builder.select(valid, code.value, null)
        }
        None => code.value,
    };
    let place = cx.builder.offset(memo, slot);
    let known = cx.builder.atomic_load(place, Scope::Device);
    let state = cx.builder.var_of("memo", known);
    let zero = cx.builder.u32(0);
    let unknown = cx.builder.eq(known, zero);
    cx.begin_if(unknown);
    cx.in_memo = true;
    let value = lower_node(cx, expr);
    cx.in_memo = false;
    let Lowered { repr, valid, .. } = value?;
    let value = scalar(&Lowered { repr, valid, range: None })?;
    let [no, yes, null] = [FALSE, TRUE, NULL].map(|state| cx.builder.u32(state));
    let mut result = cx.builder.select(value, yes, no);
    if let Some(valid) = valid {
        result = cx.builder.select(valid, result, null);
    }
    cx.builder.atomic_discard(AtomicOp::Exchange, place, result, Scope::Device);
    cx.builder.assign(state, result);
    cx.end();
    let state = cx.builder.read(state);
    let [yes, null] = [TRUE, NULL].map(|state| cx.builder.u32(state));
    let valid = valid.map(|_| cx.builder.ne(state, null));
    Ok(Some(boolean(cx.builder.eq(state, yes), valid)))
}
