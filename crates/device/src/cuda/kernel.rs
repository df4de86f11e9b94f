//! Kernels: printed, compiled by NVRTC, cached in memory by module and on disk by source.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::Instant;

use cudarc::driver::result;
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use kelpie_backend::cuda::{self, Options};
use kelpie_kir::{Type, ValidModule};
use parking_lot::Mutex;

use super::driver::Context;
use crate::cache::ModuleCache;
use crate::disk_cache::DiskCache;
use crate::nvrtc::{self, Nvrtc};
use crate::{BlockShape, BuildTimes, DeviceError, Kernel};

/// Modules kept in memory.
const MODULES: usize = 1024;

/// Compiles kernels for one device.
#[derive(Debug)]
pub struct Compiler {
    pub context: Arc<Context>,
    pub nvrtc: &'static Nvrtc,
    /// Such as `sm_90`.
    pub architecture: String,
    /// The most shared memory that a block may have, in bytes.
    pub shared_limit: u32,
    disk: DiskCache,
    /// For each kernel of a module what was compiled of it, one a shape of blocks.
    modules: ModuleCache<Vec<Mutex<Vec<Arc<Compiled>>>>>,
}

/// Code in the device.
#[derive(Debug)]
pub struct Compiled {
    context: Arc<Context>,
    module: CUmodule,
    pub function: CUfunction,
    pub name: String,
    /// Types of the parameters, without the status word.
    pub params: Vec<Type>,
    /// Shared memory that a launch asks for, in bytes.
    pub shared_bytes: u32,
    /// The blocks that it is launched in.
    pub shape: BlockShape,
}

// SAFETY: the handles are only passed to the driver, whose functions may be called from any thread.
unsafe impl Send for Compiled {}
// SAFETY: as above.
unsafe impl Sync for Compiled {}

impl Drop for Compiled {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // SAFETY: loaded in `load`, unloaded once; launches hold an `Arc` of this until they are done.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

impl Compiled {
    /// Whether it was compiled for the device with this context.
    pub fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

/// A kernel as `compile` gives it.
#[derive(Debug)]
pub struct CudaKernel {
    pub compiled: Arc<Compiled>,
    compile_ns: u64,
    times: BuildTimes,
}

impl Kernel for CudaKernel {
    fn compile_ns(&self) -> u64 {
        self.compile_ns
    }

    fn build_times(&self) -> BuildTimes {
        self.times
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// What is printed beside the module's own.
pub fn options(shape: BlockShape) -> Options {
    Options { block_threads: Some(shape.threads), resident_blocks: shape.resident, kernel: None }
}

impl Compiler {
    /// A compiler with an empty cache in memory.
    pub fn new(
        context: Arc<Context>,
        nvrtc: &'static Nvrtc,
        disk: DiskCache,
        architecture: String,
        shared_limit: u32,
    ) -> Compiler {
        let modules = ModuleCache::new(MODULES);
        Compiler { context, nvrtc, architecture, shared_limit, disk, modules }
    }

    /// The kernel called `name`, for launches in blocks of a shape. Threads that ask for different kernels compile side by side; those that ask for the
    /// same one wait for the first.
    pub fn compile(
        &self,
        module: &ValidModule,
        name: &str,
        shape: BlockShape,
    ) -> Result<CudaKernel, DeviceError> {
        self.context.enter()?;
        let count = module.kernels.len();
        let slots =
            self.modules.get_or_compile(module, || Ok((0..count).map(|_| Mutex::default()).collect()))?;
        let found = module.kernels.iter().position(|(_, kernel)| kernel.name == name);
        let Some(slot) = found.and_then(|index| slots.get(index)) else {
            return Err(self.error(name, "the module has no such kernel"));
        };
        let mut slot = slot.lock();
        if let Some(compiled) = slot.iter().find(|compiled| compiled.shape == shape) {
            let times = BuildTimes::default();
            return Ok(CudaKernel { compiled: compiled.clone(), compile_ns: 0, times });
        }
        let (compiled, times) = self.compile_fresh(module, name, shape)?;
        let compiled = Arc::new(compiled);
        slot.push(compiled.clone());
        let BuildTimes { print_ns, build_ns, load_ns } = times;
        // What the disk had was not compiled.
        let compile_ns = if build_ns == 0 { 0 } else { print_ns + build_ns + load_ns };
        Ok(CudaKernel { compiled, compile_ns, times })
    }

    /// From the disk, or from NVRTC; and where the time went.
    fn compile_fresh(
        &self,
        module: &ValidModule,
        name: &str,
        shape: BlockShape,
    ) -> Result<(Compiled, BuildTimes), DeviceError> {
        let mut times = BuildTimes::default();
        let mut since = Instant::now();
        let mut lap = || {
            let now = Instant::now();
            (now - std::mem::replace(&mut since, now)).as_nanos() as u64
        };
        let options = Options { kernel: Some(name.to_string()), ..options(shape) };
        let source = cuda::print_with(module, &options).map_err(|error| self.error(name, error))?;
        let (major, minor) = self.nvrtc.version();
        let key =
            format!("{} nvrtc {major}.{minor} {}\n{source}", self.architecture, nvrtc::OPTIONS.join(" "));
        times.print_ns = lap();
        // An entry that the driver does not take is as good as none.
        if let Some(compiled) =
            self.disk.read(&key).and_then(|cubin| self.load((module, name), shape, &cubin).ok())
        {
            times.load_ns = lap();
            return Ok((compiled, times));
        }
        times.load_ns = lap();
        let compiled = self.nvrtc.compile(&source, &self.architecture, name);
        let cubin = compiled.map_err(|error| self.error(name, error))?;
        times.build_ns = lap();
        self.disk.write(&key, &cubin);
        let compiled = self.load((module, name), shape, &cubin)?;
        times.load_ns += lap();
        Ok((compiled, times))
    }

    fn load(
        &self,
        (module, name): (&ValidModule, &str),
        shape: BlockShape,
        cubin: &[u8],
    ) -> Result<Compiled, DeviceError> {
        let kernel = module.kernels.iter().find(|(_, kernel)| kernel.name == name);
        let Some((_, kernel)) = kernel else { return Err(self.error(name, "the module has no such kernel")) };
        let shared_bytes = cuda::dynamic_shared_bytes(module, kernel);
        if shared_bytes > self.shared_limit {
            let limit = self.shared_limit;
            return Err(
                self.error(name, format!("needs {shared_bytes} bytes of shared memory, a block has {limit}"))
            );
        }
        let symbol = CString::new(cuda::symbol(name)).map_err(|error| self.error(name, error))?;
        // SAFETY: the context is current; the image is a whole cubin, from NVRTC or with a checksum from the disk.
        let loaded = unsafe { result::module::load_data(cubin.as_ptr().cast::<c_void>()) };
        let module_handle = self.context.check("loading a kernel", loaded)?;
        let mut compiled = Compiled {
            context: self.context.clone(),
            module: module_handle,
            function: std::ptr::null_mut(),
            name: name.to_string(),
            params: kernel.params.iter().map(|param| param.ty).collect(),
            shared_bytes,
            shape,
        };
        // SAFETY: the module is loaded.
        let function = unsafe { result::module::get_function(compiled.module, symbol) };
        compiled.function = self.context.check("finding a kernel", function)?;
        if shared_bytes > 0 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function is of the loaded module.
            let set = unsafe {
                result::function::set_function_attribute(compiled.function, attribute, shared_bytes as i32)
            };
            self.context.check("asking for shared memory", set)?;
            // All of the first-level cache that can be shared memory, so that as many blocks as possible are resident.
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
            // SAFETY: as above; 100 is a share in percent.
            let set = unsafe { result::function::set_function_attribute(compiled.function, attribute, 100) };
            self.context.check("asking for a share of the cache", set)?;
        }
        Ok(compiled)
    }

    pub fn error(&self, kernel: &str, message: impl ToString) -> DeviceError {
        DeviceError::Compile {
            device: self.context.name.clone(),
            kernel: kernel.to_string(),
            message: message.to_string(),
        }
    }
}
