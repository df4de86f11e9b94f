//! Runs the variants of small operators (`compile::spaces`) by themselves: columns on a device, kernels of variants, and what each run took.
//!
//! A kernel is made once and runs over any part of a column that begins at a multiple of 64 rows, as a query does block by block.

use std::ops::Range;
use std::sync::Arc;

use kelpie_compile::shape::LaunchShape;
pub use kelpie_compile::spaces::{
    Aggregation, AggregationSpace, Comparison, Genome, Kind, Predicate, Selection, SelectionSpace, Space,
    Variable,
};
use kelpie_compile::spaces::{aggregation, selection};
use kelpie_device::{BlockShape, Buffer, CancelToken, Device, Kernel, KernelArgument, QueryStream, Tier};
pub use kelpie_kir::{CompareOp, Scalar, Target};
use kelpie_kir::{Module, TypeError, validate};

use crate::columns::ColumnCache;
use crate::error::EngineError;
use crate::launch::submit;
use crate::options::QueryOptions;
use crate::query::Engine;

/// Parts of a column begin at a multiple of so many rows: there all elements of its bitmaps begin.
pub const PART_ROWS: u32 = 64;

/// Operators in variants on a device.
#[derive(Debug)]
pub struct Variants {
    stream: Box<dyn QueryStream>,
    shape: LaunchShape,
    cancel: CancelToken,
    cache: ColumnCache,
    /// Where sums go: 8 bytes.
    total: Buffer,
}

/// A column on a device.
#[derive(Debug, Clone)]
pub struct Column {
    data: Buffer,
    validity: Option<Buffer>,
    scalar: Scalar,
    rows: u32,
}

impl Column {
    /// How many rows it has.
    pub fn rows(&self) -> u32 {
        self.rows
    }
}

/// Room for a bitmap of as many rows as a column has.
#[derive(Debug, Clone)]
pub struct Bitmap(Buffer);

/// A compiled variant of a selection.
#[derive(Debug, Clone)]
pub struct SelectionKernel {
    kernel: Arc<dyn Kernel>,
    block_rows: u32,
    of: (Comparison, bool),
}

/// A compiled variant of a sum.
#[derive(Debug, Clone)]
pub struct SumKernel {
    kernel: Arc<dyn Kernel>,
    blocks: u32,
    of: (Scalar, bool),
}

impl SelectionKernel {
    /// The time that it took to compile, in nanoseconds; 0 where it was there.
    pub fn compile_ns(&self) -> u64 {
        self.kernel.compile_ns()
    }
}

impl SumKernel {
    /// As [`SelectionKernel::compile_ns`].
    pub fn compile_ns(&self) -> u64 {
        self.kernel.compile_ns()
    }
}

/// A reason why something cannot be done that lies with whoever asked.
fn refused(reason: impl Into<String>) -> EngineError {
    EngineError::Unsupported(kelpie_compile::context::Unsupported(reason.into()))
}

impl Variants {
    /// On a device.
    ///
    /// # Errors
    /// Where the device cannot be used.
    pub fn on(device: &Arc<dyn Device>) -> Result<Variants, EngineError> {
        let stream = Arc::clone(device).begin_query()?;
        stream.set_tier(Tier::Best);
        let (shape, cache) = (LaunchShape::of(device.target()), ColumnCache::default());
        let total = cache.allocate(device, 16)?;
        Ok(Variants { stream, shape, cancel: CancelToken::default(), cache, total })
    }

    /// On the device that a query with these options would run on.
    ///
    /// # Errors
    /// As [`Variants::on`].
    pub fn of(engine: &Engine, options: &QueryOptions) -> Result<Variants, EngineError> {
        Variants::on(&engine.devices.find(options)?)
    }

    /// Stops what runs when it is cancelled.
    pub fn cancelled_by(self, cancel: CancelToken) -> Variants {
        Variants { cancel, ..self }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        self.stream.device()
    }

    /// The device's name, and its bandwidths in GB/s: reading its memory, and over its link. Measures them.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn device_rates(&self) -> Result<(String, f64, f64), EngineError> {
        let device = self.stream.device();
        let rates = crate::bandwidth::measure(device)?;
        Ok((device.name(), rates.memory, rates.link))
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, EngineError> {
        Ok(self.cache.allocate(self.stream.device(), bytes.max(16))?)
    }

    /// Brings a column to the device: its values as they lie in memory, and a bit a row, lowest first, whether it has one.
    ///
    /// # Errors
    /// Where the sizes do not fit each other, there are 2³¹ rows or more, values are no numbers of up to 64 bits, or the device fails.
    pub fn upload(
        &self,
        scalar: Scalar,
        data: &[u8],
        validity: Option<&[u8]>,
    ) -> Result<Column, EngineError> {
        if matches!(scalar, Scalar::Bool | Scalar::I128) {
            return Err(refused(format!("variants over a column of {scalar:?}")));
        }
        let width = scalar.bytes() as usize;
        let rows = u32::try_from(data.len() / width).unwrap_or(u32::MAX);
        if !data.len().is_multiple_of(width) || rows > selection::MOST_ROWS {
            return Err(refused(format!("a column of {} bytes, each value of {width}", data.len())));
        }
        let bytes = (rows as usize).div_ceil(8);
        if validity.is_some_and(|validity| validity.len() < bytes) {
            return Err(refused(format!("a column of {rows} rows with fewer bits")));
        }
        let upload = |bytes: &[u8], room: usize| -> Result<Buffer, EngineError> {
            let buffer = self.allocate(room)?;
            self.stream.upload(&buffer, 0, bytes)?;
            Ok(buffer)
        };
        let with_bits = |validity: &[u8]| {
            let mut words = vec![0; bytes.next_multiple_of(8)];
            words.iter_mut().zip(validity).take(bytes).for_each(|(word, bits)| *word = *bits);
            upload(&words, words.len())
        };
        let validity = validity.map(with_bits).transpose()?;
        Ok(Column { data: upload(data, data.len())?, validity, scalar, rows })
    }

    fn compile(
        &self,
        made: Result<Module, TypeError>,
        (name, threads): (&str, u32),
    ) -> Result<Arc<dyn Kernel>, EngineError> {
        let internal = |error: String| EngineError::Internal(format!("{name}: {error}"));
        let module = made.map_err(|error| internal(error.to_string()))?;
        let module = validate(module).map_err(|error| internal(error.to_string()))?;
        let threads = if self.shape.is_serial() { 1 } else { threads };
        Ok(self.stream.compile_for(&module, name, BlockShape { threads, resident: None })?)
    }

    /// The kernel of a variant of a selection; `nullable`: over columns with NULLs. May be called by several threads at a time.
    ///
    /// # Errors
    /// Where it does not compile.
    pub fn selection(
        &self,
        variant: &Selection,
        comparison: Comparison,
        nullable: bool,
    ) -> Result<SelectionKernel, EngineError> {
        let made = variant.module(&self.shape, &comparison, nullable);
        let kernel = self.compile(made, (selection::SELECT, variant.threads))?;
        Ok(SelectionKernel { kernel, block_rows: variant.block_rows(), of: (comparison, nullable) })
    }

    /// The kernel of a variant of a sum of such a column.
    ///
    /// # Errors
    /// Where it does not compile.
    pub fn aggregation(
        &self,
        variant: &Aggregation,
        scalar: Scalar,
        nullable: bool,
    ) -> Result<SumKernel, EngineError> {
        let made = variant.module(&self.shape, scalar, nullable);
        let kernel = self.compile(made, (aggregation::SUM, variant.threads))?;
        let units = match (self.shape.is_serial(), self.stream.device().attributes().multiprocessors) {
            (false, Some(units)) => u32::try_from(units).unwrap_or(u32::MAX),
            _ => self.shape.most_blocks,
        };
        Ok(SumKernel { kernel, blocks: units.saturating_mul(variant.blocks), of: (scalar, nullable) })
    }

    /// Room for the bitmap of a column.
    ///
    /// # Errors
    /// Where the device has no memory for it.
    pub fn bitmap(&self, column: &Column) -> Result<Bitmap, EngineError> {
        Ok(Bitmap(self.allocate((column.rows as usize).div_ceil(64) * 8)?))
    }

    /// The arguments that a part of a column is: values, rows and the bits of values that are there.
    fn part(&self, column: &Column, rows: &Range<u32>) -> Result<[Option<KernelArgument>; 3], EngineError> {
        let fits = rows.start <= rows.end && rows.end <= column.rows;
        if !fits || !rows.start.is_multiple_of(PART_ROWS) {
            return Err(refused(format!("rows {rows:?} of a column of {}", column.rows)));
        }
        let first = u64::from(rows.start);
        let bytes = u64::from(column.scalar.bytes());
        let data = KernelArgument::Buffer(Arc::clone(&column.data), first * bytes);
        let count = KernelArgument::Scalar(Scalar::U32, i128::from(rows.end - rows.start));
        let validity = column.validity.as_ref();
        let validity = validity.map(|bits| KernelArgument::Buffer(Arc::clone(bits), first / 8));
        Ok([Some(data), Some(count), validity])
    }

    fn launch(
        &self,
        kernel: &dyn Kernel,
        blocks: u32,
        arguments: &[KernelArgument],
    ) -> Result<u64, EngineError> {
        let report = submit(self.stream.as_ref(), kernel, blocks.max(1), arguments, &self.cancel)?;
        match report.status {
            0 => Ok(report.time_ns),
            1 => Err(EngineError::Cancelled),
            other => Err(EngineError::Internal(format!("a variant reported {other}"))),
        }
    }

    /// Makes the bits of these rows of a column's bitmap; the time in nanoseconds. `bound`: what values are compared with, its bits zero- or sign-extended.
    ///
    /// # Errors
    /// Where the kernel is of other columns, there are no such rows, they do not begin at a multiple of [`PART_ROWS`], it was cancelled, or
    /// the device fails.
    pub fn select(
        &self,
        kernel: &SelectionKernel,
        (column, rows): (&Column, Range<u32>),
        bound: i128,
        bitmap: &Bitmap,
    ) -> Result<u64, EngineError> {
        let (comparison, nullable) = kernel.of;
        let is_of_kind = (comparison.scalar, nullable) == (column.scalar, column.validity.is_some());
        if !is_of_kind || bitmap.0.bytes() < (column.rows as usize).div_ceil(64) * 8 {
            return Err(refused("a selection of another column"));
        }
        let [data, count, validity] = self.part(column, &rows)?;
        let bound = Some(KernelArgument::Scalar(comparison.scalar, bound));
        let out = KernelArgument::Buffer(Arc::clone(&bitmap.0), u64::from(rows.start) / 8);
        let arguments: Vec<_> = [data, bound, count, validity, Some(out)].into_iter().flatten().collect();
        let parts = (rows.end - rows.start).div_ceil(kernel.block_rows);
        // A worker goes through its share of the blocks.
        let blocks = if self.shape.is_serial() { parts.min(self.shape.most_blocks) } else { parts };
        self.launch(kernel.kernel.as_ref(), blocks, &arguments)
    }

    /// Sets every bit of a bitmap, and those behind its end: what a kernel then does not write is seen.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn spoil(&self, bitmap: &Bitmap) -> Result<(), EngineError> {
        Ok(self.stream.fill(&bitmap.0, 0, bitmap.0.bytes(), 0xff)?)
    }

    /// The bits of so many rows from the beginning on, lowest first, in whole bytes.
    ///
    /// # Errors
    /// Where there are not so many, or the device fails.
    pub fn bits(&self, bitmap: &Bitmap, rows: u32) -> Result<Vec<u8>, EngineError> {
        let mut bits = vec![0; (rows as usize).div_ceil(8)];
        if bits.is_empty() {
            return Ok(bits);
        }
        self.stream.download(&bitmap.0, 0, &mut bits)?;
        Ok(bits)
    }

    /// The sum of these rows of a column, as the 64 bits of an `i64` or `f64`, and the time in nanoseconds.
    ///
    /// # Errors
    /// As [`Variants::select`].
    pub fn sum(
        &self,
        kernel: &SumKernel,
        column: &Column,
        rows: Range<u32>,
    ) -> Result<(u64, u64), EngineError> {
        if kernel.of != (column.scalar, column.validity.is_some()) {
            return Err(refused("a sum of another column"));
        }
        let [data, count, validity] = self.part(column, &rows)?;
        self.stream.fill(&self.total, 0, 8, 0)?;
        let total = KernelArgument::Buffer(Arc::clone(&self.total), 0);
        let arguments: Vec<_> = [data, count, validity, Some(total)].into_iter().flatten().collect();
        let time_ns = self.launch(kernel.kernel.as_ref(), kernel.blocks, &arguments)?;
        let mut sum = [0; 8];
        self.stream.download(&self.total, 0, &mut sum)?;
        Ok((u64::from_le_bytes(sum), time_ns))
    }
}
