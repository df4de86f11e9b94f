//! Pages of Parquet files that a device decodes: their kernels (`compile::primitives::pages`), one by one.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::thread;

use kelpie_compile::primitives::pages::decode::Decode;
use kelpie_compile::primitives::pages::decompress::{self, DECOMPRESS};
use kelpie_compile::primitives::pages::facts::{self, Facts};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, Device, Download, Kernel, KernelArgument};
use kelpie_kir::{Module, Scalar, TypeError, ValidModule};
use parking_lot::Mutex;

use super::{Primitives, integer, valid, whole};
use crate::error::EngineError;
use crate::launch::block_shape;

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PageKernel {
    Decompress,
    Decode(Decode),
    Facts(Facts),
}

impl PageKernel {
    pub(super) fn all() -> Vec<PageKernel> {
        let decode = Decode::all().into_iter().map(PageKernel::Decode);
        let facts = Facts::all().into_iter().map(PageKernel::Facts);
        [PageKernel::Decompress].into_iter().chain(decode).chain(facts).collect()
    }

    fn name(self) -> String {
        match self {
            PageKernel::Decompress => DECOMPRESS.into(),
            PageKernel::Decode(decode) => decode.name(),
            PageKernel::Facts(facts) => facts.name(),
        }
    }

    pub(super) fn module(self, shape: &LaunchShape) -> Result<Module, TypeError> {
        match self {
            PageKernel::Decompress => decompress::module(shape),
            PageKernel::Decode(decode) => decode.module(shape),
            PageKernel::Facts(facts) => facts.module(shape),
        }
    }
}

/// Modules by shape: they depend on nothing else.
type Modules = Mutex<HashMap<(LaunchShape, PageKernel), Arc<ValidModule>>>;

/// Pages on a device.
#[derive(Debug)]
pub(crate) struct Pages {
    pub(crate) count: usize,
    /// Their descriptions.
    pub(crate) words: Buffer,
    /// Their bytes, and room for what these are decompressed.
    pub(crate) source: Buffer,
    pub(crate) scratch: Buffer,
    /// What became of each, and how many of its rows have no value, `u32`.
    pub(crate) status: Buffer,
    pub(crate) nulls: Buffer,
}

/// What the pages of a column become.
#[derive(Debug)]
pub(crate) struct DecodedColumn {
    pub(crate) decode: Decode,
    /// What is stored is less by this; and the bounds that were promised.
    pub(crate) base: i128,
    pub(crate) least: i128,
    pub(crate) greatest: i128,
    /// Bits of the rows that have a value, where these are wanted.
    pub(crate) validity: Option<Buffer>,
    pub(crate) out: Buffer,
}

fn module(shape: &LaunchShape, which: PageKernel) -> Result<Arc<ValidModule>, EngineError> {
    static MODULES: LazyLock<Modules> = LazyLock::new(Mutex::default);
    let key = (shape.clone(), which);
    if let Some(module) = MODULES.lock().get(&key) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(valid(which.module(shape))?);
    MODULES.lock().insert(key, Arc::clone(&module));
    Ok(module)
}

impl Primitives<'_> {
    fn page_kernel(&mut self, which: PageKernel) -> Result<Arc<dyn Kernel>, EngineError> {
        let name = which.name();
        if let Some(kernel) = self.kernels.lock().get(name.as_str()) {
            return Ok(Arc::clone(kernel));
        }
        let module = module(&self.shape, which)?;
        let kernel = self.stream.compile_for(&module, &name, block_shape(&self.shape))?;
        self.kernels.lock().insert(name.into(), Arc::clone(&kernel));
        Ok(kernel)
    }

    /// Compiles the kernels that columns need which store such values, side by side: they are wanted once files are being read.
    pub(crate) fn prepare_pages(device: &Arc<dyn Device>, stored: &[Scalar]) {
        let kernels = PageKernel::all().into_iter().filter(|kernel| match kernel {
            PageKernel::Decompress => true,
            PageKernel::Decode(decode) => stored.contains(&decode.stored),
            PageKernel::Facts(Facts::Zones(of)) => stored.contains(of),
            // Most columns have values that are multiples of nothing.
            PageKernel::Facts(Facts::Multiples(_)) => false,
        });
        let shape = LaunchShape::of(device.target());
        let compile = |kernel: PageKernel| {
            // Whoever needs it is told what is wrong with it.
            let module = module(&shape, kernel).ok()?;
            device.compile_for(&module, &kernel.name(), block_shape(&shape)).ok()
        };
        thread::scope(|scope| {
            for kernel in kernels {
                let compile = &compile;
                let _ = thread::Builder::new().spawn_scoped(scope, move || compile(kernel));
            }
        });
    }

    /// Launches a kernel with a warp for each of some pages or zones.
    fn over_warps(
        &mut self,
        which: PageKernel,
        warps: usize,
        own: &[KernelArgument],
    ) -> Result<(), EngineError> {
        if warps == 0 {
            return Ok(());
        }
        let kernel = self.page_kernel(which)?;
        let blocks = (warps as u64).div_ceil(self.shape.warps().into());
        self.launch(kernel.as_ref(), blocks, own)
    }

    /// Decompresses pages.
    pub(crate) fn decompress_pages(&mut self, pages: &Pages) -> Result<(), EngineError> {
        let count = integer(Scalar::I64, pages.count as u64);
        let buffers = [&pages.words, &pages.source, &pages.scratch, &pages.status].map(whole);
        let own: Vec<_> = [count].into_iter().chain(buffers).collect();
        self.over_warps(PageKernel::Decompress, pages.count, &own)
    }

    /// Decodes `count` of the pages from number `first` on, which are decompressed. `dictionary`: its entries as they are stored, and from
    /// which byte on.
    pub(crate) fn decode_pages(
        &mut self,
        pages: &Pages,
        (first, count): (usize, usize),
        (dictionary, dictionary_at): (&Buffer, usize),
        column: &DecodedColumn,
    ) -> Result<(), EngineError> {
        let Decode { value, .. } = column.decode;
        // Of floats no bounds are promised.
        let bound = |bound: i128| KernelArgument::Scalar(value, if value.is_integer() { bound } else { 0 });
        let own = [
            integer(Scalar::I64, first as u64),
            integer(Scalar::I64, count as u64),
            whole(&pages.words),
            whole(&pages.scratch),
            KernelArgument::Buffer(Arc::clone(dictionary), dictionary_at as u64),
            bound(column.base),
            bound(column.least),
            bound(column.greatest),
            whole(column.validity.as_ref().unwrap_or(&pages.status)),
            integer(Scalar::U32, column.validity.is_some().into()),
            whole(&column.out),
            whole(&pages.status),
            whole(&pages.nulls),
        ];
        self.over_warps(PageKernel::Decode(column.decode), count, &own)
    }

    /// What is known of `rows` stored integers by zones: [`facts::WORDS`] words each. `places`: those of a zone's sample.
    pub(crate) fn facts_of_zones(
        &mut self,
        (stored, values): (Scalar, &Buffer),
        rows: u64,
        places: &[u32],
    ) -> Result<Vec<i64>, EngineError> {
        let zones = usize::try_from(rows.div_ceil(facts::ZONE)).unwrap_or(usize::MAX);
        let mut bytes = vec![0u8; zones * facts::WORDS * 8];
        let (out, chosen) = (self.allocate(bytes.len() as u64)?, self.allocate(places.len() as u64 * 4)?);
        let place_bytes: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
        self.stream.upload(&chosen, 0, &place_bytes)?;
        let own = [
            integer(Scalar::I64, rows),
            integer(Scalar::I64, zones as u64),
            whole(values),
            whole(&chosen),
            integer(Scalar::U32, places.len() as u64),
            whole(&out),
        ];
        self.over_warps(PageKernel::Facts(Facts::Zones(stored)), zones, &own)?;
        self.stream.download_many(&mut [Download { buffer: &out, offset: 0, data: &mut bytes }])?;
        let (words, _) = bytes.as_chunks::<8>();
        Ok(words.iter().map(|word| i64::from_le_bytes(*word)).collect())
    }

    /// Whether each of `rows` stored integers is `least` and a multiple of `step` more.
    pub(crate) fn are_multiples(
        &mut self,
        (stored, values): (Scalar, &Buffer),
        rows: u64,
        (least, step): (i64, u64),
    ) -> Result<bool, EngineError> {
        let zones = usize::try_from(rows.div_ceil(facts::ZONE)).unwrap_or(usize::MAX);
        let others = self.allocate(4)?;
        self.stream.fill(&others, 0, 4, 0)?;
        let own = [
            integer(Scalar::I64, rows),
            integer(Scalar::I64, zones as u64),
            whole(values),
            KernelArgument::Scalar(Scalar::I64, least.into()),
            integer(Scalar::U64, step),
            whole(&others),
        ];
        self.over_warps(PageKernel::Facts(Facts::Multiples(stored)), zones, &own)?;
        let mut found = [0u8; 4];
        self.stream.download_many(&mut [Download { buffer: &others, offset: 0, data: &mut found }])?;
        Ok(found == [0; 4])
    }
}
