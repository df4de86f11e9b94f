//! The measurement: rates of accesses to random places, for working sets from what any first-level cache holds to what none does.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use kelpie_compile::primitives::random::{self, ATOMICS, CHAINS, READS};
use kelpie_compile::shape::LaunchShape;
use kelpie_device::{Buffer, CancelToken, Device, DeviceKind, Kernel, KernelArgument, QueryStream};
use kelpie_kir::{Scalar, validate};

use super::{Measured, Point};
use crate::bandwidth;
use crate::error::EngineError;
use crate::launch::{block_shape, submit};

/// Bytes from place to place: a cache line, of which a GPU fetches sectors of half of it.
pub(super) const LINE_BYTES: u64 = 64;
/// Bytes of the smallest pages that a processor has.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Bytes from place to place where each has a page of its own: lines that follow each other in a cache's sets, not all in one.
const PAGE_STRIDE: u64 = PAGE_BYTES + LINE_BYTES;
/// Addresses that are few.
pub(super) const FEW_ADDRESSES: u64 = 64;
/// Bytes of the smallest working set.
const LEAST_BYTES: u64 = 16 << 10;
/// Accesses before a rate is measured, at most: what fits a cache should be there, and what does not need not.
const MOST_WARMING: u64 = 4 << 20;

/// Turns of a launch, at most, whatever a clock says.
const MOST_TURNS: u64 = 1 << 22;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// Bytes of the greatest working set, a power of two.
    pub most_bytes: u64,
    /// Time of a launch that is measured, about.
    pub launch_ns: u64,
    /// Launches of which the second fastest is taken.
    pub runs: usize,
}

impl Extent {
    /// What suits a device.
    fn of(device: &dyn Device) -> Extent {
        let (used, limit) = device.memory();
        // A quarter of what is free leaves room for whoever else works there.
        let free = limit.saturating_sub(used) / 4;
        match device.kind() {
            DeviceKind::Simt => Extent { most_bytes: 64 << 10, launch_ns: 0, runs: 1 },
            kind => {
                // The host's memory is not in use yet, and each page of it takes time.
                let most = if kind == DeviceKind::Cpu { 512 << 20 } else { 1 << 30 };
                let most = free.clamp(1 << 20, most);
                Extent { most_bytes: 1 << most.ilog2(), launch_ns: 1_500_000, runs: 7 }
            }
        }
    }
}

/// Measures a device.
pub(crate) fn measure(device: &Arc<dyn Device>) -> Result<Measured, EngineError> {
    measure_so_much(device, Extent::of(device.as_ref()))
}

/// As [`measure`], so much.
pub(super) fn measure_so_much(device: &Arc<dyn Device>, extent: Extent) -> Result<Measured, EngineError> {
    let start = Instant::now();
    let rates = bandwidth::measure(device)?;
    let stream = Arc::clone(device).begin_query()?;
    let bench = Bench::new(stream.as_ref(), extent)?;
    let sizes = |from: u64, factor: u64| {
        std::iter::successors(Some(from), move |bytes| bytes.checked_mul(factor))
            .take_while(move |bytes| *bytes <= extent.most_bytes)
    };
    let lines = |bytes: u64| Set { places: bytes / LINE_BYTES, stride: LINE_BYTES };
    let reads = sizes(LEAST_BYTES, 2).map(|bytes| bench.point(&bench.reads, lines(bytes)));
    let reads = reads.collect::<Result<_, _>>()?;
    let pages = sizes(LEAST_BYTES, 2).map(|bytes| Set { places: bytes / LINE_BYTES, stride: PAGE_STRIDE });
    let pages = pages.take_while(|set| set.places * set.stride <= extent.most_bytes);
    let page_reads = pages.map(|set| bench.point(&bench.reads, set)).collect::<Result<_, _>>()?;
    let addresses = [1, FEW_ADDRESSES].map(|places| places * LINE_BYTES);
    let atomics = addresses.into_iter().chain(sizes(LEAST_BYTES * 4, 4));
    let atomics = atomics.map(|bytes| bench.point(&bench.atomics, lines(bytes))).collect::<Result<_, _>>()?;
    let mut measured = Measured {
        memory: thousandths(rates.memory),
        link: thousandths(rates.link),
        reads,
        page_reads,
        atomics,
        took_ms: start.elapsed().as_millis() as u64,
        ..Measured::default()
    };
    measured.derive(device.kind(), device.attributes());
    Ok(measured)
}

/// A working set: so many places, a power of two, so many bytes apart.
#[derive(Debug, Clone, Copy)]
struct Set {
    places: u64,
    stride: u64,
}

/// A kernel, and the bytes of the numbers that it accesses.
struct Access {
    kernel: Arc<dyn Kernel>,
    bytes: u64,
}

/// What measures.
struct Bench<'a> {
    stream: &'a dyn QueryStream,
    extent: Extent,
    shape: LaunchShape,
    reads: Access,
    atomics: Access,
    /// Memory of the greatest set.
    memory: Buffer,
    out: Buffer,
    /// Launches so far.
    launches: Cell<u32>,
}

impl<'a> Bench<'a> {
    fn new(stream: &'a dyn QueryStream, extent: Extent) -> Result<Bench<'a>, EngineError> {
        let internal = |error: String| EngineError::Internal(format!("a kernel that measures: {error}"));
        let module = random::module().map_err(|error| internal(error.to_string()))?;
        let module = validate(module).map_err(|error| internal(error.to_string()))?;
        let device = stream.device();
        let shape = LaunchShape::of(device.target());
        let blocks = block_shape(&shape);
        let reads = Access { kernel: stream.compile_for(&module, READS, blocks)?, bytes: 4 };
        let atomics = Access { kernel: stream.compile_for(&module, ATOMICS, blocks)?, bytes: 8 };
        let bytes = usize::try_from(extent.most_bytes).map_err(|error| internal(error.to_string()))?;
        let memory = device.allocate(bytes)?;
        stream.fill(&memory, 0, bytes, 0)?;
        let out = device.allocate(16)?;
        Ok(Bench { stream, extent, shape, reads, atomics, memory, out, launches: Cell::new(0) })
    }

    /// Accesses of one turn: every thread's.
    fn turn(&self) -> u64 {
        u64::from(self.shape.most_blocks) * u64::from(self.shape.block_threads) * u64::from(CHAINS)
    }

    /// How many turns take about as long as a launch should.
    fn turns(&self, access: &Access, set: Set) -> Result<u64, EngineError> {
        let wanted_ns = self.extent.launch_ns;
        let mut turns = 1;
        loop {
            // A quarter tells well enough how many take all of it. Twice: one launch may have waited for others.
            let mut time_ns = self.launch(access, set, turns)?;
            if time_ns >= wanted_ns / 4 {
                time_ns = time_ns.min(self.launch(access, set, turns)?);
            }
            if time_ns >= wanted_ns / 4 || turns >= MOST_TURNS {
                let turns = u128::from(turns) * u128::from(wanted_ns) / u128::from(time_ns.max(1));
                return Ok(u64::try_from(turns).unwrap_or(MOST_TURNS).clamp(1, MOST_TURNS));
            }
            turns *= 4;
        }
    }

    /// The rate of accesses to a set.
    fn point(&self, access: &Access, set: Set) -> Result<Point, EngineError> {
        let (bytes, turn) = (set.places * LINE_BYTES, self.turn());
        let Extent { launch_ns, runs, .. } = self.extent;
        let turns = self.turns(access, set)?;
        let mut warmed = turns * turn;
        while launch_ns > 0 && warmed < (2 * set.places).min(MOST_WARMING) {
            self.launch(access, set, turns)?;
            warmed += turns * turn;
        }
        let times = (0..runs).map(|_| self.launch(access, set, turns));
        let mut times = times.collect::<Result<Vec<u64>, _>>()?;
        times.sort_unstable();
        // Whatever else the machine does makes launches slower and none faster; one may have met what was in a cache by chance.
        let time_ns = times.get(1).or(times.first()).copied().unwrap_or_default().max(1);
        // Whole numbers: files have them as they are.
        Ok(Point { bytes, per_second: ((turns * turn) as f64 * 1e9 / time_ns as f64).round() })
    }

    /// Accesses to a set; the time in nanoseconds.
    fn launch(&self, access: &Access, set: Set, turns: u64) -> Result<u64, EngineError> {
        // The kernel goes to places of the set alone, which lies within the memory.
        let inside = set.places.is_power_of_two()
            && set.places.checked_mul(set.stride).is_some_and(|bytes| bytes <= self.extent.most_bytes);
        if !inside || !set.stride.is_multiple_of(access.bytes) {
            return Err(EngineError::Internal(format!("a working set of {set:?}")));
        }
        let run = self.launches.get();
        self.launches.set(run.wrapping_add(1));
        let arguments = [
            KernelArgument::Buffer(Arc::clone(&self.memory), 0),
            KernelArgument::Scalar(Scalar::I64, turns.into()),
            KernelArgument::Scalar(Scalar::U64, i128::from(set.places - 1)),
            KernelArgument::Scalar(Scalar::I64, i128::from(set.stride / access.bytes)),
            KernelArgument::Scalar(Scalar::U64, i128::from(run % (1 << 24))),
            KernelArgument::Buffer(Arc::clone(&self.out), 0),
        ];
        let (blocks, cancel) = (self.shape.most_blocks, CancelToken::default());
        Ok(submit(self.stream, access.kernel.as_ref(), blocks, &arguments, &cancel)?.time_ns)
    }
}

/// A rate with as many digits as it was measured to, and not none.
fn thousandths(rate: f64) -> f64 {
    ((rate * 1e3).round() / 1e3).max(1e-3)
}
