//! Text columns: codes of a dictionary while it stays small, else offsets and bytes.

mod codes;
mod gathered;
mod interner;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::array::{
    Array, ArrayAccessor, ArrayRef, AsArray, DictionaryArray, GenericStringArray, OffsetSizeTrait,
    downcast_dictionary_array,
};
use arrow::buffer::{Buffer, ScalarBuffer};
use arrow::datatypes::{ArrowDictionaryKeyType, ArrowNativeType, DataType};

use self::codes::Code;
pub(super) use self::codes::Codes;
pub(super) use self::gathered::Gathered;
pub(super) use self::interner::{Interner, MAX_ENTRIES};
use super::{coding, spread};

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
    Codes(Codes),
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
    /// Rows, and their texts, when it was last looked at how fast there are more.
    seen: (usize, usize),
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

/// So many entries are worth it where each has two rows, and their codes fit 16 bits.
const FEW_ENTRIES: usize = 1 << 16;
/// More entries than these are worth it where each has so many rows: each is looked for once a reader's dictionary, and sorted.
const ROWS_AN_ENTRY: usize = 8;

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
                codes.iter().map(|code| entries.entry(code as usize).len() as u64).sum()
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
                codes.iter().map(|code| entries.entry(code as usize).len() as u64).max().unwrap_or(0)
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
                    end += entries.entry(code as usize).len();
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
                codes.iter().for_each(|code| bytes.extend_from_slice(entries.entry(code as usize)));
            }
            _ => bytes.extend_from_slice(self.bytes().unwrap_or_default()),
        }
    }
}

/// The codes of some chunks, as a partition's codes became the dictionary's.
pub(super) fn remapped<C>(run: &[TextChunk], remap: &[u32], stored: impl Fn(u32) -> C) -> Vec<C> {
    let mut all = Vec::with_capacity(run.iter().map(TextChunk::rows).sum());
    // The code of a NULL is 0, which no entry need have.
    let of = |code: u32| stored(remap.get(code as usize).copied().unwrap_or(0));
    for chunk in run {
        if let TextChunk::Codes(codes) = chunk {
            codes.append(&mut all, of);
        }
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
            seen: (0, 0),
        }
    }

    /// Whether the rows that have codes by now, of which `more` are new, show that there are too many texts: more than `most`.
    fn has_too_many(&mut self, more: usize, most: usize) -> bool {
        let before = self.coded;
        self.coded += more;
        let (rows, texts) = (self.coded, self.entries.len());
        // Behind a batch of many rows nothing is to be saved.
        if before < TRIAL_ROWS && (TRIAL_ROWS..=2 * TRIAL_ROWS).contains(&rows) {
            self.seen = (rows, texts);
            return texts > coding::different_among(rows, most);
        }
        let (rows_before, texts_before) = self.seen;
        if texts <= FEW_ENTRIES || rows < 2 * rows_before {
            return false;
        }
        self.seen = (rows, texts);
        if rows_before == 0 {
            // A first batch of so many texts has nothing before it to compare it with.
            return false;
        }
        // Where texts come back anywhere, there are fewer new ones among later rows. Where they come back soon or never, there are as many,
        // and will be.
        let new = |rows: usize, texts: usize| texts as f64 / rows.max(1) as f64;
        let (first, then) = (new(rows_before, texts_before), new(rows - rows_before, texts - texts_before));
        then > 0.9 * first && then * ROWS_AN_ENTRY as f64 > 1.0
    }

    /// Adds a batch: as codes, unless the column has too many distinct texts (which `raw` tells all partitions). The bytes
    /// that it takes at least; `None` where the array is no text.
    pub(super) fn push(&mut self, array: &ArrayRef, raw: &AtomicBool) -> Option<usize> {
        if !raw.load(Ordering::Relaxed) {
            // A reader's dictionary has each text once, while others are looked for once a row: many entries cost more than they save then.
            let is_dictionary = matches!(array.data_type(), DataType::Dictionary(..));
            let most = if is_dictionary { self.most } else { self.most.min(FEW_ENTRIES) };
            self.entries.limit_to(most);
            if let Some(codes) = self.codes(array)? {
                if self.has_too_many(codes.len(), most) {
                    raw.store(true, Ordering::Relaxed);
                }
                self.chunks.push(TextChunk::Codes(codes));
                return Some(array.len());
            }
            raw.store(true, Ordering::Relaxed);
        }
        raw_texts(array, &mut self.chunks)
    }

    fn codes(&mut self, array: &ArrayRef) -> Option<Option<Codes>> {
        // Each row may bring a new entry.
        match self.entries.len() + array.len() <= FEW_ENTRIES {
            true => Some(self.codes_in(array)?.map(Codes::U16)),
            false => Some(self.codes_in(array)?.map(Codes::U32)),
        }
    }

    fn codes_in<C: Code>(&mut self, array: &ArrayRef) -> Option<Option<Vec<C>>> {
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

fn codes_of<'a, A: ArrayAccessor<Item = &'a str>, C: Code>(
    array: A,
    entries: &mut Interner,
) -> Option<Vec<C>> {
    let rows = array.len();
    let mut codes = Vec::with_capacity(rows);
    if array.null_count() == 0 {
        let texts = (0..rows).map(|row| array.value(row).as_bytes());
        entries.intern_all(texts, |code| codes.push(C::of(code)))?;
        return Some(codes);
    }
    for row in 0..rows {
        let code = if array.is_null(row) { 0 } else { entries.intern(array.value(row).as_bytes())? };
        codes.push(C::of(code));
    }
    Some(codes)
}

/// The texts of a dictionary's values by key; the outer `None` where the values are no text.
fn dictionary_codes<K: ArrowDictionaryKeyType, C: Code>(
    array: &DictionaryArray<K>,
    entries: &mut Interner,
    known: &mut KnownCodes,
) -> Option<Option<Vec<C>>> {
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
fn keyed_codes<'a, K: ArrowDictionaryKeyType, A: ArrayAccessor<Item = &'a str>, C: Code>(
    array: &DictionaryArray<K>,
    values: A,
    (entries, known): (&mut Interner, &mut [u32]),
) -> Option<Vec<C>> {
    let keys = array.keys();
    let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
    let mut codes: Vec<C> = Vec::with_capacity(keys.len());
    // Mostly all codes are known from the batches before: a loop that only looks them up takes a fraction of the other's time. Under a NULL
    // any code will do.
    let mut all_known = true;
    codes.extend(keys.values().iter().map(|key| {
        let code = known.get(key.as_usize()).copied().unwrap_or(UNKNOWN);
        all_known &= code != UNKNOWN;
        C::of(code)
    }));
    if all_known {
        return Some(codes);
    }
    codes.clear();
    let mut new = Vec::new();
    for (row, key) in keys.values().iter().enumerate() {
        let key = key.as_usize();
        if nulls.is_some_and(|nulls| nulls.is_null(row)) {
            continue;
        }
        let known = known.get_mut(key)?;
        if *known == UNKNOWN {
            // Until it has its own.
            *known = 0;
            if values.is_valid(key) {
                new.push(key);
            }
        }
    }
    let mut keys_of_new = new.iter();
    let interned = entries.intern_all(new.iter().map(|key| values.value(*key).as_bytes()), |code| {
        if let Some(known) = keys_of_new.next().and_then(|key| known.get_mut(*key)) {
            *known = code;
        }
    });
    if interned.is_none() {
        known.fill(UNKNOWN);
        return None;
    }
    for (row, key) in keys.values().iter().enumerate() {
        let is_null = nulls.is_some_and(|nulls| nulls.is_null(row));
        codes.push(C::of(if is_null { 0 } else { *known.get(key.as_usize())? }));
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
    let few = (rows / 2).min(FEW_ENTRIES);
    few.max((rows / ROWS_AN_ENTRY).min(MAX_ENTRIES)).max(1)
}

/// One dictionary of all partitions, in the order of the entries' bytes, and each partition's codes there; `None` where a
/// partition has none, or there would be too many entries to be worth it.
pub(super) fn merge(partitions: &[TextPartition], rows: usize) -> Option<(Interner, Vec<Arc<[u32]>>)> {
    let all_codes = |p: &TextPartition| p.chunks.iter().all(|chunk| matches!(chunk, TextChunk::Codes(_)));
    if !partitions.iter().all(all_codes) {
        return None;
    }
    let mut merged = Interner::new(entries_worth_it(rows));
    let mut remaps = Vec::new();
    for TextPartition { entries, .. } in partitions {
        let mut codes = Vec::with_capacity(entries.len());
        merged.intern_all((0..entries.len()).map(|code| entries.entry(code)), |code| codes.push(code))?;
        remaps.push(codes);
    }
    if merged.len() == 0 {
        merged.intern(b"");
    }
    let (sorted, ranks) = merged.sorted();
    let ranked = |codes: Vec<u32>| codes.into_iter().map(|code| ranks[code as usize]).collect();
    Some((sorted, remaps.into_iter().map(ranked).collect()))
}
