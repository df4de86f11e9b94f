//! Stored texts: where a text is, with its length; beside them its first bytes; or a view of it, which has a short text itself. A stored
//! text's address stays good to the end of the stage, and so does a view's own: states keep their memory that long.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::{Declare, StoredColumn, StoredForm};
use crate::context::{Case, Context, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::text_view::{VIEW_BYTES, bytes_from, is_view_of, view_length, view_of};
use crate::lower::{WORD_BYTES, plain_text, text_equal};
use crate::types::DataType;
use crate::variant::Site;
use crate::variant::axes::TextForm;

/// The numbers of the parts of a column of texts.
#[derive(Debug, Clone, Copy)]
pub(super) enum TextParts {
    /// The address and the length.
    Reference { addresses: usize, lengths: usize },
    /// The same, and the first bytes, as a word with zeros behind them.
    Prefix { addresses: usize, lengths: usize, prefixes: usize },
    /// The two words of a view.
    Inline { views: usize },
}

/// Why texts stay where they are, by rule.
const RULE: (TextForm, &str) =
    (TextForm::Reference, "longer texts than a slot has gain nothing, and how long they are is not known");

/// Chooses what a hash table has of its keys that are texts, where there are texts without a dictionary among these.
pub(crate) fn choose_texts(keys: &[ColumnInfo], site: Site<'_>) -> Result<TextForm, Unsupported> {
    match has_texts(keys) {
        true => site.choose(RULE, |_| Ok(())),
        false => Ok(TextForm::Reference),
    }
}

/// Whether there are texts without a dictionary among keys.
pub(crate) fn has_texts(keys: &[ColumnInfo]) -> bool {
    keys.iter().any(|key| key.data_type == DataType::Utf8 && key.dictionary.is_none())
}

/// How far a stored text is known to be a key's.
struct Alike {
    /// Nothing that is stored beside the reference tells that it is not, `bool`.
    may_be: V,
    /// Whether the bytes behind the reference have to be compared, `bool`.
    is_open: V,
    /// The reference (`u64`), where it was looked at.
    address: Option<V>,
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
    pub(super) fn declare(form: TextForm, part: &mut Declare<'_>) -> TextParts {
        match form {
            TextForm::Reference => TextParts::Reference {
                addresses: part("text", (8, 1)),
                lengths: part("text_lengths", (4, 1)),
            },
            TextForm::Prefix => TextParts::Prefix {
                addresses: part("text", (8, 1)),
                prefixes: part("text_prefixes", (8, 1)),
                lengths: part("text_lengths", (4, 1)),
            },
            TextForm::Inline => TextParts::Inline { views: part("text_views", (8, 2)) },
        }
    }

    /// All of them, each with the type of its values and how many of them a place has.
    pub(super) fn all(self) -> impl Iterator<Item = (usize, (Scalar, u32))> {
        let word = (Scalar::U64, 1);
        let (first, more) = match self {
            TextParts::Reference { addresses, lengths } => {
                ((addresses, word), [Some((lengths, (Scalar::U32, 1))), None])
            }
            TextParts::Prefix { addresses, lengths, prefixes } => {
                ((addresses, word), [Some((prefixes, word)), Some((lengths, (Scalar::U32, 1)))])
            }
            TextParts::Inline { views } => ((views, (Scalar::U64, 2)), [None, None]),
        };
        [first].into_iter().chain(more.into_iter().flatten())
    }

    pub(super) fn form(self) -> TextForm {
        match self {
            TextParts::Reference { .. } => TextForm::Reference,
            TextParts::Prefix { .. } => TextForm::Prefix,
            TextParts::Inline { .. } => TextForm::Inline,
        }
    }

    /// Bytes of a text that are compared without the reference, at most.
    fn own_bytes(self) -> u32 {
        match self {
            TextParts::Reference { .. } => 0,
            TextParts::Prefix { .. } => WORD_BYTES,
            TextParts::Inline { .. } => VIEW_BYTES,
        }
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
        match parts {
            TextParts::Reference { addresses, lengths } => {
                let text = plain_text(cx, text.clone(), valid);
                self.store_reference(cx, (addresses, lengths), &text, place);
            }
            TextParts::Prefix { addresses, lengths, prefixes } => {
                let text = known(cx, text, valid);
                let text = plain_text(cx, text, valid);
                self.store_reference(cx, (addresses, lengths), &text, place);
                let prefix = bytes_from(cx, &text, 0);
                let pointer = self.address(cx, prefixes, Scalar::U64, place);
                cx.builder.store(pointer, prefix);
            }
            TextParts::Inline { views } => {
                let text = known(cx, text, valid);
                let is_long = is_longer(cx, text.length, VIEW_BYTES);
                // No memory is taken for a short text whose case is mapped.
                let plain = plain_text(cx, text.clone(), Some(is_long));
                let address = cx.builder.bitcast(plain.data, Scalar::U64);
                let (first, second) = view_of(cx, &text, (address, is_long));
                let pointer = self.first_address(cx, (views, 2), Scalar::U64, place);
                cx.builder.store(pointer, first);
                let pointer = second_word(cx, pointer);
                cx.builder.store(pointer, second);
            }
        }
    }

    fn store_reference(
        &self,
        cx: &mut Context<'_>,
        (addresses, lengths): (usize, usize),
        text: &Text,
        place: V,
    ) {
        let pointer = self.address(cx, addresses, Scalar::U64, place);
        let data = cx.builder.bitcast(text.data, Scalar::U64);
        cx.builder.store(pointer, data);
        let pointer = self.address(cx, lengths, Scalar::U32, place);
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
        let (data, length) = match parts {
            TextParts::Reference { addresses, lengths } | TextParts::Prefix { addresses, lengths, .. } => {
                let pointer = self.address(cx, addresses, Scalar::U64, place);
                let data = cx.builder.load(pointer);
                let pointer = self.address(cx, lengths, Scalar::U32, place);
                (data, cx.builder.load(pointer))
            }
            TextParts::Inline { views } => {
                let pointer = self.first_address(cx, (views, 2), Scalar::U64, place);
                let first = cx.builder.load(pointer);
                let behind = second_word(cx, pointer);
                let second = cx.builder.load(behind);
                let length = view_length(cx.builder, second);
                let is_long = is_longer(cx, length, VIEW_BYTES);
                let own = cx.builder.bitcast(pointer, Scalar::U64);
                (cx.builder.select(is_long, first, own), length)
            }
        };
        let data = cx.builder.bitcast(data, Type::global(Scalar::U8));
        // What stands at a place that is not taken is no address.
        let length = self.or_zero(cx, length, present);
        Text { data, length, case: Case::Keep, code: None }
    }

    /// Whether a key's text, which may be NULL's, is the one at a place (`i64`), of which it is given whether it is not NULL (`bool`). Where
    /// one of them is NULL it is unspecified.
    pub(super) fn has_text(
        &self,
        cx: &mut Context<'_>,
        parts: TextParts,
        (text, key_valid): (&Text, Option<V>),
        (place, valid): (V, Option<V>),
    ) -> V {
        if let TextParts::Reference { .. } = parts {
            let other = self.load_text(cx, parts, place, None);
            // The text under a NULL is unspecified.
            let length = self.or_zero(cx, other.length, valid);
            return text_equal(cx, text, &Text { length, ..other });
        }
        let text = known(cx, text, key_valid);
        let alike = self.alike(cx, parts, &text, place);
        let same = cx.builder.var_of("same_text", alike.may_be);
        let is_open = cx.builder.and(alike.may_be, alike.is_open);
        cx.begin_if(is_open);
        let data = self.referred(cx, parts, &alike, place);
        let other = Text { data, length: text.length, case: Case::Keep, code: None };
        let equal = text_equal(cx, &text, &other);
        cx.builder.assign(same, equal);
        cx.end();
        cx.builder.read(same)
    }

    /// The text at a place (`i64`) as one that may be a key's, whose bytes are compared elsewhere; `None` where the column has none.
    pub(crate) fn candidate(
        &self,
        cx: &mut Context<'_>,
        (text, key_valid): (&Text, Option<V>),
        place: V,
    ) -> Option<Candidate> {
        let StoredForm::Text(parts) = self.form else { return None };
        let valid = self.load_valid(cx, place);
        let text = match parts {
            TextParts::Reference { .. } => text.clone(),
            TextParts::Prefix { .. } | TextParts::Inline { .. } => known(cx, text, key_valid),
        };
        let alike = self.alike(cx, parts, &text, place);
        let data = self.referred(cx, parts, &alike, place);
        Some(Candidate { may_be: alike.may_be, is_open: alike.is_open, data, valid })
    }

    /// How far what is stored beside the reference at a place (`i64`) tells whether it is that of a text.
    fn alike(&self, cx: &mut Context<'_>, parts: TextParts, text: &Text, place: V) -> Alike {
        let (may_be, address) = match parts {
            TextParts::Reference { lengths, .. } => {
                let pointer = self.address(cx, lengths, Scalar::U32, place);
                let length = cx.builder.load(pointer);
                (cx.builder.eq(text.length, length), None)
            }
            TextParts::Prefix { lengths, prefixes, .. } => {
                let pointer = self.address(cx, lengths, Scalar::U32, place);
                let length = cx.builder.load(pointer);
                let as_long = cx.builder.eq(text.length, length);
                let own = bytes_from(cx, text, 0);
                let pointer = self.address(cx, prefixes, Scalar::U64, place);
                let prefix = cx.builder.load(pointer);
                let same = cx.builder.eq(own, prefix);
                (cx.builder.and(as_long, same), None)
            }
            TextParts::Inline { views } => {
                let pointer = self.first_address(cx, (views, 2), Scalar::U64, place);
                let first = cx.builder.load(pointer);
                let pointer = second_word(cx, pointer);
                let second = cx.builder.load(pointer);
                (is_view_of(cx, text, (first, second)), Some(first))
            }
        };
        Alike { may_be, is_open: is_longer(cx, text.length, parts.own_bytes()), address }
    }

    /// Where the bytes are that a place (`i64`) refers to, `ptr<global, u8>`; anything where it has them itself.
    fn referred(&self, cx: &mut Context<'_>, parts: TextParts, alike: &Alike, place: V) -> V {
        let address = match (alike.address, parts) {
            (Some(address), _) => address,
            (
                None,
                TextParts::Reference { addresses: part, .. }
                | TextParts::Prefix { addresses: part, .. }
                | TextParts::Inline { views: part },
            ) => {
                let pointer = self.address(cx, part, Scalar::U64, place);
                cx.builder.load(pointer)
            }
        };
        cx.builder.bitcast(address, Type::global(Scalar::U8))
    }

    /// Bytes (`u64`) of what the value at a place refers to, where a search looks at that: the first and the last of a text. There is a
    /// value at the place, which may be NULL.
    pub(crate) fn look_ahead(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        let StoredForm::Text(parts) = self.form else { return None };
        let valid = self.load_valid(cx, place);
        let loaded = self.load(cx, place, valid);
        let Repr::Text(text) = loaded.repr else { return None };
        let has_bytes = is_longer(cx, text.length, parts.own_bytes());
        let nothing = cx.builder.u64(0);
        let seen = cx.builder.var_of("ends", nothing);
        cx.begin_if(has_bytes);
        let b = &mut *cx.builder;
        let one = b.u32(1);
        let last = b.sub(text.length, one);
        let last = b.offset(text.data, last);
        let (first, last) = (b.load(text.data), b.load(last));
        let ends = b.binary(BinaryOp::Xor, first, last);
        let ends = b.convert(ends, Scalar::U64);
        b.assign(seen, ends);
        cx.end();
        Some(cx.builder.read(seen))
    }
}

/// The text of a value that may be NULL: then it has no bytes, and none are looked at.
fn known(cx: &mut Context<'_>, text: &Text, valid: Option<V>) -> Text {
    let length = match valid {
        Some(valid) => {
            let zero = cx.builder.u32(0);
            cx.builder.select(valid, text.length, zero)
        }
        None => text.length,
    };
    Text { length, ..text.clone() }
}

/// The address behind the first word.
fn second_word(cx: &mut Context<'_>, first: V) -> V {
    let one = cx.builder.i32(1);
    cx.builder.offset(first, one)
}

/// Whether a length (`u32`) is more than so many bytes (`bool`).
fn is_longer(cx: &mut Context<'_>, length: V, bytes: u32) -> V {
    let more = cx.builder.u32(bytes + 1);
    cx.builder.ge(length, more)
}
