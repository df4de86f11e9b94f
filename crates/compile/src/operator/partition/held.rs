//! Rows on their way to their parts: in registers while the block finds places for them, then in the block's memory in the order of
//! their places, so that neighbouring threads write neighbouring places.

use kelpie_kir::builder::{V, Var};
use kelpie_kir::{Builtin, Pointee, Scalar, Type};

use super::PartStore;
use crate::context::{Case, Context, DictionaryCode, Lowered, Repr, Text, Unsupported};
use crate::lower::plain_text;
use crate::primitives::partition::BlockParts;

/// Bytes of a block's memory for rows, at most: several blocks should fit a multiprocessor of an NVIDIA GPU.
const STAGE_BYTES: u32 = 40 << 10;
/// The place of a row that there is none for.
const NOWHERE: u32 = u32::MAX;

/// What a value consists of, each part in a `T`.
#[derive(Debug, Clone)]
enum Parts<T> {
    /// A scalar of a type.
    Scalar(T, Scalar),
    /// Address and length.
    Text(T, T),
    /// The code of a dictionary's entry, which is otherwise this.
    Code(T, DictionaryCode),
}

/// A value of a row.
#[derive(Debug, Clone)]
pub(super) struct Held<T> {
    parts: Parts<T>,
    valid: Option<T>,
}

/// A value in registers.
pub(super) type HeldValue = Held<Var>;

impl<T> Held<T> {
    /// The same, each part made into something else; told of the type that it has in memory.
    fn map<U>(&self, mut f: impl FnMut(&T, Scalar) -> U) -> Held<U> {
        let parts = match &self.parts {
            Parts::Scalar(value, scalar) => Parts::Scalar(f(value, in_memory(*scalar)), *scalar),
            Parts::Text(data, length) => Parts::Text(f(data, Scalar::U64), f(length, Scalar::U32)),
            Parts::Code(code, entry) => Parts::Code(f(code, Scalar::U32), *entry),
        };
        Held { parts, valid: self.valid.as_ref().map(|valid| f(valid, Scalar::U8)) }
    }
}

/// What a register's type is in memory.
fn in_memory(scalar: Scalar) -> Scalar {
    if scalar == Scalar::Bool { Scalar::U8 } else { scalar }
}

impl HeldValue {
    /// Keeps a value. `is_code`: of a text its code alone is wanted.
    pub(super) fn keep(
        cx: &mut Context<'_>,
        value: &Lowered,
        is_code: bool,
    ) -> Result<HeldValue, Unsupported> {
        let parts = match &value.repr {
            Repr::Scalar(scalar) => {
                let ty = in_memory(cx.builder.scalar(*scalar));
                let stored = cx.builder.convert(*scalar, ty);
                Parts::Scalar(cx.builder.var_of("held", stored), cx.builder.scalar(*scalar))
            }
            Repr::Text(Text { code: Some(code), .. }) if is_code => {
                Parts::Code(cx.builder.var_of("held_code", code.value), *code)
            }
            Repr::Text(_) if is_code => {
                return Err(Unsupported::internal("a dictionary column lost its codes"));
            }
            Repr::Text(text) => {
                let text = plain_text(cx, text.clone(), value.valid);
                let data = cx.builder.bitcast(text.data, Scalar::U64);
                let data = cx.builder.var_of("held_text", data);
                Parts::Text(data, cx.builder.var_of("held_length", text.length))
            }
        };
        let valid = value.valid.map(|valid| {
            let valid = cx.builder.convert(valid, Scalar::U8);
            cx.builder.var_of("held_valid", valid)
        });
        Ok(Held { parts, valid })
    }

    /// The value that was kept.
    pub(super) fn value(&self, cx: &mut Context<'_>) -> Lowered {
        self.map(|var, _| cx.builder.read(*var)).lowered(cx)
    }
}

impl Held<V> {
    /// The value of parts that are as in memory.
    fn lowered(&self, cx: &mut Context<'_>) -> Lowered {
        let truth = |cx: &mut Context<'_>, byte: V| {
            let zero = cx.builder.zero(Scalar::U8);
            cx.builder.ne(byte, zero)
        };
        let repr = match &self.parts {
            Parts::Scalar(value, Scalar::Bool) => Repr::Scalar(truth(cx, *value)),
            Parts::Scalar(value, _) => Repr::Scalar(*value),
            Parts::Text(data, length) => {
                let data = cx.builder.bitcast(*data, Type::global(Scalar::U8));
                Repr::Text(Text { data, length: *length, case: Case::Keep, code: None })
            }
            Parts::Code(code, entry) => {
                Repr::Text(cx.dictionary_entry(DictionaryCode { value: *code, ..*entry }))
            }
        };
        let valid = self.valid.map(|valid| truth(cx, valid));
        Lowered { repr, valid, range: None }
    }
}

/// A row's values in registers, by column.
pub(super) type HeldRow = Vec<(usize, HeldValue)>;

/// A block's rows in its memory.
#[derive(Debug)]
pub(super) struct Stage {
    /// Shared, `u32` a row: its place.
    places: V,
    /// Shared arrays, by column.
    columns: Vec<(usize, Held<V>)>,
}

impl Stage {
    /// Declares it for `rows` rows like this one; `None` where it would take too much memory.
    pub(super) fn declare(
        cx: &mut Context<'_>,
        row: &HeldRow,
        (rows, store): (u32, &PartStore),
    ) -> Option<Stage> {
        let mut bytes = 4;
        for (_, value) in row {
            value.map(|_, scalar| bytes += scalar.bytes());
        }
        let most = cx.shape.table_bytes();
        let most = match store.has_many() {
            true => u64::from(most).saturating_sub(BlockParts::bytes(store.parts.into())),
            false => STAGE_BYTES.min(most / 2).into(),
        };
        if u64::from(bytes) * u64::from(rows) > most {
            return None;
        }
        let mut number = 0;
        let mut array = |scalar| {
            number += 1;
            cx.builder.shared(&format!("staged_{number}"), Pointee::Scalar(scalar), rows)
        };
        let places = array(Scalar::U32);
        let staged = |(index, value): &(usize, HeldValue)| (*index, value.map(|_, scalar| array(scalar)));
        let columns = row.iter().map(staged).collect();
        Some(Stage { places, columns })
    }

    /// Puts a row at a position (`u32`), with its place (`u32`) where there `exists` (`bool`) one.
    pub(super) fn put(
        &self,
        cx: &mut Context<'_>,
        position: V,
        row: &HeldRow,
        (place, exists): (V, V),
    ) -> Result<(), Unsupported> {
        let nowhere = cx.builder.u32(NOWHERE);
        let place = cx.builder.select(exists, place, nowhere);
        let pointer = cx.builder.offset(self.places, position);
        cx.builder.store(pointer, place);
        for ((_, value), (_, arrays)) in row.iter().zip(&self.columns) {
            let mut pointers = Vec::new();
            arrays.map(|array, _| pointers.push(cx.builder.offset(*array, position)));
            let mut pointers = pointers.into_iter();
            let mut is_alike = true;
            value.map(|var, _| match pointers.next() {
                Some(pointer) => {
                    let value = cx.builder.read(*var);
                    cx.builder.store(pointer, value);
                }
                None => is_alike = false,
            });
            if !is_alike {
                return Err(Unsupported::internal("rows at once that are not alike"));
            }
        }
        Ok(())
    }

    /// Writes the rows to their places, the threads side by side. Needs a barrier before, at uniform control flow.
    pub(super) fn write(
        &self,
        cx: &mut Context<'_>,
        block: &BlockParts,
        store: &PartStore,
    ) -> Result<(), Unsupported> {
        let b = &mut *cx.builder;
        let count = block.staged(b);
        let thread = b.builtin(Builtin::ThreadId);
        let position = b.var_of("position", thread);
        cx.begin_loop();
        let b = &mut *cx.builder;
        let current = b.read(position);
        let done = b.ge(current, count);
        b.break_if(done);
        let (pointer, nowhere) = (b.offset(self.places, current), b.u32(NOWHERE));
        let place = b.load(pointer);
        let exists = b.ne(place, nowhere);
        cx.begin_if(exists);
        let place = cx.builder.convert(place, Scalar::I64);
        for (index, arrays) in &self.columns {
            let value = arrays.map(|array, _| {
                let pointer = cx.builder.offset(*array, current);
                cx.builder.load(pointer)
            });
            let value = value.lowered(cx);
            store.column(*index)?.store(cx, &value, place)?;
        }
        cx.end();
        let b = &mut *cx.builder;
        let threads = b.builtin(Builtin::BlockDim);
        let next = b.add(current, threads);
        b.assign(position, next);
        cx.end();
        Ok(())
    }
}
