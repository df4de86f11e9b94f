//! Runs the device-wide primitives of `compile::primitives`: prefix sum and radix sort.

use std::collections::HashMap;
use std::sync::Arc;

use kelpie_compile::primitives::reduce::{self, Reduction};
use kelpie_compile::primitives::{radix, scan, segments};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, CancelToken, DeviceError, Kernel, KernelArgument, QueryStream};
use kelpie_kir::{Module, Scalar, TypeError, ValidModule, validate};

use crate::columns::ColumnCache;
use crate::error::EngineError;
use crate::launch::submit;
use crate::stage::block_shape;

/// Elements of a thread that a tile should have, at least.
const ELEMENTS_PER_THREAD: u64 = 16;
/// Elements of a tile of a CPU, at least.
const CPU_TILE: u64 = 16 << 10;
/// Elements of a tile of a prefix sum a thread.
const SCAN_PER_THREAD: u64 = 16;

/// Primitives of one query.
#[derive(Debug)]
pub(crate) struct Primitives<'a> {
    stream: &'a dyn QueryStream,
    /// How their kernels are launched: a tile is a block's.
    shape: LaunchShape,
    /// Makes room by evicting columns.
    cache: &'a ColumnCache,
    cancel: &'a CancelToken,
    scan: ValidModule,
    radix: ValidModule,
    /// By name: a sort launches each many times.
    kernels: HashMap<&'static str, Arc<dyn Kernel>>,
    /// Time of all launches, in nanoseconds.
    pub(crate) time_ns: u64,
}

/// What a sort gives.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// The elements' numbers in order, `u32`.
    pub(crate) order: Buffer,
    /// The most significant words in order; `None` where all are equal.
    pub(crate) first: Option<Buffer>,
}

/// The modules of the primitives, for checks of generated code.
pub(crate) fn modules(shape: &LaunchShape) -> Result<Vec<Module>, TypeError> {
    Ok(vec![
        scan::module(shape, Scalar::U32)?,
        radix::module(shape)?,
        reduce::module(shape, Scalar::U64, Reduction::Greatest)?,
        segments::module(shape, Scalar::F64, Reduction::Sum)?,
    ])
}

fn valid(module: Result<Module, TypeError>) -> Result<ValidModule, EngineError> {
    let module = module.map_err(|error| EngineError::Internal(format!("a primitive: {error}")))?;
    validate(module).map_err(|error| EngineError::Internal(format!("a primitive: {error}")))
}

fn whole(buffer: &Buffer) -> KernelArgument {
    KernelArgument::Buffer(Arc::clone(buffer), 0)
}

fn integer(scalar: Scalar, value: u64) -> KernelArgument {
    KernelArgument::Scalar(scalar, value.into())
}

impl<'a> Primitives<'a> {
    /// Primitives on the stream's device.
    pub(crate) fn new(
        stream: &'a dyn QueryStream,
        cache: &'a ColumnCache,
        cancel: &'a CancelToken,
    ) -> Result<Primitives<'a>, EngineError> {
        let shape = LaunchShape::of(stream.device().target());
        let (scan, radix) = (valid(scan::module(&shape, Scalar::U32))?, valid(radix::module(&shape))?);
        Ok(Primitives { stream, shape, cache, cancel, scan, radix, kernels: HashMap::new(), time_ns: 0 })
    }

    pub(crate) fn stream(&self) -> &dyn QueryStream {
        self.stream
    }

    fn allocate(&self, bytes: u64) -> Result<Buffer, DeviceError> {
        self.cache.allocate(self.stream.device(), usize::try_from(bytes).unwrap_or(usize::MAX).max(16))
    }

    /// Launches a kernel over tiles; the arguments after `rows` and `tile_rows` are the kernel's own.
    fn launch(
        &mut self,
        kernel: &dyn Kernel,
        tiles: u64,
        arguments: &[KernelArgument],
    ) -> Result<(), EngineError> {
        let blocks = u32::try_from(tiles).unwrap_or(u32::MAX).clamp(1, self.shape.most_blocks);
        let report = submit(self.stream, kernel, blocks, arguments, self.cancel)?;
        self.time_ns += report.time_ns;
        match report.status {
            0 => Ok(()),
            1 => Err(EngineError::Cancelled),
            other => Err(EngineError::Internal(format!("a primitive reported {other}"))),
        }
    }

    fn kernel(&mut self, name: &'static str) -> Result<Arc<dyn Kernel>, EngineError> {
        if let Some(kernel) = self.kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let module = if matches!(name, scan::SUMS | scan::APPLY) { &self.scan } else { &self.radix };
        let kernel = self.stream.compile_for(module, name, block_shape(&self.shape))?;
        self.kernels.insert(name, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Replaces each of `rows` `u32`s by the sum of those before it.
    pub(crate) fn exclusive_scan(&mut self, data: &Buffer, rows: u64) -> Result<(), EngineError> {
        let threads = u64::from(self.shape.block_threads);
        let tile_rows = if self.shape.is_serial() { CPU_TILE } else { threads * SCAN_PER_THREAD };
        self.scan_tiles(data, rows, tile_rows)
    }

    fn scan_tiles(&mut self, data: &Buffer, rows: u64, tile_rows: u64) -> Result<(), EngineError> {
        if rows == 0 {
            return Ok(());
        }
        let tiles = rows.div_ceil(tile_rows);
        let sums = self.allocate(tiles * 4)?;
        let arguments =
            [whole(data), integer(Scalar::I64, rows), integer(Scalar::I64, tile_rows), whole(&sums)];
        if tiles == 1 {
            self.stream.fill(&sums, 0, 4, 0)?;
        } else {
            let kernel = self.kernel(scan::SUMS)?;
            self.launch(kernel.as_ref(), tiles, &arguments)?;
            self.scan_tiles(&sums, tiles, tile_rows)?;
        }
        let kernel = self.kernel(scan::APPLY)?;
        self.launch(kernel.as_ref(), tiles, &arguments)
    }

    /// Sorts `rows` elements (less than 2³²) by keys of several `u64` words, the most significant first. Stable. The words
    /// are not changed.
    pub(crate) fn sort(&mut self, words: &[Buffer], rows: u64) -> Result<Sorted, EngineError> {
        let mut pass = self.begin_sort(rows)?;
        let mut first = None;
        let mut is_identity = true;
        for (index, word) in words.iter().enumerate().rev() {
            let mut bits = self.varying(word, &pass)?;
            if bits == 0 {
                continue;
            }
            let mut keys = if is_identity { Arc::clone(word) } else { self.gather(word, &mut pass)? };
            is_identity = false;
            while bits != 0 {
                let shift = bits.trailing_zeros();
                keys = self.digit(&keys, shift, &mut pass)?;
                bits &= !(u64::from(radix::DIGITS - 1) << shift);
            }
            first = (index == 0).then_some(keys);
        }
        Ok(Sorted { order: pass.order, first })
    }

    fn begin_sort(&mut self, rows: u64) -> Result<Pass, EngineError> {
        let (threads, blocks) = (u64::from(self.shape.block_threads), u64::from(self.shape.most_blocks));
        let least = if self.shape.is_serial() { CPU_TILE } else { threads * ELEMENTS_PER_THREAD };
        // Whole chunks of the block, as many tiles as blocks run at a time.
        let tile_rows = rows.div_ceil(blocks).max(least).next_multiple_of(threads);
        let tiles = rows.div_ceil(tile_rows).max(1);
        let pass = Pass {
            rows,
            tile_rows,
            tiles,
            order: self.allocate(rows * 4)?,
            spare_order: self.allocate(rows * 4)?,
            keys: [self.allocate(rows * 8)?, self.allocate(rows * 8)?],
            counts: self.allocate(u64::from(radix::DIGITS) * tiles * 4)?,
        };
        let kernel = self.kernel(radix::IOTA)?;
        self.launch(kernel.as_ref(), tiles, &pass.arguments([whole(&pass.order)]))?;
        Ok(pass)
    }

    /// The bits in which the keys differ.
    fn varying(&mut self, keys: &Buffer, pass: &Pass) -> Result<u64, EngineError> {
        let bits = self.allocate(8)?;
        self.stream.fill(&bits, 0, 8, 0)?;
        let kernel = self.kernel(radix::VARYING)?;
        self.launch(kernel.as_ref(), pass.tiles, &pass.arguments([whole(keys), whole(&bits)]))?;
        let mut word = [0; 8];
        self.stream.download(&bits, 0, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// A word in the order so far.
    fn gather(&mut self, word: &Buffer, pass: &mut Pass) -> Result<Buffer, EngineError> {
        let kernel = self.kernel(radix::GATHER)?;
        let [keys, _] = &pass.keys;
        let arguments = pass.arguments([whole(word), whole(&pass.order), whole(keys)]);
        self.launch(kernel.as_ref(), pass.tiles, &arguments)?;
        Ok(Arc::clone(keys))
    }

    /// Sorts by one digit; the keys in the new order.
    fn digit(&mut self, keys: &Buffer, shift: u32, pass: &mut Pass) -> Result<Buffer, EngineError> {
        let (shift, tiles) = (integer(Scalar::U32, shift.into()), integer(Scalar::I64, pass.tiles));
        let kernel = self.kernel(radix::COUNT)?;
        let arguments = pass.arguments([whole(keys), shift.clone(), whole(&pass.counts), tiles.clone()]);
        self.launch(kernel.as_ref(), pass.tiles, &arguments)?;
        self.exclusive_scan(&pass.counts, u64::from(radix::DIGITS) * pass.tiles)?;
        let [a, b] = &pass.keys;
        let out = Arc::clone(if Arc::ptr_eq(keys, a) { b } else { a });
        let kernel = self.kernel(radix::SCATTER)?;
        let arguments = pass.arguments([
            whole(keys),
            whole(&pass.order),
            shift,
            whole(&pass.counts),
            tiles,
            whole(&out),
            whole(&pass.spare_order),
        ]);
        self.launch(kernel.as_ref(), pass.tiles, &arguments)?;
        std::mem::swap(&mut pass.order, &mut pass.spare_order);
        Ok(out)
    }
}

/// The buffers of a sort.
#[derive(Debug)]
struct Pass {
    rows: u64,
    tile_rows: u64,
    tiles: u64,
    order: Buffer,
    spare_order: Buffer,
    keys: [Buffer; 2],
    counts: Buffer,
}

impl Pass {
    fn arguments<const N: usize>(&self, own: [KernelArgument; N]) -> Vec<KernelArgument> {
        let mut all = vec![integer(Scalar::I64, self.rows), integer(Scalar::I64, self.tile_rows)];
        all.extend(own);
        all
    }
}

#[cfg(test)]
mod tests;
