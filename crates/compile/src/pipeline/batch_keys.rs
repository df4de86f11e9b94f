//! Keys of the rows of a batch that cost much, or may fail: they are kept in the worker's memory from where their searches begin to where
//! these end, and not computed once more. What takes a few instructions is: that costs no more than to write it down and to read it.

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Scalar};

use super::body::Body;
use super::speculation::Speculation;
use crate::context::{Context, Lowered, Repr};
use crate::operator::roles::BatchLookUps;
use crate::types::DataType;

/// Bytes of a key of a row: its value, and whether it is not NULL.
const KEY_BYTES: u32 = 9;

/// Memory for a key of the rows of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptKey {
    /// The step, and the number of its key.
    key: (usize, usize),
    /// `u64` each.
    words: V,
    /// `u8` each, where the key may be NULL.
    valid: Option<V>,
}

/// What a key that is kept of the rows of a batch is in registers.
#[derive(Debug, Clone)]
pub(super) struct KeyForm {
    memory: KeptKey,
    scalar: Scalar,
    /// Of one of the rows.
    form: Lowered,
}

impl Body<'_> {
    /// Memory for the keys of some steps, as far as there is enough, for batches of so many rows.
    pub(super) fn key_memory(&self, cx: &mut Context<'_>, steps: &[usize], rows: u32) -> Vec<KeptKey> {
        let mut kept = Vec::new();
        let look_ups = |step: usize| self.pipeline.steps.get(step)?.batch_look_ups();
        for (step, look_ups) in steps.iter().filter_map(|step| Some((*step, look_ups(*step)?))) {
            for number in costly_keys(look_ups, &self.variants.speculation, step) {
                let (taken, room) = (cx.builder.shared_bytes(), cx.shape.shared_bytes);
                if taken.saturating_add(rows.saturating_mul(KEY_BYTES)).saturating_add(64) > room {
                    return kept;
                }
                let mut array = |name, scalar| cx.builder.shared(name, Pointee::Scalar(scalar), rows);
                let words = array("batch_keys", Scalar::U64);
                let is_nullable = look_ups.keys().get(number).is_some_and(|key| key.nullable);
                let valid = is_nullable.then(|| array("batch_key_valid", Scalar::U8));
                kept.push(KeptKey { key: (step, number), words, valid });
            }
        }
        kept
    }
}

/// The numbers of the keys that cost much, or may fail, and may be numbers of 64 bits.
fn costly_keys(look_ups: &dyn BatchLookUps, speculation: &Speculation<'_>, step: usize) -> Vec<usize> {
    let keys = look_ups.keys().iter().enumerate();
    let costly = keys.filter(|(number, key)| {
        look_ups.has_begun_searches()
            && key.data_type != DataType::Utf8
            && speculation.is_costly_key((step, *number))
    });
    costly.map(|(number, _)| number).collect()
}

/// Keeps those of a step's keys of the row at a place (`i64`) of the batch for which there is memory: as what.
pub(super) fn keep_keys(
    cx: &mut Context<'_>,
    memory: &[KeptKey],
    (step, keys): (usize, &[Lowered]),
    place: V,
) -> Vec<KeyForm> {
    let mut forms = Vec::new();
    for memory in memory.iter().filter(|memory| memory.key.0 == step) {
        let Some(form) = keys.get(memory.key.1) else { continue };
        let Lowered { repr: Repr::Scalar(value), valid, .. } = form else { continue };
        let (scalar, value) = (cx.builder.scalar(*value), *value);
        let Some(word) = word_of(cx, value) else { continue };
        let valid = match (valid, memory.valid) {
            (Some(valid), Some(array)) => Some((cx.builder.convert(*valid, Scalar::U8), array)),
            (Some(_), None) => continue,
            (None, _) => None,
        };
        for (value, array) in [(word, memory.words)].into_iter().chain(valid) {
            let pointer = cx.builder.offset(array, place);
            cx.builder.store(pointer, value);
        }
        forms.push(KeyForm { memory: *memory, scalar, form: form.clone() });
    }
    forms
}

/// The keys that were kept of the row at a place (`i64`), by their numbers.
pub(super) fn kept_keys(cx: &mut Context<'_>, forms: &[KeyForm], place: V) -> Vec<(usize, Lowered)> {
    let mut keys = Vec::new();
    for KeyForm { memory, scalar, form } in forms {
        let word = cx.builder.element(memory.words, place);
        let repr = Repr::Scalar(value_of(cx, word, *scalar));
        let valid = form.valid.and(memory.valid).map(|array| {
            let (valid, zero) = (cx.builder.element(array, place), cx.builder.zero(Scalar::U8));
            cx.builder.ne(valid, zero)
        });
        keys.push((memory.key.1, Lowered { repr, valid, range: form.range }));
    }
    keys
}

/// The bits of a value, where it has no more than 64.
fn word_of(cx: &mut Context<'_>, value: V) -> Option<V> {
    let b = &mut *cx.builder;
    Some(match b.scalar(value) {
        Scalar::I128 => return None,
        Scalar::F64 => b.bitcast(value, Scalar::U64),
        Scalar::F32 => {
            let bits = b.bitcast(value, Scalar::U32);
            b.convert(bits, Scalar::U64)
        }
        _ => b.convert(value, Scalar::U64),
    })
}

/// The value of a scalar type that has these bits.
fn value_of(cx: &mut Context<'_>, word: V, scalar: Scalar) -> V {
    let b = &mut *cx.builder;
    match scalar {
        Scalar::F64 => b.bitcast(word, Scalar::F64),
        Scalar::F32 => {
            let bits = b.convert(word, Scalar::U32);
            b.bitcast(bits, Scalar::F32)
        }
        Scalar::Bool => {
            let zero = b.u64(0);
            b.ne(word, zero)
        }
        _ => b.convert(word, scalar),
    }
}
