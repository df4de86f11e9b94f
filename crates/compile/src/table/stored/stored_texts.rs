//! Stored texts: where a text is, with its length. A stored text's address stays good to the end of the stage: states keep their memory that
//! long.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::{Declare, StoredColumn, StoredForm};
use crate::context::{Case, Context, Repr, Text};
use crate::lower::{plain_text, text_equal};

/// The numbers of the parts of a column of texts: the address and the length.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextParts {
    pub(super) addresses: usize,
    pub(super) lengths: usize,
}

/// A stored text that may be a key's.
pub(crate) struct Candidate {
    /// Whether it may be, `bool`.
    pub may_be: V,
    /// Whether bytes have to be compared, which are as many as the key's, `bool`.
    pub is_open: V,
    /// Where they are, `ptr<global, u8>`.
    pub data: V,
    /// Whether the stored value is not NULL, `bool`; `None` where it never is.
    pub valid: Option<V>,
}

impl TextParts {
    pub(super) fn declare(part: &mut Declare<'_>) -> TextParts {
        TextParts { addresses: part("text", 8), lengths: part("text_lengths", 4) }
    }
}

impl StoredColumn {
    /// Writes a text to a place (`i64`).
    pub(super) fn store_text(
        &self,
        cx: &mut Context<'_>,
        parts: TextParts,
        (text, valid): (&Text, Option<V>),
        place: V,
    ) {
        let text = plain_text(cx, text.clone(), valid);
        let pointer = self.address(cx, parts.addresses, Scalar::U64, place);
        let data = cx.builder.bitcast(text.data, Scalar::U64);
        cx.builder.store(pointer, data);
        let pointer = self.address(cx, parts.lengths, Scalar::U32, place);
        cx.builder.store(pointer, text.length);
    }

    /// The text at a place (`i64`); one without bytes where it is not `present`.
    pub(super) fn load_text(
        &self,
        cx: &mut Context<'_>,
        parts: TextParts,
        place: V,
        present: Option<V>,
    ) -> Text {
        let pointer = self.address(cx, parts.addresses, Scalar::U64, place);
        let data = cx.builder.load(pointer);
        let pointer = self.address(cx, parts.lengths, Scalar::U32, place);
        let length = cx.builder.load(pointer);
        let data = cx.builder.bitcast(data, Type::global(Scalar::U8));
        // What stands at a place that is not taken is no address.
        let length = self.or_zero(cx, length, present);
        Text { data, length, case: Case::Keep, code: None }
    }

    /// Whether a key's text is the one at a place (`i64`), of which it is given whether it is not NULL (`bool`). Where one of them is NULL it
    /// is unspecified.
    pub(super) fn has_text(
        &self,
        cx: &mut Context<'_>,
        parts: TextParts,
        text: &Text,
        (place, valid): (V, Option<V>),
    ) -> V {
        let other = self.load_text(cx, parts, place, None);
        // The text under a NULL is unspecified.
        let length = self.or_zero(cx, other.length, valid);
        text_equal(cx, text, &Text { length, ..other })
    }

    /// The text at a place (`i64`) as one that may be a key's, whose bytes are compared elsewhere; `None` where the column has none.
    pub(crate) fn candidate(&self, cx: &mut Context<'_>, text: &Text, place: V) -> Option<Candidate> {
        let StoredForm::Text(parts) = self.form else { return None };
        let valid = self.load_valid(cx, place);
        let pointer = self.address(cx, parts.lengths, Scalar::U32, place);
        let length = cx.builder.load(pointer);
        let may_be = cx.builder.eq(text.length, length);
        let is_open = has_bytes(cx, text.length);
        let pointer = self.address(cx, parts.addresses, Scalar::U64, place);
        let address = cx.builder.load(pointer);
        let data = cx.builder.bitcast(address, Type::global(Scalar::U8));
        Some(Candidate { may_be, is_open, data, valid })
    }

    /// Bytes (`u64`) of what the value at a place refers to, where a search looks at that: the first and the last of a text. There is a
    /// value at the place, which may be NULL.
    pub(crate) fn look_ahead(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        let StoredForm::Text(_) = self.form else { return None };
        let valid = self.load_valid(cx, place);
        let loaded = self.load(cx, place, valid);
        let Repr::Text(text) = loaded.repr else { return None };
        let has_bytes = has_bytes(cx, text.length);
        let nothing = cx.builder.u64(0);
        let seen = cx.builder.var_of("ends", nothing);
        cx.begin_if(has_bytes);
        let b = &mut *cx.builder;
        let last = b.sub_int(text.length, 1);
        let last = b.offset(text.data, last);
        let (first, last) = (b.load(text.data), b.load(last));
        let ends = b.binary(BinaryOp::Xor, first, last);
        let ends = b.convert(ends, Scalar::U64);
        b.assign(seen, ends);
        cx.end();
        Some(cx.builder.read(seen))
    }
}

/// Whether a text of a length (`u32`) has bytes (`bool`).
fn has_bytes(cx: &mut Context<'_>, length: V) -> V {
    cx.builder.ge_int(length, 1)
}
