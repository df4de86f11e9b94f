//! A column of values beside the slots of a table or the rows of a store: in arrays of its own, or in records with others.

mod prefetch;
mod stored_texts;

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Scalar, Space, Type};

use crate::context::register_type;
use crate::context::{Argument, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::normalized;
use crate::lower::text_equal;
use crate::program::States;
use crate::types::{DataType, Range};

use self::stored_texts::TextParts;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: u32 = 64;

/// A stored column.
#[derive(Debug, Clone)]
pub struct StoredColumn {
    info: ColumnInfo,
    form: StoredForm,
    /// Part of one byte a place: 1 = not NULL.
    validity: Option<usize>,
    /// A key: -0.0 is stored as 0.0.
    is_key: bool,
    memory: Memory,
}

/// How the values are stored, and the numbers of their parts.
#[derive(Debug, Clone, Copy)]
enum StoredForm {
    /// Always NULL: nothing is stored.
    Null,
    /// A scalar as narrow as the range allows.
    Scalar { scalar: Scalar, part: usize },
    /// A text.
    Text(TextParts),
    /// The code of a dictionary's entry.
    Code { scalar: Scalar, part: usize },
}

/// Declares a part of a column that has so many bytes a place: its number.
type Declare<'d> = dyn FnMut(&str, u32) -> usize + 'd;

/// Where the parts of a column are.
#[derive(Debug, Clone, Copy)]
enum Memory {
    /// Each is an array: its number is that of its state.
    States,
    /// In records of so many words in a state: a part's number is its distance from the record's beginning, in bytes.
    Records { state: usize, words: u32 },
    /// The same in memory that begins at a pointer to `u64`.
    Own { base: V, words: u32 },
}

/// The layout of records, while it is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordLayout {
    bytes: u32,
    /// Bytes of the widest part: a GPU reads a value only where its size divides the address.
    widest: u32,
}

impl RecordLayout {
    /// Records that begin with so many words of something else.
    pub fn behind(words: u32) -> RecordLayout {
        RecordLayout { bytes: 8 * words, widest: 8 }
    }

    /// A place for a value of so many bytes, which are a power of two.
    fn take(&mut self, bytes: u32) -> usize {
        let place = self.bytes.next_multiple_of(bytes);
        self.bytes = place + bytes;
        self.widest = self.widest.max(bytes);
        place as usize
    }

    /// Words of a record so far.
    pub fn words(self) -> u32 {
        self.bytes.div_ceil(8)
    }

    /// Words from one record to the next, where so many more are behind what is laid out.
    pub fn stride(self, more: u32) -> u32 {
        (self.words() + more).next_multiple_of(self.widest.div_ceil(8).max(1))
    }
}

impl StoredColumn {
    /// Declares the states of a column whose values are handed on as they are.
    pub(crate) fn plan(
        info: &ColumnInfo,
        class: usize,
        states: &mut States,
    ) -> Result<StoredColumn, Unsupported> {
        StoredColumn::declare(info, false, &mut |name, bytes| states.state(name, bytes, class))
    }

    /// Declares the states of a column of keys: -0.0 is the same key as 0.0.
    pub(crate) fn plan_key(
        info: &ColumnInfo,
        class: usize,
        states: &mut States,
    ) -> Result<StoredColumn, Unsupported> {
        StoredColumn::declare(info, true, &mut |name, bytes| states.state(name, bytes, class))
    }

    /// A column in records, which [`StoredColumn::in_records`] or [`StoredColumn::at`] says where they are.
    pub(crate) fn plan_record(
        info: &ColumnInfo,
        is_key: bool,
        layout: &mut RecordLayout,
    ) -> Result<StoredColumn, Unsupported> {
        StoredColumn::declare(info, is_key, &mut |_, bytes| layout.take(bytes))
    }

    /// The column in records of so many words in a state.
    pub(crate) fn in_records(self, state: usize, words: u32) -> StoredColumn {
        StoredColumn { memory: Memory::Records { state, words }, ..self }
    }

    /// The column in records of so many words that begin at a pointer to `u64`.
    pub(crate) fn at(&self, base: V, words: u32) -> StoredColumn {
        StoredColumn { memory: Memory::Own { base, words }, ..self.clone() }
    }

    /// Bytes of a column of keys a place, without those of the texts that it points to.
    pub(crate) fn bytes_of(info: &ColumnInfo) -> u64 {
        let mut all = 0;
        let stored = StoredColumn::declare(info, true, &mut |_, bytes| {
            all += u64::from(bytes);
            0
        });
        stored.map_or(0, |_| all)
    }

    /// How many states a column whose values are handed on has.
    pub(crate) fn states_of(info: &ColumnInfo) -> u64 {
        let mut all = 0;
        let stored = StoredColumn::declare(info, false, &mut |_, _| {
            all += 1;
            0
        });
        stored.map_or(0, |_| all)
    }

    /// `part` declares a part that has so many bytes a place, and gives its number.
    fn declare(info: &ColumnInfo, is_key: bool, part: &mut Declare<'_>) -> Result<StoredColumn, Unsupported> {
        let form = match (&info.data_type, info.dictionary) {
            (DataType::Null, _) => StoredForm::Null,
            (DataType::Interval, _) => return Err(Unsupported("intervals in a table".into())),
            (_, Some((_, _, entries))) => {
                let scalar = unsigned_of(entries);
                StoredForm::Code { scalar, part: part("codes", scalar.bytes()) }
            }
            (DataType::Utf8, None) => StoredForm::Text(TextParts::declare(part)),
            _ => {
                let scalar = memory_type(&info.data_type, info.range);
                StoredForm::Scalar { scalar, part: part("values", scalar.bytes()) }
            }
        };
        let stores = !matches!(form, StoredForm::Null);
        let validity = (info.nullable && stores).then(|| part("validity", 1));
        Ok(StoredColumn { info: info.stored(), form, validity, is_key, memory: Memory::States })
    }

    /// What is known of the column.
    pub fn info(&self) -> &ColumnInfo {
        &self.info
    }

    /// Whether it has texts by address and length.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.form, StoredForm::Text(_))
    }

    /// Its states, where it has arrays of its own.
    pub fn states(&self) -> impl Iterator<Item = usize> + use<> {
        let has_arrays = matches!(self.memory, Memory::States);
        self.parts().into_iter().map(|(part, _)| part).chain(self.validity).filter(move |_| has_arrays)
    }

    /// The numbers of the parts that values are in, each with the type of these.
    fn parts(&self) -> Vec<(usize, Scalar)> {
        match self.form {
            StoredForm::Null => vec![],
            StoredForm::Scalar { scalar, part } | StoredForm::Code { scalar, part } => vec![(part, scalar)],
            StoredForm::Text(TextParts { addresses, lengths }) => {
                vec![(addresses, Scalar::U64), (lengths, Scalar::U32)]
            }
        }
    }

    /// Where the addresses and lengths of texts are, where it has such.
    pub fn text_states(&self) -> Option<(usize, usize)> {
        match (self.form, self.memory) {
            (StoredForm::Text(TextParts { addresses, lengths }), Memory::States) => {
                Some((addresses, lengths))
            }
            _ => None,
        }
    }

    /// Whether one of its states is among `used`.
    pub fn is_used(&self, used: &BTreeSet<usize>) -> bool {
        self.states().any(|state| used.contains(&state))
    }

    /// Writes a value to a place (`i64`).
    pub fn store(&self, cx: &mut Context<'_>, value: &Lowered, place: V) -> Result<(), Unsupported> {
        // Who finds a text's address in a table that others write looks at its bytes.
        if matches!((&value.repr, self.form), (Repr::Text(_), StoredForm::Text(_))) {
            cx.fence_text();
        }
        self.store_own(cx, value, place)
    }

    /// As [`Self::store`] where nobody looks before the launch is over.
    pub fn store_own(&self, cx: &mut Context<'_>, value: &Lowered, place: V) -> Result<(), Unsupported> {
        if let Some(part) = self.validity {
            let pointer = self.address(cx, part, Scalar::U8, place);
            // Declared nullable, but this pipeline's rows may never be NULL.
            let valid = match value.valid {
                Some(valid) => cx.builder.convert(valid, Scalar::U8),
                None => cx.builder.int(Scalar::U8, 1),
            };
            cx.builder.store(pointer, valid);
        }
        match (&value.repr, self.form) {
            (_, StoredForm::Null) => {}
            (Repr::Scalar(value), StoredForm::Scalar { scalar, part }) => {
                let pointer = self.address(cx, part, scalar, place);
                let value = if self.is_key { normalized(cx, *value) } else { *value };
                let value = cx.builder.convert(value, scalar);
                cx.builder.store(pointer, value);
            }
            (Repr::Text(text), StoredForm::Text(parts)) => {
                self.store_text(cx, parts, (text, value.valid), place);
            }
            (Repr::Text(text), StoredForm::Code { scalar, part }) => {
                let code =
                    text.code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
                let pointer = self.address(cx, part, scalar, place);
                let code = cx.builder.convert(code.value, scalar);
                cx.builder.store(pointer, code);
            }
            _ => return Err(Unsupported("a stored column changed its representation".into())),
        }
        Ok(())
    }

    /// The value at a place (`i64`). Where `present` (if given) is false, NULL: the place must be readable all the same.
    pub fn load(&self, cx: &mut Context<'_>, place: V, present: Option<V>) -> Lowered {
        let valid = self.load_valid(cx, place);
        let valid = match (valid, present) {
            (Some(valid), Some(present)) => Some(cx.builder.and(valid, present)),
            (valid, present) => valid.or(present),
        };
        let repr = match self.form {
            StoredForm::Null => {
                let no = cx.builder.bool(false);
                return Lowered { repr: Repr::Scalar(no), valid: Some(no), range: None };
            }
            StoredForm::Scalar { scalar, part } => {
                let pointer = self.address(cx, part, scalar, place);
                let value = cx.builder.load(pointer);
                Repr::Scalar(self.register(cx, value))
            }
            StoredForm::Text(parts) => Repr::Text(self.load_text(cx, parts, place, present)),
            StoredForm::Code { scalar, part } => {
                let pointer = self.address(cx, part, scalar, place);
                let code = cx.builder.load(pointer);
                let value = cx.builder.convert(code, Scalar::U32);
                let value = self.or_zero(cx, value, present);
                let (scan, column, entries) = self.info.dictionary.unwrap_or_else(|| {
                    cx.impossible("a stored code without a dictionary");
                    Default::default()
                });
                Repr::Text(cx.dictionary_entry(DictionaryCode { value, entries, scan, column }))
            }
        };
        let range = if self.info.data_type.is_float() { None } else { self.info.range };
        Lowered { repr, valid, range: range.or_else(|| self.info.data_type.full_range()) }
    }

    /// The same column where somebody else knows which values are NULL.
    pub fn without_validity(self) -> StoredColumn {
        StoredColumn { validity: None, ..self }
    }

    /// Whether the value at a place is not NULL; `None` where it never is.
    pub fn load_valid(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        self.validity.map(|part| {
            let pointer = self.address(cx, part, Scalar::U8, place);
            let byte = cx.builder.load(pointer);
            let zero = cx.builder.zero(Scalar::U8);
            cx.builder.ne(byte, zero)
        })
    }

    /// The address of a part at a place (`i64`).
    fn address(&self, cx: &mut Context<'_>, part: usize, scalar: Scalar, place: V) -> V {
        let (base, words) = match self.memory {
            Memory::States => {
                let array = cx.argument("stored", Type::global(scalar), Argument::State(part));
                return cx.builder.offset(array, place);
            }
            Memory::Records { state, words } => {
                (cx.argument("records", Type::global(Scalar::U64), Argument::State(state)), words)
            }
            Memory::Own { base, words } => (base, words),
        };
        let b = &mut *cx.builder;
        let index = b.mul_int(place, i64::from(words));
        let record = b.offset(base, index);
        let space = match b.ty(record) {
            Type::Ptr(space, _) => space,
            Type::Scalar(_) | Type::Vector(..) | Type::Mask(_) => Space::Global,
        };
        let record = b.bitcast(record, Type::Ptr(space, Pointee::Scalar(scalar)));
        let distance = b.i32((part as u32 / scalar.bytes()) as i32);
        b.offset(record, distance)
    }

    fn or_zero(&self, cx: &mut Context<'_>, value: V, present: Option<V>) -> V {
        match present {
            Some(present) => {
                let zero = cx.builder.u32(0);
                cx.builder.select(present, value, zero)
            }
            None => value,
        }
    }

    fn register(&self, cx: &mut Context<'_>, stored: V) -> V {
        match register_type(&self.info.data_type, self.info.range) {
            Scalar::Bool => {
                let scalar = cx.builder.scalar(stored);
                let zero = cx.builder.zero(scalar);
                cx.builder.ne(stored, zero)
            }
            register => cx.builder.convert(stored, register),
        }
    }

    /// Whether the value at a place is `key`. NULL equals NULL; where neither may be NULL the caller sees to it that
    /// none is.
    pub fn equals(&self, cx: &mut Context<'_>, key: &Lowered, place: V) -> Result<V, Unsupported> {
        let code = match &key.repr {
            Repr::Text(Text { code: Some(code), .. }) => {
                let is_own = |(scan, column, _)| (scan, column) == (code.scan, code.column);
                self.info.dictionary.is_some_and(is_own).then_some(code.value)
            }
            Repr::Text(_) => None,
            // The key is told by its code in the column's dictionary.
            Repr::Scalar(code) => Some(*code),
        };
        if let (Some(code), StoredForm::Code { scalar, part }) = (code, self.form) {
            let pointer = self.address(cx, part, scalar, place);
            let stored = cx.builder.load(pointer);
            let stored = cx.builder.convert(stored, Scalar::U32);
            let code = cx.builder.convert(code, Scalar::U32);
            let same = cx.builder.eq(stored, code);
            let valid = self.load_valid(cx, place);
            return Ok(equal_or_null(cx, same, key.valid, valid));
        }
        if let (Repr::Text(text), StoredForm::Text(parts)) = (&key.repr, self.form) {
            let valid = self.load_valid(cx, place);
            let same = self.has_text(cx, parts, text, (place, valid));
            return Ok(equal_or_null(cx, same, key.valid, valid));
        }
        let stored = self.load(cx, place, None);
        let same = match (&key.repr, &stored.repr) {
            (Repr::Scalar(value), Repr::Scalar(other)) => scalars_equal(cx, *value, *other),
            // The text under a NULL is unspecified.
            (Repr::Text(text), Repr::Text(other)) => {
                let length = self.or_zero(cx, other.length, stored.valid);
                text_equal(cx, text, &Text { length, ..other.clone() })
            }
            _ => return Err(Unsupported("a key changed its representation".into())),
        };
        Ok(equal_or_null(cx, same, key.valid, stored.valid))
    }
}

/// Bits of floats; integers in the wider of the two types.
fn scalars_equal(cx: &mut Context<'_>, a: V, b: V) -> V {
    let (a, b) = (normalized(cx, a), normalized(cx, b));
    let (left, right) = (cx.builder.scalar(a), cx.builder.scalar(b));
    match left {
        Scalar::F32 | Scalar::F64 => {
            let bits = if left == Scalar::F32 { Scalar::U32 } else { Scalar::U64 };
            let (a, b) = (cx.builder.bitcast(a, bits), cx.builder.bitcast(b, bits));
            cx.builder.eq(a, b)
        }
        Scalar::Bool => cx.builder.eq(a, b),
        _ => {
            let wider = if left.bytes() >= right.bytes() { left } else { right };
            let (a, b) = (cx.builder.convert(a, wider), cx.builder.convert(b, wider));
            cx.builder.eq(a, b)
        }
    }
}

/// Whether two values are equal that are the `same` where neither is NULL, of which NULL equals NULL.
pub(super) fn equal_or_null(cx: &mut Context<'_>, same: V, a: Option<V>, b: Option<V>) -> V {
    match (a, b) {
        (Some(a), Some(b)) => {
            let both_or_neither = cx.builder.eq(a, b);
            let null = cx.builder.not(a);
            let same = cx.builder.or(same, null);
            cx.builder.and(both_or_neither, same)
        }
        (Some(valid), None) | (None, Some(valid)) => cx.builder.and(same, valid),
        (None, None) => same,
    }
}

/// The narrowest unsigned type of a code.
fn unsigned_of(entries: u32) -> Scalar {
    match entries {
        0..=0x100 => Scalar::U8,
        0x101..=0x1_0000 => Scalar::U16,
        _ => Scalar::U32,
    }
}

/// The narrowest type of memory that holds the values.
fn memory_type(data_type: &DataType, range: Option<Range>) -> Scalar {
    match register_type(data_type, range) {
        Scalar::Bool => Scalar::U8,
        Scalar::I32 => match range {
            Some(range) if range.within(Range::new(i8::MIN, i8::MAX)) => Scalar::I8,
            Some(range) if range.within(Range::new(i16::MIN, i16::MAX)) => Scalar::I16,
            _ => Scalar::I32,
        },
        other => other,
    }
}
