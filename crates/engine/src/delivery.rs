//! Where the rows of a plan go: out of the engine, batch by batch, or to a later stage of the query.
//!
//! **When rows go out.** Rows that went out cannot be taken back: after them the query cannot be run again, in smaller
//! parts, on another device or on DataFusion's operators. So no row goes out before everything that could lead there has been
//! tried. Mostly that is simple: all kernels have run, the result lies on the device, and is read and handed out piece by
//! piece. A result that is drained while kernels still run (`stage::draining`) is held back until they are done. Where that
//! takes more than [`Batches::held_bytes`], and its kernels may report that they cannot do it, they first run to the end only
//! to see that they do not, and again to deliver. What fails after rows went out, all the same (the query, the device, the
//! host's memory), is [`EngineError::Interrupted`], which is no reason to fall back.

use std::ops::Range;

use arrow::array::{Array, AsArray};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use kelpie_device::CancelToken;

use crate::error::{EngineError, FallbackReason, reserve};
use crate::intermediate::{IntermediateRows, IntermediateWindow};

/// Bytes that are read from the device at a time where rows go out, and where they are collected.
const PIECE_BYTES: (u64, u64) = (16 << 20, 64 << 20);
/// Bytes of device memory that a result may take before it is made in blocks.
const DEVICE_BYTES: u64 = 128 << 20;
/// Bytes of text that a column of Arrow's `Utf8` holds.
const MOST_TEXT_BYTES: u64 = i32::MAX as u64;

/// How an answer is cut into batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Rows of a batch, at most; at least 1.
    pub rows: usize,
    /// Bytes of text of a column of a batch, at most, unless one text alone has more.
    pub text_bytes: u64,
    /// Bytes of rows that are held back while kernels still run, at most.
    pub held_bytes: u64,
    /// Bytes of device memory that the answer may take; a larger one is made in blocks that leave the device one after the
    /// other, where its order allows that.
    pub device_bytes: u64,
}

impl Default for Batches {
    fn default() -> Self {
        Batches { rows: 8192, text_bytes: 256 << 20, held_bytes: 64 << 20, device_bytes: DEVICE_BYTES }
    }
}

/// Takes the rows of a plan in order.
pub(crate) trait RowReceiver {
    /// Takes the next rows.
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError>;
    /// Leaves out as many of the next `rows` rows as are not wanted, from the first on: how many.
    fn skip(&mut self, _rows: u64) -> u64 {
        0
    }
    /// The rows that are wanted, by their number, where that is known before they come; others may come as well.
    fn wanted(&self) -> Range<u64> {
        0..u64::MAX
    }
    /// The first `rows` rows of those that are still to come do not come; none of them is wanted.
    fn leave_out(&mut self, _rows: u64) {}
    /// Rows of a sort that may have left some of the order to whoever takes them come in order.
    fn come_in_order(&mut self) {}
    /// Which of the rows that are still to come may stay on a device, if they may.
    fn kept(&self) -> Option<IntermediateWindow> {
        None
    }
    /// Takes those that stay, in place of all rows that are still to come. Only where [`RowReceiver::kept`] has asked for them.
    fn take_kept(&mut self, _rows: IntermediateRows) {}
    /// Whether no more rows are wanted.
    fn is_full(&self) -> bool {
        false
    }
    /// Rows that went out of the engine.
    fn delivered(&self) -> u64;
    /// How rows are to be cut.
    fn batches(&self) -> Batches;
    /// Bytes that are read from the device at a time.
    fn piece_bytes(&self) -> u64;
}

/// Takes a batch of any size, in batches of the size that is wanted.
pub(crate) fn take_cut(out: &mut dyn RowReceiver, batch: RecordBatch) -> Result<(), EngineError> {
    let Batches { rows, text_bytes, .. } = out.batches();
    let mut start = out.skip(batch.num_rows() as u64) as usize;
    while start < batch.num_rows() && !out.is_full() {
        let count = fitting_rows(&batch, start, rows.max(1), text_bytes);
        match count == batch.num_rows() {
            true => out.take(batch.clone())?,
            false => out.take(batch.slice(start, count))?,
        }
        start += count;
    }
    Ok(())
}

/// How many rows from `start` on, at most `rows`, have no more than `text_bytes` bytes in each text column; at least one.
fn fitting_rows(batch: &RecordBatch, start: usize, rows: usize, text_bytes: u64) -> usize {
    let mut count = rows.min(batch.num_rows() - start);
    for texts in batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()) {
        let ends = &texts.value_offsets()[start..=start + count];
        let most = i64::from(ends[0]).saturating_add(i64::try_from(text_bytes).unwrap_or(i64::MAX));
        count = ends[1..].partition_point(|end| i64::from(*end) <= most).max(1);
    }
    count
}

/// Hands rows out of the engine.
pub(crate) struct Outlet<'a> {
    consumer: &'a mut dyn FnMut(RecordBatch) -> Result<(), EngineError>,
    batches: Batches,
    cancel: &'a CancelToken,
    delivered: u64,
}

impl<'a> Outlet<'a> {
    pub(crate) fn new(
        batches: Batches,
        cancel: &'a CancelToken,
        consumer: &'a mut dyn FnMut(RecordBatch) -> Result<(), EngineError>,
    ) -> Outlet<'a> {
        let text_bytes = batches.text_bytes.min(MOST_TEXT_BYTES);
        Outlet { consumer, batches: Batches { text_bytes, ..batches }, cancel, delivered: 0 }
    }
}

impl RowReceiver for Outlet<'_> {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        if self.cancel.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        self.delivered += batch.num_rows() as u64;
        (self.consumer)(batch)
    }
    fn delivered(&self) -> u64 {
        self.delivered
    }
    fn batches(&self) -> Batches {
        self.batches
    }
    fn piece_bytes(&self) -> u64 {
        PIECE_BYTES.0
    }
}

/// Keeps rows for a later stage of the query.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    pub(crate) batches: Vec<RecordBatch>,
    /// Rows before those that came.
    pub(crate) left_out: u64,
}

impl Collected {
    /// All rows in one batch; an error where that has more text than Arrow's arrays hold.
    pub(crate) fn into_one(mut self, schema: &SchemaRef) -> Result<RecordBatch, EngineError> {
        match (self.batches.pop(), self.batches.is_empty()) {
            (None, _) => Ok(RecordBatch::new_empty(schema.clone())),
            (Some(batch), true) => Ok(batch),
            (Some(last), false) => {
                self.batches.push(last);
                one_batch(schema, &self.batches)
            }
        }
    }
}

impl RowReceiver for Collected {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        self.batches.push(batch);
        Ok(())
    }
    fn leave_out(&mut self, rows: u64) {
        self.left_out += rows;
    }
    fn delivered(&self) -> u64 {
        0
    }
    fn batches(&self) -> Batches {
        // Batches stay below the limit of Arrow's arrays, so that those of one stage need not be cut by another.
        Batches {
            rows: usize::MAX,
            text_bytes: PIECE_BYTES.1,
            held_bytes: u64::MAX,
            device_bytes: DEVICE_BYTES,
        }
    }
    fn piece_bytes(&self) -> u64 {
        PIECE_BYTES.1
    }
}

/// Passes some rows of a range on, the first of which has number 0.
pub(crate) struct Window<'a> {
    rows: &'a mut dyn RowReceiver,
    wanted: Range<u64>,
    /// Rows that were taken or left out.
    taken: u64,
}

impl<'a> Window<'a> {
    /// Rows `skip..skip + fetch`.
    pub(crate) fn new(rows: &'a mut dyn RowReceiver, skip: usize, fetch: Option<usize>) -> Window<'a> {
        let start = skip as u64;
        let end = fetch.map_or(u64::MAX, |fetch| start.saturating_add(fetch as u64));
        Window { rows, wanted: start..end, taken: 0 }
    }
}

impl RowReceiver for Window<'_> {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        let count = batch.num_rows() as u64;
        let place = |row: u64| row.saturating_sub(self.taken).min(count) as usize;
        let (start, end) = (place(self.wanted.start), place(self.wanted.end));
        self.taken = self.taken.saturating_add(count);
        match start < end {
            true => self.rows.take(batch.slice(start, end - start)),
            false => Ok(()),
        }
    }
    fn skip(&mut self, rows: u64) -> u64 {
        let own = self.wanted.start.saturating_sub(self.taken).min(rows);
        self.taken += own;
        let left = (rows - own).min(self.wanted.end.saturating_sub(self.taken));
        let inner = if self.taken >= self.wanted.start { self.rows.skip(left) } else { 0 };
        self.taken += inner;
        own + inner
    }
    fn wanted(&self) -> Range<u64> {
        let inner = self.rows.wanted();
        let place = |row: u64| self.wanted.start.saturating_add(row);
        place(inner.start)..place(inner.end).min(self.wanted.end)
    }
    fn leave_out(&mut self, rows: u64) {
        let before = self.taken.max(self.wanted.start);
        self.taken = self.taken.saturating_add(rows);
        self.rows.leave_out(self.taken.saturating_sub(before));
    }
    fn kept(&self) -> Option<IntermediateWindow> {
        let inner = self.rows.kept()?;
        // By number among the rows that are still to come.
        let first = self.wanted.start.saturating_sub(self.taken);
        let place = |row: u64| first.saturating_add(row);
        let most = self.wanted.end.saturating_sub(self.taken);
        let rows = place(inner.rows.start).min(most)..place(inner.rows.end).min(most);
        Some(IntermediateWindow { rows, ..inner })
    }
    fn take_kept(&mut self, rows: IntermediateRows) {
        self.taken = self.wanted.end;
        self.rows.take_kept(rows);
    }
    fn is_full(&self) -> bool {
        self.taken >= self.wanted.end || self.rows.is_full()
    }
    fn delivered(&self) -> u64 {
        self.rows.delivered()
    }
    fn batches(&self) -> Batches {
        self.rows.batches()
    }
    fn piece_bytes(&self) -> u64 {
        self.rows.piece_bytes()
    }
}

/// Passes the rows of a sort on where they come in order, and keeps them where some of it is left to be done.
pub(crate) struct Undecided<'a> {
    out: &'a mut dyn RowReceiver,
    is_decided: bool,
    /// What is kept, and how many rows come before it.
    pub(crate) kept: Collected,
}

impl<'a> Undecided<'a> {
    pub(crate) fn new(out: &'a mut dyn RowReceiver) -> Undecided<'a> {
        Undecided { out, is_decided: false, kept: Collected::default() }
    }

    /// The rows that are to be put in order, if any are.
    pub(crate) fn left(self) -> Option<Collected> {
        (!self.is_decided).then_some(self.kept)
    }

    fn next(&mut self) -> &mut dyn RowReceiver {
        if self.is_decided { self.out } else { &mut self.kept }
    }
}

impl RowReceiver for Undecided<'_> {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        self.next().take(batch)
    }
    fn skip(&mut self, rows: u64) -> u64 {
        self.next().skip(rows)
    }
    fn wanted(&self) -> Range<u64> {
        self.out.wanted()
    }
    fn leave_out(&mut self, rows: u64) {
        self.next().leave_out(rows);
    }
    fn come_in_order(&mut self) {
        self.is_decided = true;
    }
    fn kept(&self) -> Option<IntermediateWindow> {
        if self.is_decided { self.out.kept() } else { None }
    }
    fn take_kept(&mut self, rows: IntermediateRows) {
        self.out.take_kept(rows);
    }
    fn is_full(&self) -> bool {
        self.is_decided && self.out.is_full()
    }
    fn delivered(&self) -> u64 {
        self.out.delivered()
    }
    fn batches(&self) -> Batches {
        if self.is_decided { self.out.batches() } else { self.kept.batches() }
    }
    fn piece_bytes(&self) -> u64 {
        if self.is_decided { self.out.piece_bytes() } else { self.kept.piece_bytes() }
    }
}

/// Passes batches on as something makes them: with other columns, the same rows.
pub(crate) struct Mapped<'a> {
    pub(crate) rows: &'a mut dyn RowReceiver,
    pub(crate) map: &'a dyn Fn(&RecordBatch) -> Result<RecordBatch, EngineError>,
    /// The columns of `map`, by their numbers among those that come.
    pub(crate) columns: &'a [usize],
}

impl RowReceiver for Mapped<'_> {
    fn take(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        self.rows.take((self.map)(&batch)?)
    }
    fn skip(&mut self, rows: u64) -> u64 {
        self.rows.skip(rows)
    }
    fn wanted(&self) -> Range<u64> {
        self.rows.wanted()
    }
    fn leave_out(&mut self, rows: u64) {
        self.rows.leave_out(rows);
    }
    fn kept(&self) -> Option<IntermediateWindow> {
        let inner = self.rows.kept()?;
        let columns = match &inner.columns {
            None => Some(self.columns.to_vec()),
            Some(wanted) => wanted.iter().map(|column| self.columns.get(*column).copied()).collect(),
        };
        columns.map(|columns| IntermediateWindow { columns: Some(columns), ..inner })
    }
    fn take_kept(&mut self, rows: IntermediateRows) {
        self.rows.take_kept(rows);
    }
    fn is_full(&self) -> bool {
        self.rows.is_full()
    }
    fn delivered(&self) -> u64 {
        self.rows.delivered()
    }
    fn batches(&self) -> Batches {
        self.rows.batches()
    }
    fn piece_bytes(&self) -> u64 {
        self.rows.piece_bytes()
    }
}

/// Several batches as one; an error where that has more text than Arrow's arrays hold, or the host has no memory for it.
pub(crate) fn one_batch(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch, EngineError> {
    let widest = (0..schema.fields().len()).map(|column| text_bytes(batches, column)).max().unwrap_or(0);
    if widest > MOST_TEXT_BYTES {
        let what = "the text of a column, more than one batch can hold";
        return Err(FallbackReason::HostMemory { bytes: widest, what }.into());
    }
    let bytes: u64 = batches.iter().map(bytes).sum();
    reserve(bytes as usize, "rows of a result")?;
    Ok(concat_batches(schema, batches)?)
}

/// Bytes of text of a column in all batches; 0 where it is no text.
pub(crate) fn text_bytes(batches: &[RecordBatch], column: usize) -> u64 {
    let of_batch = |batch: &RecordBatch| match batch.column(column).data_type() {
        DataType::Utf8 => {
            let offsets = batch.column(column).as_string::<i32>().value_offsets();
            offsets.last().zip(offsets.first()).map_or(0, |(last, first)| (last - first) as u64)
        }
        _ => 0,
    };
    batches.iter().map(of_batch).sum()
}

/// Bytes of a batch's rows.
pub(crate) fn bytes(batch: &RecordBatch) -> u64 {
    let columns = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size());
    columns.map(|bytes| bytes.unwrap_or_default() as u64).sum()
}
