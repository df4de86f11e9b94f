//! Keys that are claimed word by word: wider than one word, and nobody waits for who writes them.
//!
//! The bits of all keys are cut into words, of which one bit says that it is taken. Who looks at a slot puts the first word of its keys into
//! it where there is none, by compare-and-swap, and goes on to the next word where the first is its own, whoever put it there; and so on.
//! A word never changes again, so that a slot whose words are the row's up to one and then another's is no slot of the row's keys, now
//! and later: the search goes on. Rows of equal keys see the same words on their way and end in the same slot. Two threads may put the words
//! of two keys with equal beginnings into one slot: the first to put in a word that differs has it, and the other goes on.
//!
//! Beside it stands the latch (`probes`): the entry of a slot is busy while one thread writes the keys, and the others look again.

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, Scalar};

use crate::context::{Context, Lowered, Repr, Unsupported, register_type};
use crate::layout::ColumnInfo;
use crate::lower::hashing::normalized;
use crate::operator::aggregate::functions::join;
use crate::table::packed::OCCUPIED;
use crate::types::DataType;

/// Bits of keys in a word.
const WORD_BITS: u32 = 63;
/// Words of a slot's keys, at most: each is looked at by an instruction of its own.
const MOST_WORDS: u32 = 4;

/// How keys are cut into words: each column's bits stand behind those of the one before, with one more where it may be NULL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordKeys {
    pub(crate) words: u32,
}

/// Bits of a column, in pieces of 64 at most; `None` where it is no number.
fn pieces(column: &ColumnInfo) -> Option<Vec<u32>> {
    let mut pieces = match (&column.data_type, column.dictionary) {
        (DataType::Null, _) => vec![],
        (_, Some(_)) => vec![32],
        (DataType::Utf8 | DataType::Interval, None) => return None,
        _ => match register_type(&column.data_type, column.range) {
            Scalar::Bool => vec![1],
            Scalar::I128 => vec![64, 64],
            scalar => vec![8 * scalar.bytes()],
        },
    };
    if column.nullable {
        pieces.push(1);
    }
    Some(pieces)
}

impl WordKeys {
    /// How these are cut, if they are numbers or codes that few words have.
    pub(crate) fn of(columns: &[ColumnInfo]) -> Option<WordKeys> {
        let mut bits = 0;
        for column in columns {
            bits += pieces(column)?.iter().sum::<u32>();
        }
        let words = bits.div_ceil(WORD_BITS).max(1);
        (words <= MOST_WORDS).then_some(WordKeys { words })
    }

    /// The words of keys (`u64`), none of which is 0.
    pub(crate) fn encode(
        self,
        cx: &mut Context<'_>,
        columns: &[ColumnInfo],
        values: &[Lowered],
    ) -> Result<Vec<V>, Unsupported> {
        let mut words: Vec<V> = (0..self.words).map(|_| cx.builder.u64(OCCUPIED)).collect();
        let mut place = 0;
        for (column, value) in columns.iter().zip(values) {
            let bits = bits_of(cx, column, value)?;
            let pieces = pieces(column).unwrap_or_default();
            if bits.len() != pieces.len() {
                return Err(Unsupported::internal("a key changed its representation"));
            }
            for (bits, width) in bits.into_iter().zip(pieces) {
                put(cx, &mut words, (bits, width), place);
                place += width;
            }
        }
        Ok(words)
    }

    /// The keys of such words.
    pub(crate) fn decode(self, cx: &mut Context<'_>, columns: &[ColumnInfo], words: &[V]) -> Vec<Lowered> {
        let mut place = 0;
        let mut keys = Vec::with_capacity(columns.len());
        for column in columns {
            let mut bits = Vec::new();
            for width in pieces(column).unwrap_or_default() {
                bits.push(get(cx, words, width, place));
                place += width;
            }
            keys.push(value_of(cx, column, &bits));
        }
        keys
    }
}

/// Puts so many bits, of which no others are set, to a place in the words.
fn put(cx: &mut Context<'_>, words: &mut [V], (bits, width): (V, u32), place: u32) {
    let b = &mut *cx.builder;
    let (mut rest, mut left, mut place) = (bits, width, place);
    while left > 0 {
        let (word, offset) = ((place / WORD_BITS) as usize, place % WORD_BITS);
        let taken = left.min(WORD_BITS - offset);
        let own = if taken < left {
            let mask = b.u64((1 << taken) - 1);
            b.and(rest, mask)
        } else {
            rest
        };
        let own = b.shl_int(own, offset);
        if let Some(word) = words.get_mut(word) {
            *word = b.or(*word, own);
        }
        left -= taken;
        place += taken;
        if left > 0 {
            rest = b.shr_int(rest, taken);
        }
    }
}

/// So many bits at a place in the words.
fn get(cx: &mut Context<'_>, words: &[V], width: u32, place: u32) -> V {
    let b = &mut *cx.builder;
    let (mut all, mut done) = (b.u64(0), 0);
    while done < width {
        let (word, offset) = (((place + done) / WORD_BITS) as usize, (place + done) % WORD_BITS);
        let taken = (width - done).min(WORD_BITS - offset);
        let Some(word) = words.get(word) else { break };
        let (shift, mask, above) = (b.u64(offset.into()), b.u64((1 << taken) - 1), b.u64(done.into()));
        let own = b.binary(BinaryOp::Shr, *word, shift);
        let own = b.and(own, mask);
        let own = b.binary(BinaryOp::Shl, own, above);
        all = b.or(all, own);
        done += taken;
    }
    all
}

/// The bits of a key, in pieces (`u64`). Those of NULL are zeros.
fn bits_of(cx: &mut Context<'_>, column: &ColumnInfo, key: &Lowered) -> Result<Vec<V>, Unsupported> {
    let mut bits = match (&key.repr, &column.data_type) {
        (_, DataType::Null) => vec![],
        (Repr::Text(text), _) => match text.code {
            Some(code) => vec![cx.builder.convert(code.value, Scalar::U64)],
            None => return Err(Unsupported("a dictionary column lost its codes".into())),
        },
        // The key is told by its code in the column's dictionary.
        (Repr::Scalar(code), _) if column.dictionary.is_some() => {
            let code = cx.builder.convert(*code, Scalar::U32);
            vec![cx.builder.convert(code, Scalar::U64)]
        }
        (Repr::Scalar(value), _) => number_bits(cx, column, *value),
    };
    if let Some(valid) = key.valid {
        let zero = cx.builder.u64(0);
        for bits in &mut bits {
            *bits = cx.builder.select(valid, *bits, zero);
        }
    }
    if column.nullable {
        let (null, other) = (cx.builder.u64(1), cx.builder.u64(0));
        bits.push(match (&column.data_type, key.valid) {
            (DataType::Null, _) => null,
            (_, Some(valid)) => cx.builder.select(valid, other, null),
            (_, None) => other,
        });
    }
    Ok(bits)
}

fn number_bits(cx: &mut Context<'_>, column: &ColumnInfo, value: V) -> Vec<V> {
    let register = register_type(&column.data_type, column.range);
    let value = normalized(cx, value);
    let b = &mut *cx.builder;
    if register == Scalar::Bool {
        return vec![b.convert(value, Scalar::U64)];
    }
    let value = b.convert(value, register);
    match register {
        Scalar::I128 => {
            let (low, shift) = (b.convert(value, Scalar::U64), b.int(Scalar::I128, 64));
            let high = b.binary(BinaryOp::Shr, value, shift);
            vec![low, b.convert(high, Scalar::U64)]
        }
        _ if register.bytes() == 4 => {
            let bits = b.bitcast(value, Scalar::U32);
            vec![b.convert(bits, Scalar::U64)]
        }
        _ => vec![b.bitcast(value, Scalar::U64)],
    }
}

/// The key that has such bits.
fn value_of(cx: &mut Context<'_>, column: &ColumnInfo, bits: &[V]) -> Lowered {
    let valid = bits.last().filter(|_| column.nullable).copied();
    let valid = valid.map(|null| cx.builder.eq_int(null, 0));
    let range = if column.data_type.is_float() { None } else { column.range };
    let range = range.or_else(|| column.data_type.full_range());
    let &[low, ..] = bits else {
        let no = cx.builder.bool(false);
        return Lowered { repr: Repr::Scalar(no), valid: Some(no), range: None };
    };
    if let Some((scan, own, entries)) = column.dictionary {
        let code = cx.builder.convert(low, Scalar::U32);
        let text = cx.entry_of_any(code, (scan, own, entries));
        return Lowered { repr: Repr::Text(text), valid, range };
    }
    let b = &mut *cx.builder;
    let value = match (register_type(&column.data_type, column.range), bits) {
        _ if column.data_type == DataType::Null => b.bool(false),
        (Scalar::Bool, _) => b.ne_int(low, 0),
        (Scalar::I128, &[low, high, ..]) => join(cx, low, high),
        (register, _) if register.bytes() == 4 => {
            let half = b.convert(low, Scalar::U32);
            b.bitcast(half, register)
        }
        (register, _) => b.bitcast(low, register),
    };
    Lowered { repr: Repr::Scalar(value), valid, range }
}
