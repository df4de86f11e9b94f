//! The CPU as a device: kernels compiled by Cranelift, run by the worker threads of the process, and host memory on huge pages.

mod host;
mod kernel;
mod schedule;
mod workers;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kelpie_backend::cpu::{CpuModule, LaunchStatus};
use kelpie_kir::{Target, ValidModule};

use self::kernel::LoadedKernel;
use self::workers::{Blocks, WorkerPool, launch_failed};
use crate::cache::ModuleCache;
use crate::memory::{Account, HostMemory, HostPool, default_limit};
use crate::query::Immediate;
use crate::{BlockShape, Buffer, Device, DeviceError, DeviceKind, Kernel, Launch, LaunchReport, QueryStream};

/// Name of the device in errors.
const DEVICE: &str = "cpu";
/// Modules kept compiled: some 100 KB each.
const CACHED_MODULES: usize = 256;
/// More workers than this are surely a mistake.
const MAX_WORKERS: usize = 1024;

/// This machine's processor, for those who have so many workers and so much memory of it.
#[derive(Debug)]
pub struct CpuDevice {
    target: Target,
    pool: Arc<HostPool>,
    /// What of the pool's memory may be had, where it is not all.
    account: Option<Arc<Account>>,
    workers: Arc<WorkerPool>,
    modules: Arc<ModuleCache<CpuModule>>,
}

impl CpuDevice {
    /// The workers of a device that is asked for so many: 1 to 1024, and one a core where absent.
    pub fn workers(asked: Option<usize>) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        asked.unwrap_or_else(cores).clamp(1, MAX_WORKERS) as u32
    }

    /// A device with memory of its own, whose launches have as many workers at once as [`CpuDevice::workers`] says. Their threads are
    /// those of the process.
    pub fn new(workers: Option<usize>) -> Result<Arc<CpuDevice>, DeviceError> {
        let workers = CpuDevice::workers(workers);
        Ok(Arc::new(CpuDevice {
            target: target(workers),
            pool: HostPool::new(DEVICE, default_limit()),
            account: None,
            workers: threads(workers)?,
            modules: Arc::new(ModuleCache::new(CACHED_MODULES)),
        }))
    }

    /// The same device for launches with other workers: it has the same memory and what was compiled.
    pub fn with_workers(&self, workers: Option<usize>) -> Result<Arc<CpuDevice>, DeviceError> {
        let workers = CpuDevice::workers(workers);
        let (pool, modules) = (Arc::clone(&self.pool), Arc::clone(&self.modules));
        let (account, threads) = (self.account.clone(), threads(workers)?);
        Ok(Arc::new(CpuDevice { target: target(workers), pool, account, workers: threads, modules }))
    }

    /// The same device for those who may have so many bytes of its memory together.
    pub fn with_memory_limit(&self, limit_bytes: u64) -> Arc<CpuDevice> {
        let (pool, modules) = (Arc::clone(&self.pool), Arc::clone(&self.modules));
        let (account, workers) = (Some(Account::new(limit_bytes)), Arc::clone(&self.workers));
        Arc::new(CpuDevice { target: self.target.clone(), pool, account, workers, modules })
    }

    fn memory_of<'a>(&self, buffer: &'a Buffer) -> Result<&'a HostMemory, DeviceError> {
        HostMemory::of(buffer, &self.pool)
    }
}

/// What code is made for.
fn target(workers: u32) -> Target {
    Target { vector_bytes: kelpie_backend::cpu::vector_bytes(), ..Target::cpu(workers) }
}

/// The threads of the process, enough for so many workers.
fn threads(workers: u32) -> Result<Arc<WorkerPool>, DeviceError> {
    WorkerPool::of_process(workers).map_err(|error| DeviceError::NotUsable {
        device: DEVICE.into(),
        reason: format!("no worker thread can be started: {error}"),
    })
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
        self.account.as_ref().map_or_else(|| self.pool.usage(), |account| account.usage())
    }

    fn memory_id(&self) -> usize {
        self.account.as_ref().map_or(self.pool.id, |account| account.id)
    }

    fn all_memory_id(&self) -> usize {
        self.pool.id
    }

    fn set_memory_limit(&self, limit: Option<u64>) {
        self.pool.set_limit(limit);
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        self.pool.allocate_from(self.account.as_ref(), bytes)
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
        let status = Arc::<LaunchStatus>::default();
        let buffers = launch.arguments().iter().filter_map(|argument| Some(argument.buffer()?.0));
        let memory = buffers.map(|buffer| self.memory_of(buffer)).collect::<Result<Vec<_>, _>>()?;
        let _no_writers = HostMemory::in_launch(memory);
        let task = kernel.bind(&self.pool, launch.arguments(), launch.blocks(), status.clone())?;
        let (blocks, shared_bytes) = (launch.blocks(), kernel.shared_bytes());
        let blocks = Blocks { blocks, shared_bytes, status: &status, cancel: launch.cancel() };
        let time = self
            .workers
            .run(blocks, task)
            .map_err(|message| launch_failed(DEVICE, kernel.name(), message))?;
        let status = status.code.load(Ordering::Acquire);
        Ok(LaunchReport { status, time_ns: time.as_nanos() as u64, ..LaunchReport::default() })
    }

    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError> {
        Ok(Box::new(Immediate::new(self)))
    }
}

#[cfg(test)]
mod tests;
