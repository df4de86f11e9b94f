//! The texts of a table's column as one run of bytes.

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, ColumnPart, Context};

/// Texts that a column has one behind the other: those of consecutive rows are consecutive bytes, and the offset of a row is the end
/// of the row before, whether it is NULL or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawTexts {
    /// The scan, and the position in it.
    pub column: (usize, usize),
    /// What offsets are stored as.
    pub offset: Scalar,
    pub has_nulls: bool,
}

impl Context<'_> {
    /// The bytes of all texts of a column, and their offsets.
    pub(crate) fn raw_texts(&mut self, texts: &RawTexts) -> (V, V) {
        let (scan, column) = texts.column;
        let part = |part| Argument::Column { scan, column, part };
        let data = self.argument("text", Type::global(Scalar::U8), part(ColumnPart::Data));
        let offsets = self.argument("offsets", Type::global(texts.offset), part(ColumnPart::Offsets));
        (data, offsets)
    }

    /// Whether the text of a row is not NULL, or those of a wide row from there on; `None` where none is NULL.
    pub(crate) fn raw_text_validity(&mut self, texts: &RawTexts, row: V) -> Option<V> {
        texts.has_nulls.then(|| self.load_validity(texts.column, row))
    }
}
