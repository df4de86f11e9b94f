//! Conditions on one dictionary column are computed once an entry.
//!
//! A kernel has one word an entry and condition, which is 0 until a row needs the entry: that row computes the
//! condition and puts the result there. So no kernel has to run before, entries that no live row has are not looked
//! at (and cannot fail), and threads that come at the same time compute the same. One more word is for NULL.
//!
//! The threads of a GPU would wait for each other at words that all of them look at: of few entries each block has words of its own.

use kelpie_kir::builder::V;
use kelpie_kir::{AtomicOp, Builtin, Pointee, Scalar, Scope, Type};

use super::value::{boolean, scalar};
use crate::context::{Argument, Constant, Context, Lowered, Unsupported};
use crate::expr::{Expr, ExprKind, columns_read};
use crate::lower::is_cheap;
use crate::primitives::for_range;
use crate::types::DataType;

const FALSE: u32 = 1;
const TRUE: u32 = 2;
const NULL: u32 = 3;
/// Words that each block has for a condition, at most: it takes some microseconds to find each out.
const MOST_NEAR_WORDS: u32 = 1024;

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
    let words = code.entries.saturating_add(1);
    let (memo, scope) = match near_memo(cx, (code.scan, code.column), expr, words) {
        Some(memo) => (memo, Scope::Block),
        None => {
            let id = cx.memo((code.scan, code.column), expr);
            let scratch = Argument::Scratch { id, words };
            (cx.argument("memo", Type::global(Scalar::U32), scratch), Scope::Device)
        }
    };
    let slot = match column_valid {
        Some(valid) => {
            let null = cx.constant(Constant::Int(Scalar::U32, code.entries.into()));
            cx.builder.select(valid, code.value, null)
        }
        None => code.value,
    };
    let place = cx.builder.offset(memo, slot);
    let known = cx.builder.atomic_load(place, scope);
    let state = cx.builder.var_of("memo", known);
    let unknown = cx.builder.eq_int(known, 0);
    cx.begin_if(unknown);
    cx.in_memo = true;
    let value = cx.lower(expr);
    cx.in_memo = false;
    let Lowered { repr, valid, .. } = value?;
    let value = scalar(&Lowered { repr, valid, range: None })?;
    let [no, yes, null] = [FALSE, TRUE, NULL].map(|state| cx.builder.u32(state));
    let mut result = cx.builder.select(value, yes, no);
    if let Some(valid) = valid {
        result = cx.builder.select(valid, result, null);
    }
    cx.builder.atomic_discard(AtomicOp::Exchange, place, result, scope);
    cx.builder.assign(state, result);
    cx.end();
    let state = cx.builder.read(state);
    let [yes, null] = [TRUE, NULL].map(|state| cx.builder.u32(state));
    let valid = valid.map(|_| cx.builder.ne(state, null));
    Ok(Some(boolean(cx.builder.eq(state, yes), valid)))
}

/// The words of a condition in a block's memory, of few entries where there is room; they are cleared before the row loop.
fn near_memo(cx: &mut Context<'_>, column: (usize, usize), expr: &Expr, words: u32) -> Option<V> {
    if cx.shape.is_serial() || words > MOST_NEAR_WORDS {
        return None;
    }
    if let Some(known) = cx.near_memo(column, expr) {
        return Some(known);
    }
    let taken = cx.builder.shared_bytes().saturating_add(4 * words);
    if taken > cx.shape.table_bytes() {
        return None;
    }
    let name = format!("near_memo_{}", cx.near_memos());
    cx.builder.begin_prologue();
    let b = &mut *cx.builder;
    let memo = b.shared(&name, Pointee::Scalar(Scalar::U32), words);
    let (thread, threads) = (b.builtin(Builtin::ThreadId), b.builtin(Builtin::BlockDim));
    let (end, unknown) = (b.u32(words), b.u32(0));
    for_range(b, thread, end, threads, |b, entry| {
        let place = b.offset(memo, entry);
        b.store(place, unknown);
    });
    b.barrier();
    b.end_prologue();
    cx.keep_near_memo(column, expr, memo);
    Some(memo)
}
