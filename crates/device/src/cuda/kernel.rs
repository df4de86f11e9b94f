//! Kernels: printed, compiled, cached in memory by module and on disk by source.
//!
//! There are two compilers. The driver's assembler takes PTX and is done soon; NVRTC takes C++, which takes many times as long, and
//! gives code that runs faster. By default ([`Tier::Auto`]) a kernel first gets the driver's code, and NVRTC's as soon as that is there.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use cudarc::driver::result;
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule};
use kelpie_backend::cuda::{self, Options};
use kelpie_backend::{BackendError, ptx};
use kelpie_kir::{Type, ValidModule};
use parking_lot::Mutex;

use super::assembler;
use super::driver::Context;
use crate::behind::Behind;
use crate::cache::ModuleCache;
use crate::disk_cache::DiskCache;
use crate::nvrtc::{self, Nvrtc, NvrtcError};
use crate::{BlockShape, BuildTimes, DeviceError, Kernel, Tier};

/// Modules kept in memory.
const MODULES: usize = 1024;

/// Compiles kernels for one device.
#[derive(Debug)]
pub struct Compiler {
    core: Arc<Core>,
    /// For each kernel of a module what was compiled of it, one a shape of blocks.
    modules: ModuleCache<Vec<Mutex<Vec<Arc<Built>>>>>,
    /// Makes the best code of kernels that run already.
    behind: Behind,
}

/// The compilers themselves, and where their code is kept.
#[derive(Debug)]
pub struct Core {
    pub context: Arc<Context>,
    pub nvrtc: Result<&'static Nvrtc, NvrtcError>,
    /// Such as `sm_90`.
    pub architecture: String,
    /// The most shared memory that a block may have, in bytes.
    pub shared_limit: u32,
    pub disk: DiskCache,
}

/// A kernel's code for launches in blocks of a shape: what was made soonest, and what runs fastest, as far as they are there.
#[derive(Debug)]
pub struct Built {
    shape: BlockShape,
    quick: OnceLock<Arc<Compiled>>,
    best: OnceLock<Arc<Compiled>>,
    /// Whether the best code was asked for.
    asked: AtomicBool,
    /// Held by who compiles it while somebody waits.
    asking: Mutex<()>,
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
    built: Arc<Built>,
    /// What there is where the built kernel has nothing better.
    compiled: Arc<Compiled>,
    tier: Tier,
    compile_ns: u64,
    times: BuildTimes,
}

impl CudaKernel {
    /// The code of the next launch.
    pub fn compiled(&self) -> Arc<Compiled> {
        let better = self.built.best.get().filter(|_| self.tier == Tier::Auto);
        Arc::clone(better.unwrap_or(&self.compiled))
    }
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

impl Compiler {
    /// A compiler with an empty cache in memory.
    pub fn new(core: Core) -> Compiler {
        Compiler { core: Arc::new(core), modules: ModuleCache::new(MODULES), behind: Behind::default() }
    }

    /// The kernel called `name`, for launches in blocks of a shape. Threads that ask for different kernels compile side by side; those that ask for the
    /// same one wait for the first.
    pub fn compile(
        &self,
        module: &ValidModule,
        name: &str,
        (shape, tier): (BlockShape, Tier),
    ) -> Result<CudaKernel, DeviceError> {
        self.core.context.enter()?;
        let built = self.built(module, name, shape)?;
        let wanted = Wanted { module, name, shape };
        let (compiled, times) = {
            let _asking = built.asking.lock();
            self.core.code(&wanted, &built, tier)?
        };
        self.improve(&wanted, &built, tier);
        let BuildTimes { print_ns, build_ns, load_ns } = times;
        // What the disk had was not compiled.
        let compile_ns = if build_ns == 0 { 0 } else { print_ns + build_ns + load_ns };
        Ok(CudaKernel { built, compiled, tier, compile_ns, times })
    }

    /// Where the code of a kernel is kept.
    fn built(&self, module: &ValidModule, name: &str, shape: BlockShape) -> Result<Arc<Built>, DeviceError> {
        let count = module.kernels.len();
        let slots =
            self.modules.get_or_compile(module, || Ok((0..count).map(|_| Mutex::default()).collect()))?;
        let found = module.kernels.iter().position(|(_, kernel)| kernel.name == name);
        let Some(slot) = found.and_then(|index| slots.get(index)) else {
            return Err(self.error(name, "the module has no such kernel"));
        };
        let mut slot = slot.lock();
        if let Some(built) = slot.iter().find(|built| built.shape == shape) {
            return Ok(Arc::clone(built));
        }
        let (quick, best, asked) = (OnceLock::new(), OnceLock::new(), AtomicBool::new(false));
        let built = Arc::new(Built { shape, quick, best, asked, asking: Mutex::default() });
        slot.push(Arc::clone(&built));
        Ok(built)
    }

    /// Makes the code that is made soonest behind the queries: in memory nobody has to wait for it.
    pub fn foresee(&self, module: &Arc<ValidModule>, name: &str, shape: BlockShape) {
        let Ok(built) = self.built(module, name, shape) else { return };
        let (core, module, name) = (Arc::clone(&self.core), Arc::clone(module), name.to_string());
        self.behind.begin(Box::new(move |_| {
            let wanted = Wanted { module: &module, name: &name, shape };
            let _asking = built.asking.lock();
            // Whoever wants the kernel will be told what is wrong with it.
            let _ = core.context.enter().and_then(|()| core.code(&wanted, &built, Tier::Auto));
        }));
    }

    /// Begins to make the best code of a kernel that has other code, behind the queries.
    fn improve(&self, wanted: &Wanted<'_>, built: &Arc<Built>, tier: Tier) {
        let has_best = built.best.get().is_some();
        if tier != Tier::Auto || has_best || self.core.nvrtc.is_err() {
            return;
        }
        if built.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let (core, built) = (Arc::clone(&self.core), Arc::clone(built));
        let (module, name) = (wanted.module.clone(), wanted.name.to_string());
        self.behind.begin(Box::new(move |ends| {
            let wanted = Wanted { module: &module, name: &name, shape: built.shape };
            // What fails here leaves the kernel with the code that it has.
            let made = core.context.enter().and_then(|()| core.make(&wanted, Tier::Best, ends.flag()));
            if let Ok((compiled, _)) = made {
                let _ = built.best.set(compiled);
            }
        }));
    }

    /// Waits until nothing is compiled behind the queries.
    pub fn finish(&self) {
        self.behind.wait();
    }

    pub fn error(&self, kernel: &str, message: impl ToString) -> DeviceError {
        self.core.error(kernel, message)
    }
}

/// What code is made of.
#[derive(Debug, Clone, Copy)]
struct Wanted<'a> {
    module: &'a ValidModule,
    name: &'a str,
    shape: BlockShape,
}

impl Core {
    /// The code of a tier that there is, or that is made now; and where the time went.
    fn code(
        &self,
        wanted: &Wanted<'_>,
        built: &Built,
        tier: Tier,
    ) -> Result<(Arc<Compiled>, BuildTimes), DeviceError> {
        let (quick, best) = (built.quick.get(), built.best.get());
        let found = match tier {
            Tier::Quick => quick,
            Tier::Best => best,
            Tier::Auto => best.or(quick),
        };
        if let Some(found) = found {
            return Ok((Arc::clone(found), BuildTimes::default()));
        }
        let goes_on = AtomicBool::new(false);
        let (made, place) = match tier {
            Tier::Quick => (self.make(wanted, Tier::Quick, &goes_on), &built.quick),
            Tier::Best => (self.make(wanted, Tier::Best, &goes_on), &built.best),
            // The best code of another process, if there is any.
            Tier::Auto => match self.stored(wanted) {
                Some(found) => (Ok(found), &built.best),
                None => match self.make(wanted, Tier::Quick, &goes_on) {
                    // A driver may have no assembler.
                    Err(_) if self.nvrtc.is_ok() => (self.make(wanted, Tier::Best, &goes_on), &built.best),
                    made => (made, &built.quick),
                },
            },
        };
        let (compiled, times) = made?;
        // The code that is made behind may have been sooner: both are the same.
        Ok((Arc::clone(place.get_or_init(|| compiled)), times))
    }

    /// The best code that the disk has.
    fn stored(&self, wanted: &Wanted<'_>) -> Option<(Arc<Compiled>, BuildTimes)> {
        let mut lap = Lap::default();
        let (_, key) = self.source(wanted, Tier::Best).ok()?;
        let print_ns = lap.ns();
        let compiled = self.load(wanted, &self.disk.read(&key)?).ok()?;
        Some((Arc::new(compiled), BuildTimes { print_ns, build_ns: 0, load_ns: lap.ns() }))
    }

    /// The text that a tier's compiler takes, and what its code is kept under.
    fn source(&self, wanted: &Wanted<'_>, tier: Tier) -> Result<(String, String), DeviceError> {
        let Wanted { module, name, shape } = *wanted;
        let options = Options { kernel: Some(name.to_string()), ..crate::print_options(shape) };
        let error = |error: BackendError| self.error(name, error);
        let architecture = &self.architecture;
        if tier == Tier::Quick {
            let source = ptx::print_with(module, &options, architecture).map_err(error)?;
            let driver = super::driver::version().unwrap_or_default();
            let key = format!("{architecture} driver {driver}\n{source}");
            return Ok((source, key));
        }
        let nvrtc = self.nvrtc.as_ref().map_err(|error| self.error(name, error))?;
        let source = cuda::print_with(module, &options).map_err(error)?;
        let (major, minor) = nvrtc.version();
        let key = format!("{architecture} nvrtc {major}.{minor} {}\n{source}", nvrtc::OPTIONS.join(" "));
        Ok((source, key))
    }

    /// From the disk, or from a compiler; and where the time went.
    fn make(
        &self,
        wanted: &Wanted<'_>,
        tier: Tier,
        ends: &AtomicBool,
    ) -> Result<(Arc<Compiled>, BuildTimes), DeviceError> {
        let (mut times, mut lap) = (BuildTimes::default(), Lap::default());
        let (source, key) = self.source(wanted, tier)?;
        times.print_ns = lap.ns();
        // An entry that the driver does not take is as good as none.
        if let Some(compiled) = self.disk.read(&key).and_then(|cubin| self.load(wanted, &cubin).ok()) {
            times.load_ns = lap.ns();
            return Ok((Arc::new(compiled), times));
        }
        times.load_ns = lap.ns();
        let made = match (tier, &self.nvrtc) {
            (Tier::Quick, _) => assembler::assemble(&source, wanted.name),
            (_, Ok(nvrtc)) => nvrtc
                .compile_unless(&source, &self.architecture, wanted.name, ends)
                .map_err(|error| error.to_string()),
            (_, Err(error)) => Err(error.to_string()),
        };
        let cubin = made.map_err(|error| self.error(wanted.name, error))?;
        times.build_ns = lap.ns();
        self.disk.write(&key, &cubin);
        let compiled = self.load(wanted, &cubin)?;
        times.load_ns += lap.ns();
        Ok((Arc::new(compiled), times))
    }

    fn load(&self, wanted: &Wanted<'_>, cubin: &[u8]) -> Result<Compiled, DeviceError> {
        let Wanted { module, name, shape } = *wanted;
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

    fn error(&self, kernel: &str, message: impl ToString) -> DeviceError {
        DeviceError::Compile {
            device: self.context.name.clone(),
            kernel: kernel.to_string(),
            message: message.to_string(),
        }
    }
}

/// Tells how long steps take, one after the other.
struct Lap(Instant);

impl Default for Lap {
    fn default() -> Lap {
        Lap(Instant::now())
    }
}

impl Lap {
    /// Nanoseconds since the last step.
    fn ns(&mut self) -> u64 {
        let now = Instant::now();
        (now - std::mem::replace(&mut self.0, now)).as_nanos() as u64
    }
}
