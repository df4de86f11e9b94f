//! Runs sorted relational algebra (`compile::algebra`) by itself: relations on a device, operators in their stages, and what each took.
//!
//! A run sizes its result by what is expected; where that was too little, it has counted all results, and goes again with room for them.

mod stages;
mod stored;

use std::collections::HashMap;
use std::sync::Arc;

pub use kelpie_compile::algebra::{
    BlockJoin, Comparison, Description, Duplicates, Field, Operator, Outer, Output, Partition, Tuning,
    Tuples, Width,
};
use kelpie_compile::algebra::{flat, pages};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, CancelToken, Device, Kernel, KernelArgument, QueryStream, Tier};
pub use kelpie_kir::CompareOp;
use kelpie_kir::{Module, Scalar, TypeError, ValidModule, validate};
use parking_lot::Mutex;

pub use self::stored::{Outcome, Paged, Relation, Stage, Stored};
use crate::columns::ColumnCache;
use crate::error::EngineError;
use crate::launch::{block_shape, submit};
use crate::options::QueryOptions;
use crate::primitives::Primitives;
use crate::query::Engine;

/// Tuples that two inputs may have together, and the results of one run.
const MOST_INPUTS: u64 = 1 << 31;
const MOST_RESULTS: u64 = u32::MAX as u64;

/// Kernels that are made together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Family {
    Operator(Box<Description>),
    Project(Tuples, Vec<Field>, Tuples),
    Product(Tuples, Tuples, Tuples),
    FromDense(Width, u32),
    Copy,
}

/// Compiled kernels by what they are of, and their names.
type Kernels = HashMap<(Family, &'static str), Arc<dyn Kernel>>;

/// Sorted relational algebra on a device.
#[derive(Debug)]
pub struct Algebra {
    stream: Box<dyn QueryStream>,
    shape: LaunchShape,
    cancel: CancelToken,
    cache: ColumnCache,
    modules: Mutex<HashMap<Family, Arc<ValidModule>>>,
    kernels: Mutex<Kernels>,
    of_primitives: Arc<crate::primitives::KernelsByName>,
}

/// A reason why something cannot be done that lies with whoever asked.
fn refused(reason: impl Into<String>) -> EngineError {
    EngineError::Unsupported(kelpie_compile::context::Unsupported(reason.into()))
}

fn words(value: u32) -> KernelArgument {
    KernelArgument::Scalar(Scalar::U32, value.into())
}

fn whole(buffer: &Buffer) -> KernelArgument {
    KernelArgument::Buffer(Arc::clone(buffer), 0)
}

impl Algebra {
    /// On a device, in blocks that suit it, or of so many threads.
    ///
    /// # Errors
    /// Where the device has no such blocks, or cannot be used.
    pub fn on(device: &Arc<dyn Device>, threads: Option<u32>) -> Result<Algebra, EngineError> {
        let choices = kelpie_compile::shape::ShapeChoices { block_threads: threads, ..Default::default() };
        let shape = LaunchShape::new(device.target(), &choices).map_err(refused)?;
        let stream = Arc::clone(device).begin_query()?;
        stream.set_tier(Tier::Best);
        let (cancel, cache) = (CancelToken::default(), ColumnCache::default());
        let (modules, kernels, of_primitives) = Default::default();
        Ok(Algebra { stream, shape, cancel, cache, modules, kernels, of_primitives })
    }

    /// On the device that a query with these options would run on.
    ///
    /// # Errors
    /// As [`Algebra::on`].
    pub fn of(engine: &Engine, options: &QueryOptions, threads: Option<u32>) -> Result<Algebra, EngineError> {
        Algebra::on(&engine.devices.find(options)?, threads)
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

    /// How its kernels are launched.
    pub fn shape(&self) -> &LaunchShape {
        &self.shape
    }

    /// Stops what runs when it is cancelled.
    pub fn cancelled_by(self, cancel: CancelToken) -> Algebra {
        Algebra { cancel, ..self }
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, EngineError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).max(16);
        Ok(self.cache.allocate(self.stream.device(), bytes)?)
    }

    fn zeroed(&self, words: u64) -> Result<Buffer, EngineError> {
        let buffer = self.allocate(words * 8)?;
        self.stream.fill(&buffer, 0, usize::try_from(words * 8).unwrap_or(usize::MAX), 0)?;
        Ok(buffer)
    }

    fn kernel(&self, family: &Family, name: &'static str) -> Result<Arc<dyn Kernel>, EngineError> {
        let key = (family.clone(), name);
        if let Some(kernel) = self.kernels.lock().get(&key) {
            return Ok(Arc::clone(kernel));
        }
        let module = self.module(family)?;
        let kernel = self.stream.compile_for(&module, name, block_shape(&self.shape))?;
        self.kernels.lock().insert(key, Arc::clone(&kernel));
        Ok(kernel)
    }

    fn module(&self, family: &Family) -> Result<Arc<ValidModule>, EngineError> {
        if let Some(module) = self.modules.lock().get(family) {
            return Ok(Arc::clone(module));
        }
        let made: Result<Module, TypeError> = match family {
            Family::Operator(description) => description.module(&self.shape),
            Family::Project(tuples, fields, to) => flat::project(&self.shape, *tuples, fields, *to),
            Family::Product(left, right, to) => flat::product(&self.shape, (*left, *right), *to),
            Family::FromDense(width, page) => pages::from_dense(*width, *page),
            Family::Copy => flat::copy(),
        };
        let internal = |error: String| EngineError::Internal(format!("sorted algebra: {error}"));
        let made = made.map_err(|error| internal(error.to_string()))?;
        let module = Arc::new(validate(made).map_err(|error| internal(error.to_string()))?);
        self.modules.lock().insert(family.clone(), Arc::clone(&module));
        Ok(module)
    }

    /// Launches a kernel on so many blocks, or as many as fill the device; the time that it took, in nanoseconds.
    fn launch(
        &self,
        (family, name): (&Family, &'static str),
        blocks: u64,
        arguments: &[KernelArgument],
    ) -> Result<u64, EngineError> {
        let kernel = self.kernel(family, name)?;
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).clamp(1, self.shape.most_blocks);
        let report = submit(self.stream.as_ref(), kernel.as_ref(), blocks, arguments, &self.cancel)?;
        match report.status {
            0 => Ok(report.time_ns),
            1 => Err(EngineError::Cancelled),
            other => Err(EngineError::Internal(format!("{name} reported {other}"))),
        }
    }

    /// Blocks for so many elements, one a thread.
    fn blocks(&self, elements: u64) -> u64 {
        elements.div_ceil(u64::from(self.shape.block_threads))
    }

    /// Replaces each of so many `u32` by the sum of those before; the time in nanoseconds.
    fn scan(&self, data: &Buffer, count: u64) -> Result<u64, EngineError> {
        let primitives = Primitives::new(self.stream.as_ref(), &self.cache, &self.cancel);
        let mut primitives = primitives.sharing(&self.of_primitives);
        primitives.exclusive_scan(data, count)?;
        Ok(primitives.time_ns)
    }

    fn read_words(&self, buffer: &Buffer, count: usize) -> Result<Vec<u32>, EngineError> {
        let mut bytes = vec![0; count * 4];
        self.stream.download(buffer, 0, &mut bytes)?;
        let word = |bytes: &[u8]| bytes.try_into().map(u32::from_le_bytes).unwrap_or_default();
        Ok(bytes.chunks_exact(4).map(word).collect())
    }

    fn write_words(&self, words: &[u32]) -> Result<Buffer, EngineError> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let buffer = self.allocate(bytes.len() as u64)?;
        self.stream.upload(&buffer, 0, &bytes)?;
        Ok(buffer)
    }

    /// PROJECT: the fields of a relation's tuples put together anew, from the highest on. What is not in order then comes as it is: whoever
    /// asks sorts it ([`flat::keeps_order`]).
    ///
    /// # Errors
    /// Where the fields do not fit, or the device fails.
    pub fn project(
        &self,
        data: &Relation,
        fields: &[Field],
        to: Tuples,
    ) -> Result<(Relation, u64), EngineError> {
        let bits: u32 = fields.iter().map(|field| field.bits).sum();
        let is_inside = |field: &Field| {
            field.bits > 0 && field.shift.saturating_add(field.bits) <= data.tuples.width.bits()
        };
        if fields.is_empty()
            || !fields.iter().all(is_inside)
            || bits > to.width.bits()
            || bits != to.key_bits + to.value_bits
        {
            return Err(refused(format!("a projection to {bits} bits in {to:?}")));
        }
        let out = self.allocate(u64::from(data.rows) * u64::from(to.width.bytes()))?;
        let arguments = [whole(&data.buffer), words(data.rows), whole(&out)];
        let family = Family::Project(data.tuples, fields.to_vec(), to);
        let time_ns = self.launch((&family, flat::PROJECT), self.blocks(data.rows.into()), &arguments)?;
        Ok((Relation { buffer: out, rows: data.rows, tuples: to }, time_ns))
    }

    /// PRODUCT: each left tuple, as the key, above each right one, as the value.
    ///
    /// # Errors
    /// Where both do not fit 128 bits, the result is too large, or the device fails.
    pub fn product(&self, left: &Relation, right: &Relation) -> Result<(Relation, u64), EngineError> {
        let rows = u64::from(left.rows) * u64::from(right.rows);
        let rows = u32::try_from(rows).map_err(|_| refused(format!("a product of {rows} tuples")))?;
        let bits = |tuples: Tuples| tuples.key_bits + tuples.value_bits;
        let (key_bits, value_bits) = (bits(left.tuples), bits(right.tuples));
        let width = Width::ALL.into_iter().find(|width| key_bits + value_bits <= width.bits());
        let width = width.ok_or_else(|| refused(format!("tuples of {} bits", key_bits + value_bits)))?;
        let to = Tuples { width, key_bits, value_bits };
        let out = self.allocate(u64::from(rows) * u64::from(width.bytes()))?;
        let arguments =
            [whole(&left.buffer), whole(&right.buffer), words(left.rows), words(right.rows), whole(&out)];
        let family = Family::Product(left.tuples, right.tuples, to);
        let time_ns = self.launch((&family, flat::PRODUCT), u64::MAX, &arguments)?;
        Ok((Relation { buffer: out, rows, tuples: to }, time_ns))
    }

    /// Copies so many bytes, of which 16 are a word, within the device's memory; the time in nanoseconds.
    ///
    /// # Errors
    /// Where the device fails.
    pub fn copy(&self, data: &Relation) -> Result<u64, EngineError> {
        let bytes = u64::from(data.rows) * u64::from(data.tuples.width.bytes()) / 16 * 16;
        let out = self.allocate(bytes)?;
        let pairs = KernelArgument::Scalar(Scalar::I64, i128::from(bytes / 16));
        self.launch(
            (&Family::Copy, flat::COPY),
            self.blocks(bytes / 16),
            &[whole(&data.buffer), pairs, whole(&out)],
        )
    }
}
