//! Loading of a scan's columns.

use kelpie_kir::builder::V;
use kelpie_kir::{Scalar, Type};

use super::{Argument, Case, ColumnPart, Context, DictionaryCode, Lowered, Repr, Text, register_of};
use crate::layout::{ColumnLayout, Storage};
use crate::types::{DataType, Range};

impl Context<'_> {
    pub(super) fn load_column(
        &mut self,
        (scan, column): (usize, usize),
        layout: &ColumnLayout,
        data_type: &DataType,
        row: V,
    ) -> Lowered {
        let valid = layout.has_nulls.then(|| self.load_validity((scan, column), row));
        let u8_pointer = Type::global(Scalar::U8);
        let part = |part| Argument::Column { scan, column, part };
        match layout.storage {
            Storage::Fixed { scalar, has_base } => {
                let data = self.argument("data", Type::global(scalar), part(ColumnPart::Data));
                let stored = self.builder.element(data, row);
                let value = self.widen((scan, column), stored, layout.range, has_base, data_type);
                let range = match data_type.is_float() {
                    true => None,
                    false => layout.range.or_else(|| data_type.full_range()),
                };
                Lowered { repr: Repr::Scalar(value), valid, range }
            }
            Storage::Text { offset } => {
                let data = self.argument("text", u8_pointer, part(ColumnPart::Data));
                let offsets = self.argument("offsets", Type::global(offset), part(ColumnPart::Offsets));
                Lowered { repr: Repr::Text(self.load_text(data, offsets, row)), valid, range: None }
            }
            Storage::Dictionary { code, entries } => {
                let code = self.load_code((scan, column), (code, entries), row);
                let text = self.dictionary_entry(code);
                Lowered { repr: Repr::Text(text), valid, range: None }
            }
        }
    }

    /// The text of a dictionary's entry.
    pub fn dictionary_entry(&mut self, code: DictionaryCode) -> Text {
        let DictionaryCode { scan, column, value, .. } = code;
        let part = |part| Argument::Column { scan, column, part };
        let bytes = self.argument("entries", Type::global(Scalar::U8), part(ColumnPart::DictionaryBytes));
        let offsets =
            self.argument("entry_offsets", Type::global(Scalar::U32), part(ColumnPart::DictionaryOffsets));
        Text { code: Some(code), ..self.load_text(bytes, offsets, value) }
    }

    pub(super) fn load_validity(&mut self, (scan, column): (usize, usize), row: V) -> V {
        let bitmap = self.argument(
            "validity",
            Type::global(Scalar::U8),
            Argument::Column { scan, column, part: ColumnPart::Validity },
        );
        let b = &mut *self.builder;
        let (three, seven) = (b.i64(3), b.i64(7));
        let byte_index = b.binary(kelpie_kir::BinaryOp::Shr, row, three);
        let byte = b.element(bitmap, byte_index);
        let byte = b.convert(byte, Scalar::U32);
        let bit = b.and(row, seven);
        let bit = b.convert(bit, Scalar::U32);
        let shifted = b.binary(kelpie_kir::BinaryOp::Shr, byte, bit);
        let one = b.u32(1);
        let masked = b.and(shifted, one);
        b.eq(masked, one)
    }

    fn load_text(&mut self, data: V, offsets: V, row: V) -> Text {
        let b = &mut *self.builder;
        let start_pointer = b.offset(offsets, row);
        let start = b.load_read_only(start_pointer);
        let one = b.i32(1);
        let end_pointer = b.offset(start_pointer, one);
        let end = b.load_read_only(end_pointer);
        let length = b.sub(end, start);
        let length = b.convert(length, Scalar::U32);
        let data = b.offset(data, start);
        Text { data, length, case: Case::Keep, code: None }
    }

    /// A stored scalar as the register type of its range, with the base added.
    fn widen(
        &mut self,
        (scan, column): (usize, usize),
        stored: V,
        range: Option<Range>,
        has_base: bool,
        data_type: &DataType,
    ) -> V {
        if data_type.is_float() {
            return stored;
        }
        let scalar = self.builder.scalar(stored);
        if *data_type == DataType::Boolean {
            let zero = self.builder.zero(scalar);
            return self.builder.ne(stored, zero);
        }
        let register = range.or_else(|| data_type.full_range()).map_or(Scalar::I128, register_of);
        let value = self.builder.convert(stored, register);
        if !has_base {
            return value;
        }
        let base =
            if scalar == Scalar::I128 || register == Scalar::I128 { Scalar::I128 } else { Scalar::I64 };
        let argument = self.argument("base", base, Argument::ColumnBase { scan, column, scalar: base });
        let argument = self.builder.convert(argument, register);
        self.builder.add(value, argument)
    }
}
