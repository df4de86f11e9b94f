//! TRANSLATE by letters of ASCII that are written out, each of which becomes another: a table has what a byte becomes. Bytes beyond ASCII, of
//! which other letters are made, stay.

use std::sync::Arc;

use kelpie_kir::Scalar;
use kelpie_kir::builder::V;

use super::heap::make;
use super::{byte, count_up};
use crate::context::{Case, Context, Text};
use crate::expr::{Expr, ExprKind};
use crate::types::Literal;

/// What each byte becomes; nothing where a letter goes, or is none of ASCII.
pub(super) fn byte_table(from: &Expr, to: &Expr) -> Option<Arc<[u8]>> {
    let (ExprKind::Literal(Literal::Utf8(from)), ExprKind::Literal(Literal::Utf8(to))) =
        (&from.kind, &to.kind)
    else {
        return None;
    };
    if !from.is_ascii() || !to.is_ascii() || to.len() < from.len() {
        return None;
    }
    let mut table: Vec<u8> = (0..=u8::MAX).collect();
    // Of a letter that is there twice the first one counts.
    for (from, to) in from.bytes().zip(to.bytes()).rev() {
        *table.get_mut(usize::from(from))? = to;
    }
    Some(table.into())
}

/// The text of the bytes that a table has for those of another.
pub(super) fn by_table(cx: &mut Context<'_>, data: V, length: V, table: &Arc<[u8]>) -> Text {
    let table = cx.shared_bytes(table);
    let bytes = cx.builder.convert(length, Scalar::U64);
    make(cx, bytes, |cx, target| {
        count_up(cx.builder, length, |b, index| {
            let own = byte(b, data, index, Case::Keep);
            let mapped = b.element(table, own);
            let place = b.offset(target, index);
            b.store(place, mapped);
        });
    })
}
