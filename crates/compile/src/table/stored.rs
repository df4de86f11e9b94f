//! A column of values beside the slots of a table or the rows of a store.

use std::collections::BTreeSet;

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Scalar, Space, Type};

use crate::context::register_type;
use crate::context::{Argument, Case, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::normalized;
use crate::lower::plain_text;
use crate::lower::text_equal;
use crate::program::States;
use crate::types::{DataType, Range};

/// A stored column.
#[derive(Debug, Clone)]
pub struct StoredColumn {
    info: ColumnInfo,
    form: StoredForm,
    /// State of one byte a place: 1 = not NULL.
    validity: Option<usize>,
    /// A key: -0.0 is stored as 0.0.
    is_key: bool,
}

/// How the values are stored. Text is stored by address: what it points to outlives the stage.
#[derive(Debug, Clone, Copy)]
enum StoredForm {
    /// Always NULL: nothing is stored.
    Null,
    /// A scalar as narrow as the range allows.
    Scalar { scalar: Scalar, state: usize },
    /// The address and the length of a text.
    Text { addresses: usize, lengths: usize },
    /// The code of a dictionary's entry.
    Code { scalar: Scalar, state: usize },
}

impl StoredColumn {
    /// Declares the states of a column whose values are handed on as they are.
    pub(crate) fn plan(
        info: &ColumnInfo,
        class: usize,
        states: &mut States,
    ) -> Result<StoredColumn, Unsupported> {
        StoredColumn::declare(info, false, class, states)
    }

    /// Declares the states of a column of keys: -0.0 is the same key as 0.0.
    pub(crate) fn plan_key(
        info: &ColumnInfo,
        class: usize,
        states: &mut States,
    ) -> Result<StoredColumn, Unsupported> {
        StoredColumn::declare(info, true, class, states)
    }

    fn declare(
        info: &ColumnInfo,
        is_key: bool,
        class: usize,
        states: &mut States,
    ) -> Result<StoredColumn, Unsupported> {
        let form = match (&info.data_type, info.dictionary) {
            (DataType::Null, _) => StoredForm::Null,
            (DataType::Interval, _) => return Err(Unsupported("intervals in a table".into())),
            (_, Some((_, _, entries))) => {
                let scalar = unsigned_of(entries);
                StoredForm::Code { scalar, state: states.state("codes", scalar.bytes(), class) }
            }
            (DataType::Utf8, None) => StoredForm::Text {
                addresses: states.state("text", 8, class),
                lengths: states.state("text_lengths", 4, class),
            },
            _ => {
                let scalar = memory_type(&info.data_type, info.range);
                StoredForm::Scalar { scalar, state: states.state("values", scalar.bytes(), class) }
            }
        };
        let stores = !matches!(form, StoredForm::Null);
        let validity = (info.nullable && stores).then(|| states.state("validity", 1, class));
        Ok(StoredColumn { info: info.clone(), form, validity, is_key })
    }

    /// What is known of the column.
    pub fn info(&self) -> &ColumnInfo {
        &self.info
    }

    /// Its states.
    pub fn states(&self) -> impl Iterator<Item = usize> + use<> {
        let (first, second) = match self.form {
            StoredForm::Null => (None, None),
            StoredForm::Scalar { state, .. } | StoredForm::Code { state, .. } => (Some(state), None),
            StoredForm::Text { addresses, lengths } => (Some(addresses), Some(lengths)),
        };
        first.into_iter().chain(second).chain(self.validity)
    }

    /// Where the addresses and lengths of texts are, where it has such.
    pub fn text_states(&self) -> Option<(usize, usize)> {
        match self.form {
            StoredForm::Text { addresses, lengths } => Some((addresses, lengths)),
            _ => None,
        }
    }

    /// Whether one of its states is among `used`.
    pub fn is_used(&self, used: &BTreeSet<usize>) -> bool {
        self.states().any(|state| used.contains(&state))
    }

    /// Writes a value to a place (`i64`).
    pub fn store(&self, cx: &mut Context<'_>, value: &Lowered, place: V) -> Result<(), Unsupported> {
        if let Some(state) = self.validity {
            let pointer = address(cx, state, Scalar::U8, place);
            // Declared nullable, but this pipeline's rows may never be NULL.
            let valid = match value.valid {
                Some(valid) => cx.builder.convert(valid, Scalar::U8),
                None => cx.builder.int(Scalar::U8, 1),
            };
            cx.builder.store(pointer, valid);
        }
        match (&value.repr, self.form) {
            (_, StoredForm::Null) => {}
            (Repr::Scalar(value), StoredForm::Scalar { scalar, state }) => {
                let pointer = address(cx, state, scalar, place);
                let value = if self.is_key { normalized(cx, *value) } else { *value };
                let value = cx.builder.convert(value, scalar);
                cx.builder.store(pointer, value);
            }
            (Repr::Text(text), StoredForm::Text { addresses, lengths }) => {
                let text = plain_text(cx, text.clone(), value.valid);
                cx.fence_text();
                let pointer = address(cx, addresses, Scalar::U64, place);
                let data = cx.builder.bitcast(text.data, Scalar::U64);
                cx.builder.store(pointer, data);
                let pointer = address(cx, lengths, Scalar::U32, place);
                cx.builder.store(pointer, text.length);
            }
            (Repr::Text(text), StoredForm::Code { scalar, state }) => {
                let code =
                    text.code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
                let pointer = address(cx, state, scalar, place);
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
            StoredForm::Scalar { scalar, state } => {
                let pointer = address(cx, state, scalar, place);
                let value = cx.builder.load(pointer);
                Repr::Scalar(self.register(cx, value))
            }
            StoredForm::Text { addresses, lengths } => {
                let pointer = address(cx, addresses, Scalar::U64, place);
                let data = cx.builder.load(pointer);
                let data = cx.builder.bitcast(data, Type::Ptr(Space::Global, Pointee::Scalar(Scalar::U8)));
                let pointer = address(cx, lengths, Scalar::U32, place);
                let length = cx.builder.load(pointer);
                // What stands at a place that is not taken is no address.
                let length = self.or_zero(cx, length, present);
                Repr::Text(Text { data, length, case: Case::Keep, code: None })
            }
            StoredForm::Code { scalar, state } => {
                let pointer = address(cx, state, scalar, place);
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

    /// Whether the value at a place is not NULL; `None` where it never is.
    pub fn load_valid(&self, cx: &mut Context<'_>, place: V) -> Option<V> {
        self.validity.map(|state| {
            let pointer = address(cx, state, Scalar::U8, place);
            let byte = cx.builder.load(pointer);
            let zero = cx.builder.zero(Scalar::U8);
            cx.builder.ne(byte, zero)
        })
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
        if let (Repr::Text(Text { code: Some(code), .. }), StoredForm::Code { scalar, state }) =
            (&key.repr, self.form)
            && self
                .info
                .dictionary
                .is_some_and(|(scan, column, _)| (scan, column) == (code.scan, code.column))
        {
            let pointer = address(cx, state, scalar, place);
            let stored = cx.builder.load(pointer);
            let stored = cx.builder.convert(stored, Scalar::U32);
            let same = cx.builder.eq(stored, code.value);
            let valid = self.load_valid(cx, place);
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

fn equal_or_null(cx: &mut Context<'_>, same: V, a: Option<V>, b: Option<V>) -> V {
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

fn address(cx: &mut Context<'_>, state: usize, scalar: Scalar, place: V) -> V {
    let array = cx.argument("stored", Type::global(scalar), Argument::State(state));
    cx.builder.offset(array, place)
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
