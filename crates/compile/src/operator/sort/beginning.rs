//! Where the first key of a top-k is a text, the first word of its keys may be the same in all rows: addresses of a site begin
//! alike. Then a bound of words leaves out nothing. So a worker looks at its first texts, and bounds the others by the eight
//! bytes behind what these have in common. A text that does not begin so is before or after all that do: what it is bounded by has
//! the texts' order, though not all of it.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{BinaryOp, Pointee, Scalar, Space, Type};

use super::words::{WordKey, bytes_at};
use crate::context::{Case, Context, Repr, Unsupported};
use crate::primitives::select::same_bytes;

/// Texts by which a worker finds what they have in common. All of them are kept.
const FIRST_TEXTS: u32 = 64;

/// What the first texts that a worker has seen have in common.
#[derive(Debug, Clone)]
pub(super) struct Beginning {
    key: WordKey,
    /// The address of the first text, `u64`.
    reference: Var,
    /// Bytes that are common, `u32`.
    common: Var,
    /// Rows that were looked at, `u32`, and whether there was a text.
    seen: Var,
    has_text: Var,
}

impl Beginning {
    /// Before the row loop.
    pub(super) fn begin(cx: &mut Context<'_>, key: &WordKey) -> Beginning {
        let (zero, none) = (cx.builder.u32(0), cx.builder.u64(0));
        Beginning {
            key: key.clone(),
            reference: cx.builder.var_of("reference", none),
            common: cx.builder.var_of("common", zero),
            seen: cx.builder.var_of("seen", zero),
            has_text: cx.builder.var_of("has_text", zero),
        }
    }

    /// The word by which the current row is bounded, `u64`, and whether it is kept without one. `None`: the texts are not as
    /// they lie in memory.
    pub(super) fn word(&self, cx: &mut Context<'_>) -> Result<Option<(V, V)>, Unsupported> {
        let value = cx.column(self.key.column)?;
        let Repr::Text(text) = &value.repr else {
            return Err(Unsupported("a sort key changed its representation".into()));
        };
        let Case::Keep = text.case else { return Ok(None) };
        let none = cx.builder.u64(0);
        let word = cx.builder.var_of("bounded", none);
        let (seen, most) = (cx.builder.read(self.seen), cx.builder.u32(FIRST_TEXTS));
        let is_first = cx.builder.lt(seen, most);
        let valid = value.valid.unwrap_or_else(|| cx.builder.bool(true));
        cx.begin_if(is_first);
        let one = cx.builder.u32(1);
        let after = cx.builder.add(seen, one);
        cx.builder.assign(self.seen, after);
        cx.begin_if(valid);
        self.look_at(cx, (text.data, text.length));
        cx.end();
        cx.end();
        let bounded = cx.builder.not(is_first);
        let bounded = cx.builder.and(bounded, valid);
        cx.begin_if(bounded);
        let bits = self.bits(cx, (text.data, text.length));
        cx.builder.assign(word, bits);
        cx.end();
        let bits = cx.builder.read(word);
        // NULLs are before or after all others.
        let word = match value.valid {
            None => bits,
            Some(valid) => {
                let one = cx.builder.u64(1);
                let bits = cx.builder.binary(BinaryOp::Shr, bits, one);
                let last = if self.key.nulls_first { valid } else { cx.builder.not(valid) };
                let last = cx.builder.convert(last, Scalar::U64);
                let place = cx.builder.u64(63);
                let last = cx.builder.binary(BinaryOp::Shl, last, place);
                cx.builder.or(bits, last)
            }
        };
        Ok(Some((word, is_first)))
    }

    /// Takes one more text into account.
    fn look_at(&self, cx: &mut Context<'_>, (data, length): (V, V)) {
        let (zero, one, known) = (cx.builder.u32(0), cx.builder.u32(1), cx.builder.read(self.has_text));
        let is_none = cx.builder.eq(known, zero);
        cx.begin_if(is_none);
        let address = cx.builder.bitcast(data, Scalar::U64);
        cx.builder.assign(self.reference, address);
        cx.builder.assign(self.common, length);
        cx.builder.assign(self.has_text, one);
        cx.begin_else();
        let same = self.same_bytes(cx, (data, length));
        cx.builder.assign(self.common, same);
        cx.end();
    }

    /// The bits of a text: two say whether it is before those with the common beginning, one of them, or after them; then, of
    /// one of them, its next bytes.
    fn bits(&self, cx: &mut Context<'_>, (data, length): (V, V)) -> V {
        let same = self.same_bytes(cx, (data, length));
        let b = &mut *cx.builder;
        let common = b.read(self.common);
        let (before, behind) = (b.u64(0), b.u64(2 << 62));
        let bits = b.var_of("bits", before);
        let begins_so = b.eq(same, common);
        cx.begin_if(begins_so);
        let count = cx.builder.u32(8);
        let bytes = bytes_at(cx, Case::Keep, [data, length, common, count]);
        let b = &mut *cx.builder;
        let (two, among) = (b.u64(2), b.u64(1 << 62));
        let bytes = b.binary(BinaryOp::Shr, bytes, two);
        let bytes = b.or(bytes, among);
        b.assign(bits, bytes);
        cx.begin_else();
        let goes_on = cx.builder.lt(same, length);
        cx.begin_if(goes_on);
        let b = &mut *cx.builder;
        let address = b.read(self.reference);
        let reference = self.reference(address, b);
        let (own, other) = (b.offset(data, same), b.offset(reference, same));
        let (own, other) = (b.load(own), b.load(other));
        let is_after = b.lt(other, own);
        let place = b.select(is_after, behind, before);
        b.assign(bits, place);
        cx.end();
        cx.end();
        let bits = cx.builder.read(bits);
        match self.key.descending {
            true => cx.builder.not(bits),
            false => bits,
        }
    }

    fn reference(&self, address: V, b: &mut kelpie_kir::Builder) -> V {
        b.bitcast(address, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)))
    }

    /// How many of the common bytes a text begins with, `u32`.
    fn same_bytes(&self, cx: &mut Context<'_>, (data, length): (V, V)) -> V {
        let (address, common) = (cx.builder.read(self.reference), cx.builder.read(self.common));
        let reference = self.reference(address, cx.builder);
        let known = cx.builder.module().functions.iter().find(|(_, known)| known.name == "same_bytes");
        let function = match known {
            Some((handle, _)) => handle,
            None => {
                let bytes = Type::global(Scalar::U8);
                let params = [("data", bytes), ("reference", bytes), ("most", Type::U32)];
                cx.builder.begin_function("same_bytes", &params, Some(Scalar::U32.into()));
                let [data, reference, most] = [0, 1, 2].map(|index| cx.builder.param(index));
                let zero = cx.builder.u32(0);
                let same = same_bytes(cx.builder, (data, reference), zero, most);
                cx.builder.return_value(same);
                cx.builder.end_function()
            }
        };
        let most = cx.builder.binary(BinaryOp::Min, common, length);
        cx.builder.call(function, &[data, reference, most])
    }
}
