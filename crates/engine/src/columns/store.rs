//! Lays out columns once all batches are there, and writes them to device memory in parallel.

use std::sync::{Arc, OnceLock};

use arrow::array::BooleanBufferBuilder;
use arrow::buffer::{Buffer as HostBuffer, NullBuffer};
use arrow::datatypes::ArrowNativeType;
use kelpie_compile::context::Unsupported;
use kelpie_compile::layout::{ColumnLayout, Direction, Storage};
use kelpie_compile::types::{Range, Spacing};
use kelpie_device::{Buffer, CancelToken, Device, DeviceError};
use kelpie_kir::Scalar;
use parking_lot::Mutex;

use super::integers::{self, IntegerChunk};
use super::placing::Place;
use super::read::{FloatChunk, Kind, PartitionColumn, Values, Wanted};
use super::resident::ResidentColumn;
use super::sample::{Sample, of_text};
use super::spread::{self, Spread, Zone};
use super::text::{Codes, Interner, TextChunk, TextPartition};
use super::width::Width;
use super::{order, spacing, text};
use crate::error::EngineError;

/// Bytes of a dictionary that is brought to the device also where its column is not.
const DEVICE_DICTIONARY_BYTES: usize = 256 << 10;
/// Rows that one task encodes and uploads at once: large enough for a device's copy engine, small enough for a cache.
const TASK_ROWS: usize = 1 << 18;
/// Bytes of texts from which on the start of a copy to the device costs less than a copy on the host before.
const LARGE_CHUNK_BYTES: usize = 1 << 20;

/// A column that a device has decoded to its place.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) values: DecodedValues,
    pub(super) rows: usize,
    /// Bits of the rows that have a value, where some have none.
    pub(super) validity: Option<Buffer>,
}

/// What is known of the values of a column, which are at their place.
#[derive(Debug)]
pub(super) enum DecodedValues {
    Integers(Vec<IntegerChunk>),
    Floats(Vec<FloatChunk>),
}

/// A column that knows its layout, but not yet its place.
#[derive(Debug)]
pub(super) struct Planned {
    layout: ColumnLayout,
    rows: usize,
    base: i128,
    data_bytes: u64,
    /// Bytes of an offset, for text.
    offset_bytes: Option<usize>,
    values: PlannedValues,
    validity: Vec<(usize, Option<NullBuffer>)>,
    zones: Vec<Zone>,
    spread: Spread,
    sample: Option<Arc<Sample>>,
    is_unique: bool,
    order: Option<Direction>,
    spacing: Option<Spacing>,
    /// Where its values are, if they were written while it was read; and the bits of rows that have one, if a device wrote them.
    place: Option<Buffer>,
    validity_place: Option<Buffer>,
}

#[derive(Debug)]
enum PlannedValues {
    Integers(Vec<IntegerChunk>, Width),
    Floats(Vec<FloatChunk>, usize),
    /// The dictionary, and by partition its codes' codes there.
    Codes {
        entries: Interner,
        code: Scalar,
        partitions: Vec<(Arc<[u32]>, Vec<TextChunk>)>,
    },
    Texts(Vec<(Arc<Interner>, Vec<TextChunk>)>),
}

/// Decides a column's layout.
pub(super) fn plan(
    wanted: &Wanted,
    mut parts: Vec<PartitionColumn>,
    device: &dyn Device,
) -> Result<Planned, EngineError> {
    let rows = parts.iter().map(PartitionColumn::rows).sum();
    let place = placed(wanted, &mut parts, device)?;
    let (mut validity, mut chunks) = (Vec::new(), Vec::new());
    let (mut floats, mut texts) = (Vec::new(), Vec::new());
    for part in parts {
        validity.extend(part.validity);
        match part.values {
            Values::Integers(more) => chunks.extend(more),
            Values::Floats(more) => floats.extend(more),
            Values::Text(partition) => texts.push(partition),
        }
    }
    let common = wanted.common;
    let has_nulls =
        validity.iter().any(|(_, nulls)| nulls.is_some()) || common.is_some_and(|common| common.has_nulls);
    let mut planned = match wanted.kind {
        Kind::Integer => {
            plan_integers(chunks, rows, (place.as_ref(), common.and_then(|common| common.range)))
        }
        Kind::Float(scalar) => plan_floats(floats, rows, scalar),
        Kind::Text => plan_text(wanted, texts, rows)?,
    };
    planned.layout.has_nulls = has_nulls;
    planned.is_unique &= !has_nulls;
    planned.order = planned.order.filter(|_| !has_nulls);
    planned.validity = validity;
    planned.place = place.map(|place| place.buffer);
    if common.is_some() {
        planned.forget();
    }
    Ok(planned)
}

/// The layout of a column that a device has decoded to its place.
pub(super) fn plan_decoded(place: &Place, Decoded { values, rows, validity }: Decoded) -> Planned {
    let mut planned = match values {
        DecodedValues::Integers(chunks) => plan_integers(chunks, rows, (Some(place), None)),
        DecodedValues::Floats(floats) => plan_floats(floats, rows, place.width.scalar),
    };
    planned.layout.has_nulls = validity.is_some();
    planned.is_unique &= validity.is_none();
    planned.order = planned.order.filter(|_| validity.is_none());
    (planned.place, planned.validity_place) = (Some(place.buffer.clone()), validity);
    planned
}

/// Floats are stored as they are.
fn plan_floats(floats: Vec<FloatChunk>, rows: usize, scalar: Scalar) -> Planned {
    let width = scalar.bytes() as usize;
    let storage = Storage::Fixed { scalar, has_base: false };
    Planned::new(storage, rows, rows as u64 * width as u64, PlannedValues::Floats(floats, width))
}

/// Ends what was written while the column was read. The column's place, if it can stay there; else what was written is taken
/// back.
fn placed(
    wanted: &Wanted,
    parts: &mut [PartitionColumn],
    device: &dyn Device,
) -> Result<Option<Place>, DeviceError> {
    let Some(place) = &wanted.place else { return Ok(None) };
    let mut as_promised = true;
    let mut range = None;
    for part in parts.iter_mut() {
        as_promised &= match &mut part.placing {
            Some(placing) => placing.end(device)?,
            None => part.rows() == 0,
        };
        if let Values::Integers(chunks) = &part.values {
            range = chunks.iter().filter_map(IntegerChunk::range).chain(range).reduce(Range::union);
        }
    }
    if as_promised && place.serves(range) {
        return Ok(Some(place.clone()));
    }
    for part in parts {
        let Some(placing) = &part.placing else { continue };
        let bytes = HostBuffer::from_vec(placing.written(device)?);
        let width = place.value_bytes();
        // The bytes of so many rows from one on; those that were written are there.
        let slice = |row: usize, rows: usize| {
            let start = (row * width).min(bytes.len());
            bytes.slice_with_length(start, (rows * width).min(bytes.len() - start))
        };
        let mut row = 0;
        match &mut part.values {
            Values::Integers(chunks) => {
                for chunk in chunks {
                    chunk.take_back(&slice(row, chunk.rows()));
                    row += chunk.rows();
                }
            }
            Values::Floats(chunks) => {
                for chunk in chunks {
                    let rows = chunk.rows(width);
                    if let FloatChunk::Placed(_) = chunk {
                        *chunk = FloatChunk::Values(slice(row, rows));
                    }
                    row += rows;
                }
            }
            Values::Text(_) => {}
        }
    }
    Ok(None)
}

/// Texts of a chunk that tell how a column's are spread.
const TEXTS_OF_CHUNK: usize = 32;

fn plan_integers(
    chunks: Vec<IntegerChunk>,
    rows: usize,
    (place, common): (Option<&Place>, Option<Range>),
) -> Planned {
    let zones = chunks.iter().map(|chunk| Zone { rows: chunk.rows() as u64, range: chunk.range() }).collect();
    let range = chunks.iter().filter_map(IntegerChunk::range).chain(common).reduce(Range::union);
    let range = range.unwrap_or(Range { min: 0, max: 0 });
    let width = place.map_or_else(|| Width::of(range), |place| place.width);
    let spread = Spread::of(chunks.iter().map(IntegerChunk::sample), rows as u64);
    let sample = Sample::of(chunks.iter().map(IntegerChunk::sample), rows as u64);
    let is_unique = spread::are_unique(chunks.iter().map(|chunk| (chunk.order().is_strict(), chunk.range())));
    let order = order::of_chunks(chunks.iter().map(|chunk| (chunk.order(), chunk.range())));
    let spacing = spacing::of_chunks(chunks.iter().filter_map(IntegerChunk::steps));
    let bytes = rows as u64 * u64::from(width.scalar.bytes());
    let mut planned = Planned::new(width.storage(), rows, bytes, PlannedValues::Integers(chunks, width));
    // Kernels take the least value that a column with a base may have for the base: what was promised may have begun before.
    let has_base = width.base != 0;
    planned.layout.range =
        Some(if has_base { range.union(Range { min: width.base, max: width.base }) } else { range });
    planned.base = width.base;
    planned.zones = zones;
    planned.is_unique = is_unique;
    planned.order = order;
    planned.spacing = spacing;
    planned.spread = spread;
    planned.sample = sample;
    planned
}

fn plan_text(wanted: &Wanted, partitions: Vec<TextPartition>, rows: usize) -> Result<Planned, EngineError> {
    // A column without rows has only codes too.
    let merged = if wanted.is_raw_text() { None } else { text::merge(&partitions, rows) };
    if let Some((entries, remaps)) = merged {
        let storage = dictionary_storage(entries.len());
        let code = if let Storage::Dictionary { code, .. } = storage { code } else { Scalar::U16 };
        let chunks = partitions.into_iter().map(|partition| partition.chunks);
        let partitions: Vec<_> = remaps.into_iter().zip(chunks).collect();
        let bytes = rows as u64 * u64::from(code.bytes());
        let samples = samples_of_codes(&partitions);
        let samples = || samples.iter().map(Vec::as_slice);
        let spread = Spread::of(samples(), rows as u64).min(entries.len() as u64);
        let sample = Sample::of(samples(), rows as u64);
        let order = order_of_codes(&partitions);
        let values = PlannedValues::Codes { entries, code, partitions };
        let mut planned = Planned::new(storage, rows, bytes, values);
        (planned.spread, planned.sample, planned.order) = (spread, sample, order);
        return Ok(planned);
    }
    let mut bytes = 0u64;
    for partition in &partitions {
        for chunk in &partition.chunks {
            let more = chunk.text_bytes(&partition.entries);
            if more > u64::from(u32::MAX) && chunk.longest(&partition.entries) > u64::from(u32::MAX) {
                let name = &wanted.name;
                return Err(Unsupported(format!("column {name} has a text longer than 4 GiB")).into());
            }
            bytes += more;
        }
    }
    let storage = text_storage(bytes);
    let chunks = partitions.iter().flat_map(|partition| &partition.chunks);
    let samples: Vec<&[u8]> = chunks.flat_map(|chunk| chunk.sample(TEXTS_OF_CHUNK)).collect();
    let spread = Spread::of_texts(&samples, rows as u64);
    let hashes: Vec<i64> = samples.into_iter().map(of_text).collect();
    let sample = Sample::of(std::iter::once(hashes.as_slice()), rows as u64);
    let partitions = partitions.into_iter().map(|p| (Arc::new(p.entries), p.chunks)).collect();
    let values = PlannedValues::Texts(partitions);
    let mut planned = Planned::new(storage, rows, bytes, values);
    (planned.spread, planned.sample) = (spread, sample);
    if let Storage::Text { offset } = storage {
        planned.offset_bytes = Some(offset.bytes() as usize);
    }
    Ok(planned)
}

/// Samples of the codes of a dictionary, which each partition's own become, by chunk.
fn samples_of_codes(partitions: &[(Arc<[u32]>, Vec<TextChunk>)]) -> Vec<Vec<i64>> {
    partitions
        .iter()
        .flat_map(|(ranks, chunks)| chunks.iter().map(move |chunk| (ranks, chunk)))
        .filter_map(|(ranks, chunk)| match chunk {
            TextChunk::Codes(codes) => {
                let rank = |code: u32| ranks.get(code as usize).map_or(0, |rank| i64::from(*rank));
                Some(match codes {
                    Codes::U16(codes) => spread::sample(codes, |code| rank(code.into())),
                    Codes::U32(codes) => spread::sample(codes, rank),
                })
            }
            TextChunk::Raw(..) | TextChunk::Gathered(_) => None,
        })
        .collect()
}

/// The order of texts by that of their codes, which each partition's own become.
fn order_of_codes(partitions: &[(Arc<[u32]>, Vec<TextChunk>)]) -> Option<Direction> {
    let chunks =
        || partitions.iter().flat_map(|(ranks, chunks)| chunks.iter().map(move |chunk| (ranks, chunk)));
    let codes = chunks().flat_map(|(ranks, chunk)| {
        let codes = if let TextChunk::Codes(codes) = chunk { Some(codes) } else { None };
        codes.into_iter().flat_map(Codes::iter).map(|code| ranks.get(code as usize))
    });
    let all_have_codes = chunks().all(|(_, chunk)| matches!(chunk, TextChunk::Codes(_)));
    order::of_values(codes).filter(|_| all_have_codes)
}

/// Text by codes of so many entries.
pub(super) fn dictionary_storage(entries: usize) -> Storage {
    let code = match entries {
        0..=0x100 => Scalar::U8,
        0x101..=0x1_0000 => Scalar::U16,
        _ => Scalar::U32,
    };
    Storage::Dictionary { code, entries: entries as u32 }
}

/// Text of so many bytes.
pub(super) fn text_storage(bytes: u64) -> Storage {
    // Kernels count places from an aligned address, which is less than a word before the first text.
    const MOST: u64 = u32::MAX as u64 - 8;
    Storage::Text { offset: if bytes <= MOST { Scalar::U32 } else { Scalar::U64 } }
}

impl Planned {
    fn new(storage: Storage, rows: usize, data_bytes: u64, values: PlannedValues) -> Planned {
        Planned {
            layout: ColumnLayout { storage, has_nulls: false, range: None },
            rows,
            base: 0,
            data_bytes,
            offset_bytes: None,
            values,
            validity: Vec::new(),
            zones: Vec::new(),
            spread: Spread::default(),
            sample: None,
            is_unique: false,
            order: None,
            spacing: None,
            place: None,
            validity_place: None,
        }
    }

    /// Leaves out what holds for the rows of this column alone, and not for others that it is to be as.
    fn forget(&mut self) {
        self.zones.clear();
        (self.spread, self.sample) = (Spread::default(), None);
        (self.is_unique, self.order, self.spacing) = (false, None, None);
    }

    /// Bytes of it that lie on the device already.
    pub(super) fn placed_bytes(&self) -> u64 {
        self.place.as_ref().map_or(0, |buffer| buffer.bytes() as u64)
    }

    /// Bytes of all buffers.
    pub(super) fn bytes(&self) -> u64 {
        let validity = if self.layout.has_nulls { self.rows.div_ceil(8) } else { 0 };
        let offsets = self.offset_bytes.map_or(0, |bytes| (self.rows + 1) * bytes);
        let dictionary = match &self.values {
            PlannedValues::Codes { entries, .. } => entries.bytes().len() + entries.offsets().len() * 4,
            _ => 0,
        };
        self.data_bytes + (validity + offsets + dictionary) as u64
    }

    /// Allocates the column's buffers and lists what is to be written to them.
    pub(super) fn place(
        self,
        device: &dyn Device,
        (on_host, allocate): (bool, &dyn Fn(bool, usize) -> Result<Buffer, DeviceError>),
        tasks: &mut Vec<Task>,
    ) -> Result<ResidentColumn, DeviceError> {
        let Planned {
            layout,
            rows,
            base,
            data_bytes,
            offset_bytes,
            values,
            validity,
            zones,
            spread,
            sample,
            is_unique,
            order,
            spacing,
            place,
            validity_place,
        } = self;
        let on_host = on_host && place.is_none();
        let data = match place {
            Some(buffer) => buffer,
            None => allocate(on_host, data_bytes as usize)?,
        };
        let validity = match layout.has_nulls {
            true if validity_place.is_some() => validity_place,
            true => {
                let buffer = allocate(on_host, rows.div_ceil(8))?;
                tasks.push(Task { buffer: buffer.clone(), offset: 0, work: Work::Validity(validity) });
                Some(buffer)
            }
            false => None,
        };
        let offsets = match offset_bytes {
            Some(width) => {
                let buffer = allocate(on_host, (rows + 1) * width)?;
                device.fill(&buffer, 0, width, 0)?;
                Some(buffer)
            }
            None => None,
        };
        let mut dictionary = None;
        if let PlannedValues::Codes { entries, .. } = &values {
            let offsets = HostBuffer::from_slice_ref(entries.offsets());
            // Kernels look entries up at random: only large ones are left on the host.
            let far = on_host && offsets.len() + entries.bytes().len() > DEVICE_DICTIONARY_BYTES;
            let pair = (allocate(far, offsets.len())?, allocate(far, entries.bytes().len())?);
            device.upload(&pair.0, 0, &offsets)?;
            device.upload(&pair.1, 0, entries.bytes())?;
            dictionary = Some(pair);
        }
        values.tasks(&data, offsets.as_ref().zip(offset_bytes), base, &layout, tasks);
        let rows = rows as u64;
        Ok(ResidentColumn {
            layout,
            rows,
            on_host,
            base,
            data,
            validity,
            offsets,
            dictionary,
            zones,
            scattered: spread.scattered,
            has_frequent: spread.has_frequent,
            sample,
            clustered: OnceLock::new(),
            is_unique,
            order,
            spacing,
            coded: OnceLock::new(),
        })
    }
}

impl PlannedValues {
    fn tasks(
        self,
        data: &Buffer,
        offsets: Option<(&Buffer, usize)>,
        base: i128,
        layout: &ColumnLayout,
        tasks: &mut Vec<Task>,
    ) {
        let mut push = |offset, work| tasks.push(Task { buffer: data.clone(), offset, work });
        match self {
            PlannedValues::Integers(chunks, width) => {
                // NULLs of batches without a value: any value in range.
                let filler = layout.range.map_or(0, |range| range.min.wrapping_sub(base));
                for (row, run) in runs(chunks, IntegerChunk::rows, IntegerChunk::is_placed) {
                    let offset = row * width.scalar.bytes() as usize;
                    push(offset, Work::Integers { run, width, filler });
                }
            }
            PlannedValues::Floats(chunks, width) => {
                let is_placed = |chunk: &FloatChunk| matches!(chunk, FloatChunk::Placed(_));
                for (row, run) in runs(chunks, |chunk| chunk.rows(width), is_placed) {
                    push(row * width, Work::Copies(run));
                }
            }
            PlannedValues::Codes { code, partitions, .. } => {
                let mut row = 0;
                for (remap, chunks) in partitions {
                    let rows: usize = chunks.iter().map(TextChunk::rows).sum();
                    for (row, run) in text_runs(chunks, row) {
                        let offset = row * code.bytes() as usize;
                        push(offset, Work::Codes { run, code, remap: remap.clone() });
                    }
                    row += rows;
                }
            }
            PlannedValues::Texts(partitions) => {
                let Some((offsets, width)) = offsets else { return };
                let (mut row, mut byte) = (0, 0u64);
                for (entries, chunks) in partitions {
                    let rows: usize = chunks.iter().map(TextChunk::rows).sum();
                    for (row, run) in text_runs(chunks, row) {
                        let bytes: u64 = run.iter().map(|chunk| chunk.text_bytes(&entries)).sum();
                        let ends = Ends { buffer: offsets.clone(), offset: (row + 1) * width, width };
                        push(byte as usize, Work::Texts { run, entries: entries.clone(), start: byte, ends });
                        byte += bytes;
                    }
                    row += rows;
                }
            }
        }
    }
}

/// Chunks in runs of about [`TASK_ROWS`] rows, each with its first row, without those that are at their place.
fn runs<C>(
    chunks: Vec<C>,
    rows_of: impl Fn(&C) -> usize,
    is_placed: impl Fn(&C) -> bool,
) -> Vec<(usize, Vec<C>)> {
    let mut runs: Vec<(usize, Vec<C>)> = Vec::new();
    let (mut row, mut rows) = (0, TASK_ROWS);
    for chunk in chunks {
        let more = rows_of(&chunk);
        if is_placed(&chunk) {
            // What comes next lies elsewhere.
            (row, rows) = (row + more, TASK_ROWS);
            continue;
        }
        if rows >= TASK_ROWS {
            runs.push((row, Vec::new()));
            rows = 0;
        }
        rows += more;
        row += more;
        if let Some((_, run)) = runs.last_mut() {
            run.push(chunk);
        }
    }
    runs
}

/// A partition's texts in runs, given its first row.
fn text_runs(chunks: Vec<TextChunk>, first_row: usize) -> impl Iterator<Item = (usize, Vec<TextChunk>)> {
    let runs = runs(chunks, TextChunk::rows, |_| false);
    runs.into_iter().map(move |(row, run)| (first_row + row, run))
}

/// A part of a column to encode and to write at a place.
#[derive(Debug)]
pub(super) struct Task {
    buffer: Buffer,
    /// In bytes.
    offset: usize,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Integers { run: Vec<IntegerChunk>, width: Width, filler: i128 },
    Copies(Vec<FloatChunk>),
    Codes { run: Vec<TextChunk>, code: Scalar, remap: Arc<[u32]> },
    Texts { run: Vec<TextChunk>, entries: Arc<Interner>, start: u64, ends: Ends },
    Validity(Vec<(usize, Option<NullBuffer>)>),
}

/// Where the offsets of texts' ends go.
#[derive(Debug)]
struct Ends {
    buffer: Buffer,
    /// In bytes.
    offset: usize,
    /// Bytes of an offset: 4 or 8.
    width: usize,
}

impl Task {
    fn run(self, device: &dyn Device) -> Result<(), DeviceError> {
        let Task { buffer, mut offset, work } = self;
        match work {
            Work::Integers { run, width, filler } => {
                device.upload(&buffer, offset, &integers::store(run, width, filler))
            }
            Work::Copies(run) => run.into_iter().try_for_each(|chunk| {
                let FloatChunk::Values(part) = chunk else { return Ok(()) };
                device.upload(&buffer, offset, &part)?;
                offset += part.len();
                Ok(())
            }),
            Work::Codes { run, code, remap } => {
                let stored = match code {
                    Scalar::U8 => HostBuffer::from_vec(text::remapped(&run, &remap, |code| code as u8)),
                    Scalar::U16 => HostBuffer::from_vec(text::remapped(&run, &remap, |code| code as u16)),
                    _ => HostBuffer::from_vec(text::remapped(&run, &remap, |code| code)),
                };
                device.upload(&buffer, offset, &stored)
            }
            Work::Texts { run, entries, start, ends } => {
                let positions = match ends.width {
                    4 => HostBuffer::from_vec(all_ends::<u32>(&run, &entries, start)),
                    _ => HostBuffer::from_vec(all_ends::<u64>(&run, &entries, start)),
                };
                device.upload(&ends.buffer, ends.offset, &positions)?;
                upload_texts(device, &buffer, offset, run, &entries)
            }
            Work::Validity(parts) => {
                let mut bits = BooleanBufferBuilder::new(parts.iter().map(|(rows, _)| rows).sum());
                for (rows, nulls) in parts {
                    match nulls {
                        Some(nulls) => bits.append_buffer(nulls.inner()),
                        None => bits.append_n(rows, true),
                    }
                }
                device.upload(&buffer, offset, bits.as_slice())
            }
        }
    }
}

/// Where each text of some chunks ends, given where the first one starts.
fn all_ends<E: ArrowNativeType>(run: &[TextChunk], entries: &Interner, mut start: u64) -> Vec<E> {
    let mut ends = Vec::with_capacity(run.iter().map(TextChunk::rows).sum());
    for chunk in run {
        chunk.append_ends(entries, &mut ends, start);
        start += chunk.text_bytes(entries);
    }
    ends
}

/// Uploads the texts of some chunks one after the other: large ones as they are, small ones together.
fn upload_texts(
    device: &dyn Device,
    buffer: &Buffer,
    mut offset: usize,
    run: Vec<TextChunk>,
    entries: &Interner,
) -> Result<(), DeviceError> {
    let mut upload = |bytes: &[u8]| {
        device.upload(buffer, offset, bytes)?;
        offset += bytes.len();
        Ok(())
    };
    let mut small = Vec::new();
    for chunk in run {
        match chunk.bytes().filter(|bytes| bytes.len() >= LARGE_CHUNK_BYTES) {
            Some(bytes) => {
                upload(&small)?;
                small.clear();
                upload(bytes)?;
            }
            None => chunk.append_bytes(entries, &mut small),
        }
    }
    upload(&small)
}

/// Runs tasks on as many threads as there are cores.
pub(super) fn run_tasks(
    device: &dyn Device,
    mut tasks: Vec<Task>,
    cancel: &CancelToken,
) -> Result<(), EngineError> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = cores.min(tasks.len());
    tasks.reverse();
    let queue = Mutex::new(tasks);
    let work = || -> Result<(), EngineError> {
        loop {
            if cancel.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let Some(task) = queue.lock().pop() else { return Ok(()) };
            if let Err(error) = task.run(device) {
                queue.lock().clear();
                return Err(error.into());
            }
        }
    };
    if threads <= 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut outcome = work();
        for thread in threads {
            let joined = thread.join();
            let joined =
                joined.unwrap_or_else(|_| Err(EngineError::Internal("encoding a column panicked".into())));
            outcome = outcome.and(joined);
        }
        outcome
    })
}
