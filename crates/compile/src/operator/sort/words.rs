//! Sort keys as words: a string of bits whose order as an unsigned number is the keys' order, cut into words of 64 bits,
//! the most significant first.
//!
//! | type | bits |
//! |---|---|
//! | nullable | 1: NULL's place before or after the others |
//! | integers, dates, timestamps, decimals | value − minimum, as many as the range needs (128 where unknown) |
//! | `Boolean` | 1 |
//! | floats | 32 or 64: IEEE 754 total order, as Arrow's |
//! | text of a dictionary | its code, as many as the entries need |
//! | other text | 127: the first 15 bytes, then the length, which is at most 16 |
//!
//! Descending keys are complemented. So NULLs are equal, and two texts may be: those of 16 bytes or more that begin with
//! the same 15. Everything else is exact. A text has two words of its own, with the place of its NULL as their first bit: what
//! comes after it only decides where the text does, and who looks further into texts (the engine's selection of rows by
//! rank) does so between the two. The lowest bits of the second word are the length ([`is_cut`]).

use kelpie_kir::builder::V;
use kelpie_kir::{BinaryOp, CompareOp, Scalar, Type};

use crate::context::{Case, Constant, Context, Lowered, Repr, Text, Unsupported};
use crate::layout::ColumnInfo;
use crate::lower::hashing::normalized;
use crate::operator::output::map_case;
use crate::primitives::select::big_endian;
use crate::types::{DataType, Range};

/// Bytes of a text whose keys are exact, at most. Texts of more bytes are equal where the first 15 are.
pub const EXACT_TEXT_BYTES: u32 = 15;

/// Bits of the head of a text, and of the rest with its length.
const HEAD_BITS: u32 = 64;
const TAIL_BITS: u32 = 63;
const LENGTH_BITS: u32 = 7;
const HEAD_BYTES: u32 = 8;

/// The bits of a word that ends a text which have the text's length.
pub const CUT_BITS: u64 = (1 << LENGTH_BITS) - 1;

/// Whether the text that ends in a word is longer than what the words have of it.
pub fn is_cut(word: u64, descending: bool) -> bool {
    let word = if descending { !word } else { word };
    word & CUT_BITS == u64::from(EXACT_TEXT_BYTES) + 1
}

/// One key.
#[derive(Debug, Clone)]
pub struct WordKey {
    /// Column of the rows.
    pub column: usize,
    /// Complemented.
    pub descending: bool,
    /// NULLs before the others.
    pub nulls_first: bool,
    /// A key of groups: -0.0 is the same as 0.0.
    pub is_group: bool,
}

#[derive(Debug, Clone)]
pub(super) struct WordField {
    pub key: WordKey,
    pub part: WordPart,
    pub bits: u32,
    /// Bits before it.
    pub offset: u32,
}

/// What of a key a field holds.
#[derive(Debug, Clone, Copy)]
pub(super) enum WordPart {
    /// Whether it is NULL.
    Null,
    Boolean,
    Float,
    /// Value − minimum.
    Integer(Range),
    /// The upper half of a 128-bit integer, and the lower one.
    High,
    Low,
    Head,
    Tail,
    /// The code of a dictionary's entry, whose entries are in order.
    Code,
}

/// Keys, laid out.
#[derive(Debug, Clone)]
pub struct Words {
    fields: Vec<WordField>,
    bits: u32,
    texts: Vec<WordText>,
}

/// A text among keys.
#[derive(Debug, Clone)]
pub(super) struct WordText {
    pub key: WordKey,
    /// The word that ends it.
    pub word: usize,
}

impl Words {
    /// Lays keys over `columns` out.
    pub(crate) fn plan(keys: &[WordKey], columns: &[ColumnInfo]) -> Result<Words, Unsupported> {
        let mut words = Words { fields: Vec::new(), bits: 0, texts: Vec::new() };
        for key in keys {
            let info = columns
                .get(key.column)
                .ok_or_else(|| Unsupported(format!("sort key {} is not a column", key.column)))?;
            let parts = parts_of(info)?;
            let is_text = info.data_type == DataType::Utf8 && info.dictionary.is_none();
            if is_text {
                words.bits = words.bits.next_multiple_of(64) + u32::from(!info.nullable);
            }
            // Also where all that is not NULL is one value.
            if info.nullable && info.data_type != DataType::Null {
                words.push(key, WordPart::Null, 1);
            }
            for (part, bits) in parts {
                words.push(key, part, bits);
            }
            if is_text {
                words.texts.push(WordText { key: key.clone(), word: words.bits as usize / 64 - 1 });
            }
        }
        Ok(words)
    }

    /// Lays the first `groups` columns out, in any order of their values, and then keys.
    pub(crate) fn plan_groups(
        groups: usize,
        keys: &[WordKey],
        columns: &[ColumnInfo],
    ) -> Result<Words, Unsupported> {
        let group = |column| WordKey { column, descending: false, nulls_first: false, is_group: true };
        let keys: Vec<WordKey> = (0..groups).map(group).chain(keys.iter().cloned()).collect();
        Words::plan(&keys, columns)
    }

    /// The same where rows whose words are equal may come in any order, whatever their texts.
    pub(crate) fn by_words_alone(self) -> Words {
        Words { texts: Vec::new(), ..self }
    }

    /// The fields that the first word begins with, up to a text or one that is no column of what is below; `None` where there is no such one.
    pub(super) fn beginning(&self, below: &dyn Fn(usize) -> Option<usize>) -> Option<Words> {
        let is_in_word = |field: &&WordField| {
            field.offset < u64::BITS && !matches!(field.part, WordPart::Head | WordPart::Tail)
        };
        let moved = |field: &WordField| {
            let key = WordKey { column: below(field.key.column)?, ..field.key.clone() };
            Some(WordField { key, ..field.clone() })
        };
        let fields: Vec<WordField> = self.fields.iter().take_while(is_in_word).map_while(moved).collect();
        let bits = fields.last().map(|field| field.offset + field.bits)?;
        Some(Words { fields, bits, texts: Vec::new() })
    }

    /// The words of the current row, whose bits of a column and of all behind it are 0.
    pub(crate) fn before_column(&self, cx: &mut Context<'_>, column: usize) -> Result<Vec<V>, Unsupported> {
        let is_before = |field: &&WordField| field.key.column < column;
        let fields = self.fields.iter().filter(is_before).cloned().collect();
        let first = Words { fields, bits: self.bits, texts: Vec::new() };
        (0..self.count()).map(|word| first.word(cx, word)).collect()
    }

    /// Why no column can be read from the words, if none can.
    pub(crate) fn lacks_columns(&self, columns: usize) -> Option<&'static str> {
        let decodes = (0..columns).any(|column| self.decodes(column));
        (!decodes).then_some("the first word has no column as a whole")
    }

    fn push(&mut self, key: &WordKey, part: WordPart, bits: u32) {
        self.fields.push(WordField { key: key.clone(), part, bits, offset: self.bits });
        self.bits += bits;
    }

    /// Number of words; at least 1.
    pub fn count(&self) -> usize {
        self.bits.div_ceil(64).max(1) as usize
    }

    /// Bits of all keys together.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// Whether rows whose words are equal have equal keys.
    pub fn is_exact(&self) -> bool {
        self.texts.is_empty()
    }

    /// The first key, where it is a text that is no code.
    pub(super) fn leading_text(&self) -> Option<&WordKey> {
        let text = self.texts.first().filter(|text| text.word == 1)?;
        Some(&text.key)
    }

    /// The texts among the keys.
    pub(super) fn texts(&self) -> &[WordText] {
        &self.texts
    }

    /// What they consist of.
    pub(super) fn fields(&self) -> &[WordField] {
        &self.fields
    }

    /// The columns that they are made of.
    pub fn columns(&self) -> impl Iterator<Item = usize> {
        self.fields.iter().map(|field| field.key.column)
    }

    /// Whether the first word is not full though there are keys behind it: a text has words of its own.
    fn has_gap(&self) -> bool {
        let ends = self.fields.iter().map(|field| field.offset + field.bits);
        let starts = self.fields.iter().skip(1).map(|field| field.offset);
        ends.zip(starts).any(|(end, start)| end < start && end < 64)
    }

    /// The first 64 bits of the current row's keys with nothing between two keys, `u64`: the order of rows is theirs, though not all of it.
    /// `None` where that is the first word.
    pub(super) fn leading_bits(&self, cx: &mut Context<'_>) -> Result<Option<V>, Unsupported> {
        if !self.has_gap() {
            return Ok(None);
        }
        let (mut word, mut end) = (cx.builder.u64(0), 0);
        for field in &self.fields {
            if end >= 64 {
                break;
            }
            end += field.bits;
            let value = field.value(cx)?;
            let (op, distance) =
                if end <= 64 { (BinaryOp::Shl, 64 - end) } else { (BinaryOp::Shr, end - 64) };
            let distance = cx.builder.u64(distance.into());
            let placed = cx.builder.binary(op, value, distance);
            word = cx.builder.binary(BinaryOp::Or, word, placed);
        }
        Ok(Some(word))
    }

    /// Word `index` of the current row, `u64`.
    pub fn word(&self, cx: &mut Context<'_>, index: usize) -> Result<V, Unsupported> {
        let (from, to) = (index as u32 * 64, index as u32 * 64 + 64);
        let mut word: Option<V> = None;
        for field in self.fields.iter().filter(|field| field.offset < to && field.offset + field.bits > from)
        {
            let value = field.value(cx)?;
            let end = field.offset + field.bits;
            let (op, distance) =
                if end <= to { (BinaryOp::Shl, to - end) } else { (BinaryOp::Shr, end - to) };
            let distance = cx.builder.u64(distance.into());
            let placed = cx.builder.binary(op, value, distance);
            word = Some(match word {
                Some(word) => cx.builder.binary(BinaryOp::Or, word, placed),
                None => placed,
            });
        }
        Ok(word.unwrap_or_else(|| cx.builder.u64(0)))
    }
}

fn parts_of(info: &ColumnInfo) -> Result<Vec<(WordPart, u32)>, Unsupported> {
    if let Some((_, _, entries)) = info.dictionary {
        let bits = u32::BITS - entries.saturating_sub(1).leading_zeros();
        return Ok(if bits == 0 { Vec::new() } else { vec![(WordPart::Code, bits)] });
    }
    Ok(match &info.data_type {
        DataType::Null => Vec::new(),
        DataType::Interval => return Err(Unsupported("intervals as sort keys".into())),
        DataType::Boolean => vec![(WordPart::Boolean, 1)],
        DataType::Float32 => vec![(WordPart::Float, 32)],
        DataType::Float64 => vec![(WordPart::Float, 64)],
        DataType::Utf8 => vec![(WordPart::Head, HEAD_BITS), (WordPart::Tail, TAIL_BITS)],
        data_type => {
            let range = info.range.or_else(|| data_type.full_range());
            let span = range.and_then(|range| range.max.checked_sub(range.min).map(|span| (range, span)));
            match span {
                Some((range, span)) if (0..=u64::MAX.into()).contains(&span) => match span {
                    0 => Vec::new(),
                    _ => vec![(WordPart::Integer(range), i128::BITS - span.leading_zeros())],
                },
                _ => vec![(WordPart::High, 64), (WordPart::Low, 64)],
            }
        }
    })
}

impl WordField {
    fn value(&self, cx: &mut Context<'_>) -> Result<V, Unsupported> {
        let value = cx.column(self.key.column)?;
        if let WordPart::Null = self.part {
            return Ok(self.null_flag(cx, &value));
        }
        let bits = match (&value.repr, self.part) {
            (Repr::Text(text), WordPart::Code) => {
                let code =
                    text.code.ok_or_else(|| Unsupported("a dictionary column lost its codes".into()))?;
                cx.builder.convert(code.value, Scalar::U64)
            }
            (Repr::Text(text), WordPart::Head) => text_bytes(cx, text, 0, HEAD_BYTES),
            (Repr::Text(text), WordPart::Tail) => {
                let bytes = text_bytes(cx, text, HEAD_BYTES, EXACT_TEXT_BYTES - HEAD_BYTES);
                let shift = cx.builder.u64(LENGTH_BITS.into());
                let bytes = cx.builder.binary(BinaryOp::Shl, bytes, shift);
                let longest = cx.builder.u32(EXACT_TEXT_BYTES + 1);
                let length = cx.builder.binary(BinaryOp::Min, text.length, longest);
                let length = cx.builder.convert(length, Scalar::U64);
                cx.builder.binary(BinaryOp::Or, bytes, length)
            }
            (Repr::Scalar(scalar), part) if self.key.is_group => {
                let scalar = normalized(cx, *scalar);
                scalar_bits(cx, scalar, part)
            }
            (Repr::Scalar(scalar), part) => scalar_bits(cx, *scalar, part),
            _ => return Err(Unsupported("a sort key changed its representation".into())),
        };
        let bits = match self.key.descending {
            true => {
                let mask = cx.builder.u64(u64::MAX >> (64 - self.bits));
                cx.builder.binary(BinaryOp::Xor, bits, mask)
            }
            false => bits,
        };
        Ok(match value.valid {
            Some(valid) => {
                let zero = cx.builder.u64(0);
                cx.builder.select(valid, bits, zero)
            }
            None => bits,
        })
    }

    fn null_flag(&self, cx: &mut Context<'_>, value: &Lowered) -> V {
        // Declared nullable, but this pipeline's rows may never be NULL.
        let valid = match value.valid {
            Some(valid) => cx.builder.convert(valid, Scalar::U64),
            None => cx.builder.u64(1),
        };
        match self.key.nulls_first {
            true => valid,
            false => {
                let one = cx.builder.u64(1);
                cx.builder.binary(BinaryOp::Xor, valid, one)
            }
        }
    }
}

fn scalar_bits(cx: &mut Context<'_>, value: V, part: WordPart) -> V {
    match part {
        WordPart::Float => float_bits(cx, value),
        WordPart::Integer(range) => {
            let narrow = range.within(Range::new(i64::MIN, i64::MAX));
            let register = if narrow { Scalar::I64 } else { Scalar::I128 };
            let value = cx.builder.convert(value, register);
            let distance = match range.min {
                0 => value,
                min => {
                    let min = cx.constant(Constant::Int(register, min));
                    cx.builder.sub(value, min)
                }
            };
            cx.builder.convert(distance, Scalar::U64)
        }
        WordPart::High => {
            let value = cx.builder.convert(value, Scalar::I128);
            let shift = cx.builder.int(Scalar::I128, 64);
            let high = cx.builder.binary(BinaryOp::Shr, value, shift);
            let high = cx.builder.convert(high, Scalar::U64);
            let sign = cx.builder.u64(1 << 63);
            cx.builder.binary(BinaryOp::Xor, high, sign)
        }
        WordPart::Low => {
            let value = cx.builder.convert(value, Scalar::I128);
            cx.builder.convert(value, Scalar::U64)
        }
        WordPart::Null | WordPart::Boolean | WordPart::Head | WordPart::Tail | WordPart::Code => {
            cx.builder.convert(value, Scalar::U64)
        }
    }
}

/// The bits of a float in its total order: negative ones complemented, others with the sign set.
fn float_bits(cx: &mut Context<'_>, value: V) -> V {
    let b = &mut *cx.builder;
    let (signed, unsigned) = match b.scalar(value) {
        Scalar::F32 => (Scalar::I32, Scalar::U32),
        _ => (Scalar::I64, Scalar::U64),
    };
    let bits = b.bitcast(value, signed);
    let shift = b.int(signed, signed.bits() - 1);
    let negative = b.binary(BinaryOp::Shr, bits, shift);
    let negative = b.bitcast(negative, unsigned);
    let sign = b.int(unsigned, 1i128 << (unsigned.bits() - 1));
    let flips = b.binary(BinaryOp::Or, negative, sign);
    let bits = b.bitcast(bits, unsigned);
    let ordered = b.binary(BinaryOp::Xor, bits, flips);
    b.convert(ordered, Scalar::U64)
}

/// Bytes `from..from + count` of a text as a big-endian number, at most 8; 0 beyond its end.
fn text_bytes(cx: &mut Context<'_>, text: &Text, from: u32, count: u32) -> V {
    let (from, count) = (cx.builder.u32(from), cx.builder.u32(count));
    bytes_at(cx, text.case, [text.data, text.length, from, count])
}

/// The same of the bytes and the length of a text, and where to begin and how many bytes to take (`u32`).
pub(super) fn bytes_at(cx: &mut Context<'_>, case: Case, arguments: [V; 4]) -> V {
    let name = match case {
        Case::Keep => "sort_bytes",
        Case::Upper => "sort_bytes_upper",
        Case::Lower => "sort_bytes_lower",
    };
    let known = cx.builder.module().functions.iter().find(|(_, function)| function.name == name);
    let function = match known {
        Some((handle, _)) => handle,
        None => {
            let params = [
                ("data", Type::global(Scalar::U8)),
                ("length", Type::U32),
                ("from", Type::U32),
                ("count", Type::U32),
            ];
            cx.builder.begin_function(name, &params, Some(Scalar::U64.into()));
            bytes_function(cx, case);
            cx.builder.end_function()
        }
    };
    cx.builder.call(function, &arguments)
}

fn bytes_function(cx: &mut Context<'_>, case: Case) {
    let [data, length, from, count] = [0, 1, 2, 3].map(|index| cx.builder.param(index));
    let zero = cx.builder.u64(0);
    let word = cx.builder.var_of("word", zero);
    if let Case::Keep = case {
        let eight = cx.builder.u32(8);
        let reach = cx.builder.add(from, eight);
        let is_long = cx.builder.ge(length, reach);
        cx.begin_if(is_long);
        let b = &mut *cx.builder;
        let first = b.offset(data, from);
        let loaded = b.load_bytes(first);
        let loaded = big_endian(b, loaded);
        // Bytes behind the last one that is asked for.
        let behind = b.sub(eight, count);
        let behind = b.mul(behind, eight);
        let behind = b.convert(behind, Scalar::U64);
        let loaded = b.binary(BinaryOp::Shr, loaded, behind);
        b.return_value(loaded);
        cx.end();
    }
    let end = cx.builder.add(from, count);
    let position = cx.builder.var_of("position", from);
    cx.begin_loop();
    let current = cx.builder.read(position);
    let done = cx.builder.ge(current, end);
    cx.builder.break_if(done);
    let byte = cx.builder.var("byte", Scalar::U64);
    let none = cx.builder.u64(0);
    cx.builder.assign(byte, none);
    let exists = cx.builder.compare(CompareOp::Lt, current, length);
    cx.begin_if(exists);
    // It may have been made in this launch, so that it must not be read as what nobody writes.
    let pointer = cx.builder.offset(data, current);
    let stored = cx.builder.load(pointer);
    let stored = map_case(cx, stored, case);
    let stored = cx.builder.convert(stored, Scalar::U64);
    cx.builder.assign(byte, stored);
    cx.end();
    let b = &mut *cx.builder;
    let (old, eight, byte) = (b.read(word), b.u64(8), b.read(byte));
    let shifted = b.binary(BinaryOp::Shl, old, eight);
    let new = b.binary(BinaryOp::Or, shifted, byte);
    b.assign(word, new);
    let one = b.u32(1);
    let next = b.add(current, one);
    b.assign(position, next);
    cx.end();
    let word = cx.builder.read(word);
    cx.builder.return_value(word);
}
