//! Text columns: codes of a dictionary while it stays small, else offsets and bytes.

mod gathered;

use std::hash::{BuildHasher, RandomState};
use std::iter::repeat_n;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{
    Array, ArrayAccessor, ArrayRef, AsArray, DictionaryArray, GenericStringArray, OffsetSizeTrait,
    downcast_dictionary_array,
};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType};

pub(super) use self::gathered::Gathered;
use super::{coding, spread};

/// A dictionary has at most this many entries, so that a code fits 16 bits.
pub(super) const MAX_ENTRIES: usize = 1 << 16;
/// ... and at most this many bytes.
const MAX_ENTRY_BYTES: usize = 256 << 20;

/// Distinct texts, numbered in the order in which they were first seen.
#[derive(Debug)]
pub(super) struct Interner {
    /// Open addressing with linear probing, a power of two of slots, at most half full: upper half of the hash and
    /// code + 1; 0 where empty.
    slots: Vec<u64>,
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    limit: usize,
    /// Random, so that no data can be made to collide.
    seed: u64,
}

impl Interner {
    /// For at most `limit` (and at most 65,536) entries.
    pub(super) fn new(limit: usize) -> Interner {
        let (slots, offsets) = (vec![0; 64], vec![0]);
        let seed = RandomState::new().hash_one(0u8);
        Interner { slots, offsets, bytes: Vec::new(), limit: limit.min(MAX_ENTRIES), seed }
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Offsets of the entries, one more than there are.
    pub(super) fn offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Bytes of all entries.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// An entry; empty where the code is none.
    pub(super) fn entry(&self, code: usize) -> &[u8] {
        match (self.offsets.get(code), self.offsets.get(code + 1)) {
            (Some(start), Some(end)) => self.bytes.get(*start as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// The code of a text, which is added where it is new; `None` where that exceeds the limits.
    pub(super) fn intern(&mut self, text: &[u8]) -> Option<u16> {
        let hash = self.hash(text);
        let mask = self.slots.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let slot = *self.slots.get(index)?;
            if slot == 0 {
                break;
            }
            let code = (slot as u32 - 1) as usize;
            if slot >> 32 == hash >> 32 && self.entry(code) == text {
                return Some(code as u16);
            }
            index = (index + 1) & mask;
        }
        if self.len() >= self.limit || self.bytes.len() + text.len() > MAX_ENTRY_BYTES {
            return None;
        }
        let code = self.len();
        self.bytes.extend_from_slice(text);
        self.offsets.push(self.bytes.len() as u32);
        *self.slots.get_mut(index)? = (hash >> 32 << 32) | (code as u64 + 1);
        if self.len() * 2 > self.slots.len() {
            self.grow();
        }
        Some(code as u16)
    }

    fn grow(&mut self) {
        let mask = self.slots.len() * 2 - 1;
        // Written at once: memory that is read first is mapped twice.
        let mut slots: Vec<u64> = repeat_n(0, mask + 1).collect();
        for code in 0..self.len() {
            let hash = self.hash(self.entry(code));
            let mut index = hash as usize & mask;
            while slots[index] != 0 {
                index = (index + 1) & mask;
            }
            slots[index] = (hash >> 32 << 32) | (code as u64 + 1);
        }
        self.slots = slots;
    }

    /// A multiply-and-fold hash, 8 bytes a step: short texts dominate, for which a keyed SipHash is too slow.
    fn hash(&self, text: &[u8]) -> u64 {
        const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
        let fold = |value: u64| {
            let product = u128::from(value) * u128::from(MULTIPLIER);
            (product as u64) ^ ((product >> 64) as u64)
        };
        let mut hash = fold(self.seed ^ text.len() as u64);
        let (words, tail) = text.as_chunks::<8>();
        for word in words {
            hash = fold(hash ^ u64::from_le_bytes(*word));
        }
        let rest = tail.iter().rev().fold(0, |rest, byte| rest << 8 | u64::from(*byte));
        fold(hash ^ rest)
    }
}

/// Offsets of texts as Arrow has them.
#[derive(Debug, Clone)]
pub(super) enum TextOffsets {
    I32(ScalarBuffer<i32>),
    I64(ScalarBuffer<i64>),
}

/// The texts of a batch, or of several.
#[derive(Debug)]
pub(super) enum TextChunk {
    /// Codes of the partition's dictionary.
    Codes(Vec<u16>),
    /// Offsets, one more than rows, into bytes; the first need not be 0.
    Raw(TextOffsets, Buffer),
    /// Texts of several batches that were copied together.
    Gathered(Gathered),
}

/// The texts of a partition.
#[derive(Debug)]
pub(super) struct TextPartition {
    pub(super) entries: Interner,
    pub(super) chunks: Vec<TextChunk>,
    /// Codes of the values of the dictionary that came last.
    known: KnownCodes,
    /// More entries are not worth a dictionary.
    most: usize,
    /// Rows that have codes.
    coded: usize,
}

/// Which code each value of a dictionary of Arrow's has; batches of a reader mostly share theirs.
#[derive(Debug, Default)]
struct KnownCodes {
    values: Option<ArrayRef>,
    /// [`UNKNOWN`] where no row has referred to a value yet.
    codes: Vec<u32>,
}

const UNKNOWN: u32 = u32::MAX;

impl KnownCodes {
    /// The codes of a dictionary's values, none known where it is another one than before.
    fn of(&mut self, values: &ArrayRef) -> &mut [u32] {
        if !self.values.as_ref().is_some_and(|known| Arc::ptr_eq(known, values)) {
            self.codes.clear();
            self.codes.resize(values.len(), UNKNOWN);
            self.values = Some(Arc::clone(values));
        }
        &mut self.codes
    }
}

/// Rows after which it is told by those that were seen whether there are too many texts. A dictionary is worth much: fewer rows would take
/// twenty thousand texts that come in turn for too many.
const TRIAL_ROWS: usize = 1 << 15;

impl TextChunk {
    pub(super) fn rows(&self) -> usize {
        match self {
            TextChunk::Codes(codes) => codes.len(),
            TextChunk::Raw(TextOffsets::I32(offsets), _) => offsets.len().saturating_sub(1),
            TextChunk::Raw(TextOffsets::I64(offsets), _) => offsets.len().saturating_sub(1),
            TextChunk::Gathered(gathered) => gathered.rows(),
        }
    }

    /// Bytes of the texts, laid out one after the other.
    pub(super) fn text_bytes(&self, entries: &Interner) -> u64 {
        fn span<O: ArrowNativeType>(offsets: &[O]) -> u64 {
            let at = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize() as u64);
            at(offsets.last()).saturating_sub(at(offsets.first()))
        }
        match self {
            TextChunk::Codes(codes) => {
                codes.iter().map(|code| entries.entry(usize::from(*code)).len() as u64).sum()
            }
            TextChunk::Raw(TextOffsets::I32(offsets), _) => span(offsets),
            TextChunk::Raw(TextOffsets::I64(offsets), _) => span(offsets),
            TextChunk::Gathered(gathered) => gathered.bytes().len() as u64,
        }
    }

    /// Length of the longest text in bytes.
    pub(super) fn longest(&self, entries: &Interner) -> u64 {
        fn longest<O: ArrowNativeType>(offsets: &[O]) -> u64 {
            let lengths = offsets.windows(2).map(|pair| match pair {
                [start, end] => end.as_usize().saturating_sub(start.as_usize()) as u64,
                _ => 0,
            });
            lengths.max().unwrap_or(0)
        }
        match self {
            TextChunk::Codes(codes) => {
                codes.iter().map(|code| entries.entry(usize::from(*code)).len() as u64).max().unwrap_or(0)
            }
            TextChunk::Raw(TextOffsets::I32(offsets), _) => longest(offsets),
            TextChunk::Raw(TextOffsets::I64(offsets), _) => longest(offsets),
            TextChunk::Gathered(gathered) => {
                let first = gathered.ends().first().copied().unwrap_or(0);
                u64::from(first).max(longest(gathered.ends()))
            }
        }
    }

    /// Some of its texts in order, about so many; of codes none.
    pub(super) fn sample(&self, count: usize) -> Vec<&[u8]> {
        let range = |row: usize| match self {
            TextChunk::Codes(_) => None,
            TextChunk::Raw(TextOffsets::I32(offsets), _) => {
                Some(offsets.get(row)?.as_usize()..offsets.get(row + 1)?.as_usize())
            }
            TextChunk::Raw(TextOffsets::I64(offsets), _) => {
                Some(offsets.get(row)?.as_usize()..offsets.get(row + 1)?.as_usize())
            }
            TextChunk::Gathered(gathered) => {
                let start =
                    row.checked_sub(1).map_or(Some(0), |before| gathered.ends().get(before).copied())?;
                Some(start as usize..*gathered.ends().get(row)? as usize)
            }
        };
        let bytes: &[u8] = match self {
            TextChunk::Codes(_) => &[],
            TextChunk::Raw(_, bytes) => bytes,
            TextChunk::Gathered(gathered) => gathered.bytes(),
        };
        spread::places(self.rows(), count).filter_map(|row| bytes.get(range(row)?)).collect()
    }

    /// Appends where each text ends, given where the first one starts.
    pub(super) fn append_ends<E: ArrowNativeType>(&self, entries: &Interner, ends: &mut Vec<E>, start: u64) {
        fn shift<O: ArrowNativeType, E: ArrowNativeType>(offsets: &[O], ends: &mut Vec<E>, start: u64) {
            let first = offsets.first().map_or(0, |first| first.as_usize());
            let end = |offset: &O| E::usize_as(start as usize + (offset.as_usize() - first));
            ends.extend(offsets.iter().skip(1).map(end));
        }
        match self {
            TextChunk::Codes(codes) => {
                let mut end = start as usize;
                ends.extend(codes.iter().map(|code| {
                    end += entries.entry(usize::from(*code)).len();
                    E::usize_as(end)
                }));
            }
            TextChunk::Raw(TextOffsets::I32(offsets), _) => shift(offsets, ends, start),
            TextChunk::Raw(TextOffsets::I64(offsets), _) => shift(offsets, ends, start),
            TextChunk::Gathered(gathered) => {
                let end = |end: &u32| E::usize_as(start as usize + *end as usize);
                ends.extend(gathered.ends().iter().map(end));
            }
        }
    }

    /// Its texts one after the other, where it has them so.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        fn span<'a, O: ArrowNativeType>(offsets: &[O], text: &'a [u8]) -> Option<&'a [u8]> {
            text.get(offsets.first()?.as_usize()..offsets.last()?.as_usize())
        }
        match self {
            TextChunk::Codes(_) => None,
            TextChunk::Raw(TextOffsets::I32(offsets), text) => span(offsets, text),
            TextChunk::Raw(TextOffsets::I64(offsets), text) => span(offsets, text),
            TextChunk::Gathered(gathered) => Some(gathered.bytes()),
        }
    }

    /// Appends the texts' bytes.
    pub(super) fn append_bytes(&self, entries: &Interner, bytes: &mut Vec<u8>) {
        match self {
            TextChunk::Codes(codes) => {
                codes.iter().for_each(|code| bytes.extend_from_slice(entries.entry(usize::from(*code))));
            }
            _ => bytes.extend_from_slice(self.bytes().unwrap_or_default()),
        }
    }
}

/// The codes of some chunks, as a partition's codes became the dictionary's.
pub(super) fn remapped<C>(run: &[TextChunk], remap: &[u16], stored: impl Fn(u16) -> C) -> Vec<C> {
    let mut all = Vec::with_capacity(run.iter().map(TextChunk::rows).sum());
    for chunk in run {
        let codes = if let TextChunk::Codes(codes) = chunk { codes.as_slice() } else { &[] };
        // The code of a NULL is 0, which no entry need have.
        let of = |code: &u16| stored(remap.get(usize::from(*code)).copied().unwrap_or(0));
        all.extend(codes.iter().map(of));
    }
    all
}

impl TextPartition {
    /// Of a table of so many rows, where they are known.
    pub(super) fn new(rows: Option<u64>) -> TextPartition {
        let rows = rows.and_then(|rows| usize::try_from(rows).ok());
        TextPartition {
            entries: Interner::new(MAX_ENTRIES),
            chunks: Vec::new(),
            known: KnownCodes::default(),
            most: rows.map_or(MAX_ENTRIES, entries_worth_it),
            coded: 0,
        }
    }

    /// Whether the rows that have codes by now, of which `more` are new, show that there are too many texts.
    fn has_too_many(&mut self, more: usize) -> bool {
        let before = self.coded;
        self.coded += more;
        // Behind a batch of many rows nothing is to be saved.
        let is_time = before < TRIAL_ROWS && (TRIAL_ROWS..=2 * TRIAL_ROWS).contains(&self.coded);
        is_time && self.entries.len() > coding::different_among(self.coded, self.most)
    }

    /// Adds a batch: as codes, unless the column has too many distinct texts (which `raw` tells all partitions). The bytes
    /// that it takes at least; `None` where the array is no text.
    pub(super) fn push(&mut self, array: &ArrayRef, raw: &AtomicBool) -> Option<usize> {
        if !raw.load(Ordering::Relaxed) {
            if let Some(codes) = self.codes(array)? {
                if self.has_too_many(codes.len()) {
                    raw.store(true, Ordering::Relaxed);
                }
                self.chunks.push(TextChunk::Codes(codes));
                return Some(array.len());
            }
            raw.store(true, Ordering::Relaxed);
        }
        raw_texts(array, &mut self.chunks)
    }

    fn codes(&mut self, array: &ArrayRef) -> Option<Option<Vec<u16>>> {
        let entries = &mut self.entries;
        Some(match array.data_type() {
            DataType::Utf8 => codes_of(array.as_string_opt::<i32>()?, entries),
            DataType::LargeUtf8 => codes_of(array.as_string_opt::<i64>()?, entries),
            DataType::Utf8View => codes_of(array.as_string_view_opt()?, entries),
            DataType::Dictionary(_, _) => downcast_dictionary_array!(
                array => dictionary_codes(array, entries, &mut self.known)?,
                _ => return None
            ),
            _ => return None,
        })
    }
}

fn codes_of<'a, A: ArrayAccessor<Item = &'a str>>(array: A, entries: &mut Interner) -> Option<Vec<u16>> {
    if array.null_count() == 0 {
        return (0..array.len()).map(|row| entries.intern(array.value(row).as_bytes())).collect();
    }
    let code = |row| if array.is_null(row) { Some(0) } else { entries.intern(array.value(row).as_bytes()) };
    (0..array.len()).map(code).collect()
}

/// The texts of a dictionary's values by key; the outer `None` where the values are no text.
fn dictionary_codes<K: ArrowDictionaryKeyType>(
    array: &DictionaryArray<K>,
    entries: &mut Interner,
    known: &mut KnownCodes,
) -> Option<Option<Vec<u16>>> {
    let values = array.values();
    let known = known.of(values);
    Some(match values.data_type() {
        DataType::Utf8 => keyed_codes(array, values.as_string_opt::<i32>()?, (entries, known)),
        DataType::LargeUtf8 => keyed_codes(array, values.as_string_opt::<i64>()?, (entries, known)),
        DataType::Utf8View => keyed_codes(array, values.as_string_view_opt()?, (entries, known)),
        _ => return None,
    })
}

/// Only values that rows refer to become entries.
fn keyed_codes<'a, K: ArrowDictionaryKeyType, A: ArrayAccessor<Item = &'a str>>(
    array: &DictionaryArray<K>,
    values: A,
    (entries, known): (&mut Interner, &mut [u32]),
) -> Option<Vec<u16>> {
    let keys = array.keys();
    let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut codes: Vec<u16> = Vec::with_capacity(keys.len());
    // Mostly all codes are known from the batches before: a loop that only looks them up takes a fraction of the other's time. Under a NULL
    // any code will do.
    let mut all_known = true;
    codes.extend(keys.values().iter().map(|key| {
        let code = known.get(key.as_usize()).copied().unwrap_or(UNKNOWN);
        all_known &= code != UNKNOWN;
        code as u16
    }));
    if all_known {
        return Some(codes);
    }
    codes.clear();
    let mut code_of = |key: usize| {
        let known = known.get_mut(key)?;
        if *known == UNKNOWN {
            let valid = values.is_valid(key);
            *known = u32::from(if valid { entries.intern(values.value(key).as_bytes())? } else { 0 });
        }
        Some(*known as u16)
    };
    for (row, key) in keys.values().iter().enumerate() {
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        codes.push(if is_null { 0 } else { code_of(key.as_usize())? });
    }
    Some(codes)
}

/// Adds a batch's texts as they are; how many bytes they have. Those that others keep one after the other are shared. The rest is
/// gathered: its memory is free for the next batch then.
fn raw_texts(array: &ArrayRef, chunks: &mut Vec<TextChunk>) -> Option<usize> {
    fn in_order<O: OffsetSizeTrait>(
        array: &GenericStringArray<O>,
        offsets: impl FnOnce(ScalarBuffer<O>) -> TextOffsets,
        chunks: &mut Vec<TextChunk>,
    ) -> usize {
        let is_shared = array.values().strong_count() > 1;
        let gathered = (!is_shared).then(|| gathered::add_run(array.value_offsets(), array.values(), chunks));
        gathered.flatten().unwrap_or_else(|| {
            let chunk = TextChunk::Raw(offsets(array.offsets().inner().clone()), array.values().clone());
            let bytes = chunk.bytes().map_or(0, <[u8]>::len);
            chunks.push(chunk);
            bytes
        })
    }
    Some(match array.data_type() {
        DataType::Utf8 => in_order(array.as_string_opt::<i32>()?, TextOffsets::I32, chunks),
        DataType::LargeUtf8 => in_order(array.as_string_opt::<i64>()?, TextOffsets::I64, chunks),
        DataType::Utf8View => {
            let views = array.as_string_view_opt()?;
            // The lower half of a view is its length.
            let lengths = views.views().iter().map(|view| *view as u32 as usize).enumerate();
            let bytes = lengths.filter(|(row, _)| views.is_valid(*row)).map(|(_, length)| length).sum();
            let texts = (0..views.len()).map(|row| views.is_valid(row).then(|| views.value(row)));
            gathered::add(texts, bytes, chunks)
        }
        DataType::Dictionary(_, _) => downcast_dictionary_array!(
            array => dictionary_texts(array, chunks)?,
            _ => return None
        ),
        _ => return None,
    })
}

fn dictionary_texts<K: ArrowDictionaryKeyType>(
    array: &DictionaryArray<K>,
    chunks: &mut Vec<TextChunk>,
) -> Option<usize> {
    fn keyed<'a, K: ArrowDictionaryKeyType, A: ArrayAccessor<Item = &'a str>>(
        array: &DictionaryArray<K>,
        values: A,
        chunks: &mut Vec<TextChunk>,
    ) -> usize {
        let text = |row| array.key(row).filter(|key| values.is_valid(*key)).map(|key| values.value(key));
        let bytes = (0..array.len()).filter_map(text).map(str::len).sum();
        gathered::add((0..array.len()).map(text), bytes, chunks)
    }
    let values = array.values();
    Some(match values.data_type() {
        DataType::Utf8 => keyed(array, values.as_string_opt::<i32>()?, chunks),
        DataType::LargeUtf8 => keyed(array, values.as_string_opt::<i64>()?, chunks),
        DataType::Utf8View => keyed(array, values.as_string_view_opt()?, chunks),
        _ => return None,
    })
}

/// The most entries of a dictionary for so many rows.
pub(super) fn entries_worth_it(rows: usize) -> usize {
    (rows / 2).clamp(1, MAX_ENTRIES)
}

/// One dictionary of all partitions, in the order of the entries' bytes, and each partition's codes there; `None` where a
/// partition has none, or there would be too many entries to be worth it.
pub(super) fn merge(partitions: &[TextPartition], rows: usize) -> Option<(Interner, Vec<Arc<[u16]>>)> {
    let all_codes = |p: &TextPartition| p.chunks.iter().all(|chunk| matches!(chunk, TextChunk::Codes(_)));
    if !partitions.iter().all(all_codes) {
        return None;
    }
    let mut merged = Interner::new(entries_worth_it(rows));
    let mut remaps = Vec::new();
    for TextPartition { entries, .. } in partitions {
        let codes = (0..entries.len()).map(|code| merged.intern(entries.entry(code)));
        remaps.push(codes.collect::<Option<Vec<u16>>>()?);
    }
    if merged.len() == 0 {
        merged.intern(b"");
    }
    let (sorted, ranks) = in_order(&merged)?;
    let ranked = |codes: Vec<u16>| codes.into_iter().map(|code| ranks[usize::from(code)]).collect();
    Some((sorted, remaps.into_iter().map(ranked).collect()))
}

/// The same entries in the order of their bytes, and the new code of each.
fn in_order(entries: &Interner) -> Option<(Interner, Vec<u16>)> {
    let head = |entry: &[u8]| {
        let mut head = [0; 8];
        head.iter_mut().zip(entry).for_each(|(byte, of_entry)| *byte = *of_entry);
        u64::from_be_bytes(head)
    };
    let mut order: Vec<(u64, usize)> =
        (0..entries.len()).map(|code| (head(entries.entry(code)), code)).collect();
    order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| entries.entry(a.1).cmp(entries.entry(b.1))));
    let (mut sorted, mut ranks) = (Interner::new(entries.len()), vec![0; entries.len()]);
    for (_, code) in order {
        ranks[code] = sorted.intern(entries.entry(code))?;
    }
    Some((sorted, ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_in_order_of_appearance_up_to_the_limit() {
        let mut entries = Interner::new(1000);
        let texts: Vec<String> = (0..1000).map(|i| "é".repeat(i % 23) + &i.to_string()).collect();
        for round in 0..2 {
            for (index, text) in texts.iter().enumerate() {
                assert_eq!(entries.intern(text.as_bytes()), Some(index as u16), "round {round}");
            }
        }
        assert_eq!(entries.intern(b"one more"), None);
        assert_eq!(entries.entry(999), texts[999].as_bytes());
        assert_eq!(entries.entry(1000), b"");
        assert_eq!(entries.offsets().len(), 1001);
    }

    #[test]
    fn texts_that_differ_in_zero_bytes_differ() {
        let mut entries = Interner::new(10);
        for (index, text) in ["", "\0", "\0\0", "a", "a\0", "12345678", "12345678\0"].iter().enumerate() {
            assert_eq!(entries.intern(text.as_bytes()), Some(index as u16));
        }
    }
}
