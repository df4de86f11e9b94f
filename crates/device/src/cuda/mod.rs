//! NVIDIA GPUs, through the driver's interface, which is loaded at run time.
//!
//! A query has a stream of its own, in which its operations run in order. Every operation waits until it is done, but a
//! query's fills and the launches that it defers: they are waited for together with what comes after them. An error that
//! loses the driver's context (a wild pointer in a kernel, say) fails the operation and every later one of this device,
//! with a message that names the first cause; the process and other devices go on. Once everything of the lost context is
//! dropped, the context is reset, and the device may be opened anew. Drivers do not promise that this helps: CUDA 13.0 on an
//! H200 gives no context again in a process that has accessed an illegal address.

#![expect(unsafe_code, reason = "the driver's interface is C")]

mod arena;
mod assembler;
mod deferred;
mod driver;
mod kernel;
mod launch;
mod memory;
mod query;
mod staging;
mod stream;

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdevice, CUdevice_attribute as Attribute, CUdeviceptr};
use kelpie_kir::{Target, ValidModule};
use parking_lot::MutexGuard;

use self::driver::Context;
use self::kernel::{Compiler, Core};
use self::launch::{Lanes, cancelled};
use self::memory::{CudaMemory, Pool};
use self::query::CudaQuery;
use self::staging::Staging;
use crate::disk_cache::DiskCache;
use crate::nvrtc;
use crate::{
    Attributes, BlockShape, Buffer, Device, DeviceError, DeviceKind, Kernel, Launch, LaunchReport,
    QueryStream, Tier,
};

/// Threads of a block, where a kernel does not ask for others.
const BLOCK_THREADS: u32 = 256;
/// Blocks a multiprocessor: enough warps to hide memory latency (1,056 blocks of 256 threads reach an H200's bandwidth).
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// An NVIDIA GPU.
#[derive(Debug)]
pub struct CudaDevice {
    context: Arc<Context>,
    target: Target,
    properties: Vec<(String, String)>,
    attributes: Attributes,
    compiler: Compiler,
    lanes: Lanes,
    staging: Staging,
    pool: Arc<Pool>,
}

/// Number of GPUs, or why there is none.
pub fn count() -> Result<usize, DeviceError> {
    let label = "cuda".to_string();
    driver::start().map_err(|reason| DeviceError::NotUsable { device: label.clone(), reason })?;
    match result::device::get_count() {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(error) => Err(DeviceError::NotUsable { device: label, reason: driver::words(error) }),
    }
}

impl CudaDevice {
    /// The GPU at `ordinal`; the error says what is missing, and where it was looked for.
    pub fn open(ordinal: usize) -> Result<Arc<CudaDevice>, DeviceError> {
        CudaDevice::open_with_cache(ordinal, DiskCache::of_user("cubin"))
    }

    /// As `open`, with the compiled code of kernels kept in `disk`.
    pub fn open_with_cache(ordinal: usize, disk: DiskCache) -> Result<Arc<CudaDevice>, DeviceError> {
        let unusable =
            |device: &str, reason: String| DeviceError::NotUsable { device: device.to_string(), reason };
        let label = format!("cuda:{ordinal}");
        let count = count().map_err(|error| match error {
            DeviceError::NotUsable { reason, .. } => unusable(&label, reason),
            other => other,
        })?;
        if ordinal >= count {
            return Err(unusable(&label, format!("the driver sees {count} GPUs")));
        }
        let device =
            result::device::get(ordinal as i32).map_err(|error| unusable(&label, driver::words(error)))?;
        let name = result::device::get_name(device).unwrap_or_else(|_| "NVIDIA GPU".into());
        let label = format!("{name} ({label})");
        // Without it the driver's assembler makes all code.
        let nvrtc = nvrtc::get();
        let (major, minor) = (
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        );
        if major < 7 {
            return Err(unusable(&label, format!("compute capability {major}.{minor} is below 7.0")));
        }
        let architecture = format!("sm_{major}{minor}");
        let context = Context::new(label, device)?;
        let pool = Arc::new(Pool::new(context.clone())?);
        let multiprocessors = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).max(1);
        let shared = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
        let shared_limit =
            attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
        let target = Target::simt(
            32,
            BLOCK_THREADS,
            shared_limit.max(shared),
            multiprocessors * BLOCKS_PER_MULTIPROCESSOR,
        );
        let shared_limit = shared_limit.max(shared);
        let own = Core { context: context.clone(), nvrtc: nvrtc.clone(), architecture, shared_limit, disk };
        let compiler = Compiler::new(own);
        Ok(Arc::new(CudaDevice {
            properties: properties(device, nvrtc.as_ref()),
            attributes: attributes(device),
            target,
            compiler,
            lanes: Lanes::new(context.clone()),
            staging: Staging::new(context.clone()),
            pool,
            context,
        }))
    }

    /// Compiles a kernel, or takes it from a cache, in a tier.
    fn compile_as(
        &self,
        module: &ValidModule,
        kernel: &str,
        (shape, tier): (BlockShape, Tier),
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        if let Some(problem) = shape.problem(&self.target) {
            return Err(self.compiler.error(kernel, problem));
        }
        Ok(Arc::new(self.compiler.compile(module, kernel, (shape, tier))?))
    }

    /// How many streams were ever made for queries: as many as ran at the same time.
    pub fn query_streams(&self) -> usize {
        self.lanes.made()
    }

    /// The address of `bytes` bytes of a buffer from `offset` on.
    fn range(
        &self,
        operation: &str,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
    ) -> Result<CUdeviceptr, DeviceError> {
        let memory = buffer.as_any().downcast_ref::<CudaMemory>().filter(|memory| memory.is_of(&self.pool));
        let Some(memory) = memory else {
            return Err(self.context.failed(operation, "the memory is of another device"));
        };
        if offset.checked_add(bytes).is_none_or(|end| end > buffer.bytes()) {
            let message = format!("bytes {offset}..+{bytes} of a buffer of {}", buffer.bytes());
            return Err(self.context.failed(operation, message));
        }
        Ok(memory.pointer() + offset as u64)
    }

    /// As `on_host`, for this thread alone.
    fn host_part<'a>(&self, buffer: &'a Buffer, offset: usize) -> Option<(*mut u8, MutexGuard<'a, ()>)> {
        let memory = buffer.as_any().downcast_ref::<CudaMemory>()?;
        Some((memory.on_host(offset)?, memory.lock()))
    }

    /// The bytes of a buffer from `offset` on, where it lies on the host; `range` has checked them.
    fn on_host(&self, buffer: &Buffer, offset: usize) -> Option<*mut u8> {
        buffer.as_any().downcast_ref::<CudaMemory>().and_then(|memory| memory.on_host(offset))
    }
}

/// A property of a device; 0 where the driver does not know it.
fn attribute(device: CUdevice, attribute: Attribute) -> u32 {
    // SAFETY: `device` comes from `cuDeviceGet`.
    let value = unsafe { result::device::get_attribute(device, attribute) };
    value.ok().and_then(|value| u32::try_from(value).ok()).unwrap_or(0)
}

fn attributes(device: CUdevice) -> Attributes {
    // What the driver does not know is 0.
    let value = |name| Some(u64::from(attribute(device, name))).filter(|value| *value > 0);
    Attributes {
        multiprocessors: value(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        shared_bytes: value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        last_cache: value(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    }
}

fn properties(
    device: CUdevice,
    nvrtc: Result<&&'static nvrtc::Nvrtc, &nvrtc::NvrtcError>,
) -> Vec<(String, String)> {
    let value = |name| attribute(device, name);
    let kib = |bytes: u32| format!("{} KiB", bytes / 1024);
    // SAFETY: `device` comes from `cuDeviceGet`.
    let total = unsafe { result::device::total_mem(device) }.unwrap_or(0);
    let major = value(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
    let minor = value(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    let clock_khz = f64::from(value(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE));
    let bus_bits = f64::from(value(Attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH));
    let mut list = vec![
        ("compute capability", format!("{major}.{minor}")),
        ("multiprocessors", value(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).to_string()),
        ("memory", format!("{:.1} GiB", total as f64 / f64::from(1 << 30))),
        ("L2 cache", kib(value(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE))),
        ("shared memory a block", kib(value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK))),
        (
            "shared memory at most",
            kib(value(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)),
        ),
    ];
    if clock_khz > 0.0 {
        // Two transfers a clock.
        list.push(("memory bandwidth", format!("{:.0} GB/s", clock_khz * 2e3 * bus_bits / 8.0 / 1e9)));
    }
    let address = format!(
        "PCI {:04x}:{:02x}:{:02x}",
        value(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
        value(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
        value(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
    );
    list.push(("link", address));
    list.push(("driver", format!("CUDA {}", driver::version().unwrap_or_else(|| "unknown".into()))));
    let found = match nvrtc {
        Ok(nvrtc) => {
            let (major, minor) = nvrtc.version();
            format!("{major}.{minor} ({})", nvrtc.path().display())
        }
        Err(error) => format!("{error}; the driver assembles all kernels"),
    };
    list.push(("NVRTC", found));
    list.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

impl Device for CudaDevice {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn name(&self) -> String {
        self.context.name.clone()
    }

    fn identity(&self) -> String {
        let driver = driver::version().unwrap_or_else(|| "unknown".into());
        format!("{}, driver of CUDA {driver}", self.context.name)
    }

    fn attributes(&self) -> Attributes {
        self.attributes
    }

    fn is_lost(&self) -> bool {
        self.context.is_lost()
    }

    fn properties(&self) -> Vec<(String, String)> {
        self.properties.clone()
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn memory(&self) -> (u64, u64) {
        self.pool.memory()
    }

    fn set_memory_limit(&self, limit: Option<u64>) {
        self.pool.set_limit(limit);
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(Arc::new(self.pool.allocate(bytes)?))
    }

    fn allocate_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        Ok(Arc::new(self.pool.allocate_host(bytes)?))
    }

    fn upload(&self, buffer: &Buffer, offset: usize, data: &[u8]) -> Result<(), DeviceError> {
        let target = self.range("a copy to the device", buffer, offset, data.len())?;
        if let Some((target, _alone)) = self.host_part(buffer, offset) {
            // SAFETY: `range` checked that the buffer has these bytes; kernels that use them are waited for, and the lock keeps
            // other threads away.
            unsafe { target.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            return Ok(());
        }
        if data.is_empty() { Ok(()) } else { self.staging.upload(None, target, data) }
    }

    fn download(&self, buffer: &Buffer, offset: usize, data: &mut [u8]) -> Result<(), DeviceError> {
        let source = self.range("a copy from the device", buffer, offset, data.len())?;
        if let Some((source, _alone)) = self.host_part(buffer, offset) {
            // SAFETY: as in `upload`.
            unsafe { data.as_mut_ptr().copy_from_nonoverlapping(source, data.len()) };
            return Ok(());
        }
        if data.is_empty() { Ok(()) } else { self.staging.download(None, vec![(source, data)]) }
    }

    fn fill(&self, buffer: &Buffer, offset: usize, bytes: usize, value: u8) -> Result<(), DeviceError> {
        let target = self.range("a fill", buffer, offset, bytes)?;
        if let Some((target, _alone)) = self.host_part(buffer, offset) {
            // SAFETY: as in `upload`.
            unsafe { target.write_bytes(value, bytes) };
            return Ok(());
        }
        if bytes == 0 { Ok(()) } else { self.staging.fill(target, bytes, value) }
    }

    fn compile_for(
        &self,
        module: &ValidModule,
        kernel: &str,
        shape: BlockShape,
    ) -> Result<Arc<dyn Kernel>, DeviceError> {
        self.compile_as(module, kernel, (shape, Tier::default()))
    }

    fn compile_behind(&self, module: &Arc<ValidModule>, kernel: &str, shape: BlockShape) {
        if shape.problem(&self.target).is_none() {
            self.compiler.foresee(module, kernel, shape);
        }
    }

    fn finish_compiling(&self) {
        self.compiler.finish();
    }

    fn code(&self, module: &ValidModule, shape: BlockShape) -> Result<String, DeviceError> {
        kelpie_backend::cuda::print_with(module, &crate::print_options(shape))
            .map_err(|error| self.context.failed("printing a module", error.to_string()))
    }

    fn launch(&self, launch: Launch<'_>) -> Result<LaunchReport, DeviceError> {
        let mut lane = self.lanes.take()?;
        // After an error the lane is dropped: nothing is known about its stream.
        let report = lane.launch(&self.pool, &launch)?;
        self.lanes.give_back(lane);
        Ok(report.unwrap_or_else(cancelled))
    }

    fn begin_query(self: Arc<Self>) -> Result<Box<dyn QueryStream>, DeviceError> {
        Ok(Box::new(CudaQuery::new(self)?))
    }
}
