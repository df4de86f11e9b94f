//! Runs the device-wide primitives of `compile::primitives`: prefix sum, sorts and selection by rank.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kelpie_compile::pipeline::SortForm;
use kelpie_compile::primitives::encode::Encode;
use kelpie_compile::primitives::reduce::{self, Reduction};
use kelpie_compile::primitives::{
    block_sort, chained_scan, init as init_kernels, look_back, merge as merge_kernels, open_runs, radix,
    runs, scan, select, sweep, ties as ties_kernels,
};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, CancelToken, Device, DeviceError, Kernel, KernelArgument, QueryStream};
use kelpie_kir::{Module, Scalar, TypeError, ValidModule, validate};
use parking_lot::Mutex;

use crate::columns::ColumnCache;
use crate::error::EngineError;
use crate::launch::{block_shape, submit};

/// Elements of a thread that a tile should have, at least.
const ELEMENTS_PER_THREAD: u64 = 16;
/// Elements of a tile of a CPU, at least.
const CPU_TILE: u64 = 16 << 10;

/// Compiled kernels of primitives.
pub(crate) type KernelsByName = Mutex<HashMap<Cow<'static, str>, Arc<dyn Kernel>>>;

/// Primitives of one query.
#[derive(Debug)]
pub(crate) struct Primitives<'a> {
    stream: &'a dyn QueryStream,
    /// How their kernels are launched: a tile is a block's.
    shape: LaunchShape,
    /// How many rows are sorted.
    form: SortForm,
    /// Makes room by evicting columns.
    cache: &'a ColumnCache,
    cancel: &'a CancelToken,
    /// By name: a sort launches each many times.
    kernels: Arc<KernelsByName>,
    /// Time of all launches, in nanoseconds.
    pub(crate) time_ns: u64,
}

/// What a sort gives.
#[derive(Debug)]
pub(crate) struct Sorted {
    /// The elements' numbers in order, `u32`.
    pub(crate) order: Buffer,
    /// The most significant words in order; `None` where nothing is there, or may be where all are equal.
    pub(crate) first: Option<Buffer>,
}

/// The modules of the primitives, for checks of generated code.
pub(crate) fn modules(shape: &LaunchShape) -> Result<Vec<Module>, TypeError> {
    let encode = Encode::all().into_iter().map(|kernel| kernel.module(shape));
    let mut modules = encode.collect::<Result<Vec<_>, _>>()?;
    modules.extend([
        scan::module(shape, Scalar::U32)?,
        radix::module(shape)?,
        select::module(shape)?,
        ties_kernels::module()?,
        merge_kernels::module(shape)?,
        runs::module()?,
        init_kernels::module(init_kernels::ARRAYS[0])?,
        chained_scan::module(shape)?,
        scan::bits_module(shape)?,
        chained_scan::bits_module(shape)?,
        reduce::module(shape, Scalar::U64, Reduction::Greatest)?,
    ]);
    if sweep::tile_rows(shape) > 0 {
        modules.push(sweep::module(shape)?);
    }
    if shape.is_serial() {
        modules.push(open_runs::module()?);
    } else {
        let pages = pages::PageKernel::all().into_iter().map(|kernel| kernel.module(shape));
        modules.extend(pages.collect::<Result<Vec<_>, _>>()?);
    }
    if block_sort::most_rows(shape) > 0 {
        let words = [1, 3, block_sort::MOST_WORDS].into_iter();
        let words = words.map(|words| block_sort::module(shape, words));
        modules.extend(words.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(modules)
}

fn valid(module: Result<Module, TypeError>) -> Result<ValidModule, EngineError> {
    let module = module.map_err(|error| EngineError::Internal(format!("a primitive: {error}")))?;
    validate(module).map_err(|error| EngineError::Internal(format!("a primitive: {error}")))
}

/// Kernels that are made together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Family {
    Scan,
    ScanBits,
    ChainedScan,
    ChainedScanBits,
    Radix,
    OpenRuns,
    Sweep,
    Select,
    Ties,
    Merge,
    Runs,
    /// The initialisation of so many arrays.
    Init(usize),
    /// The sort of a block, by so many words.
    BlockSort(usize),
}

/// Modules by shape: they depend on nothing else, and each sort asks for them.
type Modules = Mutex<HashMap<(LaunchShape, Family), Arc<ValidModule>>>;

/// The module of a family.
fn module(shape: &LaunchShape, family: Family) -> Result<Arc<ValidModule>, EngineError> {
    static MODULES: LazyLock<Modules> = LazyLock::new(Modules::default);
    let key = (shape.clone(), family);
    if let Some(module) = MODULES.lock().get(&key) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(valid(match family {
        Family::Scan => scan::module(shape, Scalar::U32),
        Family::ScanBits => scan::bits_module(shape),
        Family::ChainedScan => chained_scan::module(shape),
        Family::ChainedScanBits => chained_scan::bits_module(shape),
        Family::Radix => radix::module(shape),
        Family::OpenRuns => open_runs::module(),
        Family::Sweep => sweep::module(shape),
        Family::Select => select::module(shape),
        Family::Ties => ties_kernels::module(),
        Family::Merge => merge_kernels::module(shape),
        Family::Runs => runs::module(),
        Family::Init(arrays) => init_kernels::module(arrays),
        Family::BlockSort(words) => block_sort::module(shape, words),
    })?);
    MODULES.lock().insert(key, Arc::clone(&module));
    Ok(module)
}

/// Has a device compile the primitives that sorts and group-bys of most queries need, behind them: which one a query needs is known
/// only when its rows are there, and then it would wait for each.
pub(crate) fn foresee(device: &Arc<dyn Device>) {
    let shape = LaunchShape::of(device.target());
    let scans = [Family::ChainedScan, Family::ChainedScanBits, Family::Scan, Family::ScanBits];
    let small = (1..=3).flat_map(|number| [Family::Init(number), Family::BlockSort(number)]);
    let large = [Family::Radix, Family::Sweep, Family::Select, Family::Ties];
    for family in small.chain(scans).chain(large) {
        // A device may have no room for some of them.
        let Ok(module) = module(&shape, family) else { continue };
        for (_, kernel) in module.kernels.iter() {
            device.compile_behind(&module, &kernel.name, block_shape(&shape));
        }
    }
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
    ) -> Primitives<'a> {
        let shape = LaunchShape::of(stream.device().target());
        let form = SortForm::PLAIN;
        Primitives { stream, shape, form, cache, cancel, kernels: Arc::default(), time_ns: 0 }
    }

    /// With the kernels that others have compiled on the same device, for the same kind of stream.
    pub(crate) fn sharing(self, kernels: &Arc<KernelsByName>) -> Primitives<'a> {
        Primitives { kernels: Arc::clone(kernels), ..self }
    }

    /// Which sort many rows in a form.
    pub(crate) fn sorting_by(self, form: SortForm) -> Primitives<'a> {
        Primitives { form, ..self }
    }

    pub(crate) fn stream(&self) -> &dyn QueryStream {
        self.stream
    }

    pub(crate) fn allocate(&self, bytes: u64) -> Result<Buffer, DeviceError> {
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
        let family = match name {
            scan::SUMS | scan::APPLY => Family::Scan,
            scan::BIT_SUMS | scan::BIT_APPLY => Family::ScanBits,
            chained_scan::SCAN => Family::ChainedScan,
            chained_scan::BIT_SCAN => Family::ChainedScanBits,
            select::COUNTS
            | select::COLLECT
            | select::GATHER_LISTED
            | select::TEXT_COMMON
            | select::TEXT_WORDS => Family::Select,
            ties_kernels::SPLIT
            | ties_kernels::OPEN
            | ties_kernels::TAKE
            | ties_kernels::VARYING_IN
            | ties_kernels::GROUPS
            | ties_kernels::MOVE
            | ties_kernels::WRITE
            | ties_kernels::COMMON_IN => Family::Ties,
            merge_kernels::MERGE => Family::Merge,
            sweep::HISTOGRAMS | sweep::SWEEP => Family::Sweep,
            open_runs::CLOSE => Family::OpenRuns,
            runs::ENDS | runs::PLACES => Family::Runs,
            _ => Family::Radix,
        };
        self.kernel_of(family, name.into())
    }

    /// A kernel of a family.
    fn kernel_of(&mut self, family: Family, name: Cow<'static, str>) -> Result<Arc<dyn Kernel>, EngineError> {
        if let Some(kernel) = self.kernels.lock().get(&name) {
            return Ok(Arc::clone(kernel));
        }
        let module = module(&self.shape, family)?;
        let kernel = self.stream.compile_for(&module, &name, block_shape(&self.shape))?;
        self.kernels.lock().insert(name, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Replaces each of `rows` `u32`s by the sum of those before it.
    pub(crate) fn exclusive_scan(&mut self, data: &Buffer, rows: u64) -> Result<(), EngineError> {
        self.scan((data, None), rows)
    }

    /// Sets each of `rows` `u32`s to how many bits of a bitmap's words before it are set.
    pub(crate) fn rank_words(&mut self, ranks: &Buffer, bits: &Buffer, rows: u64) -> Result<(), EngineError> {
        self.scan((ranks, Some(bits)), rows)
    }

    /// Replaces an array by its prefix sum, or by that of the bits in each word of another.
    fn scan(&mut self, arrays: (&Buffer, Option<&Buffer>), rows: u64) -> Result<(), EngineError> {
        let tile_rows = chained_scan::tile_rows(&self.shape);
        match self.shape.is_serial() {
            true => self.scan_tiles(arrays, rows, CPU_TILE),
            // A block alone needs to know of no other.
            false if rows <= tile_rows => self.scan_tiles(arrays, rows, tile_rows),
            false => self.scan_at_once(arrays, rows),
        }
    }

    /// The same in one launch, on a SIMT device.
    fn scan_at_once(
        &mut self,
        (data, bits): (&Buffer, Option<&Buffer>),
        rows: u64,
    ) -> Result<(), EngineError> {
        let tiles = rows.div_ceil(chained_scan::tile_rows(&self.shape));
        let bytes = look_back::words(tiles, 1) * 8;
        let states = self.allocate(bytes)?;
        self.stream.fill(&states, 0, usize::try_from(bytes).unwrap_or(usize::MAX), 0)?;
        let kernel = self.kernel(bits.map_or(chained_scan::SCAN, |_| chained_scan::BIT_SCAN))?;
        let mut arguments = vec![integer(Scalar::I64, rows), whole(data), whole(&states)];
        arguments.extend(bits.map(whole));
        self.launch(kernel.as_ref(), tiles, &arguments)
    }

    fn scan_tiles(
        &mut self,
        (data, bits): (&Buffer, Option<&Buffer>),
        rows: u64,
        tile_rows: u64,
    ) -> Result<(), EngineError> {
        if rows == 0 {
            return Ok(());
        }
        let tiles = rows.div_ceil(tile_rows);
        let sums = self.allocate(tiles * 4)?;
        let mut arguments =
            vec![whole(data), integer(Scalar::I64, rows), integer(Scalar::I64, tile_rows), whole(&sums)];
        arguments.extend(bits.map(whole));
        let (add_up, apply) = match bits {
            None => (scan::SUMS, scan::APPLY),
            Some(_) => (scan::BIT_SUMS, scan::BIT_APPLY),
        };
        if tiles == 1 {
            self.stream.fill(&sums, 0, 4, 0)?;
        } else {
            let kernel = self.kernel(add_up)?;
            self.launch(kernel.as_ref(), tiles, &arguments)?;
            self.scan_tiles((&sums, None), tiles, tile_rows)?;
        }
        let kernel = self.kernel(apply)?;
        self.launch(kernel.as_ref(), tiles, &arguments)
    }

    /// Sorts `rows` elements (less than 2³²) by keys of several `u64` words, the most significant first. Stable. The words
    /// are not changed.
    pub(crate) fn sort(&mut self, words: &[Buffer], rows: u64) -> Result<Sorted, EngineError> {
        match self.fits_block(rows, words.len()) {
            true => self.sort_in_block(words, rows),
            false => self.radix_sort(words, rows),
        }
    }

    fn tiles(&self, rows: u64) -> Tiles {
        let (threads, blocks) = (u64::from(self.shape.block_threads), u64::from(self.shape.most_blocks));
        let least = if self.shape.is_serial() { CPU_TILE } else { threads * ELEMENTS_PER_THREAD };
        // Whole chunks of the block, as many tiles as blocks run at a time.
        let tile_rows = rows.div_ceil(blocks).max(least).next_multiple_of(threads);
        Tiles { rows, tile_rows, count: rows.div_ceil(tile_rows).max(1) }
    }

    /// Launches a kernel over all tiles of rows; `own`: its arguments after `rows` and `tile_rows`.
    fn over(&mut self, name: &'static str, tiles: Tiles, own: &[KernelArgument]) -> Result<(), EngineError> {
        let kernel = self.kernel(name)?;
        let mut arguments = vec![integer(Scalar::I64, tiles.rows), integer(Scalar::I64, tiles.tile_rows)];
        arguments.extend_from_slice(own);
        self.launch(kernel.as_ref(), tiles.count, &arguments)
    }
}

/// How rows are shared out: a tile is a block's.
#[derive(Debug, Clone, Copy)]
struct Tiles {
    rows: u64,
    tile_rows: u64,
    count: u64,
}

mod digits;
mod encode;
mod few_rows;
mod init;
mod leading;
mod merge;
mod pages;
mod ranks;
mod ties;
pub(crate) use self::digits::Varying;
pub(crate) use self::encode::{Array, Written};
pub(crate) use self::few_rows::Counted;
pub(crate) use self::pages::{DecodedColumn, Pages};
pub(crate) use self::ranks::Rows;
#[cfg(test)]
mod tests;
