//! Keys of the rows of a batch that cost much, or may fail: they are kept in the worker's memory from where their searches begin to where
//! these end, and not computed once more. What takes a few instructions is: that costs no more than to write it down and to read it.

use kelpie_kir::builder::V;
use kelpie_kir::{Pointee, Scalar, Type};

use crate::context::register_words::{of_words, to_words};
use crate::context::{Context, Lowered, Repr};
use crate::operator::roles::BatchLookUps;
use crate::pipeline::body::Body;
use crate::pipeline::speculation::Speculation;
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

/// Memory for the keys of some steps, as far as there is enough, for batches of so many rows.
pub(super) fn memory(body: &Body<'_>, cx: &mut Context<'_>, steps: &[usize], rows: u32) -> Vec<KeptKey> {
    let mut kept = Vec::new();
    let look_ups = |step: usize| body.pipeline.steps.get(step)?.batch_look_ups();
    for (step, look_ups) in steps.iter().filter_map(|step| Some((*step, look_ups(*step)?))) {
        for number in costly_keys(look_ups, &body.variants.speculation, step) {
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
        if scalar == Scalar::I128 {
            continue;
        }
        let [word] = to_words(cx, value)[..] else { continue };
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
        let repr = Repr::Scalar(of_words(cx, Type::Scalar(*scalar), &[word]));
        let valid = form.valid.and(memory.valid).map(|array| {
            let (valid, zero) = (cx.builder.element(array, place), cx.builder.zero(Scalar::U8));
            cx.builder.ne(valid, zero)
        });
        keys.push((memory.key.1, Lowered { repr, valid, range: form.range }));
    }
    keys
}
