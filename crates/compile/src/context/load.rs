//! Loading of a scan's columns.

use std::rc::Rc;

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar, Type};

use super::row::missing;
use super::{
    Argument, Case, ColumnPart, Context, DictionaryCode, Lowered, Moved, Origin, Repr, RowLayer,
    StoredIntegers, Text, Unsupported, register_of,
};
use crate::layout::{ColumnLayout, Storage, ValueCodes};
use crate::types::{DataType, Range};

/// A row of a scan's table.
#[derive(Debug)]
struct ScanRow {
    scan: usize,
    layouts: Vec<ColumnLayout>,
    codes: Vec<Option<ValueCodes>>,
    types: Vec<DataType>,
    row: V,
}

impl RowLayer for ScanRow {
    fn origin(&self, column: usize) -> Option<Origin<'_>> {
        (column < self.layouts.len() && column < self.types.len()).then_some(Origin::Memory)
    }

    fn load(&self, cx: &mut Context<'_>, column: usize) -> Result<Lowered, Unsupported> {
        let layout = self.layouts.get(column).ok_or_else(|| missing(column))?;
        let data_type = self.types.get(column).ok_or_else(|| missing(column))?;
        Ok(cx.load_column((self.scan, column), layout, data_type, self.row))
    }

    fn range(&self, column: usize, _below: &dyn Fn(usize) -> Option<Range>) -> Option<Range> {
        self.layouts.get(column)?.range.or_else(|| self.types.get(column)?.full_range())
    }

    fn registers(&self, _column: usize) -> Vec<V> {
        vec![self.row]
    }

    fn moved(&self, moved: &Moved) -> Option<Rc<dyn RowLayer>> {
        let (layouts, codes, types) = (self.layouts.clone(), self.codes.clone(), self.types.clone());
        Some(Rc::new(ScanRow { scan: self.scan, layouts, codes, types, row: moved.of(self.row) }))
    }

    fn has_codes(&self, column: usize) -> bool {
        self.layouts.get(column).is_some_and(|layout| matches!(layout.storage, Storage::Dictionary { .. }))
    }

    fn load_stored(&self, cx: &mut Context<'_>, column: usize) -> Option<StoredIntegers> {
        cx.wide()?;
        cx.load_stored((self.scan, column), self.layouts.get(column)?, self.row)
    }

    fn load_code(&self, cx: &mut Context<'_>, column: usize) -> Option<(DictionaryCode, Option<V>)> {
        let layout = self.layouts.get(column)?;
        let Storage::Dictionary { code, entries } = layout.storage else { return None };
        let valid = layout.has_nulls.then(|| cx.load_validity((self.scan, column), self.row));
        Some((cx.load_code((self.scan, column), (code, entries), self.row), valid))
    }

    fn load_value_code(
        &self,
        cx: &mut Context<'_>,
        (scan, column): (usize, usize),
    ) -> Option<(V, Option<V>)> {
        let codes = self.codes.get(column).copied().flatten().filter(|_| scan == self.scan)?;
        let layout = self.layouts.get(column)?;
        let valid = layout.has_nulls.then(|| cx.load_validity((scan, column), self.row));
        Some((cx.load_value_code((scan, column), codes, self.row), valid))
    }
}

impl Context<'_> {
    /// Starts a row of a table: its columns are those of a scan of the query, at row number `row` (`i64`). `codes`: of columns that have
    /// codes beside their values.
    pub fn begin_scan(
        &mut self,
        scan: usize,
        (layouts, codes): (Vec<ColumnLayout>, Vec<Option<ValueCodes>>),
        types: Vec<DataType>,
        row: V,
    ) {
        self.push_layer(Rc::new(ScanRow { scan, layouts, codes, types, row }));
    }

    fn load_column(
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
                let stored = self.once((scan, column), false, |cx| cx.load_elements(data, row));
                let value = self.widen((scan, column), (stored, has_base), layout.range, data_type);
                let range = match data_type.is_float() {
                    true => None,
                    false => layout.range.or_else(|| data_type.full_range()),
                };
                Lowered { repr: Repr::Scalar(value), valid, range }
            }
            Storage::Text { .. } | Storage::Dictionary { .. } if self.wide().is_some() => {
                self.impossible("text of several rows at once");
                let text = Text { data: row, length: row, case: Case::Keep, code: None };
                Lowered { repr: Repr::Text(text), valid, range: None }
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

    /// Integers of up to 32 bits as they are stored, whose bounds are known.
    fn load_stored(
        &mut self,
        (scan, column): (usize, usize),
        layout: &ColumnLayout,
        row: V,
    ) -> Option<StoredIntegers> {
        let Storage::Fixed { scalar, has_base } = layout.storage else { return None };
        let range = layout.range.filter(|_| scalar.is_integer() && scalar.bits() <= 32)?;
        let part = |part| Argument::Column { scan, column, part };
        let data = self.argument("data", Type::global(scalar), part(ColumnPart::Data));
        let value = self.once((scan, column), false, |cx| cx.load_elements(data, row));
        let valid = layout.has_nulls.then(|| self.load_validity((scan, column), row));
        if !has_base {
            return Some(StoredIntegers { value, valid, base: None, bounds: range });
        }
        let most = range.max.checked_sub(range.min)?;
        let base = Argument::ColumnBase { scan, column, scalar: Scalar::I64 };
        let base = Some(self.argument("base", Scalar::I64, base));
        Some(StoredIntegers { value, valid, base, bounds: Range { min: 0, max: most } })
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

    /// The text of an entry that a number (`u32`) out of a table is the code of: where a slot has no group, or a place no row, there is any
    /// number, and what is computed of it is thrown away. `dictionary`: its scan, column and entries.
    pub fn entry_of_any(&mut self, code: V, (scan, column, entries): (usize, usize, u32)) -> Text {
        let value = self.builder.min_int(code, entries.max(1) - 1);
        self.dictionary_entry(DictionaryCode { value, entries, scan, column })
    }

    pub(super) fn load_validity(&mut self, column: (usize, usize), row: V) -> V {
        self.once(column, true, |cx| cx.load_validity_bits(column, row))
    }

    fn load_validity_bits(&mut self, (scan, column): (usize, usize), row: V) -> V {
        let bitmap = self.argument(
            "validity",
            Type::global(Scalar::U8),
            Argument::Column { scan, column, part: ColumnPart::Validity },
        );
        let b = &mut *self.builder;
        let (three, seven) = (b.i64(3), b.i64(7));
        let byte_index = b.binary(BinaryOp::Shr, row, three);
        let pointer = b.offset(bitmap, byte_index);
        let byte = self.builder.load_read_only(pointer);
        let b = &mut *self.builder;
        let byte = b.convert(byte, Scalar::U32);
        if let Some(rows) = self.loads.wide {
            return b.bits_mask(byte, rows);
        }
        let bit = b.and(row, seven);
        let bit = b.convert(bit, Scalar::U32);
        let shifted = b.binary(BinaryOp::Shr, byte, bit);
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
        (stored, has_base): (V, bool),
        range: Option<Range>,
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
