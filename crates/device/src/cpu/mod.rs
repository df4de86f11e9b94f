//! The CPU as a device: one worker thread a core, kernels compiled by Cranelift, host memory on huge pages.

mod host;
mod kernel;
mod workers;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use kelpie_backend::cpu::CpuModule;
use kelpie_kir::{Target, ValidModule};

use self::kernel::LoadedKernel;
use self::workers::{WorkerPool, launch_failed};
use crate::cache::ModuleCache;
use crate::memory::{HostMemory, HostPool, default_limit};
use crate::query::Immediate;
use crate::{BlockShape, Buffer, Device, DeviceError, DeviceKind, Kernel, Launch, LaunchReport, QueryStream};

/// Name of the device in errors.
const DEVICE: &str = "cpu";
/// Modules kept compiled: some 100 KB each.
const CACHED_MODULES: usize = 256;
/// More workers than this are surely a mistake.
const MAX_WORKERS: usize = 1024;

/// This machine's processor.
#[derive(Debug)]
pub struct CpuDevice {
    target: Target,
    pool: Arc<HostPool>,
    workers: WorkerPool,
    modules: ModuleCache<CpuModule>,
}

impl CpuDevice {
    /// The worker threads of a device that is asked for so many: 1 to 1024, and one a core where absent.
    pub fn workers(asked: Option<usize>) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        asked.unwrap_or_else(cores).clamp(1, MAX_WORKERS) as u32
    }

    /// A device with as many worker threads as [`CpuDevice::workers`] says.
    pub fn new(workers: Option<usize>) -> Result<Arc<CpuDevice>, DeviceError> {
        let workers = CpuDevice::workers(workers);
        let threads = WorkerPool::new(workers).map_err(|error| DeviceError::NotUsable {
            device: DEVICE.into(),
            reason: format!("{workers} worker threads cannot be started: {error}"),
        })?;
        Ok(Arc::new(CpuDevice {
            target: Target { vector_bytes: kelpie_backend::cpu::vector_bytes(), ..Target::cpu(workers) },
            pool: HostPool::new(DEVICE, default_limit()),
            workers: threads,
            modules: ModuleCache::new(CACHED_MODULES),
        }))
    }

    fn memory_of<'a>(&self, buffer: &'a Buffer) -> Result<&'a HostMemory, DeviceError> {
        HostMemory::of(buffer, &self.pool)
    }
}

impl Device for CpuDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn name(&self) -> String {
        format!("{DEVICE} ({} workers)", self.target.resident_blocks)
    }

    fn identity(&self) -> String {
        host::identity()
    }

    fn properties(&self) -> Vec<(String, String)> {
        host::properties(self.target.resident_blocks, self.pool.usage().1)
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> (u64, u64) {
        self.pool.usage()
    }

    fn set_memory_limit(&self, limit: Option<u64>) {
        self.pool.set_limit(limit);
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.pool.allocate(bytes)
    }

    fn allocate_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.pool.allocate_free(bytes)
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.upload(offset, data)
    }

    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.download(offset, data)
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        self.memory_of(buffer)?.fill(offset, bytes, value)
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        if let Some(message) = shape.problem(&self.target) {
            return Err(DeviceError::Compile { device: DEVICE.into(), kernel: kernel.into(), message });
        }
        let started = Instant::now();
        let mut compile_ns = 0;
        let code = self.modules.get_or_compile(module, || {
            let code = kernel::compile(module)?;
            compile_ns = started.elapsed().as_nanos() as u64;
            Ok(code)
        })?;
        Ok(Arc::new(LoadedKernel::new(code, module, kernel, compile_ns)?))
    }

    fn code(&self, module: &ValidModule, _: BlockShape) -> Result<String, DeviceError> {
        kernel::code_text(module)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let kernel = launch.kernel().as_any().downcast_ref::<LoadedKernel>();
        let kernel =
            kernel.ok_or_else(|| launch_failed(DEVICE, "?", "the kernel belongs to another device"))?;
        if launch.blocks() == 0 {
            return Err(launch_failed(DEVICE, kernel.name(), "a grid of no blocks"));
        }
        let status = Arc::new(AtomicU32::new(0));
        let buffers = launch.arguments().iter().filter_map(|argument| Some(argument.buffer()?.0));
        let memory = buffers.map(|buffer| self.memory_of(buffer)).collect::<Result<Vec<_>, _>>()?;
        let _no_writers = HostMemory::in_launch(memory);
        let task = kernel.bind(&self.pool, launch.arguments(), launch.blocks(), status.clone())?;
        let time = self
            .workers
            .run(launch.blocks(), kernel.shared_bytes(), &status, launch.cancel(), task)
            .map_err(|message| launch_failed(DEVICE, kernel.name(), message))?;
        let status = status.load(Ordering::Acquire);
        Ok(LaunchReport { status, time_ns: time.as_nanos() as u64, ..LaunchReport::default() })
    }

    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError> {
        Ok(Box::new(Immediate::new(self)))
    }
}

#[cfg(test)]
mod tests;
