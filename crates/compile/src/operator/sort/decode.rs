//! Columns of sorted rows read from the first word that they were sorted by, where it has all of a column: the words come in order out of
//! the sort, while stored columns would have to be looked for, row by row, anywhere in memory.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use super::words::{WordField, WordPart, Words};
use crate::context::{Constant, Context, Lowered, Repr, register_type};
use crate::layout::ColumnInfo;
use crate::types::Range;

impl Words {
    /// What has a column's values in the first word: its field, and the one that says whether it is NULL. Of the two zeros, which
    /// are one key of groups, a field of such keys does not know which it was.
    fn fields_of(&self, column: usize) -> Option<(&WordField, Option<&WordField>)> {
        let in_first = |field: &&WordField| field.offset + field.bits <= u64::BITS;
        let own = || self.fields().iter().filter(in_first).filter(move |field| field.key.column == column);
        let is_whole = |field: &&WordField| match field.part {
            WordPart::Boolean | WordPart::Integer(_) | WordPart::Code => true,
            WordPart::Float => !field.key.is_group,
            WordPart::Null | WordPart::High | WordPart::Low | WordPart::Head | WordPart::Tail => false,
        };
        let value = own().find(is_whole)?;
        let is_null = |field: &&WordField| {
            matches!(field.part, WordPart::Null) && field.key.is_group == value.key.is_group
        };
        Some((value, own().find(is_null)))
    }

    /// Whether a column can be read from the first word.
    pub(super) fn decodes(&self, column: usize) -> bool {
        self.fields_of(column).is_some()
    }

    /// A column of the row with this word (`u64`), if it can be read from it. Where `present` (if given) is false, NULL.
    pub(super) fn decoded(
        &self,
        cx: &mut Context<'_>,
        (column, info): (usize, &ColumnInfo),
        word: V,
        present: Option<V>,
    ) -> Option<Lowered> {
        let (value, null) = self.fields_of(column)?;
        let mut valid = null.map(|null| null.is_not_null(cx, word));
        if let Some(present) = present {
            valid = Some(valid.map_or(present, |valid| cx.builder.and(valid, present)));
        }
        let mut bits = value.bits_in(cx, word);
        if value.key.descending {
            let mask = cx.builder.u64(u64::MAX >> (64 - value.bits));
            bits = cx.builder.binary(BinaryOp::Xor, bits, mask);
        }
        let register = register_type(&info.data_type, info.range);
        let repr = match value.part {
            WordPart::Code => {
                let (scan, column, entries) = info.dictionary?;
                // What is under a NULL is no code.
                let zero = cx.builder.u64(0);
                let code = valid.map_or(bits, |valid| cx.builder.select(valid, bits, zero));
                let code = cx.builder.convert(code, Scalar::U32);
                Repr::Text(cx.entry_of_any(code, (scan, column, entries)))
            }
            WordPart::Float => Repr::Scalar(float_of(cx, bits, register)),
            WordPart::Integer(range) => Repr::Scalar(integer_of(cx, bits, range, register)),
            _ => {
                let zero = cx.builder.u64(0);
                Repr::Scalar(cx.builder.ne(bits, zero))
            }
        };
        let range = if info.data_type.is_float() { None } else { info.range };
        Some(Lowered { repr, valid, range: range.or_else(|| info.data_type.full_range()) })
    }

    /// Whether a column of the row with this word is not NULL, where the word tells that and no more of the column.
    pub(super) fn valid(&self, cx: &mut Context<'_>, column: usize, word: V) -> Option<V> {
        let is_flag = |field: &&WordField| {
            field.key.column == column && matches!(field.part, WordPart::Null) && field.offset < u64::BITS
        };
        let flag = self.fields().iter().find(is_flag)?;
        Some(flag.is_not_null(cx, word))
    }
}

impl WordField {
    /// What the flag of a NULL says.
    fn is_not_null(&self, cx: &mut Context<'_>, word: V) -> V {
        let (flag, zero) = (self.bits_in(cx, word), cx.builder.u64(0));
        match self.key.nulls_first {
            true => cx.builder.ne(flag, zero),
            false => cx.builder.eq(flag, zero),
        }
    }

    /// Its bits in the first word, `u64`.
    fn bits_in(&self, cx: &mut Context<'_>, word: V) -> V {
        let b = &mut *cx.builder;
        let (distance, mask) =
            (b.u64(u64::from(64 - self.offset - self.bits)), b.u64(u64::MAX >> (64 - self.bits)));
        let shifted = b.binary(BinaryOp::Shr, word, distance);
        b.and(shifted, mask)
    }
}

/// The integer at a distance (`u64`) from the least of a range.
fn integer_of(cx: &mut Context<'_>, distance: V, range: Range, register: Scalar) -> V {
    let wide = if range.within(Range::new(i64::MIN, i64::MAX)) { Scalar::I64 } else { Scalar::I128 };
    let distance = cx.builder.convert(distance, wide);
    let value = match range.min {
        0 => distance,
        min => {
            let min = cx.constant(Constant::Int(wide, min));
            cx.builder.add(distance, min)
        }
    };
    cx.builder.convert(value, register)
}

/// The float whose bits were brought into the order of unsigned numbers.
fn float_of(cx: &mut Context<'_>, bits: V, register: Scalar) -> V {
    let b = &mut *cx.builder;
    let unsigned = if register == Scalar::F32 { Scalar::U32 } else { Scalar::U64 };
    let bits = b.convert(bits, unsigned);
    let sign = b.int(unsigned, 1i128 << (unsigned.bits() - 1));
    let (signed, zero) = (b.and(bits, sign), b.zero(unsigned));
    let is_positive = b.ne(signed, zero);
    let (positive, negative) = (b.binary(BinaryOp::Xor, bits, sign), b.not(bits));
    let bits = b.select(is_positive, positive, negative);
    b.bitcast(bits, register)
}
