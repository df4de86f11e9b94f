//! Chunks of columns on their way through a device: their bytes are gathered in a buffer there by the threads that read them, and once
//! it is full, whoever finds that has all of its pages decoded, while others fill the next one. A page keeps a warp busy for
//! milliseconds, so that it takes thousands of them to keep a device busy.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::buffer::Buffer as HostBuffer;
use kelpie_compile::primitives::pages::{self, decode::Decode};
use kelpie_device::{Buffer, CancelToken, DeviceError, Download};
use kelpie_kir::Scalar;
use parking_lot::{Condvar, Mutex};

use super::Target;
use crate::columns::cache::{ColumnCache, ColumnRead};
use crate::columns::read::Kind;
use crate::error::EngineError;
use crate::primitives::{DecodedColumn, Pages, Primitives};
use crate::source::{EncodedChunk, EncodedPage, PageCodec, PageLevels};
use crate::trace::{self, Track};

/// Bytes of a buffer at most, and the share of a device's budget.
const MOST_BYTES: usize = 256 << 20;
const SHARE: u64 = 64;
/// How many times as many decompressed ones its pages have at most.
const MOST_DECOMPRESSED: usize = 4;
/// What each thing in a buffer is aligned to.
const ALIGNMENT: usize = 16;

/// The chunks of some columns.
pub(super) struct Batches<'a> {
    from: ColumnRead<'a>,
    cache: &'a ColumnCache,
    targets: &'a [Target],
    cancel: &'a CancelToken,
    /// Bytes of a buffer.
    room: usize,
    /// The one that is being filled.
    open: Mutex<Option<Arc<Batch>>>,
}

/// A buffer, and what is in it.
struct Batch {
    source: Buffer,
    filled: Mutex<Filled>,
    /// An upload has ended.
    uploaded: Condvar,
}

#[derive(Default)]
struct Filled {
    bytes: usize,
    decompressed: usize,
    chunks: Vec<Queued>,
    /// Chunks of which the bytes are still on their way.
    uploading: usize,
}

/// A chunk in a buffer.
struct Queued {
    target: usize,
    decode: Decode,
    /// Where its bytes are.
    at: usize,
    first_row: u64,
    pages: Vec<EncodedPage>,
    /// Its dictionary, as it is stored, and how many entries that has.
    dictionary: Vec<u8>,
    entries: usize,
}

impl<'a> Batches<'a> {
    pub(super) fn new(
        from: ColumnRead<'a>,
        cache: &'a ColumnCache,
        targets: &'a [Target],
        cancel: &'a CancelToken,
    ) -> Batches<'a> {
        let share = usize::try_from(from.device.memory().1 / SHARE).unwrap_or(MOST_BYTES);
        Batches { from, cache, targets, cancel, room: share.min(MOST_BYTES), open: Mutex::new(None) }
    }

    /// Takes a chunk of a column; where it cannot be decoded here, the host is to read the column.
    pub(super) fn take(&self, column: usize, chunk: Option<EncodedChunk>) -> Result<(), EngineError> {
        if self.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let Some(target) = self.targets.get(column).filter(|target| !target.has_failed()) else {
            return Ok(());
        };
        let Some((queued, bytes)) = chunk.and_then(|chunk| queued(column, target, chunk)) else {
            target.fail();
            return Ok(());
        };
        let rows: usize = queued.pages.iter().map(|page| page.rows).sum();
        target.came.fetch_add(rows as u64, Ordering::Relaxed);
        match self.put(queued, &bytes) {
            // Other queries have the memory: the host needs less of it.
            Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => {
                self.targets.iter().for_each(Target::fail);
                Ok(())
            }
            done => done,
        }
    }

    /// Has what is left decoded.
    pub(super) fn finish(&self) -> Result<(), EngineError> {
        let last = self.open.lock().take();
        match last.map_or(Ok(()), |batch| self.run(&batch)) {
            Err(EngineError::Device(DeviceError::OutOfMemory { .. })) => {
                self.targets.iter().for_each(Target::fail);
                Ok(())
            }
            done => done,
        }
    }

    /// Puts a chunk into the open buffer, or the next one.
    fn put(&self, mut queued: Queued, bytes: &[u8]) -> Result<(), EngineError> {
        let decompressed: usize = queued.pages.iter().map(|page| page.decompressed).sum();
        let length = bytes.len().next_multiple_of(ALIGNMENT);
        let mut open = self.open.lock();
        let mut full = None;
        if let Some(batch) = open.as_ref() {
            let filled = batch.filled.lock();
            let most = self.room.saturating_mul(MOST_DECOMPRESSED);
            let fits =
                filled.bytes + length <= batch.source.bytes() && filled.decompressed + decompressed <= most;
            drop(filled);
            if !fits {
                full = open.take();
            }
        }
        let batch = match open.as_ref() {
            Some(batch) => Arc::clone(batch),
            None => {
                let source = self.cache.allocate(self.from.device, self.room.max(length).max(ALIGNMENT))?;
                let batch = Arc::new(Batch { source, filled: Mutex::default(), uploaded: Condvar::new() });
                *open = Some(Arc::clone(&batch));
                batch
            }
        };
        let mut filled = batch.filled.lock();
        let at = filled.bytes;
        queued.at = at;
        filled.bytes += length;
        filled.decompressed += decompressed;
        filled.chunks.push(queued);
        filled.uploading += 1;
        drop(filled);
        drop(open);
        let uploaded = self.from.device.upload(&batch.source, at, bytes);
        batch.filled.lock().uploading -= 1;
        batch.uploaded.notify_all();
        uploaded?;
        full.map_or(Ok(()), |full| self.run(&full))
    }

    /// Has the pages of a buffer decoded.
    fn run(&self, batch: &Batch) -> Result<(), EngineError> {
        let mut filled = batch.filled.lock();
        while filled.uploading > 0 {
            batch.uploaded.wait(&mut filled);
        }
        let mut chunks = mem::take(&mut filled.chunks);
        drop(filled);
        let began = Instant::now();
        chunks.sort_by_key(|chunk| (chunk.target, chunk.decode.value.bytes()));
        let described = Described::of(&chunks);
        let stream = Arc::clone(self.from.device).begin_query()?;
        let mut primitives = Primitives::new(stream.as_ref(), self.cache, self.cancel);
        let count = described.count;
        let words: Vec<u8> = described.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let pages = Pages {
            count,
            words: primitives.allocate(words.len() as u64)?,
            source: Arc::clone(&batch.source),
            scratch: primitives.allocate(described.scratch as u64)?,
            status: primitives.allocate(count as u64 * 4)?,
            nulls: primitives.allocate(count as u64 * 4)?,
        };
        let dictionaries = primitives.allocate(described.dictionaries.len() as u64)?;
        stream.upload(&pages.words, 0, &words)?;
        stream.upload(&dictionaries, 0, &described.dictionaries)?;
        stream.fill(&pages.nulls, 0, count * 4, 0)?;
        primitives.decompress_pages(&pages)?;
        for run in &described.runs {
            let Some((target, [base, least, greatest])) =
                self.targets.get(run.target).and_then(|target| Some((target, target.bounds()?)))
            else {
                continue;
            };
            let (validity, out) = (target.validity.clone(), Arc::clone(&target.place.buffer));
            let column = DecodedColumn { decode: run.decode, base, least, greatest, validity, out };
            let dictionary = (&dictionaries, run.dictionary_at);
            primitives.decode_pages(&pages, (run.first, run.count), dictionary, &column)?;
        }
        let (mut status, mut nulls) = (vec![0u8; count * 4], vec![0u8; count * 4]);
        stream.download_many(&mut [
            Download { buffer: &pages.status, offset: 0, data: &mut status },
            Download { buffer: &pages.nulls, offset: 0, data: &mut nulls },
        ])?;
        self.settle(&described.runs, (&status, &nulls));
        trace::record(Track::Reading, (began, Instant::now()), || {
            format!("{count} pages, kernels {:.2} ms", primitives.time_ns as f64 / 1e6)
        });
        Ok(())
    }

    /// Notes what became of pages.
    fn settle(&self, runs: &[Run], (status, nulls): (&[u8], &[u8])) {
        for run in runs {
            let Some(target) = self.targets.get(run.target) else { continue };
            let of_run = run.first * 4..(run.first + run.count) * 4;
            if status.get(of_run.clone()).is_none_or(|status| status.iter().any(|byte| *byte != 0)) {
                target.fail();
            }
            let (nulls, _) = nulls.get(of_run).unwrap_or_default().as_chunks::<4>();
            let nulls: u64 = nulls.iter().map(|nulls| u64::from(u32::from_le_bytes(*nulls))).sum();
            target.nulls.fetch_add(nulls, Ordering::Relaxed);
        }
    }
}

/// A chunk as it is put into a buffer, with its bytes; `None` where it does not hold what it says, or has other values than the column.
fn queued(number: usize, target: &Target, chunk: EncodedChunk) -> Option<(Queued, HostBuffer)> {
    let EncodedChunk { first_row, values, bytes, pages, dictionary } = chunk;
    let decode = target.decode(values)?;
    let [base, least, greatest] = target.bounds()?;
    let fits_value = |bound: i128| match decode.value {
        Scalar::I32 => i32::try_from(bound).is_ok(),
        _ => i64::try_from(bound).is_ok(),
    };
    if ![base, least, greatest].into_iter().all(fits_value) {
        return None;
    }
    let mut rows = 0usize;
    for page in &pages {
        let end = page.start.checked_add(page.bytes)?;
        rows = rows.checked_add(page.rows)?;
        let are_words = [page.bytes, page.decompressed, page.rows].into_iter().all(|count| count < 1 << 31);
        if end > bytes.len() || page.plain_bytes > page.bytes.min(page.decompressed) || !are_words {
            return None;
        }
    }
    let end = first_row.checked_add(rows as u64)?;
    if end > target.rows || (dictionary.len() >= 1 << 31) {
        return None;
    }
    let is_integer = matches!(target.kind, Kind::Integer);
    let within = |entry: &i64| !is_integer || (least..=greatest).contains(&i128::from(*entry));
    // An entry that no row refers to may be anything, but few writers have one.
    if !dictionary.iter().all(within) {
        return None;
    }
    let stored = stored(&dictionary, decode, base as i64);
    Some((
        Queued {
            target: number,
            decode,
            at: 0,
            first_row,
            pages,
            dictionary: stored,
            entries: dictionary.len(),
        },
        bytes,
    ))
}

/// Entries of a dictionary as a column stores them.
fn stored(entries: &[i64], decode: Decode, base: i64) -> Vec<u8> {
    let above = entries.iter().map(|entry| entry.wrapping_sub(base));
    match decode.stored {
        Scalar::U8 => above.map(|value| value as u8).collect(),
        Scalar::U16 => above.flat_map(|value| (value as u16).to_ne_bytes()).collect(),
        Scalar::I32 => above.flat_map(|value| (value as i32).to_ne_bytes()).collect(),
        Scalar::F32 => {
            let floats = entries.iter().map(|bits| f32::from_bits(*bits as u32));
            floats.flat_map(|float| if float.is_nan() { f32::NAN } else { float }.to_ne_bytes()).collect()
        }
        Scalar::F64 => {
            let floats = entries.iter().map(|bits| f64::from_bits(*bits as u64));
            floats.flat_map(|float| if float.is_nan() { f64::NAN } else { float }.to_ne_bytes()).collect()
        }
        _ => above.flat_map(i64::to_ne_bytes).collect(),
    }
}

/// The pages of a buffer, as kernels are told of them.
#[derive(Default)]
struct Described {
    count: usize,
    words: Vec<u64>,
    /// Bytes that they have decompressed.
    scratch: usize,
    /// All dictionaries, one behind the other.
    dictionaries: Vec<u8>,
    runs: Vec<Run>,
}

/// Pages of one column.
struct Run {
    target: usize,
    decode: Decode,
    first: usize,
    count: usize,
    /// Where the column's dictionaries begin.
    dictionary_at: usize,
}

impl Described {
    fn of(chunks: &[Queued]) -> Described {
        let mut own = Described::default();
        for chunk in chunks {
            own.add(chunk);
        }
        // What is read at a time may reach beyond the last page.
        own.scratch += ALIGNMENT;
        own
    }

    fn add(&mut self, chunk: &Queued) {
        let is_next =
            self.runs.last().is_none_or(|run| run.target != chunk.target || run.decode != chunk.decode);
        if is_next {
            self.dictionaries.resize(self.dictionaries.len().next_multiple_of(ALIGNMENT), 0);
            let dictionary_at = self.dictionaries.len();
            let (target, decode, first) = (chunk.target, chunk.decode, self.count);
            self.runs.push(Run { target, decode, first, count: 0, dictionary_at });
        }
        let Some(run) = self.runs.last_mut() else { return };
        let width = chunk.decode.stored.bytes() as usize;
        let first_entry = (self.dictionaries.len() - run.dictionary_at) / width;
        self.dictionaries.extend_from_slice(&chunk.dictionary);
        run.count += chunk.pages.len();
        let mut row = chunk.first_row;
        for page in &chunk.pages {
            let mut words = [0u64; pages::WORDS];
            let pair = |lower: usize, upper: usize| lower as u64 | (upper as u64) << 32;
            words[pages::SOURCE] = (chunk.at + page.start) as u64;
            words[pages::LENGTHS] = pair(page.bytes, page.decompressed);
            words[pages::TARGET] = self.scratch as u64;
            words[pages::FIRST_ROW] = row;
            words[pages::ROWS] = pair(page.rows, page.plain_bytes);
            words[pages::DICTIONARY] = pair(first_entry, chunk.entries);
            words[pages::KIND] = kind(page);
            self.words.extend(words);
            self.scratch += page.decompressed.next_multiple_of(ALIGNMENT);
            row += page.rows as u64;
            self.count += 1;
        }
    }
}

fn kind(page: &EncodedPage) -> u64 {
    let codec = match page.codec {
        PageCodec::Stored => pages::STORED,
        PageCodec::Snappy => pages::SNAPPY,
        PageCodec::Lz4 => pages::LZ4,
    };
    let levels = match page.levels {
        PageLevels::None => 0,
        PageLevels::BehindLength => pages::HAS_LEVELS | pages::HAS_LENGTH,
        PageLevels::Plain => pages::HAS_LEVELS,
    };
    codec | levels | if page.is_dictionary { pages::IS_DICTIONARY } else { 0 }
}
