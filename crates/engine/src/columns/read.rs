//! Reads columns of a source; every batch is encoded in the thread that delivers it, so that what waits for the rest
//! of the table is already narrow.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::*;
use arrow::record_batch::RecordBatch;
use kelpie_compile::context::Unsupported;
use kelpie_compile::layout::ColumnLayout;
use kelpie_compile::types::Range;
use kelpie_device::{CancelToken, Device, DeviceError};
use kelpie_kir::Scalar;
use parking_lot::Mutex;

use super::glance::{self, Glance, Seen};
use super::integers::{IntegerChunk, WritesTo};
use super::placing::{Place, Placing};
use super::text::TextPartition;
use crate::error::EngineError;
use crate::options::Dictionaries;
use crate::progress;
use crate::source::{Expected, TableSource};
use crate::split::{Phase, Split};
use crate::trace::{self, Track};

/// How a type is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Integers inside.
    Integer,
    /// As it is.
    Float(Scalar),
    Text,
}

/// A column to read.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) name: String,
    data_type: DataType,
    pub(super) kind: Kind,
    pub(super) expected: Option<Expected>,
    /// What holds for the columns of all tables that one program is to work on.
    pub(super) common: Option<Expected>,
    /// Where it will lie, if that is known before it is read.
    pub(super) place: Option<Place>,
    /// Set once the column has too many distinct texts for a dictionary, or from the start where none is wanted.
    raw_text: AtomicBool,
}

impl Wanted {
    /// Column `index` of a source.
    pub(super) fn new(
        source: &dyn TableSource,
        index: usize,
        dictionaries: Dictionaries,
    ) -> Result<Wanted, EngineError> {
        let schema = source.schema();
        let Some(field) = schema.fields().get(index) else {
            return Err(source_error(source, format!("there is no column {index}")));
        };
        let kind = kind_of(field.data_type()).ok_or_else(|| {
            let (table, name, data_type) = (source.name(), field.name(), field.data_type());
            Unsupported(format!("column {name} of {table} has type {data_type}"))
        })?;
        let common = source.common().and_then(|common| common.columns.get(index).copied());
        Ok(Wanted {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            kind,
            expected: source.expected(index),
            common,
            place: None,
            // Tables of one program would each have another dictionary.
            raw_text: AtomicBool::new(dictionaries == Dictionaries::Off || common.is_some()),
        })
    }

    /// Whether all values between two bounds are some of its type: a decimal has no more digits than it is declared with.
    pub(super) fn allows(&self, range: Range) -> bool {
        match self.data_type {
            DataType::Decimal128(digits, _) => {
                let most = 10i128.checked_pow(digits.into()).map_or(i128::MAX, |beyond| beyond - 1);
                range.within(Range { min: -most, max: most })
            }
            _ => true,
        }
    }

    /// How it will most likely be stored, where that is known before it is read.
    pub(super) fn expected_layout(&self) -> Option<ColumnLayout> {
        glance::expected_layout(self.kind, self.expected?)
    }

    /// Whether it gets no dictionary: none is wanted, or it has too many distinct texts.
    pub(super) fn is_raw_text(&self) -> bool {
        self.raw_text.load(Ordering::Relaxed)
    }
}

pub(super) fn kind_of(data_type: &DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::UInt8
        | DataType::UInt16
        | DataType::UInt32
        | DataType::UInt64
        | DataType::Date32
        | DataType::Timestamp(_, _)
        | DataType::Duration(_)
        | DataType::Decimal128(_, _) => Kind::Integer,
        DataType::Float32 => Kind::Float(Scalar::F32),
        DataType::Float64 => Kind::Float(Scalar::F64),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
        DataType::Dictionary(_, values) => match values.as_ref() {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Kind::Text,
            _ => return None,
        },
        _ => return None,
    })
}

/// Whether an array of a type has the values of a column's: in any form of text, as a decimal of fewer bits, or as the integers that they are
/// inside.
fn is_form_of(found: &DataType, wanted: &DataType) -> bool {
    match (found, wanted) {
        (found, wanted) if found.is_integer() && *wanted != DataType::Boolean => {
            kind_of(wanted) == Some(Kind::Integer)
        }
        (
            DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale),
            DataType::Decimal128(wanted_precision, wanted_scale),
        ) => (precision, scale) == (wanted_precision, wanted_scale),
        _ => found == wanted || (kind_of(found) == Some(Kind::Text) && kind_of(wanted) == Some(Kind::Text)),
    }
}

/// The encoded batches of one column of one partition, in order.
#[derive(Debug)]
pub(super) enum Values {
    Integers(Vec<IntegerChunk>),
    Floats(Vec<FloatChunk>),
    Text(TextPartition),
}

/// The floats of a batch.
#[derive(Debug)]
pub(super) enum FloatChunk {
    Values(Buffer),
    /// They were written to the column's place; how many.
    Placed(usize),
}

impl FloatChunk {
    /// How many, of so many bytes each.
    pub(super) fn rows(&self, width: usize) -> usize {
        match self {
            FloatChunk::Values(values) => values.len() / width,
            FloatChunk::Placed(rows) => *rows,
        }
    }
}

/// One column of one partition.
#[derive(Debug)]
pub(super) struct PartitionColumn {
    pub(super) values: Values,
    /// Rows and NULLs of each batch.
    pub(super) validity: Vec<(usize, Option<NullBuffer>)>,
    /// Where values are written while the column is read.
    pub(super) placing: Option<Placing>,
}

impl PartitionColumn {
    /// The part of a column that is in a partition of a table of so many rows, where they are known.
    fn new(wanted: &Wanted, partition: usize, rows: Option<u64>) -> PartitionColumn {
        let values = match wanted.kind {
            Kind::Integer => Values::Integers(Vec::new()),
            Kind::Float(_) => Values::Floats(Vec::new()),
            Kind::Text => Values::Text(TextPartition::new(rows)),
        };
        let placing = wanted.place.as_ref().and_then(|place| place.of_partition(partition));
        PartitionColumn { values, validity: Vec::new(), placing }
    }

    pub(super) fn rows(&self) -> usize {
        self.validity.iter().map(|(rows, _)| rows).sum()
    }

    /// Adds a batch; the bytes that it will take at least, or `None` where the array is not of the kind.
    fn push(
        &mut self,
        array: &ArrayRef,
        wanted: &Wanted,
        device: &dyn Device,
    ) -> Result<Option<usize>, DeviceError> {
        let writes_to = (self.placing.as_mut(), device);
        let bytes = match &mut self.values {
            Values::Integers(chunks) => {
                let Some(chunk) = encode_integers(array, writes_to)? else { return Ok(None) };
                let bytes = chunk.bytes();
                chunks.push(chunk);
                bytes
            }
            Values::Floats(chunks) => {
                let Some(floats) = floats(array) else { return Ok(None) };
                chunks.push(encode_floats(floats, array.len(), writes_to)?);
                floats.len()
            }
            Values::Text(partition) => match partition.push(array, &wanted.raw_text) {
                Some(bytes) => bytes,
                None => return Ok(None),
            },
        };
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        self.validity.push((array.len(), nulls));
        Ok(Some(bytes))
    }
}

/// The bytes of floats.
fn floats(array: &ArrayRef) -> Option<&Buffer> {
    Some(match array.data_type() {
        DataType::Float32 => array.as_primitive_opt::<Float32Type>()?.values().inner(),
        _ => array.as_primitive_opt::<Float64Type>()?.values().inner(),
    })
}

fn encode_floats(
    floats: &Buffer,
    rows: usize,
    (placing, device): WritesTo<'_>,
) -> Result<FloatChunk, DeviceError> {
    match placing {
        Some(placing) if placing.takes(rows, None) => {
            placing.push(device, rows, |out| {
                out.iter_mut().zip(floats.as_slice()).for_each(|(out, byte)| *out = *byte);
            })?;
            return Ok(FloatChunk::Placed(rows));
        }
        Some(placing) => placing.skip(device, rows)?,
        None => {}
    }
    Ok(FloatChunk::Values(floats.clone()))
}

/// `None` where the array is of no type that is an integer inside.
fn encode_integers(array: &ArrayRef, writes_to: WritesTo<'_>) -> Result<Option<IntegerChunk>, DeviceError> {
    macro_rules! encode {
        ($type:ty) => {
            array.as_primitive_opt::<$type>().map(|array| IntegerChunk::encode(array, writes_to))
        };
    }
    let chunk = match array.data_type() {
        DataType::Boolean => {
            array.as_boolean_opt().map(|array| IntegerChunk::encode_booleans(array, writes_to))
        }
        DataType::Int8 => encode!(Int8Type),
        DataType::Int16 => encode!(Int16Type),
        DataType::Int32 => encode!(Int32Type),
        DataType::Int64 => encode!(Int64Type),
        DataType::UInt8 => encode!(UInt8Type),
        DataType::UInt16 => encode!(UInt16Type),
        DataType::UInt32 => encode!(UInt32Type),
        DataType::UInt64 => encode!(UInt64Type),
        DataType::Date32 => encode!(Date32Type),
        DataType::Timestamp(TimeUnit::Second, _) => encode!(TimestampSecondType),
        DataType::Timestamp(TimeUnit::Millisecond, _) => encode!(TimestampMillisecondType),
        DataType::Timestamp(TimeUnit::Microsecond, _) => encode!(TimestampMicrosecondType),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => encode!(TimestampNanosecondType),
        DataType::Duration(TimeUnit::Second) => encode!(DurationSecondType),
        DataType::Duration(TimeUnit::Millisecond) => encode!(DurationMillisecondType),
        DataType::Duration(TimeUnit::Microsecond) => encode!(DurationMicrosecondType),
        DataType::Duration(TimeUnit::Nanosecond) => encode!(DurationNanosecondType),
        DataType::Decimal32(_, _) => encode!(Decimal32Type),
        DataType::Decimal64(_, _) => encode!(Decimal64Type),
        DataType::Decimal128(_, _) => encode!(Decimal128Type),
        _ => None,
    };
    chunk.transpose()
}

pub(super) fn source_error(source: &dyn TableSource, message: impl Into<String>) -> EngineError {
    EngineError::Source { table: source.name(), message: message.into() }
}

/// One pass over a source.
struct Reader<'a> {
    device: &'a dyn Device,
    source: &'a dyn TableSource,
    wanted: &'a [(usize, Wanted)],
    cancel: &'a CancelToken,
    /// A column's parts, by partition.
    partitions: Vec<Mutex<Vec<PartitionColumn>>>,
    bytes: AtomicU64,
    limit_bytes: u64,
    rows: AtomicU64,
    clock: Clock,
    /// Rows of the table, where they are known, and after how many of them it is looked at.
    all_rows: u64,
    glance_after: Option<u64>,
    seen: &'a Seen<'a>,
}

/// Where the time of a pass goes. Batches come from several threads.
struct Clock {
    /// What is read, for a trace.
    table: String,
    start: Instant,
    /// Until the first batch came, in nanoseconds; 0 while none has.
    first_ns: AtomicU64,
    /// When each partition's last batch was encoded, since the start; 0 while none was.
    done_ns: Vec<AtomicU64>,
    /// Between the batches of a partition, and encoding them: of all partitions.
    decode_ns: AtomicU64,
    encode_ns: AtomicU64,
}

impl Clock {
    fn new(source: &dyn TableSource) -> Clock {
        let zero = || AtomicU64::new(0);
        let done_ns = (0..source.partitions()).map(|_| zero()).collect();
        let (table, start) = (source.name(), Instant::now());
        Clock { table, start, first_ns: zero(), done_ns, decode_ns: zero(), encode_ns: zero() }
    }

    /// Shows a trace what was done between two moments, in nanoseconds since the start.
    fn show(&self, what: &str, from_ns: u64, to_ns: u64) {
        let moment = |time_ns| self.start + Duration::from_nanos(time_ns);
        trace::record(Track::Reading, (moment(from_ns), moment(to_ns)), || format!("{what} {}", self.table));
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Notes that a partition's batch, which came at some time, is encoded.
    fn encoded(&self, partition: usize, came_ns: u64) {
        let first = self.first_ns.compare_exchange(0, came_ns, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() {
            self.show("open", 0, came_ns);
        }
        let now = self.now();
        self.show("encode", came_ns, now);
        self.encode_ns.fetch_add(now.saturating_sub(came_ns), Ordering::Relaxed);
        let Some(done) = self.done_ns.get(partition) else { return };
        let before = done.swap(now, Ordering::Relaxed);
        if before > 0 {
            self.show("decode", before, came_ns);
            self.decode_ns.fetch_add(came_ns.saturating_sub(before), Ordering::Relaxed);
        }
    }

    /// Charges the time of the whole pass.
    fn charge(&self, split: &mut Split) {
        let all = self.now();
        let open = self.first_ns.load(Ordering::Relaxed).min(all);
        let mut taken = Split::default();
        taken.add(Phase::Decode, self.decode_ns.load(Ordering::Relaxed));
        taken.add(Phase::Encode, self.encode_ns.load(Ordering::Relaxed));
        split.add(Phase::Open, open);
        split.share(all - open, &taken, Phase::Decode);
    }
}

/// Reads columns in one pass, for a device: for each column its parts, by partition. More than `limit_bytes` are an error.
pub(super) fn read(
    (device, source): (&dyn Device, &dyn TableSource),
    wanted: &[(usize, Wanted)],
    limit_bytes: u64,
    (seen, cancel): (&Seen<'_>, &CancelToken),
    split: &mut Split,
) -> Result<Vec<Vec<PartitionColumn>>, EngineError> {
    let rows = source.exact_rows();
    let new_parts = |partition| {
        let parts = wanted.iter().map(|(_, wanted)| PartitionColumn::new(wanted, partition, rows));
        Mutex::new(parts.collect::<Vec<_>>())
    };
    let partitions = (0..source.partitions()).map(new_parts).collect();
    let mut glance_after = glance::rows_before(rows);
    let expected = wanted.iter().map(|(_, wanted)| wanted.expected_layout()).collect::<Option<Vec<_>>>();
    if let Some(layouts) = expected.filter(|_| glance_after.is_some()) {
        seen(layouts);
        glance_after = None;
    }
    let reader = Reader {
        device,
        source,
        wanted,
        cancel,
        partitions,
        bytes: AtomicU64::new(0),
        limit_bytes,
        rows: AtomicU64::new(0),
        clock: Clock::new(source),
        all_rows: rows.unwrap_or_default(),
        glance_after,
        seen,
    };
    let rejected = AtomicBool::new(false);
    let consumer = |partition, batch| {
        reader.take(partition, batch).inspect_err(|_| rejected.store(true, Ordering::Relaxed))
    };
    progress::will_read(rows.unwrap_or_default());
    let columns: Vec<usize> = wanted.iter().map(|(column, _)| *column).collect();
    source.read(&columns, &consumer, cancel)?;
    reader.clock.charge(split);
    if cancel.is_cancelled() {
        return Err(EngineError::Cancelled);
    }
    if rejected.load(Ordering::Relaxed) {
        return Err(source_error(source, "the reader went on after a batch was rejected"));
    }
    let mut columns: Vec<Vec<PartitionColumn>> = wanted.iter().map(|_| Vec::new()).collect();
    for partition in reader.partitions {
        for (column, part) in columns.iter_mut().zip(partition.into_inner()) {
            column.push(part);
        }
    }
    Ok(columns)
}

impl Reader<'_> {
    fn take(&self, partition: usize, batch: RecordBatch) -> Result<(), EngineError> {
        if self.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        // Of a table whose rows are not known, no share is known either.
        if self.all_rows > 0 {
            progress::has_read(batch.num_rows() as u64);
        }
        let error = |message: String| source_error(self.source, message);
        let Some(parts) = self.partitions.get(partition) else {
            return Err(error(format!("partition {partition} of {}", self.partitions.len())));
        };
        if batch.num_columns() != self.wanted.len() {
            return Err(error(format!("{} columns instead of {}", batch.num_columns(), self.wanted.len())));
        }
        for (array, (_, wanted)) in batch.columns().iter().zip(self.wanted) {
            let Wanted { name, data_type, .. } = wanted;
            if !is_form_of(array.data_type(), data_type) {
                let found = array.data_type();
                return Err(error(format!("column {name} came as {found} instead of {data_type}")));
            }
        }
        let rows = batch.num_rows() as u64;
        let came_ns = self.clock.now();
        let mut parts = parts.lock();
        let mut bytes = 0;
        for ((array, (_, wanted)), part) in batch.columns().iter().zip(self.wanted).zip(parts.iter_mut()) {
            let pushed = part.push(array, wanted, self.device)?;
            bytes += pushed.ok_or_else(|| error(format!("column {} cannot be read", wanted.name)))? as u64;
        }
        let read = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if read > self.limit_bytes {
            return Err(too_large(self.source, self.wanted, read, 0, self.limit_bytes));
        }
        drop(parts);
        self.clock.encoded(partition, came_ns);
        let before = self.rows.fetch_add(rows, Ordering::Relaxed);
        if self.glance_after.is_some_and(|after| before < after && before + rows >= after) {
            self.glance();
        }
        Ok(())
    }

    /// Tells what has been seen so far.
    fn glance(&self) {
        let new = |(_, wanted): &(usize, Wanted)| Glance::new(wanted, self.all_rows);
        let mut glances: Vec<Glance> = self.wanted.iter().map(new).collect();
        for parts in &self.partitions {
            glances.iter_mut().zip(parts.lock().iter()).for_each(|(glance, part)| glance.at(part));
        }
        (self.seen)(glances.iter().map(Glance::layout).collect());
    }
}

/// Columns that do not fit the device.
pub(super) fn too_large(
    source: &dyn TableSource,
    wanted: &[(usize, Wanted)],
    requested: u64,
    used: u64,
    limit: u64,
) -> EngineError {
    let names: Vec<&str> = wanted.iter().map(|(_, wanted)| wanted.name.as_str()).collect();
    let device = format!("loading columns {} of {}", names.join(", "), source.name());
    DeviceError::OutOfMemory { device, requested, used, limit }.into()
}
